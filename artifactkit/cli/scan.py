"""Find out whether files, folders or repositories can execute code

Nothing is imported, unpickled, rendered or run. Formats are told by content, archives and nested pickles are looked
into, and tensor bytes are not read. Exit 0 clean, 1 suspicious or malicious, 3 something could not be scanned.

    artifactkit scan model.pt
    artifactkit scan . --output-format sarif --output-file scan.sarif
    artifactkit scan --explain pickle-unsafe-call
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .. import trees
from ..errors import Unreadable, UsageError, printable
from . import options as o
from .render import count, out

if TYPE_CHECKING:
    from ..scan.baseline import Baseline
    from ..scan.policy import Policy
    from .scan_reports.common import Outcome


class Form(StrEnum):
    """How the report is written."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"


class FailOn(StrEnum):
    """What makes the exit code 1."""

    suspicious = "suspicious"
    malicious = "malicious"


Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files or folders, or hf://owner/name[@REV][/PATH].", show_default=False),
]
OutputFormat = Annotated[Form, typer.Option("--output-format", help="Form of the report.", case_sensitive=False)]
OutputFile = Annotated[
    str | None, typer.Option("--output-file", metavar="FILE", help="Write the report to FILE, not to stdout.")
]
Fail = Annotated[FailOn, typer.Option("--fail-on", help="What makes the exit code 1.", case_sensitive=False)]
PolicyFile = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", metavar="P", show_default=False,
        help="Allow what this file, or shipped policy, names; none: not even artifactkit.toml here; repeatable.",
    ),
]  # fmt: skip
PolicyRef = Annotated[
    str | None,
    typer.Option("--policy-ref", metavar="REV", help="Take the policy from this revision of git; report what is new."),
]
BaselineFile = Annotated[
    str | None, typer.Option("--baseline", metavar="FILE", help="Block only what is not in this baseline.")
]
WriteBaseline = Annotated[
    str | None, typer.Option("--write-baseline", metavar="FILE", help="Write what is found as a baseline.")
]
Explain = Annotated[str | None, typer.Option("--explain", metavar="RULE", help="Explain a rule, and scan nothing.")]
Inventory = Annotated[bool, typer.Option("--inventory", help="List every part that remains executable.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print findings only.")]


def command(
    paths: Paths = None,
    output_format: OutputFormat = Form.text,
    output_file: OutputFile = None,
    fail_on: Fail = FailOn.suspicious,
    policy: PolicyFile = None,
    policy_ref: PolicyRef = None,
    baseline: BaselineFile = None,
    write_baseline: WriteBaseline = None,
    explain: Explain = None,
    inventory: Inventory = False,
    quiet: Quiet = False,
    force: o.Force = False,
    require_pinned: o.RequirePinned = False,
    json: o.Json = False,
) -> int:
    if json and output_format is Form.text:
        output_format = Form.json
    # The other forms are whole documents too: an error goes to stderr, and into the document of JSON only.
    out.json = output_format is Form.json
    if explain is not None:
        return _explain(explain)
    if not paths:
        raise UsageError("nothing to scan", hint="artifactkit scan PATH...")
    targets = [_Target(name, force, baseline) for name in (output_file, write_baseline) if name is not None]
    paths, absent = _located(paths, require_pinned)
    outcome = _scan(paths, policy or [], policy_ref, baseline, fail_on is FailOn.malicious)
    outcome.errors += absent
    if write_baseline is not None:
        _write_baseline(targets[-1], outcome, quiet)
    _report(outcome, output_format, targets[0] if output_file is not None else None, inventory, quiet)
    return outcome.exit_code


def _located(paths: list[str], require_pinned: bool) -> tuple[list[str], list[Unreadable]]:
    """The paths with revisions of the hub mounted, and why some are not to be had; that ends no scan of the others."""
    if all(map(os.path.lexists, paths)):
        return paths, []

    from .located import locate, say_commit

    found: list[str] = []
    absent: list[Unreadable] = []
    for path in paths:
        try:
            located = locate(path, require_pinned) if trees.is_url(path) or trees.is_hub_name(path) else None
        except Unreadable as error:
            first, *rest = error.lines()
            out.say("error: " + first, *rest)
            absent.append(error)
            continue
        if located is not None:
            say_commit(located)
        found.append(path if located is None else located.path)
    return found, absent


def _scan(paths: list[str], policies: list[str], ref: str | None, baseline: str | None, loose: bool) -> Outcome:
    from ..scan.walk import Walk
    from .scan_reports.common import Outcome

    policy = _policy(policies, ref)
    known = _baseline(baseline)
    outcome = Outcome(loose, baseline=known is not None)
    if policy is not None:
        outcome.reports += policy.changed
        outcome.policies = policy.sources
        outcome.expired = [{"entry": e.what, "source": e.source, "line": e.line, "expires": str(e.expires)}
                           for e in policy.expired]  # fmt: skip
        for gone in policy.expired:
            out.warn(
                f"{gone.source}, line {gone.line}: {printable(gone.what)} expired on {gone.expires}, and does not count"
            )
    walk = Walk(paths)
    for report in walk.reports():
        if report.findings:
            if policy is not None:
                policy.apply(report)
            if known is not None:
                known.apply(report)
        outcome.reports.append(report)
    outcome.repeated = walk.repeated
    outcome.errors = list(walk.absent)
    for error in walk.absent:
        first, *rest = error.lines()
        out.say("error: " + first, *rest)
    for folder in walk.empty:
        out.warn(f"no files in {printable(folder)}")
    return outcome


def _policy(given: list[str], ref: str | None) -> Policy | None:
    """The policy, or None where there is none to read: most runs need neither TOML nor dates."""
    if not given and ref is None and not os.path.lexists("artifactkit.toml"):
        return None
    from ..scan import policy

    return policy.load(given, ref)


def _baseline(path: str | None) -> Baseline | None:
    if path is None:
        return None
    from ..scan import baseline

    return baseline.load(path)


def _report(outcome: Outcome, form: Form, target: _Target | None, inventory: bool, quiet: bool) -> None:
    from .scan_reports import text

    if form is Form.json:
        from .scan_reports import document

        lines = [out.document_text(outcome.exit_code == 0, outcome.errors, document.keys(outcome))]
    elif form is Form.sarif:
        import json

        from .scan_reports import sarif

        lines = [json.dumps(sarif.log(outcome), indent=2, ensure_ascii=True)]
    elif form is Form.github:
        from .scan_reports import github

        lines = github.commands(outcome)
        if not quiet:
            lines.append(text.summary(outcome))
    else:
        lines = text.text(outcome, inventory, quiet)
    if target is not None:
        target.write("".join(line + "\n" for line in lines))
        if not quiet:
            out.say(f"{text.summary(outcome)}; the report is in {printable(target.path)}")
    else:
        out.whole(*lines)


def _write_baseline(target: _Target, outcome: Outcome, quiet: bool) -> None:
    """Write what was found; from then on it is known, in this run too."""
    import json

    from ..scan import baseline

    records = baseline.records(outcome.reports)
    target.write(json.dumps({"schema": baseline.SCHEMA, "findings": records}, indent=2, ensure_ascii=True) + "\n")
    known = baseline.Baseline.of(records)
    for report in outcome.reports:
        known.apply(report)
    if not quiet:
        out.say(f"wrote {printable(target.path)}: {count(len(records), 'finding')}")


def _explain(name: str) -> int:
    from ..scan.rules import all_rules

    rules = all_rules()
    rule = rules.get(name)
    if rule is None:
        from difflib import get_close_matches

        near = get_close_matches(name, rules, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(rules)}"
        raise UsageError(f"no such rule {name!r}", hint=hint)
    out.data(f"{rule.id}: {rule.severity}", rule.title, f"why: {rule.why}", f"hint: {rule.hint}")
    out.document(
        ok=True,
        rule={"id": rule.id, "severity": rule.severity, "title": rule.title, "why": rule.why, "hint": rule.hint},
    )
    return 0


class _Target:
    """A file to be written at the end; whether it may be is found out before the scan begins."""

    def __init__(self, path: str, force: bool, baseline: str | None) -> None:
        self.path = path
        # The baseline that was given is the one that a new one takes the place of.
        self.force = force or (baseline is not None and os.path.exists(path) and os.path.samefile(path, baseline))
        self.stream = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
        if not self.stream:
            from ..staging import Stage

            Stage(path, folder=False, force=self.force)

    def write(self, text: str) -> None:
        """Staged beside its name and renamed; a device or a pipe is written to as it is."""
        from ..errors import OutputError

        data = text.encode("utf-8", "backslashreplace")
        try:
            if self.stream:
                with open(self.path, "wb") as file:
                    file.write(data)
                return
            from ..staging import Stage

            with Stage(self.path, folder=False, force=self.force) as stage:
                with open(stage.path(), "wb") as file:
                    file.write(data)
                stage.commit()
        except OSError as error:
            raise OutputError(f"cannot write: {error.strerror}", file=self.path) from error
