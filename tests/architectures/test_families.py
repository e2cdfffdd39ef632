"""Every family's tiny model to GGUF names and back: bytes, key-values, config, ledger."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from tiny_models import weights_of

from artifactkit import registry
from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.modeling.architecture import CLASS_KEY, Architecture
from artifactkit.source import read_all
from artifactkit.translate import architecture_of, from_gguf, plan
from artifactkit.verify.accounting import ledger

CONVERTER: dict[str, Any] = json.loads((Path(__file__).parent / "converter.json").read_text(encoding="utf-8"))
MODELS = list(tiny.MODELS)
F32 = BY_NAME["f32"]

# Where llama.cpp's own converter writes a key otherwise, or one more, and why ours is kept. All else is equal.
DIFFERENCES: dict[tuple[str, str], str] = {
    ("llama_yarn", "llama.rope.scaling.yarn_attn_factor"): "llama.cpp reads attn_factor, a multiple of the usual one",
    ("modernbert", "modern-bert.attention.layer_norm_rms_epsilon"): "there is no such norm",
}

# Tensors that the converter does not write, though llama.cpp needs them.
MORE: dict[str, set[str]] = {
    "llama_longrope": {"rope_factors_long.weight", "rope_factors_short.weight"},  # the scaling is left out
    "qwen2_moe_tied": {"output.weight"},  # the file does not load
    "olmo2_tied": {"output.weight"},
}


def array(view: TensorView) -> np.ndarray:
    assert view.dtype == F32
    return np.frombuffer(read_all(view.source), "<f4").reshape(view.shape)


def planned(model: str) -> tuple[Architecture, Weights, Weights]:
    source = weights_of(tiny.tensors(model))
    arch, made = plan(tiny.config(model), source)
    return arch, source, made


def test_every_family_has_a_model() -> None:
    covered = {architecture_of(tiny.config(model)).name for model in MODELS}
    assert covered == set(registry.architectures())


# What llama.cpp's converter fails on: these are held against its runtime alone, in test_logits.
REFUSED = {
    "granite_llama3", "gpt2", "nomic_bert", "gpt_neox", "gpt_neox_serial", "falcon_7b", "stablelm_parallel",
    "deepseek_v2", "deepseek_v2_lite",
}  # fmt: skip


def test_which_models_the_converter_fails_on() -> None:
    assert {model for model, oracle in CONVERTER.items() if "refused" in oracle} == REFUSED
    assert CONVERTER.keys() == set(MODELS)


@pytest.mark.parametrize("model", [model for model in MODELS if model not in REFUSED])
def test_as_llama_cpp_converts_it(model: str) -> None:
    """Tensors byte for byte, and every key-value that the converter writes."""
    oracle = CONVERTER[model]
    _, _, made = planned(model)
    found = {view.name: [list(view.shape), hashlib.sha256(read_all(view.source)).hexdigest()[:16]] for view in made}
    more = MORE.get(model, set())
    assert more <= found.keys()
    assert {name: entry for name, entry in found.items() if name not in more} == oracle["tensors"]
    pairs = {pair.key: pair for pair in made.keyvalues}
    for key, value in oracle["keyvalues"].items():
        if (model, key) in DIFFERENCES:
            continue
        assert key in pairs, f"{key} = {value}"
        mine = pairs[key].value
        if pairs[key].kind == "f32":
            assert np.float32(mine) == np.float32(value), key
        else:
            assert mine == value, key


@pytest.mark.parametrize("model", MODELS)
def test_there_and_back(model: str) -> None:
    """Every tensor bit for bit, and a config that transformers computes the same with."""
    arch, source, made = planned(model)
    same, entries, back = from_gguf(made)
    assert same is arch
    assert entries["architectures"] == tiny.config(model)["architectures"]
    assert entries["model_type"] == tiny.config(model)["model_type"]
    for name, view in source.tensors.items():
        if any(re.fullmatch(drop.pattern, name) for drop in arch.drops):
            assert name not in back.tensors
            continue
        got, wanted = array(back.tensors[name]), array(view)
        if "position_embeddings" in name and "roberta" in model:  # positions of padding, never looked up
            assert not got[:2].any()
            got, wanted = got[2:], wanted[2:]
        assert got.tobytes() == wanted.tobytes(), name
        assert got.shape == wanted.shape
    assert back.tensors.keys() <= source.tensors.keys()
    assert_same_config(arch, tiny.config(model), entries)


def assert_same_config(arch: Architecture, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Equal in everything that the family computes with: the key-values that both give, and every default."""
    one, two = arch.config(first), arch.config(second)
    unused = {"sliding_window"} if first.get("use_sliding_window") is False else set()
    for key in {*arch.defaults, *arch.fixed} - unused - {"n_positions"}:
        assert one[key] == two[key], key


@pytest.mark.parametrize("model", MODELS)
def test_key_values_survive(model: str) -> None:
    """config.json made from the key-values gives the same key-values."""
    _, _, made = planned(model)
    _, entries, back = from_gguf(made)
    _, again = plan(entries, back)
    for one, two in zip(made.keyvalues, again.keyvalues, strict=True):
        assert (one.key, one.kind) == (two.key, two.kind)
        if one.kind == "f32":
            assert np.isclose(one.value, two.value, rtol=1e-6), one.key
        else:
            assert one.value == two.value, one.key
    assert {v.name: array(v).tobytes() for v in made} == {v.name: array(v).tobytes() for v in again}


@pytest.mark.parametrize("model", MODELS)
def test_everything_is_accounted_for(model: str) -> None:
    _, source, made = planned(model)
    entries = ledger(source, made)
    assert {e.source for e in entries} >= source.tensors.keys()
    assert {e.target for e in entries if e.target} == made.tensors.keys()
    read = replace(made, tensors={v.name: replace(v, origins=(), steps=()) for v in made}, dropped=[])
    _, _, back = from_gguf(read)
    assert {e.target for e in ledger(read, back) if e.target} == back.tensors.keys()


def test_what_the_ledger_says() -> None:
    _, source, made = planned("mixtral")
    by_target: dict[str | None, list[Any]] = {}
    for entry in ledger(source, made):
        by_target.setdefault(entry.target, []).append(entry)
    [query] = by_target["blk.0.attn_q.weight"]
    assert query.outcomes == ("renamed", "permuted")
    experts = by_target["blk.2.ffn_gate_exps.weight"]
    assert [e.source for e in experts] == [f"model.layers.2.block_sparse_moe.experts.{e}.w1.weight" for e in range(4)]
    assert experts[0].outcomes == ("renamed", "merged")


def test_what_is_made_from_the_config_says_so() -> None:
    _, source, made = planned("llama_llama3")
    [entry] = [e for e in ledger(source, made) if e.target == "rope_freqs.weight"]
    assert (entry.source, entry.outcomes) == ("config.json", ("made",))


def test_the_class_is_kept() -> None:
    _, _, made = planned("mistral")
    assert {p.key: p.value for p in made.keyvalues}[CLASS_KEY] == "MistralForCausalLM"


@pytest.mark.parametrize("model", ["llama", "mixtral", "gemma", "deepseek_v2", "gpt2", "falcon_40b"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_half_precision(model: str, dtype: str) -> None:
    """Matrices keep their type, what llama.cpp takes in f32 alone is widened; back, every value is the same."""
    import ml_dtypes

    numpy_type = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float16)
    arrays = {name: a.astype(numpy_type) for name, a in tiny.tensors(model).items()}
    arch, made = plan(tiny.config(model), weights_of(arrays, dtype))
    for view in made:
        vector = len(view.shape) <= 1 or not view.name.endswith(".weight") or "_norm." in view.name
        vector = vector or view.name.endswith(("ffn_gate_inp.weight", "position_embd.weight"))
        assert view.dtype.name == ("f32" if vector else dtype), view.name
    _, _, back = from_gguf(made)
    for name, wanted in arrays.items():
        if any(re.fullmatch(drop.pattern, name) for drop in arch.drops):
            continue
        view = back.tensors[name]
        data = read_all(view.source)
        got = np.frombuffer(data, "<f4" if view.dtype == F32 else numpy_type)
        assert np.array_equal(got.astype(np.float32), wanted.astype(np.float32).ravel()), name


def test_planning_reads_no_tensor() -> None:
    class Unreadable:
        def __init__(self, nbytes: int) -> None:
            self.nbytes = nbytes
            self.position = ("nowhere", 0)

        def read_into(self, offset: int, buffer: memoryview) -> None:
            raise AssertionError("a tensor was read")

        def pour(self, fd: int, at: int) -> None:
            raise AssertionError("a tensor was read")

    for model in MODELS:
        views = {
            name: TensorView(name, F32, tuple(shape), Unreadable(4 * int(np.prod(shape))))
            for name, shape in tiny.saved()[model]["tensors"].items()
        }
        plan(tiny.config(model), Weights(views, "safetensors"))
