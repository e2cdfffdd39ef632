"""``--quantize`` for MLX: floats in groups. Here only the plan is made; mlx computes when rows are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .. import mlx
from ..artifact import Step, TensorView, Weights
from ..errors import Refused
from ..report import Loss

Choice = Callable[[TensorView], mlx.Grouping | None]


def group(weights: Weights, choose: Choice, allow_requantize: bool = False) -> tuple[Weights, dict[str, mlx.Grouping]]:
    """(the weights, the grouping of each quantised tensor by its name); no tensor byte is read here.

    A matrix whose rows are no whole groups gets the largest smaller group that fits, or stays as it is: a Loss that
    nobody asked for. Raises Refused for one that was quantised before, unless ``allow_requantize``.
    """
    tensors: dict[str, TensorView] = {}
    losses, got = list(weights.losses), dict[str, mlx.Grouping]()
    for name, tensor in weights.tensors.items():
        wanted = choose(tensor)
        if wanted is None:
            tensors[name] = tensor
            continue
        grouping = _fitting(wanted, tensor)
        if grouping is None:
            detail = f"asked {wanted}, got {tensor.dtype}: rows of {tensor.shape[-1]} are no whole groups"
            losses.append(Loss("type-substituted", detail, name))
            tensors[name] = tensor
            continue
        if any(step.outcome == "dequantised" for step in tensor.steps) and not allow_requantize:
            raise Refused(
                "the tensor was quantised before: errors would add up", tensor=name, expected="a source of floats",
                hint="quantise from the original model; --allow-requantize does it all the same",
            )  # fmt: skip
        if grouping != wanted:
            losses.append(Loss("type-substituted", f"asked {wanted}, got {grouping}: rows of {tensor.shape[-1]}", name))
        losses.append(Loss("dtype-narrowed", f"{tensor.dtype} -> {grouping}", name, asked=True))
        got[name] = grouping
        step = Step("quantised", f"{tensor.dtype} -> {grouping}")
        module = name.removesuffix(".weight")
        for suffix, dtype, shape, source in mlx.quantized(name, tensor.source, tensor.dtype, tensor.shape, grouping):
            part = f"{module}.{suffix}"
            if part in weights.tensors and part != name:
                raise Refused("a tensor has the name of a part of a quantised one", tensor=part)
            tensors[part] = TensorView(part, dtype, shape, source, tensor.came_from(), (*tensor.steps, step))
    return replace(weights, tensors=tensors, losses=losses), got


def _fitting(wanted: mlx.Grouping, tensor: TensorView) -> mlx.Grouping | None:
    """``wanted``, or the same mode in the largest smaller group that the rows are whole numbers of; None for none."""
    if 0 in tensor.shape:
        return None
    for size in sorted((g for g in wanted.mode.groups if g <= wanted.group), reverse=True):
        grouping = mlx.Grouping(wanted.mode, size)
        if grouping.fits(tensor.shape[-1]):
            return grouping
    return None


def entry(default: mlx.Grouping, got: Mapping[str, mlx.Grouping]) -> dict[str, object]:
    """``quantization`` of config.json: the default, and by its module each matrix that has another."""
    own = {name.removesuffix(".weight"): g.entry() for name, g in sorted(got.items()) if g != default}
    return {**default.entry(), **own}
