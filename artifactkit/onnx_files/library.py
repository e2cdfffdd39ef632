"""The onnx library, asked in a child process: it is native code, and the models are somebody else's."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from typing import Any

from ..children import Json
from ..children.client import Child
from ..errors import MissingExtra

SECONDS = 600.0
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")


def need() -> None:
    """MissingExtra, before any work, where the library is not installed."""
    if find_spec("onnx") is None:
        raise MissingExtra(
            "changing a graph needs the package onnx", expected="the extra `onnx`",
            hint="pip install 'artifactkit[onnx]'",
        )  # fmt: skip


def ask(request: Json, file: str, payload: bytes = b"") -> tuple[Json, bytes]:
    """One answer of one child. Raises RunFailed or what the library's answer is."""
    child = Child(SCRIPT, "the onnx library", file)
    try:
        return child.ask(request, SECONDS, payload)
    finally:
        child.close()


def check(path: str) -> list[Any]:
    """[name, data type, dims, bytes or -1, file or None, offset] of each tensor that the library finds."""
    _, found = ask({"op": "check", "path": os.path.abspath(path)}, path)
    tensors: list[Any] = json.loads(found)
    return tensors
