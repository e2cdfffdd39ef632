"""Integers of four and two bits as whole bytes: exact, and read like any other source."""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import DType
from ..source import Source, pour_buffered, spare


@dataclass(frozen=True, slots=True)
class Widened:
    """``count`` elements of ``dtype`` (i4, u4, i2, u2; the first in the lowest bits of a byte), a byte each."""

    base: Source
    dtype: DType
    count: int

    @property
    def nbytes(self) -> int:
        return self.count

    @property
    def position(self) -> tuple[str, int]:
        return self.base.position

    def read_into(self, offset: int, buffer: memoryview) -> None:
        import numpy as np

        if offset < 0 or offset + len(buffer) > self.count:
            raise IndexError("read past the end of a widened source")
        if not buffer:
            return
        bits = self.dtype.bits
        each = 8 // bits
        first, last = offset // each, -(-(offset + len(buffer)) // each)
        with spare.take(last - first) as packed:
            self.base.read_into(first, packed)
            raw = np.frombuffer(packed, np.uint8)
            shifts = np.arange(0, 8, bits, dtype=np.uint8)
            values = (raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)
        if self.dtype.name.startswith("i"):
            sign = np.uint8(1 << (bits - 1))
            values = (values ^ sign) - sign
        skip = offset - first * each
        buffer[:] = memoryview(values.reshape(-1)[skip : skip + len(buffer)].data)

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at)


def widened(source: Source, dtype: DType, count: int) -> Source:
    return Widened(source, dtype, count)
