"""Nomic-BERT: BERT with rotary positions and a gated feed-forward block, no biases.

transformers: models/nomic_bert (its checkpoints keep the names of the model's first code). llama.cpp:
LLM_ARCH_NOMIC_BERT.
"""

from __future__ import annotations

from ..modeling import decoder as d
from ..modeling.architecture import Architecture, Drop, Key, Row
from ..modeling.encoder import CAUSAL, TOKEN_TYPES
from ..modeling.rope import Rope

L = "encoder.layers.{b}."

# fmt: off
ARCHITECTURE = Architecture(
    name="nomic_bert",
    gguf="nomic-bert",
    model_type="nomic_bert",
    classes=("NomicBertModel",),
    encoder=True,
    rows=(
        Row("embeddings.word_embeddings.weight", "token_embd.weight"),
        Row("embeddings.token_type_embeddings.weight", "token_types.weight"),
        Row("emb_ln.weight", "token_embd_norm.weight"), Row("emb_ln.bias", "token_embd_norm.bias"),
        *d.linear("attn.Wqkv", "attn_qkv", prefix=L), *d.linear("attn.out_proj", "attn_output", prefix=L),
        *d.linear("norm1", "attn_output_norm", bias=True, prefix=L),
        *d.linear("mlp.fc11", "ffn_up", prefix=L), *d.linear("mlp.fc12", "ffn_gate", prefix=L),
        *d.linear("mlp.fc2", "ffn_down", prefix=L), *d.linear("norm2", "layer_output_norm", bias=True, prefix=L),
    ),
    keys=(
        *d.sizes(kv_heads=""), Key("layer_norm_eps", d.LN_EPS, "f32"), d.VOCAB, TOKEN_TYPES, CAUSAL,
        Rope(theta=1000.0, types=("default",)).facts(),
    ),
    defaults={
        "vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "hidden_act": "silu", "max_position_embeddings": 2048, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "head_dim": None,
    },
    when_null=d.HEAD_DIM_NULL,
    fixed={
        "hidden_act": (*d.SILU, "swiglu"), "prenorm": (False,), "causal": (False,), "qkv_proj_bias": (False,),
        "mlp_fc1_bias": (False,), "mlp_fc2_bias": (False,), "rotary_emb_fraction": (1.0, 1),
        "rotary_emb_interleaved": (False,), "rotary_emb_scale_base": (None,), "rotary_scaling_factor": (None,),
        "use_rms_norm": (False, None), "parallel_block": (False,), "parallel_block_tied_norm": (False,),
        "scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), "moe_every_n_layers": (0, None),
    },
    inert=frozenset({"max_trained_positions", "reorder_and_upcast_attn", "dense_seq_output", "num_key_value_heads"}),
    aliases={
        "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_inner": "intermediate_size",
        "n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings", "rotary_emb_base": "rope_theta",
        "layer_norm_epsilon": "layer_norm_eps", "activation_function": "hidden_act",
    },
    drops=(Drop(r"embeddings\.position_ids", "a constant, which is computed"), d.INV_FREQ),
)
