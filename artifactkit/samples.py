"""The user's own samples, on which an artifact is verified: arrays, or lines of text."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from .errors import Corrupt, MissingExtra, Unreadable, UsageError
from .opening import open_source
from .source import read_all
from .verify.inputs import Case

if TYPE_CHECKING:
    import numpy as np

MAX_SAMPLES = 64 << 20  # bytes of a file of samples
MAX_LENGTH = 4096  # tokens of one sample


def given(path: str, folder: str) -> list[Case]:
    """The user's samples: arrays by transformers' names (.npz, .safetensors), or lines of JSON with ``text`` or
    ``input_ids`` (.jsonl). ``folder`` has the tokenizer. Raises Unreadable, Corrupt, UsageError, MissingExtra."""
    if not os.path.isfile(path):
        raise Unreadable("no such file", file=path)
    if os.path.getsize(path) > MAX_SAMPLES:
        raise UsageError("too many samples", file=path, expected=f"at most {MAX_SAMPLES >> 20} MB")
    if path.endswith(".jsonl"):
        return _lines(path, folder)
    arrays = _arrays(path)
    ids = arrays.get("input_ids")
    if ids is None or ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise UsageError(
            "the samples hold no token ids", file=path, expected="input_ids, (batch, length), whole numbers"
        )
    return [Case(f"{os.path.basename(path)}: {ids.shape[0]} x {ids.shape[1]}", arrays)]


def _arrays(path: str) -> dict[str, np.ndarray]:
    import numpy as np

    weights = open_source(path).weights
    found = {}
    for tensor in weights:
        if tensor.dtype.cls not in ("int", "bool") or tensor.dtype.numpy is None or tensor.nbytes > MAX_SAMPLES:
            raise UsageError("samples are whole numbers", file=path, tensor=tensor.name, found=tensor.dtype.name)
        kind = np.dtype(tensor.dtype.numpy).newbyteorder("<")
        found[tensor.name] = np.frombuffer(read_all(tensor.source), kind).reshape(tensor.shape).astype(np.int64)
    return found


def _lines(path: str, folder: str) -> list[Case]:
    import numpy as np

    cases = []
    tokenizer = None
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                sample = json.loads(line)
            except ValueError as error:
                raise Corrupt("a line is no JSON", file=path, found=f"line {number}") from error
            ids = sample.get("input_ids") if isinstance(sample, dict) else None
            if ids is None:
                text = sample.get("text") if isinstance(sample, dict) else sample
                if not isinstance(text, str):
                    raise Corrupt("a line has neither text nor input_ids", file=path, found=f"line {number}")
                tokenizer = tokenizer or _tokenizer(folder)
                ids = tokenizer.encode(text).ids
            if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
                raise Corrupt("input_ids are no whole numbers", file=path, found=f"line {number}")
            if ids:
                cases.append(Case(f"line {number}", {"input_ids": np.array([ids[:MAX_LENGTH]], np.int64)}))
    if not cases:
        raise UsageError("the file holds no sample", file=path)
    return cases


def _tokenizer(folder: str) -> Any:
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.isfile(path):
        raise UsageError("text needs a tokenizer.json beside the weights", file=folder, hint="give input_ids instead")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra("text needs the package tokenizers", hint="pip install 'artifactkit[gguf]'") from error
    return Tokenizer.from_file(path)
