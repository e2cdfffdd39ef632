"""``--dtype``: floats as another float type. Bytes are cast as they are read; here only the plan is made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..artifact import Step, TensorView, Weights
from ..casting import OVERFLOWS, Counts, cast_block
from ..dtypes import DType
from ..errors import Refused, UsageError
from ..floats import LAYOUTS, SOURCES, is_lossless
from ..report import Loss
from ..source import CHUNK, Mapped, Source, spare

PIECE = 256 << 10  # bytes read at once


class CastStats:
    """What casts did to values, by tensor, gathered while bytes flow. Safe to be filled by several threads.

    Each element counts once, however often it is read: a tensor is counted as far as it has been read in order, so a
    reader that follows behind, or comes again, adds nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counts] = {}
        self.overflow = "refuse"  # set by ``cast``: what becomes of values too large

    def add(self, tensor: str, first: int, counts: Counts) -> None:
        """Add what happened to ``counts.elements`` elements of ``tensor`` from index ``first`` on."""
        with self._lock:
            total = self._counts.setdefault(tensor, Counts())
            if first == total.elements:
                total.add(counts)

    @property
    def counts(self) -> dict[str, Counts]:
        """Counts by tensor name, for tensors that have been read, in order of name."""
        with self._lock:
            return {name: replace(counts) for name, counts in sorted(self._counts.items())}

    def losses(self) -> list[Loss]:
        """What the values lost. What ``--overflow`` chose was asked for; an underflow nobody asks for."""
        out: list[Loss] = []
        for name, c in self.counts.items():
            if c.overflow:
                saturated = self.overflow == "saturate"
                became = "saturated" if saturated else "became infinite or NaN"
                text = f"{c.overflow} of {c.elements} values {became}, the greatest was {number(c.greatest)}"
                out.append(Loss("value-saturated" if saturated else "value-infinite", text, tensor=name, asked=True))
            if c.underflow:
                text = f"{c.underflow} of {c.elements} values became zero"
                out.append(Loss("value-underflow", text, tensor=name))
        return out


def number(value: float) -> str:
    """A float for messages: as short as it can be and still be itself; 70000, not 70000.0."""
    return repr(value).removesuffix(".0")


@dataclass(frozen=True, slots=True)
class _Cast:
    """How one tensor is cast, block by block."""

    tensor: str
    base: Source
    source: DType
    target: DType
    overflow: str
    stats: CastStats | None

    def __call__(self, data: memoryview, out: memoryview) -> None:
        self.run(data, out, None)

    def run(self, data: memoryview, out: memoryview, first: int | None) -> None:
        """Cast one block; ``first`` is the index of its first element, for the collector."""
        counts = cast_block(data, out, self.source, self.target, self.overflow)
        if counts.overflow and self.overflow == "refuse":
            raise self._refusal()
        if self.stats is not None and first is not None:
            self.stats.add(self.tensor, first, counts)

    def _refusal(self) -> Refused:
        """The tensor is read once more, to say how far beyond the type it goes and how often."""
        total = Counts()
        buffer = memoryview(bytearray(min(CHUNK, self.base.nbytes)))
        scratch = memoryview(bytearray(len(buffer) // self.source.itemsize * self.target.itemsize))
        for start in range(0, self.base.nbytes, len(buffer)):
            block = buffer[: min(len(buffer), self.base.nbytes - start)]
            self.base.read_into(start, block)
            out = scratch[: len(block) // self.source.itemsize * self.target.itemsize]
            total.add(cast_block(block, out, self.source, self.target))
        layout = LAYOUTS[self.target.name]
        fits = self.target.name == "f16" and total.greatest <= LAYOUTS["bf16"].value(LAYOUTS["bf16"].greatest)
        wider = "--dtype bf16 has the range" if fits else "choose a --dtype of wider range"
        return Refused(
            f"values too large for {self.target}", tensor=self.tensor,
            expected=f"at most {number(layout.value(layout.greatest))} in magnitude",
            found=f"{number(total.greatest)}, and {total.overflow} of {total.elements} values beyond the type",
            hint=f"{wider}, or --overflow saturate|inf",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CastRows(Mapped):
    """A ``Mapped`` whose function also learns which elements it is given, so that none is counted twice."""

    work: _Cast | None = field(default=None, compare=False)

    def _rows(self, first: int, out: memoryview) -> None:
        # Pieces that are still in the cache when they are cast.
        width, narrow = self.in_row_bytes, self.out_row_bytes
        count = len(out) // narrow
        piece = max(1, min(PIECE // width, count))
        with spare.take(piece * width) as space:
            for start in range(0, count, piece):
                n = min(piece, count - start)
                data = space[: n * width]
                self.base.read_into((first + start) * width, data)
                if self.work is not None:
                    self.work.run(data, out[start * narrow : (start + n) * narrow], first + start)


def cast(
    weights: Weights,
    dtype: DType,
    overflow: str = "refuse",
    stats: CastStats | None = None,
    which: Callable[[TensorView], bool] | None = None,
) -> Weights:
    """All float tensors, or those for which ``which`` holds, as ``dtype``, lazily: no tensor byte is read here.

    ``overflow`` says what becomes of values too large for the type: "refuse" raises Refused, naming the tensor and its
    greatest value, when they are read; "saturate" and "inf" as ``casting.cast_block``. Integers, booleans, complex and
    packed sub-byte tensors stay as they are; a note says so. Raises UsageError for a type that nothing is cast to.
    """
    if dtype.name not in LAYOUTS:
        raise UsageError(f"--dtype {dtype}: only floats are cast, and only to floats", expected=", ".join(LAYOUTS))
    if overflow not in OVERFLOWS:
        raise UsageError(f"--overflow {overflow!r}", expected=" or ".join(OVERFLOWS))
    tensors: dict[str, TensorView] = {}
    losses, notes = list(weights.losses), list(weights.notes)
    if stats is not None:
        stats.overflow = overflow
    untouched: dict[str, int] = {}
    for name, tensor in weights.tensors.items():
        if tensor.dtype == dtype or (which is not None and not which(tensor)):
            tensors[name] = tensor
        elif tensor.dtype.name not in SOURCES:
            tensors[name] = tensor
            if tensor.dtype.block == 1:  # what is quantised was asked for
                untouched[tensor.dtype.name] = untouched.get(tensor.dtype.name, 0) + 1
        else:
            tensors[name] = _cast_one(tensor, dtype, overflow, stats)
            if not is_lossless(tensor.dtype, dtype):
                losses.append(Loss("dtype-narrowed", f"{tensor.dtype} -> {dtype}", tensor=name, asked=True))
    if untouched:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(untouched.items()))
        notes.append(f"--dtype {dtype} casts floats only; left as they are: {kinds}")
    return replace(weights, tensors=tensors, losses=losses, notes=notes)


def _cast_one(tensor: TensorView, dtype: DType, overflow: str, stats: CastStats | None) -> TensorView:
    work = _Cast(tensor.name, tensor.source, tensor.dtype, dtype, overflow, stats)
    # The label makes casts of one span equal, so that tied tensors are still seen to be tied.
    label = f"cast {tensor.dtype} -> {dtype} {overflow}"
    source = CastRows(tensor.source, tensor.numel, tensor.dtype.itemsize, dtype.itemsize, work, label, work)
    step = Step("cast", f"{tensor.dtype} -> {dtype}")
    return replace(tensor, dtype=dtype, source=source, origins=tensor.came_from(), steps=(*tensor.steps, step))
