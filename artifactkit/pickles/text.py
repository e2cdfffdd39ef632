"""The text opcodes' arguments, read as CPython's C unpickler reads them (Modules/_pickle.c, load_int and below).

Each function raises ValueError with the reason for what CPython refuses; the machine says where.
"""

from __future__ import annotations

import re

SIMPLE_ESCAPES = {
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"b": b"\b", b"f": b"\f", b"t": b"\t", b"n": b"\n", b"r": b"\r",
    b"v": b"\v", b"a": b"\a", b"\n": b"",
}  # fmt: skip
ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|(.)|\Z)", re.DOTALL)
FLOAT = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE)
OCTAL = re.compile(rb"[ \t\n\v\f\r]*([+-]?)(0[0-7]+)")
LONG_MAX = (1 << 63) - 1


def _c_string(line: bytes) -> bytes:
    """What C sees of a line: it ends at the first NUL."""
    return line.partition(b"\0")[0]


def parse_number(line: bytes, base: int) -> int:
    """``PyLong_FromString``: sign, whitespace and underscores as in Python source, at most 4300 decimal digits."""
    text = _c_string(line)
    try:
        return int(text, base)
    except ValueError as error:
        digits = sum(48 <= c <= 57 for c in text)
        why = f"a number of {digits} digits" if digits > 4300 else "not a number"
        raise ValueError(why) from error


def parse_int(line: bytes) -> int | bool:
    """INT: ``00`` and ``01`` are the booleans; a leading 0 means octal, since C's strtol comes first."""
    if line == b"00":
        return False
    if line == b"01":
        return True
    octal = OCTAL.fullmatch(line)
    if octal:
        value = int(octal[2], 8)
        if value <= LONG_MAX:
            return -value if octal[1] == b"-" else value
    return parse_number(line, 0)


def parse_long(line: bytes) -> int:
    """LONG: a trailing L is Python 2's."""
    return parse_number(line[:-1] if line.endswith(b"L") else line, 0)


def parse_float(line: bytes) -> float:
    """FLOAT: ``PyOS_string_to_double``; no blanks, no underscores, and overflow is an error."""
    text = _c_string(line)
    if not FLOAT.fullmatch(text):
        raise ValueError("not a float")
    value = float(text)
    if value in (float("inf"), float("-inf")) and b"i" not in text.lower():
        raise ValueError("a float out of range")
    return value


def parse_string(line: bytes) -> tuple[bytes, bool]:
    """STRING: quoted, with the escapes of ``PyBytes_DecodeEscape``.

    Returns the bytes, and whether an escape stands for a character that ``repr`` writes as itself.
    """
    if len(line) < 2 or line[0] != line[-1] or line[0] not in b"'\"":
        raise ValueError("the argument is not quoted")
    text = line[1:-1]
    if b"\\" not in text:
        return text, False
    hidden = False

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal hidden
        octal, hexadecimal, other = match.groups()
        if octal is not None or hexadecimal is not None:
            code = (int(octal, 8) if octal is not None else int(hexadecimal, 16)) & 0xFF
            hidden = hidden or 0x20 <= code < 0x7F
            return bytes((code,))
        if other is None:
            raise ValueError("a backslash at the end")
        if other == b"x":
            raise ValueError("an incomplete \\x escape")
        return SIMPLE_ESCAPES.get(other, b"\\" + other)

    return ESCAPE.sub(replace, text), hidden


# What the pickler itself must escape in protocol 0.
ESCAPED_BY_PICKLER = frozenset("\\\0\n\r\x1a")
UNICODE_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")


def parse_unicode(line: bytes) -> tuple[str, bool]:
    """UNICODE: raw-unicode-escape. Returns the text, and whether an escape hides a plain ASCII character."""
    text = line.decode("raw-unicode-escape")
    hidden = False
    if b"\\" in line:
        for match in UNICODE_ESCAPE.finditer(line):
            code = int(match[1] or match[2], 16)
            hidden = hidden or (code < 0x7F and chr(code) not in ESCAPED_BY_PICKLER)
    return text, hidden
