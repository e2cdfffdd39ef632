"""config.json as published models have it: transformers 4 spellings, and every key understood.

The entries are those of the models' own files; only what says nothing about the computation is left out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from artifactkit.modeling.config import check_understood, check_values
from artifactkit.modeling.forward import keyvalues
from artifactkit.translate import architecture_of

BOOK: dict[str, Any] = {"torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": True}

CONFIGS: dict[str, tuple[dict[str, Any], dict[str, object]]] = {
    "meta-llama/Llama-3.2-1B": (
        {
            "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "head_dim": 64,
            "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
            "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 32,
            "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
            "rope_scaling": {
                "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192, "rope_type": "llama3",
            },
            "rope_theta": 500000.0, "tie_word_embeddings": True, "vocab_size": 128256, "bos_token_id": 128000,
        },
        {"llama.rope.freq_base": 500000.0, "llama.attention.head_count_kv": 8, "llama.rope.dimension_count": 64},
    ),
    "meta-llama/Llama-2-7b-hf": (
        {
            "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
            "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": None, "tie_word_embeddings": False, "vocab_size": 32000,
            "_name_or_path": "meta-llama/Llama-2-7b-hf",
        },
        {"llama.rope.freq_base": 10000.0, "llama.attention.key_length": 128},
    ),
    "HuggingFaceTB/SmolLM2-135M-Instruct": (
        {
            "architectures": ["LlamaForCausalLM"], "attention_bias": False, "hidden_act": "silu", "hidden_size": 576,
            "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "mlp_bias": False,
            "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
            "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
            "tie_word_embeddings": True, "vocab_size": 49152, "transformers.js_config": {"kv_cache_dtype": {}},
        },
        {"llama.rope.freq_base": 100000.0, "llama.attention.head_count_kv": 3},
    ),
    "mistralai/Mistral-7B-v0.1": (
        {
            "architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
            "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False, "vocab_size": 32000,
        },
        {"llama.attention.key_length": 128},
    ),
    "mistralai/Mixtral-8x7B-v0.1": (
        {
            "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
            "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
            "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
            "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": False, "rms_norm_eps": 1e-05,
            "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None,
            "tie_word_embeddings": False, "vocab_size": 32000,
        },
        {"llama.expert_count": 8, "llama.rope.freq_base": 1e6},
    ),
    "Qwen/Qwen2.5-7B-Instruct": (
        {
            "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
            "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
            "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
            "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
            "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 152064,
            "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
        },
        {"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.original_context_length": 32768},
    ),
    "Qwen/Qwen1.5-MoE-A2.7B": (
        {
            "architectures": ["Qwen2MoeForCausalLM"], "decoder_sparse_step": 1, "hidden_act": "silu",
            "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
            "model_type": "qwen2_moe", "moe_intermediate_size": 1408, "norm_topk_prob": False,
            "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24,
            "num_key_value_heads": 16, "output_router_logits": False, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
            "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
            "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
        },
        {"qwen2moe.expert_count": 60, "qwen2moe.expert_shared_feed_forward_length": 5632},
    ),
    "Qwen/Qwen3-0.6B": (
        {
            "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
            "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
            "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936,
        },
        {"qwen3.attention.key_length": 128},
    ),
    "Qwen/Qwen3-30B-A3B": (
        {
            "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "decoder_sparse_step": 1,
            "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
            "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
            "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": True,
            "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
            "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06, "rope_scaling": None,
            "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None,
            "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
        },
        {"qwen3moe.expert_count": 128, "qwen3moe.expert_feed_forward_length": 768},
    ),
    "google/gemma-2b": (
        {
            "architectures": ["GemmaForCausalLM"], "attention_bias": False, "head_dim": 256, "hidden_act": "gelu",
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2048, "intermediate_size": 16384,
            "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
            "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_scaling": None,
            "rope_theta": 10000.0, "vocab_size": 256000,
        },
        {"gemma.attention.head_count_kv": 1},
    ),
    "google/gemma-2-27b-it": (
        {
            "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attn_logit_softcapping": 50.0,
            "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "head_dim": 128,
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608,
            "intermediate_size": 36864, "max_position_embeddings": 8192, "model_type": "gemma2",
            "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16,
            "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
            "sliding_window_size": 4096, "vocab_size": 256000,
        },
        {"gemma2.attention.sliding_window": 4096, "gemma2.attn_logit_softcapping": 50.0},
    ),
    "google/gemma-3-1b-it": (
        {
            "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attn_logit_softcapping": None,
            "cache_implementation": "hybrid", "eos_token_id": [1, 106], "final_logit_softcapping": None,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
            "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
            "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
            "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
            "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
            "vocab_size": 262144,
        },
        {"gemma3.rope.freq_base": 1e6, "gemma3.rope.freq_base_swa": 1e4, "gemma3.attention.sliding_window": 512},
    ),
    "HuggingFaceTB/SmolLM3-3B": (
        {
            "architectures": ["SmolLM3ForCausalLM"], "attention_bias": False, "hidden_act": "silu",
            "hidden_size": 2048, "intermediate_size": 11008, "layer_types": ["full_attention"] * 36,
            "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": False, "model_type": "smollm3",
            "no_rope_layer_interval": 4, "no_rope_layers": [int((i + 1) % 4 != 0) for i in range(36)],
            "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "pretraining_tp": 2,
            "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 5000000.0, "sliding_window": None,
            "use_sliding_window": False, "vocab_size": 128256,
        },
        {"smollm3.rope.freq_base": 5e6},
    ),
    "microsoft/Phi-3-mini-128k-instruct": (
        {
            "architectures": ["Phi3ForCausalLM"], "attention_bias": False, "auto_map": {"AutoConfig": "x.Y"},
            "embd_pdrop": 0.0, "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
            "max_position_embeddings": 131072, "model_type": "phi3", "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
            "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 262144,
            "rope_scaling": {"long_factor": [1.5] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
            "tie_word_embeddings": False, "vocab_size": 32064,
        },
        {"phi3.rope.scaling.original_context_length": 4096, "phi3.rope.scaling.attn_factor": 1.1902380714238083},
    ),
    "allenai/OLMo-2-1124-7B": (
        {
            "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "hidden_act": "silu",
            "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
            "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False, "vocab_size": 100352,
        },
        {"olmo2.rope.freq_base": 5e5},
    ),
    "ibm-granite/granite-3.1-2b-instruct": (
        {
            "architectures": ["GraniteForCausalLM"], "attention_bias": False, "attention_multiplier": 0.015625,
            "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
            "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "granite",
            "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
            "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 5000000.0,
            "tie_word_embeddings": True, "vocab_size": 49155,
        },
        {"granite.attention.scale": 0.015625, "granite.logit_scale": 8.0},
    ),
    "openai-community/gpt2": (
        {
            "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
            "embd_pdrop": 0.1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
            "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
            "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
            "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        },
        {"gpt2.feed_forward_length": 3072},
    ),
    "google-bert/bert-base-uncased": (
        {
            "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False,
            "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "intermediate_size": 3072,
            "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
            "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
            "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": 30522,
        },
        {"bert.context_length": 512, "bert.attention.causal": False},
    ),
    "FacebookAI/xlm-roberta-base": (
        {
            "architectures": ["XLMRobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1, "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
            "max_position_embeddings": 514, "model_type": "xlm-roberta", "num_attention_heads": 12,
            "num_hidden_layers": 12, "output_past": True, "pad_token_id": 1, "position_embedding_type": "absolute",
            "type_vocab_size": 1, "vocab_size": 250002,
        },
        {"bert.context_length": 512, "tokenizer.ggml.token_type_count": 1},
    ),
    "nomic-ai/nomic-embed-text-v1.5": (
        {
            "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0,
            "auto_map": {"AutoModel": "x.Y"}, "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0,
            "fused_bias_fc": True, "fused_dropout_add_ln": True, "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
            "model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12,
            "n_positions": 8192, "pad_vocab_size_multiple": 64, "parallel_block": False,
            "parallel_block_tied_norm": False, "prenorm": False, "qkv_proj_bias": False,
            "reorder_and_upcast_attn": False, "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
            "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "summary_type": "cls_index",
            "type_vocab_size": 2, "use_flash_attn": True, "use_rms_norm": False, "use_xentropy": True,
            "vocab_size": 30528,
        },
        {"nomic-bert.rope.freq_base": 1000.0, "nomic-bert.block_count": 12},
    ),
    "EleutherAI/pythia-160m": (
        {
            "architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu", "hidden_size": 768,
            "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
            "model_type": "gpt_neox", "num_attention_heads": 12, "num_hidden_layers": 12, "rotary_emb_base": 10000,
            "rotary_pct": 0.25, "tie_word_embeddings": False, "use_parallel_residual": True, "vocab_size": 50304,
        },
        {"gptneox.rope.dimension_count": 16},
    ),
    "tiiuae/falcon-7b": (
        {
            "alibi": False, "apply_residual_connection_post_layernorm": False, "architectures": ["FalconForCausalLM"],
            "attention_dropout": 0.0, "bias": False, "hidden_dropout": 0.0, "hidden_size": 4544,
            "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": True,
            "new_decoder_architecture": False, "num_attention_heads": 71, "num_hidden_layers": 32,
            "parallel_attn": True, "vocab_size": 65024,
        },
        {"falcon.attention.head_count_kv": 1, "falcon.rope.dimension_count": 64},
    ),
    "stabilityai/stablelm-2-1_6b": (
        {
            "architectures": ["StableLmForCausalLM"], "hidden_act": "silu", "hidden_size": 2048,
            "intermediate_size": 5632, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
            "model_type": "stablelm", "num_attention_heads": 32, "num_hidden_layers": 24, "num_key_value_heads": 32,
            "partial_rotary_factor": 0.25, "rope_theta": 10000, "tie_word_embeddings": False, "use_qkv_bias": True,
            "vocab_size": 100352,
        },
        {"stablelm.rope.dimension_count": 16},
    ),
    "bigcode/starcoder2-3b": (
        {
            "architectures": ["Starcoder2ForCausalLM"], "attention_dropout": 0.1, "embedding_dropout": 0.1,
            "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072, "initializer_range": 0.018042,
            "intermediate_size": 12288, "max_position_embeddings": 16384, "mlp_type": "default",
            "model_type": "starcoder2", "norm_epsilon": 1e-05, "norm_type": "layer_norm", "num_attention_heads": 24,
            "num_hidden_layers": 30, "num_key_value_heads": 2, "residual_dropout": 0.1,
            "rope_theta": 999999.4420358813, "sliding_window": 4096, "use_bias": True, "vocab_size": 49152,
        },
        {"starcoder2.attention.layer_norm_epsilon": 1e-5},
    ),
    "CohereForAI/c4ai-command-r-v01": (
        {
            "architectures": ["CohereForCausalLM"], "attention_bias": False, "hidden_act": "silu",
            "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05, "logit_scale": 0.0625,
            "max_position_embeddings": 8192, "model_max_length": 131072, "model_type": "cohere",
            "num_attention_heads": 64, "num_hidden_layers": 40, "num_key_value_heads": 64, "pretraining_tp": 1,
            "rope_theta": 8000000.0, "vocab_size": 256000,
        },
        {"command-r.rope.freq_base": 8e6, "command-r.logit_scale": 0.0625},
    ),
    "deepseek-ai/DeepSeek-V2-Lite": (
        {
            "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": False, "aux_loss_alpha": 0.001,
            "auto_map": {"AutoConfig": "x.Y"}, "ep_size": 1, "first_k_dense_replace": 1, "hidden_act": "silu",
            "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
            "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
            "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": False, "num_attention_heads": 16,
            "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": None,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000,
            "rope_scaling": {
                "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
                "original_max_position_embeddings": 4096, "type": "yarn",
            },
            "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": True, "tie_word_embeddings": False,
            "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400,
        },
        {"deepseek2.rope.scaling.yarn_log_multiplier": 0.0707, "deepseek2.leading_dense_block_count": 1},
    ),
    "answerdotai/ModernBERT-base": (
        {
            "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
            "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0,
            "classifier_pooling": "mean", "decoder_bias": True, "deterministic_flash_attn": False,
            "embedding_dropout": 0.0, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
            "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 768,
            "initializer_cutoff_factor": 2.0, "intermediate_size": 1152, "layer_norm_eps": 1e-05,
            "local_attention": 128, "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": False,
            "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05,
            "num_attention_heads": 12, "num_hidden_layers": 22, "position_embedding_type": "absolute",
            "sparse_pred_ignore_index": -100, "sparse_prediction": False, "vocab_size": 50368,
        },
        {"modern-bert.rope.freq_base": 160000.0, "modern-bert.attention.sliding_window": 128},
    ),
    "sentence-transformers/gtr-t5-base": (
        {
            "architectures": ["T5EncoderModel"], "d_ff": 3072, "d_kv": 64, "d_model": 768,
            "decoder_start_token_id": 0, "dropout_rate": 0.1, "feed_forward_proj": "relu", "initializer_factor": 1.0,
            "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
            "num_decoder_layers": 12, "num_heads": 12, "num_layers": 12, "output_past": True,
            "relative_attention_num_buckets": 32, "vocab_size": 32128, "dense_act_fn": "relu", "is_gated_act": False,
        },
        {"t5encoder.block_count": 12},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_published_configs_are_understood(name: str) -> None:
    entries, wanted = CONFIGS[name]
    raw = json.loads(json.dumps(entries | BOOK))
    arch = architecture_of(raw)
    config = arch.config(raw)
    check_understood(config, arch.known_keys(), arch.name)
    check_values(config, arch.fixed, arch.name)
    for check in arch.checks:
        check(config)
    pairs = {pair.key: pair.value for pair in keyvalues(arch, config, raw)}
    for key, value in wanted.items():
        assert pairs[key] == pytest.approx(value), key
    for facts in arch.keys:
        if getattr(facts, "made", None):
            list(facts.made(config))
