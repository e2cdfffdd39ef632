"""Strided views of a storage as sources: gathered in bounded pieces, or the plainest source that is the same bytes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import Corrupt
from .source import CHUNK, Concat, FileSpan, Inline, Slice, Source, pour_buffered

if TYPE_CHECKING:
    import numpy as np

# Bytes of the base that a strided read may load at once, and how sparse a load may be.
GATHER_LIMIT = 8 << 20
GATHER_SMALL = 64 << 10


@dataclass(frozen=True, slots=True)
class Strided:
    """A strided view of a storage, read in row-major (C) order. Offset and strides are in elements of ``itemsize``.

    Reads are bounded: a view that spans gigabytes (a transposed matrix) is gathered in pieces of at most 8 MiB.
    """

    base: Source
    itemsize: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        count = self.itemsize
        for size in self.shape:
            count *= size
        return count

    @property
    def position(self) -> tuple[str, int]:
        file, start = self.base.position
        return (file, start + self.offset * self.itemsize)

    def _gather(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        """Elements of the view as raw ``V<itemsize>``; ``shape`` has no zero."""
        import numpy as np

        raw = np.dtype((np.void, self.itemsize))
        low = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
        high = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
        extent = (high - low + 1) * self.itemsize
        count = 1
        for n in shape:
            count *= n
        dense = count * self.itemsize * 8 >= extent or extent <= GATHER_SMALL
        if (dense and extent <= GATHER_LIMIT) or count == 1:
            loaded = bytearray(extent)
            self.base.read_into(low * self.itemsize, memoryview(loaded))
            flat = np.frombuffer(loaded, dtype=raw)
            return np.lib.stride_tricks.as_strided(
                flat[offset - low :], shape, tuple(s * self.itemsize for s in strides), writeable=False
            )
        # Halve along the dimension that reaches furthest in the base.
        axis = max(range(len(shape)), key=lambda i: (shape[i] - 1) * abs(strides[i]))
        if shape[axis] == 1 or strides[axis] == 0:  # only repeated elements are left: load one, repeat it
            axis = max(range(len(shape)), key=lambda i: shape[i])
            one = self._gather(offset, (*shape[:axis], 1, *shape[axis + 1 :]), strides)
            return np.broadcast_to(one, shape)
        half = shape[axis] // 2
        out = np.empty(shape, dtype=raw)
        head = (*shape[:axis], half, *shape[axis + 1 :])
        tail = (*shape[:axis], shape[axis] - half, *shape[axis + 1 :])
        cut: list[slice] = [slice(None)] * len(shape)
        cut[axis] = slice(0, half)
        out[tuple(cut)] = self._gather(offset, head, strides)
        cut[axis] = slice(half, None)
        out[tuple(cut)] = self._gather(offset + half * strides[axis], tail, strides)
        return out

    def _fill(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], start: int, out: memoryview) -> None:
        """Fill ``out`` with the bytes from ``start`` of the view given by offset, shape and strides."""
        if not shape:
            block = self._gather(offset, (), ()).tobytes()
            out[:] = block[start : start + len(out)]
            return
        row = self.itemsize
        for n in shape[1:]:
            row *= n
        done = 0
        while done < len(out):
            index, skip = divmod(start + done, row)
            left = len(out) - done
            if skip == 0 and row <= left and row <= CHUNK:
                count = min(left // row, max(1, CHUNK // row))
                block = self._gather(offset + index * strides[0], (count, *shape[1:]), strides).tobytes()
                out[done : done + len(block)] = block
                done += len(block)
            else:
                take = min(row - skip, left)
                self._fill(offset + index * strides[0], shape[1:], strides[1:], skip, out[done : done + take])
                done += take

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of a strided source")
        if len(buffer):
            self._fill(self.offset, self.shape, self.strides, offset, buffer)

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements lie in row-major order without gaps; sizes of 1 do not count, an empty tensor always does."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def view(base: Source, itemsize: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Source:
    """The plainest source for a strided view of ``base`` (offset and strides in elements of ``itemsize`` bytes).

    Raises Corrupt when the view reaches outside the base, whatever sign and size its numbers have.
    """
    count = itemsize
    for size in shape:
        if size < 0:
            raise Corrupt("a tensor has a negative size", found=shape)
        count *= size
    if len(shape) != len(strides):
        raise Corrupt("a tensor has as many strides as dimensions", expected=len(shape), found=len(strides))
    if count == 0:
        return Inline(b"", base.position)
    low = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    if low < 0 or (high + 1) * itemsize > base.nbytes:
        raise Corrupt(
            "a tensor reaches outside its storage",
            expected=f"elements within 0..{base.nbytes // itemsize - 1}",
            found=f"elements {low}..{high}",
        )
    if is_contiguous(shape, strides):
        start = offset * itemsize
        if isinstance(base, FileSpan):
            return FileSpan(base.file, base.offset + start, count)
        if isinstance(base, Inline):
            return Inline(base.data[start : start + count], base.place)
        if start == 0 and count == base.nbytes:
            return base
        if isinstance(base, Concat):  # a whole part of it, if it is one
            index = bisect_right(base.ends, start)
            part = base.parts[index]
            if base.ends[index] == start + count and part.nbytes == count:
                return part
        return Slice(base, start, count)
    # A stride over one element says nothing, and may be any number.
    return Strided(base, itemsize, offset, shape, tuple(s if n > 1 else 0 for n, s in zip(shape, strides, strict=True)))
