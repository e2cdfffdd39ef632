"""Writing safetensors: the header from names, types and shapes alone; one file, or shards in the Hub's naming.

Bytes are those of the reference library for the same tensors: compact JSON padded with spaces to 8 bytes, tensors by
descending type and then by name (tensor.rs, ``prepare``). Where the library leaves the order to a hash map (metadata of
several keys), keys are sorted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from ..artifact import TensorView, Weights
from ..errors import Refused, RouteRefused, UsageError
from ..source import Inline
from ..types import SUMMARY_PREFIX, OutputFile, Part, Summary, WriteOptions

METADATA = "__metadata__"
FORMAT_KEY = "format"
MAX_HEADER = 100_000_000
DEFAULT_SHARD = 5 * 10**9  # bytes a shard of a folder, as huggingface_hub's split_torch_state_dict_into_shards

# From the least aligned to the most: tensor.rs, enum Dtype. Files are laid out from the end of this list.
ORDER = (
    "BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
    "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64",
)  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(ORDER)}
_SURROGATE = re.compile("[\ud800-\udfff]")


def write(weights: Weights, options: WriteOptions, by_library: bool = True) -> list[OutputFile]:
    """Lay out ``weights``; reads no tensor byte.

    ``by_library``: in the order that the reference library has within a file; else in the order given.

    A folder gets ``model.safetensors``, or shards of ``max_shard_size`` bytes (5 GB by default) and
    ``model.safetensors.index.json``. A file is split only when ``max_shard_size`` is given; its shards are named after
    it. Tied tensors (``weights.aliases``) are recorded in the metadata: in the header of the file that holds their
    bytes, and in the index. Raises RouteRefused for a type, name or tie that the format cannot hold.
    """
    for tensor in weights:
        _check(tensor)
    _check_aliases(weights)
    stem = "model" if options.folder else options.name.removesuffix(".safetensors")
    limit = options.max_shard_size
    if limit is not None and limit <= 0:
        raise UsageError("a shard needs a size above 0", expected="1 byte or more", found=limit)
    if limit is None and options.folder:
        limit = DEFAULT_SHARD
    shards = split(weights.tensors.values(), limit)
    ties = {name: alias.target for name, alias in weights.aliases.items()}
    metadata = _metadata(weights, options.summary)
    if len(shards) == 1:
        name = "model.safetensors" if options.folder else options.name
        return [_file(name, shards[0], {**metadata, **ties}, by_library)]

    names = [f"{stem}-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    files = []
    for i, (name, tensors) in enumerate(zip(names, shards, strict=True)):
        here = {t.name for t in tensors}
        # Loaders look at `format` in every shard. The first keeps the other metadata too, should an index key clash.
        own = metadata if i == 0 else {k: v for k, v in metadata.items() if k == FORMAT_KEY}
        files.append(_file(name, tensors, {**own, **{k: v for k, v in ties.items() if v in here}}, by_library))
    files.append(_index(f"{stem}.safetensors.index.json", names, shards, {**metadata, **ties}))
    return files


def split(tensors: Iterable[TensorView], limit: int | None) -> list[list[TensorView]]:
    """Shards of at most ``limit`` bytes, filled in the order given; a larger tensor is a shard of its own.

    The rule is huggingface_hub's (``split_state_dict_into_shards_factory``): the same model gives the same files.
    """
    shards: list[list[TensorView]] = []
    current: list[TensorView] = []
    size = 0
    for tensor in tensors:
        if limit is not None and tensor.nbytes > limit:
            shards.append([tensor])
            continue
        if limit is not None and size + tensor.nbytes > limit:
            shards.append(current)
            current, size = [], 0
        current.append(tensor)
        size += tensor.nbytes
    if current or not shards:
        shards.append(current)
    return shards


def _metadata(weights: Weights, summary: Summary | None) -> dict[str, str]:
    """The source's metadata, and the summary of where it is from, which replaces an older one.

    transformers refuses a file whose metadata does not say ``format``: pt for torch's own. An entry of the summary that
    would be read as a tied tensor is left out.
    """
    metadata = dict(weights.metadata)
    if summary is not None:
        known = summary.metadata()
        if summary.source is not None:  # what an older one says of its source does not fit the new one
            metadata = {key: value for key, value in metadata.items() if not key.startswith(SUMMARY_PREFIX)}
        metadata |= {key: value for key, value in known.items() if value not in weights.tensors}
    from_torch = weights.format.startswith(("torch", "pt2"))
    if from_torch or weights.aliases:
        metadata.setdefault(FORMAT_KEY, "pt")
    return metadata


def _check(tensor: TensorView) -> None:
    if tensor.dtype.safetensors is None:
        hint = "npz holds it (-t npz)" if tensor.dtype.name == "c128" else "leave it out with --exclude"
        raise RouteRefused(
            f"safetensors has no type for {tensor.dtype}", tensor=tensor.name, expected=", ".join(reversed(ORDER)),
            found=tensor.dtype.name, hint=hint,
        )  # fmt: skip
    if tensor.name == METADATA:
        raise RouteRefused(
            "safetensors reserves the name __metadata__", tensor=tensor.name, hint="--rename '^__metadata__$=metadata'"
        )
    if _SURROGATE.search(tensor.name):
        raise RouteRefused(
            "the name is no Unicode text, and safetensors headers are UTF-8", tensor=ascii(tensor.name),
            hint="--rename gives it another",
        )  # fmt: skip


def _check_aliases(weights: Weights) -> None:
    """What is written must be read again as it was: ties resolve, and no other metadata looks like a tie."""
    tensors = weights.tensors
    for name, alias in weights.aliases.items():
        if alias.target not in tensors or name in tensors or name in weights.metadata or name in (FORMAT_KEY, METADATA):
            raise RouteRefused(
                "the tie cannot be recorded in the metadata", tensor=name, expected="a free key and a stored tensor",
                found=f"{name} -> {alias.target}",
            )  # fmt: skip
        _check(alias.view)
    for key, value in sorted(weights.metadata.items()):
        if key != FORMAT_KEY and value in tensors and key not in tensors:
            raise RouteRefused(
                f"the metadata entry {key!r}: {value!r} would be read as a tied tensor", tensor=value,
                hint="--rename the tensor",
            )  # fmt: skip
        if _SURROGATE.search(key) or _SURROGATE.search(value):
            raise RouteRefused(f"the metadata entry {key!a} is no Unicode text")


def _file(name: str, tensors: list[TensorView], metadata: Mapping[str, str], by_library: bool) -> OutputFile:
    """One file: length, header, tensors in the library's order or as they are given."""
    ordered = sorted(tensors, key=lambda t: (-_RANK[t.dtype.safetensors or ""], t.name)) if by_library else tensors
    document: dict[str, object] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    at = 0
    for t in ordered:
        end = at + t.nbytes
        document[t.name] = {"dtype": t.dtype.safetensors, "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise Refused(
            "the header would be larger than readers accept", file=name, expected=f"at most {MAX_HEADER} bytes",
            found=len(text), hint="--max-shard-size spreads the tensors over several files",
        )  # fmt: skip
    head = Inline(len(text).to_bytes(8, "little") + text)
    parts = [Part(0, head)]
    at = head.nbytes
    for t in ordered:
        parts.append(Part(at, t.source, t.name))
        at += t.nbytes
    return OutputFile(name, at, tuple(parts))


def _index(name: str, files: list[str], shards: list[list[TensorView]], metadata: Mapping[str, str]) -> OutputFile:
    """The Hub's index: ``metadata.total_size`` in bytes, ``weight_map`` from tensor to file, keys sorted."""
    about: dict[str, object] = dict(metadata)
    about.pop(FORMAT_KEY, None)  # it is about a file, and stands in each shard
    about["total_size"] = sum(t.nbytes for tensors in shards for t in tensors)
    weight_map = {t.name: file for file, tensors in zip(files, shards, strict=True) for t in tensors}
    document = {"metadata": about, "weight_map": weight_map}
    data = json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True).encode("utf-8") + b"\n"
    return OutputFile(name, len(data), (Part(0, Inline(data)),))
