"""Runs a GGUF file in llama.cpp (xllamacpp's library, by ctypes) and saves logits or embeddings of every position.

``python llama_child.py MODEL.gguf IDS.npy OUT.npy [decode|embed|encode]``, in a process of its own: an assertion inside
ends the process. One thread, flash attention off, f32 KV. Offsets are those of the pinned build's
``llama_context_params``; its defaults are looked at before anything is set.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np


class Params(c.Structure):
    """A parameter struct by value, larger than either of llama.cpp's: fields are set by offset."""

    _fields_ = (("raw", c.c_uint8 * 400),)

    def at(self, offset: int, kind: type = c.c_int32) -> c.c_int32:
        return kind.from_buffer(self, offset)  # type: ignore[attr-defined,no-any-return]


class Batch(c.Structure):
    _fields_ = (
        ("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p), ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)), ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
        ("logits", c.POINTER(c.c_int8)),
    )  # fmt: skip


N_CTX, N_BATCH, N_UBATCH, THREADS, THREADS_BATCH, POOLING, FLASH, TYPE_K, TYPE_V = 0, 4, 8, 28, 32, 44, 52, 104, 108
EMBEDDINGS = 136
DEFAULTS = {N_CTX: 512, N_BATCH: 2048, N_UBATCH: 512, 40: -1, POOLING: -1, 48: -1, FLASH: -1, TYPE_K: 1, TYPE_V: 1}


def library() -> c.CDLL:
    spec = find_spec("xllamacpp")
    assert spec is not None and spec.origin is not None
    [path] = Path(spec.origin).parent.glob("xllamacpp*.so")
    lib = c.CDLL(str(path))
    for name in ("llama_model_default_params", "llama_context_default_params"):
        getattr(lib, name).restype = Params
    lib.llama_batch_init.restype = Batch
    for name, arguments in (
        ("llama_model_load_from_file", [c.c_char_p, Params]), ("llama_init_from_model", [c.c_void_p, Params]),
        ("llama_model_get_vocab", [c.c_void_p]),
    ):  # fmt: skip
        getattr(lib, name).restype, getattr(lib, name).argtypes = c.c_void_p, arguments
    for name in ("llama_decode", "llama_encode"):
        getattr(lib, name).argtypes = [c.c_void_p, Batch]
    for name in ("llama_get_logits_ith", "llama_get_embeddings_ith"):
        getattr(lib, name).restype, getattr(lib, name).argtypes = c.POINTER(c.c_float), [c.c_void_p, c.c_int32]
    lib.llama_vocab_n_tokens.argtypes = lib.llama_model_n_embd.argtypes = [c.c_void_p]
    return lib


def run(path: str, ids: np.ndarray, how: str) -> np.ndarray:
    lib = library()
    log: list[str] = []
    keep = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(
        lambda _, text, __: log.append(text.decode("utf-8", "replace"))
    )
    lib.llama_log_set(keep, None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    assert model, "llama.cpp does not load the file: " + "".join(log)[-800:]
    params = lib.llama_context_default_params()
    assert all(params.at(offset).value == value for offset, value in DEFAULTS.items()), "another build of llama.cpp"
    wanted = {N_CTX: 256, N_BATCH: 256, N_UBATCH: 256, THREADS: 1, THREADS_BATCH: 1, FLASH: 0, TYPE_K: 0, TYPE_V: 0}
    if how != "decode":
        wanted[POOLING] = 0
        params.at(EMBEDDINGS, c.c_uint8).value = 1
    for offset, value in wanted.items():
        params.at(offset).value = value
    context = lib.llama_init_from_model(model, params)
    assert context, "no context: " + "".join(log)[-800:]
    batch = lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
        batch.seq_id[i][0] = 0
    done = (lib.llama_encode if how == "encode" else lib.llama_decode)(context, batch)
    assert done == 0, f"llama.cpp says {done}: " + "".join(log)[-800:]
    get = lib.llama_get_logits_ith if how == "decode" else lib.llama_get_embeddings_ith
    size = (
        lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)) if how == "decode" else lib.llama_model_n_embd(model)
    )
    return np.stack([np.ctypeslib.as_array(get(context, i), (size,)).copy() for i in range(len(ids))])


if __name__ == "__main__":
    os.environ["GGML_NO_BACKTRACE"] = "1"
    np.save(sys.argv[3], run(sys.argv[1], np.load(sys.argv[2]), (sys.argv[4:] or ["decode"])[0]))
