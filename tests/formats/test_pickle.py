"""pickle: bare pickles of every protocol, with NumPy arrays or torch tensors in them."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from contract import ReaderContract, contents, expected_of, read, sniffed
from torch_cases import expected_of as torch_expected
from torch_cases import seeded

from artifactkit.errors import Corrupt, LimitExceeded, Truncated, Unreadable


class TestContract(ReaderContract):
    format = "pickle"
    suffix = ".pkl"
    mutations = 500

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        path.write_bytes(pickle.dumps(arrays, 5))


class TestProtocol2(TestContract):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        path.write_bytes(pickle.dumps(arrays, 3))


class TestProtocol0(TestContract):
    mutations = 300
    reads_whole = True  # text must be read to be passed over

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        path.write_bytes(pickle.dumps(arrays, 0))


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "made.pkl"
    path.write_bytes(data)
    return path


ARRAYS = {
    "c": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
    "strided": np.arange(24, dtype=np.uint8).reshape(4, 6)[::2, 1::2],
    "scalar": np.array(3.5, np.float16),
    "complex": np.array([1 + 2j], np.complex64),
    "empty": np.zeros((0, 2)),
}


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_in_every_protocol(protocol: int, tmp_path: Path) -> None:
    path = written(tmp_path, pickle.dumps({"params": [OrderedDict(ARRAYS), "text", None]}, protocol))
    got = contents(read(path))
    assert got == {f"0.{name}": value for name, value in expected_of(ARRAYS).items()}


@pytest.mark.parametrize("protocol", range(6))
def test_big_endian_arrays(protocol: int, tmp_path: Path) -> None:
    path = written(tmp_path, pickle.dumps({"w": np.arange(5, dtype=">f4")}, protocol))
    assert contents(read(path)) == {"w": ("f32", (5,), np.arange(5, dtype="<f4").tobytes())}


def test_bfloat16_arrays(tmp_path: Path) -> None:
    array = np.array([1.0, -0.0], ml_dtypes.bfloat16)
    assert contents(read(written(tmp_path, pickle.dumps({"w": array})))) == {"w": ("bf16", (2,), array.tobytes())}


@pytest.mark.parametrize("protocol", range(2, 6))
def test_torch_tensors_outside_a_torch_file(protocol: int, tmp_path: Path) -> None:
    # torch pickles a storage as the bytes of a whole torch file (torch.storage._load_from_bytes).
    base = seeded(4, 3)
    state = {"w": base, "t": base.t(), "half": base[1].half()}
    weights = read(written(tmp_path, pickle.dumps(state, protocol)))
    assert contents(weights) == torch_expected(state)
    assert weights.code == []


def test_torch_files_are_not_nested_without_end(tmp_path: Path) -> None:
    data: object = torch.ones(1).untyped_storage()
    for _ in range(8):
        inner = io.BytesIO()
        torch.save(_Wrapped(data), inner)
        data = _Bytes(inner.getvalue())
    with pytest.raises(LimitExceeded, match="nested"):
        read(written(tmp_path, pickle.dumps(data)))


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[object, ...]:
        return torch.storage._load_from_bytes, (self.data,)


class _Wrapped:
    def __init__(self, data: object) -> None:
        self.data = data

    def __reduce__(self) -> tuple[object, ...]:
        return OrderedDict, ([("w", self.data)],)


def test_a_nested_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="no container"):
        read(written(tmp_path, pickle.dumps(_Bytes(b"hello"))))


def test_a_second_pickle_is_said_and_left_alone(tmp_path: Path) -> None:
    data = pickle.dumps({"w": np.ones(2)}) + pickle.dumps({"v": np.ones(3)})
    weights = read(written(tmp_path, data))
    assert list(weights.tensors) == ["w"]
    assert any("follow the first pickle" in note for note in weights.notes)


def test_names_are_listed_and_nothing_is_called(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = f"cos\nsystem\n(Vtouch {marker}\ntR0".encode()
    weights = read(written(tmp_path, b"\x80\x02" + evil + pickle.dumps({"w": np.ones(2)}, 2)[2:]))
    assert [code.full for code in weights.code] == ["posix.system"] or [c.full for c in weights.code] == ["os.system"]
    assert not marker.exists()


@pytest.mark.parametrize(
    "text", [b"hello.\n", b"N.B. this is text\n", b"(c) 2020 somebody.", b"I am text.", b"{}", b"."]
)
def test_text_is_no_pickle(text: bytes, tmp_path: Path) -> None:
    assert sniffed(written(tmp_path, text)) == []


@pytest.mark.parametrize("data", [b"\x80", b"\x80\x07N.", b"\x80\x02"])
def test_beginnings(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        read(written(tmp_path, data))


def test_lengths_that_lie(tmp_path: Path) -> None:
    for data in (b"\x80\x04\x8e" + b"\xff" * 8, b"\x80\x02T\xff\xff\xff\x7f", b"\x80\x04\x95" + b"\xff" * 8 + b"N"):
        with pytest.raises((Truncated, Corrupt)):
            read(written(tmp_path, data))
