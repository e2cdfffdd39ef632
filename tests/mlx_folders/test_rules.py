"""What the rules say of config.json: every key that is known is read, used, fixed or changes nothing; ties; groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Akit
from safetensors.numpy import save_file
from tiny_models import config, tensors, write

from artifactkit import mlx, registry
from artifactkit.errors import UsageError
from artifactkit.modeling.config import OFF
from artifactkit.modeling.rope import READS

FAMILIES = {name: arch for name, arch in registry.architectures().items() if arch.mlx is not None}


@pytest.mark.parametrize("name", FAMILIES)
def test_no_key_that_is_known_is_passed_over(name: str) -> None:
    arch = FAMILIES[name]
    assert arch.mlx is not None
    rope = set(READS) if arch.mlx.rope is not None else set()
    told = arch.mlx.known() | arch.inert | set(arch.aliases) | rope | {arch.layers}
    assert arch.known_keys() - told - OFF.keys() == set()


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_fixed_has_its_default_among_the_allowed(name: str) -> None:
    arch = FAMILIES[name]
    assert arch.mlx is not None
    for key, allowed in arch.mlx.fixed.items():
        if key in arch.defaults and key != "norm_topk_prob":
            assert arch.defaults[key] in allowed, key


def folder(tmp_path: Path, arrays: dict[str, np.ndarray], **more: object) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**config("llama"), **more}), encoding="utf-8")
    save_file(arrays, path / "model.safetensors", {"format": "pt"})
    return path


def written(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
    return loaded


def test_the_rope_base_stands_where_mlx_lm_looks_for_it(tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", write("llama", tmp_path / "model"), "out", "-t", "mlx")
    assert done.returncode == 0, done.stderr
    entries = written(tmp_path / "out")
    assert entries["rope_theta"] == 123456.0
    assert entries["rope_scaling"] is None
    assert entries["tie_word_embeddings"] is False


def test_a_tied_output_matrix_that_is_equal_is_dropped_and_said(tmp_path: Path, akit: Akit) -> None:
    arrays = tensors("llama")
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
    done = akit("convert", folder(tmp_path, arrays, tie_word_embeddings=True), "out", "-t", "mlx", "--json")
    assert done.returncode == 0, done.stderr
    entry = next(e for e in json.loads(done.stdout)["ledger"] if e["source"] == "lm_head.weight")
    assert entry["target"] is None
    assert "equal to model.embed_tokens.weight" in entry["detail"]


def test_a_tied_output_matrix_that_differs_stops_it(tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", folder(tmp_path, tensors("llama"), tie_word_embeddings=True), "out", "-t", "mlx")
    assert done.returncode == 2
    assert "the config says that the output matrix is the embedding, and this checkpoint holds another" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_act", "gelu"), ("mlp_gate_scale", 2.0), ("rope_scaling", {"rope_type": "dynamic", "factor": 2.0})],
)
def test_a_key_that_mlx_lm_would_pass_over_stops_it_by_name(
    key: str, value: object, tmp_path: Path, akit: Akit
) -> None:
    done = akit("convert", folder(tmp_path, tensors("llama"), **{key: value}), "out", "-t", "mlx")
    assert done.returncode == 2
    assert key in done.stderr


def test_a_single_file_is_refused(tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", write("llama", tmp_path / "model"), "out.safetensors", "-t", "mlx")
    assert done.returncode == 2
    assert "an MLX model is a folder" in done.stderr


def test_without_a_config_there_is_no_folder(tmp_path: Path, akit: Akit) -> None:
    save_file(tensors("llama"), tmp_path / "a.safetensors")
    done = akit("convert", "a.safetensors", "out", "-t", "mlx")
    assert done.returncode == 2
    assert "by its config.json" in done.stderr


def test_group_size_is_for_mlx(tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", write("llama", tmp_path / "model"), "out.gguf", "--group-size", "32")
    assert done.returncode == 2
    assert "--group-size is for MLX" in done.stderr


def test_modes_by_name() -> None:
    assert mlx.parse("Q4").entry() == {"group_size": 64, "bits": 4, "mode": "affine"}
    assert mlx.parse("nvfp4").entry() == {"group_size": 16, "bits": 4, "mode": "nvfp4"}
    with pytest.raises(UsageError, match="q7"):
        mlx.parse("q7")
    with pytest.raises(UsageError, match="no groups of 48 for q4"):
        mlx.parse("q4", 48)
