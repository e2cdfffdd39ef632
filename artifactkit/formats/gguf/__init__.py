"""GGUF: one file, or the split files of llama-gguf-split (ggml, docs/gguf.md; llama.cpp, tools/gguf-split)."""

from __future__ import annotations

from ...dtypes import ALL
from ...ggml import float32_only
from ...types import Format
from .reader import read, sniff
from .reopen import reopen
from .writer import write

FORMAT = Format(
    name="gguf",
    kind="weights",
    title="GGUF, llama.cpp's format, one file or split",
    suffixes=(".gguf",),
    sniff=sniff,
    read=read,
    write=write,
    dtypes=frozenset(d.name for d in ALL if d.ggml is not None),
    extra="gguf",
    modules=("libgguf",),
    folder=True,
    keeps_metadata=False,
    keeps_summary=True,
    keeps_keyvalues=True,
    splits_folders=False,
    float32_only=float32_only,
    reopen=reopen,
    reopened_by="libgguf",
)
