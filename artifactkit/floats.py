"""Float types as bit layouts: what each pattern means, and which type holds which.

Types: IEEE 754-2019 (f16, f32, f64), bfloat16, OCP OFP8 (f8_e4m3 without infinity, f8_e5m2), the ``fnuz`` kinds (no
infinity, no negative zero, one NaN; ml_dtypes' README), OCP MX v1.0 (f8_e8m0, powers of two, as a source only).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .dtypes import BY_NAME, DType
from .errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a float type uses its bits: sign, ``exponent`` bits, ``mantissa`` bits, and the exponent's ``bias``.

    ``specials`` says what the top of the range means: "ieee" (exponent all ones: infinity, NaN), "fn" (only all ones is
    NaN), "fnuz" (only the pattern of -0 is NaN).
    """

    exponent: int
    mantissa: int
    bias: int
    specials: Literal["ieee", "fn", "fnuz"] = "ieee"

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def greatest(self) -> int:
        """The pattern of the greatest finite value."""
        top = (1 << (self.exponent + self.mantissa)) - 1
        if self.specials == "ieee":
            return top - (1 << self.mantissa)
        return top - 1 if self.specials == "fn" else top

    @property
    def infinity(self) -> int | None:
        return self.greatest + 1 if self.specials == "ieee" else None

    @property
    def least_exponent(self) -> int:
        """The power of two of the least subnormal value."""
        return 1 - self.bias - self.mantissa

    def value(self, magnitude: int) -> float:
        """The value of a finite pattern without its sign: exact."""
        exponent, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if exponent:
            return float((1 << self.mantissa) + fraction) * 2.0 ** (exponent - self.bias - self.mantissa)
        return float(fraction) * 2.0 ** (1 - self.bias) * 2.0**-self.mantissa


LAYOUTS: dict[str, Layout] = {
    "f64": Layout(11, 52, 1023),
    "f32": Layout(8, 23, 127),
    "bf16": Layout(8, 7, 127),
    "f16": Layout(5, 10, 15),
    "f8_e5m2": Layout(5, 2, 15),
    "f8_e4m3": Layout(4, 3, 7, "fn"),
    "f8_e4m3fnuz": Layout(4, 3, 8, "fnuz"),
    "f8_e5m2fnuz": Layout(5, 2, 16, "fnuz"),
}
SOURCES: frozenset[str] = frozenset({*LAYOUTS, "f8_e8m0"})


def can_cast(source: DType, target: DType) -> bool:
    """Whether ``cast_block`` takes the pair: floats of whole bytes, f8_e8m0 as a source only."""
    return source.name in SOURCES and target.name in LAYOUTS


def is_lossless(source: DType, target: DType) -> bool:
    """Whether every finite value of ``source`` is a value of ``target``, infinity included where the source has it."""
    if source == target:
        return True
    to = LAYOUTS[target.name]
    if source.name == "f8_e8m0":
        return to.least_exponent <= -127 and to.value(to.greatest) >= 2.0**127
    at = LAYOUTS[source.name]
    return (
        at.mantissa <= to.mantissa
        and at.least_exponent >= to.least_exponent
        and at.value(at.greatest) <= to.value(to.greatest)
        and (at.infinity is None or to.infinity is not None)
    )


def check_pair(source: DType, target: DType) -> None:
    """Raise UsageError when ``target`` is nothing that floats are cast to."""
    if target.name not in LAYOUTS:
        raise UsageError(f"nothing is cast to {target}", expected=", ".join(LAYOUTS), found=target.name)
    if source.name not in SOURCES:
        raise UsageError(f"{source} is not cast", expected=", ".join(sorted(SOURCES)), found=source.name)


def patterns_as_f64(source: str) -> Array:
    """Each pattern of a type of at most 16 bits, as the pattern of the f64 of the same value; NaN payloads kept."""
    import numpy as np

    bits = BY_NAME[source].bits
    every = np.arange(1 << bits, dtype=np.uint64)
    quiet_nan = np.uint64(0x7FF8 << 48)
    if source == "f8_e8m0":
        values: Array = np.ldexp(1.0, every.astype(np.int32) - 127).view(np.uint64)
        values[255] = quiet_nan
        return values
    at = LAYOUTS[source]
    top = np.uint64((1 << (bits - 1)) - 1)
    magnitude = every & top
    exponent = (magnitude >> np.uint64(at.mantissa)).astype(np.int32)
    fraction = (magnitude & np.uint64((1 << at.mantissa) - 1)).astype(np.float64)
    hidden = np.where(exponent > 0, float(1 << at.mantissa), 0.0)
    values = np.ldexp(hidden + fraction, np.maximum(exponent, 1) - at.bias - at.mantissa).view(np.uint64)
    special = magnitude > np.uint64(at.greatest)
    if at.specials == "ieee":
        payload = (magnitude & np.uint64((1 << at.mantissa) - 1)) << np.uint64(52 - at.mantissa)
        values[special] = payload[special] | np.uint64(0x7FF << 52)
    else:
        values[special] = quiet_nan
    values |= (every >> np.uint64(bits - 1)) << np.uint64(63)
    if at.specials == "fnuz":
        values[1 << (bits - 1)] = quiet_nan
    return values
