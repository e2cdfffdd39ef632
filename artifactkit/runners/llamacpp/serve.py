"""llama.cpp behind two pipes. Runs in a process of its own, which ``child.py`` starts.

What llama.cpp says goes to stderr, a letter for the level before each line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from ...children import Json, server
from ...children.server import Failed
from .abi import Library
from .model import Model


class Runtime:
    """One loaded file, and the requests that it answers."""

    def __init__(self) -> None:
        self.model: Model | None = None

    def answer(self, asked: Json, payload: bytes) -> Iterator[tuple[Json, Any]]:
        what = asked["op"]
        if what == "load":
            self.model = Model(Library(asked["library"].encode("latin-1")), asked)
            yield {"done": True, **self.model.facts(), "vocabulary": self.model.vocabulary()}, b""
            return
        model = self.model
        if model is None:
            raise Failed("nothing is loaded")
        if what == "run":
            yield from model.run(asked["rows"], asked["pieces"], asked["length"])
            return
        made: dict[str, Callable[[], Any]] = {
            "tokenize": lambda: model.tokenize(payload, asked["special"], asked["parse"]),
            "detokenize": lambda: model.detokenize(payload, asked["remove"], asked["unparse"]),
            "texts": lambda: model.texts(asked["pieces"]),
            "template": lambda: model.template(asked["name"]),
            "apply": lambda: model.apply(asked["template"], asked["messages"], asked["generate"]),
        }
        found = made[what]()
        yield {"done": True, "absent": found is None}, found or b""


def main() -> None:
    os.environ["GGML_NO_BACKTRACE"] = "1"  # an assertion would start a debugger on this process
    server.main(Runtime().answer)
