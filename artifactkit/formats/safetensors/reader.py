"""Reading safetensors: a single file, or the shards that an index names.

An index is read strictly: a tensor comes from the shard that the index names and from no other. Other readers load
every tensor of every shard, so that a stale copy in a re-used shard can win.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ...artifact import Dropped, TensorView, Weights
from ...containers import safetensors_header as st
from ...containers import strict_json
from ...containers.strict_json import Pairs, type_name
from ...dtypes import BY_SAFETENSORS
from ...errors import Corrupt, LimitExceeded, Unreadable
from ...files import File
from ...source import FileSpan
from ...types import Head, ReadOptions

INDEX_SUFFIX = ".safetensors.index.json"
MAX_INDEX = st.MAX_HEADER
# A key of the metadata that says which framework the tensors are from; never the name of a tied tensor.
FORMAT_KEY = "format"
_SHARD_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")


def sniff(head: Head) -> bool:
    """A header length that the file can hold and ``{`` after it; or an index of ``.safetensors`` shards.

    With the suffix, lengths that lie are ours too, so that they are refused with the reason and not as unknown.
    """
    if is_index(head):
        return True
    first = head.first
    length = st.announced_length(first)
    if first[8:9] == b"{" and len(first) > 9:
        return 2 <= length <= head.size - 8 and length <= st.MAX_HEADER or head.suffix == ".safetensors"
    return head.suffix == ".safetensors" and (head.size < 9 or length <= st.MAX_HEADER)


def is_index(head: Head) -> bool:
    """Whether the file is a Hub index of safetensors shards. (``pytorch_model.bin.index.json`` is not.)"""
    first = head.first.lstrip()
    if not first.startswith(b"{"):
        return False
    return head.path.endswith(INDEX_SUFFIX) or b'"weight_map"' in first and b'.safetensors"' in first


def read(head: Head, options: ReadOptions) -> Weights:
    """The tensors of a file, or of all shards when ``head`` is an index; both names of tied tensors come back."""
    if is_index(head):
        return _read_sharded(head, options)
    header = st.read_header(head.file, repair=options.repair)
    weights = Weights({}, "safetensors", files=(head.path,), metadata=header.metadata)
    for entry in header.tensors:
        weights.tensors[entry.name] = _view(head.file, header, entry)
    weights.notes += _remarks(header, "")
    part = _SHARD_NAME.search(os.path.basename(head.path))
    if part and part[2] != "00001":
        weights.notes.append(f"this is shard {int(part[1])} of {int(part[2])}; give the index to read all of them")
    _restore_aliases(weights)
    return weights


def _view(file: File, header: st.Header, entry: st.Entry) -> TensorView:
    source = FileSpan(file, header.data_start + entry.begin, entry.end - entry.begin)
    return TensorView(entry.name, BY_SAFETENSORS[entry.dtype], entry.shape, source)


def _remarks(header: st.Header, where: str) -> list[str]:
    return [f"{where}repaired: {m}" for m in header.mended] + [f"{where}{a}" for a in header.anomalies]


def _restore_aliases(weights: Weights) -> None:
    """Give back the names that were stored once: metadata ``{"lm_head.weight": "embed.weight"}``.

    That is how huggingface_hub records a tie. An entry counts when its value names a tensor and its key does not; it
    then leaves the metadata, where the writer puts it again.
    """
    tensors = weights.tensors
    ties = sorted(
        key
        for key, value in weights.metadata.items()
        if key != FORMAT_KEY and key not in tensors and value in tensors
    )
    for name in ties:
        kept = tensors[weights.metadata.pop(name)]
        tensors[name] = TensorView(name, kept.dtype, kept.shape, kept.source)
        weights.notes.append(f"{name} is tied to {kept.name}: stored once")


@dataclass(slots=True)
class _Index:
    """What an index says. ``weight_map`` is in the order of the index; ``metadata`` holds its string values."""

    weight_map: dict[str, str]
    metadata: dict[str, str]
    total_size: int | None


def _read_index(file: File) -> _Index:
    """Parse and check an index: bounded, no duplicate names, shard names that stay within the folder."""
    path = file.path
    if file.size > MAX_INDEX:
        raise LimitExceeded("the index is too large", file=path, expected=f"at most {MAX_INDEX} bytes", found=file.size)
    document = strict_json.loads(file.read(0, file.size), what="the index", file=path)
    if not isinstance(document, Pairs):
        raise Corrupt("the index is not a JSON object", file=path, expected="object", found=type_name(document))
    twice = document.duplicate()
    if twice is not None:
        raise Corrupt(f"the key {twice!r} comes twice in the index", file=path)
    fields = dict(document)
    weight_map, extra = fields.get("weight_map"), fields.get("metadata", Pairs())
    if not isinstance(weight_map, Pairs):
        found = type_name(weight_map) if "weight_map" in fields else "none"
        raise Corrupt("the index has no weight_map", file=path, expected="an object: tensor -> file", found=found)
    twice = weight_map.duplicate()
    if twice is not None:
        raise Corrupt("a tensor comes twice in the index", file=path, tensor=twice)
    shards: dict[str, str] = {}
    for name, shard in weight_map:
        if not isinstance(shard, str):
            found = type_name(shard)
            raise Corrupt("a shard's name is no string", file=path, tensor=name, expected="string", found=found)
        shards[name] = shard
    metadata: dict[str, str] = {}
    total: int | None = None
    if isinstance(extra, Pairs):
        twice = extra.duplicate()
        if twice is not None:
            raise Corrupt(f"the metadata key {twice!r} comes twice in the index", file=path)
        for key, value in extra:
            if isinstance(value, str):
                metadata[key] = value
            elif key == "total_size" and isinstance(value, int):
                total = value
    return _Index(shards, metadata, total)


def shard_path(folder: str, name: str, index: str) -> str:
    """The path of shard ``name``; Corrupt when the name leads out of the folder.

    A plain file name may be a symbolic link to anywhere: the link is part of the reader's own disk (the Hub cache is
    made of such links), and the index cannot aim it. A name with folders in it must end, links followed, within the
    folder.
    """
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or ":" in parts[0] or any(p in ("", ".", "..") for p in parts):
        raise Corrupt(
            "the index names a shard outside its folder", file=index, found=name[:200],
            expected="a file name beside the index", hint="never trust a model that tries this",
        )  # fmt: skip
    path = os.path.join(folder, *parts)
    if len(parts) > 1:
        root = os.path.realpath(folder)
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise Corrupt(
                "the index names a shard that links lead out of its folder", file=index, found=name[:200],
                expected=f"a file within {root}",
            )  # fmt: skip
    return path


def _read_sharded(head: Head, options: ReadOptions) -> Weights:
    index = _read_index(head.file)
    folder = os.path.dirname(head.path)
    names = sorted(set(index.weight_map.values()))
    paths = {name: shard_path(folder, name, head.path) for name in names}
    missing = [name for name in names if not os.path.exists(paths[name])]
    if missing:
        raise Unreadable(
            f"{len(missing)} of {len(names)} shards are missing", file=head.path,
            expected=f"{len(names)} files beside the index", found=f"no {', '.join(missing[:20])}",
            hint="download the model again, whole",
        )  # fmt: skip

    weights = Weights({}, "safetensors", files=(head.path, *paths.values()), metadata=dict(index.metadata))
    stored: dict[str, dict[str, TensorView]] = {}
    for name in names:
        file = File(paths[name])
        header = st.read_header(file, repair=options.repair)
        stored[name] = {entry.name: _view(file, header, entry) for entry in header.tensors}
        weights.notes += _remarks(header, f"{name}: ")
        for key, value in header.metadata.items():
            if weights.metadata.setdefault(key, value) != value:
                weights.notes.append(f"metadata {key!r} differs between shards: {name} has another value, left out")

    ties: list[str] = []
    for tensor, shard in index.weight_map.items():
        view = stored[shard].get(tensor)
        if view is not None:
            weights.tensors[tensor] = view
        elif weights.metadata.get(tensor) in index.weight_map:
            ties.append(tensor)  # the index names a tied tensor too; it is restored below
        else:
            elsewhere = [other for other in names if tensor in stored[other]]
            raise Corrupt(
                "a tensor is not in the shard that the index names", file=paths[shard], tensor=tensor,
                expected=f"in {shard}", found=f"in {', '.join(elsewhere)}" if elsewhere else "in no shard",
            )  # fmt: skip
    for shard in names:
        for tensor, view in stored[shard].items():
            if index.weight_map.get(tensor) != shard:
                weights.dropped.append(Dropped(f"{shard}:{tensor}", f"unindexed: {shard}:{tensor}", view.nbytes))
    total = sum(t.nbytes for t in weights)
    if index.total_size is not None and index.total_size != total:
        weights.notes.append(f"the index says total_size {index.total_size}; its tensors have {total} bytes")
    _restore_aliases(weights)
    for tensor in ties:
        if tensor not in weights.tensors:
            raise Corrupt(
                "a tensor is not in the shard that the index names", file=paths[index.weight_map[tensor]],
                tensor=tensor, expected=f"in {index.weight_map[tensor]}", found="in no shard",
            )  # fmt: skip
    return weights
