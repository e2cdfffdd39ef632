"""Level 2: each tensor against its source, bit for bit, or within the bound that the step states."""

from __future__ import annotations

from collections.abc import Iterator

from .. import ggml
from ..artifact import TensorView
from ..dtypes import BY_NAME, DType
from ..errors import VerificationFailed
from ..placing import Checker, SameBytes
from ..source import Forward, Mapped, Source
from ..types import Part
from .blocks import Errors, limit_of
from .bounds import GRIDS, as_array, first_outside, ulp_text

BLOCK = 256 << 10  # bytes of the source at a time
BIT_FOR_BIT = "bit for bit"


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


class WithinBlockError(Checker):
    """The output must be the blocks that were made of the source, and stand for values near to it (verify.blocks).

    The first by a checksum for each row, taken when it was quantised; the second from the source alone.
    """

    def __init__(self, tensor: str, file: str, source: ggml.Quantized) -> None:
        assert source.work is not None
        self.tensor, self.file, self.source, self.work = tensor, file, source, source.work
        self.errors = Errors(self.work.dtype, limit_of(self.work.dtype, self.work.imatrix is not None))
        self._forward = Forward(source.base)
        self._rest = b""

    def feed(self, offset: int, block: memoryview) -> None:
        """Rows may be cut by blocks; what is left over waits for the next."""
        size = self.source.out_row_bytes
        start = (offset - len(self._rest)) // size
        data = memoryview(self._rest + block) if self._rest else block
        whole = len(data) // size * size
        self._rest = bytes(data[whole:])
        step = max(1, BLOCK // self.source.in_row_bytes) * size
        for first in range(0, whole, step):
            self._compare(start + first // size, data[first : min(first + step, whole)])

    def _compare(self, row: int, output: memoryview) -> None:
        source, work = self.source, self.work
        changed = -1 if source.sums is None else source.sums.differs(row, output, source.out_row_bytes)
        if changed >= 0:
            raise VerificationFailed(
                "a row is not what was made of its source", file=self.file, tensor=self.tensor, found=f"row {changed}",
                hint="the disk or memory may be faulty: nothing was kept",
            )  # fmt: skip
        count = len(output) // source.out_row_bytes
        raw = self._forward.read(row * source.in_row_bytes, count * source.in_row_bytes)
        values = ggml.as_f32(raw, work.source_dtype)
        back = ggml.dequantize(output, work.dtype)
        at = self.errors.add(values, back)
        if at >= 0:
            raise VerificationFailed(
                f"a value is not near its source, as {work.dtype} must be", file=self.file, tensor=self.tensor,
                expected=f"{values[at]:g} in row {row + at // work.row}, element {at % work.row}",
                found=f"{back[at]:g}",
                hint="this is a fault of the quantiser or of the machine: nothing was kept",
            )  # fmt: skip

    def finish(self) -> None:
        if self.errors.far:
            raise VerificationFailed(
                f"the tensor is further from its source than {self.work.dtype} can be", file=self.file,
                tensor=self.tensor, expected=f"an error of at most {self.errors.limit.rms:g} of its root mean square",
                found=f"{self.errors.relative:.3g}", hint="this is a fault of the quantiser or of the machine",
            )  # fmt: skip


def checker(part: Part, file: str) -> Checker:
    """The checker that fits how the part was made."""
    if isinstance(part.source, ggml.Quantized):
        return WithinBlockError(part.tensor or "", file, part.source)
    cast = cast_of(part.source)
    if cast is None or cast[2].name not in GRIDS:
        return SameBytes(part, file)
    return WithinHalfUlp(part.tensor or "", file, *cast)


def bound_text(tensor: TensorView) -> str:
    """How a tensor is compared: ``bit for bit``, ``within half an ulp of bf16``, ``within the bound of q8_0``."""
    if isinstance(tensor.source, ggml.Quantized):
        work = tensor.source.work
        proven = work is not None and limit_of(work.dtype, work.imatrix is not None).proven
        return f"within the {'bound' if proven else 'ceiling'} of {tensor.dtype}"
    cast = cast_of(tensor.source)
    return BIT_FOR_BIT if cast is None else f"within half an ulp of {cast[2]}"
