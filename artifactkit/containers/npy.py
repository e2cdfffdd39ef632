"""The header of NumPy's .npy files, parsed without evaluating anything.

Source: NEP 1 and the docstring of ``numpy/lib/format.py`` (versions 1.0, 2.0, 3.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import Corrupt, LimitExceeded, Unreadable
from ..files import Bytes, label

MAGIC = b"\x93NUMPY"
MAX_HEADER = 1 << 20  # a structured dtype of thousands of fields stays far below; numpy itself stops at 10,000 bytes
MAX_DEPTH = 32
MAX_DIMS = 64  # NPY_MAXDIMS of numpy 2
DESCR = re.compile(r"([<>|=]?)([?biufcmMOSaUV])(\d{0,9})(\[[^\]]{1,32}\])?")
# Sizes in bytes of the old one-letter codes are not taken: numpy writes the sized form only.


class Descr(NamedTuple):
    """A plain element type: ``kind`` is numpy's letter (``b`` bool, ``i``, ``u``, ``f``, ``c``, ``V``, ``O``, ...),
    ``itemsize`` in bytes (0 for objects), ``big`` whether its bytes are big-endian."""

    kind: str
    itemsize: int
    big: bool
    text: str


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """``descr`` as the header has it: text, or a list of fields. Shape in elements; data begins at ``data_offset``."""

    version: tuple[int, int]
    descr: object
    fortran_order: bool
    shape: tuple[int, ...]
    data_offset: int

    @property
    def count(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def parse_descr(descr: object) -> Descr | None:
    """A plain type from its text; None for a structured type or anything that is no type of numpy's."""
    if not isinstance(descr, str):
        return None
    match = DESCR.fullmatch(descr)
    if match is None:
        return None
    order, kind, digits, unit = match.groups()
    if (unit is not None) != (kind in "mM") and unit is not None:
        return None
    size = int(digits or 0)
    if kind == "?":
        kind, size = "b", 1
    elif kind == "b":
        # ``b1`` is a bool in the array interface; a bare ``b`` is numpy's letter for int8, which it never writes.
        if size != 1:
            return None
    elif kind == "a":
        kind = "S"
    elif kind == "O":
        size = 0
    itemsize = size * 4 if kind == "U" else size
    return Descr(kind, itemsize, order == ">", descr)


class _Literal:
    """A parser for the few Python literals that a header consists of: dict, list, tuple, str, int, bool, None."""

    TOKEN = re.compile(
        r"\s*(?:([{}\[\](),:])|(-?\d{1,20})[lL]?(?![\w.])|(True|False|None)\b|[bu]?('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"))"
    )

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, object]] = []
        at, text = 0, text.rstrip(" \n\t\r\0")
        while at < len(text):
            match = self.TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"unexpected {text[at : at + 12]!r}")
            mark, number, word, quoted = match.groups()
            if mark:
                self.tokens.append((mark, None))
            elif number:
                self.tokens.append(("value", int(number)))
            elif word:
                self.tokens.append(("value", {"True": True, "False": False, "None": None}[word]))
            else:
                self.tokens.append(("value", _unquote(quoted)))
            at = match.end()
        self.at = 0

    def whole(self) -> object:
        value = self._value(0)
        if self.at != len(self.tokens):
            raise ValueError("something follows the header's dict")
        return value

    def _next(self) -> tuple[str, object]:
        if self.at >= len(self.tokens):
            raise ValueError("the header ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def _peek(self, mark: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == mark:
            self.at += 1
            return True
        return False

    def _value(self, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        mark, value = self._next()
        if mark == "value":
            return value
        if mark == "{":
            return self._dict(depth)
        if mark in "([":
            return self._items("]" if mark == "[" else ")", depth)
        raise ValueError(f"unexpected {mark!r}")

    def _dict(self, depth: int) -> dict[str, object]:
        out: dict[str, object] = {}
        while not self._peek("}"):
            key = self._value(depth + 1)
            if not isinstance(key, str) or not self._peek(":"):
                raise ValueError("a key is no string")
            if key in out:
                raise ValueError(f"the key {key!r} stands twice")
            out[key] = self._value(depth + 1)
            if not self._peek(","):
                if not self._peek("}"):
                    raise ValueError("a comma is missing")
                break
        return out

    def _items(self, close: str, depth: int) -> object:
        items: list[object] = []
        comma = False
        while not self._peek(close):
            items.append(self._value(depth + 1))
            comma = self._peek(",")
            if not comma:
                if not self._peek(close):
                    raise ValueError("a comma is missing")
                break
        if close == "]":
            return items
        if len(items) == 1 and not comma:
            return items[0]  # parentheses around one value
        return tuple(items)


def _unquote(quoted: str) -> str:
    body = quoted[1:-1]
    if "\\" not in body:
        return body
    # Field names may be any text; numpy writes them with repr, so these escapes and no others occur.
    plain = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}

    def one(match: re.Match[str]) -> str:
        code = match.group(1)
        if code in plain:
            return plain[code]
        if code[0] in "xuU" and len(code) > 1 and int(code[1:], 16) < 0x110000:
            return chr(int(code[1:], 16))
        raise ValueError(f"unknown escape \\{code}")

    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", one, body)


def read_header(data: Bytes, offset: int = 0, member: str | None = None) -> NpyHeader:
    """The header of the .npy that begins at ``offset``. Corrupt, Truncated, LimitExceeded, or Unreadable for a version
    that is not known."""
    file = label(data)

    def corrupt(what: str, **more: object) -> Corrupt:
        return Corrupt(what, file=file, member=member, offset=offset, **more)  # type: ignore[arg-type]

    begin = data.read(offset, 10)
    if begin[:6] != MAGIC:
        raise corrupt("no .npy header", expected=MAGIC.hex(" "), found=begin[:6].hex(" "))
    version = (begin[6], begin[7])
    if version == (1, 0):
        start, length = offset + 10, int.from_bytes(begin[8:10], "little")
    elif version in ((2, 0), (3, 0)):
        start, length = offset + 12, int.from_bytes(data.read(offset + 8, 4), "little")
    else:
        raise Unreadable(
            "unknown .npy version", file=file, member=member, offset=offset + 6, expected="1.0, 2.0 or 3.0",
            found=f"{version[0]}.{version[1]}",
        )  # fmt: skip
    if length > MAX_HEADER:
        raise LimitExceeded(
            "the .npy header is out of proportion", file=file, member=member, offset=offset,
            expected=f"at most {MAX_HEADER} bytes", found=f"{length} bytes",
        )  # fmt: skip
    raw = data.read(start, length)
    try:
        fields = _Literal(raw.decode("utf-8" if version == (3, 0) else "latin-1")).whole()
    except ValueError as error:
        raise corrupt(f"the .npy header cannot be parsed: {error}") from error
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        found = sorted(fields) if isinstance(fields, dict) else type(fields).__name__
        raise corrupt("the .npy header has other keys", expected="descr, fortran_order, shape", found=found)
    shape, fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape) or len(shape) > MAX_DIMS:
        raise corrupt("the .npy header has no valid shape", found=shape)
    if type(fortran) is not bool:
        raise corrupt("fortran_order is no bool", found=fortran)
    return NpyHeader(version, fields["descr"], fortran, shape, start + length)
