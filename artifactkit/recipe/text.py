"""Values as TOML text, always the same text for the same value."""

from __future__ import annotations

import json
import re

BARE = re.compile(r"[A-Za-z0-9_-]+")


def string(text: str) -> str:
    """A basic string. What JSON escapes, TOML reads alike; DEL it wants escaped besides."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """A key, quoted where it has to be."""
    return name if BARE.fullmatch(name) else string(name)


def value(item: object) -> str:
    """Any value that a recipe can hold, on one line."""
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, int | float):
        return repr(item)
    if isinstance(item, str):
        return string(item)
    if isinstance(item, list | tuple):
        return "[" + ", ".join(map(value, item)) + "]"
    if isinstance(item, dict):
        inner = ", ".join(f"{key(str(name))} = {value(held)}" for name, held in item.items())
        return "{ " + inner + " }" if inner else "{}"
    raise TypeError(f"no TOML value: {type(item).__name__}")
