"""Casts against rational arithmetic, ml_dtypes and torch: every pattern of 8 and 16 bits, and many of the rest."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as s

from artifactkit.casting import BLOCK, Counts, cast_block
from artifactkit.dtypes import BY_NAME
from artifactkit.errors import UsageError
from artifactkit.floats import LAYOUTS, SOURCES, Layout, can_cast, is_lossless

TARGETS = sorted(LAYOUTS)
SMALL = sorted(n for n in SOURCES if BY_NAME[n].bits <= 16)
OVERFLOW = ("refuse", "saturate", "inf")
Array = np.ndarray[Any, np.dtype[Any]]


def library(name: str) -> Any:
    dtype = BY_NAME[name]
    return np.dtype(getattr(ml_dtypes, dtype.numpy or "") if dtype.ml else dtype.numpy)


def cast(patterns: Array, source: str, target: str, overflow: str = "inf") -> tuple[Array, Counts]:
    out = np.zeros(patterns.size, f"<u{BY_NAME[target].itemsize}")
    raw = patterns.astype(f"<u{BY_NAME[source].itemsize}").tobytes()
    counts = cast_block(raw, memoryview(out).cast("B"), BY_NAME[source], BY_NAME[target], overflow)
    return out, counts


def every(name: str) -> Array:
    return np.arange(1 << BY_NAME[name].bits, dtype=np.uint64)


def exact(name: str, pattern: int) -> Fraction | float:
    """The value of a pattern by the definition of the type; infinities and NaN as floats; -0 as a float too."""
    if name == "f8_e8m0":
        return math.nan if pattern == 255 else Fraction(2) ** (pattern - 127)
    at = LAYOUTS[name]
    sign = -1 if pattern >> (at.bits - 1) else 1
    exponent = pattern >> at.mantissa & ((1 << at.exponent) - 1)
    fraction = pattern & ((1 << at.mantissa) - 1)
    if at.specials == "fnuz" and pattern == 1 << (at.bits - 1):
        return math.nan
    if exponent == (1 << at.exponent) - 1:
        if at.specials == "ieee":
            return math.nan if fraction else sign * math.inf
        if at.specials == "fn" and fraction == (1 << at.mantissa) - 1:
            return math.nan
    if exponent == 0:
        value = Fraction(fraction) * Fraction(2) ** (1 - at.bias - at.mantissa)
    else:
        value = Fraction((1 << at.mantissa) + fraction) * Fraction(2) ** (exponent - at.bias - at.mantissa)
    return sign * value if value else math.copysign(0.0, sign)


def nearest(value: Fraction | float, to: Layout, overflow: str) -> int | None:
    """The pattern that ``value`` rounds to, by rational arithmetic: to nearest, ties to even. None for NaN."""
    if isinstance(value, float) and math.isnan(value):
        return None
    negative = math.copysign(1, value) < 0 if isinstance(value, float) else value < 0
    sign = int(negative) << (to.bits - 1)
    no_code = to.greatest if overflow != "inf" else None
    if isinstance(value, float) and math.isinf(value):
        if to.infinity is not None:
            return sign | to.infinity
        return None if no_code is None else sign | no_code
    magnitude = abs(Fraction(value))
    if magnitude == 0:
        return 0 if to.specials == "fnuz" else sign
    # The exponent of the value, but not below that of the least normal number.
    e = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length(), 1 - to.bias)
    while magnitude >= Fraction(2) ** (e + 1):
        e += 1
    while e > 1 - to.bias and magnitude < Fraction(2) ** e:
        e -= 1
    steps = round(magnitude / Fraction(2) ** (e - to.mantissa))  # Python rounds a Fraction's half to even
    pattern = steps + ((e + to.bias - 1) << to.mantissa)
    if pattern > to.greatest:
        if overflow != "inf":
            pattern = to.greatest
        elif to.infinity is None:
            return None
        else:
            pattern = to.infinity
    return 0 if to.specials == "fnuz" and pattern == 0 else sign | pattern


def is_nan(name: str, pattern: int) -> bool:
    return isinstance(value := exact(name, pattern), float) and math.isnan(value)


def check(source: str, target: str, patterns: Array, overflow: str) -> None:
    """Every result against ``nearest``, and the counts against what it says."""
    out, counts = cast(patterns, source, target, overflow)
    to = LAYOUTS[target]
    over = under = subnormal = 0
    greatest: Fraction | float = 0.0
    for x, y in zip(map(int, patterns), map(int, out), strict=True):
        value = exact(source, x)
        want = nearest(value, to, overflow)
        if want is None:
            assert is_nan(target, y), (source, target, hex(x), hex(y))
        else:
            assert y == want, (source, target, hex(x), hex(y), hex(want))
        if isinstance(value, float) and math.isnan(value):
            continue
        infinite = isinstance(value, float) and math.isinf(value)
        top = Fraction(to.value(to.greatest)) + Fraction(2) ** (math.frexp(to.value(to.greatest))[1] - 2 - to.mantissa)
        beyond = (
            to.infinity is None
            if infinite
            else abs(Fraction(value)) > top or (abs(Fraction(value)) == top and to.greatest & 1 == 1)
        )
        if beyond:
            over += 1
            greatest = max(greatest, abs(value))
        elif not infinite and value != 0:
            magnitude = y & ((1 << (to.bits - 1)) - 1)
            under += magnitude == 0
            subnormal += 0 < magnitude < 1 << to.mantissa
    assert counts.elements == patterns.size
    if not is_lossless(BY_NAME[source], BY_NAME[target]):
        assert (counts.overflow, counts.underflow, counts.subnormal) == (over, under, subnormal)
        assert counts.greatest == float(greatest)
    else:
        assert not counts.overflow and not counts.underflow


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", [n for n in SMALL if BY_NAME[n].bits == 8])
def test_every_pattern_of_8_bits(source: str, target: str) -> None:
    for overflow in OVERFLOW[1:]:
        check(source, target, every(source), overflow)


def interesting(source: str, target: str) -> Array:
    """Patterns of the source around every value of the target, around ties, and at the ends of its own ranges."""
    at, to = LAYOUTS[source], LAYOUTS[target]
    rng = np.random.default_rng(7)
    found: set[int] = {
        0,
        1,
        2,
        at.greatest,
        at.greatest + 1,
        at.greatest + 2,
        (1 << (at.bits - 1)) - 1,
        1 << at.mantissa,
    }
    picks = (
        range(0, to.greatest + 1, 1 if at.bits == 32 else 5)
        if to.bits == 8
        else rng.integers(0, to.greatest + 1, 40).tolist()
    )
    edges = [0, 1, 2, (1 << to.mantissa) - 1, 1 << to.mantissa, to.greatest - 1, to.greatest]
    for pattern in {*picks, *edges}:
        low, high = Fraction(to.value(pattern)), Fraction(to.value(min(pattern + 1, to.greatest)))
        middle = (low + high) / 2 if high > low else low + (low - Fraction(to.value(pattern - 1))) / 2
        for value in (low, middle):
            near = nearest(value, at, "saturate")
            assert near is not None
            found.update(p for p in (near - 1, near, near + 1) if 0 <= p < 1 << (at.bits - 1))
    found.update(rng.integers(0, 1 << (at.bits - 1), 60, dtype=np.uint64).tolist())
    both = [p | sign << (at.bits - 1) for p in found for sign in (0, 1)]
    return np.array(sorted(both), dtype=np.uint64)


WIDE = [(a, b) for a in ("bf16", "f16", "f32", "f64") for b in TARGETS if a != b]


@pytest.mark.parametrize(("source", "target"), WIDE)
def test_around_every_edge(source: str, target: str) -> None:
    patterns = interesting(source, target)
    check(source, target, patterns, "inf")
    check(source, target, patterns[:: 1 if LAYOUTS[target].bits == 8 else 3], "saturate")


@pytest.mark.parametrize(("source", "target"), [(a, b) for a in ("bf16", "f16") for b in TARGETS if a != b])
def test_every_pattern_of_16_bits_as_ml_dtypes(source: str, target: str) -> None:
    """By way of f32, which holds them: a library's cast from f32 is the oracle here, f64 its own."""
    patterns = every(source).astype(np.uint16)
    with np.errstate(all="ignore"):
        values = patterns.view(library(source)).astype(np.float32)
        want = values.astype(library(target))
        nan = np.isnan(values)
    out, _ = cast(patterns, source, target)
    same = out == want.view(out.dtype)
    assert same[~nan].all()
    with np.errstate(invalid="ignore"):
        assert np.isnan(out.view(library(target))[nan].astype(np.float64)).all()


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "f32"])
def test_random_f32_as_the_libraries(target: str) -> None:
    import torch

    rng = np.random.default_rng(11)
    bits = np.concatenate(
        [
            rng.integers(0, 2**32, 200_000, dtype=np.uint32),
            rng.normal(0, 0.02, 100_000).astype(np.float32).view(np.uint32),
        ]
    )
    values = bits.view(np.float32)
    out, _ = cast(bits, "f32", target)
    nan = np.isnan(values)
    with np.errstate(all="ignore"):
        want = values.astype(library(target)).view(out.dtype)
    assert (out == want)[~nan].all()
    theirs = torch.from_numpy(values.copy()).to(getattr(torch, BY_NAME[target].torch or ""))
    raw = theirs.view(torch.uint8).numpy().view(out.dtype)
    finite = ~nan
    if LAYOUTS[target].specials != "ieee":  # torch saturates some of these, in some versions
        finite &= np.abs(values) <= LAYOUTS[target].value(LAYOUTS[target].greatest)
    assert (out == raw)[finite].all()


@given(s.floats(allow_nan=False), s.sampled_from([t for t in TARGETS if t != "f64"]), s.sampled_from(OVERFLOW))
@example(2.0**-24 + 2.0**-60, "bf16", "inf")
@example(1 + 2.0**-8 + 2.0**-40, "bf16", "inf")  # by way of f32 this is a tie, and rounds down
@example(1 + 3 * 2.0**-8 - 2.0**-40, "bf16", "inf")  # and this up
@example(65519.999999999, "f16", "inf")
@example(65520.0, "f16", "inf")
@example(464.0, "f8_e4m3", "inf")
@example(464.0000001, "f8_e4m3", "inf")
@example(5e-324, "f32", "inf")
@example(2.0**-149 / 2, "f32", "inf")
@example(2.0**-149 / 2 * (1 + 2.0**-50), "f32", "inf")
def test_f64_is_rounded_once(value: float, target: str, overflow: str) -> None:
    patterns = np.array([value, -value]).view(np.uint64)
    check("f64", target, patterns, overflow)


@given(s.lists(s.integers(0, 2**32 - 1), min_size=1, max_size=40), s.sampled_from([t for t in TARGETS if t != "f32"]))
def test_any_f32(patterns: list[int], target: str) -> None:
    check("f32", target, np.array(patterns, np.uint64), "inf")


def nan_patterns(name: str) -> Array:
    at = LAYOUTS[name]
    rng = np.random.default_rng(3)
    payloads = np.unique(
        np.concatenate([[1, 2, 1 << (at.mantissa - 1)], rng.integers(1, 1 << at.mantissa, 50)]).astype(np.uint64)
    )
    positive = payloads | np.uint64(at.greatest + 1)
    return np.concatenate([positive, positive | np.uint64(1 << (at.bits - 1))])


IEEE = [n for n in TARGETS if LAYOUTS[n].specials == "ieee"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", IEEE)
def test_nan_payloads(source: str, target: str) -> None:
    """NaN stays NaN with its sign and the payload's top bits, quiet or signalling as it was; never infinity."""
    at, to = LAYOUTS[source], LAYOUTS[target]
    patterns = nan_patterns(source)
    for overflow in OVERFLOW:
        out, counts = cast(patterns, source, target, overflow)
        assert not counts.overflow
        for x, y in zip(map(int, patterns), map(int, out), strict=True):
            sign, payload = x >> (at.bits - 1), x & ((1 << at.mantissa) - 1)
            if to.specials == "fnuz":
                assert y == 1 << (to.bits - 1)
                continue
            assert y >> (to.bits - 1) == sign
            got = y & ((1 << (to.bits - 1)) - 1)
            if to.specials == "fn":
                assert got == 0x7F
                continue
            shift = to.mantissa - at.mantissa
            want = payload << shift if shift >= 0 else payload >> -shift
            assert got == (to.greatest + 1) | (want or 1 << (to.mantissa - 1))


def test_nan_of_types_without_payload() -> None:
    for source, pattern in (("f8_e4m3", 0x7F), ("f8_e4m3fnuz", 0x80), ("f8_e5m2fnuz", 0x80), ("f8_e8m0", 0xFF)):
        for target, quiet in (("f32", 0x7FC00000), ("f16", 0x7E00), ("bf16", 0x7FC0), ("f64", 0x7FF8 << 48)):
            assert int(cast(np.array([pattern]), source, target)[0][0]) == quiet
    assert int(cast(np.array([0xFF]), "f8_e4m3", "f32")[0][0]) == 0xFFC00000


@pytest.mark.parametrize(("source", "target"), [(a, b) for a in SMALL for b in TARGETS if a != b])
def test_lossless_means_there_and_back(source: str, target: str) -> None:
    """The table of losses is what really happens to every pattern."""
    patterns = every(source)
    out, _ = cast(patterns, source, target)
    with np.errstate(all="ignore"):
        values = patterns.astype(f"u{BY_NAME[source].itemsize}").view(library(source)).astype(np.float64)
        there = out.view(library(target)).astype(np.float64)
    kept = bool(((values == there) | np.isnan(values)).all())
    assert kept == is_lossless(BY_NAME[source], BY_NAME[target])


def test_minus_zero() -> None:
    for source in [n for n in TARGETS if LAYOUTS[n].specials != "fnuz"]:
        for target in TARGETS:
            if source == target:
                continue
            minus = 1 << (BY_NAME[source].bits - 1)
            want = 0 if LAYOUTS[target].specials == "fnuz" else 1 << (BY_NAME[target].bits - 1)
            assert int(cast(np.array([minus], np.uint64), source, target)[0][0]) == want


@pytest.mark.parametrize("target", ["f16", "bf16", "f8_e4m3", "f64"])
def test_blocks_do_not_matter(target: str) -> None:
    """One call, or many of any size and alignment: the same bytes and the same counts."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, BLOCK * 2 + 77, dtype=np.uint32)
    whole, counts = cast(bits, "f32", target)
    size = BY_NAME[target].itemsize
    for offset in (0, 1, 3):
        raw = bytearray(offset) + bits.tobytes()
        out = bytearray(whole.nbytes + 1)
        total, at = Counts(), 0
        for n in [1, 2, 1000, BLOCK, BLOCK + 1, bits.size]:
            n = min(n, bits.size - at)
            piece = memoryview(raw)[offset + at * 4 : offset + (at + n) * 4]
            total.add(
                cast_block(
                    piece, memoryview(out)[1 + at * size : 1 + (at + n) * size], BY_NAME["f32"], BY_NAME[target], "inf"
                )
            )
            at += n
        assert bytes(out[1:]) == whole.tobytes()
        assert total == counts


def test_nothing_at_all() -> None:
    for source, target in (("f32", "f16"), ("f64", "bf16"), ("bf16", "f32"), ("f16", "f8_e4m3"), ("f32", "f64")):
        assert cast(np.array([], np.uint64), source, target)[1] == Counts()


def test_threads_do_not_share_scratch() -> None:
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(9)
    inputs = [rng.integers(0, 2**32, BLOCK * 3, dtype=np.uint32) for _ in range(6)]
    want = [cast(x, "f32", "f16")[0].tobytes() for x in inputs]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            assert list(pool.map(lambda x: cast(x, "f32", "f16")[0].tobytes(), inputs)) == want


def test_what_is_not_cast() -> None:
    assert can_cast(BY_NAME["f8_e8m0"], BY_NAME["f32"]) and not can_cast(BY_NAME["f32"], BY_NAME["f8_e8m0"])
    for source, target in (
        ("f32", "f8_e8m0"),
        ("f32", "i8"),
        ("i8", "f32"),
        ("f4", "f32"),
        ("c64", "f32"),
        ("f32", "f4"),
    ):
        with pytest.raises(UsageError):
            cast_block(bytes(8), memoryview(bytearray(8)), BY_NAME[source], BY_NAME[target])


def test_overflow_is_counted_with_its_greatest() -> None:
    """Case C07's numbers: 70000 does not fit f16."""
    out, counts = cast(np.array([70000.0, 1.0, -80000.0], np.float32).view(np.uint32), "f32", "f16", "saturate")
    assert out.view(np.float16).tolist() == [65504.0, 1.0, -65504.0]
    assert (counts.overflow, counts.greatest) == (2, 80000.0)
    out, _ = cast(np.array([70000.0, -70000.0], np.float32).view(np.uint32), "f32", "f16", "inf")
    assert out.view(np.float16).tolist() == [math.inf, -math.inf]
