"""Bytes behind zlib, gzip, bz2, lzma or xz, and deflated members of zip archives: bounded, streamed, seekable.

Sources: RFC 1950 (zlib), RFC 1951 (deflate), RFC 1952 (gzip), the bzip2 and xz format descriptions. Decompression is
the standard library's; what is ours is the bounding.
"""

from __future__ import annotations

import os
import threading
import zlib
from typing import IO, Literal, Protocol

from ..errors import Corrupt, LimitExceeded, OutputError, Truncated, Unreadable
from ..files import Bytes, Memory, label

Codec = Literal["deflate", "zlib", "gzip", "bz2", "lzma", "xz"]

IN_CHUNK = 64 << 10
OUT_CHUNK = 1 << 20
IN_MEMORY = 4 << 20  # what a whole stream may weigh to be kept in memory instead of in a temporary file
# RFC 1951: the densest code is a match of 258 bytes in two bits, so deflate cannot exceed this, whatever a header says.
DEFLATE_RATIO = 1032
# bz2 and xz have no such bound: zeros shrink a million times. What is far beyond any array is refused.
FREE_BYTES = 1 << 28
MAX_RATIO = 10_000
MAX_PASSES = 4  # over a member that is read again from its start
LZMA_MEMORY = 256 << 20  # xz -9 takes 65 MiB; a header may ask for 4 GiB

LZ4_MAGIC = b"\x04\x22\x4d\x18"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def detect(head: bytes) -> Codec | None:
    """The compression that ``head``, the first bytes of a file, announces; None for none that is read here."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if head.startswith(b"BZh") and head[3:4].isdigit() and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bz2"
    # LZMA-alone has no magic: properties byte 0x5d, a dictionary of a power of two, a size that is unknown or sane.
    if (
        len(head) >= 13
        and head[0] == 0x5D
        and head[1:3] == b"\0\0"
        and (head[5:13] == b"\xff" * 8 or head[11:13] == b"\0\0")
    ):
        return "lzma"
    if head[:1] == b"x" and len(head) > 1 and int.from_bytes(head[:2], "big") % 31 == 0 and not head[1] & 0x20:
        return "zlib"
    return None


def foreign(head: bytes) -> str | None:
    """The name of a compression that is recognised but not read: ``lz4``, ``zstd``."""
    if head.startswith(LZ4_MAGIC):
        return "lz4"
    return "zstd" if head.startswith(ZSTD_MAGIC) else None


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """zlib's object under the interface of bz2's and lzma's."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)
        self._more = False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail and not self._more

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._more = len(out) == max_length  # more may wait inside, though all input is taken
        return out


def _new(codec: Codec) -> _Decompressor:
    if codec in ("deflate", "zlib", "gzip"):
        return _Zlib({"deflate": -15, "zlib": 15, "gzip": 31}[codec])
    if codec == "bz2":
        import bz2

        return bz2.BZ2Decompressor()
    import lzma

    kind = lzma.FORMAT_XZ if codec == "xz" else lzma.FORMAT_ALONE
    return lzma.LZMADecompressor(kind, memlimit=LZMA_MEMORY)


def _damage() -> tuple[type[BaseException], ...]:
    """What the decompressors raise for bytes that they cannot read."""
    import lzma

    return (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


class Stream:
    """One forward pass over compressed bytes: ``next(n)`` gives 1 to n bytes, or none at the end.

    gzip, bz2 and xz files may hold several streams one after another, and zero bytes between and after them, as their
    tools read them. ``trailing`` counts the bytes that follow the last one.
    """

    def __init__(self, packed: Bytes, codec: Codec, member: str | None = None, start: int = 0) -> None:
        self.packed, self.codec, self.member = packed, codec, member
        self.consumed = start  # offset of the next compressed byte that is not yet taken
        self.trailing = 0
        self.done = False
        self._inner = _new(codec)
        self._pending = b""

    def _fail(self, kind: type[Unreadable], what: str) -> Unreadable:
        return kind(
            f"the {self.codec} stream {what}", file=label(self.packed), member=self.member, offset=self.consumed
        )

    def _take(self) -> bytes:
        if self._pending:
            data, self._pending = self._pending, b""
            return data
        data = self.packed.read(self.consumed, min(IN_CHUNK, self.packed.size - self.consumed))
        self.consumed += len(data)
        return data

    def _finish_or_go_on(self) -> None:
        """After the end of one stream: begin the next if one follows, else be done."""
        rest = self._inner.unused_data + self._pending
        self._pending = b""
        zeros = 0
        while self.codec in ("gzip", "bz2", "xz"):
            kept = rest.lstrip(b"\0")
            zeros += len(rest) - len(kept)
            rest = kept
            if len(rest) >= 16 or self.consumed >= self.packed.size:
                if detect(rest) == self.codec:
                    self._pending, self._inner = rest, _new(self.codec)
                    return
                break
            rest += self._take()
        self.trailing = zeros + len(rest) + self.packed.size - self.consumed
        self.done = True

    def next(self, n: int) -> bytes:
        """Up to ``n`` bytes, empty only at the end. Corrupt, Truncated or LimitExceeded when the stream is bad."""
        while not self.done:
            if self._inner.eof:
                self._finish_or_go_on()
                continue
            data = b""
            if self._inner.needs_input:
                if not self._pending and self.consumed >= self.packed.size:
                    raise self._fail(Truncated, "ends too early")
                data = self._take()
            try:
                out = self._inner.decompress(data, min(n, OUT_CHUNK))
            except _damage() as error:
                if "memory" in str(error).lower():
                    raise self._fail(LimitExceeded, f"asks for more than {LZMA_MEMORY >> 20} MiB of memory") from error
                raise self._fail(Corrupt, f"is damaged ({error})") from error
            if out:
                return out
        return b""


class Spool:
    """One unlinked temporary file for all that must be read out of order. It vanishes with the process."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._used = 0

    def reserve(self, nbytes: int) -> int:
        """The offset of ``nbytes`` bytes of room; the file is sparse until they are written."""
        start = self._used
        self._used += nbytes
        return start

    def _fd(self) -> int:
        if self._file is None:
            import tempfile  # here, for it imports a good deal that most files never need

            self._file = tempfile.TemporaryFile(prefix="artifactkit-")  # noqa: SIM115 - lives as long as this object
        return self._file.fileno()

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(self._fd(), view, offset)
                view, offset = view[done:], offset + done
        except OSError as error:
            import tempfile

            raise OutputError(
                f"cannot unpack into the temporary folder: {error.strerror}", file=tempfile.gettempdir(),
                hint="free some space, or set TMPDIR to a larger disk",
            ) from error  # fmt: skip

    def read(self, offset: int, n: int) -> bytes:
        out = b""
        while len(out) < n:
            got = os.pread(self._fd(), n - len(out), offset + len(out))
            if not got:
                raise Unreadable("the temporary file became shorter while it was being read")
            out = out + got if out else got
        return out


class Inflated:
    """A compressed run whose true size is declared elsewhere (a zip directory): random access, one pass when forward.

    Reading forward decompresses as it goes and keeps nothing. Going back to near the start begins a new pass, a few
    times at most; any other step back unpacks into ``spool``, once. The end is checked: size, and CRC-32
    when ``crc`` is given.
    """

    def __init__(
        self, packed: Bytes, codec: Codec, size: int, spool: Spool, crc: int | None = None, member: str | None = None
    ) -> None:
        self.size = size
        self.label, self.packed = label(packed), packed
        self._codec, self._member, self._spool, self._want_crc = codec, member, spool, crc
        self._stream: Stream | None = None
        self._position = self._crc = self._rewinds = 0
        self._spooled: int | None = None  # where in the spool our bytes begin
        self._lock = threading.Lock()

    def _fail(self, what: str, expected: object, found: object) -> Corrupt:
        return Corrupt(what, file=self.label, member=self._member, expected=expected, found=found)

    def _restart(self) -> None:
        self._stream = Stream(self.packed, self._codec, self._member)
        self._position = self._crc = 0

    def _advance(self, n: int) -> bytes:
        assert self._stream is not None
        chunk = self._stream.next(n)
        if not chunk:
            raise self._fail(
                "a compressed member is shorter than declared", f"{self.size} bytes", f"{self._position} bytes"
            )
        self._position += len(chunk)
        if self._want_crc is not None:
            self._crc = zlib.crc32(chunk, self._crc)
        if self._position == self.size:
            if self._stream.next(1):
                raise self._fail("a compressed member is longer than declared", f"{self.size} bytes", "more")
            if self._want_crc is not None and self._crc != self._want_crc:
                raise self._fail("wrong CRC-32", f"{self._want_crc:08x}", f"{self._crc:08x}")
        return chunk

    def read(self, offset: int, n: int) -> bytes:
        if offset < 0 or n < 0 or offset + n > self.size:
            raise Truncated(
                "the data ends too early", file=self.label, member=self._member, offset=max(offset, 0),
                expected=f"{n} bytes", found=f"{max(self.size - max(offset, 0), 0)} bytes",
            )  # fmt: skip
        if n == 0:
            return b""
        with self._lock:
            if self._stream is None:
                self._restart()
            elif self._spooled is None and offset < self._position:
                self._rewinds += 1
                self._restart()
                if offset > OUT_CHUNK or self._rewinds > MAX_PASSES:
                    self._spooled = self._spool.reserve(self.size)
            if self._spooled is not None:
                while self._position < offset + n:
                    at = self._spooled + self._position
                    self._spool.write(at, self._advance(OUT_CHUNK))
                return self._spool.read(self._spooled + offset, n)
            while self._position < offset:
                self._advance(min(OUT_CHUNK, offset - self._position))
            out = bytearray()
            while len(out) < n:
                out += self._advance(n - len(out))
            return bytes(out)


class Spooled:
    """Bytes that were unpacked into the spool, or memory's worth of them."""

    def __init__(self, spool: Spool, start: int, size: int, label: str | None, member: str | None) -> None:
        self.size, self.label = size, label
        self._spool, self._start, self._member = spool, start, member

    def read(self, offset: int, n: int) -> bytes:
        if offset < 0 or n < 0 or offset + n > self.size:
            raise Truncated(
                "the data ends too early", file=self.label, member=self._member, offset=max(offset, 0),
                expected=f"{n} bytes", found=f"{max(self.size - max(offset, 0), 0)} bytes",
            )  # fmt: skip
        return self._spool.read(self._start + offset, n)


def unpack(
    packed: Bytes, codec: Codec, *, start: int = 0, limit: int | None = None, member: str | None = None
) -> tuple[Bytes, int]:
    """Decompress all from ``start`` on; returns the bytes (in memory when few, else in a temporary file) and how many
    compressed bytes follow the end of the stream.

    ``limit`` bounds the result in bytes; without one it may not pass MAX_RATIO times the input (and 256 MiB are free).
    LimitExceeded beyond it.
    """
    bound = max(FREE_BYTES, MAX_RATIO * (packed.size - start)) if limit is None else limit
    stream = Stream(packed, codec, member, start)
    spool, memory, size = Spool(), bytearray(), 0
    while chunk := stream.next(OUT_CHUNK):
        if size + len(chunk) > bound:
            raise LimitExceeded(
                f"the {codec} stream unpacks to more than is allowed", file=label(packed), member=member,
                expected=f"at most {bound} bytes", found=f"{packed.size - start} bytes that unpack to more",
            )  # fmt: skip
        if size + len(chunk) <= IN_MEMORY:
            memory += chunk
        else:
            if memory:
                spool.write(0, bytes(memory))
                memory.clear()
            spool.write(size, chunk)
        size += len(chunk)
    if size <= IN_MEMORY:
        return Memory(bytes(memory), label(packed) or "", member), stream.trailing
    return Spooled(spool, 0, size, label(packed), member), stream.trailing
