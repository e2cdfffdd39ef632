"""Protobuf on the wire ("Encoding"): the fields of a message by offset, read forward through one window."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Corrupt, LimitExceeded, Truncated
from ..files import Bytes, label

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
MAX_DEPTH = 100  # messages within messages; protobuf's own limit
MAX_FIELDS = 20_000_000
MAX_STRING = 1 << 16  # of names, paths and operators
WINDOW = 1 << 16


class Wire:
    """Protobuf fields of a run of bytes, read forward through one window."""

    def __init__(self, data: Bytes) -> None:
        self.data, self.size, self.file = data, data.size, label(data)
        self._base, self._window = 0, b""
        self._fields = 0
        self.begin = 0  # where the tag of the field that was given last begins

    def _load(self, at: int, n: int) -> int:
        """Have ``n`` bytes from ``at`` in the window (or all that are left); returns where they begin in it."""
        start = at - self._base
        if start < 0 or start + n > len(self._window):
            self._base, start = at, 0
            self._window = self.data.read(at, min(WINDOW, self.size - at))
        return start

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """(value, offset behind it)"""
        start = self._load(at, 10)
        window, stop = self._window, min(end - self._base, start + 10)
        value = shift = 0
        for i in range(start, min(stop, len(window))):
            byte = window[i]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, self._base + i + 1
            shift += 7
        if shift >= 70:
            raise Corrupt("a number of more than 10 bytes", file=self.file, offset=at)
        raise Truncated("the message ends within a number", file=self.file, offset=at)

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(number, wire type, value or start, end or offset) for each field between two offsets.

        VARINT: (number, 0, value, offset of the field). LENGTH: (number, 2, start, end). The others: where they lie.
        """
        groups: list[int] = []
        while at < end:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise LimitExceeded("more fields than any model has", file=self.file, offset=at)
            begin = at
            start = at - self._base
            window = self._window
            # A tag or a value of one byte is the rule; the way round is for the others.
            if 0 <= start < len(window) and window[start] < 0x80:
                tag, at = window[start], at + 1
            else:
                tag, at = self._varint(at, end)
            number, kind = tag >> 3, tag & 7
            if number == 0 or number > 0x1FFFFFFF:
                raise Corrupt("a field number out of range", file=self.file, offset=begin, found=number)
            if kind == LENGTH:
                start = at - self._base
                if 0 <= start < len(window) and at < end and window[start] < 0x80 and window is self._window:
                    length, at = window[start], at + 1
                else:
                    length, at = self._varint(at, end)
                if length > end - at:
                    if length > 1 << 40 or end < self.size:
                        raise Corrupt(
                            "a field reaches past the end of what it is in", file=self.file, offset=begin,
                            expected=f"at most {end - at} bytes", found=length,
                        )  # fmt: skip
                    raise Truncated(
                        "the file ends within a field", file=self.file, offset=begin,
                        expected=f"{length} bytes", found=f"{end - at} bytes",
                    )  # fmt: skip
                if not groups:
                    self.begin = begin
                    yield number, kind, at, at + length
                at += length
            elif kind == VARINT:
                value, at = self._varint(at, end)
                if not groups:
                    yield number, kind, value, begin
            elif kind in (FIXED64, FIXED32):
                n = 8 if kind == FIXED64 else 4
                if n > end - at:
                    raise Truncated("the message ends within a field", file=self.file, offset=begin)
                if not groups:
                    yield number, kind, at, at + n
                at += n
            elif kind == START_GROUP:  # no field of ONNX is a group; readers step over unknown ones
                groups.append(number)
                if len(groups) > MAX_DEPTH:
                    raise LimitExceeded("groups nested too deeply", file=self.file, offset=begin)
            elif kind == END_GROUP and groups and groups[-1] == number:
                groups.pop()
            else:
                raise Corrupt("an impossible wire type", file=self.file, offset=begin, found=kind)
        if groups:
            raise Corrupt("a group that does not end", file=self.file, offset=end)

    def text(self, start: int, end: int) -> str:
        if end - start > MAX_STRING:
            raise LimitExceeded(
                "a name out of proportion", file=self.file, offset=start,
                expected=f"at most {MAX_STRING} bytes", found=end - start,
            )  # fmt: skip
        at = self._load(start, end - start)
        return self._window[at : at + end - start].decode("utf-8", "surrogateescape")


def signed(value: int) -> int:
    """A varint as the int64 that it stands for."""
    return value - (1 << 64) if value >> 63 else value
