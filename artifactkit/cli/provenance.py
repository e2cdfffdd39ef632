"""Show where an artifact came from, and check that it is unchanged

convert writes DEST.intoto.jsonl beside DEST: in-toto statements, which name every file by its sha256. verify adds its
verdicts to it. Nothing in it is signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .render import count, out, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..provenance.chain import Made, Node
    from ..provenance.check import Item

File = Annotated[
    str, typer.Argument(metavar="FILE", help="An artifact, or its file of statements.", show_default=False)
]
Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        metavar="FOLDER",
        help="Look here too for the statements about what went in; repeatable.",
        show_default=False,
    ),
]
Source = Annotated[
    str | None,
    typer.Option("--source", metavar="SRC", help="What it was made from: check inputs and ledger too."),
]
SHOWN = 10  # inputs of one conversion that are drawn
HEX = 12  # digits of a digest that are drawn; --json has all


def show(file: File, search: Search = None, json: o.Json = False) -> int:
    """Draw the chain from an artifact back to its source

    Statements about what went in are found by its sha256 beside FILE, so a chain of conversions is drawn whole where
    they are kept together. Nothing is compared with the files: check does that.

        artifactkit provenance show model.safetensors
    """
    from ..errors import printable
    from ..provenance.chain import follow
    from ..provenance.check import read_for

    chain = follow(read_for(file), search or [])
    for made in chain.made:
        out.data(*(printable(line) for line in _tree(made)))
    if not chain.made:
        out.data("no statement says how it was made", *(f"  {text}" for text in chain.others))
    out.say(*(f"note: {printable(note)}" for note in chain.notes))
    out.document(ok=True, file=file, **chain.to_json())
    return 0


def _tree(made: Made) -> Iterator[str]:
    """The chain as lines: subjects, how they were made, and below what from."""
    yield from (_node_text(node) for node in made.subject[:SHOWN])
    if len(made.subject) > SHOWN:
        yield f"... and {len(made.subject) - SHOWN} more files"
    yield from _below(made, "")


def _below(made: Made, indent: str) -> Iterator[str]:
    """What stands under a file: one line for each fact, then its inputs, drawn as branches."""
    for text in _facts(made):
        yield f"{indent}| {text}"
    nodes = made.inputs[:SHOWN]
    rest = len(made.inputs) - len(nodes)
    for i, node in enumerate(nodes):
        last = i == len(nodes) - 1 and not rest
        yield f"{indent}+- {_node_text(node)}"
        if node.made is not None:
            yield from _below(node.made, indent + ("   " if last else "|  "))
    if rest:
        yield f"{indent}+- ... and {rest} more (--json lists all)"


def _facts(made: Made) -> Iterator[str]:
    external = made.external
    route = f"{external['from']} -> {external['to']}" if {"from", "to"} <= external.keys() else made.build_type
    yield f"made by {made.builder}: {route}"
    options = _options(external)
    if options:
        yield f"options: {options}"
    ledger = made.internal.get("ledger")
    if isinstance(ledger, dict):
        yield f"ledger: {ledger.get('entries')} entries, sha256 {str(ledger.get('sha256'))[:HEX]}"
    if made.times:
        yield ", ".join(f"{key} {value}" for key, value in sorted(made.times.items()))
    for verdict in made.verdicts:
        yield f"verify: {verdict}"
    for other in made.others:
        yield f"{other} (left alone)"
    for uri, commit in made.revisions:
        yield f"from {uri}, commit {commit}"


def _options(external: dict[str, object]) -> str:
    """The options that are not what they are when nothing is said."""
    from ..attest import default

    options = external.get("options")
    if not isinstance(options, dict):
        return ""
    said = {key: value for key, value in sorted(options.items()) if value != default(key)}
    return ", ".join(f"{key} {_text(value)}" for key, value in said.items())


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _node_text(node: Node) -> str:
    parts = [node.name]
    if node.sha256:
        parts.append(f"sha256 {node.sha256[:HEX]}")
    if node.uri is not None:
        parts.append(node.uri)
    if node.again:
        parts.append("(made by a conversion that is drawn already)")
    return "  ".join(parts)


def check(file: File, source: Source = None, require_pinned: o.RequirePinned = False, json: o.Json = False) -> int:
    """Compare an artifact with what its statements say, byte for byte

    Every file is hashed. With --source the inputs are hashed too, and the route is planned again from the options that
    were recorded: its ledger must be the stated one, and explain every tensor of the artifact.

        artifactkit provenance check model.safetensors
        artifactkit provenance check model.safetensors --source checkpoint/
    """
    import os

    from ..provenance import check as checks
    from ..provenance.statement import SUFFIX, is_ours

    artifact = file.removesuffix(SUFFIX) if file.endswith(SUFFIX) and os.path.isfile(file) else file
    found = checks.read_for(artifact)
    items = checks.check_shapes(found)
    files = checks.artifact_files(artifact)
    with out.progress(f"hashing {artifact}", checks.nbytes(files)) as advance:
        here = checks.digests(files, advance)
    judged, line = checks.check_artifact(found, here, not os.path.isdir(artifact))
    items += judged + checks.check_verdicts(found, here)
    if source is None:
        items.append(checks.Item("source", "not-run", "not at hand (--source SRC): inputs and ledger not compared"))
    elif line is None or not is_ours(line.value):
        items.append(checks.Item("source", "failed", "no statement of ours says what went in", found.path))
    else:
        items += _with_source(line, found.path, artifact, source, require_pinned)
    return _show(artifact, found.path, items)


def _with_source(line: object, bundle: str, artifact: str, source: str, require_pinned: bool) -> list[Item]:
    from ..opening import open_source
    from ..provenance.bundle import Line
    from ..retrace import check_source
    from ..types import Origin
    from .located import fetch_weights, locate

    assert isinstance(line, Line)
    located = locate(source, require_pinned)
    if located.uri is not None:
        fetch_weights(open_source(located.path).weights, located)
    return check_source(line, bundle, artifact, located.path, Origin(located.given, located.uri, located.commit))


def _show(artifact: str, bundle: str, items: list[Item]) -> int:
    from ..errors import printable
    from ..provenance.check import failures

    rows = table([(f"  {item.subject}", item.status, _item_text(item)) for item in items])
    for item, row in zip(items, rows, strict=True):
        out.data(row)
        for key in ("expected", "found") if item.status == "failed" else ():
            value = getattr(item, key)
            if value is not None:
                out.data(f"    {key}: {printable(value)}")
    failed = failures(items)
    if failed:
        out.data(f"NOT INTACT: {artifact}: {count(len(failed), 'finding')}")
    else:
        out.data(f"intact: {artifact}, as {bundle} states (unsigned)")
    out.document(ok=not failed, file=artifact, statement=bundle, checks=[item.to_json() for item in items])
    return 1 if failed else 0


def _item_text(item: Item) -> str:
    where = f"{item.file}: " if item.file is not None and item.status == "failed" else ""
    return where + item.detail
