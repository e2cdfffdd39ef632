"""``artifactkit.lock``: what it holds, how it is written and read.

It is TOML: one line a file, sorted, without clock, host or absolute path that the recipe did not name, so that a change
is a change of as many lines. It is written by ``artifactkit lock`` and read strictly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import Unreadable, UsageError
from ..files import File
from . import text
from .keys import NAME, NAME_WORDS
from .model import LOCK, Pinned, Target
from .problems import Problems
from .read import document_of
from .shapes import Flag, Integer, Key, Names, Shape, Table, Text

SCHEMA = 1
MAX_SIZE = 64 << 20  # bytes; a file's line has about 150
HEAD = """\
# What artifactkit.toml led to. Written by `artifactkit lock`, not by hand; `artifactkit lock --check` compares.
"""


@dataclass(frozen=True, slots=True)
class LockedFile:
    """One file that is used: its name within the source, its size in bytes, its sha256 in hexadecimal digits."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LockedSource:
    """A model or an input, pinned. ``commit`` is a hub revision's; other sources are pinned by their files alone."""

    kind: str
    name: str
    source: str
    revision: str | None = None
    commit: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    files: tuple[LockedFile, ...] = ()

    @property
    def what(self) -> str:
        return f"{self.kind}.{self.name}"

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self.files)

    def is_of(self, pinned: Pinned) -> bool:
        """Whether this is what the recipe asks for, whatever it led to."""
        return (
            self.source == pinned.source
            and self.revision == pinned.revision
            and dict(self.options) == dict(pinned.options)
        )


@dataclass(frozen=True, slots=True)
class Lock:
    """A whole lock file: tool versions by name, sources by ``models.NAME`` and ``inputs.NAME``, targets by name."""

    tools: Mapping[str, str]
    sources: Mapping[str, LockedSource]
    targets: Mapping[str, Mapping[str, object]]


def options_of(target: Target) -> dict[str, object]:
    """What the lock holds of a target."""
    return dict(target.options)


# -- writing


def dump(lock: Lock) -> str:
    """The text of a lock file."""
    lines = [HEAD + f"schema = {SCHEMA}", "", "[tools]"]
    lines += [f"{text.key(name)} = {text.string(lock.tools[name])}" for name in sorted(lock.tools)]
    for what in sorted(lock.sources, key=lambda what: (what.split(".", 1)[0] != "models", what)):
        lines += ["", *_source(lock.sources[what])]
    if lock.targets:
        lines += ["", "[targets]"]
        lines += [f"{text.key(name)} = {text.value(lock.targets[name])}" for name in sorted(lock.targets)]
    return "\n".join(lines) + "\n"


def _source(source: LockedSource) -> Iterator[str]:
    yield f"[{source.kind}.{text.key(source.name)}]"
    yield f"source = {text.string(source.source)}"
    if source.revision is not None:
        yield f"revision = {text.string(source.revision)}"
    if source.commit is not None:
        yield f"commit = {text.string(source.commit)}"
    for key in sorted(source.options):
        yield f"{text.key(key)} = {text.value(source.options[key])}"
    yield "files = ["
    for file in sorted(source.files, key=lambda file: file.name):
        yield f"  {{ name = {text.string(file.name)}, size = {file.size}, sha256 = {text.string(file.sha256)} }},"
    yield "]"


# -- reading


@dataclass(frozen=True, slots=True)
class _Files:
    """The list of files: as ``ListOf``, but quick for tens of thousands, and no name twice."""

    words: str = "a list of files"

    def is_kind(self, value: object) -> bool:
        return isinstance(value, list)

    def check(self, value: object, path: tuple[str | int, ...], problems: Problems) -> None:
        if not isinstance(value, list):
            problems.at_value(path, "`files` has a wrong value", expected=self.words)
            return
        names = set()
        for number, item in enumerate(value):
            if problems.full:
                return
            here = (*path, number)
            before = len(problems.found)
            _FILE.check(item, here, problems)
            if len(problems.found) == before:
                if item["name"] in names:
                    problems.at_value(here, f"{item['name'][:100]!r} comes twice")
                if bad_name(item["name"]):
                    problems.at_value(here, "a file's name leads out of its source", found=item["name"][:100])
                names.add(item["name"])

    def schema(self) -> dict[str, object]:
        return {"type": "array", "items": _FILE.schema()}


@dataclass(frozen=True, slots=True)
class _Anything:
    """A target's options: compared as a whole with those of the recipe, so nothing of them can be wrong by itself."""

    words: str = "a table"

    def is_kind(self, value: object) -> bool:
        return isinstance(value, dict)

    def check(self, value: object, path: tuple[str | int, ...], problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.at_value(path, "a target has a wrong value", expected=self.words)

    def schema(self) -> dict[str, object]:
        return {"type": "object"}


_DIGEST = Text("64 hexadecimal digits in lower case", r"[0-9a-f]{64}")
_FILE = Table(
    "a file",
    {
        "name": Key(Text("a path within the source", r"[^\x00]+"), "Its name.", required=True),
        "size": Key(Integer(0), "Bytes.", required=True),
        "sha256": Key(_DIGEST, "Its digest.", required=True),
    },
)
_ANY_TEXT = Text()


def _source_table(kind: str, options: Mapping[str, Shape]) -> Table:
    return Table(
        kind,
        {
            "source": Key(_ANY_TEXT, "As in artifactkit.toml.", required=True),
            "revision": Key(_ANY_TEXT, "As in artifactkit.toml."),
            "commit": Key(Text("40 hexadecimal digits", r"[0-9a-f]{40}"), "What it led to."),
            "files": Key(_Files(), "Every file that is used.", required=True),
        }
        | {key: Key(shape, "As in artifactkit.toml.") for key, shape in options.items()},
    )


_MODEL: dict[str, Shape] = {
    "from": _ANY_TEXT,
    "state-dict-key": _ANY_TEXT,
    "all": Flag(),
    "keep-prefix": Flag(),
    "repair": Flag(),
}
_LOCK = Table(
    "artifactkit.lock",
    {
        "schema": Key(Integer(1), "Version of the lock's form.", required=True),
        "tools": Key(Names(_ANY_TEXT, "a table: tool -> version"), "Versions.", required=True),
        "models": Key(Names(_source_table("a model", _MODEL), "tables", NAME_WORDS, NAME), "Models."),
        "inputs": Key(Names(_source_table("an input", {}), "tables", NAME_WORDS, NAME), "Inputs."),
        "targets": Key(Names(_Anything(), "a table: target -> its keys"), "Targets."),
    },
)


def bad_name(name: str) -> bool:
    """Whether a file's name in a lock is none within a source."""
    return any(part in ("", ".", "..") for part in name.split("/"))


def read(path: str = LOCK) -> Lock:
    """Read the lock at ``path``. Unreadable when there is none, Invalid when it cannot be understood."""
    try:
        file = File(path)
    except Unreadable as error:
        error.hint = "artifactkit lock writes it"
        raise
    if file.size > MAX_SIZE:
        raise UsageError("too large for a lock file", file=path, expected=f"at most {MAX_SIZE} bytes", found=file.size)
    return parse(file.read(0, file.size), path)


def parse(data: bytes, file: str = LOCK) -> Lock:
    """The lock in ``data``. ``file`` names it in messages."""
    document, text_ = document_of(data, file)
    schema = document.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise UsageError(
            "the lock was written by a newer version", file=file, expected=f"schema {SCHEMA}", found=f"schema {schema}",
            hint="use that version, or write the lock anew: artifactkit lock",
        )  # fmt: skip
    problems = Problems(file, text_)
    _LOCK.check(document, (), problems)
    problems.raise_any("remove it and write it anew (artifactkit lock), and look at what changes")
    sources = {}
    for kind in ("models", "inputs"):
        for name, table in document.get(kind, {}).items():
            source = _read_source(kind, name, table)
            sources[source.what] = source
    return Lock(document["tools"], sources, document.get("targets", {}))


def _read_source(kind: str, name: str, table: Mapping[str, object]) -> LockedSource:
    files = table["files"]
    assert isinstance(files, list)
    revision, commit = table.get("revision"), table.get("commit")
    options = {k: v for k, v in table.items() if k not in ("source", "revision", "commit", "files")}
    return LockedSource(
        kind, name, str(table["source"]), None if revision is None else str(revision),
        None if commit is None else str(commit), options,
        tuple(LockedFile(file["name"], file["size"], file["sha256"]) for file in files),
    )  # fmt: skip


__all__ = ["HEAD", "SCHEMA", "Lock", "LockedFile", "LockedSource", "dump", "parse", "read"]
