"""Level 2: each tensor against its source, bit for bit, or within the bound that the step states."""

from __future__ import annotations

from collections.abc import Iterator

from ..artifact import TensorView
from ..dtypes import BY_NAME, DType
from ..errors import VerificationFailed
from ..placing import Checker, SameBytes
from ..source import Forward, Mapped, Source
from ..types import Part
from .bounds import GRIDS, as_array, first_outside, ulp_text

BLOCK = 256 << 10  # bytes of the source at a time


class WithinHalfUlp(Checker):
    """The output must be the source rounded to the nearest value of the target type (``verify.bounds``)."""

    def __init__(self, tensor: str, file: str, source: Source, source_dtype: DType, dtype: DType) -> None:
        self.tensor, self.file = tensor, file
        self.source_dtype, self.dtype = source_dtype, dtype
        self._forward = Forward(source)
        self._rest = b""

    def feed(self, offset: int, block: memoryview) -> None:
        """Blocks may be cut within an element; what is left over waits for the next."""
        size = self.dtype.itemsize
        start = offset - len(self._rest)
        data = memoryview(self._rest + block) if self._rest else block
        whole = len(data) // size * size
        self._rest = bytes(data[whole:])
        for first, output in _blocks(data[:whole], size, BLOCK // self.source_dtype.itemsize * size):
            index = (start + first) // size
            count = len(output) // size
            wide = self.source_dtype.itemsize
            self._compare(index, self._forward.read(index * wide, count * wide), output)

    def _compare(self, index: int, source: bytearray, output: memoryview) -> None:
        xs, ys = as_array(source, self.source_dtype), as_array(output, self.dtype)
        bad = first_outside(xs, self.source_dtype, ys, self.dtype)
        if bad >= 0:
            x, y = float(xs[bad]), float(ys[bad])
            raise VerificationFailed(
                f"a value is not its source rounded to {self.dtype}",
                file=self.file,
                tensor=self.tensor,
                expected=f"element {index + bad} within {ulp_text(x, self.dtype)} of {x!r}",
                found=repr(y),
                hint="this is a fault of the cast or of the machine: nothing was kept",
            )


def _blocks(data: memoryview, size: int, step: int) -> Iterator[tuple[int, memoryview]]:
    step = max(step, size)
    for first in range(0, len(data), step):
        yield first, data[first : first + step]


def cast_of(source: Source) -> tuple[Source, DType, DType] | None:
    """(what was cast, its type, the target type) when ``source`` is a cast, else None."""
    if isinstance(source, Mapped) and source.label.startswith("cast "):
        _, was, _, now = source.label.split(" ")[:4]
        return source.base, BY_NAME[was], BY_NAME[now]
    return None


def checker(part: Part, file: str) -> Checker:
    """The checker that fits how the part was made."""
    cast = cast_of(part.source)
    if cast is None or cast[2].name not in GRIDS:
        return SameBytes(part, file)
    return WithinHalfUlp(part.tensor or "", file, *cast)


def bound_text(tensor: TensorView) -> str:
    """How a tensor is compared: ``bit for bit`` or ``within half an ulp of bf16``."""
    cast = cast_of(tensor.source)
    return "bit for bit" if cast is None else f"within half an ulp of {cast[2]}"
