"""The zip reader: what plain archives give, and each way in which an archive can lie."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.containers.zip import Zip
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated, Unreadable
from artifactkit.files import File, Memory, Window


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as z:
        for name, data in members.items():
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, compress_type=method)
        z.comment = comment
    return buffer.getvalue()


MEMBERS = {"r/data.pkl": b"pickle", "r/data/0": bytes(range(256)) * 4, "r/empty": b""}


def central(raw: bytes, index: int = 0) -> int:
    at = -1
    for _ in range(index + 1):
        at = raw.index(b"PK\x01\x02", at + 1)
    return at


def patched(raw: bytes, at: int, value: bytes) -> bytes:
    return raw[:at] + value + raw[at + len(value) :]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"a comment", b"PK\x05\x06 within"])
def test_reads_what_zipfile_wrote(method: int, comment: bytes) -> None:
    z = Zip(Memory(archive(MEMBERS, method, comment)))
    assert [m.name for m in z.members] == list(MEMBERS)
    for name, data in MEMBERS.items():
        assert z.read_small(name) == data
        assert z.member_bytes(name).read(0, len(data)) == data
    assert z.anomalies() == []


def test_a_stored_member_is_a_window_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(archive(MEMBERS))
    data = Zip(File(path)).member_bytes("r/data/0")
    assert isinstance(data, Window)
    assert data.file.read(data.start, data.size) == MEMBERS["r/data/0"]


def test_zip64_fields_are_read() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z, z.open(zipfile.ZipInfo("a"), "w", force_zip64=True) as f:
        f.write(b"zip64")
    z64 = Zip(Memory(buffer.getvalue()))
    assert z64.read_small("a") == b"zip64"
    assert z64.anomalies() == []


def with_zip64_end(raw: bytes, **lies: int) -> bytes:
    """``raw`` with its end in zip64 form, all 32-bit fields masked."""
    at = raw.rindex(b"PK\x05\x06")
    _, _, _, here, count, size, start, comment = struct.unpack_from("<4s4H2LH", raw, at)
    fields = {"here": here, "count": count, "size": size, "start": start, "at": at} | lies
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, fields["here"], fields["count"], fields["size"],
                        fields["start"])  # fmt: skip
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, fields["at"], 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, comment)
    return raw[:at] + end64 + locator + end + raw[at + 22 :]


def test_zip64_end_of_directory() -> None:
    z = Zip(Memory(with_zip64_end(archive(MEMBERS))))
    assert z.read_small("r/data.pkl") == b"pickle"
    assert z.anomalies() == []


@pytest.mark.parametrize(
    "lies", [{"count": 1 << 60, "here": 1 << 60}, {"size": 1 << 60}, {"start": 1 << 62}, {"at": 1 << 63}, {"at": 0}]
)
def test_zip64_lies_are_refused(lies: dict[str, int]) -> None:
    with pytest.raises(Unreadable):
        Zip(Memory(with_zip64_end(archive(MEMBERS), **lies)))


def local_name(raw: bytes) -> bytes:
    return patched(raw, raw.index(b"r/data.pkl"), b"r/DATA.pkl")


def local_method(raw: bytes) -> bytes:
    return patched(raw, 8, struct.pack("<H", 8))


def local_size(raw: bytes) -> bytes:
    return patched(raw, 22, struct.pack("<L", 5))


def stored_sizes(raw: bytes) -> bytes:
    return patched(raw, central(raw) + 24, struct.pack("<L", 5))


def duplicate(raw: bytes) -> bytes:
    return archive_pairs([("a", b"1"), ("a", b"2")])


def archive_pairs(pairs: list[tuple[str, bytes]]) -> bytes:
    # Two members of one name: written under two names of one length, then renamed in both views.
    raw = archive({f"{name}{i}": data for i, (name, data) in enumerate(pairs)})
    for i, (name, _) in enumerate(pairs):
        raw = raw.replace(f"{name}{i}".encode(), f"{name}_".encode())
    return raw


def overlap(raw: bytes) -> bytes:
    # The second entry of the directory points to the first member.
    second = central(raw, 1)
    raw = patched(raw, second + 42, struct.pack("<L", 0))
    return raw


def out_of_data(raw: bytes) -> bytes:
    size = struct.pack("<L", len(raw))
    return patched(patched(raw, central(raw) + 20, size), central(raw) + 24, size)


def nul_name(raw: bytes) -> bytes:
    return raw.replace(b"r/data.pkl", b"r/data\0pkl")


def impossible_ratio(raw: bytes) -> bytes:
    raw = archive(MEMBERS, zipfile.ZIP_DEFLATED)
    return patched(raw, central(raw, 1) + 24, struct.pack("<L", 1 << 30))


def hidden_end(raw: bytes) -> bytes:
    """Bytes before an archive that were an archive of their own, so that offsets mean two things."""
    return archive(MEMBERS | {"r/data.pkl": b"other!"}) + raw


LIES = [local_name, local_method, local_size, stored_sizes, duplicate, overlap, out_of_data, nul_name, impossible_ratio]


@pytest.mark.parametrize("lie", LIES, ids=lambda f: f.__name__)
def test_a_fatal_lie_is_listed_and_nothing_is_read(lie: Callable[[bytes], bytes]) -> None:
    z = Zip(Memory(lie(archive(MEMBERS))))
    assert any(a.fatal for a in z.anomalies())
    with pytest.raises(Corrupt, match="inconsistent"):
        z.member_bytes(z.members[0].name)


def encrypted(raw: bytes) -> bytes:
    return patched(raw, central(raw) + 8, struct.pack("<H", 1))


def utf8_local(raw: bytes) -> bytes:
    return patched(raw, 6, struct.pack("<H", 0x800))


def bad_crc_local(raw: bytes) -> bytes:
    return patched(raw, 14, b"abcd")


def trailing(raw: bytes) -> bytes:
    return raw + b"more"


def prefixed(raw: bytes) -> bytes:
    return b"#!/bin/sh\n" + raw


def gap(raw: bytes) -> bytes:
    at = central(raw)
    end = raw.rindex(b"PK\x05\x06")
    start = struct.unpack_from("<L", raw, end + 16)[0]
    return patched(raw[:at] + b"x" * 50 + raw[at:], end + 50 + 16, struct.pack("<L", start + 50))


def hidden_member(raw: bytes) -> bytes:
    """The last member is taken out of the directory, and stays in the file."""
    at, end = central(raw, 2), raw.rindex(b"PK\x05\x06")
    size, start = struct.unpack_from("<LL", raw, end + 12)
    new_end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2, 2, size - (end - at), start, 0)
    return raw[:at] + new_end


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (encrypted, "encrypted-flag"), (utf8_local, "local-flags-differs"), (bad_crc_local, "local-crc-differs"),
        (trailing, "trailing-bytes"), (prefixed, "prefix-bytes"), (gap, "gap"), (hidden_member, "hidden-member"),
    ],
)  # fmt: skip
def test_what_is_odd_but_not_ambiguous_is_listed_and_read(change: Callable[[bytes], bytes], kind: str) -> None:
    z = Zip(Memory(change(archive(MEMBERS))))
    assert kind in [a.kind for a in z.anomalies()]
    assert z.read_small("r/data.pkl") == b"pickle"


def test_a_directory_that_can_be_found_in_two_places_is_refused() -> None:
    z = Zip(Memory(hidden_end(archive(MEMBERS))))
    with pytest.raises(Corrupt, match="prefix-bytes"):
        z.strict()


def test_the_crc_of_a_small_member_is_checked() -> None:
    raw = archive(MEMBERS)
    z = Zip(Memory(raw.replace(b"pickle", b"pickel")))
    with pytest.raises(Corrupt, match="CRC"):
        z.read_small("r/data.pkl")


def test_the_crc_of_a_deflated_member_is_checked_at_its_end() -> None:
    raw = archive(MEMBERS, zipfile.ZIP_DEFLATED)
    for at in (central(raw, 1) + 16, raw.index(b"r/data/0") - 30 + 14):
        raw = patched(raw, at, b"\1\2\3\4")
    data = Zip(Memory(raw)).member_bytes("r/data/0")
    assert data.read(0, 100) == MEMBERS["r/data/0"][:100]
    with pytest.raises(Corrupt, match="CRC"):
        data.read(100, 924)


def test_a_bzip2_member_is_refused_by_name() -> None:
    z = Zip(Memory(archive(MEMBERS, zipfile.ZIP_BZIP2)))
    with pytest.raises(Unreadable, match="bzip2"):
        z.read_small("r/data.pkl")


def test_a_member_larger_than_its_limit_is_not_read() -> None:
    with pytest.raises(LimitExceeded):
        Zip(Memory(archive(MEMBERS))).read_small("r/data/0", 1000)


def test_a_bomb_is_refused_by_its_declared_size_before_it_is_unpacked() -> None:
    packed = archive({"bomb": b"\0" * (1 << 20)}, zipfile.ZIP_DEFLATED)
    assert Zip(Memory(packed)).read_small("bomb") == b"\0" * (1 << 20)  # 1 MiB: its benign twin
    huge = patched(packed, central(packed) + 24, struct.pack("<L", 0xFFFFFFF0))
    with pytest.raises(Corrupt, match="impossible-ratio"):
        Zip(Memory(huge)).read_small("bomb", 1 << 40)


def test_a_deflated_member_that_unpacks_to_another_size() -> None:
    for size, what in ((1023, "longer"), (1025, "shorter")):
        raw = archive(MEMBERS, zipfile.ZIP_DEFLATED)
        raw = patched(raw, central(raw, 1) + 24, struct.pack("<L", size))
        raw = patched(raw, raw.index(b"r/data/0") - 8, struct.pack("<L", size))
        with pytest.raises(Corrupt, match=what):
            Zip(Memory(raw)).member_bytes("r/data/0").read(0, size)


def test_deflated_members_can_be_read_in_any_order() -> None:
    body = random.Random(1).randbytes(300_000) + b"a" * 300_000
    data = Zip(Memory(archive({"m": body}, zipfile.ZIP_DEFLATED))).member_bytes("m")
    rng = random.Random(2)
    for _ in range(60):
        at = rng.randrange(len(body))
        n = rng.randrange(len(body) - at + 1)
        assert data.read(at, n) == body[at : at + n]
    with pytest.raises(Truncated):
        data.read(len(body), 1)


def test_a_second_forward_pass_needs_no_temporary_file() -> None:
    body = b"abc" * 100_000
    z = Zip(Memory(archive({"m": body}, zipfile.ZIP_DEFLATED)))
    data = z.member_bytes("m")
    for _ in range(3):
        assert b"".join(data.read(at, 1000) for at in range(0, len(body), 1000)) == body
    assert z._spool._file is None


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_cut_anywhere_it_is_truncated_or_corrupt(method: int) -> None:
    raw = archive(MEMBERS, method, b"end")
    for cut in range(len(raw) - 3):
        with pytest.raises(Unreadable):
            Zip(Memory(raw[:cut])).strict()


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_whatever_is_changed_only_our_errors_come(data: st.DataObject) -> None:
    method = data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    raw = bytearray(archive(MEMBERS, method))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 0x50, 0x7F, 0x80, 0xFF]))
    try:
        z = Zip(Memory(bytes(raw)))
        z.anomalies()
        for member in z.members:
            assert len(z.read_small(member.name)) == member.size
    except ArtifactkitError:
        pass
