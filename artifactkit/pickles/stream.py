"""The bytes under a pickle machine: a bounded window that moves forward over data of any size."""

from __future__ import annotations

from ..errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated
from ..files import Bytes, label
from .opcodes import opcode_name

WINDOW = 64 << 10


class Stream:
    """Reads opcode arguments from ``data``, knows where it is, and makes the errors that say so."""

    def __init__(self, data: Bytes, start: int, file: str | None, member: str | None) -> None:
        self.data = data
        self.size = data.size
        self.file = file if file is not None else label(data)
        self.member = member
        self._buf = b""
        self._base = start  # offset of _buf[0]
        self._pos = 0  # within _buf
        self.at = start  # offset of the opcode being interpreted
        self.code = -1  # and its code

    @property
    def position(self) -> int:
        """Offset of the next byte to be read."""
        return self._base + self._pos

    @position.setter
    def position(self, offset: int) -> None:
        if not 0 <= offset <= self.size:
            raise Truncated(
                "a position outside the data", file=self.file, member=self.member, offset=offset,
                expected=f"at most {self.size}",
            )  # fmt: skip
        self._base, self._buf, self._pos = offset, b"", 0

    @property
    def opcode(self) -> str:
        """Name of the opcode being interpreted."""
        return opcode_name(self.code)

    @property
    def left(self) -> int:
        """Bytes from here to the end of the data."""
        return self.size - self._base - self._pos

    def corrupt(self, what: str, expected: object = None, found: object = None) -> Corrupt:
        """An error at the current opcode, to be raised."""
        return Corrupt(
            f"{self.opcode}: {what}", file=self.file, member=self.member, offset=self.at, expected=expected, found=found
        )

    def limit(self, what: str, expected: object = None, found: object = None) -> LimitExceeded:
        """A LimitExceeded at the current opcode, to be raised."""
        return LimitExceeded(
            f"{self.opcode}: {what}", file=self.file, member=self.member, offset=self.at, expected=expected, found=found
        )

    def truncated(self, n: int) -> Truncated:
        return Truncated(
            f"the pickle ends within {self.opcode}", file=self.file, member=self.member, offset=self.at,
            expected=f"{n} more bytes", found=f"{self.left}",
        )  # fmt: skip

    def locate(self, error: ArtifactkitError) -> None:
        """Fill in what a handler, or the data, could not know."""
        error.located(file=self.file, member=self.member)
        if error.offset is None:
            error.offset = self.at

    def _fill(self, n: int) -> None:
        """Make at least ``n`` bytes, and at most a window, available in the buffer; the caller checked ``left``."""
        start = self._base + self._pos
        self._buf = self.data.read(start, max(n, min(WINDOW, self.size - start)))
        self._base, self._pos = start, 0

    def take_bytes(self, n: int) -> bytes:
        """The next ``n`` bytes; Truncated when the data ends first, before anything is allocated."""
        pos = self._pos
        end = pos + n
        if end > len(self._buf):
            if n > self.size - self._base - pos:
                raise self.truncated(n)
            if n > WINDOW:
                out = self.data.read(self._base + pos, n)
                self.position = self._base + pos + n
                return out
            self._fill(n)
            pos, end = 0, n
        self._pos = end
        return self._buf[pos:end]

    def take_uint(self, n: int) -> int:
        """The next ``n`` bytes as an unsigned little-endian number."""
        pos = self._pos
        end = pos + n
        if end <= len(self._buf):  # most arguments are short, and most of the time goes into reading them
            self._pos = end
            return self._buf[pos] if n == 1 else int.from_bytes(self._buf[pos:end], "little")
        return int.from_bytes(self.take_bytes(n), "little")

    def skip(self, n: int) -> int:
        """Pass over ``n`` bytes without reading them; returns where they begin."""
        start = self.position
        if n > self.size - start:
            raise self.truncated(n)
        if self._pos + n <= len(self._buf):
            self._pos += n
        else:
            self.position = start + n
        return start

    def take_line(self, limit: int) -> bytes:
        """Up to the next newline, which is passed over and left out; as long as ``limit`` bytes at most."""
        parts: list[bytes] = []
        length = 0
        while True:
            if self._pos >= len(self._buf):
                if self.left <= 0:
                    raise self.truncated(1)
                self._fill(1)
            end = self._buf.find(b"\n", self._pos)
            part = self._buf[self._pos : end if end >= 0 else len(self._buf)]
            length += len(part)
            if length > limit:
                raise self.limit("a line is too long", expected=f"at most {limit} bytes")
            if end >= 0:
                self._pos = end + 1
                if not parts:
                    return part
                parts.append(part)
                return b"".join(parts)
            self._pos = len(self._buf)
            parts.append(part)
