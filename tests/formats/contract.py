"""What every format that is read must do. A test class of a format inherits this and says how to write such a file."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from artifactkit import dtypes, registry
from artifactkit.artifact import Weights
from artifactkit.errors import ArtifactkitError, Unreadable
from artifactkit.files import File
from artifactkit.source import read_all
from artifactkit.types import Head, ReadOptions

Expected = dict[str, tuple[str, tuple[int, ...], bytes]]  # name: dtype, shape, row-major little-endian bytes

NAMES = {d.numpy: d.name for d in dtypes.ALL if d.numpy}

SMALL: dict[str, np.ndarray] = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4) - 5.5,
    "a.bias": np.array([1.5, -0.0, np.inf, np.nan], dtype=np.float64),
    "b.count": np.array(7, dtype=np.int64),
    "b.empty": np.zeros((0, 3), dtype=np.float32),
    "b.mask": np.array([True, False, True]),
}
LARGE: dict[str, np.ndarray] = {
    f"layer{i}.weight": np.random.default_rng(i).standard_normal((512, 1024)).astype(np.float32) for i in range(3)
}
HEADERS = 1_000_000  # bytes that may be read of the 6 MB of LARGE to know what is in a file


def expected_of(arrays: dict[str, np.ndarray]) -> Expected:
    return {n: (NAMES[a.dtype.name], a.shape, np.ascontiguousarray(a).tobytes()) for n, a in arrays.items()}


def read(path: Path | str, **options: object) -> Weights:
    """Sniff and read, as the program does."""
    fmt, head = registry.sniff(str(path))
    assert fmt.read is not None
    return fmt.read(head, ReadOptions(**options))  # type: ignore[arg-type]


def contents(weights: Weights) -> Expected:
    """Every tensor's dtype, shape and bytes, read through its source."""
    return {t.name: (t.dtype.name, t.shape, read_all(t.source)) for t in weights}


def sniffed(path: Path | str) -> list[str]:
    """The names of all formats whose sniff holds."""
    head = Head(str(path))
    return [fmt.name for fmt in registry.formats().values() if fmt.sniff(head)]


def read_it_all(path: Path) -> Expected | None:
    """Contents, or None when the file was refused by one of our errors. Anything else that is raised fails the test."""
    try:
        weights = read(path)
        assert weights.nbytes < 1 << 30
        return contents(weights)
    except ArtifactkitError as error:
        assert str(error)
        return None


def cuts(size: int, rng: random.Random) -> Iterator[int]:
    """Where to cut a file of ``size`` bytes: everywhere near the ends, at random between."""
    if size <= 300:
        yield from range(size)
        return
    yield from range(60)
    yield from sorted(rng.randrange(60, size - 80) for _ in range(120))
    yield from range(size - 80, size)


class ReaderContract:
    """Inherit, set ``format``, and write ``write``. Each test is one promise."""

    format: str
    suffix = ".bin"
    mutations = 300
    reads_whole = False  # compressed as a whole: its headers cannot be had without the rest
    arrays = SMALL

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        """Write ``arrays`` to ``path`` in this format, with a library or by hand, but with none of our code."""
        raise NotImplementedError

    def expected(self, arrays: dict[str, np.ndarray]) -> Expected:
        """What reading must give; names may differ from those of ``arrays``."""
        return expected_of(arrays)

    def make(self, tmp_path: Path) -> tuple[Path, Expected]:
        path = tmp_path / f"made{self.suffix}"
        self.write(path, self.arrays)
        return path, self.expected(self.arrays)

    def test_reads_exactly(self, tmp_path: Path) -> None:
        path, expected = self.make(tmp_path)
        weights = read(path)
        assert contents(weights) == expected
        assert weights.format == self.format
        assert weights.files == (str(path),)

    @pytest.mark.parametrize("name", ["x", "x.pt", "x.safetensors", "x.npz", "x.pkl", "x.tar", "x.gguf"])
    def test_told_by_content_whatever_its_name(self, tmp_path: Path, name: str) -> None:
        path, expected = self.make(tmp_path)
        path = path.rename(tmp_path / name)
        assert sniffed(path) == [self.format]
        assert contents(read(path)) == expected

    def test_headers_are_read_and_tensors_are_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if self.reads_whole:
            pytest.skip("the whole file is one compressed stream")
        path = tmp_path / f"large{self.suffix}"
        self.write(path, LARGE)
        total = 0
        plain, into = File.read, File.read_into

        def counted(self: File, offset: int, n: int) -> bytes:
            nonlocal total
            total += n
            return plain(self, offset, n)

        def counted_into(self: File, offset: int, buffer: memoryview) -> None:
            nonlocal total
            total += len(buffer)
            into(self, offset, buffer)

        with monkeypatch.context() as patch:
            patch.setattr(File, "read", counted)
            patch.setattr(File, "read_into", counted_into)
            weights = read(path)
        assert len(weights.tensors) == len(LARGE)
        assert total < HEADERS
        assert contents(weights) == self.expected(LARGE)

    def test_cut_anywhere_it_is_unreadable(self, tmp_path: Path) -> None:
        path, expected = self.make(tmp_path)
        raw = path.read_bytes()
        for cut in cuts(len(raw), random.Random(7)):
            path.write_bytes(raw[:cut])
            try:
                got = contents(read(path))
            except Unreadable as error:
                assert error.exit_code == 3
                assert error.file is not None
            else:
                assert got == expected, f"cut at {cut} of {len(raw)} it reads as something else"

    def test_whatever_is_changed_only_our_errors_come_out(self, tmp_path: Path) -> None:
        path, _ = self.make(tmp_path)
        raw = path.read_bytes()
        rng = random.Random(8)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(self.mutations):
            path.write_bytes(mutated(raw, rng))
            read_it_all(path)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 200 << 10  # KiB


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """``raw`` with bytes changed, taken out, or put in: one to four times."""
    out = bytearray(raw)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(out)) if out else 0
        kind = rng.randrange(6)
        if kind <= 2 and out:
            out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), out[at] ^ 1 << rng.randrange(8)])
        elif kind == 3:
            del out[at : at + rng.randrange(1, 9)]
        elif kind == 4:
            out[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            out[at : at + 8] = rng.choice([b"\xff" * 8, b"\x7f" + b"\xff" * 7, bytes(8), b"\0\0\0\x80\0\0\0\0"])
    return bytes(out)
