"""The values that blocks stand for, as sources that compute them when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..casting import cast_block
from ..dtypes import DType
from ..source import Mapped, Source
from .types import F32, library

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class _Dequantize:
    dtype: DType

    def __call__(self, blocks: memoryview, out: memoryview) -> None:
        # Each block is by itself, so that any number of them is one row.
        library().dequantize_rows_into_raw(self.dtype.ggml, blocks, out, 1, len(out) // 4)


def dequantized(source: Source, dtype: DType) -> Mapped:
    """The values of ``source``, blocks of ``dtype``, as little-endian f32, as ggml computes them."""
    nbytes = dtype.bits // 8
    work = _Dequantize(dtype)
    return Mapped(source, source.nbytes // nbytes, nbytes, 4 * dtype.block, work, f"dequantise {dtype}")


def dequantize(blocks: memoryview | bytes, dtype: DType) -> np.ndarray:
    """The values of whole blocks, as a flat f32 array."""
    import numpy as np

    out = np.empty(len(blocks) // (dtype.bits // 8) * dtype.block, "<f4")
    if out.size:
        _Dequantize(dtype)(memoryview(blocks), out.view("u1").data)
    return out


def as_f32(data: memoryview | bytes | bytearray, dtype: DType) -> np.ndarray:
    """Floats of any type as a flat f32 array: exact but for f64. f64 beyond f32 becomes infinite."""
    import numpy as np

    if dtype.name == "f32":
        return np.frombuffer(data, "<f4")
    out = np.empty(len(data) // dtype.itemsize, "<f4")
    cast_block(memoryview(data), out.view("u1").data, dtype, F32, "inf")
    return out
