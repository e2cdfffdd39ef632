"""For programs: the keys of the one JSON document."""

from __future__ import annotations

from ...scan.model import Executable, FileReport, Finding
from .common import Outcome, rule_of


def keys(outcome: Outcome) -> dict[str, object]:
    """What stands in the document beside schema, command, ok and errors."""
    return {
        "exit_code": outcome.exit_code,
        "fail_on": "malicious" if outcome.loose else "suspicious",
        "policies": outcome.policies,
        "expired": outcome.expired,
        "counts": dict(outcome.counts),
        "allowed": outcome.allowed,
        "repeated": outcome.repeated,
        "files": [_file(report) for report in outcome.reports],
    }


def _file(report: FileReport) -> dict[str, object]:
    out: dict[str, object] = {
        "path": report.path,
        "format": report.format,
        "verdict": report.verdict,
        "size": report.size,
        "findings": [_finding(finding) for finding in report.findings],
        "inventory": [executable(entry) for entry in report.inventory],
    }
    if report.sha256 is not None:
        out["sha256"] = report.sha256
    return out


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "what": finding.what,
        "why": rule_of(finding).why,
        "hint": finding.hint,
        "member": finding.member,
        "offset": finding.offset,
        "name": finding.name,
        "allowed": finding.allowed,
    }


def executable(entry: Executable) -> dict[str, object]:
    """One part of the inventory."""
    return {"what": entry.what, "runs": entry.runs, "avoid": entry.avoid, "member": entry.member}
