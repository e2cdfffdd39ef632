"""Whether quantising did what it says: how far the values that blocks stand for may be from those they were made of.

Computed from the source's values alone, by none of the code that quantised them. Three kinds of limit, and which of
them holds is part of what is reported:

- *bound*: the greatest error in a block follows from how the type is defined (ggml-quants.c): one step of its scale,
  or half of one, and the rounding of the scale itself to f16.
- *ceiling*: the scale was searched for (k-quants, i-quants, anything with an importance matrix), so that no bound
  follows. The ceiling is about twice the greatest error met with on heavy-tailed, sparse, constant and scaled values.
  It finds wrong rows, scales and types, and says nothing of quality.
- the error of the whole tensor, root mean square by root mean square of its values, has a ceiling as well. Two
  unrelated tensors of one size are 1.4 apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dtypes import DType

if TYPE_CHECKING:
    import numpy as np

HALF = 2.0**-11  # half an ulp of f16, relative
TINY = 2.0**-25  # half the least subnormal f16: what a scale that small is off by
SLACK = 1 + 2.0**-16  # f32 arithmetic on the way


@dataclass(frozen=True, slots=True)
class Limit:
    """``step`` by the greatest magnitude of a block, ``spread`` by its range (greatest - least), ``levels`` by TINY.

    ``rms`` is the ceiling for a tensor. ``proven`` tells a bound from a ceiling.
    """

    step: float
    rms: float
    levels: int
    spread: float = 0.0
    proven: bool = False


# Proven, without an importance matrix. One step is amax / 8 for q4_0, whose least code alone reaches amax; range / 15
# for q4_1, half of which is the error; and so on. mxfp4: the greatest code is 6, and 8 - 6 by 8 is a quarter.
# nvfp4: 6 by a scale of 3 mantissa bits. q1_0: every value becomes the mean magnitude.
BOUNDS: dict[str, Limit] = {
    "q4_0": Limit(1 / 8 + HALF, 0.25, 8, proven=True),
    "q5_0": Limit(1 / 16 + HALF, 0.15, 16, proven=True),
    "q4_1": Limit(HALF, 0.25, 16, 1 / 30 + HALF, proven=True),
    "q5_1": Limit(HALF, 0.15, 32, 1 / 62 + HALF, proven=True),
    "q8_0": Limit(1 / 254 + HALF, 0.02, 127, proven=True),
    "tq1_0": Limit(1 / 2 + HALF, 1.01, 1, proven=True),
    "tq2_0": Limit(1 / 2 + HALF, 1.01, 1, proven=True),
    "q1_0": Limit(1 + HALF, 1.01, 1, proven=True),
    "mxfp4": Limit(1 / 4, 0.3, 1, proven=True),
}
CEILINGS: dict[str, Limit] = {
    "q4_0": Limit(0.4, 0.25, 8),
    "q4_1": Limit(0.4, 0.25, 16),
    "q5_0": Limit(0.2, 0.15, 16),
    "q5_1": Limit(0.2, 0.15, 32),
    "q2_k": Limit(1.3, 0.8, 64),
    "q3_k": Limit(0.7, 0.4, 128),
    "q4_k": Limit(0.3, 0.2, 1024),
    "q5_k": Limit(0.15, 0.1, 2048),
    "q6_k": Limit(0.1, 0.06, 4096),
    "iq4_nl": Limit(0.4, 0.25, 128),
    "iq4_xs": Limit(0.4, 0.25, 4096),
    "iq3_s": Limit(4.0, 1.35, 512),
    "iq3_xxs": Limit(4.0, 1.35, 1024),
    "iq2_s": Limit(4.0, 1.35, 1024),
    "iq2_xs": Limit(4.0, 1.35, 1024),
    "iq2_xxs": Limit(4.0, 1.35, 1024),
    "iq1_s": Limit(4.0, 1.35, 64),
    "iq1_m": Limit(4.0, 1.35, 64),
    "nvfp4": Limit(0.5, 0.3, 1 << 17),  # its scales are f8: the least is 2^-9 and half of it is lost
}


def limit_of(dtype: DType, imatrix: bool) -> Limit:
    """What holds for ``dtype``: a bound where there is one, else a ceiling."""
    if dtype.name in BOUNDS and not (imatrix and dtype.name in CEILINGS):
        return BOUNDS[dtype.name]
    return CEILINGS[dtype.name]


@dataclass(slots=True)
class Errors:
    """The errors of one tensor, gathered block by block."""

    dtype: DType
    limit: Limit
    squares: float = 0.0
    energy: float = 0.0
    count: int = 0

    def add(self, values: np.ndarray, output: np.ndarray) -> int:
        """Whole blocks of the source and what became of them, flat f32. The first element that is wrong, or -1."""
        import numpy as np

        size = self.dtype.block
        x = values.reshape(-1, size)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(x - output.reshape(-1, size))
            worst = error.max(axis=1)
            amax = np.abs(x).max(axis=1).astype(np.float64)
            allowed = self.limit.step * amax
            if self.limit.spread:
                allowed += self.limit.spread * (x.max(axis=1).astype(np.float64) - x.min(axis=1))
            allowed = allowed * SLACK + np.minimum(3 * amax, self.limit.levels * TINY)
            # A NaN is not at most anything.
            wrong = np.flatnonzero(~(worst <= allowed))
            self.squares += float(np.vdot(error, error))
            self.energy += float(np.vdot(x, x))
        self.count += x.size
        if not wrong.size:
            return -1
        block = int(wrong[0])
        return block * size + int(np.nanargmax(np.where(np.isnan(error[block]), np.inf, error[block])))

    @property
    def relative(self) -> float:
        """Root mean square of the error by that of the values; 0 for a tensor of zeros that stayed zeros."""
        if self.squares == 0:
            return 0.0
        return float("inf") if self.energy == 0 else float((self.squares / self.energy) ** 0.5)

    @property
    def far(self) -> bool:
        """Whether the tensor as a whole is further from its source than its type can be."""
        floor = self.limit.levels * TINY * self.count**0.5
        return not self.squares**0.5 <= self.limit.rms * self.energy**0.5 + floor
