"""torch-package: tensors of the pickles in a package, whatever these are called, and of script modules within it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import ReaderContract, contents, read
from torch.package import PackageExporter
from torch_cases import expected_of, seeded, torch_dict

pytestmark = pytest.mark.filterwarnings("ignore")


class TestContract(ReaderContract):
    format = "torch-package"
    suffix = ".pt"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        with PackageExporter(path) as exporter:
            exporter.save_pickle("model", "weights.pkl", torch_dict(arrays))


@pytest.mark.parametrize("name", ["weights.pkl", "weights", "weights.bin"])
def test_a_pickle_of_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "p.pt"
    with PackageExporter(path) as exporter:
        exporter.save_pickle("model", name, {"w": seeded(3)})
        exporter.save_text("notes", "readme", "text")
        exporter.save_source_string("code", "raise SystemExit('this must not run')")
    weights = read(path)
    assert contents(weights) == expected_of({"w": seeded(3)})
    assert any("1 pickles" in note and "1 Python files" in note for note in weights.notes)


def test_several_pickles_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "p.pt"
    shared = seeded(3)
    with PackageExporter(path) as exporter:
        exporter.save_pickle("one", "a.pkl", {"w": shared})
        exporter.save_pickle("two", "b.pkl", {"w": shared})
    weights = read(path)
    assert contents(weights) == expected_of({"one/a.w": shared, "two/b.w": shared})
    assert weights.tensors["one/a.w"].source == weights.tensors["two/b.w"].source


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.plain = seeded(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.plain


def test_a_script_module_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.package.package_exporter._gate_torchscript_serialization", False)
    path = tmp_path / "p.pt"
    net = Net()
    with PackageExporter(path) as exporter:
        exporter.save_pickle("model", "model.pkl", torch.jit.script(net))
    weights = read(path)
    assert contents(weights) == expected_of(net.state_dict())
    assert not any(code.module.startswith("__torch__") for code in weights.code)


def test_a_module_with_its_source(tmp_path: Path) -> None:
    path = tmp_path / "p.pt"
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with PackageExporter(path) as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", net)
    weights = read(path)
    assert contents(weights) == expected_of(net.state_dict())
    assert "torch.nn.modules.container.Sequential" in {code.full for code in weights.code}


def test_a_package_without_pickles(tmp_path: Path) -> None:
    path = tmp_path / "p.pt"
    with PackageExporter(path) as exporter:
        exporter.save_text("notes", "readme", "text")
    weights = read(path)
    assert not weights.tensors
    assert zipfile.is_zipfile(path)
