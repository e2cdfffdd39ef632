"""Tiny seeded models, one or more a family: heads unlike key heads, an odd vocabulary, an unusual rope base.

``MODELS`` says what each is in transformers' words. The config.json and the tensors' shapes that transformers saves
for them are recorded in ``architectures/saved.json`` (``record.py`` makes it), so that the quick tests need neither
transformers nor torch.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from artifactkit.artifact import Weights

HERE = Path(__file__).parent / "architectures"

Kwargs = dict[str, Any]


def rope(**more: object) -> Kwargs:
    return {"rope_theta": 123456.0, "rope_type": "default", **more}


WIDTHS: Kwargs = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80, "vocab_size": 261,
    "max_position_embeddings": 512,
}  # fmt: skip
DECODER: Kwargs = {**WIDTHS, "num_key_value_heads": 2}
IDS: Kwargs = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TWO_ROPES: Kwargs = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 5432.0},
    "full_attention": {"rope_type": "default", "rope_theta": 654321.0},
}
YARN = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
LLAMA3 = rope(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
LONGROPE = rope(
    rope_type="longrope", partial_rotary_factor=1.0, short_factor=[1.0 + i / 8 for i in range(6)],
    long_factor=[2.0 + i / 4 for i in range(6)],
)  # fmt: skip
FALCON: Kwargs = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 261, "bos_token_id": 1,
    "eos_token_id": 2, "rope_parameters": rope(),
}  # fmt: skip
DEEPSEEK: Kwargs = {
    **WIDTHS, "num_key_value_heads": 4, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip
T5: Kwargs = {"d_model": 48, "d_kv": 16, "d_ff": 80, "num_layers": 3, "num_heads": 4, "vocab_size": 261}
GEMMA: Kwargs = {**DECODER, "head_dim": 16}

# name -> (class in transformers, arguments of its config class)
MODELS: dict[str, tuple[str, Kwargs]] = {
    "llama": ("LlamaForCausalLM", {**DECODER, "rope_parameters": rope()}),
    "llama_tied": (
        "LlamaForCausalLM",
        {**DECODER, "rope_parameters": rope(), "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama_llama3": (
        "LlamaForCausalLM",
        {**DECODER, "rope_parameters": LLAMA3},
    ),
    "llama_linear": (
        "LlamaForCausalLM", {**DECODER, "head_dim": 16, "rope_parameters": rope(rope_type="linear", factor=4.0)}
    ),
    "llama_yarn": (
        "LlamaForCausalLM", {**DECODER, "head_dim": 16, "rope_parameters": {**YARN, "attention_factor": 1.3}}
    ),
    "llama_longrope": (
        "LlamaForCausalLM",
        {**DECODER, "rope_parameters": {**LONGROPE, "factor": 4.0, "original_max_position_embeddings": 64}},
    ),
    "mistral": (
        "MistralForCausalLM", {**DECODER, "head_dim": 16, "sliding_window": None, "rope_parameters": rope()}
    ),
    "mixtral": (
        "MixtralForCausalLM",
        {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": rope()},
    ),
    "qwen2": ("Qwen2ForCausalLM", {**DECODER, "rope_parameters": rope()}),
    "qwen2_yarn": ("Qwen2ForCausalLM", {**DECODER, "rope_parameters": YARN}),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        {
            **DECODER, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64, "rope_parameters": rope(),
        },
    ),
    "qwen2_moe_tied": (
        "Qwen2MoeForCausalLM",
        {
            **DECODER, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64, "rope_parameters": rope(), "tie_word_embeddings": True,
        },
    ),
    "qwen3": ("Qwen3ForCausalLM", {**DECODER, "head_dim": 16, "rope_parameters": rope()}),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        {
            **DECODER, "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "norm_topk_prob": True, "rope_parameters": rope(),
        },
    ),
    "gemma": ("GemmaForCausalLM", {**GEMMA, "rope_parameters": rope()}),
    "gemma2": (
        "Gemma2ForCausalLM", {**GEMMA, "sliding_window": 32, "query_pre_attn_scalar": 16, "rope_parameters": rope()}
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        {**GEMMA, "num_hidden_layers": 7, "sliding_window": 32, "query_pre_attn_scalar": 16,
         "rope_parameters": TWO_ROPES},
    ),
    "gemma3_linear": (
        "Gemma3ForCausalLM",
        {
            **GEMMA, "num_hidden_layers": 7, "sliding_window": 32, "query_pre_attn_scalar": 16,
            "final_logit_softcapping": 5.0,
            "rope_parameters": {
                **TWO_ROPES, "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 654321.0},
            },
        },
    ),
    "smollm3": ("SmolLM3ForCausalLM", {**DECODER, **IDS, "num_hidden_layers": 5, "rope_parameters": rope()}),
    "phi3": ("Phi3ForCausalLM", {**DECODER, **IDS, "rope_parameters": rope(partial_rotary_factor=1.0)}),
    "phi3_longrope": (
        "Phi3ForCausalLM",
        {**DECODER, **IDS, "original_max_position_embeddings": 64, "rope_parameters": LONGROPE},
    ),
    "olmo2": ("Olmo2ForCausalLM", {**DECODER, **IDS, "rope_parameters": rope()}),
    "olmo2_tied": (
        "Olmo2ForCausalLM", {**DECODER, **IDS, "tie_word_embeddings": True, "rope_parameters": rope()}
    ),
    "granite_llama3": (
        "GraniteForCausalLM",
        {
            **DECODER, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "logits_scaling": 4.0,
            "rope_parameters": LLAMA3,
        },
    ),
    "granite": (
        "GraniteForCausalLM",
        {
            **DECODER, "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5,
            "attention_multiplier": 0.125, "rope_parameters": rope(),
        },
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 512, "vocab_size": 261, "n_inner": 80,
            "bos_token_id": 1, "eos_token_id": 2,
        },
    ),
    "bert": ("BertModel", WIDTHS),
    "roberta": ("RobertaModel", {**WIDTHS, "max_position_embeddings": 514, "type_vocab_size": 1}),
    "xlm_roberta": ("XLMRobertaModel", {**WIDTHS, "max_position_embeddings": 514, "type_vocab_size": 1}),
    "nomic_bert": ("NomicBertModel", {**WIDTHS, "rope_parameters": rope()}),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {**WIDTHS, "bos_token_id": 1, "eos_token_id": 2, "rope_parameters": rope(partial_rotary_factor=0.5)},
    ),
    "gpt_neox_serial": (
        "GPTNeoXForCausalLM",
        {
            **WIDTHS, "bos_token_id": 1, "eos_token_id": 2, "use_parallel_residual": False,
            "rope_parameters": rope(partial_rotary_factor=0.5),
        },
    ),
    "falcon_7b": ("FalconForCausalLM", {**FALCON, "multi_query": True}),
    "falcon_11b": (
        "FalconForCausalLM",
        {**FALCON, "num_kv_heads": 2, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
    ),
    "falcon_40b": ("FalconForCausalLM", {**FALCON, "num_kv_heads": 2, "new_decoder_architecture": True}),
    "stablelm": (
        "StableLmForCausalLM", {**DECODER, "use_qkv_bias": True, "rope_parameters": rope(partial_rotary_factor=0.5)}
    ),
    "stablelm_parallel": (
        "StableLmForCausalLM",
        {
            **DECODER, "use_parallel_residual": True, "qk_layernorm": True,
            "rope_parameters": rope(partial_rotary_factor=0.5),
        },
    ),
    "starcoder2": (
        "Starcoder2ForCausalLM", {**DECODER, "bos_token_id": 1, "eos_token_id": 2, "rope_parameters": rope()}
    ),
    "cohere": (
        "CohereForCausalLM",
        {**DECODER, "bos_token_id": 1, "eos_token_id": 2, "logit_scale": 0.25, "rope_parameters": rope()},
    ),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {**DEEPSEEK, "n_shared_experts": 1, "q_lora_rank": 24, "routed_scaling_factor": 1.5, "rope_parameters": rope()},
    ),
    "deepseek_v2_lite": (
        "DeepseekV2ForCausalLM",
        {
            **DEEPSEEK, "num_hidden_layers": 27, "n_shared_experts": 2, "q_lora_rank": None,
            "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
    ),
    "modernbert": (
        "ModernBertModel",
        {
            **WIDTHS, **IDS, "num_hidden_layers": 4, "local_attention": 32, "cls_token_id": 1, "sep_token_id": 2,
            "rope_parameters": TWO_ROPES,
        },
    ),
    "t5_encoder": ("T5EncoderModel", {**T5, "feed_forward_proj": "gated-gelu"}),
    "t5_encoder_relu": ("T5EncoderModel", T5),
}  # fmt: skip


@cache
def saved() -> dict[str, Any]:
    """name -> {"config": config.json, "tensors": {name: shape}} as transformers saves the model."""
    found: dict[str, Any] = json.loads((HERE / "saved.json").read_text(encoding="utf-8"))
    return found


def values(model: str, tensor: str, shape: list[int]) -> np.ndarray:
    """The seeded float32 values of one tensor: a grid on which 1 + w is exact."""
    rng = np.random.default_rng(zlib.crc32(f"{model}/{tensor}".encode()))
    grid = rng.integers(-128, 128, shape).astype(np.float32) / np.float32(1024)
    is_norm = tensor.endswith("weight") and any(part in tensor.lower() for part in ("norm", "ln_", "_ln"))
    if is_norm and not model.startswith("gemma"):
        grid += np.float32(1)
    return grid


def tensors(model: str) -> dict[str, np.ndarray]:
    return {name: values(model, name, shape) for name, shape in saved()[model]["tensors"].items()}


def config(model: str) -> Kwargs:
    """A copy of the model's config.json."""
    copied: Kwargs = json.loads(json.dumps(saved()[model]["config"]))
    return copied


def write(model: str, folder: Path) -> Path:
    """A checkpoint folder as transformers saves it, without a tokenizer."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(model)), encoding="utf-8")
    save_file(tensors(model), folder / "model.safetensors", {"format": "pt"})
    return folder


def weights_of(arrays: dict[str, np.ndarray], dtype: str = "f32") -> Weights:
    """Tensors in memory, each with a place of its own."""
    from artifactkit.artifact import TensorView, Weights
    from artifactkit.dtypes import BY_NAME
    from artifactkit.source import Inline

    views = {
        name: TensorView(name, BY_NAME[dtype], array.shape, Inline(array.tobytes(), (name, 0)))
        for name, array in arrays.items()
    }
    return Weights(views, "safetensors")
