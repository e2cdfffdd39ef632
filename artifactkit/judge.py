"""One judge for every command: what ``scan`` says of a file is what ``inspect`` shows and ``convert`` goes by.

A malicious source is refused unless the caller allows it. Its tensors are data all the same, and nothing that it names
is ever called; what else reads the file may not be so careful, and whoever converts it should know what came with it.
"""

from __future__ import annotations

import os

from . import trees
from .errors import Refused
from .scan.model import FileReport, Verdict, worst
from .scan.walk import Walk, scan_one

# What was judged in this process, by path and by what would have changed had the file been written anew.
_judged: dict[tuple[str, int, int, int, int], FileReport] = {}


def judge(path: str) -> FileReport:
    """The scanner's report on one file. Never raises for what the file holds; judged once while it stays as it is."""
    if trees.find(path) is not None:
        return scan_one(path)
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return scan_one(path)
    key = (os.path.abspath(path), info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
    report = _judged.get(key)
    if report is None:
        report = _judged[key] = scan_one(path)
    return report


def judge_source(path: str) -> list[FileReport]:
    """The reports on a source: of the file, or of each file in the folder and of the folder itself."""
    if not trees.is_dir(path):
        return [judge(path)]
    return list(Walk([path]).reports())


def verdict(reports: list[FileReport]) -> Verdict:
    """The verdict that wins."""
    return worst(report.verdict for report in reports)


def said(reports: list[FileReport], severity: Verdict = "malicious") -> list[str]:
    """What was found of this severity, a line for each: file, member, rule and what it is."""
    return [
        f"{report.path}{'' if finding.member is None else '!/' + finding.member}: {finding.rule}: {finding.what}"
        for report in reports
        for finding in report.findings
        if finding.severity == severity and finding.allowed is None
    ]


def refuse_malicious(reports: list[FileReport], allow: bool = False) -> list[str]:
    """Refused (exit 1) when a file is malicious and that is not allowed. Returns what was found, to be said."""
    found = said(reports)
    if found and not allow:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise Refused(
            "the source is malicious",
            file=next(report.path for report in reports if report.verdict == "malicious"),
            found=found[0] + more,
            hint="artifactkit scan says all of it; --allow-unsafe-source takes its tensors all the same",
        )
    return found
