"""``--quantize``: floats as ggml's blocks. Here only the plan is made; rows are quantised as they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import ggml
from ..artifact import Step, TensorView, Weights
from ..dtypes import DType
from ..errors import Refused
from ..floats import SOURCES
from ..ggml import Quantization
from ..report import Loss, counted

if TYPE_CHECKING:
    import numpy as np

Choice = Callable[[TensorView], DType | None]


def is_quantizable(tensor: TensorView) -> bool:
    """Whether runtimes take this tensor in blocks: a float matrix, called ``.weight``, and none of those kept."""
    return (
        (tensor.dtype.name in SOURCES or tensor.dtype.block > 1)
        and len(tensor.shape) >= 2
        and 0 not in tensor.shape
        and tensor.name.endswith("weight")
        and not ggml.float32_only(tensor)
    )


def one_type(dtype: DType) -> Choice:
    """One type for every matrix, whether its rows fit or not: what does not fit is kept as it is, and said."""
    return lambda tensor: dtype if is_quantizable(tensor) else None


def quantize(
    weights: Weights,
    choose: Choice,
    imatrix: Mapping[str, np.ndarray] | None = None,
    allow_requantize: bool = False,
    threads: int | None = None,
) -> Weights:
    """The tensors for which ``choose`` names a type, as blocks of that type; no tensor byte is read here.

    ``imatrix`` has the importance of each column by tensor name. A tensor whose rows are no whole blocks stays as it
    is: a Loss that nobody asked for. Raises Refused for a type that cannot be had (``ggml.check``) and for a tensor
    that is quantised already, in another type, unless ``allow_requantize``; what the values forbid is raised when they
    are read.
    """
    tensors, losses, notes = dict(weights.tensors), list(weights.losses), list(weights.notes)
    used = 0
    for name, tensor in weights.tensors.items():
        dtype = choose(tensor)
        if dtype is None or dtype == tensor.dtype:
            continue
        if not ggml.fits(tensor.shape, dtype):
            detail = (
                f"asked {dtype}, got {tensor.dtype}: rows of {tensor.shape[-1]} are no whole blocks of {dtype.block}"
            )
            losses.append(Loss("type-substituted", detail, name))
            continue
        ggml.library()
        values = None if imatrix is None else imatrix.get(name)
        used += values is not None
        tensors[name] = _quantize(tensor, dtype, values, allow_requantize, threads or ggml.cores())
        losses.append(Loss("dtype-narrowed", f"{tensor.dtype} -> {dtype}", name, asked=True))
    if imatrix is not None:
        notes.append(f"the importance matrix was used for {counted(used, 'tensor')}")
    return replace(weights, tensors=tensors, losses=losses, notes=notes)


def _quantize(
    tensor: TensorView, dtype: DType, values: np.ndarray | None, allow_requantize: bool, threads: int
) -> TensorView:
    source, held, steps = tensor.source, tensor.dtype, tensor.steps
    if held.block > 1:
        if not allow_requantize:
            raise Refused(
                f"the tensor is quantised already, as {held}: errors would add up", tensor=tensor.name,
                expected="a source of floats", found=held.name,
                hint="quantise from the original model; --allow-requantize does it all the same",
            )  # fmt: skip
        source, held = ggml.dequantized(source, held), ggml.F32
        steps = (*steps, Step("dequantised", f"{tensor.dtype} -> f32"))
    weights, matrices = (None, 1) if values is None else ggml.imatrix_for(values, tensor.shape)
    row = tensor.shape[-1]
    work = Quantization(tensor.name, held, dtype, row, weights, matrices, threads)
    detail = f"{held} -> {dtype}" + ("" if values is None else ", by the importance matrix")
    return replace(
        tensor, dtype=dtype, source=ggml.quantized(source, tensor.shape, work), origins=tensor.came_from(),
        steps=(*steps, Step("quantised", detail)),
    )  # fmt: skip
