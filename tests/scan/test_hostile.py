"""Every hostile file gets the verdict and the rule that its generator expects; every benign twin is clean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile import Sample, samples

from artifactkit.scan.model import FileReport, worst
from artifactkit.scan.walk import Walk

ALL = list(samples())


def scan(sample: Sample, folder: Path) -> list[FileReport]:
    """The reports of the file, or of everything in the tree, as the command has them."""
    return list(Walk([str(sample.write(folder))]).reports())


@pytest.mark.parametrize("sample", ALL, ids=[s.name for s in ALL])
def test_verdict_and_rule(sample: Sample, tmp_path: Path) -> None:
    reports = scan(sample, tmp_path)
    said = [(f.rule, f.severity, f.what, f.member) for report in reports for f in report.findings]
    assert worst(report.verdict for report in reports) == sample.verdict, said
    if sample.rule is not None:
        assert any(rule == sample.rule and severity == sample.verdict for rule, severity, _, _ in said), said


def test_names_are_unique() -> None:
    assert len({sample.name for sample in ALL}) == len(ALL)
