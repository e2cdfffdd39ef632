"""Every hostile file gets the verdict and the rule that its generator expects; every benign twin is clean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile import Sample, samples

from artifactkit.scan.model import FileReport, worst
from artifactkit.scan.scanner import scan_file

ALL = list(samples())


def scan(sample: Sample, folder: Path) -> list[FileReport]:
    """The reports of the file, or of every file of the tree, in order of path."""
    place = sample.write(folder)
    files = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file() or p.is_symlink())
    return [scan_file(str(path)) for path in files]


@pytest.mark.parametrize("sample", ALL, ids=[s.name for s in ALL])
def test_verdict_and_rule(sample: Sample, tmp_path: Path) -> None:
    reports = scan(sample, tmp_path)
    said = [(f.rule, f.severity, f.what, f.member) for report in reports for f in report.findings]
    assert worst(report.verdict for report in reports) == sample.verdict, said
    if sample.rule is not None:
        assert any(rule == sample.rule and severity == sample.verdict for rule, severity, _, _ in said), said


def test_names_are_unique() -> None:
    assert len({sample.name for sample in ALL}) == len(ALL)
