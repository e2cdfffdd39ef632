"""Floats as blocks, as sources that quantise when they are read, and what is refused before ggml would stumble over it.

ggml checks nothing: rows that are no whole blocks are garbage, without an importance matrix that a type needs the
process is aborted, and a value that is no number loses a whole block.
"""

from __future__ import annotations

import os
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from ..dtypes import DType
from ..errors import Refused, UsageError
from ..floats import SOURCES
from ..source import CHUNK, Mapped, Source, spare
from .blocks import as_f32, dequantize
from .types import NEEDS_IMATRIX, TYPES, fits, library

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

MAX_ROW = 1 << 24  # elements; the longest rows of real models have some hundred thousand
F16_MAX = 65504.0
NVFP4_MAX = 6 * 448.0  # its scales are f8 without a sign
PIECE = 1 << 18  # elements that one thread quantises at a time

_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()
_ready: set[str] = set()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            from concurrent.futures import ThreadPoolExecutor

            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="quantise")
        return _pools[threads]


def cores() -> int:
    """How many threads this process may run at once."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity is not None else os.cpu_count() or 1)


def _prepare(dtype: DType) -> None:
    """ggml makes its tables of lattice points when they are first needed; two threads must not do that at once."""
    if dtype.name in _ready:
        return
    with _lock:
        if dtype.name not in _ready:
            weights = array("f", [1.0]) * dtype.block
            row, out = memoryview(bytes(4 * dtype.block)), memoryview(bytearray(dtype.bits // 8))
            library().quantize_rows_into_raw(dtype.ggml, row, out, 1, dtype.block, weights)
            _ready.add(dtype.name)


@dataclass(slots=True)
class _Sums:
    """The CRC-32 of each row that was quantised, so that what is read back can be held against it."""

    rows: int
    sums: array[int] = field(init=False)
    known: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.sums, self.known = array("I"), bytearray()

    def note(self, first: int, rows: memoryview, row_bytes: int) -> None:
        if not self.known:
            self.sums, self.known = array("I", bytes(4 * self.rows)), bytearray(self.rows)
        for i in range(len(rows) // row_bytes):
            self.sums[first + i] = zlib.crc32(rows[i * row_bytes : (i + 1) * row_bytes])
            self.known[first + i] = 1

    def differs(self, first: int, rows: memoryview, row_bytes: int) -> int:
        """The first row that is another than was noted, or -1. Rows that were not noted differ from nothing."""
        if self.known:
            for i in range(len(rows) // row_bytes):
                if self.known[first + i] and self.sums[first + i] != zlib.crc32(
                    rows[i * row_bytes : (i + 1) * row_bytes]
                ):
                    return first + i
        return -1


@dataclass(frozen=True, slots=True)
class Quantization:
    """How one tensor is quantised. ``matrices`` is how many of them the imatrix is for (experts): 1 for most.

    ``imatrix`` holds little-endian f32, ``matrices`` times a row long, or is None.
    """

    tensor: str
    source_dtype: DType
    dtype: DType
    row: int  # elements
    imatrix: bytes | None = field(default=None, repr=False)
    matrices: int = 1
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Quantized(Mapped):
    """Rows of floats as blocks. Reads are cut into pieces, and these shared among threads."""

    work: Quantization | None = field(default=None, compare=False)
    sums: _Sums | None = field(default=None, compare=False)

    def _rows(self, first: int, out: memoryview) -> None:
        assert self.work is not None
        count = len(out) // self.out_row_bytes
        with spare.take(count * self.in_row_bytes) as data:
            self.base.read_into(first * self.in_row_bytes, data)
            pieces = list(self._pieces(first, count))
            todo = [self._task(first, at, n, data, out) for at, n in pieces]
            if len(todo) == 1 or self.work.threads == 1:
                for task in todo:
                    task()
            else:
                for done in [_pool(self.work.threads).submit(task) for task in todo]:
                    done.result()
        if self.sums is not None:
            self.sums.note(first, out, self.out_row_bytes)

    def _pieces(self, first: int, count: int) -> Iterator[tuple[int, int]]:
        """(row, how many rows) of one matrix each, of about ``PIECE`` elements."""
        assert self.work is not None
        step = max(1, PIECE // self.work.row)
        each = max(1, self.rows // self.work.matrices)
        at, end = first, first + count
        while at < end:
            n = min(step, end - at, each - at % each)
            yield at, n
            at += n

    def _task(self, first: int, at: int, n: int, data: memoryview, out: memoryview) -> Callable[[], None]:
        wide, narrow = self.in_row_bytes, self.out_row_bytes
        rows = data[(at - first) * wide : (at - first + n) * wide]
        blocks = out[(at - first) * narrow : (at - first + n) * narrow]
        return lambda: self._quantize(at, rows, blocks)

    def _quantize(self, row: int, data: memoryview, out: memoryview) -> None:
        import numpy as np

        work = self.work
        assert work is not None
        values = as_f32(data, work.source_dtype)
        greatest = float(np.abs(values).max()) if values.size else 0.0
        if not np.isfinite(greatest):
            raise _no_number(work, row, values)
        n = len(out) // self.out_row_bytes
        weights: bytes | memoryview | None = work.imatrix
        if work.imatrix is not None and work.matrices > 1:
            matrix = row // (self.rows // work.matrices)
            weights = memoryview(work.imatrix)[4 * matrix * work.row : 4 * (matrix + 1) * work.row]
        if weights is not None:
            weights = memoryview(weights).cast("B")
        _prepare(work.dtype)
        floats = None if weights is None else np.frombuffer(weights, "<f4")
        library().quantize_rows_into_raw(work.dtype.ggml, values, out, n, work.row, floats)
        if greatest > (NVFP4_MAX if work.dtype.name == "nvfp4" else F16_MAX):  # perhaps too much for a block's scale
            _check_scale(work, row, values, out, greatest)


def _no_number(work: Quantization, row: int, values: np.ndarray) -> Refused:
    import numpy as np

    at = int(np.flatnonzero(~np.isfinite(values))[0])
    line, column = row + at // work.row, at % work.row
    return Refused(
        f"a value that is no finite number cannot be quantised to {work.dtype}", tensor=work.tensor,
        expected="finite values",
        found=f"{values[at]} in row {line}, element {column} (block {column // work.dtype.block})",
        hint="the checkpoint is damaged, or its training diverged; --exclude leaves the tensor out",
    )  # fmt: skip


def _check_scale(work: Quantization, row: int, values: np.ndarray, out: memoryview, greatest: float) -> None:
    """Scales are f16: what is too large for one becomes infinite, or NaN."""
    import numpy as np

    if work.dtype.name != "nvfp4":
        if np.isfinite(dequantize(out, work.dtype)).all():
            return
    at = int(np.abs(values).argmax())
    raise Refused(
        f"values too large for the scales of {work.dtype}", tensor=work.tensor,
        found=f"{values[at]:g} in row {row + at // work.row}, element {at % work.row}",
        hint="leave this tensor as it is (--tensor-type), or choose a type with a wider range",
    )  # fmt: skip


def quantized(
    source: Source, shape: tuple[int, ...], work: Quantization,
) -> Quantized:  # fmt: skip
    """``source``, rows of floats of ``work.source_dtype``, as blocks of ``work.dtype``.

    Raises Refused where the type cannot be had: a row of no whole blocks, an imatrix that is needed and not given, or
    does not fit; UsageError for what is no type to quantise to. Values are looked at when they are read.
    """
    check(work, shape)
    row, rows = work.row, source.nbytes // (work.row * work.source_dtype.itemsize)
    width = row
    if work.imatrix is None and row * 4 > CHUNK:  # each block is by itself, and a row may be as long as a file
        width = work.dtype.block
        rows *= row // width
    label = f"quantise {work.source_dtype} -> {work.dtype}"
    if work.imatrix is not None:  # the same floats by another importance are other blocks
        label += f" imatrix {work.matrices} x {sha256(work.imatrix).hexdigest()}"
    plan = work if width == row else Quantization(
        work.tensor, work.source_dtype, work.dtype, width, None, 1, work.threads
    )  # fmt: skip
    return Quantized(
        source, rows, width * work.source_dtype.itemsize, work.dtype.row_bytes((width,)), _by_row, label, plan,
        _Sums(rows),
    )  # fmt: skip


def _by_row(rows: memoryview, out: memoryview) -> None:
    """The function of rows alone that Mapped asks for. There is none: Quantized knows which rows they are."""
    raise TypeError("the matrix that a row is of says by which importance it is quantised")


def check(work: Quantization, shape: tuple[int, ...]) -> None:
    """Raise what :func:`quantized` says, from shapes and the imatrix alone."""
    dtype, row = work.dtype, shape[-1] if shape else 0
    if dtype.name not in TYPES:
        raise UsageError(f"nothing is quantised to {dtype}", tensor=work.tensor, expected=", ".join(TYPES))
    if work.source_dtype.name not in SOURCES:
        raise Refused(f"{work.source_dtype} is not quantised", tensor=work.tensor, expected="floats")
    if not fits(shape, dtype):
        raise Refused(
            f"the rows are no whole number of blocks of {dtype}", tensor=work.tensor,
            expected=f"a multiple of {dtype.block}", found=f"{row} elements in a row",
            hint="another type, or leave this tensor as it is",
        )  # fmt: skip
    if row > MAX_ROW and work.imatrix is not None:
        raise Refused("a row too long", tensor=work.tensor, expected=f"at most {MAX_ROW} elements", found=row)
    if work.imatrix is None:
        if dtype.name in NEEDS_IMATRIX:
            raise Refused(
                f"{dtype} cannot be had without an importance matrix", tensor=work.tensor,
                hint="--imatrix FILE, or a type that needs none: iq3_xxs, q2_k",
            )  # fmt: skip
        return
    check_imatrix(work, shape)


def check_imatrix(work: Quantization, shape: tuple[int, ...]) -> None:
    """Raise Refused unless the imatrix has a finite number that is not negative for each column of each matrix."""
    import numpy as np

    values = np.frombuffer(work.imatrix or b"", "<f4")
    wanted = {shape[-1]} | ({shape[0] * shape[-1]} if len(shape) == 3 else set())
    if values.size not in wanted or values.size != work.matrices * work.row:
        raise Refused(
            "the importance matrix is for another shape", tensor=work.tensor,
            expected=" or ".join(f"{n} values" for n in sorted(wanted)), found=f"{values.size} values",
        )  # fmt: skip
    wrong = np.flatnonzero(~(values >= 0) | np.isinf(values))
    if wrong.size:
        raise Refused(
            "the importance matrix holds what is no importance", tensor=work.tensor,
            expected="finite numbers, none negative",
            found=f"{values[wrong[0]]} at column {int(wrong[0])}",
        )  # fmt: skip


def imatrix_for(values: np.ndarray, shape: tuple[int, ...]) -> tuple[bytes, int]:
    """(the values as little-endian f32, for how many matrices they are) for :class:`Quantization`."""
    import numpy as np

    flat = np.ascontiguousarray(values, "<f4").reshape(-1)
    experts = shape[0] if len(shape) == 3 and flat.size == shape[0] * shape[-1] else 1
    return flat.tobytes(), experts
