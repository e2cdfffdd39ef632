"""A vocabulary in llama.cpp's terms, whatever it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..errors import RouteRefused
from ..report import Loss

# llama_token_type (llama.h), which are the piece types of sentencepiece (sentencepiece_model.proto) too.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# tokenizer.ggml.model: byte-level BPE, sentencepiece's BPE with its fall-back to bytes, WordPiece, Unigram.
Model = Literal["gpt2", "llama", "bert", "t5"]
MODELS: tuple[Model, ...] = ("gpt2", "llama", "bert", "t5")

SPACE = "\u2581"  # what sentencepiece writes for a space
ADDED_SCORE = -1000.0  # llama.cpp's converter gives it to every token that was added to a model's own
PADDED_SCORE = -10000.0
SPECIALS = ("bos", "eos", "unk", "sep", "pad", "mask")  # those that both worlds have a name for


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens in order of id, with a type each; scores and merges where the model has them.

    ``special`` are ids by transformers' names (``bos``, ``unk``), ``add`` whether begin, end and separator are put
    around a text. ``space_prefix``, ``squeeze`` (spaces that follow each other become one), ``lowercase`` and
    ``strip_accents`` are None where the model leaves them open. ``charsmap`` is sentencepiece's compiled normalisation.
    ``templates`` are chat templates by name, the usual one is ``default``. ``losses`` are told.
    """

    model: Model
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...] = ()
    merges: tuple[str, ...] = ()
    pre: str | None = None
    special: Mapping[str, int] = field(default_factory=dict)
    add: Mapping[str, bool] = field(default_factory=dict)
    space_prefix: bool | None = None
    squeeze: bool | None = None
    lowercase: bool | None = None
    strip_accents: bool | None = None
    charsmap: bytes = b""
    templates: Mapping[str, str] = field(default_factory=dict)
    losses: tuple[Loss, ...] = ()

    @property
    def padding(self) -> int:
        """How many tokens at the end stand for no text at all: the embedding has rows that the tokenizer lacks."""
        count = 0
        for i in range(len(self.tokens) - 1, -1, -1):
            if self.types[i] != UNUSED or self.tokens[i] != padding(i):
                break
            count += 1
        return count

    def check(self, file: str | None = None) -> Vocabulary:
        """Itself. RouteRefused for what llama.cpp does not load (llama-vocab.cpp, ``llama_vocab::impl::load``)."""
        seen: dict[str, int] = {}
        for i, token in enumerate(self.tokens):
            first = seen.setdefault(token, i)
            if first != i:
                raise RouteRefused(
                    "llama.cpp loads no vocabulary in which a token comes twice", file=file, member=repr(token),
                    expected="each text once", found=f"ids {first} and {i}",
                )  # fmt: skip
        if self.model == "gpt2" and not self.merges:
            raise RouteRefused("llama.cpp loads no BPE without merges", file=file, expected="merges", found="none")
        short = [n for n, v in (("types", self.types), ("scores", self.scores)) if v and len(v) < len(self.tokens)]
        if short:
            raise RouteRefused(f"llama.cpp needs {short[0]} for all tokens", file=file, expected=len(self.tokens))
        if self.charsmap and not charsmap_fits(self.charsmap):
            raise RouteRefused(
                "the compiled normalisation is broken: llama.cpp does not load it", file=file,
                member="precompiled_charsmap", found=f"{len(self.charsmap)} bytes",
            )  # fmt: skip
        for name, special in self.special.items():
            if not 0 <= special < len(self.tokens):
                raise RouteRefused(
                    f"the {name} token is none of the vocabulary", file=file,
                    expected=f"0 to {len(self.tokens) - 1}", found=special,
                )  # fmt: skip
        for name, on in self.add.items():
            if on and name not in self.special and self.model != "bert":
                raise RouteRefused(
                    f"a {name} token is to be added to texts, and there is none", file=file, member=f"add_{name}_token"
                )
        return self


def padding(token: int) -> str:
    """The text of a token that no text has, as llama.cpp's converter writes it."""
    return f"[PAD{token}]"


def charsmap_fits(data: bytes) -> bool:
    """Whether the size in the first four bytes leaves room for replacements; llama.cpp reads past the end otherwise."""
    return len(data) >= 4 and int.from_bytes(data[:4], "little") + 4 < len(data)
