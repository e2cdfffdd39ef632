"""Every run of bytes in a zip archive that some reader would take for a member, by directory or by local header."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..containers.zip import Zip
from ..containers.zip_check import descriptor_size
from ..containers.zip_records import (
    DESCRIPTOR,
    EOCD,
    EOCD64,
    EOCD64_LOCATOR,
    EOCD_MAGIC,
    LOCAL,
    LOCAL_MAGIC,
    MASK32,
    UNICODE_PATH,
    Member,
    decode_name,
    extra_fields,
    widen,
)
from ..errors import ArtifactkitError, Corrupt
from ..files import Bytes, part

SWEEP = 256 << 20  # bytes that are searched for local headers where no directory leads


class Run(NamedTuple):
    """Packed bytes at ``offset``; ``size`` once unpacked as far as is said, ``crc`` None where it is not known."""

    name: str
    method: int
    offset: int
    packed: int
    size: int
    crc: int | None
    hidden: bool = False

    @property
    def key(self) -> tuple[int, int, int]:
        return self.offset, self.method, self.packed


def runs_of(archive: Zip, member: Member) -> list[Run]:
    """The member as the directory has it, and as its local header has it where that differs."""
    size = archive.file.size
    try:
        head = archive.local(member)
    except Corrupt:
        # Readers that do not look at the local header's mark take the data from where it should be.
        begin = member.header_offset + LOCAL.size + len(member.raw_name)
        if begin >= size:
            return []
        packed = min(member.packed_size, size - begin)
        return [Run(member.name, member.method, begin, packed, member.size, None, hidden=True)]
    packed = min(member.packed_size, size - head.data_offset)
    out = [Run(member.name, member.method, head.data_offset, packed, member.size, member.crc)]
    other = min(head.packed_size, size - head.data_offset)
    known = head.packed_size not in (0, MASK32)
    if head.method != member.method or (known and other != packed) or head.raw_name != member.raw_name:
        crc = head.crc or None
        out.append(
            Run(decode_name(head.raw_name), head.method, head.data_offset, other if known else packed,
                head.size if known else member.size, crc, hidden=True)
        )  # fmt: skip
    return out


def local_run(data: Bytes, at: int) -> Run | None:
    """What the local header at ``at`` describes, for a reader that goes from header to header."""
    if at + LOCAL.size > data.size:
        return None
    magic, _, _, method, _, _, crc, packed, size, n_name, n_extra = LOCAL.unpack(data.read(at, LOCAL.size))
    begin = at + LOCAL.size + n_name + n_extra
    if magic != LOCAL_MAGIC or begin > data.size:
        return None
    rest = data.read(at + LOCAL.size, n_name + n_extra)
    wide = widen(rest[n_name:], [size, packed])
    size, packed = wide if wide is not None else (size, packed)
    if packed in (0, MASK32):  # a data descriptor follows: all that is left, for the unpacking finds its own end
        packed = data.size - begin
    return Run(decode_name(rest[:n_name]), method, begin, min(packed, data.size - begin), size, crc or None, True)


def hidden_runs(data: Bytes, start: int, end: int) -> Iterator[Run]:
    """What local headers between ``start`` and ``end`` describe, whatever lies between them."""
    at, tail = start, b""
    end = min(end, start + SWEEP)
    while at < end:
        piece = tail + data.read(at, min(1 << 20, end - at))
        base = at - len(tail)
        place = piece.find(LOCAL_MAGIC)
        while place >= 0:
            run = local_run(data, base + place)
            if run is not None:
                yield run
            place = piece.find(LOCAL_MAGIC, place + 4)
        at = base + len(piece)
        tail = piece[-3:]


def gaps(archive: Zip) -> list[tuple[int, int]]:
    """What belongs to no member, (start, end): before the first, between two, and before the directory."""
    out: list[tuple[int, int]] = []
    end = 0
    for member in sorted(archive.members, key=lambda m: m.header_offset):
        try:
            head = archive.local(member)
        except Corrupt:
            continue
        if member.header_offset > end:
            out.append((end, member.header_offset))
        end = max(end, head.data_offset + member.packed_size)
        if head.flags & DESCRIPTOR and end <= archive.directory_start:
            end += descriptor_size(archive.file, end, archive.directory_start, member)
    if archive.directory_start > end:
        out.append((end, archive.directory_start))
    return out


def other_ends(data: Bytes, last: bytes, spans: list[tuple[int, int]]) -> list[int]:
    """Ends of directory ends before the last one that lie in no member: sizes of the archives that they end."""
    base = data.size - len(last)
    found: list[int] = []
    at = last.rfind(EOCD_MAGIC)
    while at > 0 and len(found) < 4:
        at = last.rfind(EOCD_MAGIC, 0, at)
        if at < 0 or at + EOCD.size > len(last):
            continue
        place = base + at
        if not any(start <= place < stop for start, stop in spans):
            comment = EOCD.unpack_from(last, at)[-1]
            found.append(min(place + EOCD.size + comment, data.size))
    return found


def second_names(member: Member) -> str | None:
    """The name that the Info-ZIP Unicode path field gives, if it is another one than the directory's."""
    for kind, data in extra_fields(member.extra):
        if kind == UNICODE_PATH and len(data) >= 5:
            name = data[5:].decode("utf-8", "surrogateescape")
            plain = {member.raw_name.decode("utf-8", "replace"), member.raw_name.decode("cp437")}
            if name not in plain:
                return name
    return None


def zip64_elsewhere(archive: Zip, last: bytes) -> bool:
    """Whether the zip64 end that the locator points to is not the one right before it, where some readers look."""
    data = archive.file
    at = last.rfind(EOCD_MAGIC)
    place = data.size - len(last) + at - EOCD64_LOCATOR.size
    if at < 0 or place < 0:
        return False
    magic, _, where, _ = EOCD64_LOCATOR.unpack(data.read(place, EOCD64_LOCATOR.size))
    if magic != b"PK\x06\x07":
        return False
    before = place - EOCD64.size
    return before != where and before >= 0 and data.read(before, 4) == b"PK\x06\x06"


def unpacked(data: Bytes, run: Run, limit: int) -> Bytes:
    """The bytes of ``run``, unpacked, ``limit`` of them at most; its flags, sizes and sum are not looked at."""
    from ..containers.compressed import Codec, unpack
    from ..errors import Unreadable
    from ..files import Memory

    packed = part(data, run.offset, run.packed, run.name)
    codecs: dict[int, Codec] = {8: "deflate", 12: "bz2", 95: "xz"}
    if run.method == 0:
        return packed
    if run.method in codecs:
        return unpack(packed, codecs[run.method], limit=limit, member=run.name)[0]
    if run.method == 14 and run.packed > 9:  # APPNOTE 5.8.8: version, size of the properties, properties, raw LZMA
        head = packed.read(0, 9)
        if struct.unpack_from("<H", head, 2)[0] == 5:
            body = packed.read(9, min(run.packed - 9, 64 << 20))
            return unpack(Memory(head[4:9] + b"\xff" * 8 + body), "lzma", limit=limit, member=run.name)[0]
    raise Unreadable(f"a member is compressed by a method that is not read ({run.method})", member=run.name)


def readable(data: Bytes) -> Zip | None:
    """The archive in ``data``; None when its directory cannot be read."""
    try:
        return Zip(data)
    except ArtifactkitError:
        return None
