"""Where a zip archive is not plain: what each member, each pair of headers and each gap says against itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..files import Bytes
from .compressed import DEFLATE_RATIO
from .zip_records import (
    DEFLATED,
    DESCRIPTOR,
    ENCRYPTED,
    LOCAL_MAGIC,
    MASK32,
    MASKED,
    STORED,
    STRONG,
    UNICODE_PATH,
    Anomaly,
    LocalHeader,
    Member,
    decode_name,
    extra_fields,
)


def compare(member: Member, head: LocalHeader) -> Iterator[Anomaly]:
    def differs(what: str, here: object, there: object, fatal: bool = True) -> Anomaly:
        detail = f"{here} in the directory, {there} in the local header"
        return Anomaly(f"local-{what}-differs", detail, member.name, member.header_offset, fatal)

    if head.raw_name != member.raw_name:
        yield differs("name", member.name, decode_name(head.raw_name))
    if head.method != member.method:
        yield differs("method", member.method, head.method)
    if head.flags != member.flags:
        yield differs("flags", f"{member.flags:#x}", f"{head.flags:#x}", fatal=False)
    # With a data descriptor (4.4.4, bit 3) the local fields are 0, or all ones with zip64, or right all the same.
    later = head.flags & DESCRIPTOR
    for what, here, there in (("size", member.size, head.size), ("packed-size", member.packed_size, head.packed_size)):
        if here != there and not (later and there in (0, MASK32)):
            yield differs(what, here, there)
    if head.crc != member.crc and not (later and head.crc == 0):
        yield differs("crc", f"{member.crc:08x}", f"{head.crc:08x}", fatal=False)


def judge(member: Member) -> Iterator[Anomaly]:
    def found(kind: str, detail: str, fatal: bool = False) -> Anomaly:
        return Anomaly(kind, detail, member.name, member.header_offset, fatal)

    if b"\0" in member.raw_name:
        yield found("nul-in-name", "some readers cut the name there", True)
    if member.flags & (ENCRYPTED | STRONG | MASKED):
        yield found("encrypted-flag", f"flags {member.flags:#x}")
    if any(kind == UNICODE_PATH for kind, _ in extra_fields(member.extra)):
        yield found("second-name", "an extra field gives another name")
    if member.method == STORED and member.packed_size != member.size:
        yield found("stored-size-differs", f"{member.packed_size} bytes stored, {member.size} declared", True)
    if member.method == DEFLATED and member.size > DEFLATE_RATIO * (member.packed_size + 1):
        yield found("impossible-ratio", f"{member.packed_size} bytes cannot unpack to {member.size}", True)


def descriptor_size(file: Bytes, at: int, stop: int, member: Member) -> int:
    """Bytes of the data descriptor at ``at`` (4.3.9): with or without magic, sizes of 4 or 8 bytes; 0 if none."""
    data = file.read(at, min(24, stop - at))
    for magic in (b"PK\x07\x08", b""):
        for form in ("<LLL", "<LQQ"):
            try:
                body = magic + struct.pack(form, member.crc, member.packed_size, member.size)
            except struct.error:
                continue
            if data.startswith(body):
                return len(body)
    return 0


def gap(file: Bytes, start: int, end: int) -> Iterator[Anomaly]:
    if end <= start:
        return
    hidden = 0
    at, tail = start, b""
    while at < end:  # in pieces, for a gap may be as large as the file
        piece = tail + file.read(at, min(1 << 20, end - at))
        hidden += piece.count(LOCAL_MAGIC)
        at, tail = at + len(piece) - len(tail), piece[-3:]
    if hidden:
        yield Anomaly("hidden-member", f"{hidden} local headers that the directory lacks", None, start)
    yield Anomaly("gap", f"{end - start} bytes that belong to no member", None, start)
