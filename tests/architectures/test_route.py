"""From a folder to a GGUF file and back as a user does it, and both judged against each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from safetensors.numpy import load_file, save_file

from artifactkit.artifact import KeyValue
from artifactkit.errors import Corrupt, LimitExceeded, Refused, RouteRefused
from artifactkit.opening import open_source
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.translate import in_words_of
from artifactkit.types import ReadOptions
from artifactkit.verify.compare import compare


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.write("mixtral", tmp_path / "model")


def convert(source: Path, destination: Path, **options: object) -> None:
    chosen = replace(ConvertOptions(), **options)  # type: ignore[arg-type]
    execute(plan(str(source), str(destination), chosen), chosen)


@pytest.mark.parametrize("name", ["mixtral", "gemma3", "gpt2", "deepseek_v2", "falcon_40b", "roberta", "llama_llama3"])
def test_there_and_back(name: str, tmp_path: Path) -> None:
    source = tiny.write(name, tmp_path / "model")
    convert(source, tmp_path / "x.gguf")
    convert(tmp_path / "x.gguf", tmp_path / "back")
    first, second = load_file(source / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    for key, array in second.items():
        if "position_embeddings" not in key:
            assert np.array_equal(array, first[key]), key
    config = json.loads((tmp_path / "back" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == tiny.config(name)["architectures"]


@pytest.mark.parametrize("name", ["mixtral", "gemma3", "gpt2", "deepseek_v2", "falcon_40b", "llama_llama3"])
def test_each_is_verified_against_the_other(name: str, tmp_path: Path) -> None:
    source = tiny.write(name, tmp_path / "model")
    convert(source, tmp_path / "x.gguf")
    folder, file = (
        open_source(str(source), None, ReadOptions()),
        open_source(str(tmp_path / "x.gguf"), None, ReadOptions()),
    )
    report = compare(file.weights, in_words_of(folder.weights, file.weights))
    assert report, report.failed
    assert next(check.name for check in report.checks) == "key-values"
    report = compare(folder.weights, in_words_of(file.weights, folder.weights))
    assert report, report.failed


def test_a_missing_fact_and_a_wrong_order_are_found(tmp_path: Path) -> None:
    """What a converter may get wrong: the rope base left out, keys in the order of the checkpoint."""
    source = tiny.write("gemma", tmp_path / "gemma")
    convert(source, tmp_path / "x.gguf")
    folder, file = (
        open_source(str(source), None, ReadOptions()),
        open_source(str(tmp_path / "x.gguf"), None, ReadOptions()),
    )
    kept = tuple(pair for pair in file.weights.keyvalues if pair.key != "gemma.rope.freq_base")
    report = compare(replace(file.weights, keyvalues=kept), in_words_of(folder.weights, file.weights))
    assert ["gemma.rope.freq_base" in check.detail for check in report.failed] == [True]
    llama = tiny.write("llama", tmp_path / "llama")
    convert(llama, tmp_path / "y.gguf")
    folder, file = (
        open_source(str(llama), None, ReadOptions()),
        open_source(str(tmp_path / "y.gguf"), None, ReadOptions()),
    )
    name, was = "blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight"
    unordered = replace(folder.weights.tensors[was], name=name)
    wrong = replace(file.weights, tensors=file.weights.tensors | {name: unordered})
    report = compare(wrong, in_words_of(folder.weights, file.weights))
    assert [check.tensor for check in report.failed] == [name]


def test_the_dtype_leaves_what_must_be_f32(tmp_path: Path, model: Path) -> None:
    from artifactkit.dtypes import BY_NAME

    convert(model, tmp_path / "half.gguf", dtype=BY_NAME["f16"])
    weights = open_source(str(tmp_path / "half.gguf"), None, ReadOptions()).weights
    kinds = {name: view.dtype.name for name, view in weights.tensors.items()}
    assert kinds["blk.0.attn_q.weight"] == kinds["blk.0.ffn_up_exps.weight"] == "f16"
    assert kinds["blk.0.attn_norm.weight"] == kinds["blk.0.ffn_gate_inp.weight"] == "f32"


def test_a_loss_of_the_family_is_refused_when_strict(tmp_path: Path) -> None:
    source = tiny.write("mistral", tmp_path / "model")
    options = replace(ConvertOptions(), strict=True)
    entries = tiny.config("mistral") | {"sliding_window": 100}
    (source / "config.json").write_text(json.dumps(entries), encoding="utf-8")
    route = plan(str(source), str(tmp_path / "x.gguf"), ConvertOptions())
    assert [loss.kind for loss in route.losses if loss.kind == "function-differs"] == ["function-differs"]
    with pytest.raises(Refused, match="sliding_window"):
        plan(str(source), str(tmp_path / "x.gguf"), options)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[1]", Corrupt),
        ("{", Corrupt),
        ('{"architectures": ["LlamaForCausalLM"], "architectures": ["X"]}', Corrupt),
        ('{"a": ' * 100 + "1" + "}" * 100, LimitExceeded),
        ("{}", RouteRefused),
    ],
)
def test_a_config_that_is_none(text: str, error: type[Exception], tmp_path: Path, model: Path) -> None:
    (model / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(error):
        plan(str(model), str(tmp_path / "x.gguf"), ConvertOptions())


def test_without_a_config_nobody_knows_the_model(tmp_path: Path, model: Path) -> None:
    (model / "config.json").unlink()
    with pytest.raises(RouteRefused, match="what model the tensors are of"):
        plan(str(model), str(tmp_path / "x.gguf"), ConvertOptions())


def test_one_file_keeps_the_names_of_gguf(tmp_path: Path, model: Path) -> None:
    convert(model, tmp_path / "x.gguf")
    route = plan(str(tmp_path / "x.gguf"), str(tmp_path / "y.safetensors"), ConvertOptions())
    assert "blk.0.attn_q.weight" in route.final.tensors
    assert any("names stay as GGUF has them" in note for note in route.final.notes)


def test_pairs_of_other_kinds_of_files_stay(tmp_path: Path, model: Path) -> None:
    """What config.json does not hold is said to be left behind: it is not the model's, and not lost in silence."""
    from artifactkit.translate import from_gguf

    convert(model, tmp_path / "x.gguf")
    weights = open_source(str(tmp_path / "x.gguf"), None, ReadOptions()).weights
    weights.keyvalues += (KeyValue("tokenizer.ggml.model", "string", "gpt2"),)
    rest = {pair.key for pair in from_gguf(weights)[2].keyvalues}
    assert "tokenizer.ggml.model" in rest
    assert not any(key.startswith("llama.") for key in rest)


def test_names_of_a_sharded_checkpoint(tmp_path: Path) -> None:
    """Shards are one checkpoint: experts of one layer may lie in several files."""
    arrays = tiny.tensors("mixtral")
    names = sorted(arrays)
    folder = tmp_path / "sharded"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny.config("mixtral")), encoding="utf-8")
    halves = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, held in halves.items():
        save_file({name: arrays[name] for name in held}, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, held in halves.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    convert(folder, tmp_path / "x.gguf")
    convert(tiny.write("mixtral", tmp_path / "whole"), tmp_path / "y.gguf")
    x, y = (open_source(str(tmp_path / f"{n}.gguf"), None, ReadOptions()).weights for n in "xy")
    assert compare(replace(x, format="npz"), replace(y, format="npz", keyvalues=()))
