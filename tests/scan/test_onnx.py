"""ONNX in a scan: where data may come from, by name and by what lies on the disk; which operators are whose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostile import onnx as make

from artifactkit import outside
from artifactkit.scan.model import FileReport
from artifactkit.scan.scanner import scan_file


def scan(folder: Path, content: bytes) -> FileReport:
    path = folder / "model.onnx"
    path.write_bytes(content)
    return scan_file(str(path))


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("w.bin", True),
        ("a/b/w.bin", True),
        ("./w.bin", True),
        ("a..b/w", True),
        ("...", True),
        ("ab:c", True),
        ("../w", False),
        ("a/../../w", False),
        ("/w", False),
        ("\\w", False),
        ("C:w", False),
        ("c:\\w", False),
        ("~/w", False),
        ("http://w", False),
        ("//w", False),
        ("", False),
        ("a\0b", False),
        ("..\\w", False),
        ("a/../w", False),
    ],
)
def test_names(name: str, inside: bool) -> None:
    place = outside.by_name(name)
    assert bool(place.problem) is not inside
    assert place.mild is (name == "a/../w")


def test_the_disk_is_asked(tmp_path: Path) -> None:
    model = tmp_path / "m"
    model.mkdir()
    owner = str(model / "model.onnx")
    (tmp_path / "secret").write_bytes(bytes(5))
    (model / "w.bin").write_bytes(bytes(7))
    assert outside.look_at("w.bin", owner) == outside.Place(size=7)
    assert outside.look_at("absent", owner) == outside.Place()
    (model / "out").symlink_to("../secret")
    assert "link" in outside.look_at("out", owner).problem
    (model / "in").symlink_to("w.bin")
    assert outside.look_at("in", owner).size == 7
    (model / "up").symlink_to("..")
    assert "link" in outside.look_at("up/secret", owner).problem
    os.link(tmp_path / "secret", model / "hard")
    assert outside.look_at("hard", owner).links == 2
    os.mkfifo(model / "fifo")
    assert outside.look_at("fifo", owner).problem == "not a regular file"
    assert outside.look_at("out", None) == outside.Place()


def test_nothing_is_read_from_a_file_outside(tmp_path: Path) -> None:
    """The verdict is by the name: the place may be a device that never ends."""
    report = scan(tmp_path, make.external(location="/dev/zero", length="8"))
    assert report.verdict == "malicious"


def test_findings_name_operator_and_place(tmp_path: Path) -> None:
    sub = make.node("If", "", make.attribute("then_branch", 6, make.graph((make.node("Evil", "com.example"),))))
    (finding,) = scan(tmp_path, make.model(make.graph((sub,)))).findings
    assert finding.name == "com.example::Evil"
    assert finding.offset is not None and "in graph > " in finding.what


def test_an_operator_of_the_model_itself_is_ordinary_only_by_exact_name(tmp_path: Path) -> None:
    own = make.function("F", "my.local", make.RELU)
    assert scan(tmp_path, make.model(make.graph((make.node("F", "my.local"),)), own)).verdict == "clean"
    assert scan(tmp_path, make.model(make.graph((make.node("G", "my.local"),)), own)).verdict == "suspicious"


def test_a_compiled_part_is_looked_into(tmp_path: Path) -> None:
    payload = b"\x80\x04cos\nsystem\n(\x8c\x04echotR."
    node = make.node("EPContext", "com.microsoft", make.attribute("ep_cache_context", 4, payload))
    report = scan(tmp_path, make.model(make.graph((node,))))
    assert report.verdict == "malicious"
    assert any(f.member == "ep_cache_context" and f.rule.startswith("pickle-") for f in report.findings)


def test_what_was_met_before_an_error_counts(tmp_path: Path) -> None:
    content = make.model(make.graph((make.node("PyOp", "x"),), (make.tensor(),)))
    report = scan(tmp_path, content[:-4])
    assert {f.rule for f in report.findings} == {"onnx-python-operator", "unreadable"}
