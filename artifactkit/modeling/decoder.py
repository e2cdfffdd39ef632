"""What decoders of Llama's make have in common, as tables that the families put together."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import RouteRefused
from ..report import Loss
from .architecture import Drop, Facts, Key, Pairs, Row
from .config import Config, shown
from .ops import Op
from .parts import Halves, Stack

When = Callable[[Config, int], bool]
Pattern = Callable[[Config], list[object]]
Check = Callable[[Config], None]
Losses = Callable[[Config], list[Loss]]

SOURCE, TARGET = "model.layers.{b}.", "blk.{b}."

# Positions were once stored with every layer; transformers computes them.
INV_FREQ = Drop(r"(.*\.)?rotary_emb\.inv_freq", "computed from rope_parameters")

SILU: tuple[object, ...] = ("silu", "swish")
GELU_TANH: tuple[object, ...] = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")


def sizes(
    context: str = "max_position_embeddings", width: str = "hidden_size", ffn: str = "intermediate_size",
    heads: str = "num_attention_heads", kv_heads: str = "num_key_value_heads", layers: str = "num_hidden_layers",
) -> tuple[Key, ...]:  # fmt: skip
    """The sizes that every decoder has, by the names of their config keys; an empty name leaves one out."""
    pairs = (
        (layers, "block_count"), (context, "context_length"), (width, "embedding_length"),
        (ffn, "feed_forward_length"), (heads, "attention.head_count"), (kv_heads, "attention.head_count_kv"),
    )  # fmt: skip
    return tuple(Key(config, kv) for config, kv in pairs if config)


RMS_EPS = Key("rms_norm_eps", "attention.layer_norm_rms_epsilon", "f32")
LN_EPS = "attention.layer_norm_epsilon"
VOCAB = Facts(
    ("vocab_size",), lambda config: [("vocab_size", "u32", config.count("vocab_size"))], lambda pairs, tensors: {}
)


def _head_dim(config: Config) -> list[tuple[str, str, object]]:
    size = config.opt_count("head_dim")
    if size is None:
        return []
    return [("attention.key_length", "u32", size), ("attention.value_length", "u32", size)]


def _head_dim_back(pairs: Pairs, tensors: object) -> dict[str, object]:
    size = pairs.get("attention.key_length")
    if size is None:
        size = pairs.count("embedding_length") // pairs.count("attention.head_count")
    return {"head_dim": size}


HEAD_DIM = Facts(("head_dim",), _head_dim, _head_dim_back)
HEAD_DIM_OR_NULL = Facts(
    ("head_dim",), _head_dim, lambda pairs, tensors: {"head_dim": pairs.get("attention.key_length")}
)


def told_by(key: str, tensor: str) -> Facts:
    """A switch that the file does not hold: it is on when the tensors that it brings are there."""
    return Facts((key,), lambda config: (), lambda pairs, tensors: {key: tensor in tensors})


ATTENTION_BIAS = told_by("attention_bias", "blk.0.attn_q.bias")
MLP_BIAS = told_by("mlp_bias", "blk.0.ffn_up.bias")

HEADS_NULL: dict[str, Callable[[Config], object]] = {
    "num_key_value_heads": lambda config: config["num_attention_heads"],
}
HEAD_DIM_NULL: dict[str, Callable[[Config], object]] = {
    "head_dim": lambda config: config.count("hidden_size") // config.count("num_attention_heads"),
}


def if_true(key: str) -> When:
    """Tensors that are there when ``key`` is true."""
    return lambda config, layer: config.flag(key)


def linear(
    source: str, target: str, *ops: Op, bias: bool | When = False, when: When | None = None, prefix: str = SOURCE
) -> tuple[Row, ...]:
    """The rows of one linear layer of a block: its weight, and its bias when it has one."""
    rows = [Row(f"{prefix}{source}.weight", f"{TARGET}{target}.weight", ops, when)]
    if bias is not False:
        there = when if bias is True else _both(bias, when)
        rows.append(Row(f"{prefix}{source}.bias", f"{TARGET}{target}.bias", ops, there))
    return tuple(rows)


def _both(first: When, second: When | None) -> When:
    if second is None:
        return first
    return lambda config, layer: first(config, layer) and second(config, layer)


def embedding_rows(norm: Op | None = None, *, norm_bias: bool = False, head: str = "lm_head.weight") -> tuple[Row, ...]:
    """Embedding, last norm and output matrix."""
    ops = (norm,) if norm else ()
    rows = [
        Row("model.embed_tokens.weight", "token_embd.weight"), Row("model.norm.weight", "output_norm.weight", ops),
        Row(head, "output.weight"),
    ]  # fmt: skip
    if norm_bias:
        rows.append(Row("model.norm.bias", "output_norm.bias"))
    return tuple(rows)


def attention_rows(
    query: tuple[Op, ...] = (), key: tuple[Op, ...] = (), *, bias: bool | When = False,
    out_bias: bool | When | None = None,
) -> tuple[Row, ...]:  # fmt: skip
    """Query, key, value and output projections; ``query`` and ``key`` are the row orders of those two."""
    out = bias if out_bias is None else out_bias
    return (
        *linear("self_attn.q_proj", "attn_q", *query, bias=bias),
        *linear("self_attn.k_proj", "attn_k", *key, bias=bias),
        *linear("self_attn.v_proj", "attn_v", bias=bias),
        *linear("self_attn.o_proj", "attn_output", bias=out),
    )


def mlp_rows(*, bias: bool | When = False, when: When | None = None) -> tuple[Row, ...]:
    """Gate, up and down of a gated feed-forward block."""
    return (
        *linear("mlp.gate_proj", "ffn_gate", bias=bias, when=when),
        *linear("mlp.up_proj", "ffn_up", bias=bias, when=when),
        *linear("mlp.down_proj", "ffn_down", bias=bias, when=when),
    )


def norm_rows(*ops: Op, bias: bool = False) -> tuple[Row, ...]:
    """The norms before attention and before the feed-forward block."""
    return (
        *linear("input_layernorm", "attn_norm", *ops, bias=bias),
        *linear("post_attention_layernorm", "ffn_norm", *ops, bias=bias),
    )


def expert_rows(
    module: str, gate: str, up: str, down: str, router: str, fused: str, when: When | None = None
) -> tuple[Row, ...]:
    """Router and experts of a mixture: three matrices an expert, or the two tensors in which transformers 5 works."""
    both, whole = f"{SOURCE}{fused}.gate_up_proj", f"{SOURCE}{fused}.down_proj"
    rows = [Row(f"{SOURCE}{router}.weight", f"{TARGET}ffn_gate_inp.weight", (), when)]
    for source, target in ((gate, "ffn_gate_exps"), (up, "ffn_up_exps"), (down, "ffn_down_exps")):
        name = f"{SOURCE}{module}.experts.{{e}}.{source}.weight"
        rows.append(Row(name, f"{TARGET}{target}.weight", (Stack(),), when, absent=both))
    targets = (f"{TARGET}ffn_gate_exps.weight", f"{TARGET}ffn_up_exps.weight")
    rows.append(Row(both, targets, (Halves(1),), when, present=both))
    rows.append(Row(whole, f"{TARGET}ffn_down_exps.weight", (), when, present=both))
    return tuple(rows)


def only_pattern(key: str, pattern: Pattern, what: str) -> Check:
    """A check that a per-layer list is the one that llama.cpp has built in."""

    def check(config: Config) -> None:
        given, wanted = config.listed(key), pattern(config)
        if given is not None and given != wanted:
            raise RouteRefused(
                f"{key} is not the pattern that llama.cpp computes: {what}", file=config.file, member=key,
                expected=shown(wanted), found=shown(given),
            )  # fmt: skip

    return check


def must_be(key: str) -> Check:
    """A check that a number which may be null is none here: llama.cpp would put its own in its place."""

    def check(config: Config) -> None:
        if config[key] is None:
            raise RouteRefused(
                f"{key} is null, and llama.cpp computes with one all the same", file=config.file, member=key,
                expected="a number", found="null",
            )  # fmt: skip
        config.real(key)

    return check


def full_attention(config: Config) -> list[object]:
    """``layer_types`` of a model whose layers all attend to everything."""
    return ["full_attention"] * config.count("num_hidden_layers")


def late_windows(config: Config) -> list[object]:
    """``layer_types`` as Qwen's config classes fill it in: a window from layer ``max_window_layers`` on, if at all."""
    used = config.flag("use_sliding_window") and config["sliding_window"] is not None
    first = config.opt_count("max_window_layers") or 0
    layers = range(config.count("num_hidden_layers"))
    return ["sliding_attention" if used and i >= first else "full_attention" for i in layers]


def windowed_types(config: Config) -> None:
    """``layer_types`` may only say what ``use_sliding_window`` says already."""
    if not config.flag("use_sliding_window"):
        only_pattern("layer_types", full_attention, "full attention in every layer")(config)


def window_loss(key: str = "sliding_window", used: Callable[[Config], bool] | None = None) -> Losses:
    """Where llama.cpp attends to everything and the model to a window: the same up to that many tokens."""

    def losses(config: Config) -> list[Loss]:
        size = config.opt_count(key)
        if size is None or (used is not None and not used(config)):
            return []
        if size >= config.count("max_position_embeddings"):
            return []
        text = f"{key} {size} is not computed by llama.cpp here: beyond {size} tokens the model attends to fewer"
        return [Loss("function-differs", text)]

    return losses


# The two ways in which configs have a window that llama.cpp's graph lacks, and what is said of them.
WINDOW, WINDOW_NOTE = window_loss(), "`sliding_window` is not computed: the same up to that many tokens"
USED_WINDOW = window_loss(used=lambda config: config.flag("use_sliding_window"))
USED_WINDOW_NOTE = "`use_sliding_window` is not computed: the same up to `sliding_window` tokens"
