"""Level 3, end to end: every family's good artifact passes, and no mutant of it does.

A mutant is a checkpoint that was changed, made into an artifact, and verified against the one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from conftest import Akit
from safetensors.numpy import load_file, save_file

pytestmark = pytest.mark.slow

# llama.cpp or mlx-lm computes another number of some kind than transformers: told elsewhere, not judged here.
FIRST_RING = [
    "llama", "llama_tied", "llama_llama3", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma",
    "gemma2", "gemma3", "phi3", "smollm3", "gpt2", "olmo2", "granite", "bert", "roberta", "xlm_roberta", "nomic_bert",
]  # fmt: skip


def checks(akit: Akit, artifact: str, source: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """(exit code, the checks of level 3 by name)."""
    done = akit("verify", artifact, "--against", source, "--device", "cpu", "--json", *options)
    document = json.loads(done.stdout)
    return done.returncode, {c["name"]: c for c in document["checks"] if c["level"] == "function"}


@pytest.mark.parametrize("name", FIRST_RING)
def test_a_good_gguf_file_passes(name: str, tmp_path: Path, akit: Akit) -> None:
    source = tiny.write(name, tmp_path / name)
    assert akit("convert", source, "x.gguf").returncode == 0
    code, found = checks(akit, "x.gguf", source)
    assert code == 0, found
    assert found["outputs"]["figures"]["max_abs"] <= found["outputs"]["figures"]["limit"]


def small(tmp_path: Path) -> Path:
    """A Llama with rows of 64, for types in blocks."""
    config = {**tiny.config("llama"), "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    shapes: dict[str, list[int]] = {
        "model.embed_tokens.weight": [261, 64], "model.norm.weight": [64], "lm_head.weight": [261, 64]
    }  # fmt: skip
    for b in range(3):
        at = f"model.layers.{b}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": [64, 64], f"{at}self_attn.k_proj.weight": [32, 64],
            f"{at}self_attn.v_proj.weight": [32, 64], f"{at}self_attn.o_proj.weight": [64, 64],
            f"{at}mlp.gate_proj.weight": [128, 64], f"{at}mlp.up_proj.weight": [128, 64],
            f"{at}mlp.down_proj.weight": [64, 128], f"{at}input_layernorm.weight": [64],
            f"{at}post_attention_layernorm.weight": [64],
        }  # fmt: skip
    rng = np.random.default_rng(11)
    arrays = {
        k: (1 + 0.1 * rng.standard_normal(s) if "norm" in k else 0.12 * rng.standard_normal(s)).astype(np.float32)
        for k, s in shapes.items()
    }
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder


Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]
Q, K = "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight"


def rope_base(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    config["rope_parameters"] = {**config["rope_parameters"], "rope_theta": 10000.0}


def rope_scaling(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    config["rope_parameters"] = {**config["rope_parameters"], "rope_type": "linear", "factor": 2.0}


def epsilon(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    config["rms_norm_eps"] = 1e-3


def heads_permuted(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays[Q] = arrays[Q].reshape(4, 16, 64)[[1, 0, 2, 3]].reshape(64, 64).copy()


def pairs_permuted(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """As llama.cpp's row order applied twice."""
    for name, heads in ((Q, 4), (K, 2)):
        arrays[name] = arrays[name].reshape(heads, 2, 8, 64).swapaxes(1, 2).reshape(heads * 16, 64).copy()


def one_matrix_off(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["model.layers.2.mlp.up_proj.weight"] *= np.float32(1.02)


def layers_swapped(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    for name in [n for n in arrays if ".layers.0." in n]:
        other = name.replace(".layers.0.", ".layers.1.")
        arrays[name], arrays[other] = arrays[other], arrays[name]


def norm_offset(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["model.layers.0.input_layernorm.weight"] += np.float32(1)


def gate_and_up_swapped(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    gate, up = (f"model.layers.0.mlp.{n}_proj.weight" for n in ("gate", "up"))
    arrays[gate], arrays[up] = arrays[up], arrays[gate]


def not_a_number(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["model.layers.2.input_layernorm.weight"][3] = np.nan


def vocabulary_cut(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    config["vocab_size"] = 260
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        arrays[name] = arrays[name][:260].copy()


def head_tied(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    config["tie_word_embeddings"] = True
    del arrays["lm_head.weight"]


CONFIG = [rope_base, rope_scaling, epsilon]
WEIGHTS = [
    heads_permuted, pairs_permuted, one_matrix_off, layers_swapped, norm_offset, gate_and_up_swapped, not_a_number,
    vocabulary_cut, head_tied,
]  # fmt: skip


def mutant(source: Path, change: Change, folder: Path) -> Path:
    folder.mkdir()
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    arrays = {name: array.copy() for name, array in load_file(source / "model.safetensors").items()}
    change(config, arrays)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder


TARGETS = {
    "f32.gguf": ("x.gguf",), "q8_0.gguf": ("x.gguf", "--quantize", "q8_0"),
    "q4_0.gguf": ("x.gguf", "--quantize", "q4_0"), "f16.gguf": ("x.gguf", "--dtype", "f16"),
    "mlx": ("x", "-t", "mlx"), "mlx q8": ("x", "-t", "mlx", "--quantize", "q8"),
    "mlx bf16": ("x", "-t", "mlx", "--dtype", "bf16"),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_the_good_one_passes_in_every_type(target: str, tmp_path: Path, akit: Akit) -> None:
    source = small(tmp_path)
    name, *options = TARGETS[target]
    assert akit("convert", source, name, *options).returncode == 0
    code, found = checks(akit, name, source)
    assert code == 0, found
    if target not in ("f32.gguf", "mlx"):
        assert found["loss"]["figures"]["kl_mean"] >= 0
        assert "against the source" in found["loss"]["detail"]


@pytest.mark.parametrize("change", CONFIG, ids=lambda c: c.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_no_mutant_of_the_config_survives(target: str, change: Change, tmp_path: Path, akit: Akit) -> None:
    """In whatever type: its own numbers are what the reference is given, and the source's config."""
    source = small(tmp_path)
    name, *options = TARGETS[target]
    assert akit("convert", mutant(source, change, tmp_path / "other"), name, *options, "--no-statement").returncode == 0
    code, found = checks(akit, name, source)
    assert code == 1
    verdicts = [found[what]["status"] for what in ("outputs", "structure", "fidelity") if what in found]
    assert verdicts == ["failed"], found


@pytest.mark.parametrize("change", WEIGHTS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("target", ["f32.gguf", "mlx"])
def test_no_mutant_of_the_weights_survives(target: str, change: Change, tmp_path: Path, akit: Akit) -> None:
    source = small(tmp_path)
    name, *options = TARGETS[target]
    done = akit("convert", mutant(source, change, tmp_path / "other"), name, *options, "--no-statement")
    assert done.returncode == 0, done.stderr
    code, found = checks(akit, name, source)
    assert code == 1
    assert any(c["status"] == "failed" for c in found.values()), found


def test_a_limit_of_the_users_own(tmp_path: Path, akit: Akit) -> None:
    source = small(tmp_path)
    assert akit("convert", source, "x.gguf", "--quantize", "q4_0").returncode == 0
    code, found = checks(akit, "x.gguf", source, "--max-kl", "1e-9")
    assert code == 1
    assert found["loss"]["status"] == "failed"
    assert "KL above 1e-09" in found["loss"]["detail"]
    assert found["structure"]["status"] == "passed"
    code, found = checks(akit, "x.gguf", source, "--max-kl", "10")
    assert code == 0


def test_a_device_that_is_not_here_is_not_verified(tmp_path: Path, akit: Akit) -> None:
    source = small(tmp_path)
    assert akit("convert", source, "x.gguf").returncode == 0
    done = akit("verify", "x.gguf", "--against", source, "--device", "cuda:0", "--device", "metal")
    assert done.returncode == 1
    assert done.stdout.count("not-verified") == 2
    done = akit("verify", "x.gguf", "--against", source, "--device", "gpu@cpu")
    assert done.returncode == 2
    assert "no runtime is called 'gpu'" in done.stderr


def test_what_the_budget_drops_is_listed(tmp_path: Path, akit: Akit) -> None:
    source = small(tmp_path)
    assert akit("convert", source, "x.gguf").returncode == 0
    code, found = checks(akit, "x.gguf", source, "--budget", "0.001s")
    assert code == 1
    assert "no input was run" in found["inputs"]["detail"]
    done = akit("verify", "x.gguf", "--against", source, "--device", "cpu", "--budget", "soon")
    assert done.returncode == 2


def test_samples_of_the_user_and_llama_cpps_defaults(tmp_path: Path, akit: Akit) -> None:
    source = small(tmp_path)
    assert akit("convert", source, "x.gguf").returncode == 0
    (tmp_path / "mine.jsonl").write_text('{"input_ids": [5, 6, 7, 8]}\n', encoding="utf-8")
    done = akit(
        "verify", "x.gguf", "--against", source, "--device", "cpu", "--device", "llamacpp/defaults@cpu", "--inputs",
        "mine.jsonl", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = [c for c in json.loads(done.stdout)["checks"] if c["level"] == "function"]
    assert {c["device"] for c in found} == {"cpu", "llamacpp/defaults@cpu"}
    assert any("kv_types f16, f16" in c["detail"] for c in found)
    assert all("line 1" in c["detail"] for c in found if c["name"] == "ran")


def test_a_checkpoint_without_a_config_has_no_reference(tmp_path: Path, akit: Akit) -> None:
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "a.safetensors")
    assert akit("convert", "a.safetensors", "b.npz").returncode == 0
    done = akit("verify", "b.npz", "--against", "a.safetensors", "--device", "cpu")
    assert done.returncode == 1
    assert "config.json says which model it is" in done.stdout
