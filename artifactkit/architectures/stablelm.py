"""StableLM: norms with biases, a quarter of each head turned.

transformers: models/stablelm. llama.cpp: LLM_ARCH_STABLELM.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Facts, Key, Row
from ..modeling.config import Config
from ..modeling.mlx import CONTEXT, WIDTHS, Mlx
from ..modeling.parts import Stack
from ..modeling.rope import Rope


def _serial(config: Config, layer: int) -> bool:
    return not config.flag("use_parallel_residual")


# fmt: off
ARCHITECTURE = Architecture(
    name="stablelm",
    gguf="stablelm",
    model_type="stablelm",
    classes=("StableLmForCausalLM", "StableLmModel"),
    base_prefix="model.",
    head="output.weight",
    must_have_head=True,
    rows=(
        *d.embedding_rows(norm_bias=True), *d.mlp_rows(),
        *d.attention_rows(bias=d.if_true("use_qkv_bias"), out_bias=False),
        *d.linear("input_layernorm", "attn_norm", bias=True),
        *d.linear("post_attention_layernorm", "ffn_norm", bias=True, when=_serial),
        Row(d.SOURCE + "self_attn.q_layernorm.norms.{e}.weight", "blk.{b}.attn_q_norm.weight", (Stack(),),
            d.if_true("qk_layernorm"), count="num_attention_heads"),
        Row(d.SOURCE + "self_attn.k_layernorm.norms.{e}.weight", "blk.{b}.attn_k_norm.weight", (Stack(),),
            d.if_true("qk_layernorm"), count="num_key_value_heads"),
    ),
    keys=(
        *d.sizes(), Key("layer_norm_eps", d.LN_EPS, "f32"), d.VOCAB,
        Rope(partial=0.25).facts(),
        d.told_by("use_qkv_bias", "blk.0.attn_q.bias"), d.told_by("qk_layernorm", "blk.0.attn_q_norm.weight"),
        Facts(
            ("use_parallel_residual",),
            lambda config: [("use_parallel_residual", "bool", config.flag("use_parallel_residual"))],
            lambda pairs, tensors: {"use_parallel_residual": "blk.0.ffn_norm.weight" not in tensors},
        ),
    ),
    defaults={
        "vocab_size": 50304, "intermediate_size": 6912, "hidden_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 4096,
        "layer_norm_eps": 1e-5, "tie_word_embeddings": False, "use_qkv_bias": False, "qk_layernorm": False,
        "use_parallel_residual": False,
    },
    fixed={"hidden_act": d.SILU},
    aliases={"norm_eps": "layer_norm_eps", "rope_pct": "partial_rotary_factor"},
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (*WIDTHS, CONTEXT, "use_qkv_bias", "layer_norm_eps", "use_parallel_residual", "qk_layernorm"),
        Rope(partial=0.25, types=("default",), runtime="mlx-lm"), partial=True,
        uses=("tie_word_embeddings",), ties=False, fixed={"hidden_act": d.SILU},
    ),
)
