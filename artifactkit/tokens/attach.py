"""The tokenizer on its way with the weights: from a folder into key-values, and from those into a folder's files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..artifact import KeyValue, Weights
from ..errors import RouteRefused
from ..report import Loss, counted
from . import build, files, fingerprint, huggingface, keyvalues
from .files import Object


def to_gguf(weights: Weights, config: Object, rows: int, pre_tokenizer: str | None = None) -> Weights:
    """``weights`` with the pairs of the tokenizer that stands beside them; as they are where none does.

    ``rows`` are those of the embedding, ``pre_tokenizer`` the name that the user gives. What llama.cpp does otherwise
    is among the losses. Raises RouteRefused, UsageError, Corrupt, LimitExceeded and MissingExtra as ``build`` and
    ``fingerprint`` do. No tensor byte is read.
    """
    found = files.read(weights.companions)
    if found is None:
        return weights
    made = fingerprint.named(build.vocabulary(found, config, rows), found, pre_tokenizer)
    pairs = (*weights.keyvalues, *keyvalues.write(made))
    losses = [*weights.losses, *made.losses]
    return replace(weights, keyvalues=pairs, losses=losses, notes=[*weights.notes, *found.notes])


def said(pairs: Iterable[KeyValue]) -> str:
    """The tokenizer of a file in a few words: ``49152 tokens, gpt2, cut as smollm``; empty where it has none."""
    held = {pair.key: pair for pair in pairs if pair.key.startswith(keyvalues.GGML)}
    model, tokens, pre = (held.get(keyvalues.GGML + name) for name in ("model", "tokens", "pre"))
    if model is None or tokens is None:
        return ""
    cut = f", cut as {pre.value}" if pre is not None and model.value == "gpt2" else ""
    return f"{counted(tokens.count, 'token')}, {model.value}{cut}"


def to_folder(
    weights: Weights, pairs: Iterable[KeyValue], context: int | None, file: str = ""
) -> tuple[Weights, dict[str, bytes], dict[str, int]]:
    """(``weights`` without the tokenizer's pairs, files by name, special ids for config.json) from a file's ``pairs``.

    A tokenizer that no tokenizer.json is known for stays behind, as a loss.
    """
    try:
        vocabulary = keyvalues.read(pairs, file)
        made = {} if vocabulary is None else huggingface.files(vocabulary, context)
    except RouteRefused as error:
        found = f" ({error.found})" if error.found else ""
        loss = Loss("tokenizer-dropped", f"the tokenizer stays behind: {error.what}{found}")
        return replace(weights, losses=[*weights.losses, loss]), {}, {}
    if vocabulary is None:
        return weights, {}, {}
    rest = tuple(p for p in weights.keyvalues if not p.key.startswith("tokenizer."))
    return replace(weights, keyvalues=rest), made, dict(huggingface.ids(vocabulary))
