"""TorchScript, torch.package and exported programs: real files of torch, and the text of the code."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hostile.torchscript import package, program, script
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.scan import torch_operators
from artifactkit.scan.scanner import scan_file


def rules(path: Path, data: bytes) -> list[tuple[str, str | None]]:
    path.write_bytes(data)
    return [(f.rule, f.name) for f in scan_file(str(path)).findings]


@pytest.fixture(scope="module")
def torch():  # type: ignore[no-untyped-def]
    return pytest.importorskip("torch")


def test_what_torch_scripts_is_clean(torch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(4, 4)
            self.table = torch.nn.Embedding(4, 4)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.sigmoid(self.dense(x)).reshape(x.shape[0], -1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Net(), torch.ones(1, 4))
        traced.save(str(tmp_path / "m.pt"))
        traced._save_for_lite_interpreter(str(tmp_path / "m.ptl"))
        traced._save_for_lite_interpreter(str(tmp_path / "m.ff"), _use_flatbuffer=True)
    for name in ("m.pt", "m.ptl", "m.ff"):
        report = scan_file(str(tmp_path / name))
        assert (report.verdict, report.findings) == ("clean", [])
        assert any("TorchScript" in entry.what for entry in report.inventory)


def test_file_operators_as_torch_writes_them(torch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    body = "\n    torch.save(x, name)\n    return torch.from_file(name, False, 3)\n"
    source = "def forward(self, x, name: str):" + body
    unit = torch.jit.CompilationUnit("def f(x, name: str):" + body)
    assert {"aten::save", "aten::from_file"} <= {node.kind() for node in unit.f.graph.nodes()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.ScriptModule()
        module.define(source)
        module._save_for_lite_interpreter(str(tmp_path / "m.ptl"))
        module._save_for_lite_interpreter(str(tmp_path / "m.ff"), _use_flatbuffer=True)
    for name in ("m.ptl", "m.ff"):
        found = {f.name for f in scan_file(str(tmp_path / name)).findings}
        assert found == {"aten::save", "aten::from_file"}


def test_standard_namespaces_cover_what_torch_registers(torch) -> None:  # type: ignore[no-untyped-def]
    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    unknown = {name for name in names if torch_operators.rule_name(*name.split("::")) == "custom"}
    # The last two are registered by parts of torch that another test may have imported; no TorchScript is made of them.
    others = ("_test", "debug_mode_ops", "mine", "fsdp::", "onnx_symbolic::")
    assert {name for name in unknown if not name.startswith(others)} == set()


def test_operators_with_text_arguments_that_open_files_are_known(torch) -> None:  # type: ignore[no-untyped-def]
    """A new operator with a file name among its arguments has to be looked at."""
    words = {"filename", "file", "path", "f"}
    for schema in torch._C._jit_get_all_schemas():
        if any(str(a.type) == "str" and a.name in words for a in schema.arguments):
            assert schema.name in torch_operators.FILES, schema


@pytest.mark.slow
def test_a_real_exported_program_is_clean(torch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.sigmoid(x).reshape(x.shape[0], -1) * 2

    size = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(Net(), (torch.ones(4, 4),), dynamic_shapes=({0: size},))
    path = tmp_path / "m.pt2"
    torch.export.save(exported, path)
    report = scan_file(str(path))
    assert (report.verdict, report.findings) == ("clean", [])


def test_names_are_said_in_full(tmp_path: Path) -> None:
    assert rules(tmp_path / "a.pt", script("return ops.mine.run(x)")) == [("torchscript-custom-operator", "mine::run")]
    assert rules(tmp_path / "b.pt2", program("torch.ops.mine.run.default")) == [
        ("pt2-custom-operator", "torch.ops.mine.run.default")
    ]
    assert rules(tmp_path / "c.pt", package("x = 1\n")) == [("torch-package-code", "mine.net")]


def test_extern_modules_are_in_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "p.pt"
    path.write_bytes(package("x = 1\n", "torch\nnumpy\n"))
    report = scan_file(str(path))
    assert any("numpy, torch" in entry.what for entry in report.inventory)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ops.torch_(){}\"'\\# \n:=x1", max_size=300))
def test_any_text_as_code_ends_in_a_verdict(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("code") / "m.pt"
    path.write_bytes(script(text))
    assert scan_file(str(path)).verdict in ("clean", "suspicious")


def test_code_is_read_in_linear_time(tmp_path: Path) -> None:
    """Each of these took quadratic time with quantifiers that give back."""
    for text in ('"\\' * 200_000, "ops " * 200_000, "torch" + " " * 500_000, "ops" + "#\n" * 200_000, "a" * 500_000):
        path = tmp_path / "m.pt"
        path.write_bytes(script(text))
        assert scan_file(str(path)).verdict in ("clean", "suspicious")
