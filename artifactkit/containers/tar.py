"""Tar archives (ustar, pax, GNU long names), listed with bounds; nothing is ever extracted.

Sources: POSIX.1-2017 ``pax`` (ustar interchange format, pax headers), GNU tar manual "Basic Tar Format".
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Corrupt, LimitExceeded, Truncated, Unreadable
from ..files import Bytes, label, part

BLOCK = 512
MAX_MEMBERS = 400_000
MAX_NAME = 64 << 10  # bytes of a GNU long name
MAX_PAX = 1 << 20  # bytes of a pax header
KINDS = {
    b"0": "file", b"\0": "file", b"7": "file", b"1": "hard link", b"2": "symbolic link", b"3": "character device",
    b"4": "block device", b"5": "folder", b"6": "FIFO", b"S": "sparse file",
}  # fmt: skip


class TarMember(NamedTuple):
    """One entry: ``kind`` in words, the data's place and size in bytes, and for links where they point."""

    name: str
    kind: str
    offset: int
    size: int
    header_offset: int
    link: str = ""


def is_tar(head: bytes) -> bool:
    """Whether the first 512 bytes are a tar header: the checksum fits, and the name is not empty."""
    if len(head) < BLOCK or head[0] == 0:
        return False
    claimed = _number(head[148:156])
    return claimed is not None and claimed == _checksum(head[:BLOCK])


def _checksum(header: bytes) -> int:
    return sum(header) - sum(header[148:156]) + 8 * 0x20


def _number(field: bytes) -> int | None:
    """A numeric field: octal text, or base 256 when the first bit is set (GNU). None when it is neither."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    if not text:
        return 0
    if text.strip(b"01234567"):
        return None
    return int(text, 8)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


class Tar:
    """The list of a tar archive's members, made by walking its headers. Corrupt, Truncated or LimitExceeded."""

    def __init__(self, file: Bytes) -> None:
        self.file = file
        self.path = label(file)
        self.members: list[TarMember] = []
        self.trailing = 0  # bytes after the end mark that are not zero padding, as far as blocks go
        self._walk()

    def _corrupt(self, what: str, offset: int, **more: object) -> Corrupt:
        return Corrupt(what, file=self.path, offset=offset, **more)  # type: ignore[arg-type]

    def _walk(self) -> None:
        at = 0
        shared: dict[str, str] = {}  # of global pax headers
        own: dict[str, str] = {}  # of the pax header just before a member
        long_name = long_link = ""
        while at < self.file.size:
            if self.file.size - at < BLOCK:
                raise Truncated("a tar header is cut short", file=self.path, offset=at)
            header = self.file.read(at, BLOCK)
            if not header.strip(b"\0"):
                break  # the end mark; one block of zeros is taken as well as two
            claimed = _number(header[148:156])
            if claimed != _checksum(header):
                raise self._corrupt("a tar header has a wrong checksum", at, expected=_checksum(header), found=claimed)
            size = _number(header[124:136])
            if size is None:
                raise self._corrupt("a tar member's size is no number", at, found=header[124:136])
            kind = header[156:157]
            data_at = at + BLOCK
            pax_size = {**shared, **own}.get("size")
            if kind not in b"xgLK" and pax_size is not None:
                if not pax_size.isascii() or not pax_size.isdigit() or len(pax_size) > 19:
                    raise self._corrupt("a tar member's size is no number", at, found=pax_size)
                size = int(pax_size)
            holds_data = KINDS.get(kind, "other") in ("file", "sparse file", "other") or kind in b"xgLK"
            size = size if holds_data else 0
            if data_at + size > self.file.size:
                raise Truncated(
                    "the file ends within a tar member", file=self.path, member=_text(header[:100]), offset=data_at,
                    expected=f"{size} bytes", found=f"{self.file.size - data_at} bytes",
                )  # fmt: skip
            if kind in (b"L", b"K"):
                if size > MAX_NAME:
                    raise LimitExceeded("a tar member's name is too long", file=self.path, offset=at, found=size)
                if kind == b"L":
                    long_name = _text(self.file.read(data_at, size))
                else:
                    long_link = _text(self.file.read(data_at, size))
            elif kind in (b"x", b"g"):
                if size > MAX_PAX:
                    raise LimitExceeded("a pax header is too long", file=self.path, offset=at, found=size)
                (own if kind == b"x" else shared).update(self._pax(data_at, size))
            else:
                name = _text(header[:100])
                if header[257:263] == b"ustar\0" and header[345:346] != b"\0":
                    name = _text(header[345:500]) + "/" + name
                both = {**shared, **own}
                name = both.get("path", long_name or name)
                link = both.get("linkpath", long_link or _text(header[157:257]))
                sparse = any(key.startswith("GNU.sparse.") for key in both)
                what = "sparse file" if sparse else KINDS.get(kind, f"type {kind!r}")
                if len(self.members) >= MAX_MEMBERS:
                    raise LimitExceeded("too many members in a tar archive", file=self.path, offset=at)
                self.members.append(TarMember(name, what, data_at, size, at, link))
                own, long_name, long_link = {}, "", ""
            at = data_at + (size + BLOCK - 1) // BLOCK * BLOCK
        at = min(at, self.file.size)
        rest = self.file.read(at, min(self.file.size - at, 1 << 20))
        self.trailing = len(rest.strip(b"\0"))

    def _pax(self, at: int, size: int) -> dict[str, str]:
        """Records ``LENGTH KEY=VALUE\\n``."""
        data = self.file.read(at, size)
        out: dict[str, str] = {}
        place = 0
        while place < len(data):
            digits, space, _ = data[place : place + 8].partition(b" ")
            length = int(digits) if digits.isdigit() else 0
            record = data[place : place + length]
            if not space or length < len(digits) + 3 or len(record) != length or not record.endswith(b"\n"):
                raise self._corrupt("a pax record is malformed", at + place)
            key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
            if not equals:
                raise self._corrupt("a pax record is malformed", at + place)
            out[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
            place += length
        return out

    def __contains__(self, name: str) -> bool:
        return any(m.name == name for m in self.members)

    def member_bytes(self, name: str) -> Bytes:
        """The data of the only member called ``name``; Corrupt when there is none or a second, Unreadable for links,
        devices and sparse files."""
        found = [m for m in self.members if m.name == name]
        if len(found) != 1:
            what = "the archive lacks a member" if not found else "two members have one name"
            raise Corrupt(what, file=self.path, member=name, found=f"{len(found)} members of this name")
        member = found[0]
        if member.kind != "file":
            raise Unreadable(
                "a tar member is no regular file", file=self.path, member=name, offset=member.header_offset,
                expected="a regular file", found=f"a {member.kind}" + (f" to {member.link}" if member.link else ""),
            )  # fmt: skip
        return part(self.file, member.offset, member.size, name)
