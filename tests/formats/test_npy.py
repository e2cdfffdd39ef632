"""npy: one array, of every type that NumPy writes, objects included."""

from __future__ import annotations

import io
import random
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from contract import LARGE, ReaderContract, contents, expected_of, read

from artifactkit.errors import Corrupt, Truncated


class TestContract(ReaderContract):
    format = "npy"
    suffix = ".npy"
    mutations = 500
    arrays = {"tensor": np.arange(12, dtype=np.float32).reshape(3, 4)}  # noqa: RUF012

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        with path.open("wb") as f:
            if len(arrays) == 1:
                np.save(f, *arrays.values())
            else:
                box = np.empty((), dtype=object)
                box[()] = arrays
                np.save(f, box, allow_pickle=True)


class TestObjects(TestContract):
    arrays = ReaderContract.arrays


def written(tmp_path: Path, array: np.ndarray) -> Path:
    path = tmp_path / "made.npy"
    with path.open("wb") as f:
        np.save(f, array, allow_pickle=True)
    return path


@pytest.mark.parametrize(
    "array",
    [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(6.0).reshape(2, 3)[:, ::2], np.array(2, np.int8),
     np.zeros((2, 0), np.uint64), np.array([1 + 1j, 2]), np.array([1 + 1j], np.complex64), np.array([True]),
     np.arange(3, dtype=np.float16)],
    ids=lambda a: f"{a.dtype}{a.shape}",
)  # fmt: skip
def test_arrays(array: np.ndarray, tmp_path: Path) -> None:
    assert contents(read(written(tmp_path, array))) == expected_of({"tensor": array})


@pytest.mark.parametrize("dtype", [">f4", ">i2", ">c8", ">u8", ">f8"])
def test_big_endian(dtype: str, tmp_path: Path) -> None:
    array = np.arange(5).astype(dtype)
    native = array.astype(array.dtype.newbyteorder("<"))
    assert contents(read(written(tmp_path, array))) == expected_of({"tensor": native})


@pytest.mark.parametrize(
    ("dtype", "name"), [(ml_dtypes.bfloat16, "bf16"), (ml_dtypes.float8_e5m2, "f8_e5m2")], ids=["bf16", "f8_e5m2"]
)
def test_types_of_ml_dtypes_are_told_by_their_size(dtype: type, name: str, tmp_path: Path) -> None:
    array = np.array([1.0, -0.0, np.inf], dtype)
    weights = read(written(tmp_path, array))
    assert contents(weights) == {"tensor": (name, (3,), array.tobytes())}
    assert any(f"taken as {name}" in note for note in weights.notes)


@pytest.mark.parametrize(
    "array",
    [np.array(["text"]), np.array([b"bytes"]), np.zeros(2, [("a", "f4"), ("b", "i2")]), np.zeros(2, "M8[s]"),
     np.zeros(2, np.longdouble), np.array([1.0], ml_dtypes.float8_e4m3fn), np.array(["x", 3], dtype=object)],
    ids=lambda a: a.dtype.str,
)  # fmt: skip
def test_what_is_no_number_is_listed(array: np.ndarray, tmp_path: Path) -> None:
    weights = read(written(tmp_path, array))
    assert not weights.tensors
    assert len(weights.skipped) == (2 if array.dtype == object else 1)  # objects one by one


def test_mtcnn_style_object_arrays(tmp_path: Path) -> None:
    array = np.empty(1, dtype=object)
    array[0] = {"pnet": [np.arange(3.0), np.ones((2, 2), np.float32)]}
    got = contents(read(written(tmp_path, array)))
    assert got == expected_of({"0.pnet.0": np.arange(3.0), "0.pnet.1": np.ones((2, 2), np.float32)})


def test_an_array_that_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path, np.arange(10.0))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Truncated, match="ends too early") as caught:
        read(path)
    assert caught.value.offset == 128


def test_an_object_array_of_another_shape(tmp_path: Path) -> None:
    path = written(tmp_path, np.array([1, "x"], dtype=object))
    path.write_bytes(path.read_bytes().replace(b"(2,)", b"(3,)"))
    with pytest.raises(Corrupt, match="shape"):
        read(path)


def test_bytes_after_the_array_are_said(tmp_path: Path) -> None:
    path = written(tmp_path, np.arange(3.0))
    path.write_bytes(path.read_bytes() + b"tail")
    assert any("4 bytes follow" in note for note in read(path).notes)


def test_random_arrays_of_random_types(tmp_path: Path) -> None:
    rng = random.Random(5)
    kinds = ["<f4", "<f8", "<f2", "|b1", "<i4", "<u2", "<c16", ">f8", ">i8"]
    for _ in range(60):
        shape = tuple(rng.randrange(4) for _ in range(rng.randrange(5)))
        array = (np.random.default_rng(rng.randrange(99)).integers(0, 2, shape) * 3).astype(rng.choice(kinds))
        array = array.transpose(rng.sample(range(array.ndim), array.ndim))
        native = array.astype(array.dtype.newbyteorder("<"))
        assert contents(read(written(tmp_path, array))) == expected_of({"tensor": native})


def test_large_is_what_the_contract_thinks() -> None:
    buffer = io.BytesIO()
    np.save(buffer, next(iter(LARGE.values())))
    assert buffer.tell() > 400_000
