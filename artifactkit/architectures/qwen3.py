"""Qwen3 and Qwen3-MoE: queries and keys are normed per head, no biases, a head size of its own.

transformers: models/qwen3, models/qwen3_moe. llama.cpp: LLM_ARCH_QWEN3, LLM_ARCH_QWEN3MOE.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Key
from ..modeling.config import Config
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx, no_window
from ..modeling.rope import Rope


def _windowed(config: Config) -> bool:
    return config.flag("use_sliding_window")


# fmt: off
ATTENTION = (
    *d.attention_rows(), *d.linear("self_attn.q_norm", "attn_q_norm"), *d.linear("self_attn.k_norm", "attn_k_norm"),
)
BASE = {
    "vocab_size": 151936, "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "use_sliding_window": False, "attention_bias": False,
}
FIXED = {"hidden_act": d.SILU, "attention_bias": (False,)}

QWEN3 = Architecture(
    name="qwen3",
    gguf="qwen3",
    model_type="qwen3",
    classes=("Qwen3ForCausalLM", "Qwen3Model"),
    base_prefix="model.",
    head="output.weight",
    rows=(*d.embedding_rows(), *d.norm_rows(), *ATTENTION, *d.mlp_rows()),
    keys=(*d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM, Rope().facts()),
    defaults={
        **BASE, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096,
        "max_window_layers": 28, "layer_types": None,
    },
    when_null={**d.HEADS_NULL, **d.HEAD_DIM_NULL, "layer_types": d.late_windows},
    fixed=FIXED,
    checks=(d.windowed_types,),
    drops=(d.INV_FREQ,),
    losses=d.USED_WINDOW,
    notes=d.USED_WINDOW_NOTE,
    mlx=Mlx(
        (*KEYS, "head_dim"), Rope(types=("default", "linear", "llama3", "yarn"), runtime="mlx-lm"),
        uses=("use_sliding_window", "sliding_window", "max_window_layers", "layer_types"), fixed=FIXED,
        checks=(d.windowed_types, no_window(_windowed)),
    ),
)

QWEN3_MOE = Architecture(
    name="qwen3_moe",
    gguf="qwen3moe",
    model_type="qwen3_moe",
    classes=("Qwen3MoeForCausalLM", "Qwen3MoeModel"),
    base_prefix="model.",
    head="output.weight",
    experts="num_local_experts",
    rows=(
        *d.embedding_rows(), *d.norm_rows(), *ATTENTION,
        *d.expert_rows("mlp", "gate_proj", "up_proj", "down_proj", "mlp.gate", "mlp.experts"),
    ),
    keys=(
        *d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM, Rope().facts(), Key("num_local_experts", "expert_count"),
        Key("num_experts_per_tok", "expert_used_count"), Key("moe_intermediate_size", "expert_feed_forward_length"),
    ),
    defaults={
        **BASE, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": None, "sliding_window": 4096, "decoder_sparse_step": 1,
        "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_local_experts": 128, "norm_topk_prob": False,
        "mlp_only_layers": [],
    },
    when_null={**d.HEADS_NULL, **d.HEAD_DIM_NULL},
    fixed={**FIXED, "decoder_sparse_step": (1,), "mlp_only_layers": ([], None), "norm_topk_prob": (True,)},
    writes={"norm_topk_prob": True},
    inert=frozenset({"max_window_layers"}),
    aliases={"num_experts": "num_local_experts"},
    drops=(d.INV_FREQ,),
    losses=d.USED_WINDOW,
    notes=d.USED_WINDOW_NOTE + "; llama.cpp norms the weights of the chosen experts, so `norm_topk_prob` must be true",
    mlx=Mlx(
        (*KEYS, "head_dim", "num_experts_per_tok", "decoder_sparse_step", "moe_intermediate_size", "norm_topk_prob"),
        Rope(types=("default",), runtime="mlx-lm"),
        also=lambda config: {"num_experts": config["num_local_experts"], "mlp_only_layers": []},
        uses=("num_local_experts", "use_sliding_window", "sliding_window"),
        fixed={**FIXED, "decoder_sparse_step": (1,), "mlp_only_layers": ([], None)}, checks=(no_window(_windowed),),
        experts="model.layers.{b}.mlp.switch_mlp.{part}.weight", eight=r"model\.layers\.\d+\.mlp\.gate",
    ),
)

ARCHITECTURE = (QWEN3, QWEN3_MOE)
