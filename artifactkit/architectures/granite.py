"""Granite: Llama with four multipliers, of embedding, attention, residual and logits.

transformers: models/granite. llama.cpp: LLM_ARCH_GRANITE.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Key
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx
from ..modeling.ops import rotary
from ..modeling.rope import Rope

# fmt: off
ARCHITECTURE = Architecture(
    name="granite",
    gguf="granite",
    model_type="granite",
    classes=("GraniteForCausalLM", "GraniteModel"),
    base_prefix="model.",
    head="output.weight",
    rows=(
        *d.embedding_rows(), *d.norm_rows(),
        *d.attention_rows(
            (rotary("num_attention_heads"),), (rotary("num_key_value_heads"),), bias=d.if_true("attention_bias")
        ),
        *d.mlp_rows(bias=d.if_true("mlp_bias")),
    ),
    keys=(
        *d.sizes(), d.RMS_EPS, d.VOCAB, Rope(types=("default", "linear", "llama3", "yarn")).facts(),
        d.ATTENTION_BIAS, d.MLP_BIAS,
        Key("attention_multiplier", "attention.scale", "f32", 1.0),
        Key("embedding_multiplier", "embedding_scale", "f32", 1.0),
        Key("residual_multiplier", "residual_scale", "f32", 1.0), Key("logits_scaling", "logit_scale", "f32", 1.0),
    ),
    defaults={
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
    },
    when_null=d.HEADS_NULL,
    fixed={"hidden_act": d.SILU},
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (
            *KEYS, "attention_bias", "mlp_bias", "logits_scaling", "attention_multiplier", "embedding_multiplier",
            "residual_multiplier",
        ),
        Rope(types=("default", "linear", "llama3", "yarn"), runtime="mlx-lm"), fixed={"hidden_act": d.SILU},
        eight=r".*(self_attn\.o_proj|mlp\.down_proj)|lm_head",
    ),
)
