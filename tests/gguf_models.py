"""The tiny models as GGUF files without a vocabulary, as llama.cpp takes them for ids alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tiny_models as tiny

from artifactkit.artifact import KeyValue
from artifactkit.modeling.architecture import Architecture
from artifactkit.opening import open_source
from artifactkit.placing import Progress, place
from artifactkit.registry import get
from artifactkit.translate import plan
from artifactkit.types import ReadOptions, WriteOptions


def gguf_of(source: Path, target: Path) -> Architecture:
    """Writes the model in ``source``, a folder of ``tiny.write``, to ``target``; its family."""
    weights = open_source(str(source), None, ReadOptions()).weights
    arch, made = plan(tiny.config(source.name), weights)
    made.keyvalues += (KeyValue("tokenizer.ggml.model", "string", "no_vocab"),)
    write = get("gguf").write
    assert write is not None
    [file] = write(made, WriteOptions(target.name))
    place(file, str(target), Progress(), None, str(target))
    return arch


def ids(count: int = 150, rows: int = 1) -> np.ndarray:
    return np.random.default_rng(5).integers(3, 260, (rows, count))
