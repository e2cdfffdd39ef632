"""Matrices in groups: what is asked and got, what is refused, and what a quantised folder can say wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Akit
from mlx_models import small as model
from safetensors.numpy import load_file, save_file

from artifactkit import mlx
from artifactkit.dtypes import BY_NAME
from artifactkit.source import Inline, read_all

pytest.importorskip("mlx.core")


def quantization(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "config.json").read_text(encoding="utf-8"))["quantization"]
    return found


def test_rows_that_are_no_whole_groups_get_smaller_ones_and_it_is_said(tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", model(tmp_path), "out", "-t", "mlx", "--quantize", "q4")
    assert done.returncode == 0, done.stderr
    assert "asked q4 in groups of 64, got q4 in groups of 32: rows of 96" in done.stdout
    assert "bits a weight" in done.stdout
    found = quantization(tmp_path / "out")
    assert found["model.layers.0.mlp.down_proj"] == {"group_size": 32, "bits": 4, "mode": "affine"}
    assert (found["group_size"], found["bits"], found["mode"]) == (64, 4, "affine")


def test_rows_that_no_group_fits_are_kept_and_it_is_said(tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", model(tmp_path, width=80), "out", "-t", "mlx", "--quantize", "q4")
    assert done.returncode == 0, done.stderr
    assert "got f32: rows of 80 are no whole groups" in done.stdout
    assert "model.embed_tokens.scales" not in load_file(tmp_path / "out" / "model.safetensors")


def test_strict_refuses_before_anything_is_written(tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", model(tmp_path), "out", "-t", "mlx", "--quantize", "q4", "--strict")
    assert done.returncode == 1
    assert "--strict: asked q4 in groups of 64" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_refused_by_row(value: float, tmp_path: Path, akit: Akit) -> None:
    done = akit("convert", model(tmp_path, hurt=value), "out", "-t", "mlx", "--quantize", "q4")
    assert done.returncode == 1
    assert "model.layers.1.mlp.up_proj.weight" in done.stderr
    assert "row 5, element 7" in done.stderr
    assert not (tmp_path / "out").exists()


def test_quantising_twice_is_refused(tmp_path: Path, akit: Akit) -> None:
    assert akit("convert", model(tmp_path), "once", "-t", "mlx", "--quantize", "q8").returncode == 0
    done = akit("convert", "once", "twice", "-t", "mlx", "--quantize", "q4")
    assert done.returncode == 1
    assert "quantised before: errors would add up" in done.stderr
    assert akit("convert", "once", "twice", "-t", "mlx", "--quantize", "q4", "--allow-requantize").returncode == 0


def test_a_quantised_folder_becomes_floats(tmp_path: Path, akit: Akit) -> None:
    source = model(tmp_path)
    assert akit("convert", source, "q8", "-t", "mlx", "--quantize", "q8").returncode == 0
    done = akit("convert", "q8", "back")
    assert done.returncode == 0, done.stderr
    wanted, got = load_file(source / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    assert wanted.keys() == got.keys()
    for name, array in wanted.items():
        step = (array.max() - array.min()) / 255 if array.ndim > 1 else 0
        assert float(abs(array - got[name]).max()) <= 1.01 * step + 1e-7, name  # mlx moves the ends onto whole steps
    entries = json.loads((tmp_path / "back" / "config.json").read_text(encoding="utf-8"))
    assert "quantization" not in entries


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, akit: Akit) -> None:
    source = model(tmp_path)
    for out in ("a", "b"):
        assert akit("convert", source, out, "-t", "mlx", "--quantize", "q4").returncode == 0
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": 8}, "do not fit q8 in groups of 64"), ({"bits": 7}, "a way of quantising that is not known here"),
        ({"group_size": 63}, "a way of quantising that is not known here"), ({"mode": "mxfp4"}, "not known here"),
        ({"group_size": 10**18}, "not known here"), ({"bits": True}, "not known here"), (None, "does not say how"),
    ],
)  # fmt: skip
def test_a_config_that_contradicts_the_tensors(
    change: dict[str, object] | None, words: str, tmp_path: Path, akit: Akit
) -> None:
    assert akit("convert", model(tmp_path), "q", "-t", "mlx", "--quantize", "q4").returncode == 0
    path = tmp_path / "q" / "config.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    if change is None:
        del entries["quantization"], entries["quantization_config"]
    else:
        entries["quantization"] = {**entries["quantization"], **change}
    path.write_text(json.dumps(entries), encoding="utf-8")
    done = akit("inspect", "q")
    assert done.returncode in (1, 3)
    assert words in done.stderr


@pytest.mark.parametrize("part", ["scales", "biases", "weight"])
def test_a_part_that_is_missing(part: str, tmp_path: Path, akit: Akit) -> None:
    assert akit("convert", model(tmp_path), "q", "-t", "mlx", "--quantize", "q4", "--no-statement").returncode == 0
    path = tmp_path / "q" / "model.safetensors"
    arrays = load_file(path)
    del arrays[f"lm_head.{part}"]
    save_file(arrays, path, {"format": "mlx"})
    done = akit("convert", "q", "back")
    assert done.returncode in (2, 3)
    assert "lm_head" in done.stderr


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("mode", list(mlx.MODES))
def test_reading_in_any_pieces_gives_the_same_bytes(kind: str, mode: str) -> None:
    rng = np.random.default_rng(3)
    row, rows = 128, 40
    raw = rng.standard_normal((rows, row)).astype(np.float32)
    data = (
        raw if kind == "f32" else raw.astype(np.float16) if kind == "f16" else (raw.view(np.uint32) >> 16).astype("<u2")
    )
    grouping = mlx.parse(mode)
    parts = mlx.quantized("w", Inline(data.tobytes()), BY_NAME[kind], (rows, row), grouping)
    for _, dtype, shape, source in parts:
        assert source.nbytes == dtype.nbytes(shape)
        whole, pieces = read_all(source), bytearray(source.nbytes)
        at = 0
        while at < len(pieces):
            size = min(len(pieces) - at, int(rng.integers(1, 700)))
            source.read_into(at, memoryview(pieces)[at : at + size])
            at += size
        assert bytes(pieces) == whole
    back = mlx.dequantized(tuple(p[3] for p in parts), parts[1][1], (rows, row), grouping)
    floats = np.frombuffer(read_all(back), "<f4").reshape(rows, row)
    assert np.isfinite(floats).all()
    assert float(abs(floats - raw).max()) < 2.0
