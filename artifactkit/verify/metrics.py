"""How far one set of outputs is from another: by value, and for logits by what they say of the next token.

All in float64. Positions that the mask leaves out are no part of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

TOP = 5
ROWS = 256  # positions at a time: a vocabulary may have 262,144 entries


@dataclass(slots=True)
class Figures:
    """Distances between a reference and an output, gathered over any number of inputs.

    ``max_abs``, ``max_rel`` (by the greatest magnitude of the reference), ``rmse``, ``nmse`` (squared error by squared
    reference), ``cosine``, ``psnr`` in dB; for logits ``kl_mean``, ``kl_p99``, ``kl_max`` in nats, reference || output,
    ``top1`` and ``top5``: the parts of positions whose first token is the same, and of the five first that are shared.
    """

    count: int = 0
    positions: int = 0
    max_abs: float = 0.0
    greatest: float = 0.0  # of the reference
    squares: float = 0.0
    energy: float = 0.0
    other: float = 0.0
    product: float = 0.0
    missing: int = 0  # positions with NaN or infinity on one side only
    kl: list[float] = field(default_factory=list)
    top1: int = 0
    top5: int = 0

    def add(self, reference: np.ndarray, output: np.ndarray, logits: bool) -> None:
        """Positions of one output: both (positions, width)."""
        for first in range(0, reference.shape[0], ROWS):
            self._add(reference[first : first + ROWS], output[first : first + ROWS], logits)

    def _add(self, reference: np.ndarray, output: np.ndarray, logits: bool) -> None:
        import numpy as np

        x, y = reference.astype(np.float64), output.astype(np.float64)
        odd = (np.isfinite(x) != np.isfinite(y)).any(axis=1)
        self.missing += int(odd.sum())
        self.positions += x.shape[0]
        x, y = x[~odd], y[~odd]
        if not x.size:
            return
        with np.errstate(invalid="ignore"):
            error = np.where(x == y, 0.0, np.abs(x - y))  # infinities that are alike are no distance apart
        finite = np.isfinite(x)
        error, x0, y0 = error[finite], x[finite], y[finite]
        self.count += x0.size
        self.max_abs = max(self.max_abs, float(error.max(initial=0.0)))
        self.greatest = max(self.greatest, float(np.abs(x0).max(initial=0.0)))
        self.squares += float(np.vdot(error, error))
        self.energy += float(np.vdot(x0, x0))
        self.other += float(np.vdot(y0, y0))
        self.product += float(np.vdot(x0, y0))
        if logits:
            self._tokens(x, y)

    def _tokens(self, x: np.ndarray, y: np.ndarray) -> None:
        import numpy as np

        p, q = log_softmax(x), log_softmax(y)
        with np.errstate(invalid="ignore"):
            terms = np.where(p > -np.inf, np.exp(p) * (p - q), 0.0)
        self.kl += [max(0.0, float(v)) for v in terms.sum(axis=1)]
        top = min(TOP, x.shape[1])
        first, second = (np.argpartition(-v, top - 1, axis=1)[:, :top] for v in (x, y))
        self.top1 += int((x.argmax(axis=1) == y.argmax(axis=1)).sum())
        self.top5 += sum(len(set(a.tolist()) & set(b.tolist())) for a, b in zip(first, second, strict=True))
        self._top = top

    _top: int = TOP

    @property
    def nmse(self) -> float:
        return 0.0 if self.squares == 0 else self.squares / self.energy if self.energy else math.inf

    def to_json(self) -> dict[str, Any]:
        """Every figure by name; those of logits only where there were some."""
        rmse = math.sqrt(self.squares / self.count) if self.count else 0.0
        norm = math.sqrt(self.energy * self.other)
        out: dict[str, Any] = {
            "positions": self.positions, "max_abs": self.max_abs,
            "max_rel": self.max_abs / self.greatest if self.greatest else 0.0, "rmse": rmse, "nmse": self.nmse,
            "cosine": self.product / norm if norm else 1.0,
            "psnr": None if rmse == 0 or not self.greatest else 20 * math.log10(self.greatest / rmse),
            "greatest": self.greatest, "missing": self.missing,
        }  # fmt: skip
        if self.kl:
            ordered = sorted(self.kl)
            out |= {
                "kl_mean": sum(ordered) / len(ordered), "kl_max": ordered[-1],
                "kl_p99": ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)],
                "top1": self.top1 / len(ordered), "top5": self.top5 / (self._top * len(ordered)),
            }  # fmt: skip
        return out


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Natural logarithms of the probabilities that rows of logits stand for."""
    import numpy as np

    with np.errstate(divide="ignore"):
        x = x - x.max(axis=-1, keepdims=True)
        return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))


def text_of(figures: dict[str, Any]) -> str:
    """The figures that are shown on one line."""
    parts = [f"max abs {figures['max_abs']:.3g} of {figures['greatest']:.3g}", f"NMSE {figures['nmse']:.2g}"]
    if "kl_mean" in figures:
        parts.append(f"KL {figures['kl_mean']:.3g} (p99 {figures['kl_p99']:.3g}, max {figures['kl_max']:.3g})")
        parts.append(f"same top token {100 * figures['top1']:.1f} %")
    return ", ".join(parts)
