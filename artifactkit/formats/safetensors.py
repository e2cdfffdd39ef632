"""safetensors: one file, or shards with a Hub index (https://github.com/huggingface/safetensors, README "Format")."""

from __future__ import annotations

from ..dtypes import BY_SAFETENSORS
from ..safetensors_files.reader import made_by_mlx, read, sniff_any
from ..safetensors_files.reopen import reopen
from ..safetensors_files.writer import write
from ..types import Format, Head


def sniff(head: Head) -> bool:
    """Any safetensors but those of an MLX folder, whose matrices may be quantised."""
    return sniff_any(head) and not made_by_mlx(head)


FORMAT = Format(
    name="safetensors",
    kind="weights",
    title="safetensors, one file or shards with an index",
    suffixes=(".safetensors",),
    sniff=sniff,
    read=read,
    write=write,
    dtypes=frozenset(d.name for d in BY_SAFETENSORS.values()),
    folder=True,
    keeps_aliases=True,
    keeps_summary=True,
    reopen=reopen,
    reopened_by="the safetensors library",
)
