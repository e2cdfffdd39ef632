"""What was read beside a checkpoint as a vocabulary in llama.cpp's terms. What llama.cpp does otherwise is a loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..errors import RouteRefused
from ..report import Loss
from . import bytefall
from . import sentencepiece as sp
from .files import Files, Object
from .parsed import Parsed, parse
from .plain import decoder
from .special import specials
from .vocabulary import (
    ADDED_SCORE,
    BYTE,
    CONTROL,
    NORMAL,
    PADDED_SCORE,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Model,
    Vocabulary,
    padding,
)  # fmt: skip

ALONE = "take tokenizer.json out of the folder to convert the weights alone"
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# llama.cpp matches these before it cuts a text, whatever a checkpoint says of them (convert_hf_to_gguf.py).
_LOOKS_SPECIAL = re.compile(r"<pad>|<mask>|<2mass>|\[@BOS@\]|<\|.*\|>|<\uff5c.*\uff5c>|<unused.*>", re.DOTALL)


@dataclass(slots=True)
class Draft:
    """Tokens in order of id while they are gathered."""

    model: Model
    file: str
    texts: list[str | None]
    types: list[int]
    scores: list[float]
    lost: list[str]

    def put(self, token: int, text: str, kind: int, score: float) -> None:
        while len(self.texts) <= token:
            self.texts.append(None)
            self.types.append(UNUSED)
            self.scores.append(PADDED_SCORE)
        self.texts[token], self.types[token], self.scores[token] = text, kind, score


def vocabulary(files: Files, config: Object, rows: int) -> Vocabulary:
    """The vocabulary of ``rows`` tokens, as many as the embedding has, without the name of its pre-tokenizer.

    ``config`` is the parsed config.json, for special ids that no file of the tokenizer names. Raises RouteRefused for a
    tokenizer that llama.cpp has nothing alike for, or with more tokens than rows; Corrupt for contradictions.
    """
    parsed = None if files.json is None else parse(files.json, files.main)
    made: Vocabulary
    if parsed is None:
        assert files.pieces is not None
        draft, more = _of_pieces(files, files.pieces)
    else:
        kinds: dict[str, Callable[[Parsed, Files], tuple[Draft, Vocabulary]]] = {
            "BPE": _of_bpe, "WordPiece": _of_wordpiece, "Unigram": _of_unigram
        }  # fmt: skip
        if parsed.kind not in kinds:
            raise RouteRefused(
                "llama.cpp has no tokenizer of this kind", file=files.main, member="model.type",
                expected=", ".join(kinds), found=parsed.kind, hint=ALONE,
            )  # fmt: skip
        draft, more = kinds[parsed.kind](parsed, files)
    raw = {text: i for i, text in enumerate(draft.texts) if text is not None}
    _add(draft, files, parsed, raw)
    found = specials(files, parsed, raw, config, draft.model == "bert")
    losses = [Loss("function-differs", f"llama.cpp tokenizes otherwise: {text}") for text in (*draft.lost, *found.lost)]
    tokens = _padded(draft, rows, losses)
    scored = draft.model in ("llama", "t5")
    made = replace(
        more, tokens=tuple(tokens), types=tuple(draft.types[:rows]), special=found.ids, add=found.add,
        scores=tuple(draft.scores[:rows]) if scored else (), templates=dict(files.templates), losses=tuple(losses),
    )  # fmt: skip
    _no_end(made, losses)
    return replace(made, losses=tuple(losses)).check(files.main)


def _no_end(made: Vocabulary, losses: list[Loss]) -> None:
    if made.model == "gpt2" and "eos" not in made.special:
        text = "no token ends a text: llama.cpp takes token 11 for it"
        losses.append(Loss("function-differs", text))


def _padded(draft: Draft, rows: int, losses: list[Loss]) -> list[str]:
    """``rows`` texts as GGUF spells them. Added ones beyond the embedding are left out, others refused."""
    while (
        draft.texts
        and len(draft.texts) > rows
        and (draft.types[-1] in (CONTROL, USER_DEFINED) or draft.texts[-1] is None)
    ):
        text = draft.texts.pop()
        token, _ = len(draft.texts), draft.types.pop()
        draft.scores.pop()
        if text is not None:
            losses.append(Loss("tokenizer-dropped", f"token {token}, {text!r}, has no row in the embedding"))
    if len(draft.texts) > rows:
        raise RouteRefused(
            "the tokenizer has more tokens than the embedding has rows", file=draft.file, expected=f"at most {rows}",
            found=len(draft.texts), hint="is the tokenizer this model's?",
        )  # fmt: skip
    if len(draft.texts) < rows:
        draft.put(rows - 1, padding(rows - 1), UNUSED, PADDED_SCORE)
        draft.texts[rows - 1] = None
    out = []
    for i, text in enumerate(draft.texts):
        kind = draft.types[i]
        if text is None:
            out.append(padding(i))
        elif draft.model == "bert" and kind != CONTROL:
            out.append(text[2:] if text.startswith("##") else SPACE + text)
        elif kind == USER_DEFINED:
            out.append(text.replace(SPACE, " "))  # they are looked for in the text as it is given
        else:
            out.append(text)
    return out


def _add(draft: Draft, files: Files, parsed: Parsed | None, ids: dict[str, int]) -> None:
    """Tokens that were added to the model's own, from wherever they are told. ``ids`` gets them too."""
    entries = {a.id: (a.text, a.special, False) for a in parsed.added} if parsed is not None else {}
    if parsed is None:
        for text, token in files.added.items():
            entries[token] = (text, False, False)
        for token, entry in decoder(files).items():
            entries[token] = (str(entry["content"]), entry["special"] is True, True)
    for token, (text, special, told) in sorted(entries.items()):
        held = draft.texts[token] if token < len(draft.texts) else None
        if held is not None and held != text and ids.get(held) == token:
            del ids[held]
        kind = CONTROL if special or _LOOKS_SPECIAL.fullmatch(text) else USER_DEFINED
        score = ADDED_SCORE
        if held == text and draft.model in ("llama", "t5"):
            if draft.types[token] in (UNKNOWN, CONTROL) and not told:
                kind, score = draft.types[token], draft.scores[token]
            elif draft.model == "t5":
                score = draft.scores[token]
        draft.put(token, text, kind, score)
        ids[text] = token


# -- by kind


def _refuse(parsed: Parsed, of: str, part: Object) -> RouteRefused:
    return RouteRefused(
        f"llama.cpp has nothing alike for this {of.replace('_', '-')}", file=parsed.file, member=of,
        found=", ".join(f"{k} {v!r}" for k, v in list(part.items())[:4])[:120], hint=ALONE,
    )  # fmt: skip


def _of_bpe(parsed: Parsed, files: Files) -> tuple[Draft, Vocabulary]:
    model = parsed.model
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise RouteRefused(
                "llama.cpp knows no BPE with marks in its tokens", file=parsed.file, member=f"model.{key}",
                expected="none", found=model[key], hint=ALONE,
            )  # fmt: skip
    if any("ByteLevel" in parsed.types(of) for of in ("normalizer", "pre_tokenizer", "decoder")):
        return _byte_level(parsed)
    if model.get("byte_fallback") is not True:
        raise RouteRefused(
            "llama.cpp knows BPE on bytes, and with a fall-back to bytes, and this is neither", file=parsed.file,
            member="model.byte_fallback", expected="true, or a ByteLevel pre-tokenizer",
            found=model.get("byte_fallback"), hint=ALONE,
        )  # fmt: skip
    return bytefall.of_json(parsed, files, _refuse)


def _byte_level(parsed: Parsed) -> tuple[Draft, Vocabulary]:
    lost = []
    for part in parsed.parts("normalizer"):
        kind = part.get("type")
        if kind in ("NFC", "NFKC", "NFD", "NFKD"):
            lost.append(f"text is not brought into Unicode's form {kind} first")
        elif kind != "ByteLevel":
            raise _refuse(parsed, "normalizer", part)
    if any(p.get("type") == "ByteLevel" and p.get("add_prefix_space") is True for p in parsed.parts("pre_tokenizer")):
        lost.append("a text gets no space before its first word")
    if parsed.model.get("unk_token") is not None and lacks_bytes(parsed.texts):
        lost.append(f"what has no token is left out, and is no {parsed.model['unk_token']}")
    count = len(parsed.texts)
    types = [NORMAL if t is not None else UNUSED for t in parsed.texts]
    draft = Draft("gpt2", parsed.file, list(parsed.texts), types, [0.0] * count, lost)
    merges = tuple(" ".join(part.replace(" ", "\u0120") for part in pair) for pair in parsed.merges)
    return draft, Vocabulary("gpt2", (), (), merges=merges)


def lacks_bytes(texts: Iterable[str | None]) -> bool:
    """Whether there are bytes that no token of a byte-level BPE stands for: 256 letters are their names (GPT-2)."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    names = {chr(n) for n in plain} | {chr(256 + n) for n in range(256 - len(plain))}
    return not names <= {text for text in texts if text is not None and len(text) == 1}


def _of_wordpiece(parsed: Parsed, files: Files) -> tuple[Draft, Vocabulary]:
    prefix = parsed.model.get("continuing_subword_prefix", "##")
    if prefix != "##":
        raise RouteRefused(
            "llama.cpp knows pieces within a word by ## alone", file=parsed.file,
            member="model.continuing_subword_prefix", expected="##", found=prefix, hint=ALONE,
        )  # fmt: skip
    lost: list[str] = []
    lower: bool | None = None
    strip: bool | None = None
    for part in parsed.parts("normalizer"):
        kind = part.get("type")
        if kind == "BertNormalizer":
            lower, strip = _flag(part, "lowercase"), _flag(part, "strip_accents")
            lost += [f"{text} all the same" for key, text in (("clean_text", "control characters are taken out"),
                     ("handle_chinese_chars", "Chinese characters stand alone")) if part.get(key) is False]  # fmt: skip
        elif kind == "Lowercase":
            lower = True
        elif kind == "StripAccents":
            strip = True
        elif kind in ("NFC", "NFKC", "NFKD"):
            lost.append(f"text is not brought into Unicode's form {kind} first")
        elif kind != "NFD":
            raise _refuse(parsed, "normalizer", part)
    if strip or (strip is None and lower):
        lost.append("Hangul is not taken apart, and all marks are stripped, not only those above and below")
    others = [part for part in parsed.parts("pre_tokenizer") if part.get("type") != "BertPreTokenizer"]
    if others:
        raise _refuse(parsed, "pre_tokenizer", others[0])
    types = [NORMAL if t is not None else UNUSED for t in parsed.texts]
    draft = Draft("bert", parsed.file, list(parsed.texts), types, [0.0] * len(types), lost)
    # Said where it is left open: llama.cpp takes a key that is absent for lower case.
    if lower is None:
        lower = False
    return draft, Vocabulary("bert", (), (), lowercase=lower, strip_accents=strip)


def _flag(part: Object, key: str) -> bool | None:
    value = part.get(key)
    return value if isinstance(value, bool) else None


def _of_unigram(parsed: Parsed, files: Files) -> tuple[Draft, Vocabulary]:
    from base64 import b64decode
    from binascii import Error

    lost: list[str] = []
    charsmap, squeeze = b"", False
    for part in parsed.parts("normalizer"):
        kind = part.get("type")
        if kind == "Precompiled":
            try:
                charsmap = b64decode(str(part.get("precompiled_charsmap") or ""), validate=True)
            except (Error, ValueError):
                raise _refuse(parsed, "normalizer", {"type": kind}) from None
        elif kind == "Replace" and part.get("pattern") in ({"Regex": " {2,}"}, {"String": "  "}):
            squeeze = True
        elif kind == "Strip" and part.get("strip_left") is not True:
            lost += [] if squeeze else ["spaces at the end of a text stay"]
        elif kind in ("NFC", "NFKC", "NFD", "NFKD", "Nmt"):
            lost.append(f"text is not normalised by {kind} first")
        elif kind != "Replace" or part.get("pattern") not in ({"String": "``"}, {"String": "''"}):
            raise _refuse(parsed, "normalizer", part)
        else:
            lost.append("quotation marks of two characters stay")
    scheme = None
    for part in parsed.parts("pre_tokenizer"):
        if part.get("type") == "WhitespaceSplit":
            squeeze = True
        elif part.get("type") == "Metaspace":
            scheme = space_scheme(part)
        else:
            raise _refuse(parsed, "pre_tokenizer", part)
    if scheme is None:
        raise _refuse(parsed, "pre_tokenizer", {"type": "without Metaspace"})
    in_bytes = parsed.model.get("byte_fallback") is True
    if in_bytes:
        lost.append("unknown characters are not spelt in bytes")
    if scheme == "first":
        lost.append("a space is put behind special tokens too")
    unknown = parsed.model.get("unk_id")
    types = [UNKNOWN if i == unknown else BYTE if in_bytes and _BYTE.fullmatch(t or "") else NORMAL
             for i, t in enumerate(parsed.texts)]  # fmt: skip
    draft = Draft("t5", parsed.file, list(parsed.texts), types, list(parsed.scores), lost)
    return draft, Vocabulary("t5", (), (), space_prefix=scheme != "never", squeeze=squeeze, charsmap=charsmap)


def space_scheme(part: Object) -> str:
    """``always``, ``first`` or ``never``: where Metaspace puts a space before a text."""
    scheme = part.get("prepend_scheme")
    if scheme is None:  # older files
        return "never" if part.get("add_prefix_space") is False else "always"
    return str(scheme)


def _of_pieces(files: Files, pieces: sp.Pieces) -> tuple[Draft, Vocabulary]:
    """A sentencepiece model without tokenizer.json."""
    lost: list[str] = []
    if pieces.kind not in (sp.BPE, sp.UNIGRAM):
        raise RouteRefused(
            "llama.cpp knows sentencepiece's BPE and Unigram", file=files.main, member="model_type",
            found=sp.MODEL_TYPES[pieces.kind],
        )  # fmt: skip
    texts: list[str | None] = list(pieces.texts)
    types, scores = list(pieces.types), list(pieces.scores)
    if pieces.kind == sp.BPE:
        lost += bytefall.pieces_lost(pieces)
        draft = Draft("llama", files.main, texts, types, scores, lost)
        return draft, Vocabulary("llama", (), (), space_prefix=pieces.space_prefix)
    if files.cls in ("XLMRobertaTokenizer", "CamembertTokenizer"):
        if files.cls != "XLMRobertaTokenizer":
            raise RouteRefused("the ids of this class are not sentencepiece's", file=files.main, found=files.cls,
                               hint="a tokenizer.json says them")  # fmt: skip
        # fairseq's order: four tokens of its own before the pieces, whose first three are left out, and a mask behind.
        texts = ["<s>", "<pad>", "</s>", "<unk>", *texts[3:], "<mask>"]
        types = [CONTROL, CONTROL, CONTROL, UNKNOWN, *types[3:], CONTROL]
        scores = [0.0] * 4 + scores[3:] + [0.0]
    if pieces.byte_fallback:
        lost.append("unknown characters are not spelt in bytes")
    draft = Draft("t5", files.main, texts, types, scores, lost)
    return draft, Vocabulary(
        "t5", (), (), space_prefix=pieces.space_prefix, squeeze=pieces.squeeze, charsmap=pieces.charsmap
    )
