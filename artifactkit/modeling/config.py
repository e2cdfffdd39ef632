"""config.json as transformers reads it: each key's value, or the default of the config class, or what null means there.

Defaults are those of transformers 5 (``configuration_<model_type>.py``); the tests compare each with the config class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import Corrupt, RouteRefused

FILE = "config.json"

# Keys that say nothing about what is computed: book-keeping, training, generation settings (those travel in
# generation_config.json), and special token ids (the tokenizer's business).
INERT: frozenset[str] = frozenset(
    """
    _name_or_path is_llama_config output_past _attn_implementation _attn_implementation_autoset
    _attn_implementation_internal _commit_hash _flash_attn_2_enabled architectures attn_implementation auto_map
    model_type name_or_path tokenizer_class transformers_version transformers_weights torch_dtype dtype use_bfloat16
    torchscript use_cache gradient_checkpointing return_dict return_dict_in_generate chunk_size_feed_forward
    output_attentions output_hidden_states output_scores output_router_logits initializer_range initializer_factor
    initializer_cutoff_factor init_method pretraining_tp attention_dropout attention_probs_dropout_prob attn_pdrop
    classifier_dropout embd_pdrop embedding_dropout hidden_dropout hidden_dropout_prob mlp_dropout resid_pdrop
    residual_dropout dropout dropout_rate resid_dropout summary_first_dropout router_aux_loss_coef
    router_jitter_noise router_z_loss_coef aux_loss_alpha seq_aux ep_size id2label label2id num_labels problem_type
    finetuning_task task_specific_params classifier_activation classifier_bias classifier_pooling summary_activation
    summary_proj_to_labels summary_type summary_use_proj bos_token_id eos_token_id pad_token_id sep_token_id
    cls_token_id unk_token_id mask_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    suppress_tokens begin_suppress_tokens bad_words_ids prefix max_length min_length max_new_tokens do_sample
    early_stopping num_beams num_beam_groups num_return_sequences diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    exponential_decay_length_penalty remove_invalid_values tf_legacy_loss unsloth_fixed unsloth_version
    transformers.js_config _sliding_window_pattern base_model_tp_plan reference_compile deterministic_flash_attn
    sparse_prediction sparse_pred_ignore_index repad_logits_with_grad use_flash_attn fused_bias_fc
    fused_dropout_add_ln use_xentropy pad_vocab_size_multiple tie_last_hidden_states
    """.split()  # noqa: SIM905
)

# Features that every config may have and nobody here knows: each must be off.
OFF: dict[str, tuple[object, ...]] = {
    "is_decoder": (False, None), "add_cross_attention": (False, None), "is_encoder_decoder": (False, None),
    "cross_attention_hidden_size": (None,), "tie_encoder_decoder": (False, None), "pruned_heads": ({}, None),
    "quantization_config": (None,), "per_layer_config": (None, {}), "rope_interleaved": (False, None),
}  # fmt: skip

MISSING = object()


@dataclass(slots=True)
class Config:
    """A config.json with the defaults of one family. ``config[key]`` is what transformers would compute with."""

    raw: Mapping[str, object]
    defaults: Mapping[str, object]
    when_null: Mapping[str, Callable[[Config], object]] = field(default_factory=dict)
    file: str = FILE

    def __getitem__(self, key: str) -> object:
        value = self.raw[key] if key in self.raw else self.defaults.get(key)
        if value is None and key in self.when_null:
            return self.when_null[key](self)
        return value

    def given(self, key: str) -> bool:
        """Whether the file itself says something about ``key``."""
        return self.raw.get(key) is not None

    def wrong(self, key: str, expected: str) -> Corrupt:
        """The error for a value that has no meaning."""
        return Corrupt(
            f"{key} has no meaning", file=self.file, member=key, expected=expected, found=shown(self[key]),
        )  # fmt: skip

    def count(self, key: str) -> int:
        """A count: a whole number above 0."""
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self.wrong(key, "a whole number above 0")
        return value

    def opt_count(self, key: str) -> int | None:
        """A count, or None for null and 0."""
        return None if self[key] in (None, 0) else self.count(key)

    def real(self, key: str) -> float:
        """A finite number."""
        return number(self[key], key, self.file)

    def flag(self, key: str) -> bool:
        """True or false; null is false."""
        value = self[key]
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def listed(self, key: str) -> list[object] | None:
        """A list, or None for null."""
        value = self[key]
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def dim(self, name: str | int) -> int:
        """A size by the name of its key, or the number itself."""
        return name if isinstance(name, int) else self.count(name)


def number(value: object, key: str, file: str = FILE) -> float:
    """``value`` as a finite float; Corrupt by name when it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -3.5e38 < value < 3.5e38:
        raise Corrupt(f"{key} has no meaning", file=file, member=key, expected="a number", found=shown(value))
    return float(value)


def shown(value: object) -> str:
    """A value for messages, as JSON writes it, cut to a line."""
    import json

    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def same(value: object, wanted: object) -> bool:
    """Equality in which true is not 1."""
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def check_values(
    config: Config, fixed: Mapping[str, tuple[object, ...]], family: str, runtime: str = "llama.cpp"
) -> None:
    """Refuse a value of a known key that the target's graph has no way to compute."""
    for key, allowed in {**OFF, **fixed}.items():
        if key not in config.raw and key not in config.defaults:
            continue
        value = config[key]
        if not any(same(value, one) for one in allowed):
            hint = (
                "the weights are quantised: dequantise the checkpoint first" if key == "quantization_config" else None
            )
            raise RouteRefused(
                f"{key} has a value that {runtime}'s {family} does not compute", file=config.file, member=key,
                expected=" or ".join(shown(one) for one in allowed), found=shown(value), hint=hint,
            )  # fmt: skip


def check_understood(config: Config, known: Iterable[str], family: str) -> None:
    """Refuse a key that nothing here reads: it may change what is computed. Null says nothing and passes."""
    understood = {*known, *INERT, *OFF}
    for key, value in config.raw.items():
        if key in understood or value is None or value in ([], {}, ""):
            continue
        raise RouteRefused(
            f"{key} is not understood for {family}, and may change what the model computes", file=config.file,
            member=key, expected="a key that the family's rules know", found=shown(value),
            hint=f"if {key} changes nothing, take it out of {config.file}",
        )  # fmt: skip
