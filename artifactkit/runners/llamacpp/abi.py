"""The C side of llama.cpp: structs, prototypes and defaults of the pinned xllamacpp, for ctypes.

As ``llama.h`` and ``ggml-backend.h`` of that build have them. Struct layouts differ between builds, so their defaults
are looked at before anything is set. Used in the child process only.
"""

from __future__ import annotations

import ctypes as c
import os
import re
from typing import Any

from ...children import Json
from ...children.server import Failed

NO_TOKEN = -1


class ModelParams(c.Structure):
    _fields_ = (
        ("devices", c.c_void_p), ("tensor_buft_overrides", c.c_void_p), ("n_gpu_layers", c.c_int32),
        ("split_mode", c.c_int32), ("load_mode", c.c_int32), ("lazy_mode", c.c_int32), ("main_gpu", c.c_int32),
        ("tensor_split", c.c_void_p), ("progress_callback", c.c_void_p), ("progress_user_data", c.c_void_p),
        ("kv_overrides", c.c_void_p), ("vocab_only", c.c_bool), ("check_tensors", c.c_bool),
        ("use_extra_bufts", c.c_bool), ("no_host", c.c_bool), ("no_alloc", c.c_bool), ("load_mtp", c.c_bool),
    )  # fmt: skip


class ContextParams(c.Structure):
    _fields_ = (
        ("n_ctx", c.c_uint32), ("n_batch", c.c_uint32), ("n_ubatch", c.c_uint32), ("n_seq_max", c.c_uint32),
        ("n_rs_seq", c.c_uint32), ("n_outputs_max", c.c_uint32), ("n_outputs_max_per_seq", c.c_uint32),
        ("n_threads", c.c_int32), ("n_threads_batch", c.c_int32), ("ctx_type", c.c_int32),
        ("rope_scaling_type", c.c_int32), ("pooling_type", c.c_int32), ("attention_type", c.c_int32),
        ("flash_attn_type", c.c_int32), ("rope_freq_base", c.c_float), ("rope_freq_scale", c.c_float),
        ("yarn_ext_factor", c.c_float), ("yarn_attn_factor", c.c_float), ("yarn_beta_fast", c.c_float),
        ("yarn_beta_slow", c.c_float), ("yarn_orig_ctx", c.c_uint32), ("defrag_thold", c.c_float),
        ("cb_eval", c.c_void_p), ("cb_eval_user_data", c.c_void_p), ("type_k", c.c_int32), ("type_v", c.c_int32),
        # abort_callback, abort_callback_data and one that this build has more; all null: which is which does not show
        ("callbacks", c.c_void_p * 3), ("embeddings", c.c_bool),
        ("offload_kqv", c.c_bool), ("no_perf", c.c_bool), ("op_offload", c.c_bool), ("swa_full", c.c_bool),
        ("kv_unified", c.c_bool), ("samplers", c.c_void_p), ("n_samplers", c.c_size_t), ("ctx_other", c.c_void_p),
    )  # fmt: skip


class Batch(c.Structure):
    _fields_ = (
        ("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p), ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)), ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
        ("logits", c.POINTER(c.c_int8)),
    )  # fmt: skip


class ChatMessage(c.Structure):
    _fields_ = (("role", c.c_char_p), ("content", c.c_char_p))


# What the two functions that give defaults answer in the pinned build; what is not named is zero or a null pointer.
# tensor_buft_overrides and tensor_split are null there as well, so each pointer says that the fields before it fit.
DEFAULTS: dict[type[c.Structure], Json] = {
    ModelParams: {"n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "use_extra_bufts": True},
    ContextParams: {
        "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_outputs_max_per_seq": 1, "n_threads": 4,
        "n_threads_batch": 4, "rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1,
        "yarn_ext_factor": -1.0, "yarn_attn_factor": -1.0, "yarn_beta_fast": -1.0, "yarn_beta_slow": -1.0,
        "defrag_thold": -1.0, "type_k": 1, "type_v": 1, "offload_kqv": True, "no_perf": True, "op_offload": True,
        "swa_full": True,
    },
}  # fmt: skip


def padded(params: type[c.Structure]) -> type[c.Structure]:
    """``params`` with room behind it, so that a struct that has grown is found out before it harms the stack."""
    fields = (("params", params), ("room", c.c_uint8 * 512))
    return type(f"Padded{params.__name__}", (c.Structure,), {"_fields_": fields})


P, I32, U8P = c.c_void_p, c.c_int32, c.c_char_p
FLOATS = c.POINTER(c.c_float)
LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
# name -> (result, arguments), as llama.h and ggml-backend.h declare them.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "llama_backend_init": (None, []), "llama_log_set": (None, [LOG, P]), "llama_print_system_info": (U8P, []),
    "llama_model_load_from_file": (P, [U8P, ModelParams]), "llama_init_from_model": (P, [P, ContextParams]),
    "llama_free": (None, [P]), "llama_batch_init": (Batch, [I32, I32, I32]), "llama_batch_free": (None, [Batch]),
    "llama_decode": (I32, [P, Batch]), "llama_encode": (I32, [P, Batch]), "llama_get_memory": (P, [P]),
    "llama_memory_clear": (None, [P, c.c_bool]), "llama_get_logits_ith": (FLOATS, [P, I32]),
    "llama_get_embeddings_ith": (FLOATS, [P, I32]), "llama_n_ctx": (c.c_uint32, [P]),
    "llama_n_batch": (c.c_uint32, [P]), "llama_n_ubatch": (c.c_uint32, [P]),
    "llama_n_threads": (I32, [P]), "llama_n_threads_batch": (I32, [P]),
    "llama_pooling_type": (I32, [P]), "llama_model_n_embd": (I32, [P]), "llama_model_n_embd_out": (I32, [P]),
    "llama_model_n_ctx_train": (I32, [P]), "llama_model_has_encoder": (c.c_bool, [P]),
    "llama_model_has_decoder": (c.c_bool, [P]), "llama_model_get_vocab": (P, [P]),
    "llama_model_meta_val_str": (I32, [P, U8P, c.c_char_p, c.c_size_t]), "llama_model_chat_template": (U8P, [P, U8P]),
    "llama_chat_apply_template": (I32, [U8P, c.POINTER(ChatMessage), c.c_size_t, c.c_bool, c.c_char_p, I32]),
    "llama_vocab_type": (I32, [P]), "llama_vocab_n_tokens": (I32, [P]), "llama_vocab_get_text": (U8P, [P, I32]),
    "llama_vocab_get_score": (c.c_float, [P, I32]), "llama_vocab_get_attr": (I32, [P, I32]),
    "llama_tokenize": (I32, [P, U8P, I32, P, I32, c.c_bool, c.c_bool]),
    "llama_detokenize": (I32, [P, P, I32, c.c_char_p, I32, c.c_bool, c.c_bool]),
    "llama_token_to_piece": (I32, [P, I32, c.c_char_p, I32, I32, c.c_bool]),
    "ggml_version": (U8P, []), "ggml_commit": (U8P, []), "ggml_backend_dev_count": (c.c_size_t, []),
    "ggml_backend_dev_get": (P, [c.c_size_t]), "ggml_backend_dev_name": (U8P, [P]),
    "ggml_backend_dev_description": (U8P, [P]), "ggml_backend_dev_type": (I32, [P]),
    **{f"llama_vocab_{name}": (I32, [P]) for name in ("bos", "eos", "eot", "sep", "nl", "pad", "mask")},
    **{f"llama_vocab_get_add_{name}": (c.c_bool, [P]) for name in ("bos", "eos", "sep")},
}  # fmt: skip
DEVICE_TYPES = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel", 4: "meta"}


class Library:
    """The C functions by name, and what llama.cpp has said so far of the things in ``facts``."""

    def __init__(self, path: bytes) -> None:
        self.lib = c.CDLL(os.fsdecode(path))
        self.said: Json = {}
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self.lib, name, None)
            if function is None:
                raise Failed(f"the library has no function {name}", "abi")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.model_params = self._defaults("llama_model_default_params", ModelParams)
        self.context_params = self._defaults("llama_context_default_params", ContextParams)
        self._keep = LOG(self._log)
        self.llama_log_set(self._keep, None)
        self.llama_backend_init()

    def __getattr__(self, name: str) -> Any:  # for the type checker: functions are set by name
        raise AttributeError(name)

    def _defaults(self, name: str, params: type[c.Structure]) -> Any:
        """The defaults, as a struct. Failed when they are not those of the build that the layout is taken from."""
        function = getattr(self.lib, name)
        function.restype, function.argtypes = padded(params), []
        found = params.from_buffer_copy(function().params)
        for field, _ in params._fields_:  # type: ignore[misc]
            value, wanted = getattr(found, field), DEFAULTS[params].get(field)
            value = None if isinstance(value, c.Array) and not any(value) else value
            if (value or None) != (wanted or None):
                raise Failed(f"{name}: {field} is {value!r}", "abi", expected=repr(wanted or 0))
        return found

    def _log(self, level: int, text: bytes, _: object) -> None:
        """Passes on what is worth it. Level 1 is for those who debug llama.cpp, 5 goes on with the line before."""
        if level in (2, 3, 4):
            line = text.decode("utf-8", "replace").strip()
            for name, pattern in SAID.items():
                if found := pattern.search(line):
                    self.said[name] = found.group(1) if found.re.groups == 1 else list(found.groups())
            os.write(2, f"{' DIWE'[level]} {line[:500]}\n".encode("utf-8", "replace"))

    def devices(self) -> list[Json]:
        found = []
        for index in range(self.ggml_backend_dev_count()):
            device = self.ggml_backend_dev_get(index)
            kind = self.ggml_backend_dev_type(device)
            found.append({
                "name": text(self.ggml_backend_dev_name(device)), "type": DEVICE_TYPES.get(kind, str(kind)),
                "description": text(self.ggml_backend_dev_description(device)), "index": index,
            })  # fmt: skip
        return found


# What llama.cpp says of itself: the only place where it tells what it really does.
SAID = {
    "kv": re.compile(r"K \((\w+)\): .* V \((\w+)\): "),
    "flash_asked": re.compile(r"^llama_context: flash_attn\s+= (\w+)$"),
    "flash_chosen": re.compile(r"Flash Attention was auto, set to (\w+)"),
    "offloaded": re.compile(r"offloaded (\d+)/(\d+) layers to GPU"),
}


def text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
