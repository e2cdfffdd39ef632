"""StarCoder2: norms and linear layers with biases, a plain feed-forward block.

transformers: models/starcoder2. llama.cpp: LLM_ARCH_STARCODER2.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Key
from ..modeling.mlx import CONTEXT, TIED, WIDTHS, Mlx, gelu_loss, no_window
from ..modeling.rope import Rope

BIAS = d.if_true("use_bias")

# fmt: off
ARCHITECTURE = Architecture(
    name="starcoder2",
    gguf="starcoder2",
    model_type="starcoder2",
    classes=("Starcoder2ForCausalLM", "Starcoder2Model"),
    base_prefix="model.",
    head="output.weight",
    gelu=True,
    rows=(
        *d.embedding_rows(norm_bias=True), *d.norm_rows(bias=True), *d.attention_rows(bias=BIAS),
        *d.linear("mlp.c_fc", "ffn_up", bias=BIAS), *d.linear("mlp.c_proj", "ffn_down", bias=BIAS),
    ),
    keys=(
        *d.sizes(), Key("norm_epsilon", d.LN_EPS, "f32"), d.VOCAB,
        Rope().facts(), d.told_by("use_bias", "blk.0.attn_q.bias"),
    ),
    defaults={
        "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,
        "num_attention_heads": 24, "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096, "norm_epsilon": 1e-5, "sliding_window": None, "use_bias": True,
        "tie_word_embeddings": True,
    },
    fixed={
        "hidden_act": (*d.GELU_TANH, "gelu"), "use_bias": (True,), "mlp_type": ("default",),
        "norm_type": ("layer_norm",),
    },
    drops=(d.INV_FREQ,),
    losses=d.WINDOW,
    notes=d.WINDOW_NOTE,
    mlx=Mlx(
        (*WIDTHS, CONTEXT, TIED, "norm_epsilon"), Rope(types=("default",), runtime="mlx-lm"), uses=("sliding_window",),
        checks=(no_window(),), losses=gelu_loss("hidden_act", "gelu"), gelu=True,
        fixed={
            "hidden_act": (*d.GELU_TANH, "gelu"), "use_bias": (True,), "mlp_type": ("default",),
            "norm_type": ("layer_norm",),
        },
    ),
)
