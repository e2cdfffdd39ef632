"""Quantised tensors as the floats that they stand for: f32, as ggml computes them. Lazily, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .. import ggml
from ..artifact import Step, TensorView, Weights
from ..errors import Refused
from ..report import Loss


def dequantize(weights: Weights, which: Callable[[TensorView], bool], asked: bool = False) -> Weights:
    """The quantised tensors for which ``which`` holds, as f32. ``asked``: whether the user named another type.

    Values are exactly those that a runtime computes with; what is lost is the encoding. Raises Refused for a type that
    ggml itself uses for intermediate results only, and MissingExtra without libgguf.
    """
    tensors, losses = dict(weights.tensors), list(weights.losses)
    for name, tensor in weights.tensors.items():
        if tensor.dtype.block == 1 or not which(tensor):
            continue
        if tensor.dtype.name in ggml.INTERNAL:
            raise Refused(
                f"{tensor.dtype} is a type of intermediate results, which nothing dequantises", tensor=name,
                hint="leave it out with --exclude",
            )  # fmt: skip
        ggml.library()
        step = Step("dequantised", f"{tensor.dtype} -> f32")
        tensors[name] = replace(
            tensor, dtype=ggml.F32, source=ggml.dequantized(tensor.source, tensor.dtype),
            origins=tensor.came_from(), steps=(*tensor.steps, step),
        )  # fmt: skip
        losses.append(Loss("type-substituted", f"{tensor.dtype} as the f32 values that it stands for", name, asked))
    return replace(weights, tensors=tensors, losses=losses)
