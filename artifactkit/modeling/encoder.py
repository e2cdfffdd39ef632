"""What encoders have in common, as tables that the families put together."""

from __future__ import annotations

from .architecture import Facts

CAUSAL = Facts((), lambda config: [("attention.causal", "bool", False)], lambda pairs, tensors: {})

# How many kinds of segment there are; llama.cpp keeps the count with the tokenizer's facts.
TOKEN_TYPES = Facts(
    ("type_vocab_size",),
    lambda config: [("tokenizer.ggml.token_type_count", "u32", config.count("type_vocab_size"))],
    lambda pairs, tensors: {
        "type_vocab_size": tensors["token_types.weight"].shape[0] if "token_types.weight" in tensors else 1
    },
)
