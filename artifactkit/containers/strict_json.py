"""JSON from files that others made: bounded in depth and size, nothing guessed, every key kept.

``json.loads`` takes what RFC 8259 leaves undefined or forbids (duplicate keys, ``NaN``, lone surrogates, integers of a
million digits, nesting until the stack ends). Where two readers can disagree about a file, it is refused.
"""

from __future__ import annotations

import json
import re

from ..errors import Corrupt, LimitExceeded

MAX_DEPTH = 64  # a safetensors header needs 3; metadata that others nested, a few more
MAX_DIGITS = 20  # of 2**64; parsing an integer takes quadratic time

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS = bytes(b for b in range(256) if b not in b"[]{}")
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_OPEN = frozenset(b"[{")


class Duplicated(dict[str, object]):
    """A JSON object in which a key comes twice. ``key`` is the first such key; the last value of each is kept."""

    key = ""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) == len(pairs):
        return out
    bad, seen = Duplicated(out), set[str]()
    for key, _ in pairs:
        if key in seen:
            bad.key = key
            break
        seen.add(key)
    return bad


def duplicate(value: object) -> str | None:
    """The first key that comes a second time in a parsed object, or None."""
    return value.key if isinstance(value, Duplicated) else None


class _Constant(ValueError):
    """NaN, Infinity and -Infinity, which Python's parser would accept."""


def _no_constant(text: str) -> object:
    raise _Constant(text)


def _integer(text: str) -> object:
    # The sign of "-0" must not vanish: as a size it is a lie that other readers refuse.
    return -0.0 if text == "-0" else int(text)


def check_bounds(data: bytes, *, file: str | None = None, offset: int = 0) -> None:
    """Raise LimitExceeded when ``data`` nests, or counts, beyond what any honest document of its size does."""
    bare = _STRING.sub(b'"', data)
    brackets = bare.translate(None, _NOT_BRACKETS)
    # An object or list costs fifty times its two bytes in memory; one in eight bytes is thrice what a header needs.
    opened = brackets.count(b"[") + brackets.count(b"{")
    if opened > len(data) // 8 + 1024:
        raise LimitExceeded(
            "JSON of little but brackets", file=file, offset=offset,
            expected=f"at most {len(data) // 8 + 1024} objects and lists", found=opened,
        )  # fmt: skip
    # The same for their members: an integer of four bytes takes ten times as many.
    members = bare.count(b",")
    if members > len(data) // 5 + 4096:
        raise LimitExceeded(
            "JSON of little but commas", file=file, offset=offset,
            expected=f"at most {len(data) // 5 + 4096} members", found=members,
        )  # fmt: skip
    depth = deepest = 0
    for byte in brackets:
        if byte in _OPEN:
            depth += 1
            if depth > deepest:
                deepest = depth
        else:
            depth -= 1
    if deepest > MAX_DEPTH:
        raise LimitExceeded(
            "JSON nested too deeply", file=file, offset=offset, expected=f"at most {MAX_DEPTH} levels", found=deepest
        )
    if _LONG_NUMBER.search(bare):
        raise LimitExceeded(
            "JSON with an oversized number", file=file, offset=offset, expected=f"at most {MAX_DIGITS} digits"
        )


def loads(data: bytes, *, what: str, file: str | None = None, offset: int = 0) -> object:
    """Parse ``data``; an object with duplicate keys is a ``Duplicated``. ``what`` names it in messages.

    Raises LimitExceeded for a bomb and Corrupt, with the offset in the file, for bytes that are not UTF-8, not JSON, or
    hold a string that no UTF-8 file can hold (a lone surrogate).
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(
            f"{what} is not UTF-8", file=file, offset=offset + error.start, found=repr(data[error.start : error.end])
        ) from None
    check_bounds(data, file=file, offset=offset)
    negative = b"-" in data
    try:
        out: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_int=_integer if negative else None,
        )
    except json.JSONDecodeError as error:
        at = offset + len(text[: error.pos].encode("utf-8"))
        raise Corrupt(f"{what} is not JSON: {error.msg}", file=file, offset=at) from None
    except _Constant as error:
        raise Corrupt(f"{what} is not JSON: {error} is no JSON number", file=file, offset=offset) from None
    if _ESCAPED_SURROGATE.search(data):
        bad = _first_surrogate(out)
        if bad is not None:
            raise Corrupt(f"{what} holds a string with a lone surrogate", file=file, offset=offset, found=ascii(bad))
    return out


def _first_surrogate(value: object) -> str | None:
    """The first string, key or value, that is not Unicode text. The depth is bounded by ``check_bounds``."""
    if isinstance(value, str):
        return value if _LONE_SURROGATE.search(value) else None
    if isinstance(value, dict):
        for key, item in value.items():
            bad = _first_surrogate(key) or _first_surrogate(item)
            if bad is not None:
                return bad
    elif isinstance(value, list):
        for item in value:
            bad = _first_surrogate(item)
            if bad is not None:
                return bad
    return None


def type_name(value: object) -> str:
    """What JSON calls the type of a parsed value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"
