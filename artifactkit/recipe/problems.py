"""Everything that is wrong with one TOML file, each with its line and column, told together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import UsageError, printable
from .positions import Path, Positions, find

MOST = 1000  # problems that are looked for
SHOWN = 50  # problems that are printed; a file with more is probably of another kind


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, at ``line`` and ``column`` (both from 1)."""

    line: int
    column: int
    what: str
    expected: str | None = None
    found: str | None = None
    hint: str | None = None

    def to_json(self) -> dict[str, object]:
        fields = {
            "line": self.line,
            "column": self.column,
            "message": self.what,
            "expected": self.expected,
            "found": self.found,
            "hint": self.hint,
        }
        return {key: value for key, value in fields.items() if value is not None}


class Invalid(UsageError):
    """A recipe or a lock file that cannot be meant: all its problems, in the order of the file. Exit 2."""

    code = "recipe-invalid"

    def __init__(self, file: str, problems: Sequence[Problem], hint: str | None = None) -> None:
        self.problems = sorted(problems, key=lambda p: (p.line, p.column, p.what))
        count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
        super().__init__(f"the file cannot be understood: {count} in it", file=file, hint=hint)

    def lines(self) -> list[str]:
        """``FILE:LINE:COLUMN: what`` for each problem, as compilers and editors write it."""
        name = printable(self.file or "")
        out = [self.what]
        for problem in self.problems[:SHOWN]:
            out.append(f"  {name}:{problem.line}:{problem.column}: {printable(problem.what)}")
            for label, text in (
                ("expected", problem.expected), ("found", problem.found), ("hint", problem.hint)
            ):  # fmt: skip
                if text is not None:
                    out.append(f"    {label}: {printable(text)}")
        if len(self.problems) > SHOWN:
            out.append(f"  ... and {len(self.problems) - SHOWN} more")
        if self.hint:
            out.append("hint: " + printable(self.hint))
        return out

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"problems": [problem.to_json() for problem in self.problems]}


@dataclass
class Problems:
    """Collects what is wrong with one file while it is checked."""

    file: str
    text: str
    found: list[Problem] = field(default_factory=list)

    @cached_property
    def positions(self) -> Positions:
        """Where everything stands; looked for when it is first needed, which for a lock file is hardly ever."""
        return find(self.text)

    @property
    def full(self) -> bool:
        """Whether enough is wrong already."""
        return len(self.found) >= MOST

    def at_key(
        self, path: Path, what: str, expected: str | None = None, found: str | None = None, hint: str | None = None
    ) -> None:
        """A problem of a key, or of what is missing in the table at ``path``."""
        self.found.append(Problem(*self.positions.key(path), what, expected, found, hint))

    def at_value(
        self, path: Path, what: str, expected: str | None = None, found: str | None = None, hint: str | None = None
    ) -> None:
        """A problem of the value at ``path``."""
        self.found.append(Problem(*self.positions.value(path), what, expected, found, hint))

    def raise_any(self, hint: str | None = None) -> None:
        if self.found:
            raise Invalid(self.file, self.found, hint)


def near(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """``did you mean 'x'?`` for a word that is nearly a known one, else None. Hyphens and underscores are alike."""
    from difflib import get_close_matches

    plain = {name.lower().replace("_", "-"): name for name in known}
    match = get_close_matches(word.lower().replace("_", "-")[:100], plain, n=1, cutoff=cutoff)
    return f"did you mean {plain[match[0]]!r}?" if match else None


def shown(value: object) -> str:
    """A value as it could stand in the file, short."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, dict):
        return "a table"
    elif isinstance(value, list):
        return "an empty list" if not value else "a list"
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
