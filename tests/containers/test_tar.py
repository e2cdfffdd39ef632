"""The tar reader: listed like ``tarfile`` does, and refused by name where it would have to follow or expand."""

from __future__ import annotations

import io
import random
import tarfile

import pytest

from artifactkit.containers.tar import BLOCK, Tar, is_tar
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated, Unreadable
from artifactkit.files import Memory

LONG = "a/" + "n" * 150 + "/" + "m" * 120
BODIES = {"plain": b"one", "empty": b"", LONG: b"x" * 513, "ünïcode": b"two"}


def archive(bodies: dict[str, bytes] = BODIES, fmt: int = tarfile.PAX_FORMAT, **fields: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=fmt) as t:
        for name, body in bodies.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            for key, value in fields.items():
                setattr(info, key, value)
            t.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


@pytest.mark.parametrize("fmt", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_reads_what_tarfile_wrote(fmt: int) -> None:
    raw = archive(fmt=fmt)
    t = Tar(Memory(raw))
    assert is_tar(raw[:BLOCK])
    assert {m.name: t.member_bytes(m.name).read(0, m.size) for m in t.members} == BODIES
    assert t.trailing == 0


def test_ustar_prefix() -> None:
    name = "p" * 90 + "/" + "q" * 90
    t = Tar(Memory(archive({name: b"1"}, tarfile.USTAR_FORMAT)))
    assert t.members[0].name == name


def test_a_size_in_base_256_is_read() -> None:
    raw = bytearray(archive({"a": b"123"}, tarfile.GNU_FORMAT))
    raw[124:136] = b"\x80" + (3).to_bytes(11, "big")
    raw[148:156] = b"        "
    raw[148:156] = f"{sum(raw[:512]):06o}\0 ".encode()
    assert Tar(Memory(bytes(raw))).member_bytes("a").read(0, 3) == b"123"


@pytest.mark.parametrize(
    ("kind", "words"),
    [(tarfile.SYMTYPE, "symbolic link to /etc/passwd"), (tarfile.LNKTYPE, "hard link"), (tarfile.FIFOTYPE, "FIFO"),
     (tarfile.CHRTYPE, "character device"), (tarfile.DIRTYPE, "folder"), (b"S", "sparse")],
)  # fmt: skip
def test_what_is_no_regular_file_is_refused_by_name(kind: bytes, words: str) -> None:
    t = Tar(Memory(archive({"a": b""}, tarfile.GNU_FORMAT, type=kind, linkname="/etc/passwd")))
    name = t.members[0].name  # tarfile adds a slash to a folder's
    with pytest.raises(Unreadable, match="no regular file") as caught:
        t.member_bytes(name)
    assert words in str(caught.value)


def test_a_sparse_file_of_pax_is_refused() -> None:
    t = Tar(Memory(archive({"a": b"1"}, pax_headers={"GNU.sparse.major": "1"})))
    with pytest.raises(Unreadable):
        t.member_bytes("a")


def test_two_members_of_one_name() -> None:
    t = Tar(Memory(archive({"a": b"1", "b": b"2"}, tarfile.USTAR_FORMAT)))
    assert t.member_bytes("b").read(0, 1) == b"2"
    raw = archive({"a": b"1"}, tarfile.USTAR_FORMAT)[:1024] + archive({"a": b"2"}, tarfile.USTAR_FORMAT)
    with pytest.raises(Corrupt, match="two members"):
        Tar(Memory(raw)).member_bytes("a")
    with pytest.raises(Corrupt, match="lacks"):
        Tar(Memory(raw)).member_bytes("b")


@pytest.mark.parametrize("value", ["-1", "9" * 30, "1e3", "99999999"])
def test_a_pax_size_that_lies(value: str) -> None:
    with pytest.raises(Corrupt):
        Tar(Memory(archive({"a": b"1"}, pax_headers={"size": value})))


def test_a_name_or_header_out_of_proportion() -> None:
    with pytest.raises(LimitExceeded):
        Tar(Memory(archive({"a" * 70_000: b"1"}, tarfile.GNU_FORMAT)))
    with pytest.raises(LimitExceeded):
        Tar(Memory(archive({"a": b"1"}, pax_headers={"comment": "c" * (2 << 20)})))


def test_something_after_the_end_is_counted() -> None:
    assert Tar(Memory(archive({"a": b"1"}, tarfile.USTAR_FORMAT) + b"tail")).trailing == 4


def test_no_tar() -> None:
    assert not is_tar(b"\0" * 512)
    assert not is_tar(b"short")
    assert not is_tar(bytes(range(256)) * 2)


def test_cut_within_a_member() -> None:
    raw = archive({"a": b"1" * 600}, tarfile.USTAR_FORMAT)
    for cut in (513, 700, 1111):
        with pytest.raises(Truncated):
            Tar(Memory(raw[:cut]))


def test_whatever_is_changed_only_our_errors_come() -> None:
    rng = random.Random(3)
    base = archive()
    for _ in range(1500):
        raw = bytearray(base[: rng.choice([len(base), rng.randrange(len(base))])])
        for _ in range(rng.randrange(4)):
            if raw:
                raw[rng.randrange(len(raw))] = rng.choice([0, 0x30, 0x39, 0x80, 0xFF, rng.randrange(256)])
        try:
            t = Tar(Memory(bytes(raw)))
            for member in t.members:
                t.member_bytes(member.name).read(0, member.size)
        except ArtifactkitError:
            pass
