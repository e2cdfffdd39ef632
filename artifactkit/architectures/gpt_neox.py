"""GPT-NeoX and Pythia: query, key and value of a head side by side in one matrix, part of each head turned.

transformers: models/gpt_neox. llama.cpp: LLM_ARCH_GPTNEOX, which takes all queries first, then keys, then values.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import RouteRefused
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Drop, Key, Row
from ..modeling.config import Config
from ..modeling.mlx import CONTEXT, Mlx, gelu_loss
from ..modeling.ops import Regroup
from ..modeling.rope import READS, Rope

L = "gpt_neox.layers.{b}."
QKV = Regroup(("num_attention_heads", 3, -1), (1, 0, 2), "query, key and value of each head set apart")

MLX_ROPE = Rope(partial=0.25, types=("default",), runtime="mlx-lm")


def _mlx(config: Config) -> Mapping[str, object]:
    """mlx-lm reads the older names of both."""
    rope = MLX_ROPE.parameters(config)
    return {"rotary_emb_base": rope["rope_theta"], "rotary_pct": rope["partial_rotary_factor"]}


def _mlx_width(config: Config) -> None:
    """mlx-lm's feed-forward block is four times as wide as the model."""
    if config.count("intermediate_size") != 4 * config.count("hidden_size"):
        raise RouteRefused(
            "mlx-lm's gpt_neox has a feed-forward block four times as wide as the model", file=config.file,
            member="intermediate_size", expected=4 * config.count("hidden_size"), found=config["intermediate_size"],
        )  # fmt: skip


# fmt: off
ARCHITECTURE = Architecture(
    name="gpt_neox",
    gguf="gptneox",
    model_type="gpt_neox",
    classes=("GPTNeoXForCausalLM", "GPTNeoXModel"),
    base_prefix="gpt_neox.",
    head="output.weight",
    must_have_head=True,
    gelu=True,
    rows=(
        Row("gpt_neox.embed_in.weight", "token_embd.weight"),
        Row("gpt_neox.final_layer_norm.weight", "output_norm.weight"),
        Row("gpt_neox.final_layer_norm.bias", "output_norm.bias"), Row("embed_out.weight", "output.weight"),
        *d.linear("input_layernorm", "attn_norm", bias=True, prefix=L),
        *d.linear("post_attention_layernorm", "ffn_norm", bias=True, prefix=L),
        Row(L + "attention.query_key_value.weight", "blk.{b}.attn_qkv.weight", (QKV,)),
        Row(L + "attention.query_key_value.bias", "blk.{b}.attn_qkv.bias", (QKV,)),
        *d.linear("attention.dense", "attn_output", bias=True, prefix=L),
        *d.linear("mlp.dense_h_to_4h", "ffn_up", bias=True, prefix=L),
        *d.linear("mlp.dense_4h_to_h", "ffn_down", bias=True, prefix=L),
    ),
    keys=(
        *d.sizes(kv_heads=""), Key("layer_norm_eps", d.LN_EPS, "f32"), d.VOCAB,
        Key("use_parallel_residual", "use_parallel_residual", "bool", True),
        Rope(partial=0.25).facts(),
    ),
    defaults={
        "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
        "intermediate_size": 24576, "hidden_act": "gelu", "max_position_embeddings": 2048, "layer_norm_eps": 1e-5,
        "tie_word_embeddings": False, "use_parallel_residual": True, "attention_bias": True,
    },
    fixed={"hidden_act": ("gelu", *d.GELU_TANH), "attention_bias": (True,)},
    aliases={"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"},
    drops=(
        d.INV_FREQ,
        Drop(r"gpt_neox\.layers\.\d+\.attention\.(masked_bias|bias)", "the causal mask, which is computed"),
    ),
    mlx=Mlx(
        (
            "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", CONTEXT, "layer_norm_eps",
            "use_parallel_residual",
        ),
        also=_mlx, uses=(*READS, "intermediate_size", "tie_word_embeddings"), checks=(_mlx_width,), ties=False,
        losses=gelu_loss("hidden_act", "gelu_new"), gelu=True,
        fixed={"hidden_act": ("gelu", *d.GELU_TANH), "attention_bias": (True,)},
        names=((r"^gpt_neox\.layers\.", "model.h."), (r"^gpt_neox\.", "model."), (r"^embed_out\.", "model.embed_out.")),
    ),
)
