"""ModernBERT as an encoder: rotary positions, every third layer over all tokens, the others over a window.

transformers: models/modernbert. llama.cpp: LLM_ARCH_MODERN_BERT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..artifact import TensorView
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Drop, Facts, Key, Pairs, Row
from ..modeling.config import Config
from ..modeling.encoder import CAUSAL
from ..modeling.rope import READS, Rope

WINDOW, FULL = "sliding_attention", "full_attention"
GLOBAL, LOCAL = Rope(theta=160000.0, types=("default",)), Rope(theta=10000.0, types=("default",))


def _types(config: Config) -> list[object]:
    every = config.count("global_attn_every_n_layers")
    return [WINDOW if i % every else FULL for i in range(config.count("num_hidden_layers"))]


def _not_first(config: Config, layer: int) -> bool:
    return layer > 0


def _ropes(config: Config) -> tuple[object, object]:
    """(base of full attention, base of the window): nested in transformers 5, two keys in 4."""
    both = config["rope_parameters"] or {}
    if not isinstance(both, dict):
        raise config.wrong("rope_parameters", "an object")
    out = []
    for rope, kind, key in ((GLOBAL, FULL, "global_rope_theta"), (LOCAL, WINDOW, "local_rope_theta")):
        given = both.get(kind) or {}
        if not isinstance(given, dict):
            raise config.wrong("rope_parameters", "an object of objects")
        mine = dict(given)
        if config.given(key):
            mine.setdefault("rope_theta", config[key])
        out.append(rope.standard(mine, config, "rope_parameters")["rope_theta"])
    return out[0], out[1]


def _facts(config: Config) -> Iterable[tuple[str, str, object]]:
    full, window = _ropes(config)
    yield "rope.freq_base", "f32", full
    yield "rope.freq_base_swa", "f32", window
    yield "rope.scaling.type", "string", "none"
    yield "attention.sliding_window", "u32", config.count("local_attention")
    yield "attention.sliding_window_pattern", "u32", config.count("global_attn_every_n_layers")


def _facts_back(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
    every, layers = pairs.count("attention.sliding_window_pattern"), pairs.count("block_count")
    return {
        "rope_parameters": {
            WINDOW: {"rope_type": "default", "rope_theta": pairs.get("rope.freq_base_swa") or 10000.0},
            FULL: {"rope_type": "default", "rope_theta": pairs.get("rope.freq_base") or 160000.0},
        },
        "local_attention": pairs.count("attention.sliding_window"),
        "layer_types": [WINDOW if i % every else FULL for i in range(min(layers, len(tensors)))],
    }


# fmt: off
L = "layers.{b}."
ARCHITECTURE = Architecture(
    name="modernbert",
    gguf="modern-bert",
    model_type="modernbert",
    classes=("ModernBertModel", "ModernBertForMaskedLM"),
    outer_prefix="model.",
    encoder=True,
    gelu=True,
    rows=(
        Row("embeddings.tok_embeddings.weight", "token_embd.weight"),
        Row("embeddings.norm.weight", "token_embd_norm.weight"), Row("final_norm.weight", "output_norm.weight"),
        *d.linear("attn_norm", "attn_norm", when=_not_first, prefix=L), *d.linear("attn.Wqkv", "attn_qkv", prefix=L),
        *d.linear("attn.Wo", "attn_output", prefix=L), *d.linear("mlp_norm", "ffn_norm", prefix=L),
        *d.linear("mlp.Wi", "ffn_up", prefix=L), *d.linear("mlp.Wo", "ffn_down", prefix=L),
    ),
    keys=(
        *d.sizes(kv_heads=""), Key("norm_eps", d.LN_EPS, "f32"), d.VOCAB, CAUSAL,
        Key("hidden_activation", "hidden_activation", "string", "gelu"),
        Facts((*READS, "global_rope_theta", "local_rope_theta", "local_attention", "layer_types",
               "global_attn_every_n_layers"), _facts, _facts_back),
    ),
    defaults={
        "vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22,
        "num_attention_heads": 12, "hidden_activation": "gelu", "max_position_embeddings": 8192, "norm_eps": 1e-5,
        "norm_bias": False, "attention_bias": False, "layer_types": None, "local_attention": 128, "mlp_bias": False,
        "decoder_bias": True, "tie_word_embeddings": True, "global_attn_every_n_layers": 3,
    },
    when_null={"layer_types": _types},
    fixed={
        "hidden_activation": ("gelu", "silu"), "norm_bias": (False,), "attention_bias": (False,),
        "mlp_bias": (False,), "position_embedding_type": ("absolute", "sans_pos", None), "layer_norm_eps": (1e-5, None),
    },
    inert=frozenset({"decoder_bias"}),
    checks=(d.only_pattern("layer_types", _types, "full attention in the first of every few layers"),),
    drops=(Drop(r"(head|decoder|classifier)\..*", "the language-model head: llama.cpp gives embeddings", loss=True),),
    notes="embeddings alone: the head stays behind",
)
