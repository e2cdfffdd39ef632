"""MLX: a folder with config.json and safetensors of mlx's making, quantised in groups or not (mlx-lm, utils.py).

A quantised matrix ``X.weight`` is two or three tensors: packed ``X.weight`` (U32), ``X.scales``, ``X.biases``. Which
bits and groups they are in is in config.json alone. They are read as the f32 values that they stand for.
"""

from __future__ import annotations

import os
from dataclasses import replace

from .. import mlx, trees
from ..artifact import Step, TensorView, Weights
from ..containers import strict_json
from ..dtypes import BY_NAME, BY_SAFETENSORS
from ..errors import Corrupt, Refused, RouteRefused
from ..mlx.modes import of_entry
from ..report import Loss, counted
from ..safetensors_files import reader, reopen, writer
from ..types import Format, Head, OutputFile, ReadOptions, WriteOptions

MAX_CONFIG = 16 << 20
NONE = frozenset({"f64", "c128"})  # element types that mlx has no name for


def sniff(head: Head) -> bool:
    """safetensors whose metadata say that mlx made them; or the index of such."""
    return reader.sniff_any(head) and reader.made_by_mlx(head)


def read(head: Head, options: ReadOptions) -> Weights:
    """The tensors, quantised matrices as f32. Raises Corrupt for groups that config.json does not explain."""
    weights = reader.read(head, options)
    weights.format = "mlx"
    quantised = [name.removesuffix(".scales") for name in weights.tensors if name.endswith(".scales")]
    if not quantised:
        return weights
    config = os.path.join(os.path.dirname(head.path), "config.json")
    entries = _quantization(config)
    tensors, kinds, losses = dict(weights.tensors), dict[str, int](), list(weights.losses)
    for module in quantised:
        view, grouping = _matrix(module, tensors, entries, config)
        kinds[str(grouping)] = kinds.get(str(grouping), 0) + 1
        losses.append(Loss("type-substituted", f"{grouping} as the f32 values that it stands for", view.name))
        for suffix in ("scales", "biases"):
            tensors.pop(f"{module}.{suffix}", None)
        tensors[view.name] = view
    notes = [f"{counted(n, 'tensor')} quantised: {kind}" for kind, n in sorted(kinds.items())]
    return replace(weights, tensors=tensors, losses=losses, notes=[*weights.notes, *notes])


def _quantization(config: str) -> dict[str, object]:
    """The object ``quantization`` of config.json. Raises Corrupt when there is none."""
    if not trees.exists(config):
        raise Corrupt(
            "quantised matrices, and no config.json beside them that says how", file=config,
            expected="config.json with `quantization`", found="none",
        )  # fmt: skip
    file = trees.open_file(config)
    if file.size > MAX_CONFIG:
        raise Corrupt("config.json is too large to be one", file=config, found=f"{file.size} bytes")
    parsed = strict_json.loads(file.read(0, file.size), what="config.json", file=config)
    found = parsed.get("quantization") if isinstance(parsed, dict) else None
    if not isinstance(found, dict):
        raise Corrupt("config.json does not say how matrices are quantised", file=config, member="quantization")
    return found


def _matrix(
    module: str, tensors: dict[str, TensorView], entries: dict[str, object], config: str
) -> tuple[TensorView, mlx.Grouping]:
    name = f"{module}.weight"
    own = entries.get(module)
    grouping = of_entry(own if isinstance(own, dict) else entries)
    if grouping is None:
        raise Refused(
            "a way of quantising that is not known here", file=config, tensor=name,
            expected=", ".join(mlx.MODES), found=str(own or {k: v for k, v in entries.items() if k in KEYS}),
        )  # fmt: skip
    if f"{module}.global_scale" in tensors:
        raise Refused("a matrix with a scale of its own for all of it is not read here", tensor=name)
    wanted = ["weight", "scales", *(["biases"] if grouping.mode.affine else [])]
    views = [tensors.get(f"{module}.{suffix}") for suffix in wanted]
    packed, scales = views[0], views[1]
    if packed is None or scales is None or None in views:
        raise Corrupt("a quantised matrix lacks a part", tensor=name, expected=", ".join(wanted))
    row = scales.shape[-1] * grouping.group if scales.shape else 0
    shape = (*scales.shape[:-1], row)
    small = {v.dtype.name for v in views[1:] if v is not None}
    right = (
        packed.dtype.name == "u32"
        and packed.shape == (*shape[:-1], grouping.words(row))
        and all(v is not None and v.shape == scales.shape for v in views[1:])
        and len(small) == 1
        and small <= (set(mlx.FLOATS) if grouping.mode.affine else {"u8"})
    )
    if not right or not shape[:-1]:
        raise Corrupt(
            f"the parts of a quantised matrix do not fit {grouping}", tensor=name,
            expected=f"u32 {[*shape[:-1], grouping.words(row)]}", found=f"{packed.dtype} {list(packed.shape)}",
        )  # fmt: skip
    source = mlx.dequantized(tuple(v.source for v in views if v is not None), scales.dtype, shape, grouping)
    origins = tuple(f"{module}.{suffix}" for suffix in wanted)
    step = Step("dequantised", f"{grouping} -> f32")
    return TensorView(name, BY_NAME["f32"], shape, source, origins, (step,)), grouping


KEYS = ("group_size", "bits", "mode")


def write(weights: Weights, options: WriteOptions) -> list[OutputFile]:
    """``model.safetensors``, or shards and their index, in a folder. Raises RouteRefused for a single file."""
    if not options.folder:
        raise RouteRefused(
            "an MLX model is a folder: config.json says what its matrices are", expected="a folder", found=options.name,
            hint="give a destination without a suffix",
        )  # fmt: skip
    made = replace(weights, metadata={**weights.metadata, writer.FORMAT_KEY: "mlx"})
    # The parts of a matrix come of one computation: they stand together, so that it is made once.
    return writer.write(made, options, by_library=not any(name.endswith(".scales") for name in made.tensors))


FORMAT = Format(
    name="mlx",
    kind="weights",
    title="MLX folder, what mlx-lm loads",
    suffixes=(),
    sniff=sniff,
    read=read,
    write=write,
    dtypes=frozenset(d.name for d in BY_SAFETENSORS.values()) - NONE,
    folder=True,
    keeps_summary=True,
    reopen=reopen.reopen,
    reopened_by="the safetensors library",
)
