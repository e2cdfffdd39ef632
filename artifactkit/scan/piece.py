"""What a scanner is given: a run of bytes with its place, and the ways to say something about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ArtifactkitError, LimitExceeded, Truncated
from ..files import Bytes
from .model import Executable, FileReport, Finding, Rule, Severity
from .rules import UNREADABLE

if TYPE_CHECKING:
    from .sparse import Sparse

HEAD = 4096
UNPACKED_RATIO = 16
OPCODES_EACH, MAX_OPCODES = 8, 20_000_000  # for each byte of the file, and in all
WITHIN_EACH = 256  # a tensor that a plain pickle holds as a checkpoint of its own takes more
TAIL = 65_557  # an end-of-directory record with the longest comment


@dataclass(slots=True, eq=False, repr=False)
class Budget:
    """What one file may take in all, however it is nested. Counts, or bytes after decompression.

    ``unpacked``, ``opcodes`` and ``within`` grow with the file.
    """

    depth: int = 8
    pieces: int = 200_000
    unpacked: int = 128 << 20
    findings: int = 1000
    opcodes: int = 2_000_000  # of all pickles, packed ones too: about one second
    within: int = 2000  # bytes in pickles that are looked into; and more in large files
    hidden: int = 1000  # members of archives that only local headers lead to; each may be as long as the file

    def grow(self, size: int) -> None:
        """Allow what is in proportion to a file of ``size`` bytes."""
        self.unpacked += UNPACKED_RATIO * size
        self.within += size // WITHIN_EACH
        self.opcodes = min(self.opcodes + OPCODES_EACH * size, MAX_OPCODES)


@dataclass(slots=True, eq=False, repr=False)
class Piece:
    """Bytes to be looked into. ``name`` is the last part of the path: some files are told by their name only.

    ``member`` is the way into the file at ``path`` (``archive.zip!/data.pkl``), None for the file. ``look`` scans
    a nested piece; it is set by the scanner, so that a rule can hand on what it unpacks without importing the scanner.
    """

    data: Bytes
    path: str
    name: str
    report: FileReport
    budget: Budget
    look: Callable[[Piece], None]
    member: str | None = None
    depth: int = 0
    container: str | None = None  # the format of what this lies in: zip, torch-zip, tar ...
    stored: dict[str, int] = field(default_factory=dict)  # storages that its pickles refer to: key -> bytes at least
    sparse: list[Sparse] = field(default_factory=list)  # sparse tensors, whose indices are still to be checked
    also: list[str] = field(default_factory=list)  # formats found on the way, still to be looked into
    # (offset of the opcode, size) of bytes that its one pickle holds as a value, and that were looked into
    held: list[tuple[int, int]] = field(default_factory=list)
    _first: bytes | None = field(default=None, repr=False)
    _last: bytes | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def first(self) -> bytes:
        """The first 4096 bytes, or all; fewer when the data turns out to be cut short."""
        if self._first is None:
            try:
                self._first = self.data.read(0, min(self.size, HEAD))
            except Truncated:
                self._first = b""
        return self._first

    @property
    def last(self) -> bytes:
        """The last 65,557 bytes, or all."""
        if self._last is None:
            n = min(self.size, TAIL)
            self._last = self.data.read(self.size - n, n)
        return self._last

    def find(
        self,
        rule: Rule,
        what: str | None = None,
        *,
        offset: int | None = None,
        name: str | None = None,
        severity: Severity | None = None,
        hint: str | None = None,
        member: str | None = None,
    ) -> None:
        """Add a finding under ``rule``; what is not given comes from the rule. Alike findings are said once."""
        place = self.member if member is None else self.inside(member)
        found = Finding(rule.id, severity or rule.severity, what or rule.title, place, offset, name, hint or rule.hint)
        findings = self.report.findings
        # Beyond the limit only what is malicious, and that to twice the limit: the verdict is clear by then.
        if len(findings) >= self.budget.findings * (2 if found.severity == "malicious" else 1):
            return
        key = (found.rule, found.severity, found.what, found.member, found.name)
        if key not in self.report.said:
            self.report.said.add(key)
            findings.append(found)

    def unreadable(self, error: ArtifactkitError, rule: Rule = UNREADABLE) -> None:
        """Record that this piece could not be scanned to its end."""
        offset = error.offset
        self.find(
            rule,
            error.lines()[0] if not error.found else f"{error.what}: {error.found}",
            offset=offset,
            hint=error.hint,
        )

    def spend(self, nbytes: int) -> None:
        """Count ``nbytes`` that were unpacked; LimitExceeded when the file has had its share."""
        self.budget.unpacked -= nbytes
        if self.budget.unpacked < 0:
            raise LimitExceeded("the file unpacks to more than is looked into", member=self.member)

    def runs(self, what: str, runs: str, avoid: str) -> None:
        """Add to the inventory of what remains executable."""
        entry = Executable(what, runs, avoid, self.member)
        if entry not in self.report.inventory and len(self.report.inventory) < self.budget.findings:
            self.report.inventory.append(entry)

    def inside(self, member: str) -> str:
        """The place of a member of this piece."""
        return member if self.member is None else f"{self.member}!/{member}"

    def inner(self, data: Bytes, member: str, container: str | None = None) -> Piece:
        """A piece for a member of this one, to be handed to ``look``."""
        name = member.replace("\\", "/").rstrip("/").rpartition("/")[2]
        return Piece(
            data, self.path, name, self.report, self.budget, self.look, self.inside(member), self.depth + 1, container
        )
