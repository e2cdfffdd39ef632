"""SmolLM3: Llama in which every fourth layer has no positions.

transformers: models/smollm3. llama.cpp: LLM_ARCH_SMOLLM3, which has the step of four built in.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture
from ..modeling.config import Config
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx
from ..modeling.ops import rotary
from ..modeling.rope import Rope


def _every_fourth(config: Config) -> list[object]:
    return [int((i + 1) % 4 != 0) for i in range(config.count("num_hidden_layers"))]


# fmt: off
ARCHITECTURE = Architecture(
    name="smollm3",
    gguf="smollm3",
    model_type="smollm3",
    classes=("SmolLM3ForCausalLM", "SmolLM3Model"),
    base_prefix="model.",
    head="output.weight",
    rows=(
        *d.embedding_rows(), *d.norm_rows(),
        *d.attention_rows((rotary("num_attention_heads"),), (rotary("num_key_value_heads"),)), *d.mlp_rows(),
    ),
    keys=(*d.sizes(), d.RMS_EPS, d.VOCAB, Rope(theta=2e6).facts()),
    defaults={
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "hidden_act": "silu", "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "use_sliding_window": False, "sliding_window": None, "no_rope_layers": None,
        "no_rope_layer_interval": 4, "layer_types": None, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True,
    },
    when_null={**d.HEADS_NULL, "layer_types": d.full_attention, "no_rope_layers": lambda c: [
        int((i + 1) % c.count("no_rope_layer_interval") != 0) for i in range(c.count("num_hidden_layers"))
    ]},
    fixed={
        "hidden_act": d.SILU, "attention_bias": (False,), "mlp_bias": (False,), "use_sliding_window": (False, None),
    },
    inert=frozenset({"sliding_window", "max_window_layers"}),
    checks=(
        d.only_pattern("no_rope_layers", _every_fourth, "no positions in every fourth layer"),
        d.only_pattern("layer_types", d.full_attention, "full attention in every layer"),
    ),
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (*KEYS, "attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval"),
        Rope(theta=2e6, types=("default", "linear", "llama3", "yarn"), runtime="mlx-lm"), uses=("layer_types",),
        fixed={"hidden_act": d.SILU, "use_sliding_window": (False, None)},
        checks=(d.only_pattern("layer_types", d.full_attention, "full attention in every layer"),),
    ),
)
