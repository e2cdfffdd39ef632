"""BPE with a fall-back to bytes, as Llama 2 has it: sentencepiece's, which llama.cpp merges by scores, not by ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import RouteRefused
from ..report import counted
from .sentencepiece import BPE, Pieces
from .vocabulary import BYTE, NORMAL, SPACE, UNKNOWN, UNUSED, Vocabulary

if TYPE_CHECKING:
    from .build import Draft
    from .files import Files, Object
    from .parsed import Parsed

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def pieces_lost(pieces: Pieces) -> list[str]:
    """What llama.cpp does otherwise than sentencepiece's model says."""
    lost = []
    if pieces.charsmap:
        lost.append("text is not normalised first")
    if pieces.squeeze:
        lost.append("spaces that follow each other stay")
    if pieces.space_is_suffix:
        lost.append("the space is put before a text, not behind it")
    return lost


def of_json(
    parsed: Parsed, files: Files, refuse: Callable[[Parsed, str, Object], RouteRefused]
) -> tuple[Draft, Vocabulary]:
    """tokenizer.json of such a BPE. A sentencepiece model of the same tokens beside it gives scores and types."""
    from .build import Draft, space_scheme

    lost: list[str] = []
    scheme = "never"
    for part in parsed.parts("normalizer"):
        kind = part.get("type")
        if kind == "Prepend" and part.get("prepend") == SPACE:
            scheme = "always"
        elif kind in ("NFC", "NFKC", "NFD", "NFKD", "Precompiled", "Nmt"):
            lost.append(f"text is not normalised by {kind} first")
        elif kind != "Replace" or part.get("pattern") != {"String": " "} or part.get("content") != SPACE:
            raise refuse(parsed, "normalizer", part)
    for part in parsed.parts("pre_tokenizer"):
        kind = part.get("type")
        if kind == "Metaspace" and part.get("replacement", SPACE) == SPACE:
            scheme = space_scheme(part)
            if scheme != "never":
                lost.append("a text that begins with a space gets one more")
        elif kind != "Split" or part.get("pattern") != {"String": " "}:  # a space is none any more: nothing is cut
            raise refuse(parsed, "pre_tokenizer", part)
    if scheme == "first":
        lost.append("a space is put behind special tokens too")
    texts = list(parsed.texts)
    pieces = files.pieces
    if pieces is not None and pieces.kind == BPE and pieces.texts[: len(texts)] == texts[: len(pieces.texts)]:
        types = [*pieces.types, *([NORMAL] * (len(texts) - len(pieces.texts)))][: len(texts)]
        scores = [*pieces.scores, *([0.0] * (len(texts) - len(pieces.texts)))][: len(texts)]
        return Draft("llama", parsed.file, texts, types, scores, lost), Vocabulary(
            "llama", (), (), space_prefix=scheme != "never"
        )
    if pieces is not None:
        files.notes.append("the sentencepiece model has other tokens than tokenizer.json, which was taken")
    unknown = parsed.model.get("unk_token")
    types = [
        UNUSED if t is None else BYTE if _BYTE.fullmatch(t) else UNKNOWN if t == unknown else NORMAL for t in texts
    ]
    scores = ranks(parsed)
    return Draft("llama", parsed.file, texts, types, scores, lost), Vocabulary(
        "llama", (), (), space_prefix=scheme != "never"
    )


def ranks(parsed: Parsed) -> list[float]:
    """Scores that merge in the order of the merges: each token's is minus the number of those merged before it.

    sentencepiece joins any two neighbours that make a token; tokenizer.json the pairs that it lists. They agree where
    all pairs that make a token are listed, and in the tokens' order. RouteRefused where they are not.
    """
    ids = {text: i for i, text in enumerate(parsed.texts) if text is not None}
    pairs = set(parsed.merges)
    order: dict[str, int] = {}
    for left, right in parsed.merges:
        order.setdefault(left + right, len(order))
    last: dict[str, int] = {}
    scattered = 0
    for at, (left, right) in enumerate(parsed.merges):
        text = left + right
        scattered += text in last and last[text] != at - 1
        last[text] = at
    missing = [
        (text[:i], text[i:])
        for text in order
        for i in range(1, len(text))
        if text[:i] in ids and text[i:] in ids and (text[:i], text[i:]) not in pairs
    ]
    wrong = missing[0] if missing else None
    if wrong is not None or scattered:
        found = (
            f"{counted(len(missing), 'pair')} not listed, such as {wrong[0]!r} {wrong[1]!r}"
            if wrong
            else (f"{counted(scattered, 'merge')} out of order")
        )
        raise RouteRefused(
            "llama.cpp merges this kind of BPE by tokens, and would merge what tokenizer.json does not",
            file=parsed.file, member="model.merges", expected="every pair that makes a token, in the tokens' order",
            found=found, hint="the tokenizer.model that it was made from has the scores; put it beside tokenizer.json",
        )  # fmt: skip
    least = -float(len(order)) - 1.0
    return [0.0 if t is None or len(t) < 2 else -float(order[t]) if t in order else least for t in parsed.texts]
