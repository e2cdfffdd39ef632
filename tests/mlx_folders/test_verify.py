"""``verify`` of an MLX folder against the checkpoint: names, values within what groups can hold, and faults found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from conftest import Akit
from mlx_models import small as model
from safetensors.numpy import load_file, save_file

from artifactkit import mlx
from artifactkit.artifact import TensorView
from artifactkit.dtypes import BY_NAME
from artifactkit.source import Inline
from artifactkit.verify.groups import grouped

pytest.importorskip("mlx.core")


@pytest.mark.parametrize("name", ["llama_tied", "mixtral", "qwen3_moe", "granite", "qwen2_moe_tied"])
def test_a_folder_of_floats_holds_every_value(name: str, tmp_path: Path, akit: Akit) -> None:
    source = tiny.write(name, tmp_path / "model")
    assert akit("convert", source, "out", "-t", "mlx").returncode == 0
    done = akit("verify", "out", "--against", source)
    assert done.returncode == 0, done.stdout
    assert "bit for bit" in done.stdout
    done = akit("verify", source, "--against", "out")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("mode", ["q2", "q3", "q4", "q5", "q6", "q8", "mxfp4", "mxfp8", "nvfp4"])
def test_groups_are_within_what_they_can_hold(mode: str, tmp_path: Path, akit: Akit) -> None:
    source = model(tmp_path)
    assert akit("convert", source, "out", "-t", "mlx", "--quantize", mode).returncode == 0
    done = akit("verify", "out", "--against", source)
    assert done.returncode == 0, done.stdout
    assert f"within the ceiling of {mode}" in done.stdout


@pytest.mark.parametrize(
    "fault", ["rows swapped", "scale off", "another layer", "bits turned"],
)  # fmt: skip
def test_faults_are_found(fault: str, tmp_path: Path, akit: Akit) -> None:
    source = model(tmp_path)
    assert akit("convert", source, "out", "-t", "mlx", "--quantize", "q4", "--no-statement").returncode == 0
    path = tmp_path / "out" / "model.safetensors"
    arrays = load_file(path)
    q = "model.layers.0.self_attn.q_proj."
    if fault == "rows swapped":
        arrays[q + "weight"] = arrays[q + "weight"][::-1].copy()
    elif fault == "scale off":
        arrays[q + "scales"][3] *= 2
    elif fault == "another layer":
        for part in ("weight", "scales", "biases"):
            arrays[q + part] = arrays[q.replace("layers.0", "layers.1") + part]
    else:
        arrays[q + "weight"] ^= np.uint32(0xFFFFFFFF)
    save_file(arrays, path, {"format": "mlx"})
    done = akit("verify", "out", "--against", source)
    assert done.returncode == 1
    assert "q_proj.weight" in done.stdout


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("mode", list(mlx.MODES))
def test_the_ceilings_hold_for_values_of_every_kind(kind: str, mode: str) -> None:
    """Heavy tails, few values, one sign, tiny and large ones."""
    rng = np.random.default_rng(7)
    grouping = mlx.parse(mode)
    for raw in (
        rng.standard_normal((16, 256)), rng.standard_cauchy((16, 256)).clip(-1e3, 1e3), rng.random((16, 256)),
        -rng.random((16, 256)) - 5, rng.standard_normal((16, 256)) * 1e-4, rng.integers(-1, 2, (16, 256)) * 0.5,
        rng.standard_normal((16, 256)) * (rng.random((16, 256)) < 0.02), np.zeros((16, 256)), np.ones((16, 256)),
        rng.laplace(size=(16, 256)) ** 3,
    ):  # fmt: skip
        wide = raw.astype(np.float32)
        data = {"f32": wide, "f16": wide.astype(np.float16), "bf16": (wide.view(np.uint32) >> 16).astype("<u2")}[kind]
        dtype = BY_NAME[kind]
        parts = mlx.quantized("w", Inline(data.tobytes()), dtype, (16, 256), grouping)
        source = mlx.dequantized(tuple(p[3] for p in parts), parts[1][1], (16, 256), grouping)
        have = TensorView("w", BY_NAME["f32"], (16, 256), source)
        way, wrong = grouped(TensorView("w", dtype, (16, 256), Inline(data.tobytes())), have, source, lambda n: None)
        assert wrong is None, (way, wrong)
