"""Falcon 7B and 40B: attention and feed-forward side by side, keys and values shared by groups of heads.

transformers: models/falcon (``new_decoder_architecture`` is 40B's). llama.cpp: LLM_ARCH_FALCON, which takes all
queries first, then keys, then values, where the checkpoint has them group by group.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..artifact import TensorView
from ..errors import RouteRefused
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Facts, Key, Pairs, Row
from ..modeling.config import Config
from ..modeling.parts import Grouped
from ..modeling.rope import Rope

L = "transformer.h.{b}."


def kv_heads(config: Config) -> int:
    """How many heads keys and values have, as transformers counts them."""
    if config.flag("new_decoder_architecture"):
        return config.count("num_kv_heads")
    return 1 if config.flag("multi_query") else config.count("num_attention_heads")


def _new(config: Config, layer: int) -> bool:
    return config.flag("new_decoder_architecture") and config["num_ln_in_parallel_attn"] in (2, None)


def _one_norm(config: Config, layer: int) -> bool:
    return not _new(config, layer)


def _check(config: Config) -> None:
    if not config.flag("new_decoder_architecture") and not config.flag("multi_query"):
        raise RouteRefused(
            "llama.cpp computes Falcon with shared keys and values alone", file=config.file, member="multi_query",
            expected="true, or new_decoder_architecture true", found="false",
        )  # fmt: skip


def _heads_back(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
    two = "blk.0.attn_norm_2.weight" in tensors
    shared = pairs.count("attention.head_count_kv")
    entries: dict[str, object] = {"multi_query": True, "parallel_attn": True}
    if two or shared > 1:
        norms = 2 if two else 1
        return entries | {"new_decoder_architecture": True, "num_kv_heads": shared, "num_ln_in_parallel_attn": norms}
    return entries | {"new_decoder_architecture": False, "num_kv_heads": pairs.get("attention.head_count")}


HEADS = Facts(
    ("num_kv_heads", "multi_query", "new_decoder_architecture", "num_ln_in_parallel_attn"),
    lambda config: [("attention.head_count_kv", "u32", kv_heads(config)), ("tensor_data_layout", "string", "jploski")],
    _heads_back,
)

# fmt: off
ARCHITECTURE = Architecture(
    name="falcon",
    gguf="falcon",
    model_type="falcon",
    classes=("FalconForCausalLM", "FalconModel", "RWForCausalLM"),
    base_prefix="transformer.",
    head="output.weight",
    gelu=True,
    rows=(
        Row("transformer.word_embeddings.weight", "token_embd.weight"),
        Row("transformer.ln_f.weight", "output_norm.weight"), Row("transformer.ln_f.bias", "output_norm.bias"),
        Row("lm_head.weight", "output.weight"),
        *d.linear("input_layernorm", "attn_norm", bias=True, when=_one_norm, prefix=L),
        *d.linear("ln_mlp", "attn_norm", bias=True, when=_new, prefix=L),
        *d.linear("ln_attn", "attn_norm_2", bias=True, when=_new, prefix=L),
        *d.linear("self_attention.query_key_value", "attn_qkv", Grouped(kv_heads, "num_attention_heads"), prefix=L),
        *d.linear("self_attention.dense", "attn_output", prefix=L),
        *d.linear("mlp.dense_h_to_4h", "ffn_up", prefix=L), *d.linear("mlp.dense_4h_to_h", "ffn_down", prefix=L),
    ),
    keys=(
        *d.sizes(kv_heads="", ffn="ffn_hidden_size"), Key("layer_norm_epsilon", d.LN_EPS, "f32"), d.VOCAB, HEADS,
        Rope(types=("default", "linear")).facts(),
    ),
    defaults={
        "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "num_ln_in_parallel_attn": None, "layer_norm_epsilon": 1e-5, "num_kv_heads": None, "alibi": False,
        "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "bias": False,
        "max_position_embeddings": 2048, "ffn_hidden_size": None, "activation": "gelu", "tie_word_embeddings": True,
    },
    when_null={
        "num_kv_heads": lambda config: config["num_attention_heads"],
        "ffn_hidden_size": lambda config: 4 * config.count("hidden_size"),
    },
    fixed={
        "alibi": (False,), "parallel_attn": (True,), "bias": (False,), "activation": ("gelu", *d.GELU_TANH),
        "num_ln_in_parallel_attn": (None, 1, 2), "apply_residual_connection_post_layernorm": (False, None),
    },
    aliases={"n_embed": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
             "n_head_kv": "num_kv_heads"},
    checks=(_check,),
    drops=(d.INV_FREQ,),
)
