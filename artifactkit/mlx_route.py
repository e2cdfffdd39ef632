"""The steps of a route to and from folders that mlx-lm loads: names, config.json, and matrices in groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from . import mlx, translate
from .artifact import TensorView, Weights
from .errors import RouteRefused
from .passes import group as group_pass
from .report import counted
from .translate import architecture_of

QUANTISATION = ("quantization", "quantization_config")
FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def plain_config(weights: Weights) -> tuple[dict[str, object], str] | None:
    """(config.json, its path) of what was read; of an MLX folder without how it is quantised: it no longer is."""
    read = translate.read_config(weights.companions)
    if read is None or weights.format != "mlx":
        return read
    return {key: value for key, value in read[0].items() if key not in QUANTISATION}, read[1]


def to_transformers(weights: Weights) -> tuple[Weights, dict[str, object]] | None:
    """(the weights of an MLX folder under transformers' names, config.json); None without a config.json."""
    read = plain_config(weights)
    if read is None:
        return None
    from .modeling.mlx_forward import from_mlx

    arch = architecture_of(read[0], None, read[1])
    return from_mlx(arch, read[0], weights, read[1]), read[0]


def to_mlx(
    weights: Weights, given: tuple[dict[str, object], str] | None, quantize: str | None, group_size: int | None,
    types: Mapping[re.Pattern[str], str], allow_requantize: bool,
) -> Iterator[tuple[str, str, Weights, dict[str, object]]]:  # fmt: skip
    """Steps (name, what it does, the weights after it, config.json) from a checkpoint of transformers to an MLX folder.

    ``types`` has a mode for the tensors whose names match. Raises RouteRefused without a config.json, and as
    ``modeling.mlx_forward.to_mlx`` does.
    """
    if given is None:
        raise RouteRefused(
            "an MLX folder is made of a checkpoint folder, by its config.json",
            expected="config.json beside the weights", found="none",
            hint="-t safetensors or -t npz: mlx loads both by itself",
        )  # fmt: skip
    from .modeling.mlx_forward import is_quantizable, to_mlx

    arch = architecture_of(given[0], weights, given[1])
    config, weights = to_mlx(arch, given[0], weights, given[1])
    kinds = {t.dtype.name for t in weights if t.dtype.name in FLOATS}
    for key in ("torch_dtype", "dtype"):
        if key in config and len(kinds) == 1:
            config[key] = FLOATS[next(iter(kinds))]
    yield "architecture", f"{arch.name}: names and config of mlx-lm's {config['model_type']}", weights, config
    if quantize is None:
        return
    mlx.library()
    default = mlx.parse(quantize, group_size)
    eight = re.compile(arch.mlx.eight) if arch.mlx is not None and arch.mlx.eight else None

    def choose(tensor: TensorView) -> mlx.Grouping | None:
        if tensor.dtype.name not in mlx.FLOATS or not is_quantizable(arch, tensor):
            return None
        for pattern, name in types.items():
            if pattern.search(tensor.name):
                return None if name.lower() in FLOATS else mlx.parse(name)
        # mlx-lm's own exceptions (Model.quant_predicate): these matrices at 8 bits, whatever the others have.
        if eight is not None and eight.fullmatch(tensor.name.removesuffix(".weight")):
            return mlx.parse("q8")
        return default

    count, before = sum(t.numel for t in weights), weights
    weights, got = group_pass.group(weights, choose, allow_requantize)
    config["quantization"] = config["quantization_config"] = group_pass.entry(default, got)
    bits = 8 * weights.nbytes / max(count, 1)
    kept = sum(1 for t in before if t.name not in got and is_quantizable(arch, t))
    text = f"{counted(len(got), 'tensor')} to {default}, {bits:.2f} bits a weight"
    yield "quantise", text + (f"; {counted(kept, 'matrix')} kept" if kept else ""), weights, config
