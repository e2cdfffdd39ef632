"""HDF5 files: groups, links, attributes and how datasets are stored, read with bounds; no element of one is read.

Source: HDF5 File Format Specification 3.0 (sections are named where used). What is read covers files as h5py writes
them by default and those of the newest format with few links and attributes in each group. Links or attributes in a
fractal heap, shared messages and split files raise ``NotCovered``: there only the library can say what is in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import Corrupt, LimitExceeded, Truncated, Unreadable
from ..files import Bytes, label

MAGIC = b"\x89HDF\r\n\x1a\n"
FIRST_PLACES = (0, 512, 1024, 2048)  # and every further power of two (II.A)
MAX_OBJECTS = 500_000
MAX_BLOCK = 16 << 20  # bytes of an object header's chunk, a local heap, a global heap collection
MAX_VALUE = 64 << 20  # bytes of the attributes' values that are handed out
MAX_ELEMENTS = 65_536
# Messages that say nothing about links, attributes or storage (IV.A.2).
PLAIN = frozenset({0x00, 0x01, 0x03, 0x04, 0x05, 0x09, 0x0A, 0x0B, 0x0D, 0x0E, 0x12, 0x13, 0x16, 0x17, 0x18})
LINK_INFO, EXTERNAL_FILES, LAYOUT, LINK = 0x02, 0x07, 0x08, 0x06
ATTRIBUTE, CONTINUATION, SYMBOL_TABLE, ATTRIBUTE_INFO = 0x0C, 0x10, 0x11, 0x15
SHARED = 0x02  # flag of a message: it is elsewhere
VIRTUAL = 3  # class of a layout
EXTERNAL = 64  # type of a link


class NotCovered(Unreadable):
    """A feature of HDF5 that is not read here."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of ``kind`` soft, external or user-defined; hard ones are followed. ``file`` is another file's name."""

    kind: str
    path: str
    file: str
    target: str
    offset: int


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute whose value is text or bytes; arrays of strings are given one by one."""

    path: str
    name: str
    value: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Storage:
    """A dataset whose elements lie in other files (``kind`` external), or in other datasets (virtual)."""

    kind: str
    path: str
    files: tuple[str, ...]
    offset: int


Found = Link | Attribute | Storage


def superblock_at(data: Bytes, first: bytes, deeper: bool = False) -> int | None:
    """The offset of the superblock, or None. ``deeper``: look beyond ``first``, as the library does."""
    for at in FIRST_PLACES:
        if first.startswith(MAGIC, at):
            return at
    at = 4096
    while deeper and at + len(MAGIC) <= data.size:
        if data.read(at, len(MAGIC)) == MAGIC:
            return at
        at *= 2
    return None


def walk(data: Bytes, base: int) -> Iterator[Found]:
    """All that is found from the root group on. Raises Corrupt, Truncated, LimitExceeded, or NotCovered."""
    return _Reader(data, base).walk()


@dataclass(slots=True)
class _Task:
    address: int
    path: str


@dataclass(slots=True)
class _Reader:
    data: Bytes
    base: int
    offsets: int = 8
    lengths: int = 8
    seen: set[int] = field(default_factory=set)
    tasks: list[_Task] = field(default_factory=list)
    spent: int = 0
    end: int = 0  # where the superblock says that the file ends, from ``base`` on

    # -- bytes -------------------------------------------------------------------------------------------------------

    def corrupt(self, what: str, at: int) -> Corrupt:
        return Corrupt(what, file=label(self.data), offset=at)

    def read(self, address: int, n: int) -> bytes:
        if n > MAX_BLOCK:
            raise LimitExceeded("a block of an HDF5 file is out of proportion", file=label(self.data),
                                offset=self.base + address, found=n)  # fmt: skip
        return self.data.read(self.base + address, n)

    def number(self, raw: bytes, at: int, n: int) -> int:
        if at + n > len(raw):
            raise self.corrupt("a message of an HDF5 file is too short", self.base)
        return int.from_bytes(raw[at : at + n], "little")

    def address(self, raw: bytes, at: int) -> int | None:
        """An address; None for the undefined one, all bits set."""
        value = self.number(raw, at, self.offsets)
        return None if value == (1 << 8 * self.offsets) - 1 else value

    def once(self, address: int) -> bool:
        """Whether this block was not visited before."""
        if address in self.seen:
            return False
        if len(self.seen) >= MAX_OBJECTS:
            raise LimitExceeded("more objects in an HDF5 file than are looked at", file=label(self.data))
        self.seen.add(address)
        return True

    # -- the file ----------------------------------------------------------------------------------------------------

    def walk(self) -> Iterator[Found]:
        self.tasks.append(_Task(self._root(), "/"))
        while self.tasks:
            task = self.tasks.pop()
            if self.once(task.address):
                yield from self._object(task)
        if self.data.size < self.base + self.end:  # the library refuses the file as well
            raise Truncated("the HDF5 file is cut short", file=label(self.data),
                            expected=f"{self.base + self.end} bytes", found=f"{self.data.size} bytes")  # fmt: skip

    def _root(self) -> int:
        """The address of the root group's object header (II.A, the superblock)."""
        head = self.read(0, min(128, self.data.size - self.base))
        version = self.number(head, 8, 1)
        if version in (0, 1):
            self._sizes(self.number(head, 13, 1), self.number(head, 14, 1))
            at = 24 + (4 if version == 1 else 0)
            if self.address(head, at + 3 * self.offsets) is not None:
                raise NotCovered("an HDF5 file in several parts", file=label(self.data))
            self._ends(head, at)
            root = self.address(head, at + 5 * self.offsets)
        elif version in (2, 3):
            self._sizes(self.number(head, 9, 1), self.number(head, 10, 1))
            if self.address(head, 12 + self.offsets) is not None:
                raise NotCovered("an HDF5 file with an extension of its superblock", file=label(self.data))
            self._ends(head, 12)
            root = self.address(head, 12 + 3 * self.offsets)
        else:
            raise NotCovered(f"an HDF5 superblock of version {version}", file=label(self.data))
        if root is None:
            raise self.corrupt("an HDF5 file without a root group", self.base)
        return root

    def _ends(self, head: bytes, at: int) -> None:
        """From the superblock's base address and end of file: both are counted from the same place."""
        self.end = (self.address(head, at + 2 * self.offsets) or 0) - (self.address(head, at) or 0)

    def _sizes(self, offsets: int, lengths: int) -> None:
        if offsets not in (2, 4, 8) or lengths not in (2, 4, 8):
            raise self.corrupt("impossible sizes in the superblock", self.base)
        self.offsets, self.lengths = offsets, lengths

    def _object(self, task: _Task) -> Iterator[Found]:
        for kind, flags, raw, at in self._messages(task.address):
            if kind in PLAIN:
                continue
            if flags & SHARED:
                raise NotCovered("a shared message", file=label(self.data), offset=at)
            if kind == LINK:
                yield from self._link(raw, task.path, at)
            elif kind == ATTRIBUTE:
                yield from self._attribute(raw, task.path, at)
            elif kind in (LINK_INFO, ATTRIBUTE_INFO):
                self._dense(kind, raw, at)
            elif kind == SYMBOL_TABLE:
                yield from self._symbols(raw, task.path)
            elif kind == EXTERNAL_FILES:
                yield Storage("external", task.path, tuple(self._external_files(raw)), at)
            elif kind == LAYOUT:
                yield from self._layout(raw, task.path, at)
            else:
                raise NotCovered(f"a message of type {kind:#x}", file=label(self.data), offset=at)

    # -- object headers (IV.A.1) -------------------------------------------------------------------------------------

    def _messages(self, address: int) -> Iterator[tuple[int, int, bytes, int]]:
        """(type, flags, body, offset in the file) of each message, continuations included."""
        head = self.read(address, min(16, self.data.size - self.base - address))
        newer = head[:4] == b"OHDR"
        order = False
        if newer:
            flags, at = self.number(head, 5, 1), 6
            order = bool(flags & 4)
            at += (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
            width = 1 << (flags & 3)
            size = int.from_bytes(self.read(address + at, width), "little")
            chunks = [(address + at + width, size)]
        elif head[:1] == b"\x01":
            chunks = [(address + 16, self.number(head, 8, 4))]
        else:
            raise self.corrupt("no object header where one should be", self.base + address)
        visited: set[int] = set()
        while chunks:
            start, size = chunks.pop(0)
            if start in visited:
                raise self.corrupt("an object header that goes in circles", self.base + start)
            visited.add(start)
            block, at = self.read(start, size), 0
            front = 4 + (2 if order else 0) if newer else 8
            while at + front <= size:
                if newer:
                    kind, length, flags = block[at], self.number(block, at + 1, 2), block[at + 3]
                else:
                    kind, length, flags = self.number(block, at, 2), self.number(block, at + 2, 2), block[at + 4]
                body = block[at + front : at + front + length]
                if len(body) < length:
                    raise self.corrupt("a message reaches past its object header", self.base + start + at)
                if kind == CONTINUATION:
                    place, n = self.address(body, 0), self.number(body, self.offsets, self.lengths)
                    if place is None or len(visited) + len(chunks) > 10_000:
                        raise self.corrupt("an object header without an end", self.base + start + at)
                    # Newer ones: signature before, checksum behind.
                    chunks.append((place + 4, n - 8) if newer and n >= 8 else (place, n))
                else:
                    yield kind, flags, body, self.base + start + at
                at += front + length

    # -- links (IV.A.2.c and g, III.B and III.D) -----------------------------------------------------------------------

    def _dense(self, kind: int, raw: bytes, at: int) -> None:
        flags = self.number(raw, 1, 1)
        width = (8 if kind == LINK_INFO else 2) if flags & 1 else 0
        if self.address(raw, 2 + width) is not None:
            what = "links" if kind == LINK_INFO else "attributes"
            raise NotCovered(f"{what} of a group in a fractal heap", file=label(self.data), offset=at)

    def _link(self, raw: bytes, path: str, offset: int) -> Iterator[Link]:
        flags, at, kind = self.number(raw, 1, 1), 2, 0
        if flags & 0x08:
            kind, at = self.number(raw, at, 1), at + 1
        at += (8 if flags & 0x04 else 0) + (1 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        length, at = self.number(raw, at, width), at + width
        name, at = _text(raw[at : at + length]), at + length
        if kind == 0:
            target = self.address(raw, at)
            if target is not None:
                self._follow(target, path, name)
            return
        length = self.number(raw, at, 2)
        value = raw[at + 2 : at + 2 + length]
        if kind == 1:
            yield Link("soft", _join(path, name), "", _text(value), offset)
        elif kind == EXTERNAL:
            file, _, target_name = value[1:].partition(b"\0")
            yield Link("external", _join(path, name), _text(file), _text(target_name.rstrip(b"\0")), offset)
        else:
            yield Link("user-defined", _join(path, name), "", _text(value[:200]), offset)

    def _follow(self, address: int, path: str, name: str) -> None:
        if address not in self.seen:
            self.tasks.append(_Task(address, _join(path, name)))

    def _symbols(self, raw: bytes, path: str) -> Iterator[Link]:
        """An older group: a B-tree of symbol nodes, names in a local heap."""
        tree, heap_at = self.address(raw, 0), self.address(raw, self.offsets)
        if tree is None or heap_at is None:
            return
        heap = self._local_heap(heap_at)
        waiting = [tree]
        entry = 2 * self.offsets + 24
        while waiting:
            address = waiting.pop()
            if not self.once(address):
                continue
            head = self.read(address, 8)
            if head[:4] == b"SNOD":
                count = self.number(head, 6, 2)
                table = self.read(address + 8, count * entry)
                for i in range(count):
                    name = _string(heap, self.number(table, i * entry, self.offsets))
                    where = i * entry + 2 * self.offsets
                    if self.number(table, where, 4) == 2:
                        target = _string(heap, self.number(table, where + 8, 4))
                        yield Link("soft", _join(path, name), "", target, self.base + address)
                        continue
                    place = self.address(table, i * entry + self.offsets)
                    if place is not None:
                        self._follow(place, path, name)
            elif head[:4] == b"TREE" and head[4] == 0:
                count, step = self.number(head, 6, 2), self.lengths + self.offsets
                table = self.read(address + 8 + 2 * self.offsets, count * step + self.lengths)
                children = (self.address(table, i * step + self.lengths) for i in range(count))
                waiting.extend(child for child in children if child is not None)
            else:
                raise self.corrupt("no node of a group where one should be", self.base + address)

    def _local_heap(self, address: int) -> bytes:
        head = self.read(address, 8 + 2 * self.lengths + self.offsets)
        place = self.address(head, 8 + 2 * self.lengths)
        if head[:4] != b"HEAP" or place is None:
            raise self.corrupt("no local heap where one should be", self.base + address)
        return self.read(place, self.number(head, 8, self.lengths))

    # -- storage (IV.A.2.h and i) --------------------------------------------------------------------------------------

    def _external_files(self, raw: bytes) -> Iterator[str]:
        used, heap_at = self.number(raw, 6, 2), self.address(raw, 8)
        heap = self._local_heap(heap_at) if heap_at is not None else b""
        for i in range(used):
            yield _string(heap, self.number(raw, 8 + self.offsets + i * 3 * self.lengths, self.lengths))

    def _layout(self, raw: bytes, path: str, offset: int) -> Iterator[Storage]:
        version = self.number(raw, 0, 1)
        kind = self.number(raw, 2 if version < 3 else 1, 1)
        if kind > VIRTUAL:
            raise NotCovered(f"a layout of class {kind}", file=label(self.data), offset=offset)
        if kind == VIRTUAL:
            place, index = self.address(raw, 2), self.number(raw, 2 + self.offsets, 4)
            value = self._global(place, index) if place is not None else b""
            yield Storage("virtual", path, self._sources(value), offset)

    def _sources(self, value: bytes) -> tuple[str, ...]:
        """The files of a virtual dataset, "." for this one; none where there are several mappings, or none is read.

        Version 1 has a byte of flags before each mapping: 4 says that the source is in this file, and no name follows.
        """
        if len(value) < 2 + self.lengths or self.number(value, 1, self.lengths) != 1:
            return ()
        at = 1 + self.lengths
        if value[0] == 0:
            return (_string(value, at),)
        if value[0] == 1 and value[at] & 7 == 4:
            return (".",)
        return (_string(value, at + 1),) if value[0] == 1 and value[at] & 7 == 0 else ()

    # -- attributes (IV.A.2.m) -----------------------------------------------------------------------------------------

    def _attribute(self, raw: bytes, path: str, offset: int) -> Iterator[Attribute]:
        version, flags = self.number(raw, 0, 1), self.number(raw, 1, 1)
        n_name, n_type, n_space = (self.number(raw, at, 2) for at in (2, 4, 6))
        at = 9 if version == 3 else 8
        name = _text(raw[at : at + n_name])
        if version == 1:  # each part is padded
            n_name, n_type, n_space = (-(-n // 8) * 8 for n in (n_name, n_type, n_space))
        kind_at = at + n_name
        space_at = kind_at + n_type
        value_at = space_at + n_space
        if version > 1 and flags & 3:
            raise NotCovered("an attribute of a named type", file=label(self.data), offset=offset)
        kind, size = self.number(raw, kind_at, 1) & 15, self.number(raw, kind_at + 4, 4)
        count = min(self._count(raw[space_at:value_at]), MAX_ELEMENTS)
        if kind in (3, 4, 5):  # a string, bits, opaque bytes
            for i in range(count):
                value = raw[value_at + i * size : value_at + (i + 1) * size]
                yield self._value(path, name, value, offset)
        elif kind == 9:  # of variable length
            step = 8 + self.offsets
            for i in range(count):
                place = value_at + i * step
                if place + step > len(raw):
                    break
                length, heap = self.number(raw, place, 4), self.address(raw, place + 4)
                if length and heap:
                    index = self.number(raw, place + 4 + self.offsets, 4)
                    yield self._value(path, name, self._global(heap, index)[:length], offset)

    def _value(self, path: str, name: str, value: bytes, offset: int) -> Attribute:
        self.spent += len(value)
        if self.spent > MAX_VALUE:
            raise LimitExceeded("attributes out of proportion", file=label(self.data), offset=offset)
        return Attribute(path, name, value.rstrip(b"\0"), offset)

    def _count(self, space: bytes) -> int:
        version, rank = self.number(space, 0, 1), self.number(space, 1, 1)
        if version == 2 and self.number(space, 3, 1) == 2:
            return 0
        start, count = (8 if version == 1 else 4), 1
        for i in range(rank):
            count *= self.number(space, start + i * self.lengths, self.lengths)
            if count > MAX_ELEMENTS:
                return MAX_ELEMENTS
        return count

    def _global(self, address: int, index: int) -> bytes:
        """An object of a global heap collection (III.E)."""
        head = self.read(address, 8 + self.lengths)
        if head[:4] != b"GCOL":
            raise self.corrupt("no global heap where one should be", self.base + address)
        size, at = self.number(head, 8, self.lengths), 8 + self.lengths
        self.spent += at
        while at + 8 + self.lengths <= size:
            entry = self.read(address + at, 8 + self.lengths)
            n = self.number(entry, 8, self.lengths)
            found = self.number(entry, 0, 2)
            if found == index:
                return self.read(address + at + 8 + self.lengths, n)
            if found == 0:
                break
            at += 8 + self.lengths + -(-n // 8) * 8
            self.spent += 16
            if self.spent > MAX_VALUE:
                raise LimitExceeded("a global heap that is gone through too often", file=label(self.data))
        raise self.corrupt("an entry of a global heap is missing", self.base + address)


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _string(heap: bytes, at: int) -> str:
    end = heap.find(b"\0", at)
    return heap[at : end if end >= 0 else len(heap)].decode("utf-8", "surrogateescape")


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"[-400:]
