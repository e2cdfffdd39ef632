"""Casts between float types, on bit patterns: one rounding, to nearest with ties to even, on every machine alike.

numpy, ml_dtypes and the processors differ in what a cast does with NaN payloads and overflow, round f64 by way of f32,
or flush subnormals when some library has set that mode. Integers do none of it. Blocks stay in the cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from .dtypes import BY_NAME, DType
from .floats import LAYOUTS, Layout, check_pair, is_lossless, patterns_as_f64

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

Overflow = Literal["refuse", "saturate", "inf"]
OVERFLOWS: tuple[str, ...] = get_args(Overflow)
BLOCK = 1 << 16  # elements a block: 256 KiB of float32, so that a call of numpy costs little beside its pass


@dataclass(slots=True)
class Counts:
    """What a cast did beyond rounding: values too large for the type, non-zero values that became zero, subnormals.

    ``greatest`` is the greatest magnitude among the values that overflowed.
    """

    elements: int = 0
    overflow: int = 0
    underflow: int = 0
    subnormal: int = 0
    greatest: float = 0.0

    def add(self, other: Counts) -> None:
        self.elements += other.elements
        self.overflow += other.overflow
        self.underflow += other.underflow
        self.subnormal += other.subnormal
        self.greatest = max(self.greatest, other.greatest)


Kernel = Callable[["Array", "Array", bool, Counts], None]


def cast_block(
    data: memoryview | bytes, out: memoryview, source: DType, target: DType, overflow: str = "refuse"
) -> Counts:
    """Cast the little-endian elements in ``data`` into ``out`` and return what happened.

    ``out`` has room for as many elements of ``target``. A finite value that rounds beyond the greatest finite one, and
    an infinity for which the type has no code, is an overflow: it becomes the greatest finite value ("saturate"),
    infinity or, where there is none, NaN ("inf"). With "refuse" it is counted and saturates; raising is left to the
    caller, who knows the tensor. The result does not depend on how the elements are cut into blocks.
    """
    import numpy as np

    check_pair(source, target)
    x = np.frombuffer(data, dtype=f"<u{source.itemsize}")
    y = np.frombuffer(out, dtype=f"<u{target.itemsize}")
    counts = Counts(elements=x.size)
    if source == target:
        y[:] = x
        return counts
    kernel = _kernel(source.name, target.name)
    saturate = overflow != "inf"
    for start in range(0, x.size, BLOCK):
        kernel(x[start : start + BLOCK], y[start : start + BLOCK], saturate, counts)
    return counts


@cache
def _kernel(source: str, target: str) -> Kernel:
    if (source, target) == ("bf16", "f32"):
        return _shift_up
    if BY_NAME[source].bits <= 16:
        return _Table(source, target)
    if (source, target) == ("f32", "bf16"):
        return _F32ToBF16()
    at, to = LAYOUTS[source], LAYOUTS[target]
    return _f32_to_f64 if to.mantissa > at.mantissa else _Narrow(at, to)


def _shift_up(x: Array, y: Array, saturate: bool, counts: Counts) -> None:
    """bf16 is the upper half of f32."""
    import numpy as np

    np.copyto(y, x)
    np.left_shift(y, np.uint32(16), out=y)


def _f32_to_f64(x: Array, y: Array, saturate: bool, counts: Counts) -> None:
    """Exact. Normal numbers by moving fields; the rest apart, for the hardware would quieten a signalling NaN."""
    import numpy as np

    magnitude = x & np.uint32(0x7FFFFFFF)
    odd = np.flatnonzero(magnitude - np.uint32(0x00800000) >= np.uint32(0x7F000000))  # zero, subnormal, infinity, NaN
    wide = magnitude.astype(np.uint64)
    rest = wide[odd]
    wide <<= np.uint64(29)
    wide += np.uint64((1023 - 127) << 52)
    subnormal = (rest.astype(np.float64) * 2.0**-149).view(np.uint64)
    special = rest << np.uint64(29) | np.uint64(0x7FF << 52)
    wide[odd] = np.where(rest >= np.uint64(0x7F800000), special, subnormal)
    wide |= (x & np.uint32(0x80000000)).astype(np.uint64) << np.uint64(32)
    np.copyto(y, wide)


class _Scratch(threading.local):
    """Arrays of one block, a set for each thread: allocating them anew would cost as much as the cast."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, int], Array] = {}

    def get(self, dtype: str, slot: int, size: int) -> Array:
        import numpy as np

        array = self._arrays.get((dtype, slot))
        if array is None:
            array = self._arrays[dtype, slot] = np.empty(BLOCK, dtype)
        return array[:size]


_scratch = _Scratch()


class _Narrow:
    """From f32 or f64 to a type of fewer mantissa bits.

    A magnitude is an integer that grows with the value: exponent above mantissa. Moving the exponent's bias and
    rounding off the lowest bits gives the target's magnitude; a carry out of the mantissa is the next exponent, as it
    should be. What is not normal in the target (zeros, subnormals, overflows, infinities, NaNs) is rare and done apart.
    """

    def __init__(self, at: Layout, to: Layout) -> None:
        import numpy as np

        self.at, self.to = at, to
        self.dtype = f"<u{at.bits // 8}"
        self.word: Any = np.uint32 if at.bits == 32 else np.uint64
        self.short: Any = {8: np.uint8, 16: np.uint16, 32: np.uint32}[to.bits]
        self.drop = at.mantissa - to.mantissa
        rebias = (at.bias - to.bias) << at.mantissa
        self.normal = rebias + (1 << at.mantissa)  # the least magnitude that is normal in the target before rounding
        # Constants are made once: a numpy scalar costs as much as a pass over a thousand elements.
        one = 1 << to.mantissa  # the target's least normal magnitude
        self._mask = self.word((1 << (at.bits - 1)) - 1)
        self._drop = self.word(self.drop)
        self._bit = self.word(1)
        # Half an ulp less one, the new bias, and ``one`` taken off so that what is not normal wraps around to the top.
        self._add = self.word(((1 << (self.drop - 1)) - 1 - rebias - (one << self.drop)) % (1 << at.bits))
        self._finite = to.greatest - one
        self._sign: Any = self.short(1 << (to.bits - 1))
        self._one: Any = self.short(one)
        self._zero = self.word((1 << at.bits) - one)

    def __call__(self, x: Array, y: Array, saturate: bool, counts: Counts) -> None:
        import numpy as np

        magnitude, work = _scratch.get(self.dtype, 0, x.size), _scratch.get(self.dtype, 1, x.size)
        np.bitwise_and(x, self._mask, out=magnitude)
        # To nearest, ties to even: one more is added when the last bit kept is odd.
        np.right_shift(magnitude, self._drop, out=work)
        np.bitwise_and(work, self._bit, out=work)
        np.add(work, magnitude, out=work)
        np.add(work, self._add, out=work)
        np.right_shift(work, self._drop, out=work)
        odd = None
        if int(work.max()) > self._finite:
            odd = np.flatnonzero(work > self.word(self._finite))
            rare = magnitude[odd]
            found = np.flatnonzero(rare)
            if found.size < odd.size:  # zeros may be many, and need nothing
                work[odd] = self._zero
                odd, rare = odd[found], rare[found]
            result, nans = self._rare(rare, saturate, counts)
            work[odd] = result - self.word(1 << self.to.mantissa)
        # The sign is the top bit of the source's top bytes.
        ratio = self.at.bits // self.to.bits
        sign = _scratch.get(y.dtype.str, 2, x.size)
        np.bitwise_and(x.view(y.dtype)[ratio - 1 :: ratio], self._sign, out=sign)
        np.bitwise_or(sign, self._one, out=sign)
        np.copyto(y, work, casting="unsafe")
        np.add(y, sign, out=y)
        if self.to.specials == "fnuz":
            y[y == self._sign] = 0  # there is no -0
            if odd is not None:
                y[odd[nans]] = self._sign  # the one NaN

    def _rare(self, magnitude: Array, saturate: bool, counts: Counts) -> tuple[Array, Array]:
        """The target's magnitudes for non-zero ones that are not normal there, and which of them are NaN."""
        import numpy as np

        word, at, to = self.word, self.at, self.to
        result = self._subnormal(magnitude)
        infinite = at.greatest + 1
        if magnitude.size == 0 or int(magnitude.max()) < self.normal:
            self._count(result, counts)
            return result, np.zeros(result.size, bool)
        small = magnitude < word(self.normal)
        self._count(result[small], counts)
        nans = magnitude > word(infinite)
        over = ~small & ~nans
        if to.infinity is not None:
            over &= magnitude != word(infinite)
        instead = to.greatest if saturate else to.infinity if to.infinity is not None else None
        if to.infinity is not None:
            result[magnitude == word(infinite)] = to.infinity
        if instead is not None:
            result[over] = instead
        if over.any():
            counts.overflow += int(np.count_nonzero(over))
            top = np.array([magnitude[over].max()]).view(f"<f{at.bits // 8}")[0]
            counts.greatest = max(counts.greatest, float(top))
            if instead is None:
                nans |= over
        if to.specials == "ieee":
            # The payload's highest bits; when only lower ones were set, the quiet bit, or it would become infinity.
            payload = (magnitude & word((1 << at.mantissa) - 1)) >> word(self.drop)
            payload[payload == 0] = 1 << (to.mantissa - 1)
            result[nans] = payload[nans] | word(to.greatest + 1)
        else:
            result[nans] = to.greatest + 1 if to.specials == "fn" else 0
        return result, nans

    def _count(self, small: Array, counts: Counts) -> None:
        """Count among the results of non-zero magnitudes below ``normal``; some of them have rounded up to it."""
        import numpy as np

        subnormal = int(np.count_nonzero(small < self.word(1 << self.to.mantissa)))
        zero = small.size - int(np.count_nonzero(small))
        counts.underflow += zero
        counts.subnormal += subnormal - zero

    def _subnormal(self, magnitude: Array) -> Array:
        """Magnitudes below ``normal`` in units of the target's least subnormal, rounded to even; others: anything."""
        import numpy as np

        word, at, to = self.word, self.at, self.to
        if at.bias == to.bias:  # the source's own subnormals: its bits are those of the target already
            last = magnitude >> self._drop & self._bit
            return np.asarray((magnitude + word((1 << (self.drop - 1)) - 1) + last) >> self._drop)
        # Exact: a power of two times what stays far below the source's own precision. What a processor might take for
        # zero here (the source's subnormals) rounds to zero anyway.
        least = np.minimum(magnitude, word(self.normal)).view(f"<f{at.bits // 8}")
        return np.asarray(np.rint(least * least.dtype.type(2.0**-to.least_exponent)).astype(word))


class _F32ToBF16:
    """The same with fewer passes where a whole block is normal: bf16 has the exponent of f32, so the sign may stay."""

    RARE = (0x7F80 << 1) - (0x0080 << 1)

    def __init__(self) -> None:
        self._general = _Narrow(LAYOUTS["f32"], LAYOUTS["bf16"])

    def __call__(self, x: Array, y: Array, saturate: bool, counts: Counts) -> None:
        import numpy as np

        work = _scratch.get("<u4", 0, x.size)
        np.right_shift(x, np.uint32(16), out=work)
        np.bitwise_and(work, np.uint32(1), out=work)  # one more when the last bit kept is odd: ties to even
        np.add(work, x, out=work)
        np.add(work, np.uint32(0x7FFF), out=work)
        np.right_shift(work, np.uint32(16), out=work)
        np.copyto(y, work, casting="unsafe")
        # Twice the magnitude, less twice the least normal one: what is not normal, or overflowed, stands at the top.
        # A NaN whose payload carried into the sign is a zero here, and stands there too.
        magnitude = _scratch.get("<u2", 4, x.size)
        np.add(y, y, out=magnitude)
        np.subtract(magnitude, np.uint16(0x0100), out=magnitude)
        if x.size and int(magnitude.max()) >= self.RARE:
            rare = x[np.flatnonzero(magnitude >= np.uint16(self.RARE))]
            if (rare << np.uint32(1)).any():  # zeros may be many, and need nothing
                self._general(x, y, saturate, counts)


class _Table:
    """From a type of at most 16 bits: each result is computed once, by way of f64, which holds all of them exactly."""

    OVERFLOW, UNDERFLOW, SUBNORMAL = 1, 2, 4

    def __init__(self, source: str, target: str) -> None:
        import numpy as np

        wide = patterns_as_f64(source)
        to = LAYOUTS[target]
        self.results: dict[bool, Array] = {}
        for saturate in (True, False):
            out = np.empty(wide.size, f"<u{to.bits // 8}")
            if target == "f64":
                out[:] = wide
            else:
                narrow = _Narrow(LAYOUTS["f64"], to)
                for start in range(0, wide.size, BLOCK):
                    narrow(wide[start : start + BLOCK], out[start : start + BLOCK], saturate, Counts())
            self.results[saturate] = out
        self.flags: Array | None = None
        self.values = np.abs(wide.view(np.float64))
        if not is_lossless(BY_NAME[source], BY_NAME[target]):
            self.flags = self._flags(to, source)

    def _flags(self, to: Layout, source: str) -> Array:
        import numpy as np

        values = self.values
        magnitude = self.results[True] & ((1 << (to.bits - 1)) - 1)
        finite = to.value(to.greatest)
        # What saturates is what "inf" turns into something else, or an infinity where the type has none.
        over = (self.results[True] != self.results[False]) & ~np.isnan(values)
        if to.infinity is None:
            over |= np.isinf(values)
        flags = np.where(over & (values > finite), self.OVERFLOW, 0)
        flags |= np.where((magnitude == 0) & (values > 0), self.UNDERFLOW, 0)
        flags |= np.where((magnitude > 0) & (magnitude < 1 << to.mantissa), self.SUBNORMAL, 0)
        return flags.astype(np.uint8)

    def __call__(self, x: Array, y: Array, saturate: bool, counts: Counts) -> None:
        import numpy as np

        np.take(self.results[saturate], x, out=y, mode="clip")  # "clip" needs no second pass to check the indices
        if self.flags is None:
            return
        flags = np.take(self.flags, x, out=_scratch.get("u1", 3, x.size), mode="clip")
        if not flags.any():
            return
        over = flags == self.OVERFLOW
        if over.any():
            counts.overflow += int(np.count_nonzero(over))
            counts.greatest = max(counts.greatest, float(self.values[x[over]].max()))
        counts.underflow += int(np.count_nonzero(flags == self.UNDERFLOW))
        counts.subnormal += int(np.count_nonzero(flags == self.SUBNORMAL))
