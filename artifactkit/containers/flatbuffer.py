"""FlatBuffers, read with bounds: tables, vectors and strings by offset; nothing is built.

Source: "FlatBuffers Internals". Offsets are unsigned and point forward, except from a table to its vtable.
"""

from __future__ import annotations

from ..errors import Corrupt, LimitExceeded
from ..files import Bytes, label

MAX_STRING = 1 << 16
MAX_VECTOR = 1 << 20


class FlatBuffer:
    """One buffer; all positions are offsets from its start. Corrupt for what points outside of it."""

    def __init__(self, data: Bytes) -> None:
        self.data = data

    def _corrupt(self, what: str, at: int) -> Corrupt:
        return Corrupt(what, file=label(self.data), offset=at)

    def number(self, at: int, n: int) -> int:
        if at < 0 or at + n > self.data.size:
            raise self._corrupt("an offset of a FlatBuffer leads out of the file", at)
        return int.from_bytes(self.data.read(at, n), "little")

    def root(self) -> int:
        return self.follow(0)

    def follow(self, at: int) -> int:
        return at + self.number(at, 4)

    def field(self, table: int, index: int) -> int | None:
        """The position of field ``index`` of a table; None when it is left at its default."""
        back = int.from_bytes(self.number(table, 4).to_bytes(4, "little"), "little", signed=True)
        vtable = table - back
        size = self.number(vtable, 2)
        if size < 4 or size % 2:
            raise self._corrupt("an impossible vtable", vtable)
        slot = 4 + 2 * index
        if slot + 2 > size:
            return None
        offset = self.number(vtable + slot, 2)
        return table + offset if offset else None

    def vector(self, table: int, index: int, width: int = 4) -> tuple[int, int]:
        """(position of the first element, their number) of a vector in a field; (0, 0) without one."""
        at = self.field(table, index)
        if at is None:
            return 0, 0
        start = self.follow(at)
        count = self.number(start, 4)
        if count > MAX_VECTOR:
            raise LimitExceeded("a vector out of proportion", file=label(self.data), offset=start, found=count)
        if start + 4 + count * width > self.data.size:
            raise self._corrupt("a vector that reaches past the file", start)
        return start + 4, count

    def string(self, at: int) -> str:
        """The string that the offset at ``at`` points to."""
        start = self.follow(at)
        n = self.number(start, 4)
        if n > MAX_STRING:
            raise LimitExceeded("a name out of proportion", file=label(self.data), offset=start, found=n)
        if start + 4 + n > self.data.size:
            raise self._corrupt("a string that reaches past the file", start)
        return self.data.read(start + 4, n).decode("utf-8", "surrogateescape")
