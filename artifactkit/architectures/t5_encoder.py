"""The encoder of T5: relative positions in buckets, norms without a mean.

transformers: models/t5 (T5EncoderModel). llama.cpp: LLM_ARCH_T5ENCODER.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..artifact import TensorView
from ..errors import RouteRefused
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Drop, Facts, Key, Pairs, Row
from ..modeling.config import Config, shown

B, T = "encoder.block.{b}.layer.", "enc.blk.{b}."


def _gated(config: Config, layer: int = 0) -> bool:
    return str(config["feed_forward_proj"]).startswith("gated-")


def _plain(config: Config, layer: int = 0) -> bool:
    return not _gated(config)


def _first(config: Config, layer: int) -> bool:
    return layer == 0


def _activation(config: Config) -> None:
    """Gated blocks use GELU's tanh form, plain ones ReLU; ``gated-gelu`` has always meant gelu_new."""
    given = config["feed_forward_proj"]
    if given not in ("relu", "gated-gelu"):
        raise RouteRefused(
            "llama.cpp's T5 computes other feed-forward blocks", file=config.file, member="feed_forward_proj",
            expected='"relu" or "gated-gelu"', found=shown(given),
        )  # fmt: skip


def _eps(config: Config) -> Iterable[tuple[str, str, object]]:
    eps = config.real("layer_norm_epsilon")
    yield "attention.layer_norm_epsilon", "f32", eps
    yield "attention.layer_norm_rms_epsilon", "f32", eps


def _head(config: Config) -> Iterable[tuple[str, str, object]]:
    yield "attention.key_length", "u32", config.count("d_kv")
    yield "attention.value_length", "u32", config.count("d_kv")


def _ffn_back(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
    return {"feed_forward_proj": "gated-gelu" if "enc.blk.0.ffn_gate.weight" in tensors else "relu"}


# fmt: off
ARCHITECTURE = Architecture(
    name="t5_encoder",
    gguf="t5encoder",
    model_type="t5",
    classes=("T5EncoderModel",),
    encoder=True,
    gelu=True,
    layers="num_layers",
    rows=(
        Row("shared.weight", "token_embd.weight"), Row("encoder.final_layer_norm.weight", "enc.output_norm.weight"),
        *(Row(f"{B}0.SelfAttention.{n}.weight", f"{T}attn_{n}.weight") for n in "qkvo"),
        Row(B + "0.SelfAttention.relative_attention_bias.weight", T + "attn_rel_b.weight", (), _first),
        Row(B + "0.layer_norm.weight", T + "attn_norm.weight"), Row(B + "1.layer_norm.weight", T + "ffn_norm.weight"),
        Row(B + "1.DenseReluDense.wi_0.weight", T + "ffn_gate.weight", (), _gated),
        Row(B + "1.DenseReluDense.wi_1.weight", T + "ffn_up.weight", (), _gated),
        Row(B + "1.DenseReluDense.wi.weight", T + "ffn_up.weight", (), _plain),
        Row(B + "1.DenseReluDense.wo.weight", T + "ffn_down.weight"),
    ),
    keys=(
        *d.sizes("n_positions", "d_model", "d_ff", "num_heads", "", "num_layers"), d.VOCAB,
        Facts(("d_kv",), _head, lambda pairs, tensors: {"d_kv": pairs.count("attention.key_length")}),
        Facts(("layer_norm_epsilon",), _eps,
              lambda pairs, tensors: {"layer_norm_epsilon": pairs.need("attention.layer_norm_rms_epsilon")}),
        Facts(("feed_forward_proj", "dense_act_fn", "is_gated_act"), lambda config: (), _ffn_back),
        Key("relative_attention_num_buckets", "attention.relative_buckets_count"),
    ),
    defaults={
        "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "relu", "n_positions": 512, "tie_word_embeddings": True,
    },
    fixed={"relative_attention_max_distance": (128,), "is_encoder_decoder": (True, False)},
    writes={"is_encoder_decoder": False},
    inert=frozenset({"num_decoder_layers", "output_past", "scale_decoder_outputs"}),
    aliases={"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers",
             "head_dim": "d_kv"},
    checks=(_activation,),
    drops=(Drop(r"encoder\.embed_tokens\.weight", "the embedding, which is stored as shared.weight"),),
    notes="embeddings alone; a folder with the decoder too is refused by its class",
)
