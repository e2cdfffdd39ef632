"""For the log of a GitHub workflow: commands that make annotations (``::error file=...,line=...,title=...::message``).

Whatever comes from a file is escaped as the runner unescapes it: ``%``, CR and LF in a message; ``:`` and ``,`` too in
a property. So no name in a file can end the command or begin another.
"""

from __future__ import annotations

from ...errors import printable
from ...scan.baseline import relative
from ...scan.model import FileReport, Finding
from .common import Outcome, line_of, rule_of
from .sarif import root


def commands(outcome: Outcome) -> list[str]:
    """One command for each finding: error where it blocks, warning where it is loosened, notice where it is allowed."""
    return [_command(outcome, report, finding) for report in outcome.reports for finding in report.findings] + [
        f"::error title={_property('artifactkit: ' + error.code)}::{_data(f'{error.what}: {error.file}')}"
        for error in outcome.errors
    ]


def _command(outcome: Outcome, report: FileReport, finding: Finding) -> str:
    level = "notice" if finding.allowed else "error" if outcome.blocks(finding) else "warning"
    parts = [finding.what if finding.member is None else f"in {finding.member}: {finding.what}"]
    if finding.allowed:
        parts.append(f"allowed: {finding.allowed}")
    parts.append(f"why: {rule_of(finding).why}")
    if finding.hint:
        parts.append(f"hint: {finding.hint}")
    properties = {
        "file": relative(report.path, root()),
        "line": str(line_of(report, finding)),
        "title": f"artifactkit: {finding.severity}: {finding.rule}",
    }
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{level} {given}::{_data('; '.join(parts))}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
