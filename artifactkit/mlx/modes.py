"""The ways in which mlx quantises, by name, and the library that computes them (mlx.core.quantize, mlx 0.32)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import MissingExtra, UsageError

EXTRA = "mlx"


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to quantise. ``groups`` are the group sizes that mlx has for it, the one it takes by default first.

    Affine modes have a scale and a bias a group, of the type of the floats; the others one byte a group.
    """

    name: str
    mode: str  # mlx's name
    bits: int
    groups: tuple[int, ...]

    @property
    def affine(self) -> bool:
        return self.mode == "affine"


_AFFINE = (64, 32, 128)
MODES: dict[str, Mode] = {
    **{f"q{bits}": Mode(f"q{bits}", "affine", bits, _AFFINE) for bits in (2, 3, 4, 5, 6, 8)},
    "mxfp4": Mode("mxfp4", "mxfp4", 4, (32,)), "mxfp8": Mode("mxfp8", "mxfp8", 8, (32,)),
    "nvfp4": Mode("nvfp4", "nvfp4", 4, (16,)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grouping:
    """A mode with the group size that one tensor has: what config.json says of it."""

    mode: Mode
    group: int

    def __str__(self) -> str:
        return f"{self.mode.name} in groups of {self.group}"

    def fits(self, row: int) -> bool:
        """Whether rows of so many elements are whole groups, and whole words of 32 bits."""
        return row > 0 and row % self.group == 0

    def entry(self) -> dict[str, object]:
        """What config.json has under ``quantization``, and there under the name of a module."""
        return {"group_size": self.group, "bits": self.mode.bits, "mode": self.mode.mode}

    def words(self, row: int) -> int:
        """32-bit words that hold a row."""
        return row * self.mode.bits // 32


def parse(text: str, group: int | None = None) -> Grouping:
    """The mode called ``text``, in any case, with ``group`` or its own group size. UsageError with the names."""
    mode = MODES.get(text.strip().lower())
    if mode is None:
        raise UsageError(f"mlx quantises nothing to {text!r}", hint=f"one of {', '.join(MODES)}")
    if group is not None and group not in mode.groups:
        raise UsageError(
            f"mlx has no groups of {group} for {mode.name}", expected=" or ".join(map(str, sorted(mode.groups))),
            found=group,
        )  # fmt: skip
    return Grouping(mode, group or mode.groups[0])


def of_entry(entry: dict[str, object]) -> Grouping | None:
    """The grouping that config.json states; None for one that is not known here."""
    bits, group, mode = entry.get("bits"), entry.get("group_size"), entry.get("mode") or "affine"
    for known in MODES.values():
        if (known.bits, known.mode) == (bits, mode) and group in known.groups and isinstance(group, int):
            return Grouping(known, group)
    return None


def library() -> Any:
    """The module ``mlx.core``; MissingExtra when it is not installed."""
    try:
        import mlx.core as mx
    except ImportError as error:
        raise MissingExtra(
            "quantising for MLX needs the package mlx", expected=f"the extra `{EXTRA}`",
            hint=f"pip install 'artifactkit[{EXTRA}]'",
        ) from error  # fmt: skip
    return mx
