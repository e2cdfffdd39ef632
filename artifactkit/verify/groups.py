"""How far the values of MLX's groups may be from the floats that they were made of, from those floats alone.

Affine: a step is the range of a group by the greatest code. mlx moves a step so that the end of the larger magnitude is
a whole number of them, which shortens the other end by up to one more half (mlx, ``quantized.metal``); scale and bias
are then rounded to the type of the floats. The others: the width of a step at the greatest code, scales being powers of
two (mxfp4, mxfp8) or f8 (nvfp4).
"""

from __future__ import annotations

from collections.abc import Callable

from .. import ggml, mlx
from ..artifact import TensorView
from ..dtypes import DType
from ..source import Forward
from .blocks import Errors, Limit

BLOCK = 1 << 16  # elements at a time
# Twice what rounding a scale and a bias can do, by the greatest magnitude of a group: half an ulp each.
ROUNDED = {"f32": 2.0**-22, "f16": 2.0**-9, "bf16": 2.0**-6}
MX = {"mxfp4": Limit(1 / 3, 0.35, 1), "mxfp8": Limit(1 / 8, 0.1, 1), "nvfp4": Limit(1 / 3, 0.35, 1 << 17)}


def limit_of(grouping: mlx.Grouping, scales: DType) -> Limit:
    """What an element of a group may be off by at most."""
    if not grouping.mode.affine:
        return MX[grouping.mode.name]
    codes = 2**grouping.mode.bits - 1
    rms = min(1.0, 6.0 / codes) + ROUNDED[scales.name]
    return Limit(ROUNDED[scales.name], rms, 2 * codes, 1.5 / codes)  # subnormal scales of f16 are off by TINY


def grouped(
    want: TensorView, have: TensorView, source: mlx.Dequantized, advance: Callable[[int], None]
) -> tuple[str, str | None]:
    """(by which limit, what is wrong or None) of a matrix in groups that floats ``want`` are said to have become."""
    grouping = source.grouping
    errors = Errors(DType(grouping.mode.name, 32 * grouping.group, "float", block=grouping.group),
                    limit_of(grouping, source.scales))  # fmt: skip
    left, right = Forward(want.source), Forward(have.source)
    step = max(1, BLOCK // grouping.group) * grouping.group
    way = f"within the ceiling of {grouping}"
    for first in range(0, want.numel, step):
        count = min(step, want.numel - first)
        size = want.dtype.itemsize
        values = ggml.as_f32(left.read(first * size, count * size), want.dtype)
        back = ggml.as_f32(right.read(first * 4, count * 4), ggml.F32)
        at = errors.add(values, back)
        advance(count * 4)
        if at >= 0:
            return way, f"element {first + at}: {back[at]:g} is too far from {values[at]:g}"
    return way, f"off by {errors.relative:.3g} of its root mean square" if errors.far else None
