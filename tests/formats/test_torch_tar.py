"""torch-tar: the archive of torch 0.1, made here member by member (open_model_zoo pull request 3997)."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import ReaderContract, contents, read
from torch_cases import int64

from artifactkit.errors import Corrupt, Truncated, Unreadable

STORAGES = {"float32": "FloatStorage", "float64": "DoubleStorage", "int64": "LongStorage", "int32": "IntStorage",
            "bool": "BoolStorage", "uint8": "ByteStorage"}  # fmt: skip


class _Id:
    def __init__(self, pid: object) -> None:
        self.pid = pid


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> object:
        return obj.pid if isinstance(obj, _Id) else None


def tensor_entry(key: int, storage: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> bytes:
    entry = pickle.dumps((key, storage, "torch.FloatTensor"), 2)
    return entry + len(shape).to_bytes(4, "little") + bytes(4) + int64(*shape, *strides, offset)


def storage_entry(key: int, kind: str, data: bytes, itemsize: int) -> bytes:
    return pickle.dumps((key, "cpu", getattr(torch, kind)), 2) + int64(len(data) // itemsize) + data


def archive(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def members(arrays: dict[str, np.ndarray], views: list[tuple[int, int, int, int]] | None = None) -> dict[str, bytes]:
    count = pickle.dumps(len(arrays), 2)
    storages, tensors, state = count, count, {}
    for i, (name, array) in enumerate(arrays.items()):
        data = np.array(array, order="C")
        storages += storage_entry(100 + i, STORAGES[array.dtype.name], data.tobytes(), data.itemsize)
        strides = tuple(s // data.itemsize for s in data.strides)
        tensors += tensor_entry(i, 100 + i, array.shape, strides, 0)
        state[name] = _Id(i)
    out = io.BytesIO()
    _Pickler(out, 2).dump(state)
    info = pickle.dumps({"protocol_version": 1000, "little_endian": True}, 2)
    return {"sys_info": info, "pickle": out.getvalue(), "tensors": tensors,
            "storages": storages + pickle.dumps(views or [], 2)}  # fmt: skip


class TestContract(ReaderContract):
    format = "torch-tar"
    suffix = ".pth"
    mutations = 500

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        path.write_bytes(archive(members(arrays)))


W = {"w": np.arange(6, dtype="<f4")}


def test_the_reported_case(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.pth"
    path.write_bytes(archive(members(W)))
    weights = read(path)
    assert contents(weights) == {"w": ("f32", (6,), np.array([0, 1, 2, 3, 4, 5], "<f4").tobytes())}
    with pytest.raises(RuntimeError, match=r"legacy \.tar"):
        torch.load(path, weights_only=True)


def test_views(tmp_path: Path) -> None:
    made = members(W, views=[(200, 100, 2, 3)])
    made["tensors"] = pickle.dumps(2, 2) + tensor_entry(0, 200, (2,), (1,), 1) + tensor_entry(1, 100, (2, 3), (1, 2), 0)
    out = io.BytesIO()
    _Pickler(out, 2).dump({"view": _Id(0), "t": _Id(1)})
    made["pickle"] = out.getvalue()
    path = tmp_path / "made.pth"
    path.write_bytes(archive(made))
    assert contents(read(path)) == {
        "view": ("f32", (2,), np.array([3, 4], "<f4").tobytes()),
        "t": ("f32", (2, 3), np.arange(6, dtype="<f4").reshape(3, 2).T.tobytes()),
    }


@pytest.mark.parametrize(
    ("member", "data", "error"),
    [("storages", pickle.dumps(1 << 40, 2), Corrupt), ("storages", pickle.dumps("x", 2), Corrupt),
     ("storages", pickle.dumps(1, 2)[:-1], Truncated), ("tensors", pickle.dumps(1, 2), Corrupt),
     ("tensors", pickle.dumps(1, 2) + pickle.dumps((0, 100, "t"), 2) + b"\xff" * 8, Corrupt),
     ("tensors", pickle.dumps(1, 2) + pickle.dumps((0, 7, "t"), 2) + bytes(8), Corrupt),
     ("tensors", pickle.dumps(1, 2) + tensor_entry(0, 100, (7,), (1,), 0), Corrupt),
     ("tensors", pickle.dumps(0, 2), Corrupt), ("pickle", b"", Unreadable)],
    ids=range(9),
)  # fmt: skip
def test_lies(member: str, data: bytes, error: type[Unreadable], tmp_path: Path) -> None:
    path = tmp_path / "made.pth"
    path.write_bytes(archive(members(W) | {member: data}))
    with pytest.raises(error) as caught:
        read(path)
    assert caught.value.file == str(path)


@pytest.mark.parametrize("view", [(200, 100, 4, 3), (200, 9, 0, 1), (100, 100, 0, 1), (200, 100, -1, 1)])
def test_views_that_lie(view: tuple[int, int, int, int], tmp_path: Path) -> None:
    path = tmp_path / "made.pth"
    path.write_bytes(archive(members(W, views=[view])))
    with pytest.raises(Corrupt):
        read(path)
