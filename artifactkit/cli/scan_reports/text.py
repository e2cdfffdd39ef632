"""For people: one line a finding, then what remains executable, then one line that sums up."""

from __future__ import annotations

from ...scan.model import FileReport, Finding
from ..render import count
from .common import VERDICTS, Outcome, rule_of, safe, safe_path

SHOWN = 10  # executable parts that are listed unless all are asked for


def findings(report: FileReport) -> list[str]:
    """One line for each finding of a file: place, severity, rule, what, why, and what to do about it."""
    return [_line(report, finding) for finding in report.findings]


def _line(report: FileReport, finding: Finding) -> str:
    place = safe_path(report.path)
    if finding.member is not None:
        place += f"!/{safe(finding.member)}"
    if finding.offset is not None:
        place += f" @{finding.offset}"
    severity = f"{finding.severity} (allowed: {safe(finding.allowed)})" if finding.allowed else finding.severity
    parts = [f"{place}: {severity}: {finding.rule}: {safe(finding.what)}"]
    if finding.allowed is None:  # of what is allowed, why it could matter has been weighed already
        parts.append(f"why: {rule_of(finding).why}")
    if finding.hint and finding.allowed is None:
        parts.append(f"hint: {safe(finding.hint)}")
    return "; ".join(parts)


def inventory(outcome: Outcome, everything: bool) -> list[str]:
    """What remains executable: a line for each part, alike ones once."""
    lines = []
    for report in outcome.reports:
        for entry in report.inventory:
            place = safe_path(report.path) + (f"!/{safe(entry.member)}" if entry.member is not None else "")
            lines.append(f"  {place}: {safe(entry.what)}; runs: {safe(entry.runs)}; avoid: {safe(entry.avoid)}")
    if not lines:
        return []
    out = [f"what remains executable: {count(len(lines), 'part')}"]
    out += lines if everything else lines[:SHOWN]
    if len(lines) > SHOWN and not everything:
        out.append(f"  ... and {len(lines) - SHOWN:,} more (--inventory lists all)")
    return out


def summary(outcome: Outcome) -> str:
    """The last line: how many files, and how many of each verdict."""
    counts = outcome.counts
    verdicts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS if counts[verdict])
    parts = [f"{count(len(outcome.reports), 'file')} scanned" + (f": {verdicts}" if verdicts else "")]
    if outcome.allowed:
        parts.append(f"{count(outcome.allowed, 'finding')} allowed")
    if outcome.errors:
        parts.append(f"{count(len(outcome.errors), 'path')} not found")
    return "; ".join(parts)


def text(outcome: Outcome, everything: bool, quiet: bool) -> list[str]:
    """The whole report."""
    lines = [line for report in outcome.reports for line in findings(report)]
    return lines if quiet else [*lines, *inventory(outcome, everything), summary(outcome)]
