"""GPT-2: learned positions, one matrix for query, key and value, weights stored as input x output.

transformers: models/gpt2 (``Conv1D`` holds the transposed matrix). llama.cpp: LLM_ARCH_GPT2.
"""

from __future__ import annotations

from ..errors import RouteRefused
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Drop, Key, Row
from ..modeling.config import Config
from ..modeling.mlx import Mlx, gelu_loss
from ..modeling.ops import Transpose

H = "transformer.h.{b}."


def _conv(source: str, target: str) -> tuple[Row, ...]:
    return (
        Row(f"{H}{source}.weight", f"blk.{{b}}.{target}.weight", (Transpose(),)),
        Row(f"{H}{source}.bias", f"blk.{{b}}.{target}.bias"),
    )


def _mlx_width(config: Config) -> None:
    """mlx-lm's feed-forward block is four times as wide as the model."""
    if config.count("n_inner") != 4 * config.count("n_embd"):
        raise RouteRefused(
            "mlx-lm's gpt2 has a feed-forward block four times as wide as the model", file=config.file,
            member="n_inner", expected=4 * config.count("n_embd"), found=config.count("n_inner"),
        )  # fmt: skip


# fmt: off
ARCHITECTURE = Architecture(
    name="gpt2",
    gguf="gpt2",
    model_type="gpt2",
    classes=("GPT2LMHeadModel", "GPT2Model"),
    base_prefix="transformer.",
    head="output.weight",
    layers="n_layer",
    gelu=True,
    rows=(
        Row("transformer.wte.weight", "token_embd.weight"), Row("transformer.wpe.weight", "position_embd.weight"),
        Row("transformer.ln_f.weight", "output_norm.weight"), Row("transformer.ln_f.bias", "output_norm.bias"),
        Row("lm_head.weight", "output.weight"),
        *d.linear("ln_1", "attn_norm", bias=True, prefix=H), *d.linear("ln_2", "ffn_norm", bias=True, prefix=H),
        *_conv("attn.c_attn", "attn_qkv"), *_conv("attn.c_proj", "attn_output"), *_conv("mlp.c_fc", "ffn_up"),
        *_conv("mlp.c_proj", "ffn_down"),
    ),
    keys=(
        *d.sizes("n_positions", "n_embd", "n_inner", "n_head", "", "n_layer"), d.VOCAB,
        Key("layer_norm_epsilon", d.LN_EPS, "f32"),
    ),
    defaults={
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False, "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    when_null={"n_inner": lambda config: 4 * config.count("n_embd")},
    fixed={
        "activation_function": (*d.GELU_TANH, "gelu"), "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
    },
    inert=frozenset({"n_ctx", "reorder_and_upcast_attn", "n_special", "predict_special_tokens"}),
    aliases={
        "hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    drops=(Drop(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias", "the causal mask, which is computed"),),
    mlx=Mlx(
        ("n_embd", "n_head", "n_layer", "n_positions", "layer_norm_epsilon", "vocab_size"),
        also=lambda config: {"n_ctx": config["n_positions"]}, uses=("n_inner", "tie_word_embeddings"),
        fixed={
            "activation_function": (*d.GELU_TANH, "gelu"), "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
        },
        losses=gelu_loss("activation_function", "gelu_new"),
        checks=(_mlx_width,), always_ties=True, names=((r"^transformer\.", "model."),),
        turned=r".*\.(c_attn|c_proj|c_fc)\.weight",
    ),
)
