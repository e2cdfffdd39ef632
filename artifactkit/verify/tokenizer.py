"""The tokenizer of a GGUF file against the one of a checkpoint folder: llama.cpp itself is asked for ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import trees
from ..artifact import Weights
from ..errors import ArtifactkitError, MissingExtra
from ..report import Check
from ..tokens import build, compare, files, huggingface, keyvalues
from ..tokens.keyvalues import GGML


def checks(artifact: Weights, source: Weights) -> Iterator[Check]:
    """What is found, where one of the two is a GGUF file and the other a folder with a tokenizer; else nothing.

    Ids, and texts made of them again, are compared between llama.cpp on the file and `tokenizers` on the folder.
    Without the packages that takes they are not verified.
    """
    if (artifact.format == "gguf") == (source.format == "gguf"):
        return
    gguf, folder = (artifact, source) if artifact.format == "gguf" else (source, artifact)
    if not gguf.keyvalues or not any(c.name == "config.json" for c in folder.companions):
        return
    found = files.read(folder.companions)
    written = any(pair.key == GGML + "model" for pair in gguf.keyvalues)
    if found is None or not written:
        if found is not None and gguf is artifact:
            yield Check("accounting", "tokenizer", "failed", "the folder has one, the file has none")
        return
    path = gguf.files[0]
    if trees.is_url(path):
        yield Check("accounting", "token ids", "not-verified", "llama.cpp reads files of this machine")
        return
    try:
        yield from _judge(gguf, found, path)
    except MissingExtra as error:
        yield Check("accounting", "token ids", "not-verified", f"{error.what} ({error.hint})")
    except ArtifactkitError as error:
        detail = " ".join(filter(None, (error.what, error.found, error.hint)))
        yield Check("accounting", "token ids", "failed", detail[:500])


def _judge(gguf: Weights, found: files.Files, path: str) -> Iterator[Check]:
    from ..runners.llamacpp import vocabulary as native

    vocabulary = keyvalues.read(gguf.keyvalues, path)
    if vocabulary is None:
        return
    tokenizer = found.json
    if tokenizer is None:  # a sentencepiece model alone: as `tokenizers` would have it
        own = build.vocabulary(found, {}, len(vocabulary.tokens))
        # What its files leave open is what llama.cpp takes.
        add, special = {**vocabulary.add, **own.add}, {**vocabulary.special, **own.special}
        tokenizer = huggingface.tokenizer(replace(own, add=add, special=special))
    with native(path) as llama:
        yield from compare.ids(vocabulary, tokenizer, found.main, llama)
        yield from compare.templates(found.templates, llama)
