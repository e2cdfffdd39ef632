"""One tree of errors. Each error owns its hint and its exit code (DESIGN section 8).

Nothing below the command line prints or exits: a function raises one of these, and ``cli`` renders it.
"""

from __future__ import annotations

from typing import ClassVar


def printable(text: str) -> str:
    """Return ``text`` with control and other non-printing characters escaped.

    Names of tensors, members and files come from files that others made; printed raw they could steer a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in text
    )


class ArtifactkitError(Exception):
    """What went wrong, where (file, member, tensor, offset), expected and found, and how to mend it.

    ``what`` is one sentence without a full stop. ``offset`` is in bytes from the start of the file, or of the member
    when one is named. ``advice`` is the hint of the whole class, for those that have none of their own.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"
    advice: ClassVar[str | None] = None

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        member: str | None = None,
        tensor: str | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.file = file
        self.member = member
        self.tensor = tensor
        self.offset = offset
        self.expected = None if expected is None else str(expected)
        self.found = None if found is None else str(found)
        self.hint = hint

    def located(
        self,
        *,
        file: str | None = None,
        member: str | None = None,
        tensor: str | None = None,
        hint: str | None = None,
    ) -> ArtifactkitError:
        """Fill in places that the raiser could not know; what is set already stays. Returns ``self``."""
        self.file = self.file or file
        self.member = self.member or member
        self.tensor = self.tensor or tensor
        self.hint = self.hint or hint
        return self

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The message as lines of text, safe for a terminal: what and where, expected and found, ``hint:``."""
        where = [
            f"{label} {printable(str(value))}"
            for label, value in (
                ("file", self.file),
                ("member", self.member),
                ("tensor", self.tensor),
                ("offset", self.offset),
            )
            if value is not None
        ]
        out = [printable(self.what)]
        if where:
            out.append("  in: " + ", ".join(where))
        if self.expected is not None:
            out.append("  expected: " + printable(self.expected))
        if self.found is not None:
            out.append("  found: " + printable(self.found))
        if self.hint or self.advice:
            out.append("hint: " + printable(self.hint or self.advice or ""))
        return out

    def to_json(self) -> dict[str, object]:
        """The same as a JSON object with stable keys; absent places are left out."""
        fields = {
            "code": self.code,
            "message": self.what,
            "file": self.file,
            "member": self.member,
            "tensor": self.tensor,
            "offset": self.offset,
            "expected": self.expected,
            "found": self.found,
            "hint": self.hint or self.advice,
        }
        return {key: value for key, value in fields.items() if value is not None}


class Refused(ArtifactkitError):
    """A negative verdict: a loss or value that the caller did not allow, a malicious source. Exit 1."""

    exit_code = 1
    code = "refused"


class VerificationFailed(Refused):
    """The artifact is not what its source says it should be. Exit 1."""

    code = "verification-failed"


class DeviceAbsent(Refused):
    """A device that was asked for is not here, or what was to run on it ran elsewhere: not verified. Exit 1."""

    code = "device-absent"


class RunFailed(Refused):
    """The runtime did not load or run the artifact: what it said, or that it died or took too long. Exit 1."""

    code = "run-failed"


class UsageError(ArtifactkitError):
    """The command line, or a call, asks for something that cannot be meant. Exit 2."""

    exit_code = 2
    code = "usage"


class DestinationExists(UsageError):
    """The destination is there already and ``--force`` was not given. Exit 2."""

    code = "destination-exists"


class RouteRefused(UsageError):
    """No route leads from what is held to what is asked for, by design. Exit 2."""

    code = "route-refused"


class Unreadable(ArtifactkitError):
    """The input cannot be read: absent, not a regular file, an unknown format, an I/O error. Exit 3."""

    exit_code = 3
    code = "unreadable"


class Corrupt(Unreadable):
    """The bytes contradict the format's specification. Exit 3."""

    code = "corrupt"
    advice = "fetch or copy the file again, and compare its digest with what its maker states"


class Truncated(Corrupt):
    """The file ends before what it announced. Exit 3."""

    code = "truncated"
    advice = "the file is not whole: fetch or copy it again"


class LimitExceeded(Corrupt):
    """Reading on would take memory or time out of all proportion to the file: a bomb, or close to one. Exit 3."""

    code = "limit-exceeded"
    advice = "no ordinary file is like this: artifactkit scan says more"


class MissingExtra(ArtifactkitError):
    """An optional dependency is not installed. Exit 4."""

    exit_code = 4
    code = "missing-extra"


class OutputError(ArtifactkitError):
    """The output could not be written: disk full, permissions. Exit 5."""

    exit_code = 5
    code = "output"


class Interrupted(ArtifactkitError):
    """Stopped by the user. Exit 130."""

    exit_code = 130
    code = "interrupted"
