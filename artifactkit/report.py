"""What is said about an artifact: losses, ledger entries, checks, and the report whose truth is the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LossKind = Literal[
    "dtype-narrowed",
    "tensor-dropped",
    "alias-merged",
    "alias-split",
    "metadata-dropped",
    "type-substituted",
    "file-dropped",
    "value-saturated",
    "value-underflow",
    "value-infinite",
    "function-differs",
    "tokenizer-dropped",
]


def counted(n: int, noun: str) -> str:
    """``1 tensor``, ``12 tensors``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that the target does not hold and the source does.

    ``asked`` is true when the user named it (``--dtype bf16``, ``--exclude``): ``--strict`` refuses only the others.
    """

    kind: LossKind
    detail: str
    tensor: str | None = None
    asked: bool = False

    def to_json(self) -> dict[str, object]:
        out: dict[str, object] = {"kind": self.kind, "detail": self.detail, "asked": self.asked}
        if self.tensor is not None:
            out["tensor"] = self.tensor
        return out


CheckStatus = Literal["passed", "failed", "not-verified", "not-run"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. ``level`` is accounting, values or function (DESIGN section 6)."""

    level: Literal["accounting", "values", "function"]
    name: str
    status: CheckStatus
    detail: str = ""
    tensor: str | None = None
    device: str | None = None  # where it ran, as --device names it
    figures: Mapping[str, object] | None = None  # what was measured, by name

    def to_json(self) -> dict[str, object]:
        out: dict[str, object] = {"level": self.level, "name": self.name, "status": self.status, "detail": self.detail}
        for key in ("tensor", "device", "figures"):
            value = getattr(self, key)
            if value is not None:
                out[key] = value
        return out


@dataclass(slots=True)
class Report:
    """A list of checks. ``bool(report)`` is the verdict: no check that was asked for failed or stayed unverified."""

    checks: list[Check] = field(default_factory=list)

    def add(self, check: Check) -> None:
        self.checks.append(check)

    @property
    def failed(self) -> list[Check]:
        return [c for c in self.checks if c.status in ("failed", "not-verified")]

    def __bool__(self) -> bool:
        return not self.failed and any(c.status == "passed" for c in self.checks)


Outcome = Literal[
    "kept", "renamed", "permuted", "transposed", "reshaped", "split", "merged", "shifted", "cut", "cast", "quantised",
    "dequantised", "aliased", "copied", "dropped", "made",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger: what became of one source tensor.

    ``outcomes`` are in the order in which they happened (renamed, then cast). ``target`` is None when it was dropped.
    ``made`` is the outcome of a target tensor that no source tensor became (computed from config.json): ``source`` is
    then the file that it was made from.
    """

    source: str
    target: str | None
    outcomes: tuple[Outcome, ...]
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        return {"source": self.source, "target": self.target, "outcomes": list(self.outcomes), "detail": self.detail}
