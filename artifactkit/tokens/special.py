"""Special tokens by name, and what is put around a text, as the files say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .files import Files, Object
from .parsed import Parsed
from .plain import text_of
from .vocabulary import SPECIALS


@dataclass(frozen=True, slots=True)
class Frame:
    """Texts of the tokens before a text, behind it, and between the two of a pair.

    ``parting`` are those between that do not end the first of the two. ``roberta``: by its own rule.
    """

    prefix: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    parting: tuple[str, ...] = ()
    roberta: bool = False
    said: bool = False  # whether the file has a rule at all


def frame(parsed: Parsed | None) -> Frame:
    """What the post-processor of tokenizer.json puts around a text. The last rule counts, as in tokenizers."""
    found = Frame()
    for part in parsed.parts("post_processor") if parsed is not None else []:
        kind = part.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            ends = [pair[0] for name in ("cls", "sep") if isinstance(pair := part.get(name), list) and pair]
            if len(ends) == 2 and all(isinstance(end, str) for end in ends):
                roberta = kind == "RobertaProcessing"
                found = Frame((ends[0],), (ends[1],), (ends[1],), roberta=roberta, said=True)
        elif kind == "TemplateProcessing":
            before, after = _around(part.get("single"))
            pair_before, between, pair_after = _pair(part.get("pair"))
            alike = (pair_before, pair_after) == (before, after) and between[: len(after)] == after
            found = Frame(before, after, between, between[len(after) :] if alike else (), said=True)
    return found


def _named(item: object) -> str | None:
    inner = item.get("SpecialToken") if isinstance(item, dict) else None
    name = inner.get("id") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


def _around(template: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before: list[str] = []
    after: list[str] = []
    side = before
    for item in template if isinstance(template, list) else []:
        name = _named(item)
        if name is None:
            side = after
        else:
            side.append(name)
    return tuple(before), tuple(after)


def _pair(template: object) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    sides: list[list[str]] = [[], [], []]
    at = 0
    for item in template if isinstance(template, list) else []:
        name = _named(item)
        if name is None:
            at = min(at + 1, 2)
        else:
            sides[at].append(name)
    return tuple(sides[0]), tuple(sides[1]), tuple(sides[2])


@dataclass(slots=True)
class Specials:
    """Ids by name, what is added around texts, and what of it llama.cpp cannot say."""

    ids: dict[str, int]
    add: dict[str, bool]
    lost: list[str]


def specials(files: Files, parsed: Parsed | None, ids: Mapping[str, int], config: Object, bert: bool) -> Specials:
    """Special tokens as the files name them, else as config.json does; begin and end as the post-processor puts them.

    ``ids`` are all tokens of the vocabulary by their text in the files. Where begin or end have another name (``cls``,
    ``sep``), or none, they are the ones that are put there, as llama.cpp's converter has it.
    """
    texts = {name: text for name in (*SPECIALS, "cls") if (text := _text(files, name)) is not None}
    rule = frame(parsed)
    lost: list[str] = []
    texts.setdefault("bos", texts.get("cls", ""))
    texts.setdefault("eos", texts.get("sep", ""))
    add: dict[str, bool] = {}
    if rule.said:
        if len(rule.prefix) == 1 and not texts["bos"]:
            texts["bos"] = rule.prefix[0]
        if len(rule.suffix) == 1 and rule.suffix[0] != texts["eos"] and not bert:
            if texts["eos"]:  # what ends a turn is another token than what ends a text
                texts["eot"] = texts["eos"]
            texts["eos"] = rule.suffix[0]
        add["bos"] = len(rule.prefix) == 1 and rule.prefix[0] in (texts["bos"], texts.get("cls"))
        add["eos"] = len(rule.suffix) == 1 and rule.suffix[0] == texts["eos"]
        if rule.prefix and not add["bos"]:
            lost.append(f"texts begin with {' '.join(rule.prefix)}")
        if rule.suffix and not add["eos"] and not bert:
            lost.append(f"texts end with {' '.join(rule.suffix)}")
        if rule.roberta or rule.between:
            add["sep"] = rule.roberta or any(t in (texts.get("sep"), texts["eos"]) for t in rule.parting)
            if add["sep"] and "sep" not in texts:
                texts["sep"] = texts["eos"]
    if parsed is not None:  # without a rule nothing is added
        add = {"bos": False, "eos": False, **add}
    elif files.cls == "XLMRobertaTokenizer":
        add = {"bos": True, "eos": True}
    for name in ("bos", "eos", "sep"):
        given = files.config.get(f"add_{name}_token")
        if isinstance(given, bool):
            add[name] = given
    found: dict[str, int] = {}
    for name in (*SPECIALS, "eot"):
        token = ids.get(texts.get(name, ""))
        if token is None:
            held = config.get(f"{name}_token_id")
            token = held if isinstance(held, int) and not isinstance(held, bool) and 0 <= held < len(ids) else None
        if token is not None:
            found[name] = token
    for name in ("bos", "eos", "sep"):
        if add.get(name) and name not in found:
            del add[name]
            lost.append(f"a {name} token is to be added, and no token is named so")
    return Specials(found, add, lost)


def _text(files: Files, name: str) -> str | None:
    text = text_of(files.config.get(f"{name}_token"))
    return text_of(files.specials.get(f"{name}_token")) if text is None else text
