"""The judge of casts, against exact rational arithmetic: every pattern of every narrow type, and what lies between.

The reference knows the types from their definitions only: it lists the finite values and asks which are nearest.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.dtypes import BY_NAME
from artifactkit.verify import bounds
from artifactkit.verify.bounds import GRIDS, first_outside, outside


@dataclass(frozen=True)
class Type:
    """Exponent bits, mantissa bits, bias; whether there are infinities; whether only -0 is NaN."""

    exponent: int
    mantissa: int
    bias: int
    kind: str  # ieee, fn, fnuz

    def value(self, pattern: int) -> Fraction | None:
        """None for NaN and infinity."""
        sign = -1 if pattern >> (self.exponent + self.mantissa) else 1
        e = pattern >> self.mantissa & ((1 << self.exponent) - 1)
        m = pattern & ((1 << self.mantissa) - 1)
        full = (1 << self.exponent) - 1
        if self.kind == "ieee" and e == full:
            return None
        if self.kind == "fn" and e == full and m == (1 << self.mantissa) - 1:
            return None
        if self.kind == "fnuz" and sign < 0 and e == m == 0:
            return None
        scale = Fraction(2) ** (max(e, 1) - self.bias - self.mantissa)
        return sign * (m + ((1 << self.mantissa) if e else 0)) * scale


TYPES = {
    "f8_e4m3": Type(4, 3, 7, "fn"),
    "f8_e5m2": Type(5, 2, 15, "ieee"),
    "f8_e4m3fnuz": Type(4, 3, 8, "fnuz"),
    "f8_e5m2fnuz": Type(5, 2, 16, "fnuz"),
    "f16": Type(5, 10, 15, "ieee"),
    "bf16": Type(8, 7, 127, "ieee"),
}
EIGHT = [name for name in TYPES if name.startswith("f8")]
NUMPY = {
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
    "f8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}


def positive(name: str) -> list[tuple[Fraction, int]]:
    """The finite values from zero on with their patterns, ascending."""
    t = TYPES[name]
    found = [(t.value(p), p) for p in range(1 << (t.exponent + t.mantissa))]
    return [(v, p) for v, p in found if v is not None]


def patterns(name: str, values: list[int]) -> np.ndarray:
    return np.array(values, dtype=f"u{BY_NAME[name].itemsize}").view(NUMPY[name])


def wrong(x: list[float], source: str, y: list[int], target: str) -> set[int]:
    """Indices that the judge complains of, whatever the block size."""
    xs = np.array(x, dtype=NUMPY[source])
    ys = patterns(target, y)
    found: set[int] = set()
    for start in range(0, len(x), bounds.BLOCK):
        part = slice(start, start + bounds.BLOCK)
        found |= {start + int(i) for i in outside(xs[part], BY_NAME[source], ys[part], BY_NAME[target])}
    assert first_outside(xs, BY_NAME[source], ys, BY_NAME[target]) == min(found, default=-1)
    return found


def between(low: Fraction, high: Fraction, source: str) -> list[float]:
    """``low``, the middle and both sides of it, and what comes just before ``high``: exact in the source type."""
    kind = NUMPY[source]
    middle = kind(float((low + high) / 2))
    assert Fraction(float(middle)) == (low + high) / 2
    near = [np.nextafter(middle, kind(-np.inf)), middle, np.nextafter(middle, kind(np.inf))]
    return [float(v) for v in (kind(float(low)), np.nextafter(kind(float(low)), kind(np.inf)), *near)] + [
        float(np.nextafter(kind(float(high)), kind(-np.inf)))
    ]


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", EIGHT)
def test_every_value_with_every_pattern_of_eight_bits(target: str, source: str) -> None:
    grid = positive(target)
    values = [v for v, _ in grid]
    xs: list[float] = []
    for low, high in pairwise(values):
        xs += between(low, high, source)
    xs += [-x for x in xs]
    found = np.ones(256 * len(xs), bool)
    found[list(wrong(list(np.repeat(xs, 256)), source, list(range(256)) * len(xs), target))] = False
    for x, accepted in zip(xs, found.reshape(len(xs), 256), strict=True):
        assert np.flatnonzero(accepted).tolist() == nearest(x, grid, values, target), x


def nearest(x: float, grid: list[tuple[Fraction, int]], values: list[Fraction], target: str) -> list[int]:
    """The patterns that are nearest to a finite ``x`` within the range: one, or two at the middle."""
    magnitude = abs(Fraction(x))
    at = bisect_left(values, magnitude)
    near = grid[max(at - 1, 0) : at + 1]
    least = min(abs(magnitude - v) for v, _ in near)
    sign = 0x80 if math.copysign(1, x) < 0 else 0
    chosen = [p for v, p in near if abs(magnitude - v) == least]
    return sorted(p if p == 0 and target.endswith("fnuz") else p | sign for p in chosen)


@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_every_interval_of_sixteen_bits_with_its_four_nearest_patterns(target: str) -> None:
    """Right are the nearest value, and both at the middle; one further on either side is always found."""
    grid = positive(target)
    xs: list[float] = []
    ys: list[int] = []
    expected: list[bool] = []
    top = len(grid) - 2
    # Both ends of the range, both ends of every binade, where all carries happen, and a sample between.
    fraction = (1 << TYPES[target].mantissa) - 1
    chosen = [i for i in range(top) if i < 300 or i > top - 300 or i & fraction in (0, 1, fraction) or i % 31 == 0]
    for i in chosen:
        (low, p), (high, _) = grid[i], grid[i + 1]
        for x in between(low, high, "f32"):
            exact = Fraction(x)
            first, second = exact - low <= high - exact, high - exact <= exact - low
            for step, good in ((-1, False), (0, first), (1, second), (2, False)):
                if p + step >= 0:
                    xs.append(x)
                    ys.append(p + step)
                    expected.append(good)
    for sign in (1, -1):
        high_bit = 0 if sign > 0 else 0x8000
        complaints = wrong([sign * x for x in xs], "f32", [p | high_bit for p in ys], target)
        assert complaints == {i for i, good in enumerate(expected) if not good}
        unlike = wrong([sign * x for x in xs], "f32", [p | (0x8000 ^ high_bit) for p in ys], target)
        assert unlike == set(range(len(xs)))


@pytest.mark.parametrize("source", ["f16", "bf16", *EIGHT])
@pytest.mark.parametrize("target", ["f32", "f64"])
def test_widening_is_exact(source: str, target: str) -> None:
    bits = BY_NAME[source].bits
    xs = patterns(source, list(range(1 << bits)))
    with np.errstate(invalid="ignore"):
        ys = xs.astype(NUMPY[target])
    assert first_outside(xs, BY_NAME[source], ys, BY_NAME[target]) == -1
    finite = np.isfinite(ys)
    for toward in (np.inf, -np.inf):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            off = np.where(finite, np.nextafter(ys, NUMPY[target](toward)), ys)
        for start in range(0, len(xs), bounds.BLOCK):
            part = slice(start, start + bounds.BLOCK)
            found = outside(xs[part], BY_NAME[source], off[part], BY_NAME[target])
            assert found.tolist() == np.flatnonzero(finite[part]).tolist()


def test_a_source_of_powers_of_two() -> None:
    xs = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    ys = xs.astype(np.float32)
    assert first_outside(xs, BY_NAME["f8_e8m0"], ys, BY_NAME["f32"]) == -1
    ys[100] *= 2
    assert first_outside(xs, BY_NAME["f8_e8m0"], ys, BY_NAME["f32"]) == 100


INF, NAN = math.inf, math.nan
NEGATIVE_NAN = struct.unpack("<f", b"\x00\x00\xc0\xff")[0]
# source value, target type, pattern, right?
SPECIAL = [
    (0.0, "f16", 0x0000, True),
    (0.0, "f16", 0x8000, False),
    (-0.0, "f16", 0x8000, True),
    (-0.0, "f16", 0x0000, False),
    (-1e-30, "f16", 0x8000, True),
    (-1e-30, "f16", 0x0000, False),
    (-0.0, "f8_e4m3", 0x80, True),
    (-0.0, "f8_e4m3", 0x00, False),
    (-0.0, "f8_e4m3fnuz", 0x00, True),
    (-0.0, "f8_e4m3fnuz", 0x80, False),  # that is the NaN
    (-1e-30, "f8_e5m2fnuz", 0x00, True),
    (INF, "f16", 0x7C00, True),
    (INF, "f16", 0xFC00, False),
    (INF, "f16", 0x7BFF, False),  # f16 has infinity
    (INF, "f16", 0x7E00, False),
    (-INF, "bf16", 0xFF80, True),
    (-INF, "bf16", 0x7F80, False),
    (1.0, "f16", 0x7C00, False),
    (1.0, "f16", 0x7E00, False),
    (65504.0, "f16", 0x7C00, False),
    (65519.0, "f16", 0x7BFF, True),
    (65519.0, "f16", 0x7C00, False),
    (65520.0, "f16", 0x7C00, True),
    (65520.0, "f16", 0x7BFF, True),
    (70000.0, "f16", 0x7C00, True),
    (70000.0, "f16", 0x7BFF, True),  # saturated
    (70000.0, "f16", 0x7BFE, False),
    (70000.0, "f16", 0xFBFF, False),
    (70000.0, "f16", 0x7C01, False),  # a NaN where there was a number
    (70000.0, "f16", 0x7C45, False),  # a NaN whose fraction is that of the number
    (-70000.0, "f16", 0xFC00, True),
    (INF, "f8_e4m3", 0x7F, True),  # no infinity: NaN, or the greatest
    (INF, "f8_e4m3", 0x7E, True),
    (INF, "f8_e4m3", 0x7D, False),
    (-INF, "f8_e4m3", 0x7E, False),
    (463.0, "f8_e4m3", 0x7E, True),
    (463.0, "f8_e4m3", 0x7F, False),
    (500.0, "f8_e4m3", 0x7F, True),
    (500.0, "f8_e4m3", 0x7E, True),
    (500.0, "f8_e4m3fnuz", 0x80, True),
    (500.0, "f8_e4m3fnuz", 0x7F, True),
    (NAN, "f16", 0x7E00, True),
    (NAN, "f16", 0x7C01, True),
    (NAN, "f16", 0xFE00, False),
    (NEGATIVE_NAN, "f16", 0xFE00, True),
    (NEGATIVE_NAN, "f16", 0x7E00, False),
    (NAN, "f16", 0x7C00, False),
    (NAN, "f16", 0x0000, False),
    (NAN, "f8_e4m3", 0x7F, True),
    (NEGATIVE_NAN, "f8_e4m3", 0xFF, True),
    (NEGATIVE_NAN, "f8_e4m3", 0x7F, False),
    (NEGATIVE_NAN, "f8_e4m3fnuz", 0x80, True),  # one NaN, without a sign
    (NAN, "bf16", 0x7FC0, True),
    (NAN, "bf16", 0x7F80, False),
]  # fmt: skip


@pytest.mark.parametrize(("x", "target", "pattern", "good"), SPECIAL)
def test_the_ends_of_the_range(x: float, target: str, pattern: int, good: bool) -> None:
    xs = np.array([1.0, x, 1.0], np.float32)
    ys = np.array([1.0] * 3, np.float32).astype(NUMPY[target])
    ys.view(f"u{ys.itemsize}")[1] = pattern
    assert first_outside(xs, BY_NAME["f32"], ys, BY_NAME[target]) == (-1 if good else 1)


FLOATS = st.floats(width=64, allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, min_size=1, max_size=50), st.sampled_from([*TYPES, "f32"]))
def test_correct_casts_pass_from_f64(values: list[float], target: str) -> None:
    """numpy's and ml_dtypes' casts from f64 round once where there is no overflow."""
    xs = np.array([v for v in values if abs(v) <= GRIDS[target].greatest] or [0.5])
    if target not in ("f32", "f16"):
        xs = xs.astype(np.float32)  # ml_dtypes goes through float32
    ys = xs.astype(NUMPY[target])
    assert (
        first_outside(xs, BY_NAME[xs.dtype.str[1:].replace("f4", "f32").replace("f8", "f64")], ys, BY_NAME[target])
        == -1
    )


def test_the_place_of_a_wrong_value_does_not_depend_on_blocks() -> None:
    size = 2 * bounds.BLOCK + 7
    xs = np.linspace(-3, 3, size, dtype=np.float32)
    for at in (0, bounds.BLOCK - 1, bounds.BLOCK, size - 1):
        ys = xs.astype(np.float16)
        ys.view(np.uint16)[at] += 2
        assert first_outside(xs, BY_NAME["f32"], ys, BY_NAME["f16"]) == at
    ys = xs.astype(np.float16)
    assert first_outside(xs, BY_NAME["f32"], ys, BY_NAME["f16"]) == -1


def test_nothing_is_not_wrong() -> None:
    empty = np.empty(0, np.float32)
    assert first_outside(empty, BY_NAME["f32"], empty.astype(np.float16), BY_NAME["f16"]) == -1
