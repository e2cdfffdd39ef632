"""What is asked of a GGUF file in llama.cpp: outputs of token ids, and its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ...children import Json
from ...children.client import Child
from ...errors import RunFailed, UsageError
from ...token_inputs import rows
from ...types import RunOptions

if TYPE_CHECKING:
    import numpy as np

WIDTH_LIMIT = 1 << 24  # outputs a position: no vocabulary is near it
MESSAGE = {"role", "content"}
WITH_VOCABULARY = {"tokenize", "detokenize", "texts"}  # llama.cpp aborts where there is none


@dataclass(frozen=True, slots=True)
class Token:
    """One token as llama.cpp has it. ``attributes`` are the bits of ``llama_token_attr``."""

    text: bytes
    score: float
    attributes: int


class Vocabulary:
    """The tokenizer in a GGUF file, as llama.cpp reads it. ``facts``: its type, special ids by name, what it adds.

    Every method raises RunFailed when llama.cpp fails, takes longer than ``seconds``, or dies. To be closed, or used in
    a ``with`` statement.
    """

    def __init__(self, child: Child, library: str, path: str, seconds: float, **load: object) -> None:
        self._child, self._seconds = child, seconds
        request: Json = {
            "op": "load", "path": os.fsencode(os.path.abspath(path)).decode("latin-1"),
            "library": os.fsencode(library).decode("latin-1"), "vocab_only": True,
            "device": None, "embeddings": False, "exact": True, "threads": 1, **load,
        }  # fmt: skip
        self._loaded, _ = child.ask(request, seconds)
        self.facts: Mapping[str, object] = self._loaded["vocabulary"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the child process."""
        return self._child.pid

    def close(self) -> None:
        """Ends the child process; twice does no harm."""
        self._child.close()

    def tokenize(self, text: str | bytes, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """The ids of ``text``, in UTF-8. ``add_special``: with begin and end as the file says; ``parse_special``: names
        of control tokens in the text are those tokens."""
        import numpy as np

        raw = text.encode() if isinstance(text, str) else text
        request = {"op": "tokenize", "special": add_special, "parse": parse_special}
        found: list[int] = np.frombuffer(self._ask(request, raw)[1], "<i4").tolist()
        return found

    def detokenize(self, ids: Sequence[int], remove_special: bool = False, unparse_special: bool = False) -> bytes:
        """The text of ``ids``, as bytes: tokens may end within a character."""
        import numpy as np

        raw = np.asarray(self._known(ids), "<i4").tobytes()
        return self._ask({"op": "detokenize", "remove": remove_special, "unparse": unparse_special}, raw)[1]

    def tokens(self) -> list[Token]:
        """All tokens in order of id, with their texts as the file has them (``Ġthe``, ``<0x0A>``)."""
        return self._tokens(False)

    def pieces(self) -> list[Token]:
        """All tokens in order of id, with the text that each one stands for (`` the``, a newline)."""
        return self._tokens(True)

    def _tokens(self, pieces: bool) -> list[Token]:
        import numpy as np

        raw = self._ask({"op": "texts", "pieces": pieces})[1]
        count = self._count()
        numbers = np.frombuffer(raw[: 12 * count], "<i4").reshape(3, count)
        scores = numbers[1].view("<f4").tolist()
        ends = (12 * count + np.cumsum(numbers[2], dtype=np.int64)).tolist()
        starts = [12 * count, *ends[:-1]]
        return [
            Token(raw[start:end], score, attributes)
            for start, end, score, attributes in zip(starts, ends, scores, numbers[0].tolist(), strict=True)
        ]

    def chat_template(self, name: str | None = None) -> str | None:
        """The template's source that llama.cpp finds in the file under ``name``; None when there is none."""
        head, raw = self._ask({"op": "template", "name": name})
        return None if head["absent"] else raw.decode("utf-8", "replace")

    def apply_builtin_template(
        self, template: str, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = False
    ) -> str:
        """``llama_chat_apply_template``: llama.cpp knows some templates by heart and does not run them as jinja.

        RunFailed when it does not recognise the template.
        """
        if any(set(m) != MESSAGE for m in messages):
            raise UsageError("a message has a role and a content", expected="role, content")
        request = {
            "op": "apply", "template": template, "messages": [dict(m) for m in messages],
            "generate": add_generation_prompt,
        }  # fmt: skip
        return self._ask(request)[1].decode("utf-8", "replace")

    def _ask(self, request: Json, payload: bytes = b"") -> tuple[Json, bytes]:
        if request["op"] in WITH_VOCABULARY and not self._loaded["vocabulary"]["type"]:
            raise RunFailed("the file has no vocabulary", file=self._child.file, hint="give token ids")
        return self._child.ask(request, self._seconds, payload)

    def _count(self) -> int:
        return int(self._loaded["tokens"])

    def _known(self, ids: Sequence[int]) -> Sequence[int]:
        for token in ids:
            if not 0 <= token < self._count():
                raise UsageError("no such token", expected=f"0 to {self._count() - 1}", found=token)
        return ids


class LlamaSession(Vocabulary):
    """A Session (types.py) on llama.cpp, which also answers for the file's tokenizer.

    Rows are run one by one, each as long as its mask says; outputs at masked positions are NaN. The context is sized
    to the inputs' length, and made anew when that changes: outputs depend on the inputs alone. ``facts`` are complete
    after the first ``run``; the key-value types and flash attention are what llama.cpp says that it has.
    """

    def __init__(
        self, child: Child, library: str, version: str, path: str, device: str, exact: bool, embeddings: bool,
        options: RunOptions,
    ) -> None:  # fmt: skip
        super().__init__(
            child, library, path, options.seconds, vocab_only=False, device=_backend(device), embeddings=embeddings,
            exact=exact, threads=options.threads,
        )  # fmt: skip
        loaded = self._loaded
        self._width = int(loaded["width"])
        if not 0 < self._width <= WIDTH_LIMIT:
            raise RunFailed("the model has no outputs", file=path, found=f"{self._width} a position")
        self._output = "last_hidden_state" if loaded["embeds"] else "logits"
        used = [d for d in loaded["devices"] if (d["type"] == "cpu") == (device == "cpu")]
        self.facts: dict[str, object] = {
            "runtime": "llama.cpp", "version": f"xllamacpp {version}", "ggml": f"{loaded['ggml']} ({loaded['commit']})",
            "system_info": loaded["system_info"].strip(" |"), "architecture": loaded["arch"], "device": device,
            "device_name": ", ".join(d["description"] for d in used), "threads": options.threads, "dtype": "float32",
            "settings": "exact" if exact else "defaults",
        }  # fmt: skip
        self.vocabulary: Mapping[str, object] = loaded["vocabulary"]

    def run(self, inputs: Mapping[str, np.ndarray], pieces: Sequence[int] = ()) -> dict[str, np.ndarray]:
        """Session.run: ``logits`` or, for encoders and embedding tasks, ``last_hidden_state``; float32."""
        import numpy as np

        ids, lengths = rows(inputs, self._count(), "llama.cpp")
        if pieces and (any(p < 1 for p in pieces) or sum(pieces) != ids.shape[1]):
            raise UsageError("the pieces are no cut of the inputs", expected=ids.shape[1], found=list(pieces))
        if len(pieces) > 1 and not self._loaded["causal"]:
            raise UsageError(f"{self._loaded['arch']} has to see its inputs whole: nothing is carried over")
        out = np.full((*ids.shape, self._width), np.nan, np.float32)
        expected = [0] * len(lengths)

        def place(head: Json, nbytes: int) -> memoryview:
            row, start, count = (int(head[key]) for key in ("row", "start", "count"))
            known = 0 <= row < len(lengths) and start == expected[row] and 0 < count <= lengths[row] - start
            if not known or nbytes != 4 * count * self._width:
                raise RunFailed("the child answers what was not asked", file=self._child.file, found=str(head))
            expected[row] += count
            return out[row, start : start + count].reshape(-1).view(np.uint8).data

        request = {
            "op": "run", "rows": [ids[i, :n].tolist() for i, n in enumerate(lengths)], "pieces": list(pieces),
            "length": int(ids.shape[1]),
        }  # fmt: skip
        done, _ = self._child.ask(request, self._seconds, place=place)
        if expected != lengths:
            raise RunFailed("the child left outputs out", file=self._child.file, found=str(expected))
        self._learn(done)
        return {self._output: out}

    def _learn(self, done: Json) -> None:
        kv = done["kv"]
        self.facts |= {
            "n_ctx": done["n_ctx"], "n_ubatch": done["n_ubatch"], "calls": done["calls"],
            "flash_attention": done["flash"], "kv_types": ", ".join(kv) if kv else "no cache",
        }  # fmt: skip


def _backend(device: str) -> str | None:
    """llama.cpp's name of a device, in lower case; None for the CPU: ``cuda:0`` is its ``CUDA0``."""
    if device == "cpu":
        return None
    return {"metal": "mtl0"}.get(device, device.replace(":", "").lower())
