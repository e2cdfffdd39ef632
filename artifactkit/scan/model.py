"""What a scan says: findings by rule, what remains executable, and one verdict a file.

Standard library only; with ``containers/`` and ``pickles/`` this is the trusted base.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Severity = Literal["suspicious", "malicious", "unreadable"]
Verdict = Literal["clean", "suspicious", "malicious", "unreadable"]

# A finding wins over what could not be read: exit 1 before exit 3 (DESIGN section 8).
ORDER: tuple[Verdict, ...] = ("clean", "unreadable", "suspicious", "malicious")


class Rule(NamedTuple):
    """One thing that the scan looks for. ``why`` says what could happen, ``hint`` what to do about it.

    ``id`` is stable and has a section of its name in docs/safety.md. ``severity`` is what its findings have unless one
    says otherwise.
    """

    id: str
    severity: Severity
    title: str
    why: str
    hint: str


class Finding(NamedTuple):
    """One finding in one file. ``member`` is the way into nested ones, ``a.zip!/archive/data.pkl``.

    ``offset`` is in bytes within the member, or the file. ``name`` is the full name of what would be imported or
    called, the handle by which a policy can allow it.
    """

    rule: str
    severity: Severity
    what: str
    member: str | None = None
    offset: int | None = None
    name: str | None = None
    hint: str | None = None
    allowed: str | None = None  # the reason for which a policy allows it; it is then listed and blocks nothing


class Executable(NamedTuple):
    """Code that is there and that somebody may run: not a finding. What it is, who would run it, how to avoid that."""

    what: str
    runs: str
    avoid: str
    member: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class FileReport:
    """All that is said about one file. ``formats`` are those that its content has, the outermost first."""

    path: str
    formats: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    inventory: list[Executable] = field(default_factory=list)
    size: int = 0
    sha256: str | None = None
    said: set[tuple[str | None, ...]] = field(default_factory=set, repr=False, compare=False)

    @property
    def verdict(self) -> Verdict:
        return worst(f.severity for f in self.findings if f.allowed is None)

    @property
    def format(self) -> str:
        return " + ".join(dict.fromkeys(self.formats)) or "unknown"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that wins: malicious, suspicious, unreadable, clean."""
    return max(verdicts, key=ORDER.index, default="clean")
