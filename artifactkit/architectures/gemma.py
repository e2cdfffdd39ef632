"""Gemma 1, 2 and 3 (text): norms that multiply by 1 + w, an embedding scaled by the root of its width.

transformers: models/gemma, models/gemma2, models/gemma3. llama.cpp: LLM_ARCH_GEMMA, GEMMA2, GEMMA3, whose norms
multiply by w alone: 1 is added here. Gemma 2 and 3 alternate between a window and full attention in a built-in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..artifact import TensorView
from ..errors import RouteRefused
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Facts, Key, Pairs
from ..modeling.config import Config, shown
from ..modeling.mlx import LLAMA as KEYS
from ..modeling.mlx import Mlx, embedding_scale_loss, gelu_loss, no_window, scaling
from ..modeling.ops import Shift
from ..modeling.rope import READS, Rope

WINDOW, FULL = "sliding_attention", "full_attention"


def _alternating(every: int) -> d.Pattern:
    def pattern(config: Config) -> list[object]:
        return [WINDOW if (i + 1) % every else FULL for i in range(config.count("num_hidden_layers"))]

    return pattern


def _scale(layers_of_largest: int) -> d.Check:
    """llama.cpp divides scores by the root of the head's size, or of width / heads for the largest model."""

    def check(config: Config) -> None:
        given = config.real("query_pre_attn_scalar")
        size = config.count("head_dim")
        if config.count("num_hidden_layers") == layers_of_largest:
            size = config.count("hidden_size") // config.count("num_attention_heads")
        if given != size:
            raise RouteRefused(
                "llama.cpp scales attention by the size of a head, this model by another number",
                file=config.file,
                member="query_pre_attn_scalar",
                expected=size,
                found=shown(config["query_pre_attn_scalar"]),
            )

    return check


def _scalar_back(layers_of_largest: int) -> Facts:
    def inverse(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
        if pairs.get("block_count") == layers_of_largest:
            return {"query_pre_attn_scalar": pairs.count("embedding_length") // pairs.count("attention.head_count")}
        return {"query_pre_attn_scalar": pairs.count("attention.key_length")}

    return Facts(("query_pre_attn_scalar",), lambda config: (), inverse)


# fmt: off
ROWS = (
    *d.embedding_rows(Shift()), *d.attention_rows(), *d.mlp_rows(),
    *d.linear("input_layernorm", "attn_norm", Shift()),
)
FOUR_NORMS = (
    *ROWS,
    *d.linear("post_attention_layernorm", "post_attention_norm", Shift()),
    *d.linear("pre_feedforward_layernorm", "ffn_norm", Shift()),
    *d.linear("post_feedforward_layernorm", "post_ffw_norm", Shift()),
)
SIZES = {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
         "attention_bias": False, "query_pre_attn_scalar": 256, "sliding_window": 4096, "layer_types": None,
         "hidden_activation": "gelu_pytorch_tanh"}
DIRECTIONS = (False, None)
MLX_ROPE = Rope(types=("default",), runtime="mlx-lm")

GEMMA = Architecture(
    name="gemma",
    gguf="gemma",
    model_type="gemma",
    classes=("GemmaForCausalLM", "GemmaModel"),
    base_prefix="model.",
    head="output.weight",
    may_untie=False,
    gelu=True,
    rows=(*ROWS, *d.linear("post_attention_layernorm", "ffn_norm", Shift())),
    keys=(*d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM, Rope(types=("default", "linear")).facts()),
    defaults={
        "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attention_bias": False,
        "use_bidirectional_attention": None,
    },
    # "gelu" is a slip of the first configs, and means the tanh form (transformers reads it so too)
    fixed={
        "hidden_act": (*d.GELU_TANH, "gelu"), "hidden_activation": (*d.GELU_TANH, None), "attention_bias": (False,),
        "use_bidirectional_attention": DIRECTIONS,
    },
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (*KEYS, "head_dim"), MLX_ROPE, always_ties=True, losses=gelu_loss("hidden_act", "gelu"), gelu=True,
        fixed={
            "hidden_act": (*d.GELU_TANH, "gelu"), "hidden_activation": (*d.GELU_TANH, None),
            "attention_bias": (False,), "use_bidirectional_attention": DIRECTIONS,
        },
    ),
)

GEMMA2 = Architecture(
    name="gemma2",
    gguf="gemma2",
    model_type="gemma2",
    classes=("Gemma2ForCausalLM", "Gemma2Model"),
    base_prefix="model.",
    head="output.weight",
    may_untie=False,
    gelu=True,
    rows=FOUR_NORMS,
    keys=(
        *d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM, Rope(types=("default", "linear")).facts(),
        Key("attn_logit_softcapping", "attn_logit_softcapping", "f32", 50.0),
        Key("final_logit_softcapping", "final_logit_softcapping", "f32", 30.0),
        Key("sliding_window", "attention.sliding_window", "u32", 4096), _scalar_back(46),
    ),
    defaults={
        **SIZES, "vocab_size": 256000, "max_position_embeddings": 8192, "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0, "use_bidirectional_attention": None,
    },
    when_null={"layer_types": _alternating(2)},
    fixed={
        "hidden_activation": d.GELU_TANH, "hidden_act": (*d.GELU_TANH, None), "attention_bias": (False,),
        "use_bidirectional_attention": DIRECTIONS, "cache_implementation": ("hybrid", None),
    },
    inert=frozenset({"sliding_window_size"}),  # what the first configs called sliding_window, beside it
    checks=(
        _scale(46), d.only_pattern("layer_types", _alternating(2), "every second layer with full attention"),
        d.must_be("attn_logit_softcapping"), d.must_be("final_logit_softcapping"), d.must_be("sliding_window"),
    ),
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (*KEYS, "head_dim", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"), MLX_ROPE,
        uses=("sliding_window", "layer_types"), always_ties=True, checks=(no_window(),),
        fixed={
            "hidden_activation": d.GELU_TANH, "hidden_act": (*d.GELU_TANH, None), "attention_bias": (False,),
            "use_bidirectional_attention": DIRECTIONS, "cache_implementation": ("hybrid", None),
        },
    ),
)

GLOBAL, LOCAL = Rope(theta=1e6, types=("default", "linear")), Rope(theta=1e4, types=("default",))


def _two_ropes(config: Config) -> tuple[dict[str, object], dict[str, object]]:
    """(of full attention, of the window) as transformers 5 completes them; 4 had ``rope_local_base_freq``."""
    both = config["rope_parameters"] or {}
    if not isinstance(both, dict):
        raise config.wrong("rope_parameters", "an object")
    if both and not {WINDOW, FULL} & both.keys():
        both = {FULL: both}
    full, window = dict(both.get(FULL) or {}), dict(both.get(WINDOW) or {})
    if isinstance(config["rope_scaling"], dict):
        full |= config["rope_scaling"]
    theta = config["rope_local_base_freq"] if config.given("rope_local_base_freq") else 1e4
    window.setdefault("rope_theta", theta)
    local = Config({k: v for k, v in config.raw.items() if k != "rope_theta"}, config.defaults, config.when_null)
    return GLOBAL.standard(full, config, "rope_parameters"), LOCAL.standard(window, local, "rope_parameters")


def _rope(config: Config) -> Iterable[tuple[str, str, object]]:
    full, window = _two_ropes(config)
    yield "rope.dimension_count", "u32", config.count("head_dim")
    yield "rope.freq_base", "f32", full["rope_theta"]
    yield "rope.freq_base_swa", "f32", window["rope_theta"]
    yield from GLOBAL.scaling(config, full)


def _rope_back(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
    window = {"rope_type": "default", "rope_theta": pairs.get("rope.freq_base_swa") or 10000.0}
    full: dict[str, object] = {"rope_type": "default", "rope_theta": pairs.get("rope.freq_base") or 1e6}
    if pairs.get("rope.scaling.type") == "linear" or pairs.get("rope.scaling.factor"):
        full |= {"rope_type": "linear", "factor": pairs.need("rope.scaling.factor")}
    return {"rope_parameters": {WINDOW: window, FULL: full}}


def _mlx(config: Config) -> Mapping[str, object]:
    """The entries that mlx-lm reads of the two kinds of layers."""
    full, window = _two_ropes(config)
    every = config.opt_count("sliding_window_pattern") or 6
    d.only_pattern("layer_types", _alternating(every), f"every {every}th layer with full attention")(config)
    return {
        "rope_theta": full["rope_theta"], "rope_local_base_freq": window["rope_theta"],
        "rope_scaling": scaling(full, config), "sliding_window_pattern": every,
    }


GEMMA3 = Architecture(
    name="gemma3",
    gguf="gemma3",
    model_type="gemma3_text",
    classes=("Gemma3ForCausalLM",),
    base_prefix="model.",
    head="output.weight",
    gelu=True,
    rows=(
        *FOUR_NORMS, *d.linear("self_attn.q_norm", "attn_q_norm", Shift()),
        *d.linear("self_attn.k_norm", "attn_k_norm", Shift()),
    ),
    keys=(
        *d.sizes(), d.RMS_EPS, d.VOCAB, d.HEAD_DIM, Facts((*READS, "rope_local_base_freq"), _rope, _rope_back),
        Key("final_logit_softcapping", "final_logit_softcapping", "f32", None),
        Key("sliding_window", "attention.sliding_window", "u32", 4096), _scalar_back(62),
    ),
    defaults={
        **SIZES, "vocab_size": 262208, "max_position_embeddings": 131072, "final_logit_softcapping": None,
        "attn_logit_softcapping": None, "use_bidirectional_attention": False,
    },
    when_null={"layer_types": lambda c: _alternating(c.count("sliding_window_pattern"))(c)
               if c.given("sliding_window_pattern") else _alternating(6)(c)},
    fixed={
        "hidden_activation": d.GELU_TANH, "hidden_act": (*d.GELU_TANH, None), "attention_bias": (False,),
        "use_bidirectional_attention": DIRECTIONS, "attn_logit_softcapping": (None,),
        "cache_implementation": ("hybrid", None),
    },
    inert=frozenset({"sliding_window_pattern"}),
    checks=(
        _scale(62), d.only_pattern("layer_types", _alternating(6), "every sixth layer with full attention"),
        d.must_be("sliding_window"),
    ),
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (*KEYS, "head_dim", "query_pre_attn_scalar", "sliding_window"), also=_mlx,
        uses=(*READS, "rope_local_base_freq", "layer_types"), losses=embedding_scale_loss,
        fixed={
            "hidden_activation": d.GELU_TANH, "hidden_act": (*d.GELU_TANH, None), "attention_bias": (False,),
            "use_bidirectional_attention": DIRECTIONS, "attn_logit_softcapping": (None,),
            "final_logit_softcapping": (None,), "cache_implementation": ("hybrid", None),
        },
    ),
    notes="the text model alone; a folder that holds the vision tower too is refused by its tensors",
)

ARCHITECTURE = (GEMMA, GEMMA2, GEMMA3)
