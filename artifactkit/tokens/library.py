"""The package `tokenizers`, asked for ids in a child process within a time limit."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Self

from ..children.client import Child
from ..errors import MissingExtra, RunFailed
from .files import Object
from .pretokenizers import Cut, parts

SECONDS = 120.0


class Library:
    """One tokenizer.json, loaded by `tokenizers`. To be closed, or used in a ``with`` statement.

    Raises MissingExtra without the package; RunFailed for a tokenizer that it does not load, or that takes too long.
    """

    def __init__(self, tokenizer: Object, file: str, seconds: float = SECONDS) -> None:
        from importlib.util import find_spec

        if find_spec("tokenizers") is None:
            raise MissingExtra(
                "telling how this tokenizer cuts text needs the package tokenizers", expected="the extra `gguf`",
                file=file, hint="pip install 'artifactkit[gguf]'; or name it: --pre-tokenizer NAME",
            )  # fmt: skip
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
        self._child, self._seconds = (
            Child(script, "tokenizers", file, unset=("TOKENIZERS_", "RAYON_", "RUST_")),
            seconds,
        )
        try:
            loaded = self._ask({"op": "load"}, json.dumps(tokenizer).encode())
            self.version = str(loaded["version"]) if isinstance(loaded, dict) else ""
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child process; twice does no harm."""
        self._child.close()

    def encode(self, texts: Sequence[str], special: bool = False, parse: bool = True) -> list[list[int]]:
        """The ids of each text. ``special``: with what is put around; ``parse``: names of special tokens are those."""
        found = self._ask({"op": "encode", "special": special, "parse": parse}, json.dumps(list(texts)).encode())
        return _lists(found, self._child.file)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids."""
        found = self._ask({"op": "decode"}, json.dumps([list(i) for i in ids]).encode())
        return [str(text) for text in found] if isinstance(found, list) else []

    def cut(self, how: Cut) -> None:
        """From now on text is cut as llama.cpp cuts it, instead of as the file says. Not to be undone."""
        self._ask({"op": "cut", "pre": parts(how), "whole": how.whole}, b"")

    def _ask(self, request: dict[str, object], payload: bytes) -> object:
        return json.loads(self._child.ask(request, self._seconds, payload)[1])


def _lists(found: object, file: str) -> list[list[int]]:
    if not isinstance(found, list):
        raise RunFailed("the child answers what was not asked", file=file)
    return found
