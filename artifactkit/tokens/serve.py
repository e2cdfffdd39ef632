"""The package `tokenizers` behind two pipes, in a process of its own: its regular expressions can take for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..children import Json, server
from ..children.server import Failed


class Loaded:
    """One tokenizer, and the requests that it answers."""

    def __init__(self) -> None:
        self.tokenizer: Any = None

    def answer(self, asked: Json, payload: bytes) -> Iterator[tuple[Json, Any]]:
        import tokenizers

        what = asked["op"]
        try:
            if what == "load":
                self.tokenizer = tokenizers.Tokenizer.from_str(payload.decode())
                self.tokenizer.no_truncation()
                self.tokenizer.no_padding()
                found: object = {"version": tokenizers.__version__}
            elif what == "encode":
                self.tokenizer.encode_special_tokens = not asked["parse"]
                found = [self.tokenizer.encode(text, add_special_tokens=asked["special"]).ids
                         for text in json.loads(payload)]  # fmt: skip
            elif what == "decode":
                found = [self.tokenizer.decode(ids, skip_special_tokens=False) for ids in json.loads(payload)]
            elif what == "cut":
                part = json.dumps({"pre": asked["pre"]})
                self.tokenizer.normalizer = None
                self.tokenizer.pre_tokenizer = _pre_tokenizer(json.loads(part)["pre"])
                self.tokenizer.model.ignore_merges = asked["whole"]
                found = {}
            else:
                raise Failed(f"an unknown request {what}")
        except Failed:
            raise
        except BaseException as error:  # noqa: BLE001  # what panics in Rust is no Exception
            raise Failed(f"tokenizers: {str(error)[:300] or type(error).__name__}") from None
        yield {"done": True}, json.dumps(found).encode()


def _pre_tokenizer(part: Json) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if part["type"] == "Sequence":
        return pre_tokenizers.Sequence([_pre_tokenizer(p) for p in part["pretokenizers"]])
    if part["type"] == "Split":
        return pre_tokenizers.Split(Regex(part["pattern"]["Regex"]), "isolated")
    return pre_tokenizers.ByteLevel(add_prefix_space=part["add_prefix_space"], use_regex=part["use_regex"])


def main() -> None:
    server.main(Loaded().answer)
