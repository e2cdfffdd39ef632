"""npz: arrays in a zip archive, stored and deflated."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from contract import SMALL, ReaderContract, contents, expected_of, read, sniffed

from artifactkit.errors import Corrupt, Unreadable


class TestContract(ReaderContract):
    format = "npz"
    suffix = ".npz"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        with path.open("wb") as f:
            np.savez(f, **arrays)


class TestDeflated(TestContract):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        with path.open("wb") as f:
            np.savez_compressed(f, **arrays)


def test_reads_what_numpy_reads(tmp_path: Path) -> None:
    path = tmp_path / "made.npz"
    np.savez(path, *SMALL.values())
    with np.load(path, allow_pickle=False) as loaded:
        assert contents(read(path)) == expected_of({name: loaded[name] for name in loaded.files})


def test_names_are_kept_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "made.npz"
    np.savez(path, **{"module.w": np.ones(1), "a/b": np.ones(2), "ü": np.ones(3)})
    assert list(read(path).tensors) == ["module.w", "a/b", "ü"]


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, data in members.items():
            made.writestr(name, data)
    return path


def test_members_without_the_suffix(tmp_path: Path) -> None:
    path = archive(tmp_path / "made.npz", {"w": npy(np.ones(2)), "sub/": b"", "sub/v.npy": npy(np.ones(3))})
    assert contents(read(path)) == expected_of({"w": np.ones(2), "sub/v": np.ones(3)})


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    path = archive(tmp_path / "made.npz", {"w": npy(np.ones(2)), "w.npy": npy(np.ones(3))})
    with pytest.raises(Corrupt, match="one name"):
        read(path)


def test_an_archive_of_other_things_is_no_npz(tmp_path: Path) -> None:
    path = archive(tmp_path / "made.npz", {"w.npy": npy(np.ones(2)), "readme.txt": b"text"})
    assert sniffed(path) == []


def test_no_arrays_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made.npz"
    np.savez(path)
    assert sniffed(path) == ["npz"]
    assert not read(path).tensors


def test_objects_text_and_bfloat16(tmp_path: Path) -> None:
    path = tmp_path / "made.npz"
    half = np.array([1.0], ml_dtypes.bfloat16)
    np.savez(path, o=np.array([{"w": np.ones(2)}], dtype=object), t=np.array("text"), h=half)
    weights = read(path)
    assert contents(weights) == expected_of({"o.0.w": np.ones(2)}) | {"h": ("bf16", (1,), half.tobytes())}
    assert [s.path for s in weights.skipped] == ["t"]


def test_much_deflated_zeros_are_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "made.npz"
    np.savez_compressed(path, w=np.zeros(30_000_000, np.uint8))
    assert path.stat().st_size < 100_000
    assert read(path).nbytes == 30_000_000


def test_equal_arrays_are_not_tied(tmp_path: Path) -> None:
    path = tmp_path / "made.npz"
    np.savez_compressed(path, a=np.ones(4), b=np.ones(4))
    tensors = read(path).tensors
    assert not tensors["a"].same_bytes(tensors["b"])


def test_a_wrong_crc_of_a_deflated_array(tmp_path: Path) -> None:
    path = tmp_path / "made.npz"
    np.savez_compressed(path, a=np.arange(100.0))
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    raw[at + 16] ^= 1
    raw[14] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(Unreadable, match="CRC"):
        contents(read(path))
