"""Qwen2 and Qwen2-MoE: biases on query, key and value; the mixture has one shared expert with a gate of its own.

transformers: models/qwen2, models/qwen2_moe. llama.cpp: LLM_ARCH_QWEN2, LLM_ARCH_QWEN2MOE; halves are turned as they
stand, so no row changes its place.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Key
from ..modeling.config import Config
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx, no_window
from ..modeling.rope import Rope


def _always(config: Config, layer: int) -> bool:
    return True


def _early_windows(config: Config) -> list[object]:
    """``layer_types`` as the mixture's config class fills it in: every other of the first layers."""
    first = config.opt_count("max_window_layers") or 0
    used = config.flag("use_sliding_window")
    return [
        "sliding_attention" if (i + 1) % 2 and i < first and used else "full_attention"
        for i in range(config.count("num_hidden_layers"))
    ]


def _windowed(config: Config) -> bool:
    return config.flag("use_sliding_window")


# fmt: off
WINDOW_KEYS = ("use_sliding_window", "sliding_window", "max_window_layers", "layer_types")
ATTENTION = d.attention_rows(bias=_always, out_bias=False)
BASE = {
    "vocab_size": 151936, "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "use_sliding_window": False, "max_window_layers": 28, "layer_types": None,
}

QWEN2 = Architecture(
    name="qwen2",
    gguf="qwen2",
    model_type="qwen2",
    classes=("Qwen2ForCausalLM", "Qwen2Model"),
    base_prefix="model.",
    head="output.weight",
    rows=(*d.embedding_rows(), *d.norm_rows(), *ATTENTION, *d.mlp_rows()),
    keys=(*d.sizes(), d.RMS_EPS, d.VOCAB, Rope().facts()),
    defaults={
        **BASE, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "sliding_window": 4096,
    },
    when_null={**d.HEADS_NULL, "layer_types": d.late_windows},
    fixed={"hidden_act": d.SILU},
    checks=(d.windowed_types,),
    drops=(d.INV_FREQ,),
    losses=d.USED_WINDOW,
    notes=d.USED_WINDOW_NOTE,
    mlx=Mlx(
        KEYS, Rope(types=("default", "linear", "llama3", "yarn"), runtime="mlx-lm"), uses=WINDOW_KEYS,
        fixed={"hidden_act": d.SILU}, checks=(d.windowed_types, no_window(_windowed)),
    ),
)

QWEN2_MOE = Architecture(
    name="qwen2_moe",
    gguf="qwen2moe",
    model_type="qwen2_moe",
    classes=("Qwen2MoeForCausalLM", "Qwen2MoeModel"),
    base_prefix="model.",
    head="output.weight",
    must_have_head=True,
    experts="num_experts",
    rows=(
        *d.embedding_rows(), *d.norm_rows(), *ATTENTION,
        *d.expert_rows("mlp", "gate_proj", "up_proj", "down_proj", "mlp.gate", "mlp.experts"),
        *d.linear("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
        *d.linear("mlp.shared_expert.up_proj", "ffn_up_shexp"),
        *d.linear("mlp.shared_expert.down_proj", "ffn_down_shexp"),
        *d.linear("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ),
    keys=(
        *d.sizes(), d.RMS_EPS, d.VOCAB, Rope().facts(), Key("num_experts", "expert_count"),
        Key("num_experts_per_tok", "expert_used_count"), Key("moe_intermediate_size", "expert_feed_forward_length"),
        Key("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ),
    defaults={
        **BASE, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 16, "sliding_window": 4096, "decoder_sparse_step": 1, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60, "norm_topk_prob": False,
        "mlp_only_layers": [], "qkv_bias": True,
    },
    when_null={"layer_types": _early_windows},
    fixed={
        "hidden_act": d.SILU, "decoder_sparse_step": (1,), "mlp_only_layers": ([], None), "qkv_bias": (True,),
        "norm_topk_prob": (False,),
    },
    aliases={"num_local_experts": "num_experts"},
    checks=(d.windowed_types,),
    drops=(d.INV_FREQ,),
    losses=d.USED_WINDOW,
    notes=d.USED_WINDOW_NOTE + "; layers without experts (`mlp_only_layers`, `decoder_sparse_step`) are refused",
    mlx=Mlx(
        (*KEYS, "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"),
        Rope(types=("default",), runtime="mlx-lm"), uses=WINDOW_KEYS,
        fixed={
            "hidden_act": d.SILU, "decoder_sparse_step": (1,), "mlp_only_layers": ([], None), "qkv_bias": (True,),
            "norm_topk_prob": (False,),
        },
        checks=(d.windowed_types, no_window(_windowed)), ties=False,
        experts="model.layers.{b}.mlp.switch_mlp.{part}.weight",
    ),
)

ARCHITECTURE = (QWEN2, QWEN2_MOE)
