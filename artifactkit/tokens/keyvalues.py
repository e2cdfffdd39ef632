"""A vocabulary as the ``tokenizer.*`` pairs of a GGUF file, and back (gguf-py, ``Keys.Tokenizer``; llama-vocab.cpp)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..artifact import KeyValue
from ..errors import Corrupt, RouteRefused
from .pretokenizers import ADD_BOS
from .vocabulary import MODELS, NORMAL, Model, Vocabulary, charsmap_fits

GGML = "tokenizer.ggml."
TEMPLATE, TEMPLATES = "tokenizer.chat_template", "tokenizer.chat_templates"
COUNT = GGML + "token_type_count"  # of a model's segments, not of its tokens
# What transformers' names of special tokens are there, one of them misspelt.
IDS = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "mask": "mask", "eot": "eot",
       "eom": "eom"}  # fmt: skip
# What llama.cpp takes where a file does not say it.
DEFAULT_IDS = {
    "llama": {"bos": 1, "eos": 2, "unk": 0}, "gpt2": {"bos": 11, "eos": 11}, "t5": {"eos": 1, "unk": 2, "pad": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
}  # fmt: skip
DEFAULT_ADD = {"llama": ("bos",), "gpt2": (), "t5": ("eos",), "bert": ("bos", "sep")}
# Keys without which a file loads, and which say nothing of ids: names of tokens for code that is filled in, and such.
_MODEL, _PRE, _TOKENS, _TYPES, _SCORES, _MERGES = (
    GGML + n for n in ("model", "pre", "tokens", "token_type", "scores", "merges")
)
_PREFIX, _SQUEEZE, _CHARSMAP = (
    GGML + n for n in ("add_space_prefix", "remove_extra_whitespaces", "precompiled_charsmap")
)
_LOWER, _STRIP = GGML + "normalizer.lowercase", GGML + "normalizer.strip_accents"


def write(vocabulary: Vocabulary) -> tuple[KeyValue, ...]:
    """The pairs, in the order in which llama.cpp's converter writes them."""
    v, found = vocabulary, [KeyValue(_MODEL, "string", vocabulary.model)]
    if v.pre is not None:
        found.append(KeyValue(_PRE, "string", v.pre))
    found.append(KeyValue(_TOKENS, "arr[string]", v.tokens))
    if v.scores:
        found.append(KeyValue(_SCORES, "arr[f32]", v.scores))
    found.append(KeyValue(_TYPES, "arr[i32]", v.types))
    if v.merges:
        found.append(KeyValue(_MERGES, "arr[string]", v.merges))
    flags = ((_PREFIX, v.space_prefix), (_SQUEEZE, v.squeeze))
    found += [KeyValue(key, "bool", flag) for key, flag in flags if flag is not None]
    if v.charsmap:
        found.append(KeyValue(_CHARSMAP, "arr[u8]", tuple(v.charsmap)))
    found += [KeyValue(f"{GGML}{key}_token_id", "u32", v.special[n]) for n, key in IDS.items() if n in v.special]
    found += [KeyValue(f"{GGML}add_{n}_token", "bool", v.add[n]) for n in ("bos", "eos", "sep") if n in v.add]
    named = {_safe(name): text for name, text in v.templates.items() if name != "default"}
    found += [KeyValue(f"{TEMPLATE}.{name}", "string", named[name]) for name in sorted(named)]
    if named:
        found.append(KeyValue(TEMPLATES, "arr[string]", tuple(sorted(named))))
    if "default" in v.templates:
        found.append(KeyValue(TEMPLATE, "string", v.templates["default"]))
    flags = ((_LOWER, v.lowercase), (_STRIP, v.strip_accents))
    return (*found, *(KeyValue(key, "bool", flag) for key, flag in flags if flag is not None))


def _safe(name: str) -> str:
    """A template's name as it stands in a key: letters and digits of ASCII, underscores for the rest."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def read(pairs: Iterable[KeyValue], file: str = "") -> Vocabulary | None:
    """The vocabulary of a file; None where it has none. What the file leaves open is what llama.cpp takes.

    Raises Corrupt for pairs of another type than they have; RouteRefused for a tokenizer of another kind.
    """
    held = {pair.key: pair for pair in pairs if pair.key.startswith("tokenizer.")}
    if _MODEL not in held or held[_MODEL].value in ("none", "no_vocab"):
        return None
    name = held[_MODEL].value
    model: Model | None = next((m for m in MODELS if m == name), None)
    if model is None:
        raise RouteRefused(
            "no tokenizer.json is known for tokenizers of this kind", file=file or None, member=_MODEL,
            expected=", ".join(MODELS), found=name,
        )  # fmt: skip
    reader = _Reader(held, file)
    tokens = reader.texts(_TOKENS)
    if not tokens:
        raise Corrupt("the file has no tokens", file=file or None, member=_TOKENS)
    types = reader.numbers(_TYPES, len(tokens)) or (NORMAL,) * len(tokens)
    pre = held[_PRE].value if _PRE in held else None
    add = {n: n in DEFAULT_ADD[model] for n in ("bos", "eos", "sep")}
    add["bos"] = add["bos"] or (model == "gpt2" and pre in ADD_BOS)
    add |= {n: on for n in add if (on := reader.flag(f"{GGML}add_{n}_token")) is not None}
    special = {n: i for n, i in DEFAULT_IDS[model].items() if i < len(tokens)}
    for n, key in IDS.items():
        token = reader.id(f"{GGML}{key}_token_id")
        if token is not None and token < len(tokens):
            special[n] = token
    charsmap = bytes(int(n) & 255 for n in reader.numbers(_CHARSMAP, 0))
    if charsmap and not charsmap_fits(charsmap):
        raise Corrupt("the compiled normalisation is broken", file=file or None, member=_CHARSMAP)
    templates: dict[str, str] = {}
    if (usual := reader.text(TEMPLATE)) is not None:
        templates["default"] = usual
    for key in held:
        if key.startswith(TEMPLATE + ".") and (text := reader.text(key)) is not None:
            templates[key.removeprefix(TEMPLATE + ".")] = text
    prefix = reader.flag(_PREFIX)
    return Vocabulary(
        model, tuple(tokens), tuple(int(t) for t in types), tuple(reader.numbers(_SCORES, len(tokens))),
        tuple(reader.texts(_MERGES)), pre if isinstance(pre, str) else None, special, add,
        model == "llama" if prefix is None else prefix, bool(reader.flag(_SQUEEZE)),
        reader.flag(_LOWER), reader.flag(_STRIP), charsmap, templates,
    )  # fmt: skip


def may_be_absent(key: str, value: object, pairs: Iterable[KeyValue]) -> bool:
    """Whether llama.cpp takes ``value`` where a file of these pairs does not have ``key``."""
    held = {pair.key: pair.value for pair in pairs if not pair.is_array}
    model, pre = held.get(_MODEL), held.get(_PRE)
    if key == _PREFIX:
        return value is (model == "llama")
    name = key.removeprefix(GGML + "add_").removesuffix("_token")
    if key != f"{GGML}add_{name}_token":
        return key == _SQUEEZE and value is False
    return value is (name in DEFAULT_ADD.get(str(model), ()) or (name == "bos" and model == "gpt2" and pre in ADD_BOS))


class _Reader:
    """The pairs, each asked for as what it must be."""

    def __init__(self, held: dict[str, KeyValue], file: str) -> None:
        self.held, self.file = held, file

    def wrong(self, key: str, expected: str) -> Corrupt:
        pair = self.held[key]
        return Corrupt(
            "a pair is of the wrong type", file=self.file or None, member=key, expected=expected, found=pair.kind
        )

    def texts(self, key: str) -> list[str]:
        if key not in self.held:
            return []
        if self.held[key].kind != "arr[string]":
            raise self.wrong(key, "arr[string]")
        return [str(text) for text in self.held[key].elements()]

    def numbers(self, key: str, count: int) -> list[float]:
        if key not in self.held:
            return []
        if not self.held[key].is_array:
            raise self.wrong(key, "an array of numbers")
        found = [n for n in self.held[key].elements() if isinstance(n, int | float) and math.isfinite(n)]
        if len(found) != self.held[key].count or len(found) < count:
            raise Corrupt(
                "fewer numbers than tokens", file=self.file or None, member=key, expected=count, found=len(found)
            )
        return found

    def flag(self, key: str) -> bool | None:
        value = self.held[key].value if key in self.held else None
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "bool")
        return value

    def id(self, key: str) -> int | None:
        value = self.held[key].value if key in self.held else None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.wrong(key, "u32")
        return value if isinstance(value, int) and value >= 0 else None

    def text(self, key: str) -> str | None:
        if key not in self.held:
            return None
        value = self.held[key].value
        if not isinstance(value, str):
            raise self.wrong(key, "string")
        return value
