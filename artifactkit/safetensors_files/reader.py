"""Reading safetensors: a single file, or the shards that an index names.

Shards are joined as ``sharded`` joins those of every format; what is safetensors' own is how ties are recorded.
"""

from __future__ import annotations

import os
import re

from ..artifact import TensorView, Weights
from ..containers import safetensors_header as st
from ..dtypes import BY_SAFETENSORS
from ..files import File
from ..sharded import join
from ..source import FileSpan
from ..trees import exists, open_file
from ..types import HEAD, Head, ReadOptions

INDEX_SUFFIX = ".safetensors.index.json"
# A key of the metadata that says which framework the tensors are from; never the name of a tied tensor.
FORMAT_KEY = "format"
_MLX = re.compile(rb'"__metadata__"\s*:\s*\{[^{}]*"format"\s*:\s*"mlx"')
_ANY_SHARD = re.compile(rb'"([\w.-]+\.safetensors)"')
_SHARD_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")


def sniff_any(head: Head) -> bool:
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


def made_by_mlx(head: Head) -> bool:
    """Whether the metadata of a file, or of the first shard that an index names, say ``"format": "mlx"``."""
    first = head.first
    if is_index(head):
        shard = _ANY_SHARD.search(first)
        path = os.path.join(os.path.dirname(head.path), shard[1].decode()) if shard else ""
        if not path or not exists(path):
            return False
        file = open_file(path)
        first = file.read(0, min(file.size, HEAD))
    return _MLX.search(first) is not None


def is_index(head: Head) -> bool:
    """Whether the file is a Hub index of safetensors shards. (``pytorch_model.bin.index.json`` is not.)"""
    first = head.first.lstrip()
    if not first.startswith(b"{"):
        return False
    return head.path.endswith(INDEX_SUFFIX) or b'"weight_map"' in first and b'.safetensors"' in first


def read(head: Head, options: ReadOptions) -> Weights:
    """The tensors of a file, or of all shards when ``head`` is an index; both names of tied tensors come back."""
    if is_index(head):
        return join(head, lambda path: _read_stored(open_file(path), options), _restore_aliases)
    weights = _read_stored(head.file, options)
    part = _SHARD_NAME.search(os.path.basename(head.path))
    if part and part[2] != "00001":
        weights.notes.append(f"this is shard {int(part[1])} of {int(part[2])}; give the index to read all of them")
    _restore_aliases(weights)
    return weights


def _read_stored(file: File, options: ReadOptions) -> Weights:
    """The tensors that one file stores, its ties still metadata."""
    header = st.read_header(file, repair=options.repair)
    weights = Weights({}, "safetensors", files=(file.path,), metadata=header.metadata)
    for entry in header.tensors:
        weights.tensors[entry.name] = _view(file, header, entry)
    weights.notes += [f"repaired: {m}" for m in header.mended] + list(header.anomalies)
    return weights


def _view(file: File, header: st.Header, entry: st.Entry) -> TensorView:
    source = FileSpan(file, header.data_start + entry.begin, entry.end - entry.begin)
    return TensorView(entry.name, BY_SAFETENSORS[entry.dtype], entry.shape, source)


def _restore_aliases(weights: Weights) -> None:
    """Give back the names that were stored once: metadata ``{"lm_head.weight": "embed.weight"}``.

    That is how huggingface_hub records a tie. An entry counts when its value names a tensor and its key does not; it
    then leaves the metadata, where the writer puts it again.
    """
    tensors = weights.tensors
    ties = sorted(
        key for key, value in weights.metadata.items() if key != FORMAT_KEY and key not in tensors and value in tensors
    )
    for name in ties:
        kept = tensors[weights.metadata.pop(name)]
        tensors[name] = TensorView(name, kept.dtype, kept.shape, kept.source)
        weights.notes.append(f"{name} is tied to {kept.name}: stored once")
