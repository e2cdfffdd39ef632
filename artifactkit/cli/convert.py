"""Convert an artifact into another format, and check what was written

The format of SRC is told by content, that of DEST by its suffix or --to. Nothing that SRC names is imported or called.
The output is staged beside DEST, opened again and compared with SRC, and renamed only then. DEST.intoto.jsonl says how
it was made: from which files, with which options, by which versions (artifactkit provenance show DEST).

    artifactkit convert model.pt model.safetensors
    artifactkit convert checkpoint/ out/ --dtype bf16
    artifactkit convert hf://owner/name@main model/
    artifactkit convert last.ckpt weights.npz --state-dict-key ema --dry-run
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .converted import conversion_json, route_json, say_found, show_ledger, show_losses, verify_command
from .render import count, duration, out, size, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..placing import Progress
    from ..route import ConvertOptions, Route
    from ..sources import Located

NoStatement = Annotated[bool, typer.Option("--no-statement", help="Write no DEST.intoto.jsonl.")]
NoSummary = Annotated[
    bool, typer.Option("--no-summary", help="Write nothing of the source's origin and licence into the metadata.")
]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="Record in the statement when the conversion ran.")]
BuilderId = Annotated[
    str | None,
    typer.Option(
        "--builder-id",
        metavar="URI",
        help="Who vouches for the statement, as SLSA's builder.id; $ARTIFACTKIT_BUILDER_ID does the same.",
    ),
]
Ledger = Annotated[bool, typer.Option("--ledger", help="Print every line of the ledger.")]


def command(
    src: o.Source,
    dest: o.Destination,
    to: o.To = None,
    from_: o.From = None,
    dtype: o.Dtype = "auto",
    overflow: o.OnOverflow = o.Overflow.refuse,
    quantize: o.Quantize = None,
    imatrix: o.Imatrix = None,
    pre_tokenizer: o.PreTokenizer = None,
    group_size: o.GroupSize = None,
    allow_requantize: o.AllowRequantize = False,
    state_dict_key: o.StateDictKey = None,
    everything: o.All = False,
    keep_prefix: o.KeepPrefix = False,
    include: o.Include = None,
    exclude: o.Exclude = None,
    rename: o.Rename = None,
    max_shard_size: o.MaxShardSize = None,
    external_data: o.ExternalData = None,
    opset: o.Opset = None,
    cast_io: o.CastIo = False,
    with_code: o.WithCode = False,
    repair: o.Repair = False,
    via: o.Via = None,
    dry_run: o.DryRun = False,
    no_verify: o.NoVerify = False,
    no_statement: NoStatement = False,
    no_summary: NoSummary = False,
    timestamps: Timestamps = False,
    builder_id: BuilderId = None,
    ledger: Ledger = False,
    locked: o.Locked = False,
    strict: o.Strict = False,
    force: o.Force = False,
    allow_unsafe_source: o.AllowUnsafeSource = False,
    require_pinned: o.RequirePinned = False,
    json: o.Json = False,
) -> int:
    from dataclasses import replace

    from .. import dtypes, trees
    from ..errors import UsageError
    from ..route import ConvertOptions, plan
    from ..run import check_destination, input_files
    from ..types import Origin, ReadOptions
    from .located import fetch, locate

    options = ConvertOptions(
        source_format=from_,
        target_format=to,
        dtype=None if dtype.strip().lower() == "auto" else dtypes.parse(dtype),
        overflow=overflow.value,
        quantize=quantize,
        imatrix=imatrix,
        pre_tokenizer=pre_tokenizer,
        group_size=group_size,
        allow_requantize=allow_requantize,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        rename=tuple(rename or ()),
        max_shard_size=None if max_shard_size is None else o.parse_size(max_shard_size),
        external_data=None if external_data is None else o.parse_size(external_data),
        opset=opset,
        cast_io=cast_io,
        with_code=with_code,
        strict=strict,
        force=force,
        verify=not no_verify,
        statement=not no_statement,
        summary=not no_summary,
        timestamps=timestamps,
        builder=builder_id,
        read=ReadOptions(state_dict_key, everything, keep_prefix, repair),
    )
    out.keep(source=src, destination=dest, dry_run=dry_run)
    pin = None
    if locked:
        from ..recipe.locked import locked as locked_source

        pin = locked_source(src)
        src = pin.src
    if trees.is_url(dest):
        raise UsageError("the destination is no path of this machine", file=dest, hint="give a file or folder")
    located = locate(src, require_pinned)
    out.keep(**located.to_json())
    src = located.path
    origin = Origin(located.given, located.uri, located.commit)
    folder = trees.is_dir(src)
    if not folder:  # before it is read: a file can be broken and malicious
        _judge([src], allow_unsafe_source)
    if via is not None:
        return _via(via, located, dest, options, allow_unsafe_source, dry_run)
    route = plan(src, dest, options, origin)
    if folder:
        _judge(input_files(route), allow_unsafe_source)
    if pin is not None:
        options = replace(options, expected=pin.expect(input_files(route), src))
    check_destination(route, options, look_only=dry_run)
    out.keep(**route_json(route))
    out.data(f"{route.opened.format.name} -> {route.target.name}")
    out.data(*table([(f"  {step.name}", step.detail) for step in route.steps]))
    _say_source(located)
    say_found(route)
    if dry_run:
        return _forecast(route, options)
    if fetch(input_files(route), located):
        # What was read so far came in ranges. From here on it is the files that were verified.
        _judge(input_files(route), allow_unsafe_source)
        route = _the_same(route, plan(src, dest, options, origin))
    return _convert(route, options, ledger)


def _via(
    command: str, located: Located, dest: str, options: ConvertOptions, allow_unsafe_source: bool, dry_run: bool
) -> int:
    """``--via``: what another program writes, judged like what we write."""
    from ..errors import UsageError
    from ..opening import open_source, used_files
    from ..route import chosen
    from ..via import convert_via
    from .located import fetch

    own = (options.dtype, options.quantize, options.max_shard_size, options.target_format)
    if any(value is not None for value in own) or options.with_code or dry_run or not options.verify:
        raise UsageError(
            "--via leaves format, types and shards to the command, and always compares",
            hint="leave --to, --dtype, --quantize, --max-shard-size, --with-code, --dry-run and --no-verify out",
        )
    src = located.path
    used = used_files(src, options.source_format)
    fetch(used, located)
    _judge(used, allow_unsafe_source)
    opened = open_source(src, options.source_format, options.read)
    weights = [opened.weights, *(after for _, after in chosen(opened.weights, options))][-1]
    judged = convert_via(command, opened, weights, dest, options.force)
    out.data(f"{opened.format.name} -> {judged.made.format}, by {command}")
    out.data("checks")
    out.data(*table([(f"  {c.level}", c.name, c.status, c.detail) for c in judged.report.checks]))
    for digest in judged.outputs:
        out.data(f"wrote {digest.name}: {size(digest.size)}, sha256 {digest.sha256}")
    out.data("statement: none (what another program did is not ours to state)")
    out.document(
        ok=True,
        via=command,
        checks=[check.to_json() for check in judged.report.checks],
        ledger=[entry.to_json() for entry in judged.ledger],
        outputs=[{"name": d.name, "size": d.size, "sha256": d.sha256} for d in judged.outputs],
    )
    return 0


def _say_source(located: Located) -> None:
    """Which commit it was, and the command that takes the same one again."""
    from .located import command

    if located.moved_from is not None:
        out.data(f"source: {located.uri} ({located.moved_from or 'main'})")
        out.data(f"to repeat: {command(located.given, located.uri or '')}")


def _the_same(planned: Route, fetched: Route) -> Route:
    """The route from the files as they were fetched. It must be the one that their headers had promised."""
    from ..errors import Corrupt

    if route_json(planned) != route_json(fetched):
        raise Corrupt(
            "the files that were fetched are not those whose headers were read", file=fetched.opened.given,
            hint="run again; if it stays so, the server sends two versions of one file",
        )  # fmt: skip
    return fetched


def _judge(paths: list[str], allow: bool) -> None:
    """Refuse a malicious source, or say what was in it. The rest of what can execute is said with the weights."""
    from .. import trees
    from ..judge import judge, refuse_malicious, verdict

    reports = [judge(path) for path in paths if trees.is_file(path)]
    for line in refuse_malicious(reports, allow):
        out.warn(f"malicious, and converted all the same (--allow-unsafe-source): {line}")
    out.keep(scan=verdict(reports))


def _convert(route: Route, options: ConvertOptions, whole_ledger: bool) -> int:
    from ..placing import Progress
    from ..run import execute

    began = time.monotonic()
    tensors = len(route.final.tensors)
    with out.progress(f"writing {route.destination}", sum(f.size for f in route.files), tensors) as advance:
        progress = Progress()
        progress.on_change = _drawn(progress, advance)
        conversion = execute(route, options, progress)
    seconds = time.monotonic() - began
    show_ledger(conversion, whole_ledger)
    show_losses(conversion.losses)
    if options.verify:
        out.data("checks")
        out.data(
            *table(
                [
                    (f"  {c.level}", c.name, c.status, c.detail)
                    for c in conversion.report.checks
                    if c.status != "not-run"
                ]
            )
        )
    else:
        out.data("checks: none (--no-verify)")
    for digest in conversion.outputs:
        out.data(f"wrote {digest.name}: {size(digest.size)}, sha256 {digest.sha256}")
    if not conversion.outputs:
        out.data(f"wrote {route.destination}: {size(route.nbytes)}")
    if conversion.statement is not None:
        out.data(f"statement: {conversion.statement}")
    else:
        out.data("statement: none (--no-statement)" if options.verify else "statement: none (--no-verify: no digests)")
    out.data(f"function: not verified (run: {verify_command(route, options)})")
    out.say(f"{size(route.nbytes)} in {duration(seconds)}")
    out.document(ok=True, seconds=round(seconds, 3), **conversion_json(conversion))
    return 0


def _drawn(progress: Progress, advance: Callable[..., None]) -> Callable[[Progress], None]:
    """Turn the counter of placed bytes into steps for the bar."""
    nbytes, tensor = progress.done, progress.tensor

    def changed(now: Progress) -> None:
        nonlocal nbytes, tensor
        step, another = now.done - nbytes, now.tensor != tensor
        nbytes, tensor = now.done, now.tensor
        advance(step, int(another))

    return changed


def _forecast(route: Route, options: ConvertOptions) -> int:
    from ..forecast import forecast

    ahead = forecast(route, options.verify)
    show_losses(route.losses)
    out.data(f"output: {size(route.nbytes)} in {count(len(route.files) + len(route.companions), 'file')}")
    out.data(f"memory: about {size(ahead.memory)} at most")
    out.data(f"time: about {duration(ahead.seconds)} ({ahead.why})")
    out.data("dry run: nothing was written")
    out.document(ok=True, forecast=ahead.to_json(), losses=[loss.to_json() for loss in route.losses])
    return 0
