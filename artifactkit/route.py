"""From what is held and what is given to what the target needs: a route, or a refusal, in one place.

A route is planned from headers. It holds the laid-out output, so a dry run knows names, losses and sizes exactly before
one tensor byte is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from . import __version__, ggml, trees
from .artifact import Companion, TensorView, Weights
from .dtypes import DType
from .errors import ArtifactkitError, Refused, RouteRefused, UsageError
from .opening import Opened, open_source, travelling
from .passes import cast as cast_pass
from .passes import dequantize as dequantize_pass
from .passes import graph_half as half_pass
from .passes import graph_opset as opset_pass
from .passes import quantize as quantize_pass
from .passes import rename as rename_pass
from .passes import select as select_pass
from .passes import tie as tie_pass
from .provenance import card
from .provenance.statement import public
from .report import Loss, counted
from .source import Inline
from .targets import check_dtypes, check_modules, is_folder, lowering, refusal, target_format
from .types import Format, Origin, OutputFile, Part, ReadOptions, Summary, WriteOptions

DEFAULT_FOLDER_SHARD = 5 * 10**9  # bytes, as the Hub's tools

NO_TOKENIZER = "the file has no tokenizer, since none stands beside the weights: llama.cpp needs it to load one"


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What the user says about a conversion; every field has the meaning of the option of its name."""

    source_format: str | None = None
    target_format: str | None = None
    dtype: DType | None = None
    overflow: str = "refuse"
    quantize: str | None = None
    group_size: int | None = None  # of MLX's groups
    allow_requantize: bool = False
    imatrix: str | None = None  # a path
    pre_tokenizer: str | None = None  # tokenizer.ggml.pre
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rename: tuple[str, ...] = ()
    max_shard_size: int | None = None
    external_data: int | None = None
    opset: int | None = None
    cast_io: bool = False  # with dtype: a graph's inputs and outputs too
    with_code: bool = False
    strict: bool = False
    force: bool = False
    verify: bool = True
    expected: Mapping[str, str] | None = None  # --locked: the sha256 that each input file has to have, by path
    statement: bool = True  # with verify: without there is no digest to state
    timestamps: bool = False
    builder: str | None = None
    summary: bool = True
    recipe: str | None = None  # sha256 of the recipe that asked for this
    read: ReadOptions = field(default_factory=ReadOptions)


@dataclass(frozen=True, slots=True)
class RouteStep:
    """One step as it is shown: ``read torch-zip``, ``cast to bf16 (12 tensors)``, ``write safetensors``."""

    name: str
    detail: str

    def to_json(self) -> dict[str, object]:
        return {"step": self.name, "detail": self.detail}


@dataclass(slots=True)
class Route:
    """A planned conversion: the weights as read and as written, the laid-out files, the losses foreseen.

    ``read_too`` are files that have a part in the output beside the weights and the companions: the model card.
    """

    opened: Opened
    target: Format
    destination: str
    folder: bool
    initial: Weights
    final: Weights
    steps: list[RouteStep]
    losses: list[Loss]
    files: list[OutputFile]
    companions: tuple[Companion, ...]
    values: cast_pass.CastStats
    origin: Origin
    read_too: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size of the output in bytes, companions included."""
        return sum(f.size for f in self.files) + sum(trees.size(c.path) for c in self.companions)


def plan(src: str, destination: str, options: ConvertOptions, origin: Origin | None = None) -> Route:
    """Plan the conversion of ``src`` to ``destination``; reads headers only and writes nothing.

    ``origin`` says where ``src`` is from, if it is pinned.

    Raises RouteRefused when no route leads there, Refused when ``--strict`` forbids a loss that can be foreseen, and
    what reading and the passes raise.
    """
    opened = open_source(src, options.source_format, options.read)
    target = target_format(options.target_format, destination, opened)
    refused = refusal(opened.format, target)
    if refused is not None:
        raise refused.located(file=src)
    folder = target.folder and is_folder(destination)
    initial = opened.weights
    steps = [RouteStep("read", _read_text(opened))]
    weights = initial
    change = lowering(opened.format, target)
    if change is not None:
        weights = change.run(weights)
        steps.append(RouteStep(change.name, change.title))
    check_graph_options(weights, target, options)
    for step, after in chosen(weights, options):
        steps.append(step)
        weights = after
    for error in weights.refused.values():
        raise error.located(file=src)
    stats = cast_pass.CastStats()
    made: list[OutputFile] = []
    configs: list[dict[str, object]] = []
    for step, after in out_of_mlx(weights, target, folder, made):
        steps.append(step)
        weights = after
    for step, after in as_gguf(weights, target, options.pre_tokenizer):
        steps.append(step)
        weights = after
    for step, after in quantised(weights, target, options):
        steps.append(step)
        weights = after
    for step, after in as_checkpoint(weights, target, folder, made, configs):
        steps.append(step)
        weights = after
    for step, after in as_graph(weights, target, options, stats):
        steps.append(step)
        weights = after
    for step, after in as_floats(weights, target, options, stats):
        steps.append(step)
        weights = after
    for step, after in as_mlx(weights, target, options, made, configs):
        steps.append(step)
        weights = after
    if target.keeps_aliases:
        weights = tie_pass.merge_aliases(weights)
        if weights.aliases:
            ties = [f"{name} = {alias.target}" for name, alias in sorted(weights.aliases.items())]
            more = f" and {len(ties) - 3} more" if len(ties) > 3 else ""
            steps.append(RouteStep("tie", f"stored once: {', '.join(ties[:3])}{more}"))
    if not weights.tensors and weights.graph is None:
        raise UsageError("no tensor is left to convert", file=src, hint="artifactkit inspect shows what is there")
    check_dtypes(weights, target)
    if target.keeps_keyvalues:
        weights = ggml.with_file_type(weights)
    losses = _losses(initial, weights, target)
    go: tuple[Companion, ...] = ()
    stay = initial.companions
    if folder:
        go, stay = travelling(initial, options.with_code)
    if weights.naming == "gguf" and initial.naming != "gguf":  # what it says is in the file, as key-values
        stay = tuple(c for c in stay if c.name != "config.json")
        if any(pair.key == "tokenizer.ggml.model" for pair in weights.keyvalues):
            stay = tuple(c for c in stay if c.role != "tokenizer")
        else:
            losses.append(Loss("tokenizer-dropped", NO_TOKENIZER))
    losses += [Loss("file-dropped", _stay_text(c, folder), asked=c.role in ("code", "doc")) for c in stay]
    name = os.path.basename(os.path.abspath(destination))
    shard = options.max_shard_size
    if folder and shard is None and target.splits_folders:
        shard = DEFAULT_FOLDER_SHARD
    if shard is not None and not folder and target.folder:
        raise UsageError(
            "--max-shard-size makes several files, the destination is one file",
            file=destination,
            hint="give a folder as destination",
        )
    origin = origin or Origin(src)
    summary, read_too = _summary(opened, target, options, origin)
    read_too += () if options.imatrix is None else (options.imatrix,)
    if weights.naming != initial.naming or weights.keyvalues != initial.keyvalues:  # made of what stands beside
        read_too += tuple(c.path for c in initial.companions if c.role in ("config", "tokenizer"))
    try:
        files = (
            target.write(weights, WriteOptions(name, folder, shard, summary, options.external_data))
            if target.write
            else []
        )
    except ArtifactkitError as error:
        raise error.located(file=destination) from error.__cause__
    if {weights.naming, initial.format} & {"mlx"}:  # a config.json of another world stays behind
        go = tuple(c for c in go if c.name not in {f.name for f in made})
    files += [f for f in made if f.name not in {c.name for c in go}]
    go = tuple(c for c in go if c.name not in {f.name for f in files})
    steps.append(RouteStep("write", _write_text(target, files, go)))
    route = Route(
        opened, target, destination, folder, initial, weights, steps, losses, files, go, stats, origin, read_too
    )
    if options.strict:
        refuse_losses(losses)
    if options.verify:
        check_modules(target)
    return route


def check_graph_options(weights: Weights, target: Format, options: ConvertOptions) -> None:
    """UsageError for options that mean nothing to a graph, or nothing without one."""
    if weights.graph is None:
        if options.external_data is not None and target.kind != "graph":
            raise UsageError("--external-data is for graphs", hint="-t onnx")
        if options.opset is not None and target.kind != "graph":
            raise UsageError("--opset is for graphs", hint="-t onnx")
        if options.cast_io and target.kind != "graph":
            raise UsageError("--cast-io is for graphs", hint="-t onnx")
        return
    for flag, given in (("--include", options.include), ("--exclude", options.exclude), ("--rename", options.rename)):
        if given:
            raise UsageError(
                f"{flag}: the operations of a graph name its tensors, so they are taken as they are",
                hint="-t safetensors takes the weights out of the graph, and then chooses among them",
            )


def out_of_mlx(
    weights: Weights, target: Format, folder: bool, made: list[OutputFile]
) -> Iterator[tuple[RouteStep, Weights]]:
    """The step from an MLX folder back to transformers' names; its config.json is added to ``made``."""
    if weights.format != "mlx":
        return
    from . import mlx, mlx_route, translate

    if any(step.outcome == "dequantised" for t in weights for step in t.steps):
        mlx.library()
    back = mlx_route.to_transformers(weights)
    if back is None:
        return
    weights = replace(back[0], metadata={**back[0].metadata, "format": "pt"})
    if folder and target.name == "safetensors":
        made.append(translate.config_file(back[1]))
    yield RouteStep("architecture", "names of transformers, matrices as floats"), weights


def as_mlx(
    weights: Weights, target: Format, options: ConvertOptions, made: list[OutputFile], configs: list[dict[str, object]]
) -> Iterator[tuple[RouteStep, Weights]]:
    """The steps to mlx-lm's names and groups; its config.json takes the place of the one in ``made``.

    ``configs`` has the config.json that a step before has made, if one has.
    """
    if target.name != "mlx":
        if options.group_size is not None:
            raise UsageError("--group-size is for MLX", hint="-t mlx")
        return
    from . import mlx_route, translate

    given = (configs[-1], translate.CONFIG) if configs else mlx_route.plain_config(weights)
    made[:] = [file for file in made if file.name != translate.CONFIG]
    config: dict[str, object] = {}
    steps = mlx_route.to_mlx(weights, given, options.quantize, options.group_size, {}, options.allow_requantize)
    for name, text, after, config in steps:  # noqa: B007  # the last one counts
        yield RouteStep(name, text), after
    made.append(translate.config_file(config))


def as_gguf(weights: Weights, target: Format, pre_tokenizer: str | None = None) -> Iterator[tuple[RouteStep, Weights]]:
    """The step from a checkpoint of transformers to GGUF's names, row orders and facts, by its config.json."""
    if not target.keeps_keyvalues or weights.format == target.name:
        if pre_tokenizer is not None:
            raise UsageError("--pre-tokenizer is for a checkpoint that becomes GGUF", hint="-t gguf")
        return
    from . import translate  # and with it all that is known of model families
    from .mlx_route import plain_config
    from .tokens import attach

    read = plain_config(weights)
    if read is not None:
        arch, weights = translate.plan(read[0], weights, read[1], pre_tokenizer)
        yield RouteStep("architecture", f"{arch.name}: names and row orders of llama.cpp's {arch.gguf}"), weights
        if text := attach.said(weights.keyvalues):
            yield RouteStep("tokenizer", text), weights


def as_checkpoint(
    weights: Weights, target: Format, folder: bool, made: list[OutputFile], configs: list[dict[str, object]]
) -> Iterator[tuple[RouteStep, Weights]]:
    """The step from a GGUF file to a checkpoint folder of transformers; its config.json is added to ``made``."""
    if weights.format != "gguf" or target.keeps_keyvalues or not weights.keyvalues:
        return
    if not folder:
        note = "names stay as GGUF has them: a folder as destination gets transformers' names and a config.json"
        yield RouteStep("architecture", "as it is"), replace(weights, notes=[*weights.notes, note])
        return
    from . import translate
    from .tokens import attach

    pairs = weights.keyvalues
    arch, entries, weights = translate.from_gguf(weights)
    context = next(
        (p.value for p in pairs if p.key == f"{arch.gguf}.context_length" and isinstance(p.value, int)), None
    )
    weights, beside, ids = attach.to_folder(weights, pairs, context)
    entries |= ids
    made += [OutputFile(name, len(data), (Part(0, Inline(data)),)) for name, data in beside.items()]
    # transformers refuses a file that does not say which framework it is for
    weights = replace(weights, metadata={**weights.metadata, "format": "pt"})
    made.append(translate.config_file(entries))
    configs.append(entries)
    yield RouteStep("architecture", f"{arch.name}: names and row orders of transformers' {arch.model_type}"), weights


def quantised(weights: Weights, target: Format, options: ConvertOptions) -> Iterator[tuple[RouteStep, Weights]]:
    """The steps to and from quantised types: what is asked for, and what the target cannot hold."""
    held = weights.tensors
    if options.quantize is not None and target.name != "mlx":
        dtype = ggml.parse(options.quantize)
        if dtype.name not in target.dtypes:
            raise RouteRefused(f"`{target.name}` cannot hold {dtype}", hint="-t gguf")
        from .imatrix import read_imatrix

        imatrix = None if options.imatrix is None else read_imatrix(options.imatrix)
        weights = quantize_pass.quantize(weights, quantize_pass.one_type(dtype), imatrix, options.allow_requantize)
        changed = sum(1 for name, t in weights.tensors.items() if t is not held[name])
        yield RouteStep("quantise", f"{counted(changed, 'tensor')} to {dtype}, {mix_text(weights)}"), weights
    elif options.imatrix is not None:
        raise UsageError("--imatrix is for quantising", hint="--quantize TYPE")

    def to_floats(tensor: TensorView) -> bool:
        if tensor.steps and tensor.steps[-1].outcome == "quantised":
            return False
        return options.dtype is not None or tensor.dtype.name not in target.dtypes

    blocks = [t for t in weights if t.dtype.block > 1 and to_floats(t)]
    if blocks:
        weights = dequantize_pass.dequantize(weights, to_floats, asked=options.dtype is not None)
        kinds = ", ".join(sorted({t.dtype.name for t in blocks}))
        yield RouteStep("dequantise", f"{counted(len(blocks), 'tensor')} of {kinds} to f32"), weights


def as_floats(
    weights: Weights, target: Format, options: ConvertOptions, stats: cast_pass.CastStats
) -> Iterator[tuple[RouteStep, Weights]]:
    """``--dtype``, but for tensors that the target's runtimes take in f32 only: those become f32."""
    only = target.float32_only
    if weights.graph is not None:
        return
    if options.dtype is not None:
        held, which = weights.tensors, None if only is None else lambda tensor: not only(tensor)
        weights = cast_pass.cast(weights, options.dtype, options.overflow, stats, which)
        changed = sum(1 for name, t in weights.tensors.items() if t.dtype != held[name].dtype)
        yield RouteStep("cast", f"{counted(changed, 'tensor')} to {options.dtype}"), weights
    # A file of the target's own format is copied as it is.
    if only is not None and (options.dtype is not None or weights.format != target.name):
        narrow = {name for name, t in weights.tensors.items() if t.dtype.name in ("f16", "bf16") and only(t)}
        if narrow:
            weights = cast_pass.cast(weights, ggml.F32, which=lambda tensor: tensor.name in narrow)
            yield RouteStep("cast", f"{counted(len(narrow), 'tensor')} to f32, as {target.name} needs them"), weights


def as_graph(
    weights: Weights, target: Format, options: ConvertOptions, stats: cast_pass.CastStats
) -> Iterator[tuple[RouteStep, Weights]]:
    """The steps within a graph: ``--opset``, and ``--dtype`` of its operations."""
    if weights.graph is None:
        return
    if options.opset is not None:
        before, held = weights.graph.opsets.get("ai.onnx"), set(weights.tensors)
        weights = opset_pass.opset(weights, options.opset)
        made = len(set(weights.tensors) - held)
        constants = f", {counted(made, 'constant')} made" if made else ""
        yield RouteStep("opset", f"{before} -> {options.opset}, by onnx's version converter{constants}"), weights
    if options.cast_io and options.dtype is None:
        raise UsageError("--cast-io is for casting a graph", hint="--dtype f16")
    if options.dtype is not None:
        if options.dtype.name != "f16":
            raise RouteRefused(
                f"--dtype {options.dtype}: the operations of a graph are changed to f16 only",
                hint="-t safetensors takes the weights out and casts them; or export the graph in that type",
            )
        weights, names = half_pass.half(weights, options.overflow, options.cast_io)
        weights = cast_pass.cast(weights, options.dtype, options.overflow, stats, lambda tensor: tensor.name in names)
        edges = "too" if options.cast_io else "stay"
        text = f"operations in f16, {counted(len(names), 'tensor')} cast; inputs and outputs {edges}"
        yield RouteStep("graph", text), weights


def in_graph_of(weights: Weights, made: Weights) -> Weights:
    """The source's graph in the opset that ``made`` has, and in f16 where that computes so; tensors keep theirs."""
    if weights.graph is None or made.graph is None:
        return weights
    version = made.graph.opsets.get("ai.onnx")
    try:
        if version is not None and "ai.onnx" in weights.graph.opsets:
            weights = opset_pass.opset(weights, version)
        held = made.tensors
        if any(t.dtype.name == "f32" and n in held and held[n].dtype.name == "f16" for n, t in weights.tensors.items()):
            edges = any(v.type == "f16" for v in (*made.graph.inputs, *made.graph.outputs))
            weights = half_pass.half(weights, "saturate", edges)[0]
    except RouteRefused:  # then it is no graph that we have made, and is told to be another
        pass
    return weights


def mix_text(weights: Weights) -> str:
    """Bits of all tensors for each weight: ``4.9 bits a weight``."""
    count = sum(t.numel for t in weights)
    return f"{8 * weights.nbytes / count:.2f} bits a weight" if count else "no weights"


def _summary(
    opened: Opened, target: Format, options: ConvertOptions, origin: Origin
) -> tuple[Summary | None, tuple[str, ...]]:
    """What is known of the origin, and the files that it was read from; None when nothing is, or nothing is wanted.

    The version alone is no summary: a plain local file gives the bytes that the format's own library would write.
    """
    if not (options.summary and target.keeps_summary):
        return None, ()
    mounted = trees.find(opened.given)
    folder = opened.given if opened.folder and mounted is None else mounted[0].root if mounted is not None else None
    found = card.read(folder) if folder is not None else card.Card()
    if not found and origin.uri is None and options.recipe is None:
        return None, ()
    uri = None if origin.uri is None else public(origin.uri)
    summary = Summary(uri, origin.commit, found.license, found.base_model, options.recipe, __version__)
    return summary, (os.path.join(folder, card.NAME),) if found and folder is not None else ()


def chosen(weights: Weights, options: ConvertOptions) -> Iterator[tuple[RouteStep, Weights]]:
    """The steps by which the user picks and names tensors, each with the weights after it."""
    if options.include or options.exclude:
        before = len(weights.tensors)
        weights = select_pass.select(weights, options.include, options.exclude)
        yield RouteStep("select", f"{len(weights.tensors)} of {counted(before, 'tensor')}"), weights
    if options.rename:
        weights = rename_pass.rename(weights, options.rename)
        yield RouteStep("rename", ", ".join(options.rename)), weights


def _read_text(opened: Opened) -> str:
    weights = opened.weights
    chosen = f", from {weights.chosen}" if weights.chosen else ""
    return f"{opened.format.name}: {counted(len(weights.tensors), 'tensor')}{chosen}"


def _write_text(target: Format, files: list[OutputFile], go: tuple[Companion, ...]) -> str:
    beside = f" and {counted(len(go), 'file')} beside" if go else ""
    return f"{target.name}: {len(files)} file{'s' if len(files) != 1 else ''}{beside}"


def _stay_text(companion: Companion, folder: bool) -> str:
    if not folder:
        return f"{companion.name} stays behind: the destination is a single file"
    return f"{companion.name} stays behind: it is code (--with-code takes it along)"


def _losses(initial: Weights, final: Weights, target: Format) -> list[Loss]:
    losses = list(final.losses)
    # As typed facts the summary stays, and which framework a file is for says nothing there.
    kept = {"format", *(pair.key for pair in final.keyvalues)} if target.keeps_keyvalues else set()
    dropped = sorted(initial.metadata.keys() - kept)
    if dropped and not target.keeps_metadata:
        losses.append(Loss("metadata-dropped", f"`{target.name}` holds no metadata: {', '.join(dropped[:5])}"))
    if final.keyvalues and not target.keeps_keyvalues:
        shown = ", ".join(pair.key for pair in final.keyvalues[:5]) + (", ..." if len(final.keyvalues) > 5 else "")
        pairs = counted(len(final.keyvalues), "key-value pair")
        losses.append(Loss("metadata-dropped", f"`{target.name}` holds no {pairs}: {shown}"))
    return losses


def refuse_losses(losses: list[Loss]) -> None:
    """Raise Refused for the first loss that nobody asked for (``--strict``)."""
    for loss in losses:
        if not loss.asked:
            raise Refused(
                f"--strict: {loss.detail}", tensor=loss.tensor, hint="leave --strict out, or ask for it by name"
            )
