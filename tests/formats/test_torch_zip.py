"""torch-zip: every dtype, every kind of view, every variant of the archive, against torch's own loader."""

from __future__ import annotations

import json
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import ReaderContract, contents, read, sniffed
from torch_cases import (
    every_dtype,
    every_shape,
    expected_of,
    oracle,
    quantised,
    repacked,
    saved,
    seeded,
    torch_dict,
)

from artifactkit.errors import Corrupt, LimitExceeded, Refused, Truncated, Unreadable
from artifactkit.route import ConvertOptions, plan
from artifactkit.source import FileSpan
from artifactkit.verify.accounting import ledger

Cases = Callable[[], dict[str, torch.Tensor]]


class TestContract(ReaderContract):
    format = "torch-zip"
    suffix = ".pt"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        torch.save(torch_dict(arrays), path)


class TestDeflated(TestContract):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        path.write_bytes(repacked(saved(torch_dict(arrays)), method=zipfile.ZIP_DEFLATED))


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "made.pt"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("cases", [every_dtype, every_shape], ids=lambda f: f.__name__)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_tensor_is_what_torch_saved(cases: Cases, protocol: int, tmp_path: Path) -> None:
    state = cases()
    path = written(tmp_path, saved(state, pickle_protocol=protocol))
    assert contents(read(path)) == expected_of(state)
    if protocol < 4:  # torch's restricted loader knows no newer opcodes
        assert contents(read(path)) == oracle(path)


def test_quantised_tensors_are_their_integers_with_scales_in_the_metadata(tmp_path: Path) -> None:
    state = quantised()
    weights = read(written(tmp_path, saved(state)))
    assert contents(weights) == expected_of(state)
    assert {loss.tensor for loss in weights.losses if loss.kind == "type-substituted"} == set(state)
    assert json.loads(weights.metadata["quantized.quint8"])["zero_point"] == 10


def test_stored_tensors_are_spans_of_the_file(tmp_path: Path) -> None:
    weights = read(written(tmp_path, saved(every_dtype())))
    assert all(isinstance(t.source, FileSpan) for t in weights)


def test_tied_tensors_are_equal_spans(tmp_path: Path) -> None:
    weights = read(written(tmp_path, saved(every_shape())))
    assert weights.tensors["tied.a"].same_bytes(weights.tensors["tied.b"])
    assert not weights.tensors["tied.a"].same_bytes(weights.tensors["reshaped"])


@pytest.mark.parametrize("cut", [slice(0, 10), slice(7, 17), slice(None, 10, 2)], ids=str)
def test_only_the_views_bytes_are_read(cut: slice, tmp_path: Path) -> None:
    # pytorch issue 53419: torch writes the whole storage behind a view.
    base = torch.zeros(100_000)
    base[50] = 1234.5
    view = base[cut]
    weights = read(written(tmp_path, saved({"w": view})))
    assert weights.nbytes == view.numel() * 4
    assert contents(weights) == expected_of({"w": view})


@pytest.mark.parametrize("root", ["archive", "x", "ünï", "a b"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_any_root_folder(root: str, method: int, tmp_path: Path) -> None:
    state = every_dtype()
    path = written(tmp_path, repacked(saved(state), root=root, method=method))
    assert contents(read(path)) == expected_of(state)


def test_the_first_archives_had_fewer_records(tmp_path: Path) -> None:
    extra = ("byteorder", ".format_version", ".storage_alignment", ".data/serialization_id")
    path = written(tmp_path, repacked(saved({"w": seeded(3)}), drop=extra))
    assert contents(read(path)) == oracle(path)


def test_deflated_is_said(tmp_path: Path) -> None:
    weights = read(written(tmp_path, repacked(saved({"w": seeded(3)}), method=zipfile.ZIP_DEFLATED)))
    assert any("deflated" in note for note in weights.notes)


def big_endian(state: dict[str, torch.Tensor]) -> bytes:
    """What torch writes on a big-endian machine: elements swapped, and a record that says so."""
    change = {"byteorder": b"big"}
    for i, tensor in enumerate(state.values()):
        unit = tensor.element_size() // (2 if tensor.is_complex() else 1)
        flat = np.frombuffer(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes(), np.uint8)
        change[f"data/{i}"] = flat.reshape(-1, unit)[:, ::-1].tobytes()
    return repacked(saved(state), change=change)


def test_big_endian_data_is_swapped(tmp_path: Path) -> None:
    state = every_dtype()
    path = written(tmp_path, big_endian(state))
    weights = read(path)
    ours, theirs = contents(weights), oracle(path)
    assert ours == expected_of(state)
    # torch leaves the storages without a type of their own as they are: these three come back wrong there.
    untyped = {"uint16", "uint32", "uint64"}
    assert {name for name in ours if ours[name] != theirs[name]} <= untyped | {"complex32"}
    assert any("big-endian" in note for note in weights.notes)


def test_zip64(tmp_path: Path) -> None:
    source = saved({"w": seeded(4)})
    path = tmp_path / "made.pt"
    with zipfile.ZipFile(written(tmp_path, source)) as old:
        records = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in records.items():
            with new.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member.write(data)
    assert contents(read(path)) == oracle(path)


def test_nested_checkpoint_and_ordered_dict(tmp_path: Path) -> None:
    state = OrderedDict((("module.w", seeded(2)), ("module.b", seeded(3))))
    weights = read(written(tmp_path, saved({"epoch": 3, "state_dict": state, "optimizer": {"state": seeded(9)}})))
    assert contents(weights) == expected_of({"w": state["module.w"], "b": state["module.b"]})
    assert weights.chosen.startswith("state_dict")
    assert [d.why for d in weights.dropped] == ["optimizer and training state"]


def test_a_whole_module_gives_its_state_dict(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    weights = read(written(tmp_path, saved(module)))
    assert contents(weights) == expected_of(module.state_dict())
    assert "torch.nn.modules.linear.Linear" in {code.full for code in weights.code}


def test_numpy_values_beside_the_weights(tmp_path: Path) -> None:
    weights = read(written(tmp_path, saved({"state_dict": {"w": torch.ones(2)}, "best_ema": np.float64(0.5)})))
    assert contents(weights) == expected_of({"w": torch.ones(2)})
    assert [(s.path, s.type, s.text) for s in weights.skipped] == [("best_ema", "float64", "0.5")]


def test_a_sparse_tensor_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, saved({"fine": torch.ones(1), "emb.weight": torch.eye(3).to_sparse()}))
    weights = read(path)
    assert list(weights.tensors) == ["fine"]
    with pytest.raises(Refused, match="sparse") as caught:
        plan(str(path), str(tmp_path / "out.safetensors"), ConvertOptions())
    assert caught.value.tensor == "emb.weight"
    # inspected and verified it can be; and converted without it
    without = plan(str(path), str(tmp_path / "out.safetensors"), ConvertOptions(exclude=("emb.*",)))
    assert list(without.final.tensors) == ["fine"]
    assert [e.outcomes for e in ledger(without.initial, without.final)] == [("kept",), ("dropped",)]


@pytest.mark.parametrize(
    ("record", "data", "error", "words"),
    [("data/0", b"\0" * 11, Corrupt, "not as long"), ("data/0", b"\0" * 16, Corrupt, "not as long"),
     ("byteorder", b"middle", Corrupt, "byte order"), ("data.pkl", b"", Truncated, "STOP"),
     ("data.pkl", b"\x80\x02}", Truncated, "STOP"), ("byteorder", b"x" * 5000, LimitExceeded, "too large")],
)  # fmt: skip
def test_records_that_lie(record: str, data: bytes, error: type[Exception], words: str, tmp_path: Path) -> None:
    path = written(tmp_path, repacked(saved({"w": torch.ones(3)}), change={record: data}))
    with pytest.raises(error, match=words) as caught:
        read(path)
    assert caught.value.member == f"archive/{record}"  # type: ignore[attr-defined]


def test_a_missing_storage(tmp_path: Path) -> None:
    path = written(tmp_path, repacked(saved({"w": torch.ones(3)}), drop=("data/0",)))
    with pytest.raises(Corrupt, match="not in the file"):
        read(path)


def test_a_wrong_crc_of_the_pickle(tmp_path: Path) -> None:
    data = saved({"weight_one": torch.ones(3)})
    with pytest.raises(Corrupt, match="CRC"):
        read(written(tmp_path, data.replace(b"weight_one", b"weight_two")))


def test_two_checkpoints_in_one_archive(tmp_path: Path) -> None:
    path = written(tmp_path, saved({"w": torch.ones(3)}))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", b"\x80\x02}.")
    with pytest.raises(Corrupt, match="two checkpoints"):
        read(path)


def test_a_duplicate_record(tmp_path: Path) -> None:
    path = written(tmp_path, saved({"w": torch.ones(3)}))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("archive/data/0", b"\0" * 12)
    assert sniffed(path) == ["torch-zip"]
    with pytest.raises(Corrupt, match="duplicate"):
        read(path)


def test_a_cut_archive_says_that_it_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path, saved({"w": torch.ones(3)})[:-30])
    assert sniffed(path) == ["torch-zip"]
    with pytest.raises(Unreadable, match="directory") as caught:
        read(path)
    assert caught.value.file == str(path)
