"""Sources against numpy: any strides, any cut, blocks of a few bytes, so that every seam is met."""

from __future__ import annotations

import mmap
import os
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifactkit import files, strided
from artifactkit import source as src
from artifactkit.containers.zip import Zip
from artifactkit.errors import Corrupt, Truncated
from artifactkit.files import File, Memory, Window
from artifactkit.files import Part as BytesPart
from artifactkit.source import (
    FileSpan,
    Forward,
    Inline,
    Mapped,
    Read,
    Slice,
    Source,
    concat,
    files_of,
    is_plain,
    pour_range,
    read_all,
    roots,
    span,
)
from artifactkit.strided import Strided, is_contiguous, view

CONTENT = bytes(np.random.default_rng(1).integers(0, 256, 4096, dtype=np.uint8))


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    """Limits of a few bytes: what is a gigabyte for users is a kilobyte here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(src, "CHUNK", 48)
        patched.setattr(strided, "CHUNK", 48)
        patched.setattr(strided, "GATHER_LIMIT", 96)
        patched.setattr(strided, "GATHER_SMALL", 16)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> File:
    path = tmp_path_factory.mktemp("source") / "data"
    path.write_bytes(CONTENT)
    return File(path)


def poured(source: Source, folder: Path, at: int = 0) -> bytes:
    path = folder / "out"
    with path.open("wb+") as out:
        source.pour(out.fileno(), at)
    data = path.read_bytes()
    path.unlink()
    assert len(data) == (at + source.nbytes if source.nbytes else 0)
    assert data[:at] == bytes(at if source.nbytes else 0)
    return data[at:]


@st.composite
def views(draw: st.DrawFn) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """(itemsize, offset, shape, strides) of a view that stays within CONTENT; strides of any sign, zero included."""
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    room = len(CONTENT) // itemsize
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=4)))
    strides = []
    low = high = 0
    for size in shape:
        most = max((room - 1 - (high - low)) // max(size - 1, 1), 0)
        bound = min(most, draw(st.sampled_from([1, 8, 200])))
        stride = draw(st.integers(-bound, bound))
        strides.append(stride)
        low += min((size - 1) * stride, 0)
        high += max((size - 1) * stride, 0)
    offset = draw(st.integers(-low, room - 1 - high))
    return itemsize, offset, shape, tuple(strides)


def expected(itemsize: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    flat = np.frombuffer(CONTENT[: len(CONTENT) // itemsize * itemsize], f"V{itemsize}")
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, [s * itemsize for s in strides]).tobytes()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(views(), st.data())
def test_views_are_what_numpy_makes_of_them(
    file: File, tmp_path: Path, shape: tuple[int, int, tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    want = expected(*shape)
    itemsize, offset, sizes, strides = shape
    for base in (FileSpan(file, 0, len(CONTENT)), Inline(CONTENT), Read(Memory(CONTENT), 0, len(CONTENT))):
        source = view(base, itemsize, offset, sizes, strides)
        assert source.nbytes == len(want)
        assert isinstance(source, Strided) != is_contiguous(sizes, strides)
        assert read_all(source) == want
        start = data.draw(st.integers(0, len(want)))
        size = data.draw(st.integers(0, len(want) - start))
        buffer = bytearray(size)
        source.read_into(start, memoryview(buffer))
        assert buffer == want[start : start + size]
    assert poured(source, tmp_path, at=7) == want


@settings(max_examples=60)
@given(views(), st.lists(st.integers(1, 100), min_size=1, max_size=5))
def test_forward_reading_in_any_blocks(
    file: File, shape: tuple[int, int, tuple[int, ...], tuple[int, ...]], steps: list[int]
) -> None:
    want = expected(*shape)
    base = Strided(FileSpan(file, 0, len(CONTENT)), *shape)
    for source in (base, Slice(base, 0, base.nbytes), Mapped(base, base.nbytes, 1, 1, copy)):
        forward, at, i = Forward(source), 0, 0
        while at < len(want):
            n = min(steps[i % len(steps)], len(want) - at)
            assert forward.read(at, n) == want[at : at + n]
            at, i = at + n, i + 1
        assert forward.read(0, min(3, len(want))) == want[:3]  # back to the start


def copy(rows: memoryview, out: memoryview) -> None:
    out[:] = rows


def test_a_large_transposed_matrix_is_read_in_bounded_pieces(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single read may load more than the limit, whatever the view spans, and not each element by itself."""
    sizes: list[int] = []
    real = FileSpan.read_into

    def counted(self: FileSpan, offset: int, buffer: memoryview) -> None:
        sizes.append(len(buffer))
        real(self, offset, buffer)

    monkeypatch.setattr(FileSpan, "read_into", counted)
    source = Strided(FileSpan(file, 0, len(CONTENT)), 4, 0, (32, 32), (1, 32))
    assert read_all(source) == np.frombuffer(CONTENT, "<u4").reshape(32, 32).T.tobytes()
    assert max(sizes) <= 96
    monkeypatch.setattr(src, "CHUNK", 4096)
    monkeypatch.setattr(strided, "CHUNK", 4096)
    monkeypatch.setattr(strided, "GATHER_LIMIT", 8192)
    sizes.clear()
    assert read_all(source) == np.frombuffer(CONTENT, "<u4").reshape(32, 32).T.tobytes()
    assert sizes == [4096]


OUTSIDE = [
    ("past the end", 1020, (5,), (1,)),
    ("before the start", 2, (4,), (-1,)),
    ("a stride beyond", 0, (2,), (1024,)),
    ("an offset beyond", 1024, (), ()),
    ("a negative offset", -1, (1,), (1,)),
    ("a huge stride", 0, (2,), (1 << 62,)),
    ("a huge shape", 0, (1 << 40, 1 << 40), (1, 1)),
    ("a huge negative stride", 0, (3,), (-(1 << 62),)),
    ("a negative size", 0, (-1,), (1,)),
    ("fewer strides", 0, (2, 2), (1,)),
]


@pytest.mark.parametrize(("offset", "shape", "strides"), [o[1:] for o in OUTSIDE], ids=[o[0] for o in OUTSIDE])
def test_a_view_that_reaches_outside_is_corrupt(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    with pytest.raises(Corrupt):
        view(Inline(CONTENT), 4, offset, shape, strides)


INSIDE = [
    ("to the end", 1019, (5,), (1,)),
    ("back to the start", 3, (4,), (-1,)),
    ("a stride to the end", 0, (2,), (1023,)),
    ("the last element", 1023, (), ()),
    ("an unused huge stride", 0, (1,), (1 << 62,)),
    ("an unused huge stride beside a used one", 0, (1, 3), (1 << 62, 2)),
    ("one element over and over", 5, (3, 2), (0, 0)),
    ("empty, whatever else", 1 << 70, (0, 5), (1 << 62, -7)),
]


@pytest.mark.parametrize(("offset", "shape", "strides"), [i[1:] for i in INSIDE], ids=[i[0] for i in INSIDE])
def test_its_twin_that_stays_inside(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    source = view(Inline(CONTENT), 4, offset, shape, strides)
    assert source.nbytes == 4 * prod(shape)
    assert len(read_all(source)) == source.nbytes


@pytest.mark.parametrize("size", [1, 3, 47, 48, 49, 97, 500])
def test_mapped_rows_do_not_depend_on_the_cuts(size: int) -> None:
    def widen(rows: memoryview, out: memoryview) -> None:
        assert len(rows) % 3 == 0
        for row in range(len(rows) // 3):
            out[5 * row : 5 * row + 5] = bytes(rows[3 * row : 3 * row + 3]) + bytes(
                [sum(rows[3 * row : 3 * row + 3]) & 255, 7]
            )

    source = Mapped(Inline(CONTENT[:900]), 300, 3, 5, widen)
    whole = read_all(source)
    assert len(whole) == source.nbytes == 1500
    assert whole[::5] == CONTENT[0:900:3]
    parts = []
    for at in range(0, 1500, size):
        buffer = bytearray(min(size, 1500 - at))
        source.read_into(at, memoryview(buffer))
        parts.append(bytes(buffer))
    assert b"".join(parts) == whole


def test_rows_must_fill_the_source() -> None:
    with pytest.raises(Corrupt):
        Mapped(Inline(b"12345"), 2, 2, 2, copy)
    assert Mapped(Inline(b"1234"), 2, 2, 2, copy).nbytes == 4


def every_kind(file: File) -> list[Source]:
    plain = FileSpan(file, 100, 1000)
    return [
        plain,
        Inline(CONTENT[100:1100]),
        Slice(Strided(FileSpan(file, 0, len(CONTENT)), 1, 50, (2000,), (1,)), 50, 1000),
        Read(BytesPart(Window(file, 50, 2000), 25, 1900), 25, 1000),
        Mapped(plain, 500, 2, 2, copy),
        Strided(FileSpan(file, 0, len(CONTENT)), 4, 25, (250,), (1,)),
    ]


@pytest.mark.parametrize("at", [0, 1, 4096, 5000])
@pytest.mark.parametrize("offset", [0, 1, 904])
def test_a_span_is_poured_alike_where_pages_meet_and_where_not(
    file: File, tmp_path: Path, offset: int, at: int
) -> None:
    assert poured(FileSpan(file, offset, 3000), tmp_path, at) == CONTENT[offset : offset + 3000]


@pytest.mark.parametrize("i", range(6))
def test_every_kind_of_source_gives_the_same_bytes_every_way(file: File, tmp_path: Path, i: int) -> None:
    source, want = every_kind(file)[i], CONTENT[100:1100]
    assert source.nbytes == 1000
    assert read_all(source) == want
    assert poured(source, tmp_path) == want
    path = tmp_path / "pieces"
    with path.open("wb+") as out:
        for start in (600, 0, 300):
            pour_range(source, start, min(300 if start < 600 else 400, 1000 - start), out.fileno(), start)
    assert path.read_bytes() == want
    for offset, n in ((-1, 1), (0, 1001), (1000, 1), (999, 2)):
        with pytest.raises(IndexError):
            source.read_into(offset, memoryview(bytearray(n)))
    source.read_into(1000, memoryview(bytearray()))


def test_which_are_plain_and_which_file_they_are_from(file: File) -> None:
    kinds = every_kind(file)
    assert [is_plain(s) for s in kinds] == [True, True, False, False, True, False]
    assert [[f.path for f in files_of(s)] for s in kinds] == [[file.path] if i != 1 else [] for i in range(len(kinds))]


def test_the_file_behind_a_deflated_member_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", CONTENT[:64] * 100)
    source = span(Zip(File(path)).member_bytes("data"), 0, 6400)
    assert read_all(source) == CONTENT[:64] * 100
    assert [f.path for f in files_of(source)] == [str(path)]


def test_spans_are_values(file: File) -> None:
    """Equal spans are one tensor: that is how ties are found."""
    again = File(file.path)
    assert FileSpan(file, 0, 8) == FileSpan(again, 0, 8)
    assert hash(FileSpan(file, 0, 8)) == hash(FileSpan(again, 0, 8))
    assert FileSpan(file, 0, 8) != FileSpan(file, 8, 8)
    assert Mapped(FileSpan(file, 0, 8), 2, 4, 4, copy, "cast") == Mapped(FileSpan(file, 0, 8), 2, 4, 4, print, "cast")
    assert Mapped(FileSpan(file, 0, 8), 2, 4, 4, copy, "cast") != Mapped(FileSpan(file, 0, 8), 2, 4, 4, copy, "swap")
    strided = Strided(FileSpan(file, 0, 64), 4, 0, (2, 2), (1, 2))
    assert strided == replace(strided)
    assert strided != replace(strided, strides=(2, 1))


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(CONTENT)
    opened = File(path)
    opened.check_unchanged()
    os.utime(path, ns=(1, 1))
    with pytest.raises(Corrupt, match="changed"):
        opened.check_unchanged()
    path.write_bytes(CONTENT[:10])
    with pytest.raises(Truncated, match="became shorter"):
        opened.read(0, 100)
    with pytest.raises(Truncated, match="became shorter"), (tmp_path / "out").open("wb+") as out:
        FileSpan(opened, 0, 100).pour(out.fileno(), 0)


@pytest.mark.parametrize("at", [0, 8, 4096 + 8])
@pytest.mark.parametrize("offset", [0, 72, 4095])
def test_large_spans_are_copied_wherever_their_pages_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, at: int
) -> None:
    monkeypatch.setattr(files, "MAP_CHUNK", 2 * mmap.ALLOCATIONGRANULARITY)
    monkeypatch.setattr(files, "MAP_LEAST", 1000)
    content = np.random.default_rng(2).integers(0, 256, 100_000, dtype=np.uint8).tobytes()
    path = tmp_path / "data"
    path.write_bytes(content)
    for nbytes in (999, 1000, 70_000, 100_000 - offset):
        assert poured(FileSpan(File(path), offset, nbytes), tmp_path, at) == content[offset : offset + nbytes]


def test_a_file_that_is_cut_short_while_it_is_mapped_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(1 << 20))
    opened, write, calls = File(path), os.pwrite, []

    def cut(fd: int, data: memoryview, at: int) -> int:
        os.truncate(path, 8192)
        calls.append(len(data))
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", cut)
    with pytest.raises(Truncated, match="became shorter"), (tmp_path / "out").open("wb+") as out:
        FileSpan(opened, 0, 1 << 20).pour(out.fileno(), 8)
    assert calls[0] == 1 << 20  # that was the mapping; the rest is read


def test_reading_goes_on_from_the_file_that_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"first")
    opened = File(path)
    (tmp_path / "other").write_bytes(b"other")
    os.replace(tmp_path / "other", path)
    assert opened.read(0, 5) == b"first"
    opened.check_unchanged()


def test_roots_are_what_all_is_made_of_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)))
    file = File(str(path))
    spanned, unpacked = FileSpan(file, 0, 64), Read(Memory(bytes(64)), 0, 64)
    joined = concat([Slice(Strided(unpacked, 1, 63, (64,), (-1,)), 0, 32), Mapped(spanned, 8, 8, 8, lambda a, b: None)])
    assert list(roots(joined)) == [unpacked, spanned]
    assert list(roots(Inline(b"x"))) == [Inline(b"x")]
    assert list(files_of(joined)) == [file]
