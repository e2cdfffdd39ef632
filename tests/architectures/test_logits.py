"""Every tiny model computes in llama.cpp what it computes in transformers: 150 tokens, all positions, in f32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from gguf_models import gguf_of, ids

from artifactkit.registry import runners
from artifactkit.types import Device, Loadable, RunOptions

pytestmark = pytest.mark.slow

BOUND, GELU_BOUND = 1e-4, 1e-3  # times the greatest logit, or 1


@pytest.mark.parametrize("name", tiny.MODELS)
def test_llama_cpp_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    import torch
    import transformers  # here, so that the quick tier does not wait for it

    source = tiny.write(name, tmp_path / name)
    arch = gguf_of(source, tmp_path / "x.gguf")
    torch.set_num_threads(1)
    model = getattr(transformers, tiny.MODELS[name][0]).from_pretrained(source, attn_implementation="eager").eval()
    with torch.no_grad():
        out = model(torch.tensor(ids()))
    wanted = (out.last_hidden_state if arch.encoder else out.logits).double().numpy()
    session = runners()["llamacpp"].load(Loadable(str(tmp_path / "x.gguf")), Device("cpu"), RunOptions())
    [found] = session.run({"input_ids": ids()}).values()
    session.close()
    bound = (GELU_BOUND if arch.gelu else BOUND) * max(1.0, float(np.abs(wanted).max()))
    assert float(np.abs(found - wanted).max()) <= bound
