"""Floats as groups, and groups as the floats that they stand for: sources that let mlx compute when they are read.

One quantised matrix is two or three tensors. Whoever reads one of them has mlx compute all, so the small ones are kept
for a while: a writer reads the three one after another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..dtypes import BY_NAME, DType
from ..errors import Refused
from ..source import Mapped, Source, concat, pour_buffered, spare
from .modes import Grouping, library

FLOATS = ("f32", "f16", "bf16")  # what mlx quantises
KEPT = 32 << 20  # bytes of scales and biases that are kept, of all matrices together
_lock = threading.Lock()
U32, U8, F32 = BY_NAME["u32"], BY_NAME["u8"], BY_NAME["f32"]


class _Kept:
    """Scales and biases by (matrix, which, first row): the latest ones, ``KEPT`` bytes at most."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[int, int, int], bytes] = OrderedDict()
        self._size = 0

    def put(self, key: tuple[int, int, int], data: bytes) -> None:
        self.take(key)
        self._held[key] = data
        self._size += len(data)
        while self._size > KEPT:
            self._size -= len(self._held.popitem(last=False)[1])

    def take(self, key: tuple[int, int, int]) -> bytes | None:
        data = self._held.pop(key, None)
        self._size -= len(data or b"")
        return data


_kept = _Kept()


class _Mine(threading.local):
    """What is each thread's own: its stream, in which mlx computes beside those of others, and its last block."""

    def __init__(self) -> None:
        self.last: tuple[int, int, bytes] = (-1, -1, b"")  # number of the matrix, first row, packed values
        self._stream: Any = None

    def stream(self, mx: Any) -> Any:
        if self._stream is None:
            self._stream = mx.new_stream(mx.cpu)
        return mx.stream(self._stream)


_mine = _Mine()
_number = count()


@dataclass(frozen=True, slots=True)
class Work:
    """How one matrix is quantised: ``row`` elements of ``dtype`` a row."""

    tensor: str
    dtype: DType
    row: int
    grouping: Grouping
    block: int = 1  # rows that are computed at a time
    number: int = field(default_factory=_number.__next__, compare=False)  # under which its small tensors are kept

    def compute(self, first: int, data: memoryview) -> list[bytes]:
        """The bytes of all tensors for whole rows. Raises Refused for a value that is no finite number."""
        import numpy as np

        mx = library()
        bits = np.frombuffer(data, f"<u{self.dtype.itemsize}").reshape(-1, self.row)
        floats = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}[self.dtype.name]
        mode = self.grouping.mode
        finite = _finite(bits, self.dtype)
        if not finite.all():
            raise self._no_number(first, finite)
        with _mine.stream(mx):
            values = mx.array(bits).view(floats)
            parts = mx.quantize(values, group_size=self.grouping.group, bits=mode.bits, mode=mode.mode)
            return [_bytes(mx, part) for part in parts]

    def _no_number(self, first: int, finite: Any) -> Refused:
        row, column = (int(n) for n in next(zip(*(~finite).nonzero(), strict=True)))
        return Refused(
            f"a value that is no finite number cannot be quantised to {self.grouping.mode.name}", tensor=self.tensor,
            expected="finite values", found=f"NaN or infinity in row {first + row}, element {column}",
            hint="the checkpoint is damaged, or its training diverged; --exclude leaves the tensor out",
        )  # fmt: skip


def _finite(bits: Any, dtype: DType) -> Any:
    """Which elements, given by their patterns, are neither infinite nor NaN: the exponent is not all ones."""
    ones = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}[dtype.name]
    return bits & ones != ones


def _bytes(mx: Any, part: Any) -> bytes:
    import numpy as np

    if part.dtype not in (mx.uint32, mx.uint8):
        part = part.view(mx.uint32 if part.dtype == mx.float32 else mx.uint16)
    return np.ascontiguousarray(np.array(part)).tobytes()


@dataclass(frozen=True, slots=True)
class Quantized(Mapped):
    """One of the tensors that a matrix becomes: ``which`` is 0 for the packed values, 1 for scales, 2 for biases."""

    work: Work | None = field(default=None, compare=False)
    which: int = field(default=0, compare=False)

    @property
    def position(self) -> tuple[str, int]:
        """The packed values are best read first: the others come of them."""
        file, offset = self.base.position
        return file, offset + self.which

    def _rows(self, first: int, out: memoryview) -> None:
        work = self.work
        assert work is not None
        count, at = len(out) // self.out_row_bytes, 0
        while at < count:
            # Always the same cuts, whoever reads: what was kept is found again.
            start = (first + at) // work.block * work.block
            rows = min(work.block, self.rows - start)
            data = self._block(work, start, rows)
            skip = first + at - start
            n = min(rows - skip, count - at)
            size = self.out_row_bytes
            out[at * size : (at + n) * size] = memoryview(data)[skip * size : (skip + n) * size]
            at += n

    def _block(self, work: Work, start: int, rows: int) -> bytes:
        if not self.which and _mine.last[:2] == (work.number, start):
            return _mine.last[2]
        if self.which:
            with _lock:
                found = _kept.take((work.number, self.which, start))
                if found is not None:
                    _kept.put((work.number, self.which, start), found)
                    return found
        with spare.take(rows * self.in_row_bytes) as data:
            self.base.read_into(start * self.in_row_bytes, data)
            parts = work.compute(start, data)
        with _lock:
            for which in range(1, len(parts)):
                _kept.put((work.number, which, start), parts[which])
        _mine.last = (work.number, start, parts[0])
        return parts[self.which]


def quantized(
    tensor: str, source: Source, dtype: DType, shape: tuple[int, ...], grouping: Grouping
) -> list[tuple[str, DType, tuple[int, ...], Quantized]]:
    """(suffix, type, shape, source) of the tensors that a matrix becomes: ``weight``, ``scales``, perhaps ``biases``.

    ``source`` holds rows of ``shape[-1]`` floats of ``dtype``; the caller has seen that they are whole groups.
    """
    row = shape[-1]
    rows = source.nbytes // (row * dtype.itemsize)
    groups, mode = row // grouping.group, grouping.mode
    made = [("weight", U32, grouping.words(row)), ("scales", dtype if mode.affine else U8, groups)]
    if mode.affine:
        made.append(("biases", dtype, groups))
    block = max(1, (1 << 20) // row)
    work = Work(tensor, dtype, row, grouping, block)
    label = f"mlx {grouping} of {dtype}"
    return [
        (suffix, kind, (*shape[:-1], width), Quantized(
            source, rows, row * dtype.itemsize, kind.itemsize * width, _by_row, f"{label}: {suffix}", work, which,
        ))
        for which, (suffix, kind, width) in enumerate(made)
    ]  # fmt: skip


def _by_row(rows: memoryview, out: memoryview) -> None:
    """The function of rows alone that Mapped asks for. There is none: Quantized knows which tensor is wanted."""
    raise TypeError("which tensor is wanted says what is made of the rows")


@dataclass(frozen=True, slots=True)
class Dequantized:
    """The f32 values of a quantised matrix, of ``rows`` rows: computed by mlx when they are read."""

    base: Source  # weight, scales and biases one after another
    sizes: tuple[int, ...]  # bytes a row of each
    scales: DType
    rows: int
    row: int  # elements
    grouping: Grouping

    @property
    def nbytes(self) -> int:
        return 4 * self.rows * self.row

    @property
    def position(self) -> tuple[str, int]:
        return self.base.position

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.nbytes:
            raise IndexError("read past the end of a mapped source")
        size, done = 4 * self.row, 0
        block = max(1, (1 << 20) // self.row)
        while done < len(buffer):
            first, skip = divmod(offset + done, size)
            count = min(block, self.rows - first, -(-(len(buffer) - done + skip) // size))
            data = memoryview(self._compute(first, count))
            take = min(len(buffer) - done, len(data) - skip)
            buffer[done : done + take] = data[skip : skip + take]
            done += take

    def _compute(self, first: int, count: int) -> bytes:
        import numpy as np

        mx = library()
        raw, start = [], 0
        for size in self.sizes:
            data = bytearray(count * size)
            self.base.read_into(start + first * size, memoryview(data))
            raw.append(data)
            start += self.rows * size
        mode = self.grouping.mode
        with _mine.stream(mx):
            packed = mx.array(np.frombuffer(raw[0], "<u4").reshape(count, -1))
            if mode.affine:
                floats = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}[self.scales.name]
                kind = f"<u{self.scales.itemsize}"
                rest = [mx.array(np.frombuffer(r, kind).reshape(count, -1)).view(floats) for r in raw[1:]]
                values = mx.dequantize(
                    packed, *(r.astype(mx.float32) for r in rest), group_size=self.grouping.group, bits=mode.bits
                )
            else:
                scales = mx.array(np.frombuffer(raw[1], "u1").reshape(count, -1))
                values = mx.dequantize(
                    packed, scales, group_size=self.grouping.group, bits=mode.bits, mode=mode.mode, dtype=mx.float32
                )
            return np.array(values).tobytes()

    def pour(self, fd: int, at: int) -> None:
        pour_buffered(self, fd, at)


def dequantized(parts: tuple[Source, ...], scales: DType, shape: tuple[int, ...], grouping: Grouping) -> Dequantized:
    """The f32 values, of ``shape``, that the tensors of one quantised matrix stand for."""
    rows = 1
    for n in shape[:-1]:
        rows *= n
    sizes = tuple(part.nbytes // max(rows, 1) for part in parts)
    return Dequantized(concat(list(parts)), sizes, scales, rows, shape[-1], grouping)
