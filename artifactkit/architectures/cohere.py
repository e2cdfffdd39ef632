"""Command R: one norm a layer, attention and feed-forward side by side, logits scaled.

transformers: models/cohere, whose rotary positions turn neighbouring pairs as llama.cpp's LLM_ARCH_COMMAND_R does.
"""

from __future__ import annotations

from ..errors import RouteRefused
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Key
from ..modeling.config import Config
from ..modeling.mlx import CONTEXT, TIED, WIDTHS, Mlx
from ..modeling.rope import Rope


def _check(config: Config) -> None:
    """llama.cpp looks for norms of queries and keys by the number of layers (Command R+ has 64)."""
    large = config.count("num_hidden_layers") >= 64
    if config.flag("use_qk_norm") != large:
        raise RouteRefused(
            "llama.cpp norms queries and keys of Command R by the number of layers: 64 and more", file=config.file,
            member="use_qk_norm", expected="true" if large else "false", found=str(not large).lower(),
        )  # fmt: skip


# fmt: off
NORMED = d.if_true("use_qk_norm")
ARCHITECTURE = Architecture(
    name="cohere",
    gguf="command-r",
    model_type="cohere",
    classes=("CohereForCausalLM", "CohereModel"),
    base_prefix="model.",
    head="output.weight",
    may_untie=False,
    rows=(
        *d.embedding_rows(), *d.mlp_rows(), *d.attention_rows(), *d.linear("input_layernorm", "attn_norm"),
        *d.linear("self_attn.q_norm", "attn_q_norm", when=NORMED),
        *d.linear("self_attn.k_norm", "attn_k_norm", when=NORMED),
    ),
    keys=(
        *d.sizes(), Key("layer_norm_eps", d.LN_EPS, "f32"), d.VOCAB, Key("logit_scale", "logit_scale", "f32"),
        Rope(theta=5e5, types=("default",), write_none=True).facts(),
        d.told_by("use_qk_norm", "blk.0.attn_q_norm.weight"),
    ),
    defaults={
        "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "logit_scale": 0.0625,
        "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": None, "hidden_act": "silu",
        "max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "tie_word_embeddings": True, "attention_bias": False,
        "use_qk_norm": False,
    },
    when_null=d.HEADS_NULL,
    fixed={"hidden_act": d.SILU, "attention_bias": (False,)},
    inert=frozenset({"model_max_length"}),
    checks=(_check,),
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (*WIDTHS, CONTEXT, TIED, "layer_norm_eps", "logit_scale", "attention_bias", "use_qk_norm"),
        Rope(theta=5e5, types=("default",), runtime="mlx-lm"), always_ties=True, plain=r".*\.[qk]_norm\.weight",
        fixed={"hidden_act": d.SILU, "attention_bias": (False,)},
    ),
)
