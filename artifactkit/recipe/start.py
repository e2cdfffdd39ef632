"""A first recipe for a source and what is to be made of it. The same words give the same bytes."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field

from .. import dtypes, sources, trees
from ..errors import ArtifactkitError, Unreadable, UsageError
from ..hub import address
from . import text
from .expand import canonical
from .keys import FORMAT, MODEL, QUANTIZE, TARGET, recipe
from .model import FILE
from .positions import find
from .problems import near
from .read import document_of, parse
from .shapes import Table

HEAD = """\
# What artifactkit converts and pins. Keys mean what the options of `artifactkit convert` mean.
# `artifactkit lock` writes the commits and digests that this leads to into artifactkit.lock.
"""


@dataclass(slots=True)
class Wanted:
    """What is to be made in one format: element types and quantisations, each in the order of asking."""

    format: str
    dtypes: list[str] = field(default_factory=list)
    quantize: list[str] = field(default_factory=list)
    bare: bool = False  # also asked for without either


def parse_to(given: str) -> tuple[str, str | None, str | None]:
    """(format, dtype, quantisation) of ``FORMAT[:QUANT]``. UsageError for what is none."""
    name, colon, detail = given.partition(":")
    form = FORMAT.canonical(name)
    if form is None:
        refused = FORMAT.refused(name)
        if refused is not None:
            raise UsageError(
                refused[0], found=given, hint=f"--to {refused[1]}" if " " not in refused[1] else refused[1]
            )
        hint = near(name, FORMAT.names()) or f"one of {', '.join(FORMAT.names())}"
        raise UsageError(f"no format {name!r}", found=given, hint=hint)
    if not colon:
        return form, None, None
    with contextlib.suppress(UsageError):
        dtype = dtypes.parse(detail)
        if dtype.cls == "float":  # int8 is how a graph is quantised
            return form, dtype.name, None
    if not re.fullmatch(QUANTIZE.pattern, detail):
        raise UsageError(
            "no quantisation", found=given, expected="FORMAT:QUANT like gguf:q4_k_m", hint="leave :QUANT out for none"
        )
    return form, None, str(canonical("quantize", detail))


def gather(to: list[str]) -> list[Wanted]:
    """What is wanted, a format each, in the order of asking."""
    found: dict[str, Wanted] = {}
    for given in to:
        form, dtype, quantize = parse_to(given)
        wanted = found.setdefault(form, Wanted(form))
        if dtype is not None and dtype not in wanted.dtypes:
            wanted.dtypes.append(dtype)
        elif quantize is not None and quantize not in wanted.quantize:
            wanted.quantize.append(quantize)
        wanted.bare |= dtype is None and quantize is None
    return list(found.values())


def model_name(source: str) -> str:
    """A name for the model, from the last part of where it is."""
    if source.startswith(address.SCHEME):
        base = address.parse(source).repo.rpartition("/")[2]
    else:
        plain = source.partition("#")[0].partition("?")[0] if trees.is_url(source) else os.path.abspath(source)
        base = os.path.basename(plain.rstrip("/"))
        if not trees.is_dir(source):
            base = os.path.splitext(base)[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", base).strip("-_")[:60] or "model"


class Lines:
    """The lines of a recipe. What a key means is said where it comes first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._said: set[str] = set()

    def add(self, line: str = "") -> None:
        self.lines.append(line)

    def header(self, kind: str, name: str) -> None:
        """``[KIND.NAME]``, after an empty line."""
        self.add()
        if kind not in self._said:
            self._said.add(kind)
            says = recipe().keys[kind].says
            self.add(f"# {says[:-1]}: [{kind}.NAME].")
        self.add(f"[{kind}.{text.key(name)}]")

    def key(self, table: Table, key: str, value: object) -> None:
        """``KEY = VALUE``."""
        line = f"{key} = {text.value(value)}"
        if key not in self._said:
            self._said.add(key)
            line = f"{line}  # {table.keys[key].says}"
        self.add(line)


def recipe_text(source: str, to: list[str]) -> str:
    """The text of a recipe. The source is looked at: a hub's is pinned to the commit that it is at now.

    Raises UsageError for what is no format, and what locating the source raises.
    """
    wanted = gather(to)
    lines, name = Lines(), model_name(source)
    _model(lines, source, name)
    for one in wanted:
        _targets(lines, one, name)
    out = HEAD + "\n".join(lines.lines) + "\n"
    parse(out.encode("utf-8"))  # a recipe of ours is a recipe
    return out


def _model(lines: Lines, source: str, name: str) -> None:
    located = sources.locate(source)
    if not trees.exists(located.path):
        raise Unreadable("no such file or folder", file=source)
    lines.header("models", name)
    if not source.startswith(address.SCHEME):
        lines.key(MODEL, "source", source)
        if located.uri is not None and "#sha256=" not in source:
            lines.add("# Without #sha256= and its digest behind it, a URL is pinned by artifactkit.lock alone.")
        return
    given = address.parse(source)
    lines.key(MODEL, "source", address.Address(given.repo, None, given.path).uri())
    lines.key(MODEL, "revision", located.commit or given.revision or "main")
    if given.commit is None:
        lines.add(f"# That is where {given.revision or 'main'} was when this was written.")


def _targets(lines: Lines, wanted: Wanted, model: str) -> None:
    kinds: list[tuple[str, str, list[str]]] = []
    if wanted.bare or not (wanted.dtypes or wanted.quantize):
        kinds.append((wanted.format, "", []))
    if wanted.dtypes:
        kinds.append((wanted.format if not kinds else f"{wanted.format}-as", "dtype", wanted.dtypes))
    if wanted.quantize:
        kinds.append((wanted.format if not kinds else f"{wanted.format}-quantized", "quantize", wanted.quantize))
    for name, key, values in kinds:
        lines.header("targets", name)
        lines.key(TARGET, "model", model)
        lines.key(TARGET, "format", wanted.format)
        if len(values) == 1:
            lines.key(TARGET, key, values[0])
        elif values:
            lines.key(TARGET, key, values)
            lines.add(f"# A list makes a target of each: {', '.join(f'{name}-{value}' for value in values)}.")


def policy_of(data: bytes, file: str = FILE) -> str:
    """The text of the tables ``[scan]`` of a recipe that is to be replaced, so that a policy is never lost.

    UsageError where it cannot be lifted out, word for word.
    """
    try:
        document, whole = document_of(data, file)
    except ArtifactkitError:
        if b"scan" not in data:
            return ""
        raise
    if "scan" not in document:
        return ""
    starts = find(whole).headers
    ends = [offset for offset, _ in starts[1:]] + [len(whole)]
    parts = [whole[start:end] for (start, path), end in zip(starts, ends, strict=False) if path and path[0] == "scan"]
    kept = "".join(parts).rstrip() + "\n"
    if document_of(kept.encode("utf-8"), file)[0] != {"scan": document["scan"]}:
        raise UsageError(
            "the file holds a policy for scan that cannot be carried over", file=file,
            hint="write it in tables that begin with [scan] or [[scan.allow]], or move the file away",
        )  # fmt: skip
    return kept
