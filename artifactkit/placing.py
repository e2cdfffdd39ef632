"""Puts laid-out bytes into files, and reads them back: copy, digests and comparison side by side, in bounded memory.

Three passes run at once, each sequential over its own file: this thread places the parts; one thread takes the sha256
of the inputs; one follows behind the writing, reads the output back through a descriptor of its own, takes its sha256
and compares each part with its source. hashlib and the system calls release the GIL, so two cores are used.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .errors import Corrupt, Interrupted, Unreadable, VerificationFailed
from .files import File, buffer
from .filesystem import failed
from .source import CHUNK, Forward, Read, Source, is_plain, pour_range, roots, write_all
from .types import OutputFile, Part

READ_BLOCK = 256 << 10  # fits the second-level cache: read, digest and compare without going back to memory
PIECE = 16 << 20


class Checker:
    """Compares one part's bytes, given in order, with what they should be. ``finish`` is called at the end."""

    def feed(self, offset: int, block: memoryview) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Raise VerificationFailed when what was fed is not all, or not right."""


class SameBytes(Checker):
    """The output must be the source, byte for byte."""

    def __init__(self, part: Part, file: str) -> None:
        self.part, self.file = part, file
        self._source = Forward(part.source)

    def feed(self, offset: int, block: memoryview) -> None:
        wanted = self._source.read(offset, len(block))
        if wanted != block:  # a bytearray on the left compares as memory does; two views would go byte by byte
            at = next(i for i, (a, b) in enumerate(zip(wanted, block, strict=True)) if a != b)
            raise VerificationFailed(
                "the output differs from its source",
                file=self.file,
                tensor=self.part.tensor,
                offset=self.part.offset + offset + at,
                expected=f"byte {wanted[at]:#04x}",
                found=f"byte {block[at]:#04x}",
                hint="the disk or memory may be faulty: nothing was kept",
            )


@dataclass(slots=True)
class Progress:
    """Told of every block placed; the command line draws it. ``stop`` may be set from another thread.

    ``watched`` are the threads at work beside: what one of them raises is raised at the next block.
    """

    total: int = 0
    done: int = 0
    tensor: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    on_change: Callable[[Progress], None] | None = None
    watched: list[Worker] = field(default_factory=list)

    def add(self, n: int, tensor: str | None) -> None:
        self.done += n
        if tensor:
            self.tensor = tensor
        if self.on_change:
            self.on_change(self)
        self.check()

    def check(self) -> None:
        for worker in self.watched:
            if worker.error is not None:
                raise worker.error
        if self.stop.is_set():
            raise interrupted()


def interrupted() -> Interrupted:
    return Interrupted("interrupted; nothing was written")


@dataclass(frozen=True, slots=True)
class Digest:
    """A file by name, size and sha256 (hex)."""

    name: str
    size: int
    sha256: str

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "size": self.size, "sha256": self.sha256}


def sha256_file(file: File, stop: threading.Event | None = None) -> Digest:
    """The sha256 of an open file, read once, in order. Corrupt when it changes meanwhile; Interrupted by ``stop``.

    A file that was verified when it was fetched is not read again, as long as it is unchanged.
    """
    if file.sha256 is not None:
        file.check_unchanged()
        return Digest(file.path, file.size, file.sha256)
    digest = hashlib.sha256()
    space = buffer(min(READ_BLOCK, file.size))
    for done in range(0, file.size, READ_BLOCK):
        if stop is not None and stop.is_set():
            raise interrupted()
        block = space[: min(READ_BLOCK, file.size - done)]
        file.read_into(done, block)
        digest.update(block)
    file.check_unchanged()
    return Digest(file.path, file.size, digest.hexdigest())


class _Mark:
    """How far the file being written is complete from its start; pieces may be done in any order.

    Gaps between the parts are complete from the beginning: they are holes.
    """

    def __init__(self, size: int, parts: Iterable[Part]) -> None:
        self._condition = threading.Condition()
        self._ends: dict[int, int] = {}
        self.mark = 0
        self.size = size
        self.dead = False
        at = 0
        for part in sorted((p for p in parts if p.source.nbytes), key=lambda p: p.offset):
            if part.offset > at:
                self._ends[at] = part.offset
            at = part.offset + part.source.nbytes
        self._ends |= {at: size} if at < size else {}
        self._advance()

    def _advance(self) -> None:
        while self.mark in self._ends:
            self.mark = self._ends.pop(self.mark)

    def done(self, offset: int, nbytes: int) -> None:
        if not nbytes:
            return
        with self._condition:
            self._ends[offset] = offset + nbytes
            self._advance()
            self._condition.notify_all()

    def end(self, *, dead: bool) -> None:
        with self._condition:
            self.mark = self.size
            self.dead = self.dead or dead
            self._condition.notify_all()

    def wait(self, beyond: int) -> int:
        """Block until more than ``beyond`` bytes are complete; returns how many are."""
        with self._condition:
            self._condition.wait_for(lambda: self.mark > beyond or self.mark >= self.size or self.dead)
            return self.mark


class Worker(threading.Thread):
    """A thread that keeps what it returned or raised."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that joins
            self.error = error

    def result(self) -> None:
        self.join()
        if self.error is not None:
            raise self.error


def check_layout(output: OutputFile) -> None:
    """Refuse a layout with overlaps or parts outside: a fault of a writer, found before a byte is written."""
    end = 0
    for part in sorted(output.parts, key=lambda p: (p.offset, p.source.nbytes)):
        if part.offset < end or part.offset + part.source.nbytes > output.size:
            raise Corrupt(
                "a writer laid out parts that overlap", file=output.name, tensor=part.tensor, offset=part.offset
            )
        end = part.offset + part.source.nbytes


def place(
    output: OutputFile,
    path: str,
    progress: Progress,
    checker: Callable[[Part], Checker] | None,
    shown: str = "",
) -> Digest | None:
    """Write one output file at ``path``; with ``checker`` also read it back, compare every part, and return its digest.

    ``shown`` is the final name, for messages. OutputError for the destination, the source's own errors for the source.
    """
    shown = shown or path
    check_layout(output)
    mark = _Mark(output.size, output.parts)
    sums: dict[str, int] = {}
    follower: Worker | None = None
    digest: list[Digest] = []
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise failed(error, shown) from error
    try:
        try:
            os.ftruncate(fd, output.size)
        except OSError as error:
            raise failed(error, shown) from error
        if checker is not None and output.finish is None:
            make = checker
            follower = Worker(
                lambda: digest.append(_read_back(output, output.parts, path, mark, make, progress, shown))
            )
            progress.watched.append(follower)
            follower.start()
        for part in _order(output.parts):
            _pour(part, fd, progress, shown, mark, sums if output.finish else None)
        extra: tuple[Part, ...] = ()
        if output.finish is not None:
            extra = tuple(output.finish(sums))
            for part in extra:
                _pour(part, fd, progress, shown, mark, None)
        mark.end(dead=False)
        if follower is not None:
            follower.result()
        elif checker is not None:
            digest.append(_read_back(output, (*output.parts, *extra), path, mark, checker, progress, shown))
    except BaseException:
        progress.stop.set()
        mark.end(dead=True)
        if follower is not None and follower.ident is not None:
            follower.join()
        raise
    finally:
        progress.watched = [worker for worker in progress.watched if worker is not follower]
        os.close(fd)
    return digest[0] if digest else None


def _order(parts: Iterable[Part]) -> list[Part]:
    """Output order where bytes can be had in any order, so that reading back can follow; else the source's order."""
    parts = sorted(parts, key=lambda p: p.offset)
    if not any(isinstance(root, Read) for p in parts for root in roots(p.source)):
        return parts
    return sorted(parts, key=lambda p: p.source.position)


def _pour(part: Part, fd: int, progress: Progress, shown: str, mark: _Mark, sums: dict[str, int] | None) -> None:
    """Place one part in pieces small enough for progress, for stopping, and for the follower to keep close."""
    want_crc = sums is not None and part.tensor is not None
    crc = 0
    start = 0
    while True:
        size = min(PIECE, part.source.nbytes - start)
        progress.check()
        try:
            if want_crc:
                crc = _pour_with_crc(part.source, start, size, fd, part.offset + start, crc)
            else:
                pour_range(part.source, start, size, fd, part.offset + start)
        except OSError as error:
            raise failed(error, shown) from error
        mark.done(part.offset + start, size)
        progress.add(size, part.tensor)
        start += size
        if start >= part.source.nbytes:
            break
    if sums is not None and part.tensor is not None:
        sums[part.tensor] = crc


def _pour_with_crc(source: Source, start: int, size: int, fd: int, at: int, crc: int) -> int:
    space = buffer(min(READ_BLOCK if is_plain(source) else CHUNK, size))
    done = 0
    while done < size:
        block = space[: min(len(space), size - done)]
        source.read_into(start + done, block)
        crc = zlib.crc32(block, crc)
        write_all(fd, block, at + done)
        done += len(block)
    return crc


def _read_back(
    output: OutputFile,
    parts: Iterable[Part],
    path: str,
    mark: _Mark,
    checker: Callable[[Part], Checker],
    progress: Progress,
    shown: str,
) -> Digest:
    """Read the output from the file system in order, digest it, and compare every part. Gaps must be zero."""
    digest = hashlib.sha256()
    space = buffer(min(READ_BLOCK, max(output.size, 1)))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise failed(error, shown) from error
    try:
        at = 0
        for part in sorted((p for p in parts if p.source.nbytes), key=lambda p: p.offset):
            at = _read_gap(fd, at, part.offset, space, digest, mark, shown)
            check = checker(part)
            end = part.offset + part.source.nbytes
            while at < end:
                ready = mark.wait(at)
                if progress.stop.is_set() or mark.dead:
                    raise interrupted()
                block = _read_block(fd, at, space[: min(len(space), end - at, ready - at)], shown)
                digest.update(block)
                try:
                    check.feed(at - part.offset, block)
                except OSError as error:  # of what a source was unpacked into: sources name their own
                    raise Unreadable(f"read error: {error.strerror}", file=shown, tensor=part.tensor) from error
                at += len(block)
            check.finish()
        _read_gap(fd, at, output.size, space, digest, mark, shown)
    finally:
        os.close(fd)
    return Digest(output.name, output.size, digest.hexdigest())


def _read_gap(fd: int, at: int, end: int, space: memoryview, digest: hashlib._Hash, mark: _Mark, shown: str) -> int:
    while at < end:
        mark.wait(at)
        block = _read_block(fd, at, space[: min(len(space), end - at)], shown)
        rest = bytes(block).lstrip(b"\0")
        if rest:
            found = at + len(block) - len(rest)
            raise VerificationFailed("bytes stand where none were written", file=shown, offset=found)
        digest.update(block)
        at += len(block)
    return at


def _read_block(fd: int, at: int, space: memoryview, shown: str) -> memoryview:
    try:
        got = os.preadv(fd, [space], at)
    except OSError as error:
        raise VerificationFailed(f"cannot read the output back: {error.strerror}", file=shown, offset=at) from error
    if got == 0:
        raise VerificationFailed("the output is shorter than what was written", file=shown, offset=at)
    return space[:got]
