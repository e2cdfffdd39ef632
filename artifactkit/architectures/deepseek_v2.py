"""DeepSeek-V2: keys and values from one small latent, experts with shared ones beside them.

transformers: models/deepseek_v2. llama.cpp: LLM_ARCH_DEEPSEEK2, which computes on the latent itself: the matrix that
unfolds it is taken apart, its keys' half transposed per head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..artifact import TensorView
from ..errors import RouteRefused
from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Facts, Key, Pairs, Row
from ..modeling.config import Config
from ..modeling.mlx import CONTEXT, WIDTHS, Mlx, scaling
from ..modeling.ops import Apply, Transpose
from ..modeling.parts import HeadSplit
from ..modeling.rope import READS, Rope

ROPE = Rope(types=("default", "yarn"), dims="qk_rope_head_dim")


def _dense(config: Config, layer: int) -> bool:
    first = config["first_k_dense_replace"]
    return config["n_routed_experts"] is None or (isinstance(first, int) and layer < first)


def _sparse(config: Config, layer: int) -> bool:
    return not _dense(config, layer)


def _low_rank(config: Config, layer: int) -> bool:
    return config["q_lora_rank"] is not None


def _lite(config: Config) -> None:
    """llama.cpp tells models without a latent of queries by their number of layers."""
    layers = config.count("num_hidden_layers")
    if config["q_lora_rank"] is None and layers not in (26, 27):
        raise RouteRefused(
            "llama.cpp computes DeepSeek-V2 without q_lora_rank only with 26 or 27 layers (V2-Lite)", file=config.file,
            member="q_lora_rank", expected="a number", found="null",
        )  # fmt: skip


def _full_rank(config: Config, layer: int) -> bool:
    return config["q_lora_rank"] is None


def _attention(config: Config) -> Iterable[tuple[str, str, object]]:
    latent, rope = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
    yield "attention.head_count_kv", "u32", 1  # on the latent there is one head of keys
    yield "attention.q_lora_rank", "u32", config["q_lora_rank"]
    yield "attention.kv_lora_rank", "u32", latent
    yield "attention.key_length", "u32", latent + rope
    yield "attention.value_length", "u32", latent
    yield "attention.key_length_mla", "u32", config.count("qk_nope_head_dim") + rope
    yield "attention.value_length_mla", "u32", config.count("v_head_dim")
    first = config["first_k_dense_replace"]
    yield "leading_dense_block_count", "u32", config.count("num_hidden_layers") if _dense(config, 1 << 30) else first
    yield "expert_gating_func", "u32", 1  # softmax


def _attention_back(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
    rope, latent = pairs.count("rope.dimension_count"), pairs.count("attention.kv_lora_rank")
    return {
        "num_key_value_heads": pairs.get("attention.head_count"), "q_lora_rank": pairs.get("attention.q_lora_rank"),
        "kv_lora_rank": latent, "qk_rope_head_dim": rope, "v_head_dim": pairs.count("attention.value_length_mla"),
        "qk_nope_head_dim": pairs.count("attention.key_length_mla") - rope,
        "first_k_dense_replace": pairs.get("leading_dense_block_count") or 0,
    }  # fmt: skip


def _rope(config: Config) -> Iterable[tuple[str, str, object]]:
    rope = ROPE.parameters(config)
    scale, whole = rope.get("mscale"), rope.get("mscale_all_dim")
    if rope["rope_type"] == "yarn" and (scale != whole or rope.get("attention_factor") is not None):
        raise RouteRefused(
            "llama.cpp computes yarn here with one scale for all", file=config.file, member="rope_parameters",
            expected="mscale equal to mscale_all_dim, no attention_factor",
            found=f"mscale {scale}, mscale_all_dim {whole}",
        )  # fmt: skip
    yield "rope.dimension_count", "u32", config.count("qk_rope_head_dim")
    yield "rope.freq_base", "f32", rope["rope_theta"]
    for key, kind, value in ROPE.scaling(config, rope):
        if key != "rope.scaling.attn_factor":
            yield key, kind, value
    if rope["rope_type"] == "yarn" and isinstance(whole, int | float):
        yield "rope.scaling.yarn_log_multiplier", "f32", 0.1 * whole


def _rope_back(pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
    out = dict(ROPE.facts().inverse(pairs, tensors))
    scale = pairs.get("rope.scaling.yarn_log_multiplier")
    rope = out["rope_parameters"]
    if isinstance(scale, float) and isinstance(rope, dict):
        rope |= {"mscale": round(scale * 10, 6), "mscale_all_dim": round(scale * 10, 6)}
    return out


MLX_ROPE = Rope(types=("default", "yarn"), dims="qk_rope_head_dim", runtime="mlx-lm")


def _mlx(config: Config) -> Mapping[str, object]:
    """mlx-lm computes yarn in every model: with a factor of 1 it is none."""
    rope = MLX_ROPE.parameters(config)
    given = scaling(rope, config) or {
        "type": "yarn", "rope_type": "yarn", "factor": 1.0, "mscale": 1, "mscale_all_dim": 0,
        "original_max_position_embeddings": config["max_position_embeddings"],
    }  # fmt: skip
    if rope.get("mscale_all_dim"):  # scales the scores too, there as in transformers
        given |= {key: rope.get(key) for key in ("mscale", "mscale_all_dim")}
    return {"rope_theta": rope["rope_theta"], "rope_scaling": given, "topk_method": "greedy", "moe_layer_freq": 1}


# fmt: off
ARCHITECTURE = Architecture(
    name="deepseek_v2",
    gguf="deepseek2",
    model_type="deepseek_v2",
    classes=("DeepseekV2ForCausalLM", "DeepseekV2Model"),
    base_prefix="model.",
    head="output.weight",
    experts="n_routed_experts",
    rows=(
        *d.embedding_rows(), *d.norm_rows(),
        *d.linear("self_attn.q_proj", "attn_q", when=_full_rank),
        *d.linear("self_attn.q_a_proj", "attn_q_a", when=_low_rank),
        *d.linear("self_attn.q_a_layernorm", "attn_q_a_norm", when=_low_rank),
        *d.linear("self_attn.q_b_proj", "attn_q_b", when=_low_rank),
        *d.linear("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
        *d.linear("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
        Row(
            d.SOURCE + "self_attn.kv_b_proj.weight", ("blk.{b}.attn_k_b.weight", "blk.{b}.attn_v_b.weight"),
            (HeadSplit("num_attention_heads", "qk_nope_head_dim", "v_head_dim"), Apply(0, Transpose())),
        ),
        *d.linear("self_attn.o_proj", "attn_output"),
        *d.mlp_rows(when=_dense),
        *d.expert_rows("mlp", "gate_proj", "up_proj", "down_proj", "mlp.gate", "mlp.experts", when=_sparse),
        *d.linear("mlp.shared_experts.gate_proj", "ffn_gate_shexp", when=_sparse),
        *d.linear("mlp.shared_experts.up_proj", "ffn_up_shexp", when=_sparse),
        *d.linear("mlp.shared_experts.down_proj", "ffn_down_shexp", when=_sparse),
    ),
    keys=(
        *d.sizes(kv_heads=""), d.RMS_EPS, d.VOCAB,
        Facts(("num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
               "v_head_dim", "first_k_dense_replace"), _attention, _attention_back),
        Facts(READS, _rope, _rope_back),
        Key("n_routed_experts", "expert_count"), Key("num_experts_per_tok", "expert_used_count"),
        Key("moe_intermediate_size", "expert_feed_forward_length"), Key("n_shared_experts", "expert_shared_count"),
        Key("routed_scaling_factor", "expert_weights_scale", "f32", 1.0),
    ),
    defaults={
        "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "first_k_dense_replace": 0, "kv_lora_rank": 512, "q_lora_rank": 1536, "n_group": None, "n_routed_experts": 64,
        "n_shared_experts": 2, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "routed_scaling_factor": 1.0,
        "topk_group": None, "topk_method": "greedy", "norm_topk_prob": False, "v_head_dim": 128,
        "num_experts_per_tok": None, "moe_intermediate_size": 1407,
    },
    when_null=d.HEADS_NULL,
    fixed={
        "hidden_act": d.SILU, "attention_bias": (False,), "mlp_bias": (False,), "topk_method": ("greedy",),
        "norm_topk_prob": (False,), "moe_layer_freq": (1,), "scoring_func": ("softmax", None),
    },
    inert=frozenset({"n_group", "topk_group", "head_dim", "qk_head_dim"}),
    aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
    checks=(_lite,),
    drops=(d.INV_FREQ,),
    mlx=Mlx(
        (
            *WIDTHS, CONTEXT, "rms_norm_eps", "moe_intermediate_size", "n_shared_experts", "n_routed_experts",
            "routed_scaling_factor", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim",
            "qk_nope_head_dim", "num_experts_per_tok", "first_k_dense_replace",
        ),
        also=_mlx, uses=(*READS, "tie_word_embeddings"), ties=False,
        fixed={
            "hidden_act": d.SILU, "attention_bias": (False,), "mlp_bias": (False,), "topk_method": ("greedy",),
            "norm_topk_prob": (False,), "moe_layer_freq": (1,), "scoring_func": ("softmax", None),
        },
        experts="model.layers.{b}.mlp.switch_mlp.{part}.weight", plain=r".*\.mlp\.gate\.weight",
    ),
    notes="`topk_method` greedy alone; yarn with `mscale` equal to `mscale_all_dim`",
)
