"""The name of the pre-tokenizer: by fingerprint, or as it was given. Never a guess."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from ..errors import RouteRefused
from ..report import Loss
from . import texts
from .files import Files
from .fingerprints import HASHES, TEXT
from .library import Library
from .pretokenizers import CUTS, GROUPS, KNOWN, check
from .vocabulary import Vocabulary


def fingerprint(ids: list[int]) -> str:
    """sha256 of the ids, as llama.cpp's converter takes it."""
    return sha256(str(ids).encode()).hexdigest()


def named(vocabulary: Vocabulary, files: Files, given: str | None) -> Vocabulary:
    """``vocabulary`` with ``pre``, which llama.cpp reads for byte-level BPE alone.

    ``given`` is what the user says; where llama.cpp then cuts otherwise than tokenizer.json, that is a loss. Raises
    RouteRefused for an unknown fingerprint, UsageError for a name that llama.cpp does not know, MissingExtra without
    `tokenizers`.
    """
    if vocabulary.model != "gpt2":
        pre = None if vocabulary.model == "bert" else "default"
        if given is not None:
            text = (
                f"--pre-tokenizer {given}: llama.cpp reads it for byte-level BPE alone, and this is {vocabulary.model}"
            )
            files.notes.append(text)
        return replace(vocabulary, pre=pre)
    if given is not None:
        return _as_given(vocabulary, files, check(given))
    assert files.json is not None
    with Library(files.json, files.main) as library:
        [ids], [bare] = library.encode([TEXT], special=True), library.encode([TEXT])
        framed = [*_ids(vocabulary, "bos"), *bare, *_ids(vocabulary, "eos")]
        known = (HASHES.get(fingerprint(i)) for i in (ids, framed, bare))
        name = next((n for n in known if n in KNOWN), None)
        if name is not None:
            return replace(vocabulary, pre=name)
        alike = _alike(library)
    hint = "--pre-tokenizer NAME takes one all the same: the model will then read other tokens than it was trained on"
    if alike:
        hint = f"--pre-tokenizer {alike[0] if len(alike) == 1 else 'NAME, the one that the model was trained with'}"
    raise RouteRefused(
        "nobody knows how this tokenizer cuts text: its fingerprint is unknown", file=files.main,
        member=files.cls or "no tokenizer_class",
        expected=f"a pre-tokenizer of llama.cpp; the same ids on a test text: {', '.join(alike) or 'none'}",
        found=f"sha256 {fingerprint(ids)}", hint=hint,
    )  # fmt: skip


def _ids(vocabulary: Vocabulary, name: str) -> list[int]:
    return [vocabulary.special[name]] if vocabulary.add.get(name) else []


def _alike(library: Library) -> list[str]:
    """The first name of each group that gives the ids of this tokenizer. Afterwards ``library`` is of no use."""
    lines = texts.PLAIN
    wanted = library.encode(lines, parse=False)
    found = []
    for name in GROUPS:
        library.cut(CUTS[name])
        if library.encode(lines, parse=False) == wanted:
            found.append(name)
    return found


def _as_given(vocabulary: Vocabulary, files: Files, given: str) -> Vocabulary:
    made = replace(vocabulary, pre=given)
    try:
        from importlib.util import find_spec

        if files.json is None or given not in CUTS or find_spec("tokenizers") is None:
            return made
    except (ImportError, ValueError):
        return made
    with Library(files.json, files.main) as library:
        wanted = library.encode(texts.PLAIN, parse=False)
        library.cut(CUTS[given])
        differ = [
            t for t, a, b in zip(texts.PLAIN, wanted, library.encode(texts.PLAIN, parse=False), strict=True) if a != b
        ]
    if not differ:
        return made
    loss = Loss("function-differs", f"as {given}, text is cut otherwise than tokenizer.json does: {differ[0]!r}")
    return replace(made, losses=(*made.losses, loss))
