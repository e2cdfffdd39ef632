"""safetensors in a scan: what its strict reader refuses is a finding with numbers; what is cut short is unreadable."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from hostile.safetensors import built, entry

from artifactkit.scan.model import FileReport
from artifactkit.scan.scanner import scan_file

TWO = {"a": entry(0, 8), "b": entry(8, 16)}


def scan(folder: Path, content: bytes, name: str = "a.safetensors") -> FileReport:
    path = folder / name
    path.write_bytes(content)
    return scan_file(str(path))


def test_a_lie_is_told_with_place_and_numbers(tmp_path: Path) -> None:
    (finding,) = scan(tmp_path, built({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12))).findings
    assert finding.rule == "safetensors-header"
    assert "overlaps" in finding.what and "'b'" in finding.what and "expected begin at 8, found 4" in finding.what


def test_content_decides(tmp_path: Path) -> None:
    report = scan(tmp_path, built(TWO, bytes(16)), "weights.bin")
    assert report.verdict == "clean" and report.format == "safetensors"
    assert scan(tmp_path, b"something else").verdict == "suspicious"


def test_every_cut_is_told(tmp_path: Path) -> None:
    whole = built(TWO, bytes(16))
    for n in range(len(whole)):
        assert scan(tmp_path, whole[:n]).verdict in ("unreadable", "suspicious"), n
    assert scan(tmp_path, whole).verdict == "clean"


def test_an_archive_behind_the_tensors_is_looked_into(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", b"cos\nsystem\n(S'echo marker'\ntR.")
    report = scan(tmp_path, built(TWO, bytes(16)) + buffer.getvalue())
    assert report.verdict == "malicious"
    rules = {f.rule for f in report.findings}
    assert "safetensors-header" in rules and any(rule.startswith("pickle-unsafe") for rule in rules)


def test_a_large_header_is_no_reason_to_read_tensors(tmp_path: Path) -> None:
    header = {f"layer.{i}.weight": entry(4 * i, 4 * i + 4) for i in range(20_000)}
    assert scan(tmp_path, built(header, bytes(80_000))).verdict == "clean"
