"""Core ML, skops, R, 7z: what one sample each cannot show."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hostile._ops import payload
from hostile.others import network, program, r_call, r_head, r_promise, sevenzip
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.errors import ArtifactkitError
from artifactkit.scan import library, skops_names
from artifactkit.scan.paths import unsafe_path
from artifactkit.scan.scanner import scan_file


def scan(path: Path, data: bytes) -> tuple[str, list[str]]:
    path.write_bytes(data)
    report = scan_file(str(path))
    return report.verdict, [f.rule for f in report.findings]


def test_7z_with_the_extra_and_without(tmp_path: Path) -> None:
    pytest.importorskip("py7zr")
    data = sevenzip("model.pkl", payload())
    assert scan(tmp_path / "a.7z", data) == ("malicious", ["pickle-unsafe-name"])
    kept = sys.modules.pop("py7zr", None)
    try:
        sys.modules["py7zr"] = None  # type: ignore[assignment]
        verdict, rules = scan(tmp_path / "b.7z", data)
    finally:
        del sys.modules["py7zr"]
        if kept is not None:
            sys.modules["py7zr"] = kept
    assert (verdict, rules) == ("unreadable", ["unreadable"])


def test_7z_that_py7zr_writes(tmp_path: Path) -> None:
    py7zr = pytest.importorskip("py7zr")
    path = tmp_path / "a.7z"
    with py7zr.SevenZipFile(path, "w") as archive:
        archive.writestr(payload(), "deep/inside/model.pt")
        archive.writestr(b"words", "notes.txt")
    report = scan_file(str(path))
    assert [(f.rule, f.member) for f in report.findings] == [("pickle-unsafe-name", "deep/inside/model.pt")]


def test_a_library_without_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("py7zr")
    monkeypatch.setattr(library.tempfile, "tempdir", str(tmp_path / "missing"))
    assert scan(tmp_path / "a.7z", sevenzip("model.pkl", payload())) == ("unreadable", ["unreadable"])


def test_7z_names_that_leave_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("py7zr")
    verdict, rules = scan(tmp_path / "a.7z", sevenzip("../../x.txt", b"words"))
    assert unsafe_path("../../x.txt")
    assert verdict in ("malicious", "unreadable")  # py7zr may refuse such an archive by itself
    assert rules


def test_the_library_is_found_without_importing_it() -> None:
    assert library.has("json")
    assert not library.has("no_such_module_anywhere")


@pytest.mark.parametrize("version", [2, 3])
def test_a_promise_anywhere_in_an_r_object(version: int, tmp_path: Path) -> None:
    assert scan(tmp_path / "a.rds", r_head(version) + r_promise()) == ("malicious", ["r-promise"])
    assert scan(tmp_path / "b.rds", r_head(version) + r_call("f", "x")) == ("clean", [])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_as_an_r_object_end_in_a_verdict(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("r") / "x.rds"
    path.write_bytes(r_head() + data)
    assert scan_file(str(path)).verdict in ("clean", "suspicious", "malicious", "unreadable")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 200), st.integers(0, 255))
def test_any_byte_of_an_ml_program_changed(tmp_path_factory: pytest.TempPathFactory, at: int, value: int) -> None:
    data = bytearray(program("@model_path/weights/weight.bin"))
    data[at % len(data)] = value
    path = tmp_path_factory.mktemp("coreml") / "m.mlmodel"
    path.write_bytes(bytes(data))
    assert not any(isinstance(f.what, ArtifactkitError) for f in scan_file(str(path)).findings)


def test_a_core_ml_network_without_layers_is_clean(tmp_path: Path) -> None:
    assert scan(tmp_path / "m.mlmodel", network()) == ("clean", [])


def test_skops_table_has_no_module_that_runs_code() -> None:
    roots = {name.partition(".")[0] for name in skops_names.TYPES}
    assert roots == {"builtins", "collections", "datetime", "numpy", "scipy", "sklearn"}
    assert not skops_names.TYPES & {"builtins.eval", "builtins.exec", "builtins.getattr", "builtins.object"}
