"""Zip archives, read with bounds and without trust. Source: PKWARE APPNOTE.TXT 6.3 (sections are named where used).

Readers of zip files disagree about files that are not plain, and attacks live in the disagreement. So both views are
read, the central directory and the local headers, and ``anomalies`` lists where they differ; those that make two
readers see different data are ``fatal``, and ``strict`` raises for the first. Flag bits for encryption and UTF-8 are
shown but do not change how data is read, as with torch's reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cached_property

from ..errors import Corrupt, LimitExceeded, Truncated, Unreadable
from ..files import Bytes, label, part
from .compressed import Inflated, Spool
from .zip_check import compare, descriptor_size, gap, judge
from .zip_records import (
    CENTRAL,
    CENTRAL_MAGIC,
    DEFLATED,
    DESCRIPTOR,
    EOCD,
    EOCD64,
    EOCD64_LOCATOR,
    EOCD_MAGIC,
    LOCAL,
    LOCAL_MAGIC,
    MASK16,
    MASK32,
    STORED,
    Anomaly,
    LocalHeader,
    Member,
    decode_name,
    widen,
)

MAX_DIRECTORY = 64 << 20  # bytes; a checkpoint of 100,000 tensors has 10 MB
MAX_MEMBERS = 400_000
SMALL = 64 << 20  # what ``read_small`` takes into memory at most, unless told otherwise


class Zip:
    """The directory of a zip archive. Raises an Unreadable when there is none that can be read."""

    def __init__(self, file: Bytes) -> None:
        self.file = file
        self.path = label(file)
        self._found: list[Anomaly] = []
        self._spool = Spool()
        self._inflated: dict[str, Inflated] = {}
        self._locals: dict[int, LocalHeader] = {}
        self._find_directory()
        self.members: list[Member] = self._read_directory()
        self.by_name: dict[str, Member] = {}
        for member in self.members:
            self.by_name.setdefault(member.name, member)

    # -- the directory ---------------------------------------------------------------------------------------------

    def _corrupt(self, what: str, offset: int | None = None, member: str | None = None, **more: object) -> Corrupt:
        return Corrupt(what, file=self.path, member=member, offset=offset, **more)  # type: ignore[arg-type]

    def _note(
        self, kind: str, detail: str, member: str | None = None, offset: int | None = None, fatal: bool = False
    ) -> None:
        self._found.append(Anomaly(kind, detail, member, offset, fatal))

    def _find_directory(self) -> None:
        """Sets ``directory_start``, ``directory_size``, ``count`` and ``prefix``, the bytes before the archive."""
        size = self.file.size
        tail_start = max(0, size - EOCD.size - MASK16)
        tail = self.file.read(tail_start, size - tail_start)
        at = tail.rfind(EOCD_MAGIC, 0, max(0, len(tail) - EOCD.size + len(EOCD_MAGIC)))
        if at < 0:
            raise Truncated(
                "the zip archive has no directory at its end", file=self.path, offset=size,
                hint="the file is cut short or damaged; fetch it again",
            )  # fmt: skip
        eocd_at = tail_start + at
        _, disk, start_disk, here, count, directory_size, start, comment = EOCD.unpack_from(tail, at)
        if eocd_at + EOCD.size + comment != size:
            extra = size - eocd_at - EOCD.size - comment
            what = f"{extra} bytes follow the end of the archive" if extra > 0 else "the comment is cut short"
            self._note("trailing-bytes", what, offset=eocd_at + EOCD.size)
        earlier = tail.rfind(EOCD_MAGIC, 0, at)
        self._second_end = tail_start + earlier if earlier >= 0 else None
        end = eocd_at
        locator_at = eocd_at - EOCD64_LOCATOR.size
        if locator_at >= 0:
            magic, disk64, at64, _ = EOCD64_LOCATOR.unpack(self.file.read(locator_at, EOCD64_LOCATOR.size))
            if magic == b"PK\x06\x07":
                if disk64 or at64 + EOCD64.size > locator_at or self.file.read(at64, 4) != b"PK\x06\x06":
                    raise self._corrupt("the zip64 locator points to no zip64 directory end", locator_at, found=at64)
                fields = EOCD64.unpack(self.file.read(at64, EOCD64.size))
                old = (disk, start_disk, here, count, directory_size, start)
                disk, start_disk, here, count, directory_size, start = fields[4:]
                for short, long, mask in zip(old, fields[4:], (MASK16,) * 4 + (MASK32,) * 2, strict=True):
                    if short not in (long, mask):
                        self._note("zip64-differs", f"{short} here, {long} in zip64", offset=eocd_at, fatal=True)
                end = at64
        if disk or start_disk or here != count:
            raise Unreadable("a zip archive in several volumes", file=self.path, offset=eocd_at, hint="join them first")
        if directory_size > end:
            raise self._corrupt("the zip directory is larger than the file before it", eocd_at, found=directory_size)
        if count * CENTRAL.size > directory_size:
            raise self._corrupt(
                "the zip directory is too small for its entries", eocd_at,
                expected=f"at least {count * CENTRAL.size} bytes for {count} entries", found=directory_size,
            )  # fmt: skip
        if directory_size > MAX_DIRECTORY or count > MAX_MEMBERS:
            raise LimitExceeded(
                "the zip directory is out of proportion", file=self.path, offset=eocd_at,
                expected=f"at most {MAX_MEMBERS} members and {MAX_DIRECTORY} bytes",
                found=f"{count} members and {directory_size} bytes",
            )  # fmt: skip
        self.prefix = 0
        if start + directory_size != end:
            # Something lies before the archive, or between directory and end. Offsets then count from the archive's
            # own start for some readers and from the file's for others (torch's).
            shifted = end - directory_size - start
            absolute_ok = start + directory_size <= end and self._is_directory(start, count)
            shifted_ok = shifted > 0 and self._is_directory(start + shifted, count)
            if not absolute_ok and not shifted_ok:
                raise self._corrupt("the zip directory is not where its end says", eocd_at, found=start)
            self._note(
                "prefix-bytes" if shifted_ok else "directory-gap",
                f"{abs(shifted)} bytes that no reader needs", offset=0, fatal=absolute_ok and shifted_ok and count > 0,
            )  # fmt: skip
            if not absolute_ok:
                self.prefix, start = shifted, start + shifted
        self.directory_start, self.directory_size, self.count = start, directory_size, count

    def _is_directory(self, at: int, count: int) -> bool:
        return 0 <= at <= self.file.size - 4 and (count == 0 or self.file.read(at, 4) == CENTRAL_MAGIC)

    def _read_directory(self) -> list[Member]:
        data = self.file.read(self.directory_start, self.directory_size)
        members: list[Member] = []
        at = 0
        for _ in range(self.count):
            where = self.directory_start + at
            if at + CENTRAL.size > len(data) or data[at : at + 4] != CENTRAL_MAGIC:
                raise self._corrupt("a zip directory entry is missing", where, expected=f"{self.count} entries",
                                    found=len(members))  # fmt: skip
            fields = CENTRAL.unpack_from(data, at)
            _, _, _, flags, method, _, _, crc, packed, size, n_name, n_extra, n_comment, disk, _, mode, offset = fields
            name_at = at + CENTRAL.size
            at = name_at + n_name + n_extra + n_comment
            if at > len(data):
                raise self._corrupt("a zip directory entry reaches past the directory", where)
            raw = data[name_at : name_at + n_name]
            extra = data[name_at + n_name : name_at + n_name + n_extra]
            wide = widen(extra, [size, packed, offset])
            if wide is None:
                raise self._corrupt("a zip64 field is too short", where, decode_name(raw))
            if disk not in (0, MASK16):
                raise Unreadable("a zip archive in several volumes", file=self.path, offset=where)
            size, packed, offset = wide
            offset += self.prefix
            members.append(Member(decode_name(raw), raw, method, flags, crc, packed, size, offset, extra, mode))
        if at != len(data):
            self._note("directory-slack", f"{len(data) - at} bytes after the last entry",
                       offset=self.directory_start + at, fatal=data[at : at + 4] == CENTRAL_MAGIC)  # fmt: skip
        return members

    @property
    def oddities(self) -> list[Anomaly]:
        """What finding the directory showed already: bytes before and after the archive. ``anomalies`` is the rest."""
        return list(self._found)

    # -- both views --------------------------------------------------------------------------------------------------

    def local(self, member: Member) -> LocalHeader:
        """The local header that ``member`` points to; Corrupt when there is none."""
        found = self._locals.get(member.header_offset)
        if found is None:
            found = self._locals[member.header_offset] = self._read_local(member)
        return found

    def _read_local(self, member: Member) -> LocalHeader:
        at = member.header_offset
        if at + LOCAL.size > self.directory_start:
            raise self._corrupt("a zip member begins outside the file's data", at, member.name)
        fixed = self.file.read(at, LOCAL.size)
        magic, _, flags, method, _, _, crc, packed, size, n_name, n_extra = LOCAL.unpack(fixed)
        if magic != LOCAL_MAGIC:
            raise self._corrupt("no zip member where the directory says", at, member.name, found=magic.hex())
        data_at = at + LOCAL.size + n_name + n_extra
        if data_at > self.directory_start:
            raise self._corrupt("a zip member's header reaches past the file's data", at, member.name)
        rest = self.file.read(at + LOCAL.size, n_name + n_extra)
        wide = widen(rest[n_name:], [size, packed])
        if wide is None:
            raise self._corrupt("a zip64 field is too short", at, member.name)
        return LocalHeader(rest[:n_name], method, flags, crc, wide[1], wide[0], data_at)

    def _walk(self) -> Iterator[Anomaly]:
        """Members in the order of their place: overlaps, and what lies between them."""
        end = self.prefix
        for member in sorted(self.members, key=lambda m: m.header_offset):
            try:
                head = self.local(member)
            except Corrupt as error:
                yield Anomaly("no-local-header", error.what, member.name, member.header_offset, True)
                continue
            yield from compare(member, head)
            if member.header_offset < end:
                yield Anomaly("overlap", "the member lies within another", member.name, member.header_offset, True)
            yield from gap(self.file, end, member.header_offset)
            end = max(end, head.data_offset + member.packed_size)
            if head.data_offset + member.packed_size > self.directory_start:
                yield Anomaly("out-of-file", "the member reaches past the file's data", member.name,
                              member.header_offset, True)  # fmt: skip
            elif head.flags & DESCRIPTOR:
                end += descriptor_size(self.file, end, self.directory_start, member)
        yield from gap(self.file, end, self.directory_start)

    @cached_property
    def _fatal(self) -> Anomaly | None:
        seen: set[bytes] = set()
        for member in self.members:
            if member.raw_name in seen:
                return Anomaly("duplicate", "two members have one name", member.name, member.header_offset, True)
            seen.add(member.raw_name)
            for anomaly in judge(member):
                if anomaly.fatal:
                    return anomaly
        return next((a for a in (*self._found, *self._walk()) if a.fatal), None)

    def anomalies(self) -> list[Anomaly]:
        """All that is not plain, local headers and gaps included, in a stable order."""
        out = list(self._found)
        seen: set[bytes] = set()
        folded: set[str] = set()
        for member in self.members:
            if member.raw_name in seen:
                out.append(Anomaly("duplicate", "two members have one name", member.name, member.header_offset, True))
            elif member.name.casefold() in folded:
                out.append(Anomaly("case-clash", "names differ in case only", member.name, member.header_offset))
            seen.add(member.raw_name)
            folded.add(member.name.casefold())
            out += judge(member)
        out += self._walk()
        at = self._second_end
        if at is not None and not self._within_member(at):
            out.append(Anomaly("second-directory-end", "a directory end lies before the last one", None, at))
        return out

    def _within_member(self, at: int) -> bool:
        """Whether the byte at ``at`` is a member's data (an archive within this one, say)."""
        spans = ((self._locals[m.header_offset].data_offset, m.packed_size) for m in self.members
                 if m.header_offset in self._locals)  # fmt: skip
        return any(start <= at < start + size for start, size in spans)

    def strict(self) -> None:
        """Raise Corrupt for the first anomaly that lets two readers see different data."""
        bad = self._fatal
        if bad is not None:
            raise self._corrupt(
                f"the zip archive is inconsistent ({bad.kind}): {bad.detail}", bad.offset, bad.member,
                hint="readers would disagree about this file; get it from its producer again",
            )  # fmt: skip

    # -- data ----------------------------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def member(self, name: str) -> Member:
        """The member called ``name``; Corrupt when the archive lacks it."""
        found = self.by_name.get(name)
        if found is None:
            raise self._corrupt("the archive lacks a member", member=name)
        return found

    def member_bytes(self, name: str) -> Bytes:
        """The data of a member, unpacked as it is read: a window for stored ones. Opens nothing that is not strict."""
        self.strict()
        member = self.member(name)
        packed = part(self.file, self.local(member).data_offset, member.packed_size, name)
        if member.method == STORED:
            return packed
        if member.method != DEFLATED:
            raise Unreadable(
                f"a zip member is compressed by {member.method_name}", file=self.path, member=name,
                expected="stored or deflated", hint="pack the archive again with a plain zip tool",
            )  # fmt: skip
        if name not in self._inflated:
            self._inflated[name] = Inflated(packed, "deflate", member.size, self._spool, member.crc, name)
        return self._inflated[name]

    def check_crc(self, name: str) -> None:
        """Read a stored member through and compare its CRC-32; Corrupt when it differs. (Deflated ones are checked as
        they are read to their end.)"""
        member = self.member(name)
        data, crc = self.member_bytes(name), 0
        if member.method == STORED:
            for at in range(0, data.size, 1 << 20):
                crc = zlib.crc32(data.read(at, min(1 << 20, data.size - at)), crc)
            if crc != member.crc:
                raise self._corrupt("wrong CRC-32", member=name, expected=f"{member.crc:08x}", found=f"{crc:08x}")

    def read_small(self, name: str, limit: int = SMALL) -> bytes:
        """All data of a member that is to be held in memory (a header, a pickle); its CRC-32 is checked.

        LimitExceeded when it is larger than ``limit`` bytes, before it is read.
        """
        member = self.member(name)
        if member.size > limit:
            raise LimitExceeded(
                "a zip member is too large for what it is", file=self.path, member=name,
                expected=f"at most {limit} bytes", found=f"{member.size} bytes",
            )  # fmt: skip
        self.check_crc(name)
        return self.member_bytes(name).read(0, member.size)
