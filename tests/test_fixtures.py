"""The seeded fixtures are the ones that MANIFEST.json pins, and what other libraries take them for."""

from __future__ import annotations

import io
import json
import pickletools
import tarfile
import zipfile
from pathlib import Path

import make
import numpy as np
import pytest
import torch
from conftest import ROOT

CHECKPOINTS = ["trainer.ckpt", "plain.pt", "legacy.pt", "tiny-llama/pytorch_model.bin"]


def test_the_bytes_are_the_pinned_ones(fixtures: Path) -> None:
    files = [path for path in sorted(fixtures.rglob("*")) if path.is_file()]
    assert make.manifest(fixtures, files) == json.loads((ROOT / "fixtures" / "MANIFEST.json").read_text())


def test_making_them_again_changes_nothing(tmp_path: Path) -> None:
    first = make.manifest(tmp_path, make.make(tmp_path))
    assert make.manifest(tmp_path, make.make(tmp_path)) == first


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_torch_reads_the_checkpoints(fixtures: Path, name: str) -> None:
    torch.load(fixtures / name, weights_only=True)


def test_the_trainer_checkpoint_is_what_it_is_said_to_be(fixtures: Path) -> None:
    value = torch.load(fixtures / "trainer.ckpt", weights_only=True)
    weights = value["state_dict"]
    assert all(name.startswith("module.") for name in weights)
    assert weights["module.head.weight"].data_ptr() == weights["module.embed.weight"].data_ptr()
    assert not weights["module.proj.weight"].is_contiguous()
    assert weights["module.blocks.0.attn.v.weight"].storage_offset() == 2 * 64 * 64
    assert {t.dtype for t in weights.values()} == {torch.float32, torch.bfloat16, torch.int64}
    assert set(value["optimizer_states"][0]["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}


def test_one_state_dict_in_four_forms(fixtures: Path) -> None:
    from safetensors.torch import load_file

    zipped = torch.load(fixtures / "plain.pt", weights_only=True)
    legacy = torch.load(fixtures / "legacy.pt", weights_only=True)
    tensors = load_file(fixtures / "plain.safetensors")
    assert zipped.keys() == legacy.keys() == tensors.keys()
    for name, value in zipped.items():
        assert torch.equal(value, legacy[name])
        assert torch.equal(value, tensors[name])
    with np.load(fixtures / "arrays.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {name for name, value in zipped.items() if value.dtype != torch.bfloat16}
        for name in arrays:
            assert np.array_equal(arrays[name], zipped[name].numpy())


def test_the_shards_hold_what_the_index_says(fixtures: Path) -> None:
    from safetensors import safe_open

    index = json.loads((fixtures / "sharded" / "model.safetensors.index.json").read_text())
    found = {}
    total = 0
    for path in sorted((fixtures / "sharded").glob("*.safetensors")):
        with safe_open(path, "pt") as shard:
            names = list(shard.keys())
            found.update(dict.fromkeys(names, path.name))
            total += sum(shard.get_tensor(name).nbytes for name in names)
    assert found == index["weight_map"]
    assert total == index["metadata"]["total_size"]


def test_records_begin_at_multiples_of_64(fixtures: Path) -> None:
    path = fixtures / "trainer.ckpt"
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name, extra = (int.from_bytes(raw[info.header_offset + at :][:2], "little") for at in (26, 28))
            assert (info.header_offset + 30 + name + extra) % 64 == 0


def test_the_pickles_that_no_library_may_read_are_well_formed(fixtures: Path) -> None:
    with tarfile.open(fixtures / "old.tar") as tar:
        member = tar.extractfile("pickle")
        assert member is not None
        pickletools.dis(member.read(), out=io.StringIO())
    for name, root in (("whole-module.pt", "whole"), ("numpy-scalar.pt", "archive")):
        with zipfile.ZipFile(fixtures / name) as archive:
            pickletools.dis(archive.read(f"{root}/data.pkl"), out=io.StringIO())


def test_a_large_one_has_about_the_size_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "big.pt"
    nbytes = make.big(path, 70_000_000)
    assert abs(nbytes - 70_000_000) < 4096 * 4
    value = torch.load(path, weights_only=True)
    assert sum(t.nbytes for t in value.values()) == nbytes
    first = value["layers.0.weight"].flatten().view(-1, make.BLOCK // 4)
    assert not torch.equal(first[0], first[1])
