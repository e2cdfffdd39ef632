"""Sharded checkpoints: an index names, for each tensor, the shard that holds it (the Hub's ``*.index.json``).

An index is read strictly: a tensor comes from the shard that the index names and from no other. Other readers load
every tensor of every shard, so that a stale copy in a re-used shard can win.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from . import trees
from .artifact import Dropped, TensorView, Weights
from .containers import strict_json
from .containers.strict_json import duplicate, type_name
from .errors import Corrupt, LimitExceeded, Unreadable
from .files import File
from .types import Head

SHARD = re.compile(r"^(.*)-\d{5}-of-\d{5}(?=\.[^.]+$)")  # the Hub's naming
INDEX_SUFFIX = ".index.json"
MAX_INDEX = 100_000_000  # bytes, as the safetensors library bounds a header


def is_index(head: Head) -> bool:
    """Whether the file is an index of shards, of whatever format: a JSON object with a ``weight_map``."""
    return head.first.lstrip().startswith(b"{") and (head.path.endswith(INDEX_SUFFIX) or b'"weight_map"' in head.first)


@dataclass(slots=True)
class Index:
    """What an index says. ``weight_map`` is in the order of the index; ``metadata`` holds its string values."""

    weight_map: dict[str, str]
    metadata: dict[str, str]
    total_size: int | None


def read_index(file: File) -> Index:
    """Parse and check an index: bounded, no duplicate names, shard names that stay within the folder."""
    path = file.path
    if file.size > MAX_INDEX:
        raise LimitExceeded("the index is too large", file=path, expected=f"at most {MAX_INDEX} bytes", found=file.size)
    document = strict_json.loads(file.read(0, file.size), what="the index", file=path)
    if not isinstance(document, dict):
        raise Corrupt("the index is not a JSON object", file=path, expected="object", found=type_name(document))
    twice = duplicate(document)
    if twice is not None:
        raise Corrupt(f"the key {twice!r} comes twice in the index", file=path)
    weight_map, extra = document.get("weight_map"), document.get("metadata")
    if not isinstance(weight_map, dict):
        found = type_name(weight_map) if "weight_map" in document else "none"
        raise Corrupt("the index has no weight_map", file=path, expected="an object: tensor -> file", found=found)
    twice = duplicate(weight_map)
    if twice is not None:
        raise Corrupt("a tensor comes twice in the index", file=path, tensor=twice)
    shards: dict[str, str] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str):
            found = type_name(shard)
            raise Corrupt("a shard's name is no string", file=path, tensor=name, expected="string", found=found)
        shards[name] = shard
    metadata: dict[str, str] = {}
    total: int | None = None
    if isinstance(extra, dict):
        twice = duplicate(extra)
        if twice is not None:
            raise Corrupt(f"the metadata key {twice!r} comes twice in the index", file=path)
        for key, value in extra.items():
            if isinstance(value, str):
                metadata[key] = value
            elif key == "total_size" and isinstance(value, int):
                total = value
    return Index(shards, metadata, total)


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
        if trees.find(folder) is None and os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise Corrupt(
                "the index names a shard that links lead out of its folder", file=index, found=name[:200],
                expected=f"a file within {root}",
            )  # fmt: skip
    return path


def _unnamed(head: Head, names: list[str]) -> list[str]:
    """The files beside the index that are shards by their names, and that it does not name."""
    stems = {match[1] for name in names if (match := SHARD.search(name))}
    try:
        beside = trees.listing(os.path.dirname(head.path))
    except Unreadable:
        return []
    return [b for b in beside if b not in names and (match := SHARD.search(b)) and match[1] in stems]


def join(
    head: Head,
    read_shard: Callable[[str], Weights],
    restore_ties: Callable[[Weights], None] | None = None,
) -> Weights:
    """The tensors that the index at ``head`` names, each from its own shard.

    ``read_shard`` gives the tensors *stored* in the shard at a path; ``restore_ties`` then adds to the whole the names
    that are recorded as tied. What the shards hold beyond the index is listed as dropped. Raises Unreadable when a
    shard is missing, and Corrupt when a tensor is not where the index says.
    """
    index = read_index(head.file)
    folder = os.path.dirname(head.path)
    names = sorted(set(index.weight_map.values()))
    paths = {name: shard_path(folder, name, head.path) for name in names}
    missing = [name for name in names if not trees.exists(paths[name])]
    if missing:
        raise Unreadable(
            f"{len(missing)} of {len(names)} shards are missing", file=head.path,
            expected=f"{len(names)} files beside the index", found=f"no {', '.join(missing[:20])}",
            hint="download the model again, whole",
        )  # fmt: skip

    weights = Weights({}, "", files=(head.path, *paths.values()), metadata=dict(index.metadata))
    stored: dict[str, dict[str, TensorView]] = {}
    for name in names:
        shard = read_shard(paths[name])
        stored[name] = shard.tensors
        weights.format = weights.format or shard.format
        weights.dropped += shard.dropped
        weights.skipped += shard.skipped
        weights.code += [c for c in shard.code if c not in weights.code]
        weights.losses += shard.losses
        weights.notes += [f"{name}: {note}" for note in shard.notes]
        for key, value in shard.metadata.items():
            if weights.metadata.setdefault(key, value) != value:
                weights.notes.append(f"metadata {key!r} differs between shards: {name} has another value, left out")
    for tensor, shard_name in index.weight_map.items():
        view = stored[shard_name].get(tensor)
        if view is not None:
            weights.tensors[tensor] = view
    total = sum(t.nbytes for t in weights)  # as stored: a tied tensor counts once
    if restore_ties is not None:
        restore_ties(weights)
    for tensor, shard_name in index.weight_map.items():
        if tensor not in weights.tensors:
            elsewhere = [other for other in names if tensor in stored[other]]
            raise Corrupt(
                "a tensor is not in the shard that the index names", file=paths[shard_name], tensor=tensor,
                expected=f"in {shard_name}", found=f"in {', '.join(elsewhere)}" if elsewhere else "in no shard",
            )  # fmt: skip
    for shard_name in names:
        for tensor, view in stored[shard_name].items():
            if index.weight_map.get(tensor) != shard_name:
                where = f"{shard_name}:{tensor}"
                weights.dropped.append(Dropped(where, f"unindexed: {where}", view.nbytes))
    weights.notes += [f"the index names no tensor of {other}, which lies beside it" for other in _unnamed(head, names)]
    if index.total_size is not None and index.total_size != total:
        weights.notes.append(f"the index says total_size {index.total_size}; its tensors have {total} bytes")
    return weights
