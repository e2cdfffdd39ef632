"""Typed data of a TensorProto: varints, decoded as they are read. Small ones are decoded at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..containers.protobuf import signed
from ..errors import ArtifactkitError, Corrupt
from ..source import Inline, Source, pour_buffered

if TYPE_CHECKING:
    import numpy as np

BLOCK = 1 << 16  # bytes decoded at once
SMALL = 1 << 12  # bytes that are decoded when the header is read
LONGEST = 10  # bytes of a varint


def varints(base: Source, count: int, itemsize: int, tensor: str) -> Source:
    """The ``count`` little-endian elements of ``itemsize`` bytes that the varints in ``base`` stand for.

    How many there are is not known before they are read: Corrupt is then raised where it is not ``count``, or where a
    value does not fit an element.
    """
    source = Varints(base, count, itemsize, tensor)
    if base.nbytes > SMALL:
        return source
    data = bytearray(source.nbytes)
    source.read_into(0, memoryview(data))
    return Inline(bytes(data), base.position)


class Varints:
    """See :func:`varints`. Read forward; where each block of elements begins is remembered, for reading again."""

    def __init__(self, base: Source, count: int, itemsize: int, tensor: str) -> None:
        self.base, self.count, self.itemsize, self.tensor = base, count, itemsize, tensor
        self._marks = [(0, 0)]  # (element, offset in base), ascending
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self.count * self.itemsize

    @property
    def position(self) -> tuple[str, int]:
        return self.base.position

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Varints) and (self.base, self.count, self.itemsize) == (
            other.base, other.count, other.itemsize,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.base, self.count, self.itemsize))

    def _corrupt(self, what: str, at: int, **more: object) -> ArtifactkitError:
        file, start = self.base.position
        error = Corrupt(what, file=file or None, offset=start + at)
        error.tensor = self.tensor
        for name, value in more.items():
            setattr(error, name, str(value))
        return error

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of typed data")
        import numpy as np

        done, end = 0, offset + len(buffer)
        first = offset // self.itemsize
        if not buffer:
            self._check_end()
            return
        with self._lock:
            element, at = max(mark for mark in self._marks if mark[0] <= first)
        while done < len(buffer):
            values, at = self._block(at, element)
            start, stop = element * self.itemsize, (element + len(values)) * self.itemsize
            low, high = max(start, offset + done), min(stop, end)
            if low < high:
                buffer[done : done + high - low] = memoryview(values.view(np.uint8).data)[low - start : high - start]
                done += high - low
            element += len(values)
            with self._lock:
                if element > self._marks[-1][0] and element < self.count:
                    self._marks.append((element, at))

    def _block(self, at: int, element: int) -> tuple[np.ndarray, int]:
        """The elements whose varints begin at ``at`` of the data, as many as a block has; and where the next begin."""
        import numpy as np

        nbytes = min(BLOCK, self.base.nbytes - at)
        data = bytearray(nbytes)
        self.base.read_into(at, memoryview(data))
        raw = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(raw < 0x80) + 1
        if ends.size == 0:
            what = "typed data has too few values" if nbytes < LONGEST else "a number of more than 10 bytes"
            raise self._corrupt(what, at, expected=f"{self.count} values", found=f"{element} values")
        starts = np.concatenate(([0], ends[:-1]))
        lengths = ends - starts
        if int(lengths.max()) > LONGEST:
            raise self._corrupt("a number of more than 10 bytes", at)
        values = np.zeros(ends.size, np.uint64)
        for i in range(int(lengths.max())):
            which = lengths > i
            values[which] |= (raw[starts[which] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
        after = at + int(ends[-1])
        left = self.count - element
        if values.size > left or (values.size == left and after < self.base.nbytes):
            raise self._corrupt("typed data has too many values", at, expected=f"{self.count} values")
        if values.size < left and after == self.base.nbytes:
            found = f"{element + values.size} values"
            raise self._corrupt("typed data has too few values", at, expected=f"{self.count} values", found=found)
        if self.itemsize < 8:
            # A negative value is sign-extended to 64 bits, or to 32 by writers that take the field for unsigned.
            top, half = np.uint64(1 << (8 * self.itemsize)), np.uint64((1 << 64) - (1 << (8 * self.itemsize - 1)))
            bad = np.flatnonzero((values >= top) & (values < half))
            if bad.size:
                raise self._corrupt(
                    "a value does not fit the tensor's type", at + int(starts[bad[0]]),
                    expected=f"{8 * self.itemsize} bits", found=signed(int(values[bad[0]])),
                )  # fmt: skip
        return values.astype(f"<u{self.itemsize}"), after

    def _check_end(self) -> None:
        if not self.count and self.base.nbytes:
            raise self._corrupt("typed data has too many values", 0, expected="0 values")

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at)
