"""One GGUF file in llama.cpp: its vocabulary, and outputs of token ids. Used in the child process only."""

from __future__ import annotations

import ctypes as c
import struct
from collections.abc import Iterator
from typing import Any

from ...children import Json
from ...children.server import Failed
from .abi import NO_TOKEN, Batch, ChatMessage, ContextParams, Library, ModelParams, text

OUTPUT_BYTES = 128 << 20  # of logits that one llama_decode call may hold
CALL = 512  # tokens that one call takes at most, where a call may be split: llama.cpp's own n_ubatch
TEXT_LIMIT = 1 << 30  # bytes of a text that is made in memory


class Model:
    """One loaded file: its vocabulary, and a context made to the measure of each request."""

    def __init__(self, lib: Library, ask: Json) -> None:
        self.lib, self.ask = lib, ask
        self.context: int | None = None
        self.made: tuple[int, ...] = ()
        params = ModelParams.from_buffer_copy(lib.model_params)
        params.vocab_only = ask["vocab_only"]
        self._devices = self._on(params, ask["device"])
        # A path of bytes: the file system knows no encoding. Latin-1 carries them through JSON.
        self.model = lib.llama_model_load_from_file(ask["path"].encode("latin-1"), params)
        if not self.model:
            raise Failed("llama.cpp does not load the file")
        if ask["device"] is not None and (layers := lib.said.get("offloaded")) and layers[0] != layers[1]:
            raise Failed(f"{layers[0]} of {layers[1]} layers are on {ask['device']}", "device")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.tokens = lib.llama_vocab_n_tokens(self.vocab)
        self.arch = self.meta("general.architecture")
        causal = self.meta(f"{self.arch}.attention.causal")
        self.encodes = lib.llama_model_has_encoder(self.model)
        self.causal = causal != "false" and not self.encodes
        if self.encodes and lib.llama_model_has_decoder(self.model):
            raise Failed(f"{self.arch} has an encoder and a decoder; only one of them is run here")
        self.embeds = not ask["vocab_only"] and (not self.causal or ask["embeddings"])
        self.width = lib.llama_model_n_embd_out(self.model) if self.embeds else self.tokens

    def _on(self, params: ModelParams, wanted: str | None) -> Any:
        """Puts the model on the device called ``wanted``, or keeps it off any. Returns what has to stay alive."""
        if wanted is None:
            devices = (c.c_void_p * 1)(None)
            params.n_gpu_layers = 0
        else:
            found = self.lib.devices()
            index = next((d["index"] for d in found if d["name"].lower() == wanted and d["type"] != "cpu"), None)
            if index is None:
                raise Failed(f"llama.cpp has no device {wanted}", "device", found=[d["name"] for d in found])
            devices = (c.c_void_p * 2)(self.lib.ggml_backend_dev_get(index), None)
            params.n_gpu_layers, params.split_mode = -1, 0
        params.devices = c.cast(devices, c.c_void_p)
        return devices

    def meta(self, key: str) -> str:
        buffer = c.create_string_buffer(256)
        length = self.lib.llama_model_meta_val_str(self.model, key.encode(), buffer, len(buffer))
        return text(buffer.value) if length >= 0 else ""

    def facts(self) -> Json:
        lib = self.lib
        return {
            "arch": self.arch, "causal": self.causal, "embeds": self.embeds, "width": self.width, "tokens": self.tokens,
            "n_ctx_train": lib.llama_model_n_ctx_train(self.model), "system_info": text(lib.llama_print_system_info()),
            "ggml": text(lib.ggml_version()), "commit": text(lib.ggml_commit()), "devices": lib.devices(),
        }  # fmt: skip

    def vocabulary(self) -> Json:
        lib, vocab = self.lib, self.vocab
        special = {name: getattr(lib, f"llama_vocab_{name}")(vocab) for name in
                   ("bos", "eos", "eot", "sep", "nl", "pad", "mask")}  # fmt: skip
        add = {name: bool(getattr(lib, f"llama_vocab_get_add_{name}")(vocab)) for name in ("bos", "eos", "sep")}
        return {
            "type": lib.llama_vocab_type(vocab), "tokens": self.tokens, "add": add,
            "special": {name: token for name, token in special.items() if token != NO_TOKEN},
        }  # fmt: skip

    def _context(self, length: int, call: int) -> int:
        """A context for ``length`` positions, ``call`` of them in one call. A function of the request alone."""
        lib = self.lib
        if self.made == (length, call) and self.context:
            return self.context
        if self.context:
            lib.llama_free(self.context)
        self.context, params = None, ContextParams.from_buffer_copy(lib.context_params)
        params.n_ctx, params.n_batch, params.n_ubatch = length, call, call
        params.n_threads = params.n_threads_batch = self.ask["threads"]
        params.embeddings = self.embeds
        if self.embeds:
            params.pooling_type = 0
        if self.ask["exact"]:
            params.flash_attn_type = params.type_k = params.type_v = 0
        if self.ask["device"] is None:
            params.offload_kqv = params.op_offload = False
        for name in ("kv", "flash_asked", "flash_chosen"):
            lib.said.pop(name, None)
        context: int = lib.llama_init_from_model(self.model, params) or 0
        if not context:
            raise Failed("llama.cpp makes no context for the model", found=f"{length} positions")
        self.context, self.made = context, (length, call)
        # Fields that landed elsewhere would show here: what was set is asked back through functions.
        asked = {"n_batch": call, "n_ubatch": call, "n_threads": params.n_threads, "n_threads_batch": params.n_threads}
        if self.embeds:
            asked["pooling_type"] = 0
        for name, value in asked.items():
            got = getattr(lib, f"llama_{name}")(context)
            if got != value:
                raise Failed(f"llama.cpp took {name} as {got}", "abi", expected=str(value))
        return context

    def run(self, rows: list[list[int]], pieces: list[int], length: int) -> Iterator[tuple[Json, Any]]:
        """Frames of outputs: floats of ``count`` positions of one row, in order, each ``width`` long."""
        # What is not causal has to be seen whole; else a call is as long as its outputs are small.
        call = max(1, min(length, CALL, OUTPUT_BYTES // (4 * max(1, self.width)))) if self.causal else length
        context = self._context(length, call)
        batch, calls = self.lib.llama_batch_init(call, 0, 1), 0
        try:
            for number, ids in enumerate(rows):
                memory = self.lib.llama_get_memory(context)
                if memory:
                    self.lib.llama_memory_clear(memory, True)
                for start, count in spans(len(ids), pieces or [length], call):
                    yield from self._call(context, batch, number, ids, start, count)
                    calls += 1
        finally:
            self.lib.llama_batch_free(batch)
        said, lib = self.lib.said, self.lib
        yield {
            "done": True, "calls": calls, "n_ctx": lib.llama_n_ctx(context), "n_ubatch": call, "kv": said.get("kv"),
            "flash": said.get("flash_chosen") or said.get("flash_asked"),
        }, b""  # fmt: skip

    def _call(
        self, context: int, batch: Batch, row: int, ids: list[int], start: int, count: int
    ) -> Iterator[tuple[Json, Any]]:
        lib = self.lib
        batch.n_tokens = count
        for i in range(count):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = ids[start + i], start + i, 1, 1
            batch.seq_id[i][0] = 0
        done = (lib.llama_encode if self.encodes else lib.llama_decode)(context, batch)
        if done:
            raise Failed(f"llama.cpp does not run the tokens: it answers {done}", found=f"row {row}, position {start}")
        get = lib.llama_get_embeddings_ith if self.embeds else lib.llama_get_logits_ith
        size = self.width * 4
        floats = bytearray(count * size)
        for i in range(count):
            found = get(context, i)
            if not found:
                raise Failed(f"llama.cpp has no output for position {start + i} of row {row}")
            floats[i * size : (i + 1) * size] = c.string_at(found, size)
        yield {"row": row, "start": start, "count": count}, floats

    def tokenize(self, raw: bytes, special: bool, parse: bool) -> Any:
        room = len(raw) + 16
        for _ in range(2):
            ids = (c.c_int32 * room)()
            count = self.lib.llama_tokenize(self.vocab, raw, len(raw), ids, room, special, parse)
            if 0 <= count <= room:
                return memoryview(ids).cast("B")[: 4 * count]
            room = -count
            if not 0 < room < TEXT_LIMIT:
                break
        raise Failed("llama.cpp does not tokenise the text")

    def detokenize(self, raw: bytes, remove: bool, unparse: bool) -> Any:
        count = len(raw) // 4
        ids, room = (c.c_int32 * count).from_buffer_copy(raw), 16 * count + 64
        for _ in range(2):
            buffer = c.create_string_buffer(room)
            length = self.lib.llama_detokenize(self.vocab, ids, count, buffer, room, remove, unparse)
            if 0 <= length <= room:
                return memoryview(buffer).cast("B")[:length]
            room = -length
            if not 0 < room < TEXT_LIMIT:
                break
        raise Failed("llama.cpp does not turn the tokens into text")

    def texts(self, pieces: bool) -> bytes:
        """Attributes, scores, lengths of the texts (32 bits each), then the texts. ``pieces``: as text has them."""
        found = []
        lib, room = self.lib, c.create_string_buffer(1 << 16)
        for token in range(self.tokens):
            if pieces:
                length = lib.llama_token_to_piece(self.vocab, token, room, len(room), 0, True)
                if length < 0:
                    raise Failed(f"llama.cpp has no piece of text for token {token}")
                found.append(room.raw[:length])
            else:
                found.append(lib.llama_vocab_get_text(self.vocab, token) or b"")
        count = f"<{self.tokens}"
        numbers = range(self.tokens)
        attributes = struct.pack(f"{count}i", *(lib.llama_vocab_get_attr(self.vocab, i) for i in numbers))
        scores = struct.pack(f"{count}f", *(lib.llama_vocab_get_score(self.vocab, i) for i in numbers))
        lengths = struct.pack(f"{count}i", *map(len, found))
        return b"".join([attributes, scores, lengths, *found])

    def template(self, name: str | None) -> bytes | None:
        found: bytes | None = self.lib.llama_model_chat_template(self.model, name.encode() if name else None)
        return found

    def apply(self, template: str, messages: list[Json], generate: bool) -> Any:
        """What ``llama_chat_apply_template`` makes of it: it knows some templates by heart and runs none."""
        chat = (ChatMessage * len(messages))(
            *[ChatMessage(m["role"].encode(), m["content"].encode()) for m in messages]
        )
        room = 2 * sum(len(m.role) + len(m.content) for m in chat) + 1024
        for _ in range(2):
            buffer = c.create_string_buffer(room)
            length = self.lib.llama_chat_apply_template(template.encode(), chat, len(chat), generate, buffer, room)
            if 0 <= length <= room:
                return memoryview(buffer).cast("B")[:length]
            if not 0 < length < TEXT_LIMIT:
                break
            room = length
        raise Failed("llama.cpp does not know this chat template by heart")


def spans(length: int, pieces: list[int], call: int) -> Iterator[tuple[int, int]]:
    """(start, count) of each call: the pieces, cut at ``length``, none longer than ``call``."""
    start = 0
    for piece in pieces:
        end = min(length, start + piece)
        while start < end:
            count = min(call, end - start)
            yield start, count
            start += count
