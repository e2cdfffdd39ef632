"""A first recipe for a source and what is to be made of it. The same words give the same bytes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from .. import dtypes, sources, trees
from ..errors import ArtifactkitError, Unreadable, UsageError
from ..hub import address
from . import text
from .expand import canonical
from .keys import FORMAT, QUANTIZE
from .model import FILE
from .problems import near
from .read import document_of, parse

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
    try:
        return form, dtypes.parse(detail).name, None
    except UsageError:
        if not re.fullmatch(QUANTIZE.pattern, detail):
            raise UsageError(
                "no quantisation",
                found=given,
                expected="FORMAT:QUANT like gguf:q4_k_m",
                hint="leave :QUANT out for none",
            ) from None
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


def recipe_text(source: str, to: list[str]) -> str:
    """The text of a recipe. The source is looked at: a hub's is pinned to the commit that it is at now.

    Raises UsageError for what is no format, and what locating the source raises.
    """
    wanted = gather(to)
    lines = [HEAD, *_model(source)]
    name = model_name(source)
    for one in wanted:
        lines += ["", *_targets(one, name)]
    out = "\n".join(lines) + "\n"
    parse(out.encode("utf-8"))  # a recipe of ours is a recipe
    return out


def _model(source: str) -> list[str]:
    located = sources.locate(source)
    if not trees.exists(located.path):
        raise Unreadable("no such file or folder", file=source)
    name = model_name(source)
    lines = ["# Where the model comes from.", f"[models.{text.key(name)}]"]
    if source.startswith(address.SCHEME):
        given = address.parse(source)
        bare = address.Address(given.repo, None, given.path).uri()
        was = f"where {given.revision or 'main'} was when this was written" if given.commit is None else "as given"
        lines += [
            f"source = {text.string(bare)}",
            f"# {was}; a branch here would stay where artifactkit.lock has it until `artifactkit lock --upgrade`",
            f"revision = {text.string(located.commit or given.revision or 'main')}",
        ]
    else:
        if trees.is_url(source) and "#sha256=" not in source:
            lines.append("# Add #sha256=... to pin what is there; artifactkit.lock has the digest.")
        lines.append(f"source = {text.string(source)}")
    return lines


def _targets(wanted: Wanted, model: str) -> list[str]:
    lines: list[str] = []
    kinds: list[tuple[str, str, list[str]]] = []
    if wanted.bare or not (wanted.dtypes or wanted.quantize):
        kinds.append((wanted.format, "", []))
    if wanted.dtypes:
        kinds.append((wanted.format if not kinds else f"{wanted.format}-as", "dtype", wanted.dtypes))
    if wanted.quantize:
        kinds.append((wanted.format if not kinds else f"{wanted.format}-quantized", "quantize", wanted.quantize))
    for name, key, values in kinds:
        if lines:
            lines.append("")
        lines += [f"[targets.{text.key(name)}]", f"model = {text.string(model)}"]
        lines.append(f"format = {text.string(wanted.format)}")
        if len(values) == 1:
            lines.append(f"{key} = {text.string(values[0])}")
        elif values:
            names = ", ".join(f"{name}-{value}" for value in values)
            lines += [f"# A list makes a target of each: {names}.", f"{key} = {text.value(values)}"]
    return lines


def policy_of(data: bytes, file: str = FILE) -> str:
    """The text of the tables ``[scan]`` of a recipe that is to be replaced, so that a policy is never lost.

    UsageError where it cannot be lifted out, word for word.
    """
    try:
        document, positions = document_of(data, file)
    except ArtifactkitError:
        if b"scan" not in data:
            return ""
        raise
    if "scan" not in document:
        return ""
    whole = data.decode("utf-8").replace("\r\n", "\n")
    ends = [offset for offset, _ in positions.headers[1:]] + [len(whole)]
    parts = [
        whole[start:end]
        for (start, path), end in zip(positions.headers, ends, strict=True)
        if path and path[0] == "scan"
    ]
    kept = "".join(parts).rstrip() + "\n"
    if document_of(kept.encode("utf-8"), file)[0] != {"scan": document["scan"]}:
        raise UsageError(
            "the file holds a policy for scan that cannot be carried over", file=file,
            hint="write it in tables that begin with [scan] or [[scan.allow]], or move the file away",
        )  # fmt: skip
    return kept
