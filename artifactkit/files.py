"""Input files: opened once, pinned, read by offset.

Never mapped to be looked at: mapping counts the file's pages as ours (the memory budget is for the whole process), and
a file cut short while it is mapped ends whoever looks with SIGBUS. ``pread`` answers both. Only the kernel copies from
a mapping, of a few megabytes: to it, what is not there is an error.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from typing import Protocol

from .errors import Corrupt, Truncated, Unreadable

# A copy can be interrupted between two calls only, so one call is kept to a fraction of a second.
COPY_CHUNK = 1 << 26
MAP_CHUNK = 4 << 20  # bytes mapped at once
MAP_LEAST = 256 << 10  # below which mapping costs more than it saves
PAGE = 4096  # of the page cache


def buffer(nbytes: int) -> memoryview:
    """A buffer that starts on a page. What malloc gives starts 16 bytes into one, and that is the worst of all places.

    Copying to or from a page of the file cache takes four times as long on AMD's Zen 3, whose ``rep movsb`` is slow
    where the target lies up to 16 bytes behind the source, modulo 4096.
    """
    return memoryview(mmap.mmap(-1, max(nbytes, 1)))[:nbytes]


class Bytes(Protocol):
    """Random access to a run of bytes of known size. What containers and the pickle machine read from."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, n: int) -> bytes:
        """Exactly ``n`` bytes at ``offset``; Truncated when they reach past the end."""
        ...


def _open_many(path: str, flags: int) -> int:
    """``os.open``; a checkpoint of a thousand shards may need more descriptors than the soft limit allows."""
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return os.open(path, flags)


class File:
    """One regular file, read by offset. Equal by path. Pinned: if it changes while we work, reading raises Corrupt."""

    __slots__ = ("_fd", "_identity", "path", "size")

    # The digest of the bytes that this descriptor reads, where they were hashed before in this process.
    sha256: str | None = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = -1
        self.path = os.fspath(path)
        try:
            # O_NONBLOCK: a FIFO must not make us wait; it is refused below.
            self._fd = _open_many(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Unreadable(f"cannot open: {error.strerror or error}", file=self.path) from error
        except ValueError as error:
            raise Unreadable("cannot open: a NUL in the path", file=self.path) from error
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            self.close()
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "something else"
            raise Unreadable("not a regular file", file=self.path, expected="a regular file", found=kind)
        self._identity = (info.st_size, info.st_mtime_ns)
        self.size: int = info.st_size

    def close(self) -> None:
        """Close the descriptor; reading afterwards raises Unreadable. Closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def check_unchanged(self) -> None:
        """Raise Corrupt when size or modification time are no longer those of the opening."""
        info = os.fstat(self._fd)
        if (info.st_size, info.st_mtime_ns) != self._identity:
            raise Corrupt(
                "the file changed while it was being read", file=self.path, hint="run again once it is complete"
            )

    def _bounds(self, offset: int, n: int) -> None:
        if offset < 0 or n < 0 or offset + n > self.size:
            raise Truncated(
                "the file ends too early",
                file=self.path,
                offset=max(offset, 0),
                expected=f"{n} bytes",
                found=f"{max(self.size - max(offset, 0), 0)} bytes",
            )

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``; Truncated when the file ends first, Unreadable on an I/O error."""
        done, total = 0, len(buffer)
        self._bounds(offset, total)
        while done < total:
            try:
                got = os.preadv(self._fd, [buffer[done:]], offset + done)
            except OSError as error:
                raise Unreadable(f"read error: {error.strerror}", file=self.path, offset=offset + done) from error
            if got == 0:
                raise Truncated("the file became shorter while it was being read", file=self.path, offset=offset + done)
            done += got

    def read(self, offset: int, n: int) -> bytes:
        """Exactly ``n`` bytes at ``offset``. Checked against the size before anything is allocated."""
        self._bounds(offset, n)
        try:
            data = os.pread(self._fd, n, offset)
        except OSError as error:
            raise Unreadable(f"read error: {error.strerror}", file=self.path, offset=offset) from error
        if len(data) == n:
            return data
        buffer = bytearray(n)  # a short read: rare, so the slower way round
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def copy_to(self, offset: int, nbytes: int, fd: int, at: int) -> int:
        """Copy in the kernel to ``fd`` at ``at`` as far as the system does it; returns the bytes copied (maybe 0).

        The caller finishes with ``read_into`` and ``pwrite``, which also meet whatever stopped this.
        """
        self._bounds(offset, nbytes)
        # Page by page where the pages of both files meet; else copy_file_range is slower than a buffer.
        if (offset - at) % PAGE:
            return self._copy_mapped(offset, nbytes, fd, at)
        if not hasattr(os, "copy_file_range"):
            return 0
        done = 0
        while done < nbytes:
            try:
                got = os.copy_file_range(self._fd, fd, min(nbytes - done, COPY_CHUNK), offset + done, at + done)
            except OSError:
                # Not between these file systems, not by this kernel, or an error: reading and writing tell whose it is.
                return done
            if got == 0:
                return done
            done += got
        return done

    def _copy_mapped(self, offset: int, nbytes: int, fd: int, at: int) -> int:
        """Write from a mapping, so that each byte is copied once; in half the time of reading and writing.

        The pages are mapped beforehand, all at once. Where the file has become shorter the write fails or ends early.
        """
        if nbytes < MAP_LEAST or not hasattr(mmap, "MAP_POPULATE"):
            return 0
        done = 0
        while done < nbytes:
            first = (offset + done) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            skip = offset + done - first
            size = min(MAP_CHUNK, skip + nbytes - done)
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            try:
                with (
                    mmap.mmap(self._fd, size, flags=flags, prot=mmap.PROT_READ, offset=first) as pages,
                    memoryview(pages) as whole, whole[skip:size] as view,
                ):  # fmt: skip
                    got = os.pwrite(fd, view, at + done)
            except (OSError, ValueError):  # ValueError: the file is shorter than that by now
                return done
            if got == 0:
                return done
            done += got
        return done

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"File({self.path!r})"


class Window:
    """A run of ``size`` bytes at ``start`` of a file; offsets within are relative. ``member`` names it in errors."""

    __slots__ = ("file", "member", "size", "start")

    def __init__(self, file: File, start: int, size: int, member: str | None = None) -> None:
        if start < 0 or size < 0 or start + size > file.size:
            raise Truncated(
                "the file ends too early",
                file=file.path,
                member=member,
                offset=start,
                expected=f"{size} bytes",
                found=f"{max(file.size - start, 0)} bytes",
            )
        self.file, self.start, self.size, self.member = file, start, size, member

    def read(self, offset: int, n: int) -> bytes:
        if offset < 0 or n < 0 or offset + n > self.size:
            raise Truncated(
                "the data ends too early",
                file=self.file.path,
                member=self.member,
                offset=offset,
                expected=f"{n} bytes",
                found=f"{max(self.size - offset, 0)} bytes",
            )
        return self.file.read(self.start + offset, n)


class Memory:
    """Bytes that are in memory already (an inflated header, a small member), under the same interface."""

    __slots__ = ("data", "label", "member")

    def __init__(self, data: bytes, label: str = "", member: str | None = None) -> None:
        self.data, self.label, self.member = data, label, member

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, n: int) -> bytes:
        if offset < 0 or n < 0 or offset + n > len(self.data):
            raise Truncated(
                "the data ends too early",
                file=self.label or None,
                member=self.member,
                offset=offset,
                expected=f"{n} bytes",
                found=f"{max(len(self.data) - offset, 0)} bytes",
            )
        return self.data[offset : offset + n]


class Part:
    """A run of ``size`` bytes at ``start`` of other bytes: a member of an archive within an archive."""

    __slots__ = ("data", "member", "size", "start")

    def __init__(self, data: Bytes, start: int, size: int, member: str | None = None) -> None:
        self.data, self.start, self.size, self.member = data, start, size, member

    def read(self, offset: int, n: int) -> bytes:
        if offset < 0 or n < 0 or offset + n > self.size:
            raise Truncated(
                "the data ends too early",
                file=label(self.data),
                member=self.member,
                offset=offset,
                expected=f"{n} bytes",
                found=f"{max(self.size - offset, 0)} bytes",
            )
        return self.data.read(self.start + offset, n)


def label(data: Bytes) -> str | None:
    """The path of the file that ``data`` is in, for messages; None for bytes that have none."""
    if isinstance(data, File):
        return data.path
    if isinstance(data, Window):
        return data.file.path
    if isinstance(data, Part):
        return label(data.data)
    found = getattr(data, "label", None)
    return found if isinstance(found, str) and found else None


def file_of(data: Bytes) -> File | None:
    """The open file that ``data`` is read from as it is asked for; None for bytes that are in memory or unpacked."""
    inner: object = data
    while not isinstance(inner, File):
        for name in ("file", "data", "packed"):  # Window, Part, Inflated
            found = getattr(inner, name, None)
            if found is not None and not isinstance(found, bytes):
                inner = found
                break
        else:
            return None
    return inner


def part(data: Bytes, start: int, size: int, member: str | None = None) -> Bytes:
    """The plainest view of ``size`` bytes at ``start`` of ``data``; Truncated when they reach past its end."""
    if isinstance(data, File):
        return Window(data, start, size, member)
    if start < 0 or size < 0 or start + size > data.size:
        raise Truncated(
            "the data ends too early",
            file=label(data),
            member=member,
            offset=max(start, 0),
            expected=f"{size} bytes",
            found=f"{max(data.size - max(start, 0), 0)} bytes",
        )
    if isinstance(data, Window):
        return Window(data.file, data.start + start, size, member or data.member)
    return Part(data, start, size, member)
