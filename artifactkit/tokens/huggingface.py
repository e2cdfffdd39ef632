"""The way back: a vocabulary as tokenizer.json, which gives the ids that llama.cpp gives, and the files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import Corrupt, RouteRefused
from .files import TEMPLATE
from .plain import added
from .pretokenizers import CUTS, parts
from .vocabulary import BYTE, CONTROL, SPACE, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary

CONFIG, MAIN = "tokenizer_config.json", "tokenizer.json"


def files(vocabulary: Vocabulary, context: int | None = None) -> dict[str, bytes]:
    """File names and contents: tokenizer.json, tokenizer_config.json, and chat_template.jinja where there is one.

    ``context`` is the longest text in tokens. Raises RouteRefused for a tokenizer that no tokenizer.json is known for,
    Corrupt for one with tokens that are no text.
    """
    found = {MAIN: _dump(tokenizer(vocabulary)), CONFIG: _dump(config(vocabulary, context))}
    if set(vocabulary.templates) == {"default"}:
        found[TEMPLATE] = vocabulary.templates["default"].encode()
    return found


def _dump(value: object) -> bytes:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError as error:
        text = ascii(error.object[max(0, error.start - 8) : error.end + 8])
        raise Corrupt("a token or template is no UTF-8", member="tokenizer", found=text) from None


def config(vocabulary: Vocabulary, context: int | None = None) -> dict[str, object]:
    """tokenizer_config.json. Its class is the one that takes tokenizer.json as it stands."""
    names = {"bos": "bos", "eos": "eos", "unk": "unk", "sep": "sep", "pad": "pad", "mask": "mask"}
    found: dict[str, object] = {
        f"{name}_token": vocabulary.tokens[vocabulary.special[name]] for name in names if name in vocabulary.special
    }
    if vocabulary.model == "bert" and "bos" in vocabulary.special:
        found["cls_token"] = found.pop("bos_token")
        found.pop("eos_token", None)
    if len(vocabulary.templates) > 1 or (vocabulary.templates and "default" not in vocabulary.templates):
        found["chat_template"] = [{"name": n, "template": t} for n, t in sorted(vocabulary.templates.items())]
    found["clean_up_tokenization_spaces"] = False
    if context is not None:
        found["model_max_length"] = context
    found["tokenizer_class"] = "PreTrainedTokenizerFast"
    return dict(sorted(found.items()))


@dataclass(slots=True)
class _Parts:
    normalizer: object
    pre_tokenizer: object
    decoder: object
    model: dict[str, object]
    texts: list[str]  # of the tokens, as they stand in tokenizer.json


def tokenizer(vocabulary: Vocabulary) -> dict[str, object]:
    """tokenizer.json. Tokens that stand for rows of the embedding alone are left out of it."""
    made = {"gpt2": _gpt2, "llama": _llama, "bert": _bert, "t5": _t5}[vocabulary.model](vocabulary)
    extra: list[object] = []
    for i, text in enumerate(made.texts):
        kind = vocabulary.types[i]
        if kind in (CONTROL, USER_DEFINED) or (kind == UNKNOWN and vocabulary.model != "gpt2"):
            extra.append({**added(i, text, special=kind != USER_DEFINED), "normalized": False})
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": extra, "normalizer": made.normalizer,
        "pre_tokenizer": made.pre_tokenizer, "post_processor": _around(vocabulary), "decoder": made.decoder,
        "model": made.model,
    }  # fmt: skip


def _texts(vocabulary: Vocabulary) -> list[str]:
    return list(vocabulary.tokens[: len(vocabulary.tokens) - vocabulary.padding])


def _around(vocabulary: Vocabulary) -> object:
    """What is put around a text."""
    v = vocabulary
    before = v.special.get("bos") if v.add.get("bos") else None
    after = v.special.get("eos") if v.add.get("eos") else None
    if v.model == "bert":
        after = v.special.get("sep")
    ends = {name: v.tokens[name] for name in (before, after) if name is not None}
    special = {text: {"id": text, "ids": [token], "tokens": [text]} for token, text in ends.items()}

    def side(token: int | None, of: int) -> list[object]:
        return [] if token is None else [{"SpecialToken": {"id": ends[token], "type_id": of}}]

    def part(name: str, of: int, start: bool) -> list[object]:
        body: list[object] = [{"Sequence": {"id": name, "type_id": of}}]
        return [*(side(before, of) if start else []), *body, *side(after, of)]

    return {"type": "TemplateProcessing", "single": part("A", 0, True),
            "pair": [*part("A", 0, True), *part("B", 1, v.model not in ("bert", "t5"))],
            "special_tokens": dict(sorted(special.items()))}  # fmt: skip


def _gpt2(v: Vocabulary) -> _Parts:
    cut = CUTS.get(v.pre or "")
    if cut is None:
        raise RouteRefused(
            "no tokenizer.json is known that cuts text as this pre-tokenizer", member="tokenizer.ggml.pre",
            expected=", ".join(sorted(CUTS)[:8]) + " ...", found=v.pre or "none",
        )  # fmt: skip
    texts = _texts(v)
    merges = [list(_pair(merge)) for merge in v.merges]
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return _Parts(None, parts(cut), level, _bpe(texts, merges, ignore_merges=cut.whole), texts)


def _pair(merge: str) -> tuple[str, str]:
    """As llama.cpp takes it apart: at the first space that is not the first character."""
    at = merge.find(" ", 1)
    return ("", "") if at < 0 else (merge[:at], merge[at + 1 :])


def _bpe(texts: list[str], merges: list[list[str]], **more: object) -> dict[str, object]:
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {text: i for i, text in enumerate(texts)}, "merges": merges, **more,
    }  # fmt: skip


def _llama(v: Vocabulary) -> _Parts:
    texts = _texts(v)
    space: list[object] = [{"type": "Prepend", "prepend": SPACE}] if v.space_prefix else []
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip: list[object] = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if v.space_prefix else []
    decoder = {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]}
    unknown = v.special.get("unk")
    model = _bpe(texts, merges_of(v, len(texts)), byte_fallback=True, fuse_unk=True,
                 unk_token=texts[unknown] if unknown is not None and unknown < len(texts) else None)  # fmt: skip
    return _Parts({"type": "Sequence", "normalizers": [*space, replace]}, None, decoder, model, texts)


def merges_of(v: Vocabulary, count: int) -> list[list[str]]:
    """Every pair that makes a token, in the order in which llama.cpp merges: by score, then by place."""
    if not v.scores:
        raise RouteRefused("a tokenizer of this kind needs scores", member="tokenizer.ggml.scores", found="none")
    out = (CONTROL, UNKNOWN, BYTE)
    # Texts of user-defined tokens have spaces for themselves, and are taken out before anything is merged.
    held = {text: i for i, text in enumerate(v.tokens[:count]) if v.types[i] not in (*out, USER_DEFINED)}
    found = []
    for text, i in held.items():
        pairs = [(text[:at], text[at:]) for at in range(1, len(text))]
        known = sorted((held[a], held[b]) for a, b in pairs if a in held and b in held)
        found += [(-v.scores[i], i, a, b) for a, b in known]
    return [[v.tokens[a], v.tokens[b]] for _, _, a, b in sorted(found)]


def _bert(v: Vocabulary) -> _Parts:
    texts = []
    for i, text in enumerate(_texts(v)):
        plain = v.types[i] == CONTROL
        texts.append(text if plain else text[1:] if text.startswith(SPACE) and len(text) > 1 else "##" + text)
    lower = v.lowercase is not False
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": lower,
                  "strip_accents": v.strip_accents}  # fmt: skip
    unknown = texts[v.special.get("unk", 0)]
    model: dict[str, object] = {
        "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {text: i for i, text in enumerate(texts)},
    }  # fmt: skip
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return _Parts(normalizer, {"type": "BertPreTokenizer"}, decoder, model, texts)


def _t5(v: Vocabulary) -> _Parts:
    from base64 import b64encode

    texts = _texts(v)
    if not v.scores:
        raise RouteRefused("a tokenizer of this kind needs scores", member="tokenizer.ggml.scores", found="none")
    steps: list[object] = []
    if v.charsmap:
        steps.append({"type": "Precompiled", "precompiled_charsmap": b64encode(v.charsmap).decode()})
    if v.squeeze:
        steps += [{"type": "Replace", "pattern": {"Regex": one}, "content": to}
                  for one, to in ((" {2,}", " "), ("^ | $", ""))]  # fmt: skip
    scheme = "always" if v.space_prefix or v.squeeze else "never"
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}
    least = min((s for s, t in zip(v.scores, v.types, strict=False) if t not in (UNUSED, CONTROL)), default=0.0)
    scores = [least if v.types[i] == UNUSED else v.scores[i] for i in range(len(texts))]
    model: dict[str, object] = {
        "type": "Unigram", "unk_id": v.special.get("unk"), "byte_fallback": False,
        "vocab": [[text.replace(" ", SPACE), score] for text, score in zip(texts, scores, strict=True)],
    }  # fmt: skip
    return _Parts({"type": "Sequence", "normalizers": steps} if steps else None, space, space, model, texts)


def ids(vocabulary: Vocabulary) -> Mapping[str, int]:
    """Special tokens for config.json, where models look for the end of a text."""
    keys = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "pad_token_id"}
    if vocabulary.model == "bert":  # its begin and end are others' names for its own
        keys = {"pad": "pad_token_id"}
    return {key: vocabulary.special[name] for name, key in keys.items() if name in vocabulary.special}
