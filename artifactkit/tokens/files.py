"""The tokenizer's files beside a checkpoint, parsed: every one bounded, none of them trusted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .. import trees
from ..artifact import Companion
from ..containers import strict_json
from ..errors import Corrupt, LimitExceeded, RouteRefused
from . import sentencepiece
from .sentencepiece import Pieces

MAX_JSON = 256 << 20  # bytes of tokenizer.json; the largest there is has some 35 MB
MAX_SMALL = 16 << 20  # of the others
SPACE_NAMES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
TEMPLATE = "chat_template.jinja"
# transformers writes model_max_length as 1000000000000000019884624838656 where there is no limit.
_HUGE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[0-9]{20,64}', re.DOTALL)

Object = Mapping[str, object]


@dataclass(slots=True)
class Files:
    """What was there, by name; ``main`` is the path of the file that the vocabulary comes from, for messages."""

    main: str = ""
    json: Object | None = None  # tokenizer.json
    pieces: Pieces | None = None  # sentencepiece's model
    config: Object = field(default_factory=dict)  # tokenizer_config.json
    specials: Object = field(default_factory=dict)  # special_tokens_map.json
    added: Mapping[str, int] = field(default_factory=dict)  # added_tokens.json
    templates: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def cls(self) -> str:
        """The tokenizer's class as transformers names it, without ``Fast``; empty where nothing says it."""
        name = self.config.get("tokenizer_class")
        return name.removesuffix("Fast") if isinstance(name, str) else ""


def read(companions: Iterable[Companion]) -> Files | None:
    """The tokenizer among the files beside the weights; None where there is none.

    tokenizer.json counts, as in transformers; else a sentencepiece model, vocab.json with merges.txt, or vocab.txt.
    Raises Corrupt, LimitExceeded, Unreadable; RouteRefused for files of a kind that is not read.
    """
    paths = {c.name: c.path for c in companions}
    files = Files()
    files.config = _object(paths, "tokenizer_config.json")
    files.specials = _object(paths, "special_tokens_map.json")
    files.added = _ids(_object(paths, "added_tokens.json"), paths.get("added_tokens.json"))
    if "tokenizer.json" in paths:
        files.main = paths["tokenizer.json"]
        files.json = _object(paths, "tokenizer.json", MAX_JSON)
    space = next((name for name in SPACE_NAMES if name in paths), None)
    if space is not None:
        file = trees.open_file(paths[space])
        if sentencepiece.looks_like(file.read(0, min(file.size, 16))):
            files.pieces = sentencepiece.read(file)
            files.main = files.main or file.path
        elif files.json is None:
            raise RouteRefused(
                "this is no sentencepiece model", file=file.path, expected="a protobuf of pieces",
                hint="a tokenizer.json says the same, and is read",
            )  # fmt: skip
    if files.json is None and files.pieces is None and not _plain(files, paths):
        return None
    files.templates = _templates(files, paths)
    return files


def _plain(files: Files, paths: Mapping[str, str]) -> bool:
    """vocab.json and merges.txt, or vocab.txt, as the tokenizer.json that transformers would make of them."""
    from . import plain

    if "vocab.json" in paths and "merges.txt" in paths:
        files.main = paths["vocab.json"]
        vocab = _ids(_object(paths, "vocab.json", MAX_JSON), files.main)
        files.json = plain.bpe(files, vocab, _lines(paths["merges.txt"]))
        return True
    if "vocab.txt" in paths:
        files.main = paths["vocab.txt"]
        files.json = plain.wordpiece(files, _lines(files.main))
        return True
    return False


def _object(paths: Mapping[str, str], name: str, limit: int = MAX_SMALL) -> Object:
    """A parsed JSON object; an empty one where the file is absent."""
    if name not in paths:
        return {}
    file = trees.open_file(paths[name])
    if file.size > limit:
        raise LimitExceeded(
            f"{name} is too large to be one", file=file.path, expected=f"at most {limit} bytes", found=file.size
        )
    data = _HUGE.sub(lambda m: m[0] if m[0][:1] == b'"' else b"0", file.read(0, file.size))
    parsed = strict_json.loads(data, what=name, file=file.path)
    if not isinstance(parsed, dict):
        raise Corrupt(
            f"{name} is no object", file=file.path, expected="a JSON object", found=strict_json.type_name(parsed)
        )
    twice = strict_json.duplicate(parsed)
    if twice is not None:
        raise Corrupt(f"a key comes twice in {name}", file=file.path, member=twice)
    return parsed


def _ids(entries: Object, file: str | None) -> dict[str, int]:
    for text, value in entries.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise Corrupt("a token's id is none", file=file, member=repr(text), found=repr(value)[:40])
    return dict(entries)  # type: ignore[arg-type]


def _lines(path: str) -> list[str]:
    file = trees.open_file(path)
    if file.size > MAX_JSON:
        raise LimitExceeded("a vocabulary is never this large", file=path, found=f"{file.size} bytes")
    try:
        text = file.read(0, file.size).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt("the file is not UTF-8", file=path, offset=error.start) from None
    # Not splitlines: tokens may hold what Python takes for an end of a line.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _templates(files: Files, paths: Mapping[str, str]) -> dict[str, str]:
    """Chat templates by name. The .jinja file counts before tokenizer_config.json, as in transformers 5."""
    found: dict[str, str] = {}
    held = files.config.get("chat_template")
    if held is None and "chat_template.json" in paths:
        held = _object(paths, "chat_template.json").get("chat_template")
    if isinstance(held, str):
        found["default"] = held
    elif isinstance(held, list):
        for item in held:
            name, text = (item.get("name"), item.get("template")) if isinstance(item, dict) else (None, None)
            if not isinstance(name, str) or not isinstance(text, str) or not name:
                raise Corrupt(
                    "a chat template without name or text", file=paths.get("tokenizer_config.json"),
                    member="chat_template", found=repr(item)[:60],
                )  # fmt: skip
            found[name] = text
    if TEMPLATE in paths:
        file = trees.open_file(paths[TEMPLATE])
        if file.size > MAX_SMALL:
            raise LimitExceeded("a chat template is never this large", file=file.path, found=f"{file.size} bytes")
        try:
            text = file.read(0, file.size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Corrupt("the chat template is not UTF-8", file=file.path, offset=error.start) from None
        if found.get("default", text) != text:
            files.notes.append(f"{TEMPLATE} was taken; tokenizer_config.json has another chat template")
        found["default"] = text
    for name, path in sorted(paths.items()):
        folder, _, stem = name.rpartition("/")
        if os.path.basename(folder) == "additional_chat_templates" and stem.endswith(".jinja"):
            file = trees.open_file(path)
            found[stem.removesuffix(".jinja")] = file.read(0, min(file.size, MAX_SMALL)).decode("utf-8", "replace")
    return found
