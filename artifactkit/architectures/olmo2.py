"""OLMo2: norms after attention and after the feed-forward block, queries and keys normed whole.

transformers: models/olmo2. llama.cpp: LLM_ARCH_OLMO2.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx
from ..modeling.rope import Rope

# fmt: off
ARCHITECTURE = Architecture(
    name="olmo2",
    gguf="olmo2",
    model_type="olmo2",
    classes=("Olmo2ForCausalLM", "Olmo2Model"),
    base_prefix="model.",
    head="output.weight",
    must_have_head=True,
    rows=(
        *d.embedding_rows(), *d.attention_rows(), *d.mlp_rows(),
        *d.linear("self_attn.q_norm", "attn_q_norm"), *d.linear("self_attn.k_norm", "attn_k_norm"),
        *d.linear("post_attention_layernorm", "post_attention_norm"),
        *d.linear("post_feedforward_layernorm", "post_ffw_norm"),
    ),
    keys=(*d.sizes(), d.RMS_EPS, d.VOCAB, Rope().facts()),
    defaults={
        "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": False,
    },
    when_null=d.HEADS_NULL,
    fixed={"hidden_act": d.SILU, "attention_bias": (False,)},
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        KEYS, Rope(types=("default", "linear", "llama3", "yarn"), runtime="mlx-lm"),
        fixed={"hidden_act": d.SILU, "attention_bias": (False,)},
    ),
)
