"""Llama, and what is computed like it: Mistral and Mixtral.

transformers: models/llama, models/mistral, models/mixtral. llama.cpp: LLM_ARCH_LLAMA, whose rope turns neighbouring
pairs of rows, so queries and keys are put in that order.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Key, Pairs
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx, no_window, whole_heads
from ..modeling.ops import rotary
from ..modeling.rope import Rope

ROPE = Rope(types=("default", "linear", "llama3", "yarn", "longrope"))

# fmt: off
MLX_ROPE = Rope(types=("default", "linear", "llama3", "yarn"), runtime="mlx-lm")
QUERY, KEY = (rotary("num_attention_heads"),), (rotary("num_key_value_heads"),)

LLAMA = Architecture(
    name="llama",
    gguf="llama",
    model_type="llama",
    classes=("LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM"),
    base_prefix="model.",
    head="output.weight",
    rows=(
        *d.embedding_rows(), *d.norm_rows(), *d.attention_rows(QUERY, KEY, bias=d.if_true("attention_bias")),
        *d.mlp_rows(bias=d.if_true("mlp_bias")),
    ),
    keys=(*d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM, ROPE.facts(), d.ATTENTION_BIAS, d.MLP_BIAS),
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "head_dim": None,
    },
    when_null={**d.HEADS_NULL, **d.HEAD_DIM_NULL},
    fixed={"hidden_act": d.SILU},
    drops=(d.INV_FREQ,),
    also=lambda pairs: not pairs.get("expert_count"),
    mlx=Mlx((*KEYS, "head_dim", "attention_bias", "mlp_bias"), MLX_ROPE, fixed={"hidden_act": d.SILU}),
)

MISTRAL = Architecture(
    name="mistral",
    gguf="llama",
    model_type="mistral",
    classes=("MistralForCausalLM", "MistralModel"),
    base_prefix="model.",
    head="output.weight",
    rows=(*d.embedding_rows(), *d.norm_rows(), *d.attention_rows(QUERY, KEY), *d.mlp_rows()),
    keys=(*d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM, ROPE.facts()),
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": None, "hidden_act": "silu",
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "sliding_window": 4096,
    },
    when_null={**d.HEADS_NULL, **d.HEAD_DIM_NULL},
    fixed={"hidden_act": d.SILU},
    drops=(d.INV_FREQ,),
    losses=d.WINDOW,
    writes={"sliding_window": None},
    also=lambda pairs: False,  # told from Llama by the class alone
    notes=d.WINDOW_NOTE,
    mlx=Mlx(
        (*KEYS, "head_dim"), MLX_ROPE, also=lambda config: {"attention_bias": False, "mlp_bias": False},
        uses=("sliding_window",), fixed={"hidden_act": d.SILU}, checks=(no_window(),),
    ),
)


def _mixture(pairs: Pairs) -> bool:
    return bool(pairs.get("expert_count"))


MIXTRAL = Architecture(
    name="mixtral",
    gguf="llama",
    model_type="mixtral",
    classes=("MixtralForCausalLM", "MixtralModel"),
    base_prefix="model.",
    head="output.weight",
    experts="num_local_experts",
    rows=(
        *d.embedding_rows(), *d.norm_rows(), *d.attention_rows(QUERY, KEY),
        *d.expert_rows("block_sparse_moe", "w1", "w3", "w2", "block_sparse_moe.gate", "mlp.experts"),
    ),
    keys=(
        *d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM_OR_NULL, Rope(theta=1e6, types=ROPE.types).facts(),
        Key("num_local_experts", "expert_count"), Key("num_experts_per_tok", "expert_used_count"),
    ),
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": None, "hidden_act": "silu",
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": None,
        "num_experts_per_tok": 2, "num_local_experts": 8,
    },
    when_null={**d.HEADS_NULL},
    fixed={"hidden_act": d.SILU},
    aliases={"num_experts": "num_local_experts"},
    drops=(d.INV_FREQ,),
    losses=d.WINDOW,
    also=_mixture,
    notes=d.WINDOW_NOTE,
    mlx=Mlx(
        (*KEYS, "num_local_experts", "num_experts_per_tok"), Rope(theta=1e6, types=("default",), runtime="mlx-lm"),
        uses=("sliding_window", "head_dim"), fixed={"hidden_act": d.SILU}, checks=(no_window(), whole_heads),
        experts="model.layers.{b}.block_sparse_moe.switch_mlp.{part}.weight",
    ),
)

ARCHITECTURE = (LLAMA, MISTRAL, MIXTRAL)
