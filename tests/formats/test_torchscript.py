"""torchscript: parameters and buffers by the names of the state dict, whatever else the module keeps."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import ReaderContract, contents, read, sniffed
from torch_cases import expected_of, repacked, seeded, torch_dict

from artifactkit.errors import Unreadable

pytestmark = pytest.mark.filterwarnings("ignore")


def script(module: torch.nn.Module) -> bytes:
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(module), out)
    return out.getvalue()


class Leaf(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("mean", seeded(4))
        self.extra = seeded(5)  # a plain attribute: in the archive, not in the state dict
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale + self.mean.sum() + self.extra.sum() + torch.ones([2])


class Tree(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Leaf(), torch.nn.Identity())
        self.tied = self.blocks[0].linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.tied(x))


class _Holder(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class TestContract(ReaderContract):
    format = "torchscript"
    suffix = ".jit"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        root = _Holder()
        for name, tensor in torch_dict(arrays).items():
            owner, _, leaf = name.rpartition(".")
            if not hasattr(root, owner):
                root.add_module(owner, _Holder())
            getattr(root, owner).register_buffer(leaf, tensor)
        path.write_bytes(script(root))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_state_dict_and_nothing_else(method: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tree = Tree()
    path = tmp_path / "tree.pt"
    path.write_bytes(repacked(script(tree), method=method))
    weights = read(path)
    assert contents(weights) == expected_of(tree.state_dict())
    assert weights.tensors["tied.weight"].source == weights.tensors["blocks.0.linear.weight"].source
    assert weights.code == []
    assert any("code is not" in note for note in weights.notes)


def test_all_takes_attributes_and_constants(tmp_path: Path) -> None:
    leaf = Leaf()
    path = tmp_path / "leaf.pt"
    path.write_bytes(script(leaf))
    got = contents(read(path, everything=True))
    wanted = expected_of({**leaf.state_dict(), "extra": leaf.extra})
    assert {name: got[name] for name in wanted} == wanted
    assert all(name.startswith("CONSTANTS.") for name in got.keys() - wanted.keys())


def test_traced_modules_have_mangled_class_names(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    path = tmp_path / "traced.pt"
    torch.jit.save(torch.jit.trace(module, torch.ones(1, 3)), path)
    assert contents(read(path)) == expected_of(module.state_dict())


def test_without_its_code_all_tensors_are_taken(tmp_path: Path) -> None:
    leaf = Leaf()
    path = tmp_path / "leaf.pt"
    with zipfile.ZipFile(io.BytesIO(script(leaf))) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if "/code/" not in name:
                new.writestr(name, old.read(name))
    assert contents(read(path)) == expected_of({**leaf.state_dict(), "extra": leaf.extra})


def test_an_archive_of_pytorch_1_0_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("old/version", "old/model.json", "old/tensors/0"):
            archive.writestr(name, b"1")
    assert sniffed(path) == ["torchscript"]
    with pytest.raises(Unreadable, match=r"PyTorch 1\.0"):
        read(path)
