"""What a conversion made, for people and as JSON: ledger, losses, what the source held besides, how to verify it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .render import count, out

if TYPE_CHECKING:
    from ..report import Entry, Loss
    from ..route import ConvertOptions, Route
    from ..run import Conversion

SHOWN = 10  # lines of a list that are shown before it is cut short


def verify_command(route: Route, options: ConvertOptions) -> str:
    """The command that compares the output with its source, told of the same choice and names of tensors."""
    import shlex

    from .. import sources

    artifact, source = (
        os.path.join(os.curdir, path) if path.startswith("-") else path  # no option
        for path in (route.destination, sources.uri_of(route.opened.given))
    )
    words = ["artifactkit", "verify", artifact, "--against", source]
    for flag, value in (("--from", options.source_format), ("--state-dict-key", options.read.state_dict_key)):
        words += [flag, value] if value is not None else []
    words += ["--all"] * options.read.everything + ["--keep-prefix"] * options.read.keep_prefix
    for flag, values in (("--include", options.include), ("--exclude", options.exclude), ("--rename", options.rename)):
        words += [word for value in values for word in (flag, value)]
    return shlex.join(words)


def say_found(route: Route) -> None:
    """What else the source holds: notes, code that was not run, values that are no tensors."""
    weights = route.initial
    for note in weights.notes:
        out.say(f"note: {note}")
    if weights.code:
        names = ", ".join(code.full for code in weights.code[:SHOWN])
        more = f" and {len(weights.code) - SHOWN} more" if len(weights.code) > SHOWN else ""
        out.warn(f"the source names code that was not run: {names}{more}")
    if weights.skipped:
        values = (
            "1 value that is no tensor stays"
            if len(weights.skipped) == 1
            else (f"{len(weights.skipped)} values that are no tensors stay")
        )
        out.say(f"note: {values} behind:")
        out.say(*(f"  {s.path}: {s.type} {s.text}" for s in weights.skipped[:SHOWN]))
        if len(weights.skipped) > SHOWN:
            out.say(f"  ... and {len(weights.skipped) - SHOWN} more (artifactkit inspect lists them)")


def show_ledger(conversion: Conversion, everything: bool) -> None:
    parts = [f"{n} {what}" for what, n in conversion.outcomes().items()]
    out.data(f"ledger: {count(conversion.sources, 'source tensor')}: {', '.join(parts)}")
    lines = [_entry_text(e) for e in conversion.ledger] if everything else _grouped(conversion.ledger)
    _list(lines, everything, "--ledger prints all")


def _entry_text(entry: Entry) -> str:
    target = f" -> {entry.target}" if entry.target not in (None, entry.source) else ""
    detail = f" ({entry.detail})" if entry.detail else ""
    return f"{entry.source}{target}: {' + '.join(entry.outcomes)}{detail}"


def _grouped(entries: list[Entry]) -> list[str]:
    """A line for each outcome and reason: the only tensor it has, or how many and the first as an example."""
    groups: dict[tuple[tuple[str, ...], str], list[Entry]] = {}
    for entry in entries:
        if entry.outcomes != ("kept",):
            groups.setdefault((entry.outcomes, entry.detail), []).append(entry)
    lines = []
    for (outcomes, detail), group in groups.items():
        first = group[0]
        sources = len({entry.source for entry in group})  # one may have become several
        if len(group) == 1:
            lines.append(_entry_text(first))
            continue
        example = first.source + (f" -> {first.target}" if first.target not in (None, first.source) else "")
        why = f" ({detail})" if detail else ""
        lines.append(f"{count(sources, 'tensor')} {' + '.join(outcomes)}{why}: {example}, ...")
    return lines


def show_losses(losses: list[Loss]) -> None:
    if not losses:
        out.data("losses: none")
        return
    out.data(f"losses: {len(losses)}")
    groups: dict[tuple[str, str, bool], list[Loss]] = {}
    for loss in losses:
        groups.setdefault((loss.kind, loss.detail, loss.asked), []).append(loss)
    lines = []
    for (kind, detail, asked), group in groups.items():
        names = [loss.tensor for loss in group if loss.tensor]
        where = f" {names[0]}:" if len(names) == 1 else f" {count(len(names), 'tensor')}:" if names else ""
        lines.append(f"{kind}:{where} {detail}" + (" (asked for)" if asked else ""))
    _list(lines, False, "--json lists all")


def _list(lines: list[str], everything: bool, how: str) -> None:
    from ..errors import printable

    out.data(*(f"  {printable(line)}" for line in (lines if everything else lines[:SHOWN])))
    if not everything and len(lines) > SHOWN:
        out.data(f"  ... and {len(lines) - SHOWN} more ({how})")


def route_json(route: Route) -> dict[str, object]:
    weights = route.initial
    return {
        "format": route.opened.format.name,
        "target": route.target.name,
        "chosen": weights.chosen,
        "steps": [step.to_json() for step in route.steps],
        "files": [{"name": f.name, "size": f.size} for f in route.files],
        "nbytes": route.nbytes,
        "notes": weights.notes,
        "code": [{"name": c.full, "count": c.count} for c in weights.code],
        "skipped": [{"path": s.path, "type": s.type, "value": s.text} for s in weights.skipped],
    }


def conversion_json(conversion: Conversion) -> dict[str, object]:
    return {
        "ledger": [entry.to_json() for entry in conversion.ledger],
        "aliases": {name: alias.target for name, alias in conversion.route.final.aliases.items()},
        "losses": [loss.to_json() for loss in conversion.losses],
        "checks": [check.to_json() for check in conversion.report.checks],
        "inputs": [digest.to_json() for digest in conversion.inputs],
        "outputs": [digest.to_json() for digest in conversion.outputs],
        "statement": conversion.statement,
    }
