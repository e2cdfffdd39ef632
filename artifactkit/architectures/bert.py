"""BERT, RoBERTa and XLM-RoBERTa as encoders: embeddings out, no head.

transformers: models/bert, models/roberta, models/xlm_roberta. llama.cpp: LLM_ARCH_BERT. RoBERTa's positions begin after
the padding token's: the rows before are never looked up, and llama.cpp counts from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..artifact import TensorView
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Drop, Facts, Key, Pairs, Row
from ..modeling.config import Config
from ..modeling.encoder import CAUSAL, TOKEN_TYPES
from ..modeling.ops import Op
from ..modeling.parts import SkipRows

L = "encoder.layer.{b}."


def _rows(*positions: Op) -> tuple[Row, ...]:
    linear = [
        ("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"), ("attention.self.value", "attn_v"),
        ("attention.output.dense", "attn_output"), ("attention.output.LayerNorm", "attn_output_norm"),
        ("intermediate.dense", "ffn_up"), ("output.dense", "ffn_down"), ("output.LayerNorm", "layer_output_norm"),
    ]  # fmt: skip
    return (
        Row("embeddings.word_embeddings.weight", "token_embd.weight"),
        Row("embeddings.position_embeddings.weight", "position_embd.weight", positions),
        Row("embeddings.token_type_embeddings.weight", "token_types.weight"),
        Row("embeddings.LayerNorm.weight", "token_embd_norm.weight"),
        Row("embeddings.LayerNorm.bias", "token_embd_norm.bias"),
        *(row for source, target in linear for row in d.linear(source, target, bias=True, prefix=L)),
    )


# fmt: off
DROPS = (
    Drop(r"(.*\.)?embeddings\.(position_ids|token_type_ids)", "a constant, which is computed"),
    Drop(r"(.*\.)?pooler\.dense\.(weight|bias)", "the pooler's projection: llama.cpp pools without one", loss=True),
    Drop(r"(cls|lm_head)\..*", "the language-model head: llama.cpp gives embeddings", loss=True),
)
DEFAULTS = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "tie_word_embeddings": True,
}
FIXED = {"hidden_act": ("gelu", *d.GELU_TANH), "position_embedding_type": ("absolute", None)}
KEYS = (Key("layer_norm_eps", d.LN_EPS, "f32"), d.VOCAB, TOKEN_TYPES, CAUSAL)

BERT = Architecture(
    name="bert",
    gguf="bert",
    model_type="bert",
    classes=("BertModel", "BertForMaskedLM", "BertForPreTraining"),
    outer_prefix="bert.",
    encoder=True,
    gelu=True,
    rows=_rows(),
    keys=(*d.sizes(kv_heads=""), *KEYS),
    defaults={**DEFAULTS, "vocab_size": 30522, "pad_token_id": 0},
    fixed=FIXED,
    drops=DROPS,
    also=lambda pairs: pairs.get("tokenizer.ggml.model") in ("bert", None),
    notes="embeddings alone: pooler and heads stay behind",
)


def _context(config: Config) -> list[tuple[str, str, object]]:
    pad = config["pad_token_id"]
    first = pad + 1 if isinstance(pad, int) else 0
    return [("context_length", "u32", config.count("max_position_embeddings") - first)]


def _context_back(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
    pad = pairs.get("tokenizer.ggml.padding_token_id")
    pad = pad if isinstance(pad, int) else 1
    return {"max_position_embeddings": pairs.count("context_length") + pad + 1, "pad_token_id": pad}


ROBERTA = replace(
    BERT,
    name="roberta",
    model_type="roberta",
    classes=("RobertaModel", "RobertaForMaskedLM"),
    outer_prefix="roberta.",
    rows=_rows(SkipRows("pad_token_id", 1, "rows of padding positions, never looked up, are left out")),
    keys=(
        *d.sizes(context="", kv_heads=""), *KEYS,
        Facts(("max_position_embeddings", "pad_token_id"), _context, _context_back),
    ),
    defaults={**DEFAULTS, "vocab_size": 50265, "pad_token_id": 1},
    also=lambda pairs: pairs.get("tokenizer.ggml.model") == "gpt2",
    notes="embeddings alone: pooler, heads and the unused first rows of the positions stay behind",
)

XLM_ROBERTA = replace(  # RoBERTa's code with another vocabulary
    ROBERTA,
    name="xlm_roberta",
    model_type="xlm-roberta",
    classes=("XLMRobertaModel", "XLMRobertaForMaskedLM"),
    defaults={**DEFAULTS, "vocab_size": 30522, "pad_token_id": 1},
    also=lambda pairs: pairs.get("tokenizer.ggml.model") == "t5",
)

ARCHITECTURE = (BERT, ROBERTA, XLM_ROBERTA)
