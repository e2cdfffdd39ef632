"""Whether a cast did what it says: each value within half a unit in the last place of the target type.

Written apart from the casting kernels and by another method: those work on bits, this on distances. Half an ulp at x is
2^(max(e, emin) - p - 1), e the exponent of x, p the stored mantissa bits, emin the least normal exponent (IEEE 754-2019
section 2.1, ulp; OCP OFP8 table 1; ml_dtypes for the fnuz kinds).
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ..dtypes import BY_NAME, DType

if TYPE_CHECKING:
    import numpy as np


BLOCK = 1 << 15  # elements at a time: a few arrays of float32 stay in the second-level cache


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


@cache
def _values(name: str, wide: str) -> np.ndarray:
    """The value of every pattern of a type of at most 16 bits: exact, every one of them fits in float32."""
    import numpy as np

    dtype = BY_NAME[name]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return as_array(np.arange(1 << dtype.bits, dtype=f"<u{dtype.itemsize}").tobytes(), dtype).astype(wide)


class _Scratch(threading.local):
    """Arrays of one block, a set for each thread: fresh ones would cost more in page faults than the arithmetic."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], np.ndarray] = {}

    def get(self, slot: str, dtype: str, size: int) -> np.ndarray:
        import numpy as np

        array = self._arrays.get((slot, dtype))
        if array is None:
            array = self._arrays[slot, dtype] = np.zeros(BLOCK, dtype)
        return array[:size]


_scratch = _Scratch()


def _widened(slot: str, values: np.ndarray, dtype: DType, wide: str) -> np.ndarray:
    """The same values as float32 or float64, exactly."""
    import numpy as np

    if dtype.name == "bf16" and wide == "f4":
        out = _scratch.get(slot + " bf16", wide, values.size)  # the lower halves are zero and stay so
        out.view("<u2")[1::2] = values.view("<u2")
        return out
    if dtype.name == "f16" and wide == "f4" and not _has_special_f16(values):
        out = _scratch.get(slot, wide, values.size)
        _shift_f16(values.view("<i2"), out)
        return out
    if dtype.bits <= 16:
        out = _scratch.get(slot, wide, values.size)
        return np.take(_values(dtype.name, wide), values.view(f"<u{dtype.itemsize}"), out=out, mode="clip")
    if values.dtype == wide:
        return values
    out = _scratch.get(slot, wide, values.size)
    np.copyto(out, values)
    return out


def _has_special_f16(values: np.ndarray) -> bool:
    import numpy as np

    magnitude = _scratch.get("f16", "<u2", values.size)
    np.bitwise_and(values.view("<u2"), np.uint16(0x7FFF), out=magnitude)
    return bool(magnitude.size) and int(magnitude.max()) >= 0x7C00


def _shift_f16(patterns: np.ndarray, out: np.ndarray) -> None:
    """Finite f16 as f32, subnormals too: the fields moved to their places, the bias mended by 2^112. Twice as fast."""
    import numpy as np

    words = out.view("<i4")
    np.copyto(words, patterns)  # the sign is spread over the upper half
    np.left_shift(words, np.int32(13), out=words)
    np.bitwise_and(words, np.int32(0x8FFFE000 - (1 << 32)), out=words)
    np.multiply(out, np.float32(2.0**112), out=out)


def first_outside(source: np.ndarray, source_dtype: DType, output: np.ndarray, dtype: DType) -> int:
    """Index of the first output element that is not its source rounded to ``dtype``, or -1.

    Either neighbour of a value half way between two is right. NaN must stay NaN, with its sign where the type has
    signed NaNs. A value that rounds beyond the greatest finite one may have become that one, infinity, or NaN where
    there is no infinity (the cast itself refuses it unless told otherwise).
    """
    for start in range(0, source.size, BLOCK):
        wrong = outside(source[start : start + BLOCK], source_dtype, output[start : start + BLOCK], dtype)
        if wrong.size:
            return start + int(wrong[0])
    return -1


def outside(source: np.ndarray, source_dtype: DType, output: np.ndarray, dtype: DType) -> np.ndarray:
    """The indices of all such elements, in a block of at most ``BLOCK`` elements."""
    import numpy as np

    grid = GRIDS[dtype.name]
    wide = "f8" if "f64" in (source_dtype.name, dtype.name) else "f4"
    bits, digits, bias = (64, 52, 1023) if wide == "f8" else (32, 23, 127)
    integer = f"u{bits // 8}"
    word: type = np.uint64 if wide == "f8" else np.uint32
    x, y = _widened("x", source, source_dtype, wide), _widened("y", output, dtype, wide)
    # The ulp is that of the smaller magnitude: below a power of two the numbers stand twice as close as above it, so
    # that half an ulp at the power itself would let its neighbour pass. (With unlike signs the smaller pattern is the
    # positive one; then only zeros can be near at all, and those are looked at below.)
    scale = _scratch.get("scale", integer, x.size)
    np.minimum(x.view(integer), y.view(integer), out=scale)
    ones = (1 << (bits - 1)) - (1 << digits)  # the exponent of infinity
    np.bitwise_and(scale, word(ones), out=scale)
    least, most = (int(scale.min()), int(scale.max())) if scale.size else (ones, 0)
    floor = (grid.emin + bias) << digits
    if least < floor:
        np.maximum(scale, word(floor), out=scale)
    distance = _scratch.get("distance", wide, x.size)
    with np.errstate(invalid="ignore", over="ignore"):
        half = scale.view(wide)
        np.multiply(half, half.dtype.type(2.0 ** -(grid.mantissa + 1)), out=half)
        np.subtract(x, y, out=distance)
        np.abs(distance, out=distance)
        right = distance <= half
    if most == ones:  # an infinity is near to nothing, not even to itself
        right &= distance < np.inf
    tiny = grid.emin - grid.mantissa - 1  # half the least subnormal is 2^tiny: what is below becomes zero
    if least == 0 or least < (tiny + bias) << digits:
        # The sign of a zero counts; and that far below, the difference itself is rounded and says too little.
        right &= np.where(y == 0, np.signbit(x) == np.signbit(y), np.abs(x) >= 2.0**tiny)
    if right.all():
        return np.empty(0, np.intp)
    rest = np.flatnonzero(~right)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        xs, ys = x[rest].astype(np.float64), y[rest].astype(np.float64)
    excused = _excused(xs, ys, _signs(source[rest], source_dtype), _signs(output[rest], dtype), grid)
    return np.asarray(rest[~excused])


def _signs(values: np.ndarray, dtype: DType) -> np.ndarray:
    """The sign bits, of NaNs too, which a conversion may lose."""
    import numpy as np

    if dtype.name == "f8_e8m0":
        return np.zeros(values.shape, bool)
    return np.asarray(values.view(f"u{dtype.itemsize}") >> (dtype.bits - 1) != 0)


def _excused(x: np.ndarray, y: np.ndarray, x_sign: np.ndarray, y_sign: np.ndarray, grid: Grid) -> np.ndarray:
    """Which of these few are right though they are not near: NaN, infinity, overflow, the zero without a sign."""
    import numpy as np

    has_signed_nan = grid.has_negative_zero
    same_sign = x_sign == y_sign
    nan = np.isnan(x) & np.isnan(y) & (same_sign if has_signed_nan else True)
    half_top = 2.0 ** (math.frexp(grid.greatest)[1] - 1 - grid.mantissa - 1)
    beyond = np.isfinite(x) & (np.abs(x) >= grid.greatest + half_top)
    saturated = (np.abs(y) == grid.greatest) & same_sign
    if grid.has_inf:
        infinite = np.isinf(y) & same_sign
        return np.asarray(nan | (np.isinf(x) & infinite) | (beyond & (infinite | saturated)))
    excused = nan | ((beyond | np.isinf(x)) & (np.isnan(y) | saturated))
    if not grid.has_negative_zero:
        excused |= (y == 0) & ~y_sign & (np.abs(x) <= 2.0 ** (grid.emin - grid.mantissa - 1))
    return np.asarray(excused)


def ulp_text(value: float, dtype: DType) -> str:
    """Half an ulp of ``dtype`` at ``value``, as text for messages."""
    grid = GRIDS[dtype.name]
    exponent = max(math.frexp(value)[1] - 1, grid.emin) if value and math.isfinite(value) else grid.emin
    return f"{2.0 ** (exponent - grid.mantissa - 1):g}"
