"""The header of a GGUF file, bounded: every count is checked against the bytes that are left before it is believed.

The format (ggml, docs/gguf.md): magic ``GGUF``, version, number of tensors, number of key-value pairs, the pairs, the
table of tensors, padding up to ``general.alignment``, then the tensors' bytes at aligned offsets. Versions 2 and 3 have
64-bit counts; version 3 may be big-endian, which shows in the version number. Vocabularies stay where they are: an
array is a place in the file, and becomes a list only when asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import Corrupt, LimitExceeded, Truncated, Unreadable
from ..files import Bytes, label
from .gguf_types import GGML_TYPES

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"

# Value types (gguf.md, enum gguf_metadata_value_type): struct code of those of fixed size.
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TYPE_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
SIZES = {kind: struct.calcsize("<" + code) for kind, code in CODES.items()}

# What no honest file reaches. Above: a lie, whatever the size of the file; below, but past its end: a file cut short.
MAX_PAIRS = 1 << 16
MAX_TENSORS = 1 << 20
MAX_KEY = 65_535  # gguf.md: "at most 2^16-1 bytes"
MAX_NAME = 1 << 12
MAX_BYTES = 1 << 40  # of a string, or of an array's elements
MAX_ALIGNMENT = 1 << 20
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
MAX_ARRAY_DEPTH = 8
INLINE = 1 << 16  # bytes of a string that is kept; longer ones stay in the file
INLINE_ALL = 16 << 20
WINDOW = 1 << 18
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Text:
    """A string that was too long to be kept: ``nbytes`` bytes of UTF-8 at ``offset``. ``read_text`` gets it."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Array:
    """``count`` elements of type ``kind`` in ``nbytes`` bytes from ``offset``. ``read_array`` makes a list of it."""

    kind: int
    count: int
    offset: int
    nbytes: int


Scalar = int | float | bool | str
Value = Scalar | Text | Array


@dataclass(frozen=True, slots=True)
class Pair:
    """One key and its value; ``kind`` is the value's type, ``offset`` where the value begins."""

    key: str
    kind: int
    value: Value
    offset: int


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. ``dims`` are in the file's order, the fastest first (the reverse of a NumPy shape).

    ``offset`` is in bytes from the start of the file, ``nbytes`` the size that type and dims give.
    """

    name: str
    kind: int
    dims: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def type_name(self) -> str:
        return GGML_TYPES[self.kind][0]


@dataclass(slots=True)
class Header:
    """What the header says. ``tensors`` are in the order of the table; tensor bytes start at ``data_start``.

    ``data_end`` is the end of the last tensor without its padding. ``anomalies`` lists what some readers take and
    others refuse.
    """

    version: int
    big_endian: bool
    pairs: dict[str, Pair]
    tensors: list[TensorInfo]
    alignment: int
    data_start: int
    data_end: int
    anomalies: list[str] = field(default_factory=list)

    def value(self, key: str) -> Value | None:
        pair = self.pairs.get(key)
        return None if pair is None else pair.value


class _Cursor:
    """Reads forward through one window of the file; every length is checked before it is used."""

    def __init__(self, data: Bytes, order: str, at: int) -> None:
        self.data, self.order, self.at = data, order, at
        self.file = label(data)
        self._base, self._window = 0, b""
        self._u32 = struct.Struct(order + "I")
        self._u64 = struct.Struct(order + "Q")
        self.kept = 0

    @property
    def left(self) -> int:
        return self.data.size - self.at

    def need(self, n: int, what: str) -> None:
        if n > MAX_BYTES:
            raise Corrupt(
                f"{what} claims a size that no file has", file=self.file, offset=self.at,
                expected=f"at most {self.left} bytes", found=f"{n} bytes",
            )  # fmt: skip
        if n > self.left:
            raise Truncated(
                f"the file ends within {what}", file=self.file, offset=self.at,
                expected=f"{n} bytes", found=f"{self.left} bytes",
            )  # fmt: skip

    def take(self, n: int, what: str) -> bytes:
        self.need(n, what)
        start = self.at - self._base
        if start < 0 or start + n > len(self._window):
            self._base = self.at
            self._window = self.data.read(self.at, min(max(n, WINDOW), self.left))
            start = 0
        self.at += n
        return self._window[start : start + n]

    def u32(self, what: str) -> int:
        return int(self._u32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(self._u64.unpack(self.take(8, what))[0])

    def count(self, what: str, limit: int, each: int) -> int:
        """A number of things of at least ``each`` bytes."""
        at = self.at
        n = self.u64(what)
        if n > limit:
            raise Corrupt(f"{what} that no file has", file=self.file, offset=at, expected=f"at most {limit}", found=n)
        if n * each > self.left:
            raise Truncated(
                f"{what} for which the file is too short", file=self.file, offset=at,
                expected=f"at least {n * each} bytes", found=f"{self.left} bytes",
            )  # fmt: skip
        return n

    def text(self, what: str, limit: int) -> str:
        at = self.at
        n = self.u64(what)
        if limit < n:
            raise Corrupt(
                f"the length of {what} is out of bounds", file=self.file, offset=at,
                expected=f"at most {limit} bytes", found=n,
            )  # fmt: skip
        raw = self.take(n, what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Corrupt(f"{what} is not UTF-8", file=self.file, offset=at, found=repr(raw[:80])) from None

    def string_value(self, key: str) -> str | Text:
        what = f"the value of {key!r}"
        n = self.u64(what)
        self.need(n, what)
        if n > INLINE or self.kept + n > INLINE_ALL:
            value: str | Text = Text(self.at, n)
            self.at += n
            return value
        self.kept += n
        # Values need not be UTF-8 for the file to load; what is not stays visible.
        return self.take(n, what).decode("utf-8", "surrogateescape")

    def skip_strings(self, count: int, what: str) -> None:
        """Over ``count`` strings: the vocabulary, hundreds of thousands of them, so the loop is kept tight."""
        size, unpack = self.data.size, self._u64.unpack_from
        at = self.at
        base, window = at, b""
        for _ in range(count):
            start = at - base
            if start + 8 > len(window):
                if at + 8 > size:
                    break
                base, window, start = at, self.data.read(at, min(WINDOW, size - at)), 0
            at += 8 + unpack(window, start)[0]
            if at > size:
                break
        else:
            self.at = at
            return
        n = at - size
        self.at = min(at, size)
        self.need(max(n, 1), what)

    def scalar(self, kind: int, key: str) -> Scalar:
        at = self.at
        raw = self.take(SIZES[kind], f"the value of {key!r}")
        value = struct.unpack(self.order + CODES[kind], raw)[0]
        if kind != BOOL:
            return value  # type: ignore[no-any-return]
        if value > 1:
            raise Corrupt("a bool that is neither 0 nor 1", file=self.file, offset=at, found=value)
        return bool(value)


def announced_order(first: bytes) -> str | None:
    """The byte order, ``<`` or ``>``, of a file that begins with ``first``; None when the version is unknown."""
    if len(first) < 8 or first[:4] != MAGIC:
        return None
    for order in "<>":
        if struct.unpack_from(order + "I", first, 4)[0] in VERSIONS:
            return order
    return None


def read_header(data: Bytes) -> Header:
    """Read and check the header. No tensor byte is read, and no array's elements but to step over them.

    Raises Truncated, LimitExceeded or Corrupt with offset, expected and found; Unreadable for version 1.
    """
    file = label(data)
    if data.size < 24:
        raise Truncated(
            "too short for a GGUF file", file=file, offset=0, expected="24 bytes", found=f"{data.size} bytes"
        )
    first = data.read(0, 8)
    if first[:4] != MAGIC:
        raise Corrupt("not a GGUF file", file=file, offset=0, expected=repr(MAGIC), found=repr(first[:4]))
    order = announced_order(first)
    if order is None:
        found = int.from_bytes(first[4:8], "little")
        # Version 1 was in use for a month, in 2023; the other numbers were never given.
        raise (Unreadable if found == 1 else Corrupt)(
            "an unknown version of GGUF", file=file, offset=4, expected="2 or 3", found=found,
            hint="convert the model again with a current converter",
        )  # fmt: skip
    cursor = _Cursor(data, order, 4)
    version = cursor.u32("the version")
    n_tensors = cursor.count("a number of tensors", MAX_TENSORS, 24)
    n_pairs = cursor.count("a number of key-value pairs", MAX_PAIRS, 13)
    if n_tensors * 24 + n_pairs * 13 > cursor.left:
        raise Truncated("the file is too short for its tables", file=file, offset=8, found=f"{cursor.left} bytes")
    anomalies: list[str] = []
    pairs: dict[str, Pair] = {}
    for _ in range(n_pairs):
        pair = _pair(cursor)
        if pair.key in pairs:
            raise Corrupt("a key comes twice", file=file, offset=pair.offset, found=repr(pair.key[:80]))
        pairs[pair.key] = pair
    alignment = _alignment(pairs, file)
    table = [_tensor(cursor) for _ in range(n_tensors)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors = [TensorInfo(t.name, t.kind, t.dims, data_start + t.offset, t.nbytes) for t in table]
    data_end = _check_places(tensors, alignment, data_start, cursor, anomalies)
    return Header(version, order == ">", pairs, tensors, alignment, data_start, data_end, anomalies)


def _pair(cursor: _Cursor) -> Pair:
    key = cursor.text("a key", MAX_KEY)
    at = cursor.at
    kind = cursor.u32(f"the type of {key!r}")
    begin = cursor.at
    if kind == STRING:
        return Pair(key, kind, cursor.string_value(key), begin)
    if kind == ARRAY:
        return Pair(key, kind, _array(cursor, key, 0), begin)
    if kind not in SIZES:
        raise Corrupt("an unknown value type", file=cursor.file, offset=at, expected="0 to 12", found=kind)
    return Pair(key, kind, cursor.scalar(kind, key), begin)


def _array(cursor: _Cursor, key: str, depth: int) -> Array:
    if depth >= MAX_ARRAY_DEPTH:
        raise LimitExceeded(
            "arrays nested too deeply", file=cursor.file, offset=cursor.at, expected=f"at most {MAX_ARRAY_DEPTH} levels"
        )
    at = cursor.at
    what = f"the array {key!r}"
    kind = cursor.u32(what)
    if kind not in SIZES and kind not in (STRING, ARRAY):
        raise Corrupt("an unknown element type", file=cursor.file, offset=at, expected="0 to 12", found=kind)
    least = SIZES.get(kind, 8 if kind == STRING else 12)
    count = cursor.u64(what)
    begin = cursor.at
    cursor.need(count * least, what)
    if kind == STRING:
        cursor.skip_strings(count, what)
    elif kind == ARRAY:
        for _ in range(count):
            _array(cursor, key, depth + 1)
    else:
        cursor.at += count * least
    return Array(kind, count, begin, cursor.at - begin)


def _alignment(pairs: dict[str, Pair], file: str | None) -> int:
    pair = pairs.get(ALIGNMENT_KEY)
    if pair is None:
        return DEFAULT_ALIGNMENT
    n = pair.value
    if pair.kind != U32 or not isinstance(n, int):
        raise Corrupt("an alignment that is no u32", file=file, offset=pair.offset, found=TYPE_NAMES[pair.kind])
    if n < 1 or n & (n - 1) or n > MAX_ALIGNMENT:
        raise Corrupt(
            "an impossible alignment", file=file, offset=pair.offset,
            expected=f"a power of two, at most {MAX_ALIGNMENT}", found=n,
        )  # fmt: skip
    return n


def _tensor(cursor: _Cursor) -> TensorInfo:
    """One line of the table; ``offset`` is still relative to the start of the data."""
    name = cursor.text("a tensor's name", MAX_NAME)
    at = cursor.at
    n_dims = cursor.u32("the table of tensors")
    if n_dims > MAX_DIMENSIONS:
        raise Corrupt(
            "a tensor has too many dimensions", file=cursor.file, tensor=name, offset=at,
            expected=f"at most {MAX_DIMENSIONS}", found=n_dims,
        )  # fmt: skip
    dims = tuple(cursor.u64("the table of tensors") for _ in range(n_dims))
    at = cursor.at
    kind = cursor.u32("the table of tensors")
    offset = cursor.u64("the table of tensors")
    if kind not in GGML_TYPES:
        raise Corrupt("an unknown tensor type", file=cursor.file, tensor=name, offset=at, found=kind)
    count = 1
    for n in dims:
        if n == 0:  # ggml divides by a size when it checks for overflow
            raise Corrupt("a tensor has a size of zero", file=cursor.file, tensor=name, offset=at, found=dims)
        count *= n
        if n > _INT64_MAX or count > _INT64_MAX:
            raise Corrupt(
                "a tensor's number of elements overflows 63 bits", file=cursor.file, tensor=name, offset=at, found=dims
            )
    _, block, block_bytes = GGML_TYPES[kind]
    row = dims[0] if dims else 1
    if row % block:
        raise Corrupt(
            "a tensor's rows are no whole number of blocks", file=cursor.file, tensor=name, offset=at,
            expected=f"a multiple of {block}", found=row,
        )  # fmt: skip
    nbytes = count // block * block_bytes
    if nbytes > _INT64_MAX or offset > _INT64_MAX - nbytes:
        raise Corrupt("a tensor's place overflows 63 bits", file=cursor.file, tensor=name, offset=at, found=offset)
    return TensorInfo(name, kind, dims, offset, nbytes)


def _check_places(
    tensors: list[TensorInfo], alignment: int, data_start: int, cursor: _Cursor, anomalies: list[str]
) -> int:
    """Tensors are aligned, follow each other without overlap or hole, and end within the file. Returns their end."""
    file, size = cursor.file, cursor.data.size
    names: set[str] = set()
    for t in tensors:
        if t.name in names:
            raise Corrupt("a tensor's name comes twice", file=file, tensor=t.name)
        names.add(t.name)
        if (t.offset - data_start) % alignment:
            raise Corrupt(
                "a tensor is not aligned", file=file, tensor=t.name, offset=t.offset,
                expected=f"a multiple of {alignment}", found=t.offset - data_start,
            )  # fmt: skip
    placed = sorted(tensors, key=lambda t: (t.offset, t.nbytes))
    if any(a is not b for a, b in zip(placed, tensors, strict=True)):
        anomalies.append("the table of tensors is not in the order of their bytes")
    at, previous = data_start, ""
    for t in placed:
        if t.offset < at:
            raise Corrupt(
                f"a tensor overlaps the one before it, {previous!r}", file=file, tensor=t.name, offset=t.offset,
                expected=f"{at} or more", found=t.offset,
            )  # fmt: skip
        start = -(-at // alignment) * alignment
        if t.offset > start:
            # A file cut short has no holes: an offset that skips bytes is a lie.
            raise Corrupt(
                "a hole before a tensor: bytes that belong to none", file=file, tensor=t.name, offset=t.offset,
                expected=start, found=t.offset,
            )  # fmt: skip
        at, previous = t.offset + t.nbytes, t.name
        if t.nbytes > MAX_BYTES << 4:
            raise Corrupt(
                "a tensor claims a size that no file has", file=file, tensor=t.name, found=f"{t.nbytes} bytes"
            )
    if at > size and tensors:
        raise Truncated(
            "a tensor reaches past the end of the file", file=file, tensor=previous, offset=size,
            expected=f"{at} bytes", found=f"{size} bytes",
        )  # fmt: skip
    return at if tensors else min(cursor.at, size)


def read_text(data: Bytes, value: str | Text, limit: int = INLINE_ALL) -> str:
    """The string, read from the file if it was not kept. LimitExceeded above ``limit`` bytes."""
    if isinstance(value, str):
        return value
    if value.nbytes > limit:
        raise LimitExceeded(
            "a string out of proportion", file=label(data), offset=value.offset,
            expected=f"at most {limit} bytes", found=value.nbytes,
        )  # fmt: skip
    return data.read(value.offset, value.nbytes).decode("utf-8", "surrogateescape")


def read_array(data: Bytes, header: Header, array: Array, limit: int = 1 << 26) -> list[object]:
    """The elements of ``array`` as a list, arrays within it as lists. LimitExceeded above ``limit`` bytes."""
    if array.nbytes > limit:
        raise LimitExceeded(
            "an array out of proportion", file=label(data), offset=array.offset,
            expected=f"at most {limit} bytes", found=array.nbytes,
        )  # fmt: skip
    order = ">" if header.big_endian else "<"
    if array.kind in CODES:
        raw = data.read(array.offset, array.nbytes)
        values = struct.unpack(f"{order}{array.count}{CODES[array.kind]}", raw)
        return [bool(v) for v in values] if array.kind == BOOL else list(values)
    cursor = _Cursor(data, order, array.offset)
    if array.kind == STRING:
        return [
            cursor.take(cursor.u64("an array"), "an array").decode("utf-8", "surrogateescape")
            for _ in range(array.count)
        ]
    return [read_array(data, header, _array(cursor, "", 1), limit) for _ in range(array.count)]


def inner_arrays(data: Bytes, header: Header, array: Array) -> Iterator[Array]:
    """The arrays that are the elements of an array of arrays, as places."""
    cursor = _Cursor(data, ">" if header.big_endian else "<", array.offset)
    for _ in range(array.count):
        yield _array(cursor, "", 1)
