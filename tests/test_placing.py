"""Placing parts and reading them back: any order, gaps, sums; what goes wrong on the way surfaces as itself."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifactkit import placing
from artifactkit.errors import (
    ArtifactkitError,
    Corrupt,
    Interrupted,
    OutputError,
    Truncated,
    Unreadable,
    VerificationFailed,
)
from artifactkit.files import File, Memory
from artifactkit.placing import Progress, SameBytes, Worker, check_layout, place, sha256_file
from artifactkit.source import FileSpan, Inline, Mapped, Read, Source
from artifactkit.strided import Strided
from artifactkit.types import OutputFile, Part


def same(part: Part) -> SameBytes:
    return SameBytes(part, "out")


def put(output: OutputFile, path: Path, check: bool = True, progress: Progress | None = None) -> placing.Digest | None:
    digest = place(output, str(path), progress or Progress(), same if check else None, "out")
    assert not any(isinstance(t, Worker) for t in threading.enumerate())
    return digest


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seam within a few bytes."""
    monkeypatch.setattr(placing, "PIECE", 16)
    monkeypatch.setattr(placing, "READ_BLOCK", 8)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """(the file that is to be, [(offset, size)] of its parts in any order); some empty, gaps between and around."""
    at, parts = 0, []
    for gap, size in draw(st.lists(st.tuples(st.sampled_from([0, 0, 1, 7, 40]), st.sampled_from([0, 1, 5, 16, 70])))):
        parts.append((at + gap, size))
        at += gap + size
    at += draw(st.sampled_from([0, 3, 50]))
    whole = bytearray(at)
    for offset, size in parts:
        whole[offset : offset + size] = draw(st.binary(min_size=size, max_size=size))
    return bytes(whole), draw(st.permutations(parts))


def sources(data: bytes, kind: int, folder: Path) -> Source:
    if kind == 0:
        return Inline(data)
    if kind == 1:
        return Read(Memory(data), 0, len(data), ("file", kind))
    if kind == 2 and data:
        return Strided(Inline(data[::-1]), 1, len(data) - 1, (len(data),), (-1,))
    path = folder / hashlib.sha256(data).hexdigest()
    path.write_bytes(b"--" + data)
    return FileSpan(File(path), 2, len(data))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layouts(), st.data())
def test_any_layout_in_any_order(
    tmp_path: Path, small_pieces: None, layout: tuple[bytes, list[tuple[int, int]]], data: st.DataObject
) -> None:
    whole, placed = layout
    parts = tuple(
        Part(offset, sources(whole[offset : offset + size], data.draw(st.integers(0, 3)), tmp_path), f"t{offset}")
        for offset, size in placed
    )
    output = OutputFile("out", len(whole), parts)
    path = tmp_path / "out"
    for check in (True, False):
        path.write_bytes(b"")
        digest = put(output, path, check)
        assert path.read_bytes() == whole
        assert digest == (placing.Digest("out", len(whole), hashlib.sha256(whole).hexdigest()) if check else None)


def test_no_parts_at_all(tmp_path: Path) -> None:
    digest = put(OutputFile("out", 0, ()), tmp_path / "out")
    assert digest is not None
    assert digest.sha256 == hashlib.sha256(b"").hexdigest()


def test_sums_go_to_finish_and_its_parts_are_checked_too(tmp_path: Path, small_pieces: None) -> None:
    a, b = os.urandom(100), os.urandom(33)
    seen: dict[str, int] = {}

    def finish(sums: Mapping[str, int]) -> Sequence[Part]:
        seen.update(sums)
        return [Part(0, Inline(sums["a"].to_bytes(4, "little"))), Part(104, Inline(sums["b"].to_bytes(4, "little")))]

    strided = Strided(Inline(b[::-1]), 1, 32, (33,), (-1,))
    parts = (Part(108, strided, "b"), Part(4, Inline(a), "a"), Part(141, Inline(b""), "empty"))
    output = OutputFile("out", 141, parts, finish)
    digest = put(output, tmp_path / "out")
    want = zlib.crc32(a).to_bytes(4, "little") + a + zlib.crc32(b).to_bytes(4, "little") + b
    assert (tmp_path / "out").read_bytes() == want
    assert digest is not None
    assert digest.sha256 == hashlib.sha256(want).hexdigest()
    assert seen == {"a": zlib.crc32(a), "b": zlib.crc32(b), "empty": 0}


OVERLAPS = [
    ("two at one place", 8, [(0, 4), (0, 4)]),
    ("one into the next", 8, [(0, 5), (4, 4)]),
    ("past the end", 8, [(0, 4), (4, 5)]),
    ("before the start", 8, [(-1, 4)]),
    ("one within another", 9, [(0, 9), (3, 1)]),
    ("an empty one past the end", 8, [(9, 0)]),
]


@pytest.mark.parametrize(("size", "parts"), [o[1:] for o in OVERLAPS], ids=[o[0] for o in OVERLAPS])
def test_a_layout_with_overlaps_is_refused(tmp_path: Path, size: int, parts: list[tuple[int, int]]) -> None:
    output = OutputFile("out", size, tuple(Part(at, Inline(bytes(n)), "t") for at, n in parts))
    with pytest.raises(Corrupt, match="overlap"):
        put(output, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_its_twin_without(tmp_path: Path) -> None:
    parts = (Part(4, Inline(b"bbbb")), Part(4, Inline(b"")), Part(0, Inline(b"aaaa")), Part(8, Inline(b"")))
    check_layout(OutputFile("out", 8, parts))
    assert put(OutputFile("out", 8, parts), tmp_path / "out") is not None


# What goes wrong.


class Once(Read):
    """A source that does something of its own after so many bytes."""

    __slots__ = ("_after", "_what")

    def __init__(self, nbytes: int, after: int, what: Callable[[], None]) -> None:
        super().__init__(Memory(random.Random(1).randbytes(nbytes)), 0, nbytes)
        object.__setattr__(self, "_after", after)
        object.__setattr__(self, "_what", what)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset <= self._after < offset + len(buffer):
            self._what()
        super().read_into(offset, buffer)


def fail(error: BaseException) -> Callable[[], None]:
    def raising() -> None:
        raise error

    return raising


ERRORS: list[tuple[BaseException, type[BaseException]]] = [
    (Truncated("the file became shorter"), Truncated),
    (OSError(errno.ENOSPC, "No space left on device"), OutputError),
    (KeyboardInterrupt(), KeyboardInterrupt),
    (MemoryError(), MemoryError),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=lambda v: getattr(v, "__name__", ""))
@pytest.mark.parametrize("check", [True, False])
def test_an_error_of_a_source_surfaces_as_itself(
    tmp_path: Path, small_pieces: None, error: BaseException, kind: type[BaseException], check: bool
) -> None:
    source = Once(1000, 500, fail(error))
    # The comparison reads ahead, so it may be the first to meet the error; to it an OSError is one of reading.
    with pytest.raises((kind, Unreadable) if check and isinstance(error, OSError) else kind):
        put(OutputFile("out", 1000, (Part(0, source, "t"),)), tmp_path / "out", check)


def test_an_os_error_of_the_comparison_is_one_of_reading(tmp_path: Path, small_pieces: None) -> None:
    class Failing(SameBytes):
        def feed(self, offset: int, block: memoryview) -> None:
            raise OSError(errno.EIO, "Input/output error")

    output = OutputFile("out", 1000, (Part(0, Inline(bytes(1000)), "t"),))
    with pytest.raises(Unreadable, match="Input/output") as caught:
        place(output, str(tmp_path / "out"), Progress(), lambda part: Failing(part, "out"), "shown")
    assert (caught.value.tensor, caught.value.exit_code) == ("t", 3)


@pytest.mark.parametrize("where", ["feed", "finish", "making"])
def test_an_error_of_the_comparison_surfaces_as_itself(tmp_path: Path, small_pieces: None, where: str) -> None:
    class Bad(SameBytes):
        def feed(self, offset: int, block: memoryview) -> None:
            if where == "feed" and offset > 100:
                raise ZeroDivisionError

        def finish(self) -> None:
            if where == "finish":
                raise ZeroDivisionError

    def make(part: Part) -> Bad:
        if where == "making":
            raise ZeroDivisionError
        return Bad(part, "out")

    output = OutputFile("out", 1000, (Part(0, Inline(bytes(1000)), "t"),))
    with pytest.raises(ZeroDivisionError):
        place(output, str(tmp_path / "out"), Progress(), make)
    assert not any(isinstance(t, Worker) for t in threading.enumerate())


def test_a_thread_beside_that_fails_stops_the_writing_at_the_next_block(tmp_path: Path, small_pieces: None) -> None:
    def work() -> None:
        raise Truncated("the source ends too early")

    worker = Worker(work)
    worker.start()
    worker.join()
    progress = Progress(watched=[worker])
    with pytest.raises(Truncated, match="the source"):
        put(OutputFile("out", 1000, (Part(0, Inline(bytes(1000)), "t"),)), tmp_path / "out", progress=progress)
    assert progress.done <= 16


def test_stopped_from_outside(tmp_path: Path, small_pieces: None) -> None:
    progress = Progress()
    progress.on_change = lambda p: p.stop.set() if p.done > 100 else None
    with pytest.raises(Interrupted):
        put(OutputFile("out", 1000, (Part(0, Inline(bytes(1000)), "t"),)), tmp_path / "out", progress=progress)
    assert 100 < progress.done < 200


DAMAGE: list[tuple[str, int, bytes]] = [
    ("first byte", 0, b"\xff"),
    ("in the middle", 555, b"\xff"),
    ("last byte", 1039, b"\xff"),
    ("in a gap", 1005, b"\xff"),
]


@pytest.mark.parametrize(("at", "what"), [d[1:] for d in DAMAGE], ids=[d[0] for d in DAMAGE])
def test_an_output_that_is_damaged_on_the_way_is_found(
    tmp_path: Path, small_pieces: None, at: int, what: bytes
) -> None:
    """Through another descriptor, after the byte was placed and before it is read back."""
    path = tmp_path / "out"
    placed, damaged = threading.Event(), threading.Event()

    def damage() -> None:
        placed.wait()
        with path.open("rb+") as other:
            other.seek(at)
            other.write(what)
        damaged.set()

    def make(part: Part) -> SameBytes:
        damaged.wait()  # nothing is read back before
        return same(part)

    def changed(progress: Progress) -> None:
        if progress.done == 1032:
            placed.set()

    thread = threading.Thread(target=damage)
    thread.start()
    parts = (Part(0, Inline(bytes(1000)), "first"), Part(1008, Inline(bytes(32)), "second"))
    with pytest.raises(VerificationFailed) as caught:
        place(OutputFile("out", 1040, parts), str(path), Progress(on_change=changed), make, "shown")
    thread.join()
    assert caught.value.offset == at
    assert caught.value.file in ("out", "shown")


def test_an_output_that_is_cut_short_on_the_way_is_found(tmp_path: Path, small_pieces: None) -> None:
    path = tmp_path / "out"

    def cut() -> None:
        os.truncate(path, 100)

    parts = (Part(0, Inline(bytes(500)), "a"), Part(500, Once(500, 499, cut), "b"))
    with pytest.raises(VerificationFailed):
        put(OutputFile("out", 1000, parts), path)


def test_a_source_that_reads_unlike_the_second_time(tmp_path: Path, small_pieces: None) -> None:
    """Memory or disk that does not hold what was read from it: the byte, its place and both values are named."""

    def flaky(rows: memoryview, out: memoryview) -> None:
        out[:] = rows
        if threading.current_thread() is not threading.main_thread():  # when it is read for the comparison
            out[42] ^= 1

    source = Mapped(Inline(bytes(100)), 1, 100, 100, flaky)
    with pytest.raises(VerificationFailed) as caught:
        put(OutputFile("out", 110, (Part(10, source, "w"),)), tmp_path / "out")
    error = caught.value
    assert (error.tensor, error.offset, error.expected, error.found) == ("w", 52, "byte 0x01", "byte 0x00")


def test_a_destination_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        put(OutputFile("out", 1, (Part(0, Inline(b"x")),)), tmp_path / "absent" / "out")


def test_the_digest_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for data in (b"", b"x", os.urandom(placing.READ_BLOCK), os.urandom(3 * placing.READ_BLOCK + 5)):
        path.write_bytes(data)
        assert sha256_file(File(path)).sha256 == hashlib.sha256(data).hexdigest()
    opened, stop = File(path), threading.Event()
    os.utime(path, ns=(1, 1))
    with pytest.raises(Corrupt, match="changed"):
        sha256_file(opened)
    stop.set()
    with pytest.raises(Interrupted):
        sha256_file(File(path), stop)


def test_reading_back_keeps_close_to_the_writing(tmp_path: Path, small_pieces: None) -> None:
    """What has just been written is in memory still; gaps do not hold the reader up."""
    parts = tuple(Part(100 * i + 10, Inline(bytes([i]) * 80), f"t{i}") for i in range(10))
    started: dict[str, int] = {}
    progress = Progress()

    def make(part: Part) -> SameBytes:
        started[part.tensor or ""] = progress.done
        return SameBytes(part, "out")

    progress.on_change = lambda p: time.sleep(0.001)
    place(OutputFile("out", 1000, parts), str(tmp_path / "out"), progress, make)
    assert started["t1"] < 800


def test_failing_many_times_leaves_no_descriptor_and_no_thread(tmp_path: Path, small_pieces: None) -> None:
    def attempt() -> None:
        source = Once(300, 200, fail(Truncated("short")))
        with pytest.raises(ArtifactkitError):
            put(OutputFile("out", 300, (Part(0, source, "t"),)), tmp_path / "out")

    attempt()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        attempt()
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after <= before
