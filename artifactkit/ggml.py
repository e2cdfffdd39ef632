"""ggml's quantised types: which can be had from what, and sources that quantise and dequantise as they are read.

The arithmetic is ggml's own code, by way of libgguf; it checks nothing, so everything it would stumble over is refused
here first: rows that are no whole blocks (garbage), a missing importance matrix (the process is aborted), values that
are no numbers (a whole block is lost).
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .artifact import KeyValue, TensorView, Weights
from .casting import cast_block
from .dtypes import BLOCKS, BY_NAME, DType
from .errors import MissingExtra, Refused, UsageError
from .floats import SOURCES
from .source import CHUNK, Mapped, Source, spare

if TYPE_CHECKING:
    import numpy as np

EXTRA = "gguf"
F32 = BY_NAME["f32"]
# Types of intermediate results, which ggml reads nowhere as weights.
INTERNAL = frozenset({"q8_1", "q8_k"})
# By lower names, without the two above.
TYPES: dict[str, DType] = {d.name: d for d in BLOCKS if d.name not in INTERNAL}
# llama.cpp's own rule (llama-quant.cpp, tensor_requires_imatrix); for three of them ggml aborts the process.
NEEDS_IMATRIX = frozenset({"iq1_m", "iq1_s", "iq2_s", "iq2_xs", "iq2_xxs"})
MAX_ROW = 1 << 24  # elements; the longest rows of real models have some hundred thousand
F16_MAX = 65504.0
NVFP4_MAX = 6 * 448.0  # its scales are f8 without a sign
PIECE = 1 << 18  # elements that one thread quantises at a time


def library() -> Any:
    """The module ``libgguf``; MissingExtra when it is not installed."""
    try:
        import libgguf
    except ImportError as error:
        raise MissingExtra(
            "ggml's quantised types need the package libgguf", expected="the extra `gguf`",
            hint="pip install 'artifactkit[gguf]'",
        ) from error  # fmt: skip
    return libgguf


def parse(text: str) -> DType:
    """The quantised type called ``text``, in any case; UsageError with the names when there is none."""
    found = TYPES.get(text.strip().lower().replace("-", "_"))
    if found is None:
        raise UsageError(f"unknown quantised type {text!r}", hint=f"one of {', '.join(TYPES)}")
    return found


def bits_per_weight(dtype: DType) -> float:
    """4.5 for q4_0: scales and all."""
    return dtype.bits / dtype.block


def fits(shape: tuple[int, ...], dtype: DType) -> bool:
    """Whether rows of ``shape`` are whole blocks of ``dtype``."""
    return bool(shape) and shape[-1] % dtype.block == 0 and 0 not in shape


# Matrices that llama.cpp reads as f32 only (llama-quant.cpp, tensor_allows_quantization; conversion/base.py).
_FLOAT32 = re.compile(
    r"_norm\.weight$|ffn_gate_inp\.weight$|ffn_gate_inp_shexp\.weight$|altup|laurel|per_layer_model_proj"
    r"|^position_embd\.weight$|^token_types\.weight$|ssm_conv1d|shortconv\.conv\.weight$"
    r"|time_mix_(first|w0|w1|w2|v0|v1|v2|a0|a1|a2|g1|g2|decay_w1|decay_w2|lerp_fused)\.weight$"
    r"|attn_rel_b\.weight$|\.position_embd|sam\.pos_embd|sam\.neck\.|sam\.net_|\.rel_pos"
)


def float32_only(tensor: TensorView) -> bool:
    """Whether llama.cpp takes this tensor of floats in f32 and in nothing else: vectors, norms, and a few matrices."""
    return tensor.dtype.cls == "float" and (len(tensor.shape) < 2 or _FLOAT32.search(tensor.name) is not None)


# -- from blocks to floats


@dataclass(frozen=True, slots=True)
class _Dequantize:
    dtype: DType

    def __call__(self, blocks: memoryview, out: memoryview) -> None:
        # Each block is by itself, so that any number of them is one row.
        library().dequantize_rows_into_raw(self.dtype.ggml, blocks, out, 1, len(out) // 4)


def dequantized(source: Source, dtype: DType) -> Mapped:
    """The values of ``source``, blocks of ``dtype``, as little-endian f32, as ggml computes them."""
    nbytes = dtype.bits // 8
    work = _Dequantize(dtype)
    return Mapped(source, source.nbytes // nbytes, nbytes, 4 * dtype.block, work, f"dequantise {dtype}")


def dequantize(blocks: memoryview | bytes, dtype: DType) -> np.ndarray:
    """The values of whole blocks, as a flat f32 array."""
    import numpy as np

    out = np.empty(len(blocks) // (dtype.bits // 8) * dtype.block, "<f4")
    if out.size:
        _Dequantize(dtype)(memoryview(blocks), out.view("u1").data)
    return out


def dequantised_of(source: Source) -> tuple[Source, DType] | None:
    """(the blocks, their type) when ``source`` is made of blocks by :func:`dequantized`, else None."""
    if isinstance(source, Mapped) and isinstance(source.fn, _Dequantize):
        return source.base, source.fn.dtype
    return None


# -- from floats to blocks

_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()
_ready: set[str] = set()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
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


def as_f32(data: memoryview | bytes | bytearray, dtype: DType) -> np.ndarray:
    """Floats of any type as a flat f32 array: exact but for f64. f64 beyond f32 becomes infinite."""
    import numpy as np

    if dtype.name == "f32":
        return np.frombuffer(data, "<f4")
    out = np.empty(len(data) // dtype.itemsize, "<f4")
    cast_block(memoryview(data), out.view("u1").data, dtype, F32, "inf")
    return out


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
    label = f"quantise {work.source_dtype} -> {work.dtype}" + (" imatrix" if work.imatrix is not None else "")
    plan = work if width == row else Quantization(
        work.tensor, work.source_dtype, work.dtype, width, None, 1, work.threads
    )  # fmt: skip
    return Quantized(
        source, rows, width * work.source_dtype.itemsize, work.dtype.row_bytes((width,)), _never, label, plan,
        _Sums(rows),
    )  # fmt: skip


def _never(rows: memoryview, out: memoryview) -> None:
    raise NotImplementedError("rows are quantised by Quantized itself")


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


# -- what a file says of itself

QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION
# llama.h, enum llama_ftype: the number of a file that is mostly of this type. k-quants: their plain "medium" recipes'.
FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 12, "q4_k": 15,
    "q5_k": 17, "q6_k": 18, "iq2_xxs": 19, "iq2_xs": 20, "iq3_xxs": 23, "iq1_s": 24, "iq4_nl": 25, "iq3_s": 26,
    "iq2_s": 28, "iq4_xs": 30, "iq1_m": 31, "bf16": 32, "tq1_0": 36, "tq2_0": 37, "mxfp4": 38,
}  # fmt: skip
FILE_TYPE, VERSION_KEY = "general.file_type", "general.quantization_version"


def with_file_type(weights: Weights, file_type: int | None = None) -> Weights:
    """``weights`` with the pairs that say how it is quantised: those of llama-quantize, where a type was changed.

    ``file_type`` is given by a recipe; else it is that of the type that most elements of matrices have. Weights without
    pairs stay as they are.
    """
    changed = any(s.outcome in ("quantised", "dequantised", "cast") for t in weights for s in t.steps)
    made = weights.format != "gguf"  # not read from a file that says so already
    if not weights.keyvalues or not (made or changed or file_type is not None):
        return weights
    counts: dict[str, int] = {}
    for tensor in weights:
        if len(tensor.shape) > 1:
            counts[tensor.dtype.name] = counts.get(tensor.dtype.name, 0) + tensor.numel
    most = max(sorted(counts), key=lambda name: counts[name], default="f32")
    pairs = {pair.key: pair for pair in weights.keyvalues}
    number = FILE_TYPES.get(most) if file_type is None else file_type
    if number is not None:
        pairs[FILE_TYPE] = KeyValue(FILE_TYPE, "u32", number)
    else:
        pairs.pop(FILE_TYPE, None)
    if made or any(tensor.dtype.block > 1 for tensor in weights):  # llama.cpp's converter always writes it
        pairs[VERSION_KEY] = KeyValue(VERSION_KEY, "u32", QUANTIZATION_VERSION)
    else:
        pairs.pop(VERSION_KEY, None)
    return replace(weights, keyvalues=tuple(pairs.values()))
