"""torch-legacy: the stream of before 1.6, against torch's own loader."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import ReaderContract, contents, read
from torch_cases import every_dtype, every_shape, expected_of, int64, oracle, quantised, saved, seeded, torch_dict

from artifactkit.containers.torch_legacy import MAGIC_NUMBER
from artifactkit.errors import Corrupt, LimitExceeded, Truncated, Unreadable


def legacy(obj: object, **options: object) -> bytes:
    return saved(obj, _use_new_zipfile_serialization=False, **options)


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "made.pt"
    path.write_bytes(data)
    return path


class TestContract(ReaderContract):
    format = "torch-legacy"
    suffix = ".pt"
    mutations = 500

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        path.write_bytes(legacy(torch_dict(arrays)))


@pytest.mark.parametrize("cases", [every_dtype, every_shape], ids=lambda f: f.__name__)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_tensor_is_what_torch_saved(
    cases: Callable[[], dict[str, torch.Tensor]], protocol: int, tmp_path: Path
) -> None:
    state = cases()
    path = written(tmp_path, legacy(state, pickle_protocol=protocol))
    assert contents(read(path)) == expected_of(state)
    if protocol < 4:  # torch's restricted loader knows no newer opcodes, and here no storages without a type
        typed = {
            name: t
            for name, t in state.items()
            if not name.startswith(("float8", "uint16", "uint32", "uint64", "complex32"))
        }
        path = written(tmp_path, legacy(typed, pickle_protocol=protocol))
        assert contents(read(path)) == oracle(path)


def test_quantised(tmp_path: Path) -> None:
    state = quantised()
    assert contents(read(written(tmp_path, legacy(state)))) == expected_of(state)


def test_a_whole_module_with_its_source(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    weights = read(written(tmp_path, legacy(module)))
    assert contents(weights) == expected_of(module.state_dict())


def test_only_the_views_bytes_are_read(tmp_path: Path) -> None:
    base = torch.zeros(100_000)
    base[50] = 1234.5
    weights = read(written(tmp_path, legacy({"w": base[7:17]})))
    assert weights.nbytes == 40
    assert contents(weights) == expected_of({"w": base[7:17]})


class _Key:
    """Pickles as the persistent id that torch 0.1 wrote for a storage which is a view of another."""

    def __init__(self, pid: tuple[object, ...]) -> None:
        self.pid = pid


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> object:
        return obj.pid if isinstance(obj, _Key) else None


class _Rebuild:
    def __init__(self, storage: _Key, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.args = (storage, offset, shape, strides)

    def __reduce__(self) -> tuple[object, ...]:
        return torch._utils._rebuild_tensor, self.args


def by_hand(obj: object, keys: list[str], *storages: bytes, magic: int = MAGIC_NUMBER, version: int = 1001) -> bytes:
    out = io.BytesIO()
    info = {"protocol_version": version, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for part in (magic, version, info):
        pickle.dump(part, out, 2)
    _Pickler(out, 2).dump(obj)
    pickle.dump(keys, out, 2)
    return out.getvalue() + b"".join(int64(len(s) // 4) + s for s in storages)


FLOATS = np.arange(10, dtype="<f4")


def key(view: tuple[str, int, int] | None = None, numel: int = 10) -> _Key:
    return _Key(("storage", torch.FloatStorage, "1", "cpu", numel, view))


def test_storages_that_are_views_of_another(tmp_path: Path) -> None:
    state = {"w": _Rebuild(key(("2", 3, 4)), 1, (3,), (1,)), "all": _Rebuild(key(), 0, (10,), (1,))}
    weights = read(written(tmp_path, by_hand(state, ["1"], FLOATS.tobytes())))
    assert contents(weights) == {
        "w": ("f32", (3,), FLOATS[4:7].tobytes()),
        "all": ("f32", (10,), FLOATS.tobytes()),
    }


W = {"w": _Rebuild(key(), 0, (10,), (1,))}


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [(by_hand(W, ["1"], FLOATS.tobytes(), version=1002), Corrupt, "version"),
     (by_hand(W, ["1"], FLOATS.tobytes()[:-4]), Corrupt, "not as long"),
     (by_hand(W, ["1"], FLOATS.tobytes())[:-1], Truncated, "within a storage"),
     (by_hand(W, ["1"]), Truncated, "before a storage"),
     (by_hand(W, []), Corrupt, "not in the file"),
     (by_hand(W, ["9"], FLOATS.tobytes()), Corrupt, "no tensor refers"),
     (by_hand(W, {"1": 1}, FLOATS.tobytes()), Corrupt, "list of storages"),
     (by_hand({"w": _Rebuild(key(("2", 8, 4)), 0, (4,), (1,))}, ["1"], FLOATS.tobytes()), Corrupt, "storage view"),
     (by_hand({"w": _Rebuild(key(), 8, (4,), (1,))}, ["1"], FLOATS.tobytes()), Corrupt, "outside its storage"),
     (by_hand({"w": _Rebuild(key(), 0, (1 << 40,), (0,))}, ["1"], FLOATS.tobytes()), LimitExceeded, "proportion"),
     (by_hand({"w": _Rebuild(key(numel=1 << 50), 0, (1,), (1,))}, ["1"], FLOATS.tobytes()), Corrupt, "not as long")],
    ids=range(11),
)  # fmt: skip
def test_lies(data: bytes, error: type[Unreadable], words: str, tmp_path: Path) -> None:
    assert contents(read(written(tmp_path, by_hand(W, ["1"], FLOATS.tobytes())))) == {
        "w": ("f32", (10,), FLOATS.tobytes())
    }
    with pytest.raises(error, match=words) as caught:
        read(written(tmp_path, data))
    assert caught.value.file is not None


def test_bytes_after_the_end_are_said(tmp_path: Path) -> None:
    weights = read(written(tmp_path, legacy({"w": seeded(2)}) + b"tail"))
    assert any("4 bytes follow" in note for note in weights.notes)
