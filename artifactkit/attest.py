"""From a conversion to its statement, and from a statement back to the options that would make it again.

Every field of ``ConvertOptions`` and ``ReadOptions`` is recorded, but for those that leave the output as it is: an
option that comes later is recorded without a word here.
"""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass

from . import dtypes, trees
from .dtypes import DType
from .errors import Corrupt
from .placing import Digest
from .provenance import statement as st
from .provenance.statement import Object
from .report import Check, Entry, Loss
from .route import ConvertOptions, Route
from .types import ReadOptions

# They decide whether there is an output, where it lies and what is said of it, not what it is. The formats are recorded
# by themselves, as they were found.
NOT_RECORDED = frozenset(
    {
        "source_format", "target_format", "strict", "force", "verify", "expected", "statement", "timestamps", "builder",
        "read",
    }
)  # fmt: skip


# Options that name a file. Its name is recorded; its content is among the dependencies.
PATHS = frozenset({"imatrix"})


def parameters(options: ConvertOptions | ReadOptions) -> Object:
    """The options that have a part in the output, as JSON. Those that are unset are left out."""
    found: Object = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in NOT_RECORDED and value is not None:
            found[field.name] = os.path.basename(str(value)) if field.name in PATHS else _to_json(value)
    if isinstance(options, ConvertOptions):
        found |= parameters(options.read)
    return found


def _to_json(value: object) -> object:
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_json(getattr(value, field.name)) for field in fields(value)}
    return value if isinstance(value, str | int | bool) else str(value)


def options_of(statement: Object, file: str) -> ConvertOptions:
    """The options that a provenance statement of ours records. Corrupt for one that this version does not know."""
    external = statement["predicate"]["buildDefinition"]["externalParameters"]
    left: Object = dict(external["options"])
    read, kept = (
        {name: _from_json(of, name, left.pop(name), file) for name in _names(of) if name in left}
        for of in (ReadOptions, ConvertOptions)
    )
    if left:
        raise Corrupt(
            "the statement records an option that this version does not know", file=file, found=min(left),
            hint="check it with the version that the statement names as its builder's",
        )  # fmt: skip
    return ConvertOptions(
        source_format=external["from"], target_format=external["to"], read=ReadOptions(**read), **kept
    )


def _names(of: type[ConvertOptions] | type[ReadOptions]) -> list[str]:
    return [field.name for field in fields(of) if field.name not in NOT_RECORDED]


def _from_json(of: type[ConvertOptions] | type[ReadOptions], name: str, value: object, file: str) -> typing.Any:
    """A recorded value in the type of its field."""
    hint = typing.get_type_hints(of)[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for kind in kinds:
        if kind is DType and isinstance(value, str):
            return dtypes.parse(value)
        if kind in (str, int, bool) and type(value) is kind:
            return value
        if typing.get_origin(kind) is tuple and isinstance(value, list):
            if all(isinstance(item, str) for item in value):
                return tuple(value)
    raise Corrupt(
        "the statement records an option in another form than this version's", file=file, expected=hint,
        found=f"{name}: {value!r}"[:200],
    )  # fmt: skip


def default(name: str) -> object:
    """What an option is when nothing is said, as JSON; None for one without a default and for an unknown one."""
    for of in (ConvertOptions, ReadOptions):
        for field in fields(of):
            if field.name == name and field.default is not MISSING:
                return _to_json(field.default)
    return None


def root_of(source: str) -> str:
    """The folder that names of a source's files are relative to, with a slash at the end unless it is empty."""
    mounted = trees.find(source)
    if mounted is not None:
        return mounted[0].root + "/"
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    return os.path.join(folder, "") if folder else ""


def input_name(path: str, root: str) -> str:
    """The name that a statement has for an input: relative to the folder it is from, never a path of this machine."""
    if path.startswith(root) and root:
        return path[len(root) :].replace(os.sep, "/")
    relative = os.path.relpath(path, root or os.curdir) if not trees.is_url(path) else os.path.basename(path)
    return os.path.basename(path) if relative.startswith(os.pardir) else relative.replace(os.sep, "/")


def dependencies(route: Route, digests: Iterable[Digest]) -> list[Object]:
    """The input files, and the revision that they are from where there is one."""
    origin, source = route.origin, route.opened.given
    root = root_of(source)
    found = []
    for digest in digests:
        uri = None
        if trees.find(digest.name) is not None:
            uri = st.public(origin.uri if origin.uri and digest.name == source else digest.name)
        elif origin.uri is not None and digest.name == source:
            uri = st.public(origin.uri)
        found.append(st.descriptor(input_name(digest.name, root), digest.sha256, uri, origin.commit))
    if origin.commit is not None and origin.uri is not None:
        mounted = trees.find(source)
        found.append(st.revision(st.public(mounted[0].root if mounted else origin.uri), origin.commit))
    return found


def external(route: Route, options: ConvertOptions) -> Object:
    """What was asked for: the source as given and pinned, the route, the options."""
    origin = route.origin
    given = st.public(origin.given) if trees.is_url(origin.given) else _basename(origin.given)
    source: Object = {"name": _basename(route.opened.given), "given": given}
    source["kind"] = "folder" if route.opened.folder else "file"
    for key, value in (("uri", origin.uri and st.public(origin.uri)), ("commit", origin.commit)):
        if value is not None:
            source[key] = value
    return {
        "source": source,
        "from": route.opened.format.name,
        "to": route.target.name,
        "destination": "folder" if route.folder else "file",
        "options": parameters(options),
    }


def _basename(path: str) -> str:
    if trees.is_url(path):
        return path.rstrip("/").rsplit("/", 1)[-1]
    return os.path.basename(os.path.abspath(path))


def statement_of(
    route: Route,
    options: ConvertOptions,
    entries: Sequence[Entry],
    checks: Iterable[Check],
    losses: Iterable[Loss],
    inputs: Iterable[Digest],
    outputs: Iterable[Digest],
    times: tuple[str, str] | None,
) -> Object:
    """The statement of a conversion that was checked. UsageError for a builder's id that is no URI."""
    extras = [package for fmt in (route.opened.format, route.target) for package in EXTRAS.get(fmt.extra or "", ())]
    return st.build_provenance(
        [st.descriptor(digest.name, digest.sha256) for digest in outputs],
        dependencies(route, inputs),
        external(route, options),
        entries,
        checks,
        losses,
        st.builder_id(options.builder),
        st.versions(extras),
        times,
    )


# The libraries of an extra that have a part in what a format of it writes.
EXTRAS: dict[str, tuple[str, ...]] = {
    "gguf": ("gguf", "libgguf"),
    "mlx": ("mlx",),
    "onnx": ("onnx", "onnx-ir"),
    "torch": ("torch",),
}
