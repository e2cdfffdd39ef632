"""The records of a zip archive. Source: PKWARE APPNOTE.TXT 6.3; sections are named at each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

EOCD = struct.Struct("<4s4H2LH")  # 4.3.16
EOCD64_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
EOCD64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
LOCAL_MAGIC, CENTRAL_MAGIC, EOCD_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
MASK16, MASK32 = 0xFFFF, 0xFFFFFFFF
ENCRYPTED, DESCRIPTOR, STRONG, UTF8, MASKED = 0x1, 0x8, 0x40, 0x800, 0x2000
ZIP64, UNICODE_PATH = 0x0001, 0x7075  # ids of extra fields
STORED, DEFLATED = 0, 8
METHODS = {
    0: "stored", 1: "shrunk", 6: "imploded", 8: "deflated", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd",
    95: "xz", 98: "ppmd", 99: "AES",
}  # fmt: skip


class Anomaly(NamedTuple):
    """A place where this archive is not plain. ``fatal``: readers may see different data, so none is taken."""

    kind: str
    detail: str
    member: str | None = None
    offset: int | None = None
    fatal: bool = False


class Member(NamedTuple):
    """One entry of the central directory. Sizes in bytes; ``header_offset`` from the start of the archive's bytes.

    ``name`` is the raw name as UTF-8, with surrogate escapes for what is not.
    """

    name: str
    raw_name: bytes
    method: int
    flags: int
    crc: int
    packed_size: int
    size: int
    header_offset: int
    extra: bytes
    attributes: int = 0  # external ones (4.4.15): on Unix the upper half is st_mode

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")

    @property
    def method_name(self) -> str:
        return METHODS.get(self.method, f"method {self.method}")


class LocalHeader(NamedTuple):
    """What the local header of a member says. Sizes and CRC are 0 where a data descriptor follows the data."""

    raw_name: bytes
    method: int
    flags: int
    crc: int
    packed_size: int
    size: int
    data_offset: int


def decode_name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """(id, data) of each field (4.5.1); what is left over or cut short ends the walk."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if at + 4 + size > len(extra):
            return
        yield kind, extra[at + 4 : at + 4 + size]
        at += 4 + size


def widen(extra: bytes, values: list[int]) -> list[int] | None:
    """``values`` with each 0xFFFFFFFF replaced from the zip64 field (4.5.3); None when that is too short."""
    if MASK32 not in values:
        return values
    for kind, data in extra_fields(extra):
        if kind == ZIP64:
            wanted = [i for i, value in enumerate(values) if value == MASK32]
            if len(data) < 8 * len(wanted):
                return None
            out = list(values)
            for place, value in zip(wanted, struct.unpack_from(f"<{len(wanted)}Q", data), strict=True):
                out[place] = value
            return out
    return values
