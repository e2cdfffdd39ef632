"""Where each key and value of a TOML text stands. Python's own parser keeps no places.

The text has been accepted by ``tomllib`` before, so this walks what is known to be TOML 1.0: strings are skipped,
brackets are matched, nothing is judged. A path is the keys and list indices that lead to a value, as in the parsed
document.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}\n#]*")
# A string in any of TOML's four forms. The long ones may end in up to two more quotes, which belong to them.
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)


@dataclass(slots=True)
class Positions:
    """The places of one text. ``headers`` are the offsets at which tables begin, each with the table's path."""

    keys: dict[Path, int] = field(default_factory=dict)
    values: dict[Path, int] = field(default_factory=dict)
    headers: list[tuple[int, Path]] = field(default_factory=list)
    _lines: list[int] = field(default_factory=list)

    def place(self, offset: int) -> tuple[int, int]:
        """(line, column) of an offset in characters, both from 1."""
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def key(self, path: Path) -> tuple[int, int]:
        """Where the key that ``path`` ends in is written; of a list's item, where that is; else of what holds it."""
        while path:
            found = self.keys.get(path, self.values.get(path))
            if found is not None:
                return self.place(found)
            path = path[:-1]
        return 1, 1

    def value(self, path: Path) -> tuple[int, int]:
        """Where the value at ``path`` begins; of a table with a header, where its name in the header is."""
        found = self.values.get(path)
        return self.key(path) if found is None else self.place(found)


def find(text: str) -> Positions:
    """The places in ``text``, which must be TOML and have no ``\\r\\n`` in it."""
    lines = [0] + [match.end() for match in re.finditer("\n", text)]
    return _Finder(text, Positions(_lines=lines)).run()


class _Finder:
    def __init__(self, text: str, out: Positions) -> None:
        self.text, self.out, self.at = text, out, 0
        self.base: Path = ()
        self.lists: dict[Path, int] = {}  # lists of tables, by their path: the index of the last

    def run(self) -> Positions:
        self.skip(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                self.header()
            else:
                self.assignment(self.base)
            self.skip(_BLANK)
        return self.out

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()

    def header(self) -> None:
        start = self.at
        several = self.text.startswith("[[", start)
        self.at += 1 + several
        path: Path = ()
        parts = self.parts()
        for number, (offset, part) in enumerate(parts):
            path = (*path, part)
            if number == len(parts) - 1 and several:
                self.lists[path] = self.lists.get(path, -1) + 1
                # Lists below this one begin anew with each of its items: their paths hold its index.
            self.out.keys.setdefault(path, offset)
            if path in self.lists:
                path = (*path, self.lists[path])
                self.out.keys.setdefault(path, offset)
        self.out.headers.append((start, path))
        self.base = path
        self.at += 1 + several

    def parts(self) -> list[tuple[int, str]]:
        """The parts of a dotted key, with their offsets; stops after the space that follows the last."""
        out = []
        while True:
            self.skip(_SPACE)
            start = self.at
            string = _STRING.match(self.text, start)
            if string is not None:
                self.at = string.end()
                out.append((start, _decoded(string[0])))
            else:
                self.skip(_BARE_KEY)
                out.append((start, self.text[start : self.at]))
            self.skip(_SPACE)
            if self.text[self.at] != ".":
                return out
            self.at += 1

    def assignment(self, base: Path) -> None:
        path = base
        for offset, part in self.parts():
            path = (*path, part)
            self.out.keys.setdefault(path, offset)
        self.at += 1  # the sign
        self.skip(_SPACE)
        self.value(path)

    def value(self, path: Path) -> None:
        self.out.values[path] = self.at
        first = self.text[self.at]
        if first == "[":
            self.items(path)
        elif first == "{":
            self.members(path)
        else:
            self.skip(_STRING if first in "\"'" else _BARE_VALUE)

    def items(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self.skip(_BLANK)
            if self.text[self.at] == "]":
                break
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self.value((*path, index))
            index += 1
        self.at += 1

    def members(self, path: Path) -> None:
        self.at += 1
        while True:
            self.skip(_BLANK)
            if self.text[self.at] == "}":
                break
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self.assignment(path)
        self.at += 1


def _decoded(quoted: str) -> str:
    """What a quoted key says."""
    if quoted[0] == "'" or "\\" not in quoted:
        return quoted[1:-1]
    import tomllib

    return next(iter(tomllib.loads(quoted + "=0")))
