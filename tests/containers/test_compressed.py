"""Decompression: what the tools wrote comes back, several streams in one file too, and bombs are stopped."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zlib
from collections.abc import Callable

import pytest

from artifactkit.containers import compressed
from artifactkit.containers.compressed import Codec, Inflated, Spool, Spooled, detect, foreign, unpack
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated
from artifactkit.files import Memory

PACK: dict[Codec, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "gzip": lambda b: gzip.compress(b, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda b: lzma.compress(b, lzma.FORMAT_ALONE),
}
CODECS = sorted(PACK)
BODY = random.Random(5).randbytes(150_000) + b"calm " * 40_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", [b"", b"x", BODY], ids=["empty", "one", "long"])
def test_round_trip(codec: Codec, body: bytes) -> None:
    packed = PACK[codec](body)
    assert detect(packed) == codec
    data, trailing = unpack(Memory(packed), codec)
    assert (data.read(0, data.size), trailing) == (body, 0)
    with pytest.raises(Truncated):
        data.read(data.size, 1)


@pytest.mark.parametrize("level", range(10))
def test_every_zlib_level_is_detected(level: int) -> None:
    assert detect(zlib.compress(b"x", level)) == "zlib"


@pytest.mark.parametrize(
    "head", [b"", b"x", b"]q\0.", b"BZh", b"\x80\x04", b"PK\x03\x04", b"]\0.", b"{}", b"\x93NUMPY"]
)
def test_what_is_not_compressed(head: bytes) -> None:
    assert detect(head) is None


def test_what_is_recognised_and_not_read() -> None:
    assert foreign(b"\x04\x22\x4d\x18rest") == "lz4"
    assert foreign(b"\x28\xb5\x2f\xfdrest") == "zstd"
    assert foreign(b"other") is None


@pytest.mark.parametrize("codec", ["gzip", "bz2", "xz"])
@pytest.mark.parametrize("padding", [0, 4, 100_000])
def test_several_streams_are_one_file(codec: Codec, padding: int) -> None:
    packed = PACK[codec](b"one") + b"\0" * padding + PACK[codec](b"two")
    data, trailing = unpack(Memory(packed), codec)
    assert (data.read(0, data.size), trailing) == (b"onetwo", 0)


@pytest.mark.parametrize("codec", CODECS)
def test_trailing_bytes_are_counted(codec: Codec) -> None:
    data, trailing = unpack(Memory(PACK[codec](b"one") + b"junk"), codec)
    assert (data.read(0, 3), trailing) == (b"one", 4)


def test_much_data_goes_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "IN_MEMORY", 1000)
    data, _ = unpack(Memory(zlib.compress(BODY)), "zlib")
    assert isinstance(data, Spooled)
    assert data.read(0, data.size) == BODY
    assert data.read(77, 5) == BODY[77:82]
    with pytest.raises(Truncated):
        data.read(len(BODY) - 1, 2)


@pytest.mark.parametrize("codec", CODECS)
def test_a_limit_stops_a_bomb(codec: Codec) -> None:
    packed = PACK[codec](b"\0" * 5_000_000)
    assert unpack(Memory(packed), codec, limit=5_000_000)[0].size == 5_000_000
    with pytest.raises(LimitExceeded):
        unpack(Memory(packed), codec, limit=4_999_999)


def test_the_default_limit_is_a_ratio_beyond_a_free_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "FREE_BYTES", 1000)
    monkeypatch.setattr(compressed, "MAX_RATIO", 10)
    assert unpack(Memory(zlib.compress(b"\0" * 1000)), "zlib")[0].size == 1000
    with pytest.raises(LimitExceeded):
        unpack(Memory(zlib.compress(b"\0" * 10_000)), "zlib")


def test_an_xz_that_asks_for_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = lzma.compress(b"x", lzma.FORMAT_XZ, preset=9)
    assert unpack(Memory(packed), "xz")[0].size == 1
    monkeypatch.setattr(compressed, "LZMA_MEMORY", 1 << 20)
    with pytest.raises(LimitExceeded, match="memory"):
        unpack(Memory(packed), "xz")


@pytest.mark.parametrize("codec", CODECS)
def test_cut_short(codec: Codec) -> None:
    packed = PACK[codec](b"some text " * 100)
    for cut in range(len(packed)):
        if codec == "lzma" and cut == len(packed) - 1:
            continue  # its end marker may be whole before the last byte
        with pytest.raises(Truncated):
            unpack(Memory(packed[:cut]), codec)


@pytest.mark.parametrize("codec", CODECS)
def test_whatever_is_changed_only_our_errors_come(codec: Codec) -> None:
    rng = random.Random(6)
    base = PACK[codec](b"some text " * 50 + rng.randbytes(50))
    wrong = 0
    for _ in range(400):
        raw = bytearray(base)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        try:
            unpack(Memory(bytes(raw)), codec, limit=1 << 20)
        except ArtifactkitError:
            wrong += 1
    assert wrong > 200


def test_inflated_refuses_what_lies_outside() -> None:
    data = Inflated(Memory(zlib.compress(b"12345")), "zlib", 5, Spool(), zlib.crc32(b"12345"))
    assert data.read(2, 0) == b""
    for offset, n in ((-1, 1), (0, -1), (4, 2)):
        with pytest.raises(Truncated):
            data.read(offset, n)
    assert data.read(1, 4) == b"2345"


def test_inflated_with_a_wrong_crc() -> None:
    with pytest.raises(Corrupt, match="CRC"):
        Inflated(Memory(zlib.compress(b"12345")), "zlib", 5, Spool(), 7).read(0, 5)
