"""Every tiny model computes in llama.cpp what it computes in transformers: 150 tokens, all positions, in f32."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from conftest import ROOT, environment

from artifactkit.artifact import KeyValue
from artifactkit.opening import open_source
from artifactkit.placing import Progress, place
from artifactkit.registry import get
from artifactkit.translate import plan
from artifactkit.types import ReadOptions, WriteOptions

pytestmark = pytest.mark.slow

BOUND, GELU_BOUND = 1e-4, 1e-3  # times the greatest logit, or 1


def gguf_of(source: Path, target: Path) -> Any:
    """The model as a GGUF file without a vocabulary, as llama.cpp takes it for ids alone; and its family."""
    weights = open_source(str(source), None, ReadOptions()).weights
    arch, made = plan(tiny.config(source.name), weights)
    made.keyvalues += (KeyValue("tokenizer.ggml.model", "string", "no_vocab"),)
    write = get("gguf").write
    assert write is not None
    [file] = write(made, WriteOptions(target.name))
    place(file, str(target), Progress(), None, str(target))
    return arch


@pytest.mark.parametrize("name", tiny.MODELS)
def test_llama_cpp_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    import torch
    import transformers  # here, so that the quick tier does not wait for it

    source = tiny.write(name, tmp_path / name)
    arch = gguf_of(source, tmp_path / "x.gguf")
    ids = np.random.default_rng(5).integers(3, 260, 150)
    torch.set_num_threads(1)
    model = getattr(transformers, tiny.MODELS[name][0]).from_pretrained(source, attn_implementation="eager").eval()
    with torch.no_grad():
        out = model(torch.tensor(ids)[None])
    wanted = (out.last_hidden_state if arch.encoder else out.logits)[0].double().numpy()
    np.save(tmp_path / "ids.npy", ids.astype(np.int32))
    how = "encode" if arch.gguf == "t5encoder" else "embed" if arch.encoder else "decode"
    command = [sys.executable, str(ROOT / "tests" / "llama_child.py")]
    command += [str(tmp_path / n) for n in ("x.gguf", "ids.npy", "out.npy")] + [how]
    there = environment() | {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=there, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = np.load(tmp_path / "out.npy")
    bound = (GELU_BOUND if arch.gelu else BOUND) * max(1.0, float(np.abs(wanted).max()))
    assert float(np.abs(found - wanted).max()) <= bound
