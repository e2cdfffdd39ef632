"""safetensors: one file, or shards with a Hub index (https://github.com/huggingface/safetensors, README "Format")."""

from __future__ import annotations

from ...dtypes import BY_SAFETENSORS
from ...types import Format
from .reader import read, sniff
from .reopen import reopen
from .writer import write

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
