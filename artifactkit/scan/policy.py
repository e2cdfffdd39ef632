"""What a policy allows: exact names, and files by their digest, each with a reason and a date on which that ends.

A policy is a TOML file with a table ``[scan]``. It is the one in the current folder (``artifactkit.toml``) or one that
is named; a file deeper in a scanned tree is never asked, since whoever made the tree wrote it.

    [scan]
    policies = ["sklearn"]          # shipped ones, by name
    [[scan.allow]]
    name = "ours.models.Net"        # or names = [...], or sha256 = "..."; with rule = "..." for that rule alone
    reason = "reviewed, our own package"
    expires = 2027-06-30

An entry by name never counts for a malicious finding; one by digest does, since it is about these bytes and no others.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .. import trees
from ..errors import ArtifactkitError, Unreadable, UsageError
from ..files import File
from .model import FileReport, Finding
from .policy_toml import Document, parse
from .rules import CONTENT_ABSENT, POLICY_CHANGED

FILE = "artifactkit.toml"
SHIPPED = os.path.join(os.path.dirname(__file__), "policies")
NONE = "none"  # --policy none: not even the one of the current folder
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Allow:
    """One thing that is allowed. One of ``name`` and ``sha256`` is set; ``rule`` narrows a name to one rule."""

    reason: str
    expires: datetime.date | None
    name: str | None = None
    sha256: str | None = None
    rule: str | None = None
    source: str = FILE
    line: int = 0

    @property
    def grants(self) -> tuple[object, ...]:
        """What it permits, apart from the words of its reason: two entries alike in this permit the same."""
        return (self.name, self.sha256, self.rule, self.expires)

    @property
    def what(self) -> str:
        kind = f"name {self.name}" if self.name is not None else f"sha256 {self.sha256}"
        return f"{kind} for rule {self.rule}" if self.rule else kind


@dataclass(slots=True)
class Policy:
    """All entries that count, from every source. ``expired`` are those that do not any more."""

    sources: list[str] = field(default_factory=list)
    entries: list[Allow] = field(default_factory=list)
    expired: list[Allow] = field(default_factory=list)
    changed: list[FileReport] = field(default_factory=list)  # findings about the policy itself
    _names: dict[str, list[Allow]] = field(default_factory=dict)
    _digests: dict[str, Allow] = field(default_factory=dict)

    def add(self, entries: Iterable[Allow], today: datetime.date) -> None:
        """Take entries in; those whose date has passed go to ``expired``. The date itself is the last day."""
        for entry in entries:
            if entry.expires is not None and entry.expires < today:
                self.expired.append(entry)
                continue
            self.entries.append(entry)
            if entry.name is not None:
                self._names.setdefault(entry.name, []).append(entry)
            elif entry.sha256 is not None:
                self._digests.setdefault(entry.sha256, entry)

    def apply(self, report: FileReport) -> None:
        """Mark the findings of ``report`` that are allowed; its file is read for the digest if need be."""
        if not report.findings or not self.entries:
            return
        if self._digests and trees.is_file(report.path):
            report.sha256 = report.sha256 or digest(report.path)
            entry = self._digests.get(report.sha256 or "")
            if entry is not None:
                report.findings[:] = [
                    # Of a pointer these are the bytes, not what it points to.
                    f if f.rule == CONTENT_ABSENT.id else f._replace(allowed=f.allowed or entry.reason)
                    for f in report.findings
                ]
                return
        if self._names:
            report.findings[:] = [self._by_name(finding) for finding in report.findings]

    def _by_name(self, finding: Finding) -> Finding:
        if finding.name is None or finding.allowed is not None:
            return finding
        for entry in self._names.get(finding.name, ()):
            if entry.rule is None or entry.rule == finding.rule:
                if finding.severity == "suspicious":
                    return finding._replace(allowed=entry.reason)
                hint = "a policy names it, which does not count here: only the sha256 of a file can allow this"
                return finding._replace(hint=f"{finding.hint}; {hint}" if finding.hint else hint)
        return finding


def digest(path: str) -> str | None:
    """The sha256 of the file at ``path``, read in pieces; None when it cannot be read."""
    state = hashlib.sha256()
    try:
        file = trees.open_file(path)
        try:
            for offset in range(0, file.size, CHUNK):
                state.update(file.read(offset, min(CHUNK, file.size - offset)))
            file.check_unchanged()
        finally:
            file.close()
    except ArtifactkitError:
        return None
    return state.hexdigest()


def shipped() -> list[str]:
    """The names of the policies that come with the program."""
    return sorted(name.removesuffix(".toml") for name in os.listdir(SHIPPED) if name.endswith(".toml"))


def load(given: Sequence[str] = (), ref: str | None = None, today: datetime.date | None = None) -> Policy:
    """The policy of this run: files and shipped names that were given, else ``artifactkit.toml`` here.

    A shipped name adds to the file; a file takes the place of the one here. With ``ref`` files are taken as they are at
    that revision of git, and what the file here allows beyond it becomes a finding. UsageError, with line and column,
    when a policy cannot be understood.
    """
    today = today or datetime.date.today()
    policy = Policy()
    names = [name for name in given if name in shipped()]
    files = [name for name in given if name not in names and name != NONE]
    if not files and NONE not in given and (ref is not None or os.path.lexists(FILE)):
        files = [FILE]
    for path in files:
        document = _read(path, ref, must_exist=path in given)
        policy.sources.append(path if ref is None else f"{path} at {ref}")
        policy.add(allowed(document, path), today)
        names += [name for name in document.policies if name not in names]
        if ref is not None:
            _compare(path, document, policy)
    for name in names:
        if name not in shipped():
            raise UsageError(f"no policy is called {name!r}", hint=f"a file, or one of {', '.join(shipped())}")
        document = parse(_bytes(os.path.join(SHIPPED, f"{name}.toml")), name, shipped=True)
        policy.sources.append(f"{name} (version {document.version})")
        policy.add(allowed(document, name), today)
    return policy


def allowed(document: Document, source: str) -> list[Allow]:
    """The entries of a document, one for each name."""
    out = []
    for entry in document.entries:
        common = {"reason": entry.reason, "expires": entry.expires, "source": source, "line": entry.line}
        if entry.sha256 is not None:
            out.append(Allow(sha256=entry.sha256, **common))  # type: ignore[arg-type]
        out += [Allow(name=name, rule=entry.rule, **common) for name in entry.names]  # type: ignore[arg-type]
    return out


def _read(path: str, ref: str | None, must_exist: bool) -> Document:
    """The file's document, here or at ``ref``; an empty one when there is no such file at ``ref``."""
    if ref is not None:
        from .git import blob

        data = blob(path, ref)
        if data is None and must_exist and not os.path.exists(path):
            raise UsageError("no such policy", file=path, hint=f"a file, or one of {', '.join(shipped())}")
        return parse(data or b"", f"{path} at {ref}")
    if not os.path.lexists(path):
        hint = f"a file, or one of {', '.join(shipped())}"
        raise UsageError("no such policy", file=path, hint=hint)
    return parse(_bytes(path), path)


def _bytes(path: str) -> bytes:
    """The file's content. A policy is small: what is larger is none."""
    try:
        file = File(path)
    except Unreadable as error:
        raise UsageError(f"cannot read the policy: {error.what}", file=path, hint=error.hint) from error
    try:
        if file.size > CHUNK:
            raise UsageError("this is no policy: it is too large", file=path, expected=f"at most {CHUNK} bytes",
                             found=f"{file.size} bytes")  # fmt: skip
        return file.read(0, file.size)
    finally:
        file.close()


def _compare(path: str, base: Document, policy: Policy) -> None:
    """Findings for what the file here allows and the one at the revision does not."""
    if not os.path.lexists(path):
        return
    here = parse(_bytes(path), path)
    known = {entry.grants for entry in allowed(base, path)}
    report = FileReport(path, ["toml"])
    for entry in allowed(here, path):
        if entry.grants not in known:
            what = f"line {entry.line} newly allows {entry.what}"
            report.findings.append(
                Finding(POLICY_CHANGED.id, POLICY_CHANGED.severity, what, name=entry.name, hint=POLICY_CHANGED.hint)
            )
    for name in here.policies:
        if name not in base.policies:
            what = f"the shipped policy {name} is newly asked for"
            report.findings.append(
                Finding(POLICY_CHANGED.id, POLICY_CHANGED.severity, what, name=name, hint=POLICY_CHANGED.hint)
            )
    if report.findings:
        policy.changed.append(report)
