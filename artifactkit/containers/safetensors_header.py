"""The header of a safetensors file, read strictly: every way in which it can lie is an error of its own.

The format (safetensors README, "Format"): 8 bytes, an unsigned little-endian integer N; N bytes of JSON that begin with
``{`` and may be padded with spaces; then the tensors' bytes, covered by the ``data_offsets`` without overlap, hole or
trailing byte. ``__metadata__`` is a map of strings to strings. The reference library takes duplicate keys (the last
wins) and unknown fields; both are refused here, since another reader may see another model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from ..errors import Corrupt, LimitExceeded, Truncated
from ..files import Bytes
from . import strict_json
from .strict_json import duplicate, type_name

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000  # the reference library's limit (tensor.rs, MAX_HEADER_SIZE)
METADATA = "__metadata__"
FIELDS = ("dtype", "shape", "data_offsets")
_FIELDS = frozenset(FIELDS)

# Bits an element (tensor.rs, Dtype::bitsize). Not taken from ``dtypes``: the scanner stands on this module.
BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
_MAX = 2**64 - 1  # sizes are unsigned 64-bit integers in the reference library


class NamedBytes(Bytes, Protocol):
    """Bytes with the path that messages name: a file, or a part of one."""

    path: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor. ``begin`` and ``end`` are in bytes from ``data_start``; ``shape`` counts elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(slots=True)
class Header:
    """What the header says. ``tensors`` are in the order of their bytes; tensor bytes start at ``data_start``.

    ``mended`` lists what ``repair`` changed; ``anomalies`` what the specification allows and no writer does.
    """

    tensors: list[Entry]
    metadata: dict[str, str]
    data_start: int
    header_bytes: int
    mended: list[str] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)


def announced_length(first: bytes) -> int:
    """The header's length as the first 8 bytes give it."""
    return int.from_bytes(first[:LENGTH_BYTES], "little")


def read_header(file: NamedBytes, *, repair: bool = False) -> Header:
    """Read and check the header of ``file``. No tensor byte is read.

    Raises Truncated, LimitExceeded or Corrupt with file, tensor, offset, expected and found. With ``repair``, metadata
    values that are no strings become their JSON text (0 -> "0"), and ``mended`` says so.
    """
    length, raw = _read_raw(file)
    path = file.path
    document = strict_json.loads(raw, what="the header", file=path, offset=LENGTH_BYTES)
    if not isinstance(document, dict):
        raise Corrupt(
            "the header is not a JSON object", file=path, offset=LENGTH_BYTES,
            expected="object", found=type_name(document),
        )  # fmt: skip
    twice = duplicate(document)
    if twice == METADATA:
        raise Corrupt("__metadata__ comes twice in the header", file=path, offset=LENGTH_BYTES)
    if twice is not None:
        raise Corrupt("a tensor name comes twice in the header", file=path, tensor=twice, offset=LENGTH_BYTES)

    header = Header([], {}, LENGTH_BYTES + length, length)
    for name, value in document.items():
        if name == METADATA:
            header.metadata = _metadata(value, path, repair, header.mended)
        else:
            header.tensors.append(_entry(name, value, path))
    header.tensors.sort(key=lambda t: (t.begin, t.end))
    _check_cover(header, file)
    if header.data_start % 8:
        header.anomalies.append(f"tensor bytes start at {header.data_start}, not at a multiple of 8")
    return header


def _read_raw(file: NamedBytes) -> tuple[int, bytes]:
    path = file.path
    if file.size < LENGTH_BYTES:
        raise Truncated(
            "too short for a safetensors file", file=path, offset=0,
            expected="8 bytes of header length", found=f"{file.size} bytes",
        )  # fmt: skip
    length = announced_length(file.read(0, LENGTH_BYTES))
    if length > MAX_HEADER:
        raise LimitExceeded(
            "the header claims to be larger than the format allows", file=path, offset=0,
            expected=f"at most {MAX_HEADER} bytes", found=length,
        )  # fmt: skip
    if LENGTH_BYTES + length > file.size:
        raise Truncated(
            "the file ends before its header does", file=path, offset=0,
            expected=f"{LENGTH_BYTES + length} bytes", found=f"{file.size} bytes",
        )  # fmt: skip
    if length == 0:
        raise Corrupt("the header is empty", file=path, offset=0, expected="at least {}", found="0 bytes")
    raw = file.read(LENGTH_BYTES, length)
    if raw[:1] != b"{":
        raise Corrupt(
            "the header does not begin with '{'", file=path, offset=LENGTH_BYTES, expected="'{'", found=repr(raw[:1])
        )
    return length, raw


def _metadata(value: object, path: str, repair: bool, mended: list[str]) -> dict[str, str]:
    """``__metadata__`` as strings; Corrupt, or a line in ``mended``, for everything else."""
    if not isinstance(value, dict):
        if repair:
            mended.append(f"__metadata__ was {type_name(value)}, now empty")
            return {}
        raise Corrupt(
            "__metadata__ is not an object", file=path, offset=LENGTH_BYTES,
            expected="an object of strings", found=type_name(value), hint="--repair drops it, tensor bytes untouched",
        )  # fmt: skip
    if value.keys() == set(FIELDS) and not isinstance(value["shape"], str):
        raise Corrupt(
            "a tensor is named __metadata__, a name that the format reserves", file=path, offset=LENGTH_BYTES,
            tensor=METADATA,
        )  # fmt: skip
    twice = duplicate(value)
    if twice is not None:
        raise Corrupt(f"the metadata key {twice!r} comes twice", file=path, offset=LENGTH_BYTES)
    out: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, str):
            out[key] = item
            continue
        if not repair:
            raise Corrupt(
                f"the metadata key {key!r} is not a string", file=path, offset=LENGTH_BYTES,
                expected="string", found=type_name(item),
                hint="--repair turns it into a string, tensor bytes untouched",
            )  # fmt: skip
        out[key] = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        mended.append(f"metadata {key!r}: {type_name(item)} -> string {out[key]!r}")
    return out


def _size(value: object, what: str, name: str, path: str) -> int:
    """A size or offset: an integer from 0 to 2**64 - 1."""
    if type(value) is int and 0 <= value <= _MAX:
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, float) and str(value) == "-0.0":
            raise Corrupt(f"a negative {what}", file=path, tensor=name, expected="0 or more", found="-0")
        found = type_name(value)
        raise Corrupt(f"a {what} that is no integer", file=path, tensor=name, expected="integer", found=found)
    if value < 0:
        raise Corrupt(f"a negative {what}", file=path, tensor=name, expected="0 or more", found=value)
    raise Corrupt(f"a {what} beyond 64 bits", file=path, tensor=name, expected=f"at most {_MAX}", found=value)


def _wrong_fields(fields: dict[str, object], name: str, path: str) -> NoReturn:
    missing = [f for f in FIELDS if f not in fields]
    if missing:
        raise Corrupt(
            f"a tensor's entry has no {missing[0]}", file=path, tensor=name,
            expected=", ".join(FIELDS), found=", ".join(fields) or "no field",
        )  # fmt: skip
    extra = [f for f in fields if f not in FIELDS]
    raise Corrupt(
        f"a tensor's entry has an unknown field {extra[0]!r}", file=path, tensor=name,
        expected=", ".join(FIELDS), found=", ".join(fields),
    )  # fmt: skip


def _entry(name: str, value: object, path: str) -> Entry:
    """One tensor's entry, checked by itself: fields, types, and length against dtype and shape."""
    if not isinstance(value, dict):
        raise Corrupt(
            "a tensor's entry is not an object", file=path, tensor=name, expected="object", found=type_name(value)
        )
    twice = duplicate(value)
    if twice is not None:
        raise Corrupt(f"the field {twice!r} comes twice in a tensor's entry", file=path, tensor=name)
    fields = value
    if fields.keys() != _FIELDS:
        _wrong_fields(fields, name, path)
    dtype = fields["dtype"]
    if not isinstance(dtype, str):
        raise Corrupt("a dtype that is no string", file=path, tensor=name, expected="string", found=type_name(dtype))
    if dtype not in BITS:
        raise Corrupt("an unknown dtype", file=path, tensor=name, expected=", ".join(BITS), found=dtype[:80])
    shape = fields["shape"]
    if not isinstance(shape, list):
        raise Corrupt("a shape that is no list", file=path, tensor=name, expected="array", found=type_name(shape))
    sizes = tuple(_size(n, "size in the shape", name, path) for n in shape)
    count = 1
    for n in sizes:
        count *= n
        # Checked at each step, as the library does: [2**63, 2, 0] overflows although the product is 0.
        if count > _MAX:
            raise Corrupt(
                "the shape's number of elements overflows 64 bits", file=path, tensor=name,
                expected=f"at most {_MAX}", found=_short(sizes),
            )  # fmt: skip
    if count * BITS[dtype] > _MAX:
        raise Corrupt(
            "the tensor's number of bits overflows 64 bits", file=path, tensor=name,
            expected=f"at most {_MAX}", found=f"{count} x {BITS[dtype]}",
        )  # fmt: skip
    offsets = fields["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2:
        found = f"array of {len(offsets)}" if isinstance(offsets, list) else type_name(offsets)
        raise Corrupt("data_offsets that are no pair", file=path, tensor=name, expected="[begin, end]", found=found)
    begin, end = (_size(n, "data offset", name, path) for n in offsets)
    if begin > end:
        raise Corrupt(
            "data offsets that end before they begin", file=path, tensor=name, expected="begin <= end",
            found=f"[{begin}, {end}]",
        )  # fmt: skip
    if count * BITS[dtype] % 8:
        raise Corrupt(
            "a sub-byte tensor that does not fill whole bytes", file=path, tensor=name,
            expected="a multiple of 8 bits", found=f"{count} x {BITS[dtype]} bits",
        )  # fmt: skip
    nbytes = count * BITS[dtype] // 8
    if end - begin != nbytes:
        raise Corrupt(
            "the data offsets do not fit dtype and shape", file=path, tensor=name,
            expected=f"{nbytes} bytes for {dtype} {_short(sizes)}", found=f"{end - begin} bytes",
        )  # fmt: skip
    return Entry(name, dtype, sizes, begin, end)


def _short(shape: tuple[int, ...]) -> str:
    return str(list(shape)) if len(shape) <= 16 else f"{str(list(shape[:16]))[:-1]}, ... {len(shape)} dimensions]"


def _check_cover(header: Header, file: NamedBytes) -> None:
    """Tensors follow each other without overlap or hole, from the end of the header to the end of the file."""
    path, start = file.path, header.data_start
    available = file.size - start
    at, previous = 0, ""
    for t in header.tensors:
        if t.end > available:
            raise Truncated(
                "a tensor reaches past the end of the file", file=path, tensor=t.name, offset=start + t.begin,
                expected=f"{t.end} bytes after the header", found=f"{available} bytes",
            )  # fmt: skip
        if t.begin < at:
            raise Corrupt(
                f"a tensor overlaps the one before it, {previous!r}", file=path, tensor=t.name, offset=start + t.begin,
                expected=f"begin at {at}", found=t.begin,
            )  # fmt: skip
        if t.begin > at:
            raise Corrupt(
                "a hole before a tensor: bytes that belong to none", file=path, tensor=t.name, offset=start + at,
                expected=f"begin at {at}", found=t.begin,
            )  # fmt: skip
        at, previous = t.end, t.name
    if at != available:
        raise Corrupt(
            "bytes after the last tensor that belong to none", file=path, offset=start + at,
            expected=f"{start + at} bytes", found=f"{file.size} bytes",
        )  # fmt: skip
