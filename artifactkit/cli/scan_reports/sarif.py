"""For code scanning: SARIF 2.1.0 (OASIS), in the subset that GitHub shows.

A path is a relative URI from the root of the checkout. Findings are told again in a later run by a fingerprint that
does not depend on offsets. Nothing of the machine or the hour is in it: the same files give the same bytes.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from ... import __version__, trees
from ...errors import printable
from ...scan.baseline import KNOWN, fingerprint, relative
from ...scan.model import ORDER, FileReport, Finding, Rule
from ...scan.rules import all_rules
from .common import Outcome, line_of
from .document import executable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
PACKAGE = f"pkg:pypi/artifactkit@{__version__}"  # a package URL: it names no host
LEVELS = {"malicious": "error", "suspicious": "warning", "unreadable": "warning"}
# GitHub's scale: critical from 9.0, high from 7.0, medium from 4.0.
SECURITY_SEVERITY = {"malicious": "9.8", "suspicious": "7.0", "unreadable": "5.0"}
MOST_RESULTS = 25_000  # GitHub refuses a file with more; what is worst comes first


def root() -> str:
    """The root of the checkout: the workspace of a GitHub workflow when we run in it, else the current folder."""
    here, workspace = os.getcwd(), os.environ.get("GITHUB_WORKSPACE")
    if workspace and (here + os.sep).startswith(os.path.abspath(workspace) + os.sep):
        return os.path.abspath(workspace)
    return here


def log(outcome: Outcome) -> dict[str, Any]:
    """The whole SARIF log of a run."""
    rules = list(all_rules().values())
    index = {rule.id: i for i, rule in enumerate(rules)}
    found = [(report, finding) for report in outcome.reports for finding in report.findings]
    found.sort(key=lambda pair: (pair[1].allowed is not None, -ORDER.index(pair[1].severity)))
    start, seen = root(), dict[str, int]()
    results = [_result(outcome, r, f, index[f.rule], start, seen) for r, f in found[:MOST_RESULTS]]
    return plain({"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(outcome, rules, results, len(found))]})  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """The value with control characters and lone surrogates in its texts escaped: not every reader takes them."""
    if isinstance(value, str):
        return "\n".join(printable(line) for line in value.split("\n"))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def _run(outcome: Outcome, rules: list[Rule], results: list[dict[str, Any]], found: int) -> dict[str, Any]:
    notes = [
        {"level": "error", "descriptor": {"id": error.code}, "message": {"text": f"{error.what}: {error.file}"}}
        for error in outcome.errors
    ]
    if found > len(results):
        text = f"{found - len(results)} of {found} findings are left out, the least severe ones"
        notes.append({"level": "warning", "descriptor": {"id": "too-many-results"}, "message": {"text": text}})
    whole = not outcome.errors and all(f.severity != "unreadable" for r in outcome.reports for f in r.findings)
    invocation: dict[str, Any] = {"executionSuccessful": whole, "exitCode": outcome.exit_code}
    if notes:
        invocation["toolExecutionNotifications"] = notes
    parts = [
        {"path": report.path, **executable(entry)} for report in outcome.reports for entry in report.inventory
    ]  # fmt: skip
    return {
        "tool": {
            "driver": {
                "name": "artifactkit",
                "version": __version__,
                "semanticVersion": __version__,
                "informationUri": PACKAGE,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "invocations": [invocation],
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "the root of the checkout"}}},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"filesScanned": len(outcome.reports), "counts": dict(outcome.counts), "inventory": parts},
    }


def _rule(rule: Rule) -> dict[str, Any]:
    what = _sentence(rule.title)
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": what},
        "fullDescription": {"text": f"{what} {_sentence(rule.why)}"},
        "help": {
            "text": f"{_sentence(rule.why)} What to do: {rule.hint}.",
            "markdown": f"**Why:** {_sentence(rule.why)}\n\n**What to do:** {rule.hint}.\n\n"
            f"`artifactkit scan --explain {rule.id}` says this in a terminal.",
        },
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {
            "tags": ["security", "supply-chain", rule.severity],
            "precision": "very-high" if rule.severity == "malicious" else "high",
            "problem.severity": "error" if rule.severity == "malicious" else "warning",
            "security-severity": SECURITY_SEVERITY[rule.severity],
        },
    }


def _result(
    outcome: Outcome, report: FileReport, finding: Finding, index: int, start: str, seen: dict[str, int]
) -> dict[str, Any]:
    path = relative(report.path, start)
    print_ = fingerprint(path, finding)
    seen[print_] = number = seen.get(print_, 0) + 1  # alike findings of one file are told apart by their order
    physical: dict[str, Any] = {"artifactLocation": _location(path), "region": {"startLine": line_of(report, finding)}}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.member is not None:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.member, "kind": "member"}]
    where = f"in {finding.member}: " if finding.member is not None else ""
    hint = f". What to do: {finding.hint}" if finding.hint else ""
    properties = {
        "severity": finding.severity,
        "name": finding.name,
        "member": finding.member,
        "offset": finding.offset,
    }
    out: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": f"{where}{finding.what}{hint}"},
        "locations": [location],
        "partialFingerprints": {
            "artifactkitFinding/v1": f"{print_}:{number}",
            "primaryLocationLineHash": f"{print_[:16]}:{number}",
        },
        "properties": {key: value for key, value in properties.items() if value is not None},
    }
    if outcome.baseline:
        out["baselineState"] = "unchanged" if finding.allowed == KNOWN else "new"
    if finding.allowed is not None:
        out["suppressions"] = [{"kind": "external", "status": "accepted", "justification": finding.allowed}]
    return out


def _location(path: str) -> dict[str, Any]:
    """A relative URI from the root where the file lies below it, else an absolute one."""
    raw = quote(os.fsencode(path.replace(os.sep, "/")))
    if trees.is_url(path):
        return {"uri": quote(os.fsencode(path), safe="/:@")}
    if os.path.isabs(path):
        return {"uri": f"file://{raw}"}
    return {"uri": raw, "uriBaseId": "%SRCROOT%"}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
