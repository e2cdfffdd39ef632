"""Every family that mlx-lm knows: transformers -> MLX folder -> mlx-lm, logits compared, over more than 100 tokens.

The rope bases are unusual, and nothing in config.json is mlx-lm's default: what it would read wrongly shows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Akit
from mlx_models import DECODERS, REFUSED, RUN, build, config

pytestmark = pytest.mark.slow
CHILD = ROOT / "tests" / "mlx_child.py"
LENGTH = 150
# Where mlx-lm computes another form of GELU than the model (told as a loss).
OTHER_GELU = {"gemma", "starcoder2", "gpt_neox", "gpt_neox_serial"}


def ids(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 250, (2, LENGTH))


def by_transformers(folder: Path) -> np.ndarray:
    import torch
    import transformers

    torch.set_num_threads(1)
    model_class = getattr(transformers, config(folder)["architectures"][0])
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor(ids())).logits.numpy()
    return logits


def by_mlx(folder: Path, tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "ids.npy", ids())
    command = [sys.executable, str(CHILD), str(folder), str(tmp_path / "ids.npy"), str(tmp_path / "logits.npy")]
    subprocess.run(command, check=True, capture_output=True)
    found: np.ndarray = np.load(tmp_path / "logits.npy")
    return found


@pytest.mark.parametrize("name", RUN)
def test_mlx_lm_computes_what_transformers_computes(name: str, tmp_path: Path, akit: Akit) -> None:
    model = build(name, tmp_path / "model")
    done = akit("convert", model, tmp_path / "mlx", "-t", "mlx")
    assert done.returncode == 0, done.stderr
    wanted, got = by_transformers(model), by_mlx(tmp_path / "mlx", tmp_path)
    bound = (1e-3 if name in OTHER_GELU else 1e-4) * max(1.0, float(abs(wanted).max()))
    assert float(abs(got - wanted).max()) <= bound
    told = "mlx-lm computes GELU" in done.stdout
    assert told == (name in OTHER_GELU)


@pytest.mark.parametrize("name", RUN)
def test_the_way_back_gives_every_tensor(name: str, tmp_path: Path, akit: Akit) -> None:
    model = build(name, tmp_path / "model")
    assert akit("convert", model, tmp_path / "mlx", "-t", "mlx").returncode == 0
    assert akit("convert", tmp_path / "mlx", tmp_path / "back").returncode == 0
    done = akit("diff", model, tmp_path / "back")
    assert done.returncode == 0, done.stdout
    assert np.array_equal(by_transformers(model), by_transformers(tmp_path / "back"))


# How --quantize calls it, and mlx-lm's mode, bits and group size.
MODES = {
    "q2": ("affine", 2, 128), "q3": ("affine", 3, 64), "q4": ("affine", 4, 64), "q5": ("affine", 5, 32),
    "q6": ("affine", 6, 64), "q8": ("affine", 8, 32), "mxfp4": ("mxfp4", 4, 32), "nvfp4": ("nvfp4", 4, 16),
    "mxfp8": ("mxfp8", 8, 32),
}  # fmt: skip
SMALL = {"hidden_size": 64, "intermediate_size": 128}
EXPERTS = {"moe_intermediate_size": 64}
FAMILIES: dict[str, dict[str, object]] = {
    "llama_tied": {"hidden_size": 128, "intermediate_size": 256}, "qwen3": SMALL, "qwen3_moe": {**SMALL, **EXPERTS},
    "mixtral": SMALL, "qwen2_moe": {**SMALL, **EXPERTS, "shared_expert_intermediate_size": 64}, "granite": SMALL,
    "gpt2": {"n_embd": 64}, "gpt_neox": {"hidden_size": 64, "intermediate_size": 256}, "cohere": SMALL, "gemma": SMALL,
    "deepseek_v2": {**SMALL, **EXPERTS, "q_lora_rank": 64, "kv_lora_rank": 64},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "quantize"),
    [*(("llama_tied", mode) for mode in MODES), *((name, mode) for name in FAMILIES if name != "llama_tied"
       for mode in ("q4", "mxfp4"))],
)  # fmt: skip
def test_groups_are_those_of_mlx_lm(name: str, quantize: str, tmp_path: Path, akit: Akit) -> None:
    """mlx-lm converts our unquantised folder, whose config it reads rightly; then each tensor has to be the same."""
    mode, bits, group = MODES[quantize]
    from safetensors import safe_open

    model = build(name, tmp_path / "model", **FAMILIES[name])
    assert akit("convert", model, tmp_path / "plain", "-t", "mlx").returncode == 0
    command = [
        sys.executable, str(CHILD), str(tmp_path / "plain"), "-", str(tmp_path / "theirs"), "convert", mode, str(bits),
        str(group),
    ]  # fmt: skip
    theirs = subprocess.run(command, capture_output=True, text=True, check=False)
    assert theirs.returncode == 0, theirs.stderr
    done = akit("convert", model, tmp_path / "ours", "-t", "mlx", "--quantize", quantize, "--group-size", str(group))
    assert done.returncode == 0, done.stderr
    with (
        safe_open(tmp_path / "theirs" / "model.safetensors", framework="pt") as wanted,
        safe_open(tmp_path / "ours" / "model.safetensors", framework="pt") as got,
    ):
        assert set(got.keys()) == set(wanted.keys())
        for tensor in wanted.keys():  # noqa: SIM118
            assert bool((got.get_tensor(tensor) == wanted.get_tensor(tensor)).all()), tensor
    ours, other = config(tmp_path / "ours")["quantization"], config(tmp_path / "theirs")["quantization"]
    assert {k: v for k, v in ours.items() if not isinstance(v, dict)} == {
        "mode": "affine", **{k: v for k, v in other.items() if not isinstance(v, dict)}
    }  # fmt: skip
    by_mlx(tmp_path / "ours", tmp_path)  # it loads


@pytest.mark.parametrize("name", sorted(set(REFUSED)))
def test_what_mlx_lm_does_not_compute_is_refused_in_words(name: str, tmp_path: Path, akit: Akit) -> None:
    from tiny_models import write

    done = akit("convert", write(name, tmp_path / "model"), tmp_path / "mlx", "-t", "mlx")
    assert done.returncode == 2
    assert REFUSED[name] in done.stderr
    assert not (tmp_path / "mlx").exists()


def test_none_is_left_out() -> None:
    assert set(DECODERS) == set(RUN) | set(REFUSED)
