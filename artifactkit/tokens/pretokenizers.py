"""How llama.cpp cuts a text before it merges, by ``tokenizer.ggml.pre`` (llama-vocab.cpp, ``llm_tokenizer_bpe``).

Expressions are applied one after the other, each to the pieces that those before have left; what none matches is a
piece too. tokenizers says the same as a sequence of ``Split`` with the behaviour ``Isolated``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UsageError
from .files import Object

_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}|{_ENDS}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_SIGNS}|{_ENDS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_UPPER, _CASED_LOWER = r"((?=[\p{L}])([^a-z]))", r"((?=[\p{L}])([^A-Z]))"
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + _ENDS
)
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_ENDS}"
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"


def _cased(upper: str, lower: str, behind: str, numbers: str) -> str:
    """Words that are told apart where upper and lower case meet."""
    start, signs = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
    return rf"{start}{upper}*{lower}+{behind}|{start}{upper}+{lower}*{behind}|{numbers}|{signs}|{_ENDS}"


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to cut; ``whole``: a piece that is a token is one, whatever the merges say (``ignore_merges``)."""

    expressions: tuple[str, ...]
    whole: bool = False


# The first name of each row stands for all.
_TABLE: tuple[tuple[str, Cut], ...] = (
    ("gpt-2 phi-2 gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en jina-v2-code roberta-bpe exaone4"
     " mpt olmo jais trillion granite-docling", Cut((_GPT2,))),
    ("llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", Cut((_LLAMA3,), whole=True)),
    ("dbrx smaug-bpe chatglm-bpe glm4", Cut((_LLAMA3,))),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", Cut((_QWEN2,))),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", Cut((r"\p{N}", _GPT2))),
    ("qwen35", Cut((_QWEN35,))),
    ("tekken", Cut((_cased(_CASED_UPPER, _CASED_LOWER, "", r"\p{N}"),), whole=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2",
     Cut((_cased(_CASED_UPPER, _CASED_LOWER, _CONTRACTIONS + "?", r"\p{N}{1,3}"),))),
    ("tiny_aya cohere2moe",
     Cut((r"\d{1,3}(?=(?:\d{3})*\b)", _cased(_UPPER, _LOWER, _CONTRACTIONS + "?", r"\p{N}{1,3}")))),
    ("deepseek-v3 hunyuan-dense joyai-llm",
     Cut((r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3))),
    ("deepseek-coder",
     Cut((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"))),
    ("falcon", Cut((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"))),
    ("bloom poro-chat gpt3-finnish", Cut((_BLOOM,))),
    ("viking", Cut((_BLOOM, r"\p{N}"))),
    ("bailingmoe bailingmoe2 llada-moe",
     Cut((rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORDS}|\p{{N}}|{_SIGNS}|\s*[\r\n]|\s+(?!\S)|\s+",))),
    ("seed-coder", Cut((rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_ENDS}",))),
    ("minicpm5", Cut((r"\p{N}{1,3}", rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}+|{_SIGNS}|{_ENDS}"), whole=True)),
)  # fmt: skip

CUTS: Mapping[str, Cut] = {name: cut for names, cut in _TABLE for name in names.split()}
GROUPS: Mapping[str, tuple[str, ...]] = {names.split()[0]: tuple(names.split()) for names, _ in _TABLE}
# Names that llama.cpp knows and that it cuts by code of its own, or not as tokenizers can.
OTHERS = ("afmoe", "chameleon", "deepseek-llm", "exaone-moe", "granite-embed-multi-311m", "granite-embed-multi-97m",
          "jais-2", "kimi-k2", "laguna", "sarvam-moe", "superbpe", "youtu")  # fmt: skip
KNOWN = frozenset({*CUTS, *OTHERS})
# Those that put a token before every text unless the file says otherwise, and those that add a separator.
ADD_BOS = frozenset(
    {"llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken", "chameleon"}
)


def check(name: str) -> str:
    """``name`` as it is given with --pre-tokenizer, if llama.cpp knows it. UsageError for another one."""
    if name in KNOWN:
        return name
    near = difflib.get_close_matches(name, sorted(KNOWN), n=3, cutoff=0.5)
    raise UsageError(
        "llama.cpp knows no pre-tokenizer of this name", expected=", ".join(near or sorted(GROUPS)), found=name,
        hint="--pre-tokenizer takes a name as tokenizer.ggml.pre has it",
    )  # fmt: skip


def parts(cut: Cut) -> Object:
    """The pre-tokenizer of a tokenizer.json that cuts so."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if cut.expressions == (_GPT2,):
        return {**level, "use_regex": True}
    splits = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False} for one in cut.expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, {**level, "use_regex": False}]}
