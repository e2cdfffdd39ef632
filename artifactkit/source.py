"""Where the bytes of a tensor live, holding none of them.

A source knows its size and place. A writer asks it to ``pour`` itself into a file, by kernel copy where the bytes are
plain, else through a buffer of bounded size. Sources are values: equal sources are the same bytes, which is how tied
weights are found.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol, runtime_checkable

from .errors import Corrupt
from .files import Bytes, File, Memory, Window, buffer, file_of

CHUNK = 4 << 20  # bytes a buffer; a few of these is all the memory that a conversion takes
POUR = 1 << 20  # bytes read and written at once: fits the caches on the way, where a larger buffer costs three times


@runtime_checkable
class Source(Protocol):
    """A run of ``nbytes`` bytes that can be read at any offset, forward reading being the cheap way."""

    @property
    def nbytes(self) -> int: ...

    @property
    def position(self) -> tuple[str, int]:
        """(file, offset) where reading begins: a hint for the order in which sources are best read."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes from ``offset``; raises an Unreadable when they are not to be had."""
        ...

    def pour(self, fd: int, at: int) -> None:
        """Write all bytes to ``fd`` at offset ``at``. OSError is the destination's."""
        ...


def write_all(fd: int, data: memoryview | bytes, at: int) -> None:
    """``os.pwrite`` until all is written."""
    view = memoryview(data)
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], at + done)


def pour_buffered(source: Source, fd: int, at: int, start: int = 0) -> None:
    """Copy ``source`` from ``start`` on through one bounded buffer: the way for bytes that are not plain in a file."""
    step = POUR if is_plain(source) else CHUNK
    done = start
    with spare.take(min(step, max(source.nbytes - start, 0))) as space:
        while done < source.nbytes:
            part = space[: min(step, source.nbytes - done)]
            source.read_into(done, part)
            write_all(fd, part, at + done)
            done += len(part)


def pour_range(source: Source, start: int, nbytes: int, fd: int, at: int) -> None:
    """Write ``nbytes`` bytes from ``start`` of ``source`` to ``fd`` at ``at``: ``pour`` for a piece."""
    if isinstance(source, FileSpan):
        FileSpan(source.file, source.offset + start, nbytes).pour(fd, at)
    elif start == 0 and nbytes == source.nbytes:
        source.pour(fd, at)
    else:
        pour_buffered(Slice(source, start, nbytes), fd, at)


def read_all(source: Source) -> bytes:
    """All bytes of a source that is known to be small."""
    buffer = bytearray(source.nbytes)
    source.read_into(0, memoryview(buffer))
    return bytes(buffer)


class Forward:
    """Reads a source forward in blocks of any size, while the source itself is read in blocks that suit it.

    A view of a transposed matrix costs nearly as much for one row as for a hundred; plain bytes cost what they weigh.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._step = 0 if is_plain(source) else CHUNK
        self._ahead, self._start = bytearray(), 0
        self._buffer = bytearray()

    def read(self, offset: int, n: int) -> bytearray:
        """The ``n`` bytes at ``offset``, in a buffer that the next call fills anew."""
        if len(self._buffer) != n:
            self._buffer = bytearray(n)
        out = memoryview(self._buffer)
        if n >= self._step:
            self.source.read_into(offset, out)
            return self._buffer
        done = 0
        while done < n:
            at = offset + done - self._start
            if not 0 <= at < len(self._ahead):
                self._start, at = offset + done, 0
                self._ahead = bytearray(min(self._step, self.source.nbytes - self._start))
                self.source.read_into(self._start, memoryview(self._ahead))
            take = min(n - done, len(self._ahead) - at)
            out[done : done + take] = memoryview(self._ahead)[at : at + take]
            done += take
        return self._buffer


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Plain bytes in a file."""

    file: File
    offset: int
    nbytes: int

    @property
    def position(self) -> tuple[str, int]:
        return (self.file.path, self.offset)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of a span")
        self.file.read_into(self.offset + offset, buffer)

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at, self.file.copy_to(self.offset, self.nbytes, fd, at))


@dataclass(frozen=True, slots=True)
class Inline:
    """Bytes that are in memory already: scalars, small arrays, headers."""

    data: bytes
    place: tuple[str, int] = ("", 0)

    @property
    def nbytes(self) -> int:
        return len(self.data)

    @property
    def position(self) -> tuple[str, int]:
        return self.place

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > len(self.data):
            raise IndexError("read past the end of inline bytes")
        buffer[:] = self.data[offset : offset + len(buffer)]

    def pour(self, fd: int, at: int) -> None:
        write_all(fd, self.data, at)


@dataclass(frozen=True, slots=True)
class Slice:
    """``nbytes`` bytes from ``offset`` of another source (a contiguous view of a storage that is not plain)."""

    base: Source
    offset: int
    nbytes: int

    @property
    def position(self) -> tuple[str, int]:
        file, start = self.base.position
        return (file, start + self.offset)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of a slice")
        self.base.read_into(self.offset + offset, buffer)

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at)


@dataclass(frozen=True, slots=True)
class Read:
    """``nbytes`` bytes from ``offset`` of anything that reads by offset: an inflated member of an archive."""

    data: Bytes
    offset: int
    nbytes: int
    place: tuple[str, int] = ("", 0)

    @property
    def position(self) -> tuple[str, int]:
        return (self.place[0], self.place[1] + self.offset)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of a span")
        buffer[:] = self.data.read(self.offset + offset, len(buffer))

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at)


def span(data: Bytes, offset: int, nbytes: int, place: tuple[str, int] = ("", 0)) -> Source:
    """The plainest source for ``nbytes`` bytes at ``offset`` of ``data``."""
    if isinstance(data, Window):
        if offset < 0 or nbytes < 0 or offset + nbytes > data.size:
            data.read(offset, nbytes)  # raises Truncated with the place
        return FileSpan(data.file, data.start + offset, nbytes)
    if isinstance(data, File):
        return FileSpan(data, offset, nbytes)
    if isinstance(data, Memory):
        return Inline(data.read(offset, nbytes), place)
    return Read(data, offset, nbytes, place)


@dataclass(frozen=True, slots=True)
class Concat:
    """Sources one after another: experts stacked into one tensor, parts of a matrix joined. ``concat`` makes it."""

    parts: tuple[Source, ...]
    ends: tuple[int, ...]  # where each part ends, in bytes from the start

    @property
    def nbytes(self) -> int:
        return self.ends[-1]

    @property
    def position(self) -> tuple[str, int]:
        return self.parts[0].position

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of joined sources")
        done = 0
        index = bisect_right(self.ends, offset)
        while done < len(buffer):
            part = self.parts[index]
            skip = offset + done - (self.ends[index] - part.nbytes)
            take = min(part.nbytes - skip, len(buffer) - done)
            part.read_into(skip, buffer[done : done + take])
            done += take
            index += 1

    def pour(self, fd: int, at: int) -> None:
        for part, end in zip(self.parts, self.ends, strict=True):
            part.pour(fd, at + end - part.nbytes)


def concat(parts: Sequence[Source]) -> Source:
    """The plainest source for ``parts`` one after another: spans that meet in their file are one span again."""
    joined: list[Source] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, FileSpan) and isinstance(last, FileSpan):
            if last.file == part.file and last.offset + last.nbytes == part.offset:
                joined[-1] = FileSpan(last.file, last.offset, last.nbytes + part.nbytes)
                continue
        if part.nbytes:
            joined.append(part)
    if len(joined) == 1:
        return joined[0]
    if not joined:
        return Inline(b"", parts[0].position if parts else ("", 0))
    return Concat(tuple(joined), tuple(accumulate(part.nbytes for part in joined)))


class _Spare(threading.local):
    """Buffers that are not in use, for each thread: fresh pages cost as much as a cast does."""

    def __init__(self) -> None:
        self._spare: list[memoryview] = []

    @contextmanager
    def take(self, nbytes: int) -> Iterator[memoryview]:
        """``nbytes`` bytes of any content. Sources lie in one another, and so do their buffers."""
        space = self._spare.pop() if self._spare else memoryview(b"")
        if len(space) < nbytes:
            space = buffer(nbytes)
        yield space[:nbytes]
        if nbytes <= 2 * CHUNK:  # none of one huge row
            self._spare.append(space)


spare = _Spare()


@dataclass(frozen=True, slots=True)
class Mapped:
    """Whole rows of another source, each passed through ``fn``: casts, byte swaps, quantisation.

    ``fn(rows_in, rows_out)`` gets buffers of k * in_row_bytes and k * out_row_bytes bytes and fills the second; it must
    not depend on where the blocks are cut. ``label`` is what makes two mapped sources equal, with ``base``.
    """

    base: Source
    rows: int
    in_row_bytes: int
    out_row_bytes: int
    fn: Callable[[memoryview, memoryview], None] = field(compare=False)
    label: str = ""

    def __post_init__(self) -> None:
        if self.rows * self.in_row_bytes != self.base.nbytes:
            raise Corrupt("rows do not fill the source", expected=self.rows * self.in_row_bytes, found=self.base.nbytes)

    @property
    def nbytes(self) -> int:
        return self.rows * self.out_row_bytes

    @property
    def position(self) -> tuple[str, int]:
        return self.base.position

    def _rows(self, first: int, out: memoryview) -> None:
        count = len(out) // self.out_row_bytes
        with spare.take(count * self.in_row_bytes) as rows:
            self.base.read_into(first * self.in_row_bytes, rows)
            self.fn(rows, out)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of a mapped source")
        size = self.out_row_bytes
        block = max(1, CHUNK // max(size, self.in_row_bytes))
        done = 0
        while done < len(buffer):
            row, skip = divmod(offset + done, size)
            left = len(buffer) - done
            if skip == 0 and left >= size:
                count = min(block, left // size)
                self._rows(row, buffer[done : done + count * size])
                done += count * size
            else:  # a piece of one row
                whole = memoryview(bytearray(size))
                self._rows(row, whole)
                take = min(size - skip, left)
                buffer[done : done + take] = whole[skip : skip + take]
                done += take

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at)


def is_plain(source: Source) -> bool:
    """Whether any few bytes of ``source`` are as cheap to have as they are few."""
    while isinstance(source, Slice | Mapped):
        source = source.base
    if isinstance(source, Concat):
        return all(is_plain(part) for part in source.parts)
    return isinstance(source, FileSpan | Inline)


def roots(source: Source) -> Iterator[Source]:
    """The sources that ``source`` is made of in the end: those that read no other."""
    if isinstance(source, Concat):
        for part in source.parts:
            yield from roots(part)
        return
    base = getattr(source, "base", None)
    if base is None:
        yield source
    else:
        yield from roots(base)


def files_of(source: Source) -> Iterator[File]:
    """The open files that the bytes of ``source`` come from."""
    for root in roots(source):
        if isinstance(root, FileSpan):
            yield root.file
        elif isinstance(root, Read):
            file = file_of(root.data)
            if file is not None:
                yield file
