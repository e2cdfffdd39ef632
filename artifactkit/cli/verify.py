"""Check an artifact against the source it was made from

Level 1 accounts for names, shapes and dtypes; level 2 compares every value: bit for bit, or within half a unit in the
last place where the artifact has another float type. Options that chose or named tensors are given again.

    artifactkit verify model.safetensors --against model.pt
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .render import out, table

if TYPE_CHECKING:
    from ..artifact import Weights
    from ..report import Report

Artifact = Annotated[str, typer.Argument(metavar="ARTIFACT", help="What was made.", show_default=False)]
Against = Annotated[str, typer.Option("--against", metavar="SRC", help="What it was made from.", show_default=False)]
Device = Annotated[
    list[str] | None,
    typer.Option(
        "--device", metavar="D", help="Ask for level 3 (function) on this device; repeatable.", show_default=False
    ),
]
FAILURES_SHOWN = 20


def command(
    artifact: Artifact,
    against: Against,
    from_: o.From = None,
    state_dict_key: o.StateDictKey = None,
    everything: o.All = False,
    keep_prefix: o.KeepPrefix = False,
    include: o.Include = None,
    exclude: o.Exclude = None,
    rename: o.Rename = None,
    device: Device = None,
    require_pinned: o.RequirePinned = False,
    json: o.Json = False,
) -> int:
    from ..opening import open_source
    from ..report import Check
    from ..route import ConvertOptions, chosen
    from ..types import ReadOptions
    from ..verify.compare import compare, matched
    from .located import fetch_weights, locate, say_commit

    sources = [locate(src, require_pinned) for src in (artifact, against)]
    for located in sources:
        say_commit(located)
    artifact, against = (located.path for located in sources)
    out.keep(**{k: v for k, s in zip(("made", "source"), sources, strict=True) if (v := s.to_json())})
    read = ReadOptions(state_dict_key, everything, keep_prefix)
    options = ConvertOptions(include=tuple(include or ()), exclude=tuple(exclude or ()), rename=tuple(rename or ()))
    source = open_source(against, from_, read)
    if fetch_weights(source.weights, sources[1]):
        source = open_source(against, from_, read)
    made = open_source(artifact, None, ReadOptions(everything=True, keep_prefix=True))
    if fetch_weights(made.weights, sources[0]):
        made = open_source(artifact, None, ReadOptions(everything=True, keep_prefix=True))
    weights = [source.weights, *(after for _, after in chosen(source.weights, options))][-1]
    if not made.format.named:
        made.weights = matched(made.weights, weights)
    with out.progress(f"comparing {artifact}", weights.nbytes, len(weights.tensors)) as advance:
        report = compare(made.weights, weights, advance)
    if device:
        for name in device:
            detail = f"{name}: weights alone compute nothing, and this version runs no model"
            report.add(Check("function", "function", "not-verified", detail))
    else:
        report.add(Check("function", "function", "not-run", "not asked for (--device)"))
    return _show(artifact, against, made.weights, report)


def _show(artifact: str, against: str, weights: Weights, report: Report) -> int:
    failed = report.failed
    shown = [c for c in report.checks if c not in failed] + failed[:FAILURES_SHOWN]
    out.data(*table([(f"  {c.level}", c.status, c.name, c.tensor or "", c.detail) for c in shown]))
    if len(failed) > FAILURES_SHOWN:
        out.data(f"  ... and {len(failed) - FAILURES_SHOWN} more (--json lists all)")
    ok = bool(report)
    out.data(f"{'verified' if ok else 'NOT VERIFIED'}: {artifact} against {against}")
    out.document(ok=ok, artifact=artifact, against=against, checks=[c.to_json() for c in report.checks])
    return 0 if ok else 1
