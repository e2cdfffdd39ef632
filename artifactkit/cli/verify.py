"""Check an artifact against the source it was made from

Level 1 accounts for names, shapes and dtypes; level 2 compares every value: bit for bit, or within half a unit in the
last place where the artifact has another float type. Options that chose or named tensors are given again. Where
ARTIFACT.intoto.jsonl stands beside ARTIFACT, the verdict is added to it.

    artifactkit verify model.safetensors --against model.pt
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .render import out, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..artifact import Weights
    from ..opening import Opened
    from ..report import Report
    from ..types import Origin
    from ..verdict import Verdicts

Artifact = Annotated[str, typer.Argument(metavar="ARTIFACT", help="What was made.", show_default=False)]
Against = Annotated[str, typer.Option("--against", metavar="SRC", help="What it was made from.", show_default=False)]
Device = Annotated[
    list[str] | None,
    typer.Option(
        "--device", metavar="D", help="Ask for level 3 (function) on this device; repeatable.", show_default=False
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs", metavar="FILE", help="Samples of your own for level 3: .npz, .safetensors or .jsonl.",
        show_default=False,
    ),
]  # fmt: skip
Atol = Annotated[float | None, typer.Option("--atol", metavar="X", min=0, help="Outputs may be off by X.")]
Rtol = Annotated[
    float | None, typer.Option("--rtol", metavar="X", min=0, help="And by X of the greatest output of the reference.")
]
MaxKl = Annotated[
    float | None,
    typer.Option("--max-kl", metavar="X", min=0, help="Fail when logits lose more: mean KL divergence, in nats."),
]
Budget = Annotated[
    str, typer.Option("--budget", metavar="TIME", help="Time for level 3 on each device; what it drops is listed.")
]
Threads = Annotated[int, typer.Option("--threads", metavar="N", min=1, max=256, help="Threads of the runtimes.")]
Statement = Annotated[
    bool | None,
    typer.Option(
        "--statement/--no-statement",
        help="Write the verdict into ARTIFACT.intoto.jsonl; by default where there is one that can be written.",
        show_default=False,
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
    inputs: Inputs = None,
    atol: Atol = None,
    rtol: Rtol = None,
    max_kl: MaxKl = None,
    budget: Budget = "10m",
    threads: Threads = 1,
    statement: Statement = None,
    require_pinned: o.RequirePinned = False,
    json: o.Json = False,
) -> int:
    from ..opening import open_source
    from ..report import Check
    from ..route import ConvertOptions, chosen, in_graph_of
    from ..targets import lowering
    from ..translate import in_words_of
    from ..types import Origin, ReadOptions
    from ..verify import tokenizer
    from ..verify.compare import compare, matched
    from .located import fetch_weights, locate, say_commit

    sources = [locate(src, require_pinned) for src in (artifact, against)]
    for located in sources:
        say_commit(located)
    artifact, against = (located.path for located in sources)
    out.keep(**{k: v for k, s in zip(("made", "source"), sources, strict=True) if (v := s.to_json())})
    read = ReadOptions(state_dict_key, everything, keep_prefix)
    options = ConvertOptions(include=tuple(include or ()), exclude=tuple(exclude or ()), rename=tuple(rename or ()))
    stored = ReadOptions(everything=True, keep_prefix=True)
    source, made = open_source(against, from_, read), open_source(artifact, None, stored)
    if fetch_weights(source.weights, sources[1]):  # once the headers of both could be read
        source = open_source(against, from_, read)
    if fetch_weights(made.weights, sources[0]):
        made = open_source(artifact, None, stored)
    change = lowering(source.format, made.format)
    weights = in_graph_of(source.weights if change is None else change.run(source.weights), made.weights)
    weights = [weights, *(after for _, after in chosen(weights, options))][-1]
    weights = in_words_of(weights, made.weights)
    if not made.format.named:
        made.weights = matched(made.weights, weights)
    chose = {
        "from": from_, "state_dict_key": state_dict_key, "everything": everything, "keep_prefix": keep_prefix,
        "include": list(options.include), "exclude": list(options.exclude), "rename": list(options.rename),
    }  # fmt: skip
    verdicts = _verdicts(made, source, Origin(against, sources[1].uri, sources[1].commit), chose, statement)
    with out.progress(f"comparing {artifact}", weights.nbytes, len(weights.tensors)) as advance:
        try:
            report = compare(made.weights, weights, advance)
        except BaseException:
            if verdicts is not None:
                verdicts.cancel()
            raise
    for check in tokenizer.checks(made.weights, source.weights):
        report.add(check)
    if verdicts is not None:
        verdicts.judge(report)
    if device:
        from .. import function

        asked = function.FunctionOptions(
            tuple(dict.fromkeys(device)), inputs, atol, rtol, max_kl, seconds_of(budget), threads
        )
        for name in asked.devices:
            function.parse_device(name)
        with out.progress("running the model", 0, 0):
            function.verify(made, source, asked, report)
    else:
        report.add(Check("function", "function", "not-run", "not asked for (--device)"))
    written = _write(verdicts, report, device or [], statement)
    return _show(artifact, against, made.weights, report, written)


def seconds_of(text: str) -> float:
    """``90``, ``90s``, ``10m``, ``2h``. UsageError for anything else."""
    from ..errors import UsageError

    number, unit = (text[:-1], text[-1]) if text[-1:] in ("s", "m", "h") else (text, "s")
    try:
        seconds = float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 7 * 86400:
        raise UsageError("--budget is a time", expected="90s, 10m, 2h", found=text)
    return seconds


def _verdicts(
    made: Opened, source: Opened, origin: Origin, chose: Mapping[str, object], wanted: bool | None
) -> Verdicts | None:
    """What is to become of the verdict: None where there is no file of statements, or it is to stay as it is."""
    from ..errors import UsageError
    from ..provenance.bundle import beside
    from ..verdict import Verdicts, bundle_of

    found = None if wanted is False else bundle_of(made.given)
    if found is None:
        if wanted:
            raise UsageError(
                "no statement stands beside the artifact", file=made.given, expected=beside(made.given),
                hint="convert writes one",
            )  # fmt: skip
        return None
    verdicts = Verdicts(found, made, source, origin, {k: v for k, v in chose.items() if v})
    verdicts.start()
    return verdicts


def _write(verdicts: Verdicts | None, report: Report, devices: list[str], wanted: bool | None) -> str | None:
    """Write the verdict; the file that it was written to. Where nobody asked for it, not being able to is a warning."""
    from ..errors import OutputError

    if verdicts is None:
        return None
    try:
        verdicts.write(report, list(dict.fromkeys(devices)))
    except OutputError as error:
        if wanted:
            raise
        out.warn(f"the verdict was not written: {error.what}: {error.file}")
        return None
    return verdicts.bundle.path


def _show(artifact: str, against: str, weights: Weights, report: Report, written: str | None) -> int:
    failed = report.failed
    shown = [c for c in report.checks if c not in failed] + failed[:FAILURES_SHOWN]
    out.data(*table([(f"  {c.level}", c.status, c.name, c.tensor or "", c.detail) for c in shown]))
    if len(failed) > FAILURES_SHOWN:
        out.data(f"  ... and {len(failed) - FAILURES_SHOWN} more (--json lists all)")
    ok = bool(report)
    out.data(f"{'verified' if ok else 'NOT VERIFIED'}: {artifact} against {against}")
    if written is not None:
        out.data(f"verdict: {'PASSED' if ok else 'FAILED'}, in {written}")
    checks = [c.to_json() for c in report.checks]
    out.document(ok=ok, artifact=artifact, against=against, checks=checks, statement=written)
    return 0 if ok else 1
