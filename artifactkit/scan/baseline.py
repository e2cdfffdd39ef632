"""What was found before and is known: only what is new blocks.

A finding is known by rule, path, member and name; neither offsets nor wording count, so that it stays known when the
file around it moves. It counts as often as it was written down, and no worse than it was. A malicious one is known in
the same bytes only: a file with another payload behind the same name is new.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .. import trees
from ..errors import ArtifactkitError, UsageError
from ..files import File
from .model import ORDER, FileReport, Finding
from .policy import digest

SCHEMA = "artifactkit/scan-baseline/1"
KNOWN = "in the baseline"
LARGEST = 256 << 20


def relative(path: str, root: str | None = None) -> str:
    """The path as it is written into reports: from ``root`` (the current folder) where it lies below, with slashes."""
    if trees.find(path) is not None:
        return path
    root = os.path.abspath(root or os.curdir)
    whole = os.path.abspath(path)
    if whole == root:
        return "."
    return whole[len(root.rstrip(os.sep)) + 1 :] if whole.startswith(root.rstrip(os.sep) + os.sep) else whole


def fingerprint(path: str, finding: Finding) -> str:
    """What a finding is known by: 64 hexadecimal digits. ``path`` is as ``relative`` gives it."""
    parts = (finding.rule, path, finding.member or "", finding.name or "")
    # Lengths first, so that no two lists of parts make the same bytes.
    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in raw)).hexdigest()


@dataclass(slots=True)
class Baseline:
    """Findings by fingerprint: for each the severities seen, worst first, and the digest of the file."""

    known: dict[str, list[tuple[str, str | None]]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Mapping[str, str]]) -> Baseline:
        """From records as ``records`` makes them. ValueError, TypeError or LookupError when they are none."""
        baseline = cls()
        for record in records:
            severity, sha256 = record["severity"], record.get("sha256")
            if severity not in ORDER or not (sha256 is None or isinstance(sha256, str)):
                raise ValueError(f"no record of a finding: {record}")
            baseline.known.setdefault(str(record["fingerprint"]), []).append((severity, sha256))
        for known in baseline.known.values():
            known.sort(key=lambda r: (-ORDER.index(r[0]), r[1] or ""))
        return baseline

    def apply(self, report: FileReport) -> None:
        """Mark what is known as allowed. Each record stands for one finding."""
        shown = relative(report.path)
        for index, finding in enumerate(report.findings):
            if finding.allowed is not None:
                continue
            records = self.known.get(fingerprint(shown, finding))
            record = self._match(records or [], finding, report)
            if records is not None and record is not None:
                records.remove(record)
                report.findings[index] = finding._replace(allowed=KNOWN)

    def _match(
        self, records: list[tuple[str, str | None]], finding: Finding, report: FileReport
    ) -> tuple[str, str | None] | None:
        for severity, sha256 in records:
            if ORDER.index(finding.severity) > ORDER.index(severity):
                continue
            if finding.severity == "malicious":
                report.sha256 = report.sha256 or digest(report.path)
                if sha256 is None or sha256 != report.sha256:
                    continue
            return severity, sha256
        return None


def load(path: str) -> Baseline:
    """Read a baseline; UsageError when it is none, since nobody would know then what is new."""
    import json

    try:
        file = File(path)
        try:
            if file.size > LARGEST:
                raise UsageError("this is no baseline: it is too large", file=path)
            document = json.loads(file.read(0, file.size))
        finally:
            file.close()
        if document["schema"] != SCHEMA:
            raise UsageError("this is no baseline", file=path, expected=SCHEMA, found=document["schema"])
        return Baseline.of(document["findings"])
    except UsageError:
        raise
    except ArtifactkitError as error:
        raise UsageError(f"cannot read the baseline: {error.what}", file=path, hint=HINT) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise UsageError("this is no baseline", file=path, expected=SCHEMA, hint=HINT) from error


HINT = "write one: artifactkit scan PATH --write-baseline FILE"


def records(reports: Iterable[FileReport]) -> list[dict[str, str]]:
    """One record for each finding that no policy allows, in a stable order: what a baseline holds."""
    out = []
    for report in reports:
        shown = relative(report.path)
        for finding in report.findings:
            if finding.allowed not in (None, KNOWN):
                continue
            record = {
                "fingerprint": fingerprint(shown, finding), "rule": finding.rule, "severity": finding.severity,
                "path": shown, "member": finding.member, "name": finding.name,
            }  # fmt: skip
            if finding.severity == "malicious":
                report.sha256 = report.sha256 or digest(report.path)
                record["sha256"] = report.sha256
            out.append({key: value for key, value in record.items() if value is not None})
    return sorted(out, key=lambda r: [r.get(key, "") for key in ("path", "member", "rule", "name", "severity")])
