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


BLOCK = 1 << 16  # elements at a time: fewer would be quicker alone, but threads hand the interpreter over at each call


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

    def get(self, slot: str, dtype: str, size: int, fill: int = 0) -> np.ndarray:
        import numpy as np

        array = self._arrays.get((slot, dtype))
        if array is None:
            array = self._arrays[slot, dtype] = np.full(BLOCK, fill, dtype)
        return array[:size]


_scratch = _Scratch()


def _widened(slot: str, values: np.ndarray, dtype: DType, wide: str) -> np.ndarray:
    """The same values as float32 or float64, exactly."""
    import numpy as np

    if dtype.name == "bf16" and wide == "f4":
        out = _scratch.get(slot + " bf16", wide, values.size)  # the lower halves are zero and stay so
        out.view("<u2")[1::2] = values.view("<u2")
        return out
    if dtype.bits <= 16:
        out = _scratch.get(slot, wide, values.size)
        return _taken(_values(dtype.name, wide), values, out)
    if values.dtype == wide:
        return values
    out = _scratch.get(slot, wide, values.size)
    np.copyto(out, values)
    return out


def _taken(table: np.ndarray, values: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The entries of ``table`` for the patterns of ``values``. The indices are made here, or numpy would, afresh."""
    import numpy as np

    indices = _scratch.get("indices", "intp", values.size)
    np.copyto(indices, values.view(f"<u{values.itemsize}"))
    return np.take(table, indices, out=out, mode="clip")


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

    sure = _surely_right(source, source_dtype, output, dtype)
    if sure is None:
        return _outside(source, source_dtype, output, dtype)
    rest = np.flatnonzero(~sure)
    if not rest.size:
        return rest
    return np.asarray(rest[_outside(source[rest], source_dtype, output[rest], dtype)])


def _surely_right(source: np.ndarray, source_dtype: DType, output: np.ndarray, dtype: DType) -> np.ndarray | None:
    """Which elements are right by their patterns alone: nearly all of them, in half the time. None where it cannot say.

    Patterns of float32 of one sign grow with the value, and within a binade evenly. A normal number of a type with m
    mantissa bits is every 2^(23 - m)-th of them, so its source lies at most half that many patterns away; where that is
    so, the value is within half an ulp. Subnormal numbers may be right and yet not sure.
    """
    import numpy as np

    if source_dtype.name != "f32" or dtype.bits > 16 or _has_special(output, dtype):
        return None
    x = source.view("<u4")
    reach = 1 << (22 - GRIDS[dtype.name].mantissa)
    ahead = _scratch.get("ahead", "<u4", x.size)  # how far the output's pattern is ahead of the source's, plus reach
    if dtype.name == "bf16":
        patterns = _scratch.get("patterns bf16", "<u4", x.size, fill=reach)  # the lower halves stay as they are
        patterns.view("<u2")[1::2] = output.view("<u2")
        np.subtract(patterns, x, out=ahead)
    elif dtype.name == "f16":
        patterns = _scratch.get("patterns", "<i4", x.size)
        np.copyto(patterns, output.view("<i2"))  # the sign is spread over the upper half, of which its own bit is kept
        np.left_shift(patterns, np.int32(13), out=patterns)
        np.bitwise_and(patterns, np.int32(0x8FFFE000 - (1 << 32)), out=patterns)
        values = patterns.view("<f4")
        np.multiply(values, np.float32(2.0 ** (127 - 15)), out=values)  # the bias mended, of subnormal numbers too
        np.subtract(patterns.view("<u4"), x, out=ahead)
        np.add(ahead, np.uint32(reach), out=ahead)
    else:
        patterns = _scratch.get("patterns", "<u4", x.size)
        table = _values(dtype.name, "f4").view("<u4") + np.uint32(reach)
        np.subtract(_taken(table, output, patterns), x, out=ahead)
    sure = _scratch.get("sure", "?", x.size)
    np.less_equal(ahead, np.uint32(2 * reach), out=sure)
    return sure


def _has_special(values: np.ndarray, dtype: DType) -> bool:
    """Whether there is an infinity or a NaN among the values of a type of at most 16 bits."""
    import numpy as np

    patterns = values.view(f"<u{dtype.itemsize}")
    grid = GRIDS[dtype.name]
    if not grid.has_negative_zero:
        return bool((patterns == 1 << (dtype.bits - 1)).any())
    magnitude = _scratch.get("magnitude", f"<u{dtype.itemsize}", values.size)
    np.bitwise_and(patterns, patterns.dtype.type((1 << (dtype.bits - 1)) - 1), out=magnitude)
    exponents = ((1 << (dtype.bits - 1)) - 1) >> grid.mantissa << grid.mantissa
    first = exponents if grid.has_inf else (1 << (dtype.bits - 1)) - 1
    return bool(magnitude.size) and int(magnitude.max()) >= first


def _outside(source: np.ndarray, source_dtype: DType, output: np.ndarray, dtype: DType) -> np.ndarray:
    """The same by the values themselves."""
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
