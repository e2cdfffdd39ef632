"""How much memory and time a planned conversion will take, before anything is written."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass

from . import trees
from .route import Route
from .verify.values import cast_of

# Measured on the main job and rounded up: interpreter and numpy, the buffers of three passes, and what one tensor's
# entry takes as view, ledger line and header text.
BASE = 60 << 20
PER_TENSOR = 6 << 10
CAST_BASE = 60 << 20
SAMPLE = 8 << 20
SPEEDS = ("sha256", "copying")
MEASURED = "measured in memory; a disk may be slower"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Bytes of memory at the peak, seconds, and what the seconds are reckoned from."""

    memory: int
    seconds: float
    why: str

    def to_json(self) -> dict[str, object]:
        return {"memory": self.memory, "seconds": round(self.seconds, 2), "basis": self.why}


def forecast(route: Route, verify: bool) -> Forecast:
    """Reckon from speeds measured here and now in memory; the disk is not touched, so a slow one is not known of."""
    casts = [t for t in route.final if cast_of(t.source) is not None]
    memory = BASE + PER_TENSOR * len(route.initial.tensors) + (CAST_BASE if casts else 0)
    read = sum(trees.size(path) for path in route.initial.files)
    written = route.nbytes
    digest, copy = _speeds()
    if verify:  # two digests and a comparison, on two cores where there are two
        cores = min(2, os.cpu_count() or 1)
        seconds = (read + written) / digest / cores + 3 * written / copy
        why = f"{SPEEDS[0]} {digest / 1e9:.1f} GB/s, {SPEEDS[1]} {copy / 1e9:.1f} GB/s, {MEASURED}"
    else:
        seconds = 2 * written / copy
        why = f"{SPEEDS[1]} {copy / 1e9:.1f} GB/s, {MEASURED}"
    seconds += sum(t.nbytes for t in casts) / digest
    return Forecast(memory, max(seconds, 0.1), why)


def _speeds() -> tuple[float, float]:
    """(sha256, copy) in bytes a second, from a few milliseconds of each."""
    block = bytearray(SAMPLE)
    began = time.perf_counter()
    hashlib.sha256(block).digest()
    middle = time.perf_counter()
    bytearray(block)
    end = time.perf_counter()
    return SAMPLE / max(middle - began, 1e-6), SAMPLE / max(end - middle, 1e-6)
