"""Reading GGUF: the header by the bounded reader that ``scan`` uses, the shards of a split file joined.

Shapes are NumPy's: the file's sizes, fastest first, reversed. Tensors stay where they are; so do long arrays of the
key-value pairs.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields

from ... import trees
from ...artifact import KeyValue, TensorView, Weights
from ...containers import gguf_header as gg
from ...dtypes import BY_GGML, DType
from ...errors import Corrupt, Refused, Unreadable
from ...files import File
from ...source import FileSpan, Mapped, Source
from ...stored import StoredArray
from ...trees import open_file
from ...types import SUMMARY_PREFIX, Head, ReadOptions, Summary

SPLIT_NAME = re.compile(r"^(.*)-(\d{5})-of-(\d{5})\.gguf$")
SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS = "split.no", "split.count", "split.tensors.count"
SPLIT_KEYS = frozenset({SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS})
SHORT = 1 << 12  # elements of an array that is decoded at once: numbers by layer, not vocabularies


def sniff(head: Head) -> bool:
    return head.first.startswith(gg.MAGIC)


def read(head: Head, options: ReadOptions) -> Weights:
    """The tensors of a file, or of all files of the split that it is part of, in the order of their tables.

    Raises Corrupt, Truncated, LimitExceeded as the header reader does; Unreadable when a shard is missing. Tensors that
    nothing reads any more, or whose byte order nothing here can change, are ``refused`` one by one.
    """
    header = gg.read_header(head.file)
    if _split_count(header, head.file) > 1:
        return _join(head, header)
    weights = Weights({}, "gguf", files=(head.path,))
    _add(weights, head.file, header)
    return weights


def _add(weights: Weights, file: File, header: gg.Header, pairs: bool = True) -> None:
    for info in header.tensors:
        if info.name in weights.tensors or info.name in weights.refused:
            raise Corrupt("a tensor is in two shards", file=file.path, tensor=info.name)
        dtype = BY_GGML.get(info.kind)
        error = _refusal(info, dtype, header, file)
        if dtype is None or error is not None:
            weights.refused[info.name] = error or Refused("an unknown tensor type", file=file.path, tensor=info.name)
            continue
        source = _in_order(FileSpan(file, info.offset, info.nbytes), dtype, header)
        weights.tensors[info.name] = TensorView(info.name, dtype, tuple(reversed(info.dims)), source)
    if pairs:
        summary = {SUMMARY_PREFIX + f.name for f in fields(Summary)}
        weights.metadata = {k: p.value for k, p in header.pairs.items() if k in summary and isinstance(p.value, str)}
        weights.keyvalues = tuple(_keyvalue(file, header, p) for p in header.pairs.values() if p.key not in SPLIT_KEYS)
    weights.notes += header.anomalies
    if header.big_endian:
        weights.notes.append(f"{os.path.basename(file.path)} is big-endian: its numbers are swapped as they are read")
    padded = -(-header.data_end // header.alignment) * header.alignment
    if file.size > padded:
        weights.notes.append(f"{file.size - padded} bytes after the last tensor belong to none")


def _refusal(info: gg.TensorInfo, dtype: DType | None, header: gg.Header, file: File) -> Refused | None:
    if dtype is None:
        return Refused(
            f"{info.type_name} is a form of other types that was repacked for one processor, and is read no more",
            file=file.path, tensor=info.name, hint="quantise the model again, from its source",
        )  # fmt: skip
    if header.big_endian and dtype.block > 1:
        return Refused(
            f"blocks of {dtype} in a big-endian file: their scales would have to be swapped one by one",
            file=file.path, tensor=info.name, hint="convert the file with gguf's gguf-convert-endian first",
        )  # fmt: skip
    return None


def _in_order(span: FileSpan, dtype: DType, header: gg.Header) -> Source:
    """The same bytes, little-endian."""
    if not header.big_endian or dtype.itemsize == 1:
        return span
    size = dtype.itemsize

    def swap(data: memoryview, out: memoryview) -> None:
        import numpy as np

        np.frombuffer(out, f"<u{size}")[:] = np.frombuffer(data, f">u{size}")

    return Mapped(span, span.nbytes // size, size, size, swap, f"swap {size}")


def _keyvalue(file: File, header: gg.Header, pair: gg.Pair) -> KeyValue:
    value = pair.value
    if isinstance(value, gg.Text):
        return KeyValue(pair.key, "string", gg.read_text(file, value))
    if not isinstance(value, gg.Array):
        return KeyValue(pair.key, gg.TYPE_NAMES[pair.kind], value)
    kind = _element_kind(file, header, value)
    stored = StoredArray(kind, value.count, file, header, value)
    held = stored.elements() if value.count <= SHORT and value.nbytes <= SHORT * 16 else stored
    return KeyValue(pair.key, f"arr[{kind}]", held)


def _element_kind(file: File, header: gg.Header, array: gg.Array) -> str:
    """``f32``, or ``arr[f32]`` for an array of arrays, which must then all be of one kind."""
    if array.kind != gg.ARRAY:
        return gg.TYPE_NAMES[array.kind]
    kinds = {_element_kind(file, header, inner) for inner in gg.inner_arrays(file, header, array)}
    if len(kinds) > 1:
        raise Corrupt(
            "arrays of different types in one array", file=file.path, offset=array.offset,
            expected="one type", found=", ".join(sorted(kinds)),
        )  # fmt: skip
    return f"arr[{kinds.pop()}]" if kinds else "arr[u8]"


# -- split files


def _split_value(header: gg.Header, key: str, file: File) -> int | None:
    pair = header.pairs.get(key)
    if pair is None:
        return None
    if not isinstance(pair.value, int) or isinstance(pair.value, bool) or pair.value < 0:
        raise Corrupt(f"{key} is no count", file=file.path, offset=pair.offset, found=pair.value)
    return pair.value


def _split_count(header: gg.Header, file: File) -> int:
    """Of how many files this is one: 1 for a whole one."""
    return _split_value(header, SPLIT_COUNT, file) or 1


def _join(head: Head, header: gg.Header) -> Weights:
    count = _split_count(header, head.file)
    folder, name = os.path.split(head.path)
    match = SPLIT_NAME.match(name)
    if match is None:
        raise Unreadable(
            f"this is one of {count} parts of a split file, and its name does not say which", file=head.path,
            expected=f"a name that ends in -00001-of-{count:05d}.gguf", found=name,
            hint="give the files the names that they had when they were split",
        )  # fmt: skip
    if int(match[3]) != count:
        raise Corrupt(
            "name and header disagree in how many parts there are", file=head.path, expected=match[3], found=count
        )
    # The name says how many there can be: five digits.
    paths = [os.path.join(folder, f"{match[1]}-{i:05d}-of-{match[3]}.gguf") for i in range(1, count + 1)]
    missing = [os.path.basename(path) for path in paths if path != head.path and not trees.exists(path)]
    if missing:
        more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
        raise Unreadable(
            f"{len(missing)} of {count} parts of the split file are missing", file=head.path,
            expected=f"{count} files beside each other", found=f"no {', '.join(missing[:20])}{more}",
            hint="download the model again, whole",
        )  # fmt: skip
    weights = Weights({}, "gguf", files=tuple(paths))
    wanted = _split_value(header, SPLIT_TENSORS, head.file)
    for index, path in enumerate(paths):
        file = head.file if path == head.path else open_file(path)
        part = header if path == head.path else gg.read_header(file)
        for key, value in ((SPLIT_NO, index), (SPLIT_COUNT, count), (SPLIT_TENSORS, wanted)):
            found = _split_value(part, key, file)
            if found != value:
                raise Corrupt(
                    f"{key} does not fit: a part of another split file?", file=path, expected=value, found=found
                )
        _add(weights, file, part, pairs=index == 0)
        extra = sorted(key for key in part.pairs if key not in SPLIT_KEYS and index)
        if extra:
            shown = ", ".join(extra[:5]) + (" ..." if len(extra) > 5 else "")
            weights.notes.append(
                f"key-value pairs of {os.path.basename(path)} are left out, the first part's count: {shown}"
            )
    held = len(weights.tensors) + len(weights.refused)
    if wanted is not None and held != wanted:
        raise Corrupt(
            "the parts hold another number of tensors than they say", file=head.path, expected=wanted, found=held
        )
    return weights
