"""Phi-3 and Phi-4: query, key and value in one matrix, gate and up in one, longrope.

transformers: models/phi3. llama.cpp: LLM_ARCH_PHI3, which takes both as they are. It chooses between the two sets of
rotary factors by the size of the context that it is opened with, transformers by the length of the text: the two agree
when the context is at most ``original_max_position_embeddings`` and the text too, or when both are longer.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Facts
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx, no_window
from ..modeling.rope import Rope

# fmt: off
ARCHITECTURE = Architecture(
    name="phi3",
    gguf="phi3",
    model_type="phi3",
    classes=("Phi3ForCausalLM", "Phi3Model"),
    base_prefix="model.",
    head="output.weight",
    rows=(
        *d.embedding_rows(), *d.norm_rows(), *d.linear("self_attn.qkv_proj", "attn_qkv"),
        *d.linear("self_attn.o_proj", "attn_output"), *d.linear("mlp.gate_up_proj", "ffn_up"),
        *d.linear("mlp.down_proj", "ffn_down"),
    ),
    keys=(
        *d.sizes(), d.RMS_EPS, d.VOCAB,
        Rope(partial=1.0, types=("default", "longrope"), su=("su", "yarn"), original=True).facts(),
        # a window of 0 says that there is none; llama.cpp tells Phi-4 from Phi-3 by it
        Facts(
            ("sliding_window",),
            lambda config: [("attention.sliding_window", "u32", config.opt_count("sliding_window") or 0)],
            lambda pairs, tensors: {"sliding_window": pairs.get("attention.sliding_window") or None},
        ),
    ),
    defaults={
        "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "sliding_window": None,
    },
    when_null=d.HEADS_NULL,
    fixed={"hidden_act": d.SILU, "attention_bias": (False, None)},
    drops=(d.INV_FREQ,),
    losses=d.WINDOW,
    mlx=Mlx(
        (*KEYS, "original_max_position_embeddings"),
        Rope(partial=1.0, types=("default", "linear"), su=("su",), runtime="mlx-lm"), partial=True,
        uses=("sliding_window",), fixed={"hidden_act": d.SILU, "attention_bias": (False, None)}, checks=(no_window(),),
    ),
    notes=d.WINDOW_NOTE + "; longrope's set of factors is chosen by the size of the context, in "
          "transformers by the length of the text",
)
