"""Writing GGUF: header and offsets from names, types and shapes alone; version 3, little-endian.

Bytes are those of llama.cpp for the same pairs and tensors (gguf.cpp, ``gguf_write_to_buf``): pairs and tensors in the
order given, every tensor padded to the alignment, the last one too. Split files are those of llama-gguf-split: all
pairs in the first, then ``split.no``, ``split.tensors.count``, ``split.count`` in each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from ...artifact import KeyValue, TensorView, Weights
from ...containers import gguf_header as gg
from ...errors import RouteRefused, UsageError
from ...source import Inline, Source
from ...stored import StoredArray
from ...types import OutputFile, Part, Summary, WriteOptions
from .reader import SPLIT_COUNT, SPLIT_KEYS, SPLIT_NO, SPLIT_TENSORS

VERSION = 3
ARCHITECTURE = "general.architecture"
MAX_NAME = 63  # bytes: GGML_MAX_NAME is 64 with the zero at the end; llama.cpp loads nothing with a longer name
MAX_SPLITS = 65_535  # split.count is a u16
_KINDS = {name: number for number, name in enumerate(gg.TYPE_NAMES)}


def write(weights: Weights, options: WriteOptions) -> list[OutputFile]:
    """Lay out ``weights``; reads no tensor byte, and of long arrays only those of big-endian files.

    A folder gets ``model.gguf``. With ``max_shard_size`` (bytes of tensors a file) and more than that, parts named
    ``-00001-of-0000N.gguf``. Raises RouteRefused for a type, shape, name or pair that GGUF cannot hold, and for weights
    of which nobody has said what model they are.
    """
    pairs = _pairs(weights, options.summary)
    for tensor in weights:
        _check(tensor)
    stem = "model" if options.folder else options.name.removesuffix(".gguf")
    limit = options.max_shard_size
    if limit is not None and limit <= 0:
        raise UsageError("a shard needs a size above 0", expected="1 byte or more", found=limit)
    shards = split(weights.tensors.values(), limit)
    alignment = alignment_of(pairs)
    if len(shards) == 1:
        name = "model.gguf" if options.folder else options.name
        return [_file(name, shards[0], pairs, alignment)]
    if len(shards) > MAX_SPLITS:
        raise UsageError(
            "too many shards", expected=f"at most {MAX_SPLITS}", found=len(shards), hint="a larger --max-shard-size"
        )
    files = []
    for i, tensors in enumerate(shards):
        own = (
            *(pairs if i == 0 else ()),
            KeyValue(SPLIT_NO, "u16", i),
            KeyValue(SPLIT_TENSORS, "i32", len(weights.tensors)),
            KeyValue(SPLIT_COUNT, "u16", len(shards)),
        )
        name = f"{stem}-{i + 1:05d}-of-{len(shards):05d}.gguf"
        files.append(_file(name, tensors, own, alignment if i == 0 else gg.DEFAULT_ALIGNMENT))
    return files


def split(tensors: Iterable[TensorView], limit: int | None) -> list[list[TensorView]]:
    """Shards of at most ``limit`` bytes of padded tensors, filled in the order given (gguf-split.cpp, should_split).

    A tensor that is larger is a shard of its own.
    """
    shards: list[list[TensorView]] = [[]]
    size = 0
    for tensor in tensors:
        nbytes = _padded(tensor.nbytes, gg.DEFAULT_ALIGNMENT)
        if limit is not None and shards[-1] and size + nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += nbytes
    return shards


def alignment_of(pairs: Iterable[KeyValue]) -> int:
    """``general.alignment``, else 32; RouteRefused for what none can be."""
    for pair in pairs:
        if pair.key == gg.ALIGNMENT_KEY:
            n = pair.value
            if pair.kind != "u32" or not isinstance(n, int) or not 1 <= n <= gg.MAX_ALIGNMENT or n & (n - 1):
                raise RouteRefused("an impossible alignment", found=n, expected="a power of two, as u32")
            return n
    return gg.DEFAULT_ALIGNMENT


def _pairs(weights: Weights, summary: Summary | None) -> tuple[KeyValue, ...]:
    """What is known of the model, and of where it is from."""
    pairs = {pair.key: pair for pair in weights.keyvalues if pair.key not in SPLIT_KEYS}
    if ARCHITECTURE not in pairs and weights.format != "gguf":
        raise RouteRefused(
            "gguf needs to know what model the tensors are of", expected=f"a key {ARCHITECTURE}",
            hint="give the model's folder, with the config.json that names its architecture",
        )  # fmt: skip
    if summary is not None:
        known = summary.metadata()
        if summary.license is not None:
            pairs.setdefault("general.license", KeyValue("general.license", "string", summary.license))
        pairs |= {key: KeyValue(key, "string", value) for key, value in known.items()}
    return tuple(pairs.values())


def _check(tensor: TensorView) -> None:
    if tensor.dtype.ggml is None:
        wider = "--dtype f16 holds it exactly" if tensor.dtype.name.startswith("f8_e") else "--exclude leaves it out"
        raise RouteRefused(
            f"gguf has no type for {tensor.dtype}", tensor=tensor.name, found=tensor.dtype.name,
            expected="f32, f16, bf16, f64, i8 to i64, or a quantised type", hint=wider,
        )  # fmt: skip
    if len(tensor.shape) > gg.MAX_DIMENSIONS or 0 in tensor.shape:
        raise RouteRefused(
            "gguf cannot hold a tensor of this shape", tensor=tensor.name, found=list(tensor.shape),
            expected=f"at most {gg.MAX_DIMENSIONS} dimensions, none of size 0", hint="--exclude leaves it out",
        )  # fmt: skip
    try:
        length = len(tensor.name.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise RouteRefused("the name is no Unicode text", tensor=ascii(tensor.name), hint="--rename") from error
    if length > MAX_NAME:
        raise RouteRefused(
            "the name is longer than llama.cpp loads", tensor=tensor.name, expected=f"at most {MAX_NAME} bytes",
            found=length, hint="--rename gives it a shorter one",
        )  # fmt: skip


# -- the header


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return len(raw).to_bytes(8, "little") + raw


def _scalar(kind: str, value: object, key: str) -> bytes:
    if kind == "string" and isinstance(value, str):
        return _string(value)
    if kind == "bool" and isinstance(value, bool):
        return bytes([value])
    code = gg.CODES.get(_KINDS.get(kind, -1))
    wanted = int | float if kind in ("f32", "f64") else int
    if code is not None and kind != "bool" and isinstance(value, wanted) and not isinstance(value, bool):
        try:
            return struct.pack("<" + code, value)
        except (struct.error, OverflowError) as error:
            raise RouteRefused(f"a value that is no {kind}", member=key, found=repr(value)[:80]) from error
    raise RouteRefused(f"a value that is no {kind}", member=key, found=f"{type(value).__name__} {value!r}"[:80])


def _array(kind: str, values: Sequence[object], key: str) -> bytes:
    """Type, count and elements."""
    inner = kind[4:-1] if kind.startswith("arr[") else None
    head = struct.pack("<IQ", gg.ARRAY if inner is not None else _KINDS.get(kind, 0), len(values))
    if inner is not None:
        if not all(isinstance(v, tuple | list) for v in values):
            raise RouteRefused("an array of arrays holds something else", member=key)
        return head + b"".join(_array(inner, v, key) for v in values if isinstance(v, tuple | list))
    return head + b"".join(_scalar(kind, value, key) for value in values)


def encode(pair: KeyValue) -> list[Source]:
    """One pair as it stands in the header. Raises RouteRefused for a value that is not of its kind."""
    raw = pair.key.encode("utf-8", "surrogateescape")
    if not 1 <= len(raw) <= gg.MAX_KEY:
        raise RouteRefused("a key of this length cannot be written", member=pair.key[:80], found=f"{len(raw)} bytes")
    key = _string(pair.key)
    if not pair.is_array:
        if pair.kind not in _KINDS or pair.kind == "array":
            raise RouteRefused("an unknown kind of value", member=pair.key, found=pair.kind)
        return [Inline(key + struct.pack("<I", _KINDS[pair.kind]) + _scalar(pair.kind, pair.value, pair.key))]
    kind, head = pair.kind[4:-1], key + struct.pack("<I", gg.ARRAY)
    value = pair.value
    if isinstance(value, StoredArray) and value.little_endian and value.kind == kind:
        number = gg.ARRAY if kind.startswith("arr[") else _KINDS[kind]
        return [Inline(head + struct.pack("<IQ", number, value.count)), value.source]
    return [Inline(head + _array(kind, pair.elements(), pair.key))]


def _info(tensor: TensorView, offset: int) -> bytes:
    shape = tuple(reversed(tensor.shape))
    head = _string(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return head + struct.pack("<IQ", tensor.dtype.ggml, offset)


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _file(name: str, tensors: Sequence[TensorView], pairs: Sequence[KeyValue], alignment: int) -> OutputFile:
    head: list[Source] = [Inline(gg.MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(pairs)))]
    for pair in pairs:
        head += encode(pair)
    offset = 0
    table = []
    for tensor in tensors:
        table.append(_info(tensor, offset))
        offset += _padded(tensor.nbytes, alignment)
    head.append(Inline(b"".join(table)))
    parts: list[Part] = []
    at = 0
    for source in _joined(head):
        parts.append(Part(at, source))
        at += source.nbytes
    at = _pad(parts, at, alignment)
    for tensor in tensors:
        parts.append(Part(at, tensor.source, tensor.name))
        at = _pad(parts, at + tensor.nbytes, alignment)
    return OutputFile(name, at, tuple(parts))


def _pad(parts: list[Part], at: int, alignment: int) -> int:
    end = _padded(at, alignment)
    if end > at:
        parts.append(Part(at, Inline(bytes(end - at))))
    return end


def _joined(sources: Iterable[Source]) -> list[Source]:
    """Bytes in memory that follow each other as one: a header has hundreds of small pieces."""
    out: list[Source] = []
    held: list[bytes] = []
    for source in sources:
        if isinstance(source, Inline):
            held.append(source.data)
            continue
        out += [Inline(b"".join(held)), source]
        held = []
    return [*out, Inline(b"".join(held))] if held else out
