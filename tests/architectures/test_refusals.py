"""What stops a conversion, by name; each refusal has a twin that passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from tiny_models import weights_of

from artifactkit.artifact import KeyValue, Weights
from artifactkit.errors import ArtifactkitError, Corrupt, RouteRefused
from artifactkit.modeling.config import Config
from artifactkit.modeling.ops import Piece, rotary
from artifactkit.source import Inline, read_all
from artifactkit.translate import architecture_of, from_gguf, plan


def attempt(
    model: str, changes: dict[str, Any], drop: tuple[str, ...] = (), add: dict[str, Any] | None = None
) -> Weights:
    """Plan the tiny model with other config entries (None takes one out) and other tensors."""
    config = {k: v for k, v in (tiny.config(model) | changes).items() if v is not ...}
    arrays = {k: v for k, v in tiny.tensors(model).items() if k not in drop}
    return plan(config, weights_of(arrays | (add or {})))[1]


# model, entries that are refused, the key that is named, entries of the twin that passes
KEYS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("llama", {"new_trick": True}, "new_trick", {"new_trick": None}),
    ("llama", {"new_trick": 0.5}, "new_trick", {"unsloth_version": "2025.1"}),
    ("llama", {"hidden_act": "gelu"}, "hidden_act", {"hidden_act": "swish"}),
    ("llama", {"hidden_size": "48"}, "hidden_size", {"hidden_size": 48}),
    ("llama", {"hidden_size": True}, "hidden_size", {"head_dim": 12}),
    ("llama", {"num_hidden_layers": -1}, "num_hidden_layers", {"num_hidden_layers": 3}),
    ("llama", {"num_hidden_layers": 10**12}, "num_hidden_layers", {}),
    ("llama", {"num_hidden_layers": 10**6}, "num_hidden_layers", {}),
    ("llama", {"rms_norm_eps": "small"}, "rms_norm_eps", {"rms_norm_eps": 1e-5}),
    ("llama", {"rms_norm_eps": 1e300}, "rms_norm_eps", {"rms_norm_eps": 1}),
    ("llama", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config", {"quantization_config": None}),
    ("llama", {"is_decoder": True}, "is_decoder", {"is_decoder": False}),
    ("llama", {"pruned_heads": {"0": [1]}}, "pruned_heads", {"pruned_heads": {}}),
    ("llama", {"rope_parameters": [1]}, "rope_parameters", {"rope_parameters": None}),
    (
        "llama", {"rope_parameters": tiny.rope(rope_type="dynamic", factor=2.0)}, "rope_parameters",
        {"rope_parameters": tiny.rope(rope_type="linear", factor=2.0)},
    ),
    ("llama", {"rope_parameters": tiny.rope(mrope_section=[1, 2, 3])}, "rope_parameters", {}),
    ("llama", {"rope_parameters": tiny.rope(rope_type="linear")}, "rope_parameters", {}),
    ("llama", {"rope_parameters": tiny.rope(rope_type="llama3", factor=8.0)}, "", {}),
    (
        "llama", {"rope_parameters": {**tiny.YARN, "truncate": False}}, "rope_parameters",
        {"rope_parameters": {**tiny.YARN, "truncate": True}},
    ),
    (
        "llama", {"rope_parameters": {**tiny.YARN, "beta_fast": 16}}, "rope_parameters",
        {"rope_parameters": {**tiny.YARN, "beta_fast": 32}},
    ),
    ("qwen2", {"rope_parameters": tiny.LLAMA3}, "rope_parameters", {"rope_parameters": tiny.YARN}),
    ("phi3_longrope", {"rope_parameters": {**tiny.LONGROPE, "long_factor": [1.0]}}, "rope_parameters", {}),
    (
        "qwen2", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "layer_types",
        {"layer_types": ["full_attention"] * 3},
    ),
    ("qwen2_moe", {"norm_topk_prob": True}, "norm_topk_prob", {"norm_topk_prob": False}),
    ("qwen2_moe", {"mlp_only_layers": [1]}, "mlp_only_layers", {"mlp_only_layers": []}),
    ("qwen2_moe", {"num_experts": 10**9}, "num_experts", {}),
    ("qwen3_moe", {"norm_topk_prob": False}, "norm_topk_prob", {"norm_topk_prob": True}),
    ("gemma2", {"query_pre_attn_scalar": 17}, "query_pre_attn_scalar", {"query_pre_attn_scalar": 16.0}),
    ("gemma2", {"attn_logit_softcapping": None}, "attn_logit_softcapping", {"attn_logit_softcapping": 30.0}),
    ("gemma2", {"layer_types": ["full_attention"] * 3}, "layer_types", {"layer_types": ...}),
    ("gemma2", {"num_hidden_layers": 2**31 - 1}, "num_hidden_layers", {}),
    ("modernbert", {"num_hidden_layers": 2**31 - 1, "layer_types": ...}, "num_hidden_layers", {}),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention", {}),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping", {}),
    ("smollm3", {"no_rope_layers": [1, 1, 1, 1, 1]}, "no_rope_layers", {"no_rope_layers": [1, 1, 1, 0, 1]}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx", {"n_ctx": 512}),
    ("gpt2", {"activation_function": "relu"}, "activation_function", {"activation_function": "gelu_new"}),
    (
        "bert", {"position_embedding_type": "relative_key"}, "position_embedding_type",
        {"position_embedding_type": "absolute"},
    ),
    ("falcon_7b", {"alibi": True}, "alibi", {"alibi": False}),
    ("falcon_7b", {"parallel_attn": False}, "parallel_attn", {}),
    ("deepseek_v2", {"topk_method": "group_limited_greedy"}, "topk_method", {"topk_method": "greedy"}),
    ("cohere", {"use_qk_norm": True}, "use_qk_norm", {"use_qk_norm": False}),
    ("t5_encoder", {"feed_forward_proj": "gated-silu"}, "feed_forward_proj", {}),
    ("t5_encoder", {"relative_attention_max_distance": 64}, "relative_attention_max_distance", {}),
    ("modernbert", {"layer_types": ["full_attention"] * 4}, "layer_types", {"hidden_activation": "silu"}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "changes", "key", "twin"), KEYS, ids=lambda v: str(v)[:40])
def test_a_config_that_is_not_understood(model: str, changes: dict[str, Any], key: str, twin: dict[str, Any]) -> None:
    with pytest.raises((RouteRefused, Corrupt)) as caught:
        attempt(model, changes)
    error = caught.value
    assert error.file == "config.json"
    assert key in (error.member or "") or not key
    assert error.found is not None
    attempt(model, twin)


def array(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


Q = "model.layers.1.self_attn.q_proj"


@pytest.mark.parametrize(
    ("model", "drop", "add", "tensor"),
    [
        ("llama", (), {f"{Q}.bias": array(48)}, f"{Q}.bias"),
        ("llama", (), {"model.layers.3.input_layernorm.weight": array(48)}, "model.layers.3.input_layernorm.weight"),
        ("llama", (), {"adapter.weight": array(2, 2)}, "adapter.weight"),
        ("llama", (f"{Q}.weight",), {}, f"{Q}.weight"),
        ("llama", ("lm_head.weight",), {}, "lm_head.weight"),
        ("llama_tied", (f"{Q}.bias",), {}, f"{Q}.bias"),
        ("llama", (), {f"{Q}.weight": array(46, 48)}, f"{Q}.weight"),
        ("gemma", (), {"lm_head.weight": array(261, 48)}, "lm_head.weight"),
        ("mixtral", ("model.layers.0.block_sparse_moe.experts.3.w2.weight",), {}, "experts.3.w2"),
        ("mixtral", (), {"model.layers.0.block_sparse_moe.experts.1.w1.weight": array(80, 47)}, "experts.0.w1"),
        ("gpt2", (), {"transformer.h.0.attn.c_attn.weight": array(48)}, "c_attn.weight"),
        ("gpt_neox", (), {"gpt_neox.layers.0.attention.query_key_value.weight": array(100, 48)}, "query_key_value"),
        ("falcon_40b", (), {"transformer.h.0.self_attention.query_key_value.weight": array(90, 48)}, "query_key_value"),
        ("deepseek_v2", (), {"model.layers.0.self_attn.kv_b_proj.weight": array(127, 16)}, "kv_b_proj"),
        ("roberta", (), {"embeddings.position_embeddings.weight": array(2, 48)}, "position_embeddings"),
    ],
)  # fmt: skip
def test_tensors_that_no_rule_explains(model: str, drop: tuple[str, ...], add: dict[str, Any], tensor: str) -> None:
    with pytest.raises(ArtifactkitError) as caught:
        attempt(model, {}, drop, add)
    assert tensor in (caught.value.tensor or "")


def test_what_is_computed_may_be_missing_or_there() -> None:
    attempt("llama", {}, (), {"model.layers.0.self_attn.rotary_emb.inv_freq": array(6)})
    attempt(
        "gpt2", {}, (), {"transformer.h.0.attn.bias": array(1, 1, 8, 8), "transformer.h.0.attn.masked_bias": array(1)}
    )
    attempt("bert", {}, ("pooler.dense.weight", "pooler.dense.bias"))


def test_names_of_a_bare_model_and_of_one_with_a_head() -> None:
    arrays = tiny.tensors("llama_tied")
    bare = {name.removeprefix("model."): a for name, a in arrays.items()}
    whole = plan(tiny.config("llama_tied"), weights_of(arrays))[1]
    again = plan(tiny.config("llama_tied") | {"architectures": ["LlamaModel"]}, weights_of(bare))[1]
    assert whole.tensors.keys() == again.tensors.keys()
    masked = {f"bert.{name}": a for name, a in tiny.tensors("bert").items() if "pooler" not in name}
    masked["cls.predictions.bias"] = array(261)
    made = plan(tiny.config("bert") | {"architectures": ["BertForMaskedLM"]}, weights_of(masked))[1]
    assert made.tensors.keys() == plan(tiny.config("bert"), weights_of(tiny.tensors("bert")))[1].tensors.keys()
    assert [loss.tensor for loss in made.losses] == ["cls.predictions.bias"]


def test_ties() -> None:
    """The same bytes are stored once; other bytes are kept where llama.cpp reads them."""
    arrays = tiny.tensors("llama_tied")
    source = weights_of(arrays)
    from dataclasses import replace

    tied = replace(source.tensors["model.embed_tokens.weight"], name="lm_head.weight")
    source.tensors["lm_head.weight"] = tied
    for model_ties in (True, False):
        made = plan(tiny.config("llama_tied") | {"tie_word_embeddings": model_ties}, source)[1]
        assert "output.weight" not in made.tensors
        assert made.aliases["output.weight"].target == "token_embd.weight"
    other = attempt("llama_tied", {}, (), {"lm_head.weight": array(261, 48)})
    assert "output.weight" in other.tensors


def test_experts_as_transformers_5_works_with_them() -> None:
    """Gate and up of all experts in one tensor: the same GGUF tensors come out."""
    arrays = tiny.tensors("mixtral")
    whole = plan(tiny.config("mixtral"), weights_of(arrays))[1]
    fused = {k: v for k, v in arrays.items() if ".experts." not in k}
    for b in range(3):
        w = {
            (e, n): arrays[f"model.layers.{b}.block_sparse_moe.experts.{e}.w{n}.weight"]
            for e in range(4)
            for n in (1, 2, 3)
        }
        both = [np.concatenate([w[e, 1], w[e, 3]]) for e in range(4)]
        fused[f"model.layers.{b}.mlp.experts.gate_up_proj"] = np.stack(both)
        fused[f"model.layers.{b}.mlp.experts.down_proj"] = np.stack([w[e, 2] for e in range(4)])
    made = plan(tiny.config("mixtral"), weights_of(fused))[1]
    assert {t.name: read_all(t.source) for t in made} == {t.name: read_all(t.source) for t in whole}


@pytest.mark.parametrize(
    ("heads", "kv", "order"),
    [
        (32, 4, [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15]),
        (4, 2, [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]),
    ],
)
def test_keys_are_ordered_by_their_own_number_of_heads(heads: int, kv: int, order: list[int]) -> None:
    """16 rows of keys in ``kv`` heads; an order by the heads of queries looks right where the two agree."""
    config = Config({"num_attention_heads": heads, "num_key_value_heads": kv}, {})
    piece = Piece(
        weights_of({"k": array(16, 1)}).tensors["k"].dtype, (16, 1), Inline(np.arange(16, dtype="<f4").tobytes())
    )
    [made] = rotary("num_key_value_heads").forward([piece], config)
    assert np.frombuffer(read_all(made.source), "<f4").astype(int).tolist() == order
    [back] = rotary("num_key_value_heads").inverse([made], config)
    assert np.frombuffer(read_all(back.source), "<f4").astype(int).tolist() == list(range(16))


def test_an_unknown_family_names_the_nearest() -> None:
    config = tiny.config("qwen3") | {"architectures": ["Qwen9ForCausalLM"], "model_type": "qwen9", "gate_scale": 0.5}
    arrays = tiny.tensors("qwen3") | {"model.layers.0.self_attn.gate.weight": array(4)}
    with pytest.raises(RouteRefused) as caught:
        plan(config, weights_of(arrays))
    error = caught.value
    assert error.found == "Qwen9ForCausalLM"
    assert (error.expected or "").startswith("the nearest: qwen3 (Qwen3ForCausalLM;")
    assert "gate_scale" in (error.expected or "")
    assert "model.layers.{n}.self_attn.gate.weight" in (error.expected or "")


def test_model_type_counts_where_no_class_is_named() -> None:
    config = tiny.config("qwen3")
    del config["architectures"]
    assert architecture_of(config).name == "qwen3"
    with pytest.raises(RouteRefused, match="names no class"):
        architecture_of({"model_type": "perceiver"})


def read_again(model: str, change: dict[str, KeyValue | None], drop: tuple[str, ...] = ()) -> dict[str, object]:
    from dataclasses import replace

    made = plan(tiny.config(model), weights_of(tiny.tensors(model)))[1]
    pairs = {p.key: p for p in made.keyvalues}
    for key, pair in change.items():
        pairs.pop(key, None)
        if pair is not None:
            pairs[key] = pair
    tensors = {n: t for n, t in made.tensors.items() if n not in drop}
    return from_gguf(replace(made, tensors=tensors, keyvalues=tuple(pairs.values())), "x.gguf")[1]


@pytest.mark.parametrize(
    ("model", "change", "drop", "named"),
    [
        ("llama", {"general.architecture": KeyValue("general.architecture", "string", "mamba")}, (), "mamba"),
        ("llama", {"general.architecture": None}, (), "general.architecture"),
        ("llama", {"general.architecture": KeyValue("general.architecture", "u32", 5)}, (), "5"),
        ("llama", {"llama.block_count": None}, (), "llama.block_count"),
        ("llama", {"llama.block_count": KeyValue("llama.block_count", "u32", 10**9)}, (), ""),
        ("llama", {"llama.block_count": KeyValue("llama.block_count", "u32", 0)}, (), "num_hidden_layers"),
        ("llama", {"llama.trick": KeyValue("llama.trick", "f32", 0.5)}, (), "llama.trick"),
        ("llama", {"llama.rope.scaling.type": KeyValue("llama.rope.scaling.type", "string", "yarn")}, (), "factor"),
        (
            "llama",
            {"llama.rope.dimension_count": KeyValue("llama.rope.dimension_count", "u32", 8)},
            (),
            "dimension_count",
        ),
        ("qwen2", {"qwen2.attention.key_length": KeyValue("qwen2.attention.key_length", "u32", 99)}, (), "key_length"),
        ("llama", {}, ("blk.1.attn_q.weight",), "blk.1.attn_q.weight"),
        ("llama", {}, ("token_embd.weight",), "token_embd.weight"),
        ("mixtral", {"llama.expert_count": KeyValue("llama.expert_count", "u32", 3)}, (), "blk.0.ffn_gate_exps.weight"),
    ],
)
def test_a_file_that_is_not_understood(
    model: str, change: dict[str, KeyValue | None], drop: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ArtifactkitError) as caught:
        read_again(model, change, drop)
    assert named in str(caught.value)
    read_again(model, {})


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [("llama.trick", "u32", 0), ("llama.pooling_type", "u32", 1), ("llama.rope.scaling.finetuned", "bool", False)],
)
def test_keys_that_say_nothing(key: str, kind: str, value: Any) -> None:
    read_again("llama", {key: KeyValue(key, kind, value)})


def test_a_window_that_llama_cpp_does_not_compute_is_a_loss() -> None:
    made = attempt("mistral", {"sliding_window": 128})
    assert [loss.kind for loss in made.losses] == ["function-differs"]
    assert not attempt("mistral", {"sliding_window": 512}).losses
