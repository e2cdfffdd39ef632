"""Whether a cast did what it says: each value within half a unit in the last place of the target type.

Written apart from the casting kernels and by another method: those work on bits, this on distances. Half an ulp at x is
2^(max(e, emin) - p - 1), e the exponent of x, p the stored mantissa bits, emin the least normal exponent (IEEE 754-2019
section 2.1, ulp; OCP OFP8 table 1; ml_dtypes for the fnuz kinds).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dtypes import DType

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers of a float type: stored mantissa bits, least normal exponent, greatest finite value, infinities."""

    mantissa: int
    emin: int
    greatest: float
    has_inf: bool
    has_negative_zero: bool = True


GRIDS: dict[str, Grid] = {
    "f64": Grid(52, -1022, float.fromhex("0x1.fffffffffffffp+1023"), True),
    "f32": Grid(23, -126, float.fromhex("0x1.fffffep+127"), True),
    "bf16": Grid(7, -126, float.fromhex("0x1.fep+127"), True),
    "f16": Grid(10, -14, 65504.0, True),
    "f8_e4m3": Grid(3, -6, 448.0, False),
    "f8_e5m2": Grid(2, -14, 57344.0, True),
    "f8_e4m3fnuz": Grid(3, -7, 240.0, False, False),
    "f8_e5m2fnuz": Grid(2, -15, 57344.0, False, False),
}


def as_array(raw: memoryview | bytes | bytearray, dtype: DType) -> np.ndarray:
    """The bytes as a one-dimensional numpy array of the type; needs whole bytes an element."""
    import numpy as np

    if dtype.ml:
        import ml_dtypes

        return np.frombuffer(raw, dtype=getattr(ml_dtypes, dtype.numpy or ""))
    return np.frombuffer(raw, dtype=np.dtype(dtype.numpy).newbyteorder("<"))


def _widened(values: np.ndarray, dtype: DType, wide: type) -> np.ndarray:
    """Exact: every type here fits in float32, float64 in itself. bfloat16 by shifting, since its casts are slow."""
    import numpy as np

    if dtype.name == "bf16" and wide is np.float32:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return values.astype(wide)


def first_outside(source: np.ndarray, source_dtype: DType, output: np.ndarray, dtype: DType) -> int:
    """Index of the first output element that is not its source rounded to ``dtype``, or -1.

    NaN must stay NaN and keep its sign where the type has signed NaNs; a value beyond the greatest finite one may have
    become that one, infinity, or NaN in a type without infinities (the cast itself refuses it unless told otherwise).
    """
    import numpy as np

    grid = GRIDS[dtype.name]
    wide: type = np.float64 if "f64" in (source_dtype.name, dtype.name) else np.float32
    x = _widened(source, source_dtype, wide)
    y = _widened(output, dtype, wide)
    word: type = np.uint64 if wide is np.float64 else np.uint32
    digits, bias = (52, 1023) if wide is np.float64 else (23, 127)
    exponent = x.view(word) & word(((1 << (63 if wide is np.float64 else 31)) - 1) >> digits << digits)
    np.maximum(exponent, word(max(grid.emin + bias, 0) << digits), out=exponent)
    with np.errstate(invalid="ignore", over="ignore"):
        half = exponent.view(wide) * wide(2.0 ** -(grid.mantissa + 1))
        distance = np.abs(x - y)
        sign = (x.view(word) ^ y.view(word)) >> word(63 if wide is np.float64 else 31)
        right = (distance <= half) & (sign == 0)
    if right.all():
        return -1
    for index in np.flatnonzero(~right):
        if not _excused(float(x[index]), float(y[index]), bool(sign[index]), grid):
            return int(index)
    return -1


def _excused(x: float, y: float, signs_differ: bool, grid: Grid) -> bool:
    import math

    if math.isnan(x):
        return math.isnan(y)
    if not grid.has_negative_zero and y == 0 and signs_differ:
        return abs(x) <= 2.0 ** (grid.emin - grid.mantissa - 1)
    if signs_differ and not math.isnan(y):
        return False
    half_top = 2.0 ** (math.frexp(grid.greatest)[1] - 1 - grid.mantissa - 1)
    if abs(x) > grid.greatest and (math.isinf(x) or abs(x) >= grid.greatest + half_top):
        return (
            math.isinf(y)
            if grid.has_inf and math.isinf(x)
            else (math.isinf(y) or math.isnan(y) or abs(y) == grid.greatest)
        )
    return False


def ulp_text(value: float, dtype: DType) -> str:
    """Half an ulp of ``dtype`` at ``value``, as text for messages."""
    import math

    grid = GRIDS[dtype.name]
    exponent = max(math.frexp(value)[1] - 1, grid.emin) if value and math.isfinite(value) else grid.emin
    return f"{2.0 ** (exponent - grid.mantissa - 1):g}"
