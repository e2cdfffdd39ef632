"""joblib: arrays between the opcodes, in every compression that joblib has."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import zlib
from pathlib import Path

import joblib
import numpy as np
import pytest
from contract import ReaderContract, contents, expected_of, read, sniffed

from artifactkit.errors import Corrupt, LimitExceeded, Unreadable
from artifactkit.opening import open_source
from artifactkit.source import read_all


class TestContract(ReaderContract):
    format = "joblib"
    suffix = ".joblib"
    mutations = 500

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        joblib.dump(arrays, path)


class TestZlib(TestContract):
    mutations = 200
    reads_whole = True

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        joblib.dump(arrays, path, compress=("zlib", 3))


ARRAYS = {
    "c": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
    "strided": np.arange(24, dtype=np.uint8).reshape(4, 6)[::2, 1::2],
    "scalar": np.array(3.5, np.float16),
    "empty": np.zeros((0, 2)),
    "after": np.array([True]),
}


@pytest.mark.parametrize("compress", [0, "zlib", "gzip", "bz2", "lzma", "xz"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_every_compression(compress: str | int, protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "made"
    joblib.dump({"model": ARRAYS, "note": "text"}, path, compress=(compress, 3) if compress else 0, protocol=protocol)
    assert sniffed(path) == ["joblib"]
    weights = read(path)
    assert contents(weights) == expected_of(ARRAYS)
    assert any("unpacked to" in note for note in weights.notes) == bool(compress)


def test_files_of_before_alignment(tmp_path: Path) -> None:
    # joblib up to 1.1 wrote no padding and had no such attribute.
    path = tmp_path / "old.joblib"
    joblib.dump({"w": np.arange(4.0)}, path, protocol=2)
    raw = path.read_bytes()
    new = b"X\x1b\x00\x00\x00numpy_array_alignment_bytes"
    at = raw.index(new)
    build = raw.index(b"ub", at) + 2  # SETITEMS, BUILD; then the padding's length and the padding
    path.write_bytes(raw[:at] + b"ub" + raw[build + 1 + raw[build] :])
    assert contents(read(path)) == expected_of({"w": np.arange(4.0)})


def test_object_arrays_are_pickles_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "made.joblib"
    array = np.empty(2, dtype=object)
    array[0], array[1] = {"w": np.arange(3.0)}, "text"
    joblib.dump({"objects": array, "b": np.ones(2)}, path)
    assert contents(read(path)) == expected_of({"objects.0.w": np.arange(3.0), "b": np.ones(2)})


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_bare_pickle(pack: object, tmp_path: Path) -> None:
    path = tmp_path / "made.pkl.gz"
    path.write_bytes(pack(pickle.dumps({"w": np.ones(3)}, 4)))  # type: ignore[operator]
    assert contents(read(path)) == expected_of({"w": np.ones(3)})


def zfile(data: bytes, length: int | None = None, wide: bool = False) -> bytes:
    text = f"{len(data) if length is None else length:#x}".ljust(19 + wide)
    return b"ZF" + text.encode() + zlib.compress(data)


@pytest.mark.parametrize("wide", [False, True])
def test_z_files_of_before_0_10(wide: bool, tmp_path: Path) -> None:
    path = tmp_path / "made.gz"
    path.write_bytes(zfile(pickle.dumps({"w": np.ones(3)}, 2), wide=wide))
    assert contents(read(path)) == expected_of({"w": np.ones(3)})


@pytest.mark.parametrize(
    ("data", "error"),
    [(zfile(pickle.dumps({}), length=7), Corrupt), (b"ZF0xzz" + b" " * 30, Corrupt), (zfile(bytes(40)), Unreadable),
     (b"\x04\x22\x4d\x18 some lz4 frame", Unreadable), (b"ZF0x3", Unreadable)],
    ids=range(5),
)  # fmt: skip
def test_what_is_refused(data: bytes, error: type[Exception], tmp_path: Path) -> None:
    path = tmp_path / "made.joblib"
    path.write_bytes(data)
    assert sniffed(path) == ["joblib"]
    with pytest.raises(error):
        read(path)


def test_compressed_arrays_in_files_of_their_own_are_refused_by_name(tmp_path: Path) -> None:
    # joblib up to 0.9 with compress and cache_size: ZNDArrayWrapper names a file that has no header of its own.
    path = tmp_path / "made.pkl"
    state = pickle.dumps({"filename": "made.pkl_01.npy.z", "shape": (5,), "init_args": None}, 2)[2:-1]
    path.write_bytes(b"\x80\x02}U\x01wcjoblib.numpy_pickle\nZNDArrayWrapper\n)\x81" + state + b"bs.")
    assert sniffed(path) == ["joblib"]
    [refusal] = read(path).refused.values()
    assert "made.pkl_01.npy.z" in refusal.what


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from artifactkit.containers import compressed

    path = tmp_path / "made.joblib"
    path.write_bytes(lzma.compress(pickle.dumps(np.zeros(1 << 20, np.uint8), 4)))
    assert read(path).nbytes == 1 << 20
    monkeypatch.setattr(compressed, "FREE_BYTES", 1 << 16)
    monkeypatch.setattr(compressed, "MAX_RATIO", 10)
    with pytest.raises(LimitExceeded):
        read(path)


class Beside:
    """A dump as joblib before 0.10 made it: ``NDArrayWrapper`` names a .npy in the same folder. Opcodes by hand."""

    @staticmethod
    def write(folder: Path, name: str, stored: str | None = None) -> Path:
        path = folder / "old.pkl"
        text = name.encode()
        path.write_bytes(
            b"\x80\x03cjoblib.numpy_pickle\nNDArrayWrapper\n)\x81}(X\x08\x00\x00\x00filename"
            b"X" + len(text).to_bytes(4, "little") + text + b"X\x08\x00\x00\x00subclasscnumpy\nndarray\nub."
        )
        if stored is not None:
            np.save(folder / stored, np.arange(6, dtype="<f4").reshape(2, 3), allow_pickle=False)
        return path


def test_an_array_in_a_file_beside_is_read(tmp_path: Path) -> None:
    path = Beside.write(tmp_path, "old.pkl_01.npy", "old.pkl_01.npy")
    weights = open_source(str(path)).weights
    [tensor] = weights.tensors.values()
    assert (tensor.shape, tensor.dtype.name) == ((2, 3), "f32")
    assert np.frombuffer(read_all(tensor.source), "<f4").tolist() == [0, 1, 2, 3, 4, 5]
    assert weights.files == (str(path), str(tmp_path / "old.pkl_01.npy"))


@pytest.mark.parametrize("name", ["../secret.npy", "/etc/secret.npy", "sub/secret.npy", "..", "", "a\\b.npy"])
def test_an_array_elsewhere_is_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/sub").mkdir()
    for secret in (tmp_path / "secret.npy", tmp_path / "in/sub/secret.npy"):
        np.save(secret, np.zeros(3), allow_pickle=False)
    path = Beside.write(tmp_path / "in", name)
    with pytest.raises(Corrupt, match="outside the folder"):
        open_source(str(path))


def test_an_array_in_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="not there") as caught:
        open_source(str(Beside.write(tmp_path, "gone.npy")))
    assert caught.value.expected == "gone.npy"
