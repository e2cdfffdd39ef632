"""llama.cpp's ids judged by those of `tokenizers`: text by text, forwards and back, and chat templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol
from unicodedata import category, normalize

from ..report import Check, counted
from . import texts
from .build import lacks_bytes, space_scheme
from .files import Object
from .library import Library
from .parsed import Parsed, parse
from .vocabulary import CONTROL, SPACE, USER_DEFINED, Vocabulary

SHOWN = 3
SPECIALS = 24  # special tokens that get texts of their own


class Tokenizer(Protocol):
    """What is asked of llama.cpp (runners/llamacpp, ``Vocabulary``)."""

    def tokenize(self, text: str | bytes, add_special: bool = False, parse_special: bool = False) -> list[int]: ...

    def detokenize(self, ids: Sequence[int], remove_special: bool = False, unparse_special: bool = False) -> bytes: ...

    def chat_template(self, name: str | None = None) -> str | None: ...


def ids(written: Vocabulary, tokenizer: Object, file: str, native: Tokenizer) -> Iterator[Check]:
    """The check of ids, and that of the way back. ``tokenizer`` is a tokenizer.json, ``written`` what the file says.

    Where llama.cpp is known to have no word for what tokenizer.json does, texts that show it may differ, and are told.
    """
    named = [t for i, t in enumerate(written.tokens) if written.types[i] in (CONTROL, USER_DEFINED)][:SPECIALS]
    special = texts.with_specials(named)
    lines = [*texts.PLAIN, *special]
    reasons = limits(parse(tokenizer, file), written)
    wrong: list[str] = []
    back: list[str] = []
    told: dict[str, int] = {}
    with Library(tokenizer, file) as library:
        wanted = library.encode(lines)
        framed = library.encode(lines[:4], special=True)
        decoded = library.decode(wanted)
        for text, expected, plain in zip(lines, wanted, decoded, strict=True):
            found = native.tokenize(text, parse_special=True)
            if found != expected:
                reason = next((why for why, shows in reasons if shows(text, text in special, expected)), None)
                if reason is None:
                    wrong.append(_differ(text, expected, found))
                else:
                    told[reason] = told.get(reason, 0) + 1
            elif not _same_text(again := native.detokenize(found, unparse_special=True), plain, text, written):
                back.append(f"{text[:60]!r}: {again[:60]!r}, expected {plain[:60]!r}")
        for text, expected in zip(lines[:4], framed, strict=True):
            found = native.tokenize(text, add_special=True, parse_special=True)
            if found != expected and not any(shows(text, False, expected) for _, shows in reasons):
                wrong.append(_differ(text, expected, found) + " with begin and end")
        version = library.version
    but = "".join(f"; {counted(n, 'text')} apart: {why}" for why, n in told.items())
    yield _check(
        "token ids", wrong, len(lines), f"{counted(len(lines), 'text')}, llama.cpp and tokenizers {version}{but}"
    )
    yield _check("tokens decoded", back, len(lines), f"{counted(len(lines), 'text')} back from their ids")


# Why texts may differ, and whether one shows it: given the text, whether special tokens are in it, and its ids.
Limit = tuple[str, Callable[[str, bool, list[int]], bool]]


def limits(parsed: Parsed, written: Vocabulary) -> list[Limit]:
    """What tokenizer.json says and a GGUF file cannot, by the texts that show it. Each is a loss of the conversion."""
    found: list[Limit] = []
    forms = [kind for kind in parsed.types("normalizer") if kind in ("NFC", "NFD", "NFKC", "NFKD")]
    if written.model != "bert":
        found += [(f"llama.cpp does not bring text into {form}", _not_in(form)) for form in forms]
    lower = written.lowercase if written.lowercase is not None else True
    if written.model == "bert" and (written.strip_accents is None and lower or written.strip_accents):
        found.append(("llama.cpp takes Hangul and marks apart otherwise", lambda text, *_: _marked(text)))
    unknown = parsed.model.get("unk_token")
    if written.model == "gpt2" and isinstance(unknown, str) and lacks_bytes(parsed.texts):
        token = parsed.texts.index(unknown) if unknown in parsed.texts else -1
        found.append(("llama.cpp leaves out what has no token", lambda *given: token in given[2]))
    if written.model == "llama":
        for part in parsed.parts("pre_tokenizer"):
            scheme = space_scheme(part) if part.get("type") == "Metaspace" else "never"
            if scheme != "never":
                found.append(("llama.cpp adds a space to one that is there", lambda text, *_: text[:1] in (" ", SPACE)))
                # Between special tokens, too.
                found.append(("llama.cpp adds a space behind special tokens", lambda _, special, __: special))
    return found


def _not_in(form: str) -> Callable[[str, bool, list[int]], bool]:
    return lambda text, *_: normalize(form, text) != text  # type: ignore[arg-type]


def _marked(text: str) -> bool:
    return any("\uac00" <= c <= "\ud7a3" or category(c) in ("Mc", "Me") for c in text)


def _differ(text: str, expected: list[int], found: list[int]) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    return f"{text[:60]!r} from token {at} on: expected {expected[at : at + 4]}, llama.cpp has {found[at : at + 4]}"


def _check(name: str, wrong: list[str], count: int, told: str) -> Check:
    if not wrong:
        return Check("accounting", name, "passed", told)
    more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return Check(
        "accounting", name, "failed", f"{len(wrong)} of {counted(count, 'text')}: {'; '.join(wrong[:SHOWN])}{more}"
    )


def _same_text(native: bytes, library: str, text: str, written: Vocabulary) -> bool:
    """Whether both say the same: the text, or what is left of it. Spaces at the ends are each one's own affair."""
    found = native.decode("utf-8", "replace")
    if written.model == "bert":  # what lower case and cutting took away comes back in neither, and spaces differ
        return "".join(found.split()) == "".join(library.split())
    if written.model == "gpt2":  # for many pre-tokenizers llama.cpp takes spaces before punctuation away
        return _tidy(found) in (_tidy(library), _tidy(text))
    return found.strip(" ") in (library.strip(" "), text.strip(" "))


def _tidy(text: str) -> str:
    return re.sub(r" +(?=[?!.,'n])", "", text)


def templates(expected: Mapping[str, str], native: Tokenizer) -> Iterator[Check]:
    """Chat templates as llama.cpp finds them in the file against those of the checkpoint; and what they render to."""
    if not expected:
        if native.chat_template() is not None:
            yield Check("accounting", "chat template", "failed", "the file has one, the checkpoint has none")
        return
    wrong = []
    for name, text in expected.items():
        found = native.chat_template(None if name == "default" else name)
        if found != text:
            wrong.append(f"{name}: {'absent' if found is None else _first(text, found)}")
    if wrong:
        yield Check("accounting", "chat template", "failed", "; ".join(wrong))
        return
    yield Check("accounting", "chat template", "passed", f"{counted(len(expected), 'template')}, letter by letter")


def _first(a: str, b: str) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"from character {at} on: expected {a[at : at + 20]!r}, found {b[at : at + 20]!r}"
