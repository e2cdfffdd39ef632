"""What the forms of a scan's report share: the outcome, the rule of a finding, places, texts that are safe to show."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from ... import trees
from ...errors import ArtifactkitError, printable
from ...scan import rules
from ...scan.detect import MODULES
from ...scan.model import FileReport, Finding, Rule, Verdict

VERDICTS: tuple[Verdict, ...] = ("malicious", "suspicious", "unreadable", "clean")


@dataclass(slots=True)
class Outcome:
    """All that a run has found, and what of it blocks. ``loose``: suspicious findings do not (--fail-on malicious)."""

    loose: bool = False
    reports: list[FileReport] = field(default_factory=list)
    errors: list[ArtifactkitError] = field(default_factory=list)
    baseline: bool = False  # whether one was given, so that what it lacks is new
    repeated: int = 0
    policies: list[str] = field(default_factory=list)
    expired: list[dict[str, object]] = field(default_factory=list)

    def blocks(self, finding: Finding) -> bool:
        """Whether this finding alone would make the exit code something else than 0."""
        return finding.allowed is None and not (self.loose and finding.severity == "suspicious")

    @property
    def exit_code(self) -> int:
        """1 when something was found, which wins over 3, something could not be scanned; else 0."""
        blocking = {f.severity for report in self.reports for f in report.findings if self.blocks(f)}
        if blocking & {"suspicious", "malicious"}:
            return 1
        return 3 if blocking or self.errors else 0

    @property
    def counts(self) -> dict[Verdict, int]:
        """Files by verdict."""
        counts = dict.fromkeys(VERDICTS, 0)
        for report in self.reports:
            counts[report.verdict] += 1
        return counts

    @property
    def allowed(self) -> int:
        """Findings that a policy or the baseline allows."""
        return sum(f.allowed is not None for report in self.reports for f in report.findings)


def rule_of(finding: Finding) -> Rule:
    """The rule of a finding. Its module has been imported to make it, so no other has to be."""
    for name in sorted({f"artifactkit.scan.{module}" for module in MODULES.values()} & sys.modules.keys()):
        for rule in getattr(sys.modules[name], "RULES", ()):
            if rule.id == finding.rule:
                return rule  # type: ignore[no-any-return]
    return rules.all_rules()[finding.rule]


def line_of(report: FileReport, finding: Finding) -> int:
    """The line of a finding in a text file, from 1; 1 where the file is no text, or it is unknown."""
    if finding.member is not None or not finding.offset or not 0 < finding.offset <= report.size <= 1 << 20:
        return 1
    try:
        file = trees.open_file(report.path)
        before = file.read(0, min(finding.offset, file.size))
        file.close()
        before.decode("utf-8", "strict")
    except (ArtifactkitError, UnicodeDecodeError):
        return 1
    return 1 if b"\0" in before else before.count(b"\n") + 1


def safe(text: str) -> str:
    """The text with nothing in it that a terminal, or the log of a workflow, would take for a command."""
    return printable(text).replace("##[", "##\\x5b")


def safe_path(path: str) -> str:
    """A path as it stands at the start of a line: none begins with what a workflow's log takes for a command."""
    return safe(os.path.join(".", path) if path.startswith((":", "-")) else path)
