"""R's serialized objects (.rds, .rda, .RData), XDR and text form: those that hold code, or run it when they are read.

Source: "Serialization Formats" in R Internals, and src/main/serialize.c. A promise is an expression that R evaluates
when its value is first asked for; before R 4.4.0 a file could hold one (CVE-2024-27322). Compression is ``packed``'s.
"""

from __future__ import annotations

from ..errors import Corrupt, LimitExceeded, Truncated, Unreadable
from ..files import Bytes
from .model import Rule
from .piece import Piece

PROMISE = Rule(
    "r-promise", "malicious", "a file of R holds a promise",
    "R evaluates the expression in it as soon as the object is used, or printed",
    "do not read it; R 4.4.0 and later refuse such files",
)  # fmt: skip
CODE = Rule(
    "r-code", "suspicious", "a file of R holds functions or byte code",
    "reading does not run them, calling does; byte code in a file can break R's memory",
    "look at them before you call them: print() shows their source",
)  # fmt: skip
POINTER = Rule(
    "r-external", "suspicious", "a file of R asks for a place in memory or a package's hook",
    "external pointers, weak references and persistent names are rebuilt by code of the reading process",
    "save the data in it as a plain table",
)  # fmt: skip
RULES = (PROMISE, CODE, POINTER)

HEADERS = (b"RDX2\n", b"RDX3\n", b"RDA2\n", b"RDA3\n", b"RDB2\n", b"RDB3\n")
MAX_ITEMS = 20_000_000
# SEXPTYPE
SYMBOL, PAIRLIST, CLOSURE, ENVIRONMENT, PROMISED, LANGUAGE, SPECIAL, BUILTIN, CHARACTER = range(1, 10)
LOGICAL, INTEGER, REAL, COMPLEX, STRINGS = 10, 13, 14, 15, 16
DOTS, LIST, EXPRESSION, BYTECODE, EXTERNAL, WEAK, RAW, S4 = 17, 19, 20, 21, 22, 23, 24, 25
ALTERNATIVE, ATTRIBUTED_LIST, ATTRIBUTED_LANGUAGE = 238, 239, 240
PERSISTENT, PACKAGE, NAMESPACE = 247, 248, 249
SINGLE = frozenset({0, 241, 242, 250, 251, 252, 253, 254})  # NULL, the global and base environments, missing ...
REFERENCE = 255
FIXED = {LOGICAL: 4, INTEGER: 4, REAL: 8, COMPLEX: 16, RAW: 1}


def looks_like(first: bytes) -> bool:
    """Whether the bytes begin as a file of R does: ``X``, ``A`` or ``B`` and a version, or a workspace's header."""
    if first.startswith(HEADERS):
        return True
    if first[:2] == b"X\n":
        return first[2:6] in (b"\0\0\0\2", b"\0\0\0\3")
    if first[:2] == b"B\n":
        return first[2:6] in (b"\2\0\0\0", b"\3\0\0\0")
    lines = first[:40].split(b"\n")  # then the versions of R that wrote it, and that can read it: 262657
    return len(lines) > 4 and lines[0] == b"A" and lines[1] in (b"2", b"3") and all(
        len(line) >= 5 and line.isdigit() for line in lines[2:4]
    )  # fmt: skip


def scan(piece: Piece, kind: str) -> None:
    start = 5 if piece.first.startswith(HEADERS) else 0
    form = piece.data.read(start, 2)
    if form not in (b"X\n", b"A\n", b"B\n"):
        raise Corrupt("no form of R's serialization that is known", offset=start, found=form.hex())
    reader = (_Text if form == b"A\n" else _Numbers)(piece.data, start + 2, "little" if form == b"B\n" else "big")
    _Walk(piece, reader).go()


class _Numbers:
    """The XDR form, and the same in the byte order of the machine."""

    def __init__(self, data: Bytes, at: int, order: str) -> None:
        self.data, self.at, self.order = data, at, order
        self._base, self._window = 0, b""

    def take(self, n: int) -> bytes:
        if n > self.data.size - self.at:
            raise Truncated("the file ends within an object", offset=self.at, expected=f"{n} bytes")
        start = self.at - self._base
        if start < 0 or start + n > len(self._window):
            self._base, start = self.at, 0
            self._window = self.data.read(self.at, max(n, min(1 << 16, self.data.size - self.at)))
        self.at += n
        return self._window[start : start + n]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big" if self.order == "big" else "little", signed=True)

    def skip(self, kind: int, count: int) -> None:
        n = FIXED[kind] * count
        if n > self.data.size - self.at:
            raise Truncated("the file ends within a vector", offset=self.at, expected=f"{n} bytes")
        self.at += n

    def characters(self, count: int) -> bytes:
        if count > self.data.size - self.at:
            raise Truncated("the file ends within a string", offset=self.at, expected=f"{count} bytes")
        if count > 1 << 16:
            self.at += count
            return b""
        return self.take(count)


class _Text(_Numbers):
    """The text form: one value a line."""

    def line(self) -> bytes:
        out = b""
        while True:
            start = self.at - self._base
            if not 0 <= start < len(self._window):
                if self.at >= self.data.size:
                    raise Truncated("the file ends within an object", offset=self.at)
                self._base, start = self.at, 0
                self._window = self.data.read(self.at, min(1 << 16, self.data.size - self.at))
            end = self._window.find(b"\n", start)
            out += self._window[start : end if end >= 0 else len(self._window)]
            self.at = self._base + (end + 1 if end >= 0 else len(self._window))
            if end >= 0:
                return out
            if len(out) > 1 << 24:
                raise LimitExceeded("a line out of proportion", offset=self.at)

    def number(self) -> int:
        text = self.line().strip()
        if text == b"NA":
            return -(1 << 31)
        if not text.lstrip(b"-").isdigit() or len(text) > 12:
            raise Corrupt("no number where one should be", offset=self.at, found=repr(text[:20]))
        return int(text)

    def skip(self, kind: int, count: int) -> None:
        for _ in range(count * (2 if kind == COMPLEX else 1)):
            self.line()

    def characters(self, count: int) -> bytes:
        return self.line()


class _Walk:
    def __init__(self, piece: Piece, reader: _Numbers) -> None:
        self.piece, self.reader = piece, reader
        self.items = 0

    def go(self) -> None:
        reader = self.reader
        version = reader.number()
        if version not in (2, 3):
            raise Unreadable(f"R's serialization, version {version}")
        reader.number()
        reader.number()
        if version == 3:
            reader.characters(_length(reader.number(), reader))
        # What is still to be read, the next one last: "item", or a number of items.
        waiting = [1]
        while waiting:
            waiting[-1] -= 1
            if waiting[-1] == 0:
                waiting.pop()
            more = self.item()
            if more:
                waiting.append(more)

    def item(self) -> int:
        """Read one item's head; returns how many items follow that belong to it."""
        reader, at = self.reader, self.reader.at
        self.items += 1
        if self.items > MAX_ITEMS:
            raise LimitExceeded("more objects than are looked at", offset=at)
        flags = reader.number()
        kind, attributes, tag = flags & 0xFF, bool(flags & 0x200), bool(flags & 0x400)
        if kind in SINGLE:
            return 0
        if kind == REFERENCE:
            if flags >> 8 == 0:
                reader.number()
            return 0
        if kind in (PAIRLIST, LANGUAGE, CLOSURE, PROMISED, DOTS):
            if kind == PROMISED:
                self.piece.find(PROMISE, "a promise", offset=at)
            elif kind == CLOSURE:
                self.piece.find(CODE, "a function", offset=at)
            return int(attributes) + int(tag) + 2
        if kind in (PERSISTENT, PACKAGE, NAMESPACE):
            if kind == PERSISTENT:
                self.piece.find(POINTER, "a persistent name", offset=at)
            reader.number()
            return self.count()
        if kind == SYMBOL:
            return 1
        if kind == ENVIRONMENT:
            reader.number()
            return 4
        if kind in (SPECIAL, BUILTIN):
            name = reader.characters(self.count()).decode("latin-1")
            self.piece.find(CODE, f"the internal function {name[:100]}", offset=at, name=name[:100])
            return 0
        if kind == CHARACTER:
            length = reader.number()
            if length >= 0:
                reader.characters(length)
            elif length != -1:
                raise Corrupt("a string of negative length", offset=at)
            return 0
        return self.vector(kind, at) + int(attributes)

    def count(self) -> int:
        return _length(self.reader.number(), self.reader)

    def vector(self, kind: int, at: int) -> int:
        reader = self.reader
        if kind in FIXED:
            reader.skip(kind, self.count())
            return 0
        if kind in (STRINGS, LIST, EXPRESSION):
            return self.count()
        if kind == EXTERNAL:
            self.piece.find(POINTER, "an external pointer", offset=at)
            return 2
        if kind == WEAK:
            self.piece.find(POINTER, "a weak reference", offset=at)
            return 0
        if kind == S4:
            return 0
        if kind == ALTERNATIVE:
            return 3
        if kind in (ATTRIBUTED_LIST, ATTRIBUTED_LANGUAGE, BYTECODE):
            self.piece.find(CODE, "byte code", offset=at)
            raise Unreadable("R's byte code is not read", offset=at)
        raise Corrupt(f"an object of unknown kind {kind}", offset=at)


def _length(n: int, reader: _Numbers) -> int:
    if n == -1:  # long vectors: two halves
        n = (reader.number() << 32) + (reader.number() & 0xFFFF_FFFF)
    if n < 0 or n > reader.data.size - reader.at:
        raise Corrupt("a length that the file cannot have", offset=reader.at, found=n)
    return n
