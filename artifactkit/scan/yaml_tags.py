"""YAML: tags that make a loader build Python objects, and callables named by ``_target_``. Lexically: nothing is built.

``!!python/...`` (PyYAML, "YAML tags and Python types") works with yaml.load and an unsafe loader, as in older programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from ..errors import Corrupt, LimitExceeded
from . import configs, python_names
from .model import Rule
from .piece import Piece

TAG_UNSAFE = Rule(
    "yaml-tag-unsafe",
    "malicious",
    "a YAML tag has Python code run",
    "a loader that honours the tag imports the module and calls what is named, while it reads the file",
    "read the file with yaml.safe_load, which refuses such tags",
)
TAG = Rule(
    "yaml-tag",
    "suspicious",
    "a YAML tag names a Python class or function that is not known to hold data only",
    "a loader that honours the tag imports the module and builds the object, while it reads the file",
    "read the file with yaml.safe_load, which refuses such tags",
)
RULES = (TAG_UNSAFE, TAG)

MAX_YAML = 16 << 20
FOREIGN = ("!ruby/", "tag:yaml.org,2002:ruby/", "tag:ruby.yaml.org", "tag:yaml.org,2002:java")
PYTHON = "tag:yaml.org,2002:python/"
# What !!python/ gives that is a plain value: no name follows.
PLAIN = frozenset(
    ["none", "bool", "str", "unicode", "bytes", "int", "long", "float", "complex", "list", "tuple", "dict"]
)
BLANK = ("", " ", "\t", "\n", "\r", "\x85", "\u2028", "\u2029")
DIRECTIVE = re.compile(r"%TAG[ \t]+(![\w-]*!|!)[ \t]+(\S+)")
TAG_TEXT = re.compile(r"!<[^>\n]*>|![^\s,\[\]{}]*")
TAG_TEXT_BLOCK = re.compile(r"!<[^>\n]*>|!\S*")
ANCHOR = re.compile(r"[&*][^\s,\[\]{}]+")
BLOCK_HEADER = re.compile(r"[|>][0-9+-]{0,3}[ \t]*(?:#.*)?$")
DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
SINGLE = re.compile(r"'(?:[^']|'')*'", re.DOTALL)
PLAIN_END = re.compile(r":(?=[\s,\[\]{}]|$)|[ \t]#")
PLAIN_END_FLOW = re.compile(r":(?=[\s,\[\]{}]|$)|[ \t]#|[,\[\]{}]")


def scan(piece: Piece, kind: str) -> None:
    raw = piece.data.read(0, min(piece.size, MAX_YAML))
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = raw.decode("utf-16", "replace")
    else:
        text = raw.decode("utf-8-sig", "replace")
    # Without a tag, a target or an escape there is nothing that a loader would act on.
    if "!" not in text and "target" not in text and "\\" not in text:
        return
    if piece.size > MAX_YAML:
        raise LimitExceeded("a YAML file out of proportion", expected=f"at most {MAX_YAML} bytes", found=piece.size)
    pending = ""
    for token, value, line in tokens(text):
        if token == "tag":
            _tag(piece, value, line)
        elif token == "bad":
            raise Corrupt(f"YAML that cannot be read, line {line}: {value}")
        elif pending and token in ("scalar", "alias"):
            if pending == "_target_":
                configs.target(piece, value)
            else:
                configs.legacy_target(piece, value)
            pending = ""
        elif token == "key" and value in ("_target_", "target"):
            pending = value
        elif token == "key":
            pending = ""


def tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """(tag | key | scalar | alias | bad, text, line). Tags are resolved by the %TAG directives before them.

    Where it is not clear whether something is a block of text, it is taken for structure: a tag in doubt is told.
    """
    yield from _Lexer(text).run()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self.flow = 0
        self.handles: dict[str, str] = {"!": "!", "!!": "tag:yaml.org,2002:"}
        self.explicit = False  # after a question mark: what comes is a key
        self.indent = 0  # column of the last key or dash: a block of text is deeper than that

    def run(self) -> Iterator[tuple[str, str, int]]:
        text, n = self.text, len(self.text)
        fresh = True  # at the start of a line: nothing but spaces before
        while self.at < n:
            c = text[self.at]
            if c == "\n" or c in "\r\x85\u2028\u2029":
                self.at += 1
                self.line += c != "\r"
                fresh = True
            elif c in " \t\ufeff":
                self.at += 1
            elif c == "#":
                self._to_line_end()
            elif fresh and c == "%" and not self.flow and self._column() == 0:
                self._directive()
            elif c in "[{":
                self.flow += 1
                self.at += 1
                fresh = False
            elif c in "]}":
                self.flow = max(0, self.flow - 1)
                self.at += 1
            elif c == "," and self.flow:
                self.at += 1
            elif c in "-?:" and text[self.at + 1 : self.at + 2] in BLANK:
                self.indent = self._column() if c != ":" else self.indent
                self.explicit = c == "?"
                self.at += 1
            elif fresh and text.startswith(("---", "..."), self.at) and self._column() == 0:
                if text.startswith("...", self.at):
                    self.handles = {"!": "!", "!!": "tag:yaml.org,2002:"}
                self.at += 3
                self.flow = 0
            elif c == "!":
                yield ("tag", self._tag(), self.line)
            elif c in "&*":
                found = ANCHOR.match(text, self.at)
                self.at = found.end() if found else self.at + 1
                if c == "*" and found:
                    yield ("alias", found.group(), self.line)
            elif c in "|>" and not self.flow and BLOCK_HEADER.match(self._rest_of_line()):
                line = self.line
                yield ("scalar", self._block(), line)
                fresh = True
            elif c in "\"'":
                yield from self._quoted(c)
                fresh = False
            else:
                yield from self._plain()
                fresh = False

    def _column(self) -> int:
        start = max(self.text.rfind("\n", 0, self.at), self.text.rfind("\r", 0, self.at))
        return self.at - start - 1

    def _line_end(self) -> int:
        end = self.text.find("\n", self.at)
        other = self.text.find("\r", self.at, end if end >= 0 else len(self.text))
        if other >= 0:
            end = other
        return len(self.text) if end < 0 else end

    def _rest_of_line(self) -> str:
        return self.text[self.at : self._line_end()]

    def _to_line_end(self) -> None:
        self.at = self._line_end()

    def _directive(self) -> None:
        found = DIRECTIVE.match(self._rest_of_line())
        if found:
            self.handles[found[1]] = found[2]
        self._to_line_end()

    def _tag(self) -> str:
        found = (TAG_TEXT if self.flow else TAG_TEXT_BLOCK).match(self.text, self.at)
        raw = found.group() if found else "!"
        self.at += len(raw)
        if raw.startswith("!<"):
            return unquote(raw[2:-1])
        end = raw.find("!", 1)
        handle, suffix = (raw[: end + 1], raw[end + 1 :]) if end > 0 else ("!", raw[1:])
        return self.handles.get(handle, handle) + unquote(suffix)

    def _block(self) -> str:
        """The lines of a literal or folded block: those deeper than the key, and empty ones."""
        self._to_line_end()
        lines: list[str] = []
        while self.at < len(self.text):
            start = self.at + (2 if self.text.startswith("\r\n", self.at) else 1)
            end = self.text.find("\n", start)
            end = len(self.text) if end < 0 else end
            line = self.text[start:end]
            bare = line.lstrip(" ")
            if bare.strip() and len(line) - len(bare) <= self.indent:
                break
            lines.append(line.strip())
            self.line += 1
            self.at = end
        return "\n".join(lines).strip()

    def _quoted(self, quote: str) -> Iterator[tuple[str, str, int]]:
        line, column = self.line, self._column()
        found = (DOUBLE if quote == '"' else SINGLE).match(self.text, self.at)
        if found is None:
            yield ("bad", "a quote that does not end", line)
            self.at += 1  # what follows is looked at as structure
            return
        raw = found.group()
        self.at = found.end()
        self.line += raw.count("\n")
        value = _unescaped(raw[1:-1]) if quote == '"' else raw[1:-1].replace("''", "'")
        yield from self._key_or_scalar(value, line, column)

    def _plain(self) -> Iterator[tuple[str, str, int]]:
        rest, line, column = self._rest_of_line(), self.line, self._column()
        found = (PLAIN_END_FLOW if self.flow else PLAIN_END).search(rest)
        length = found.start() if found else len(rest)
        self.at += max(length, 1)
        yield from self._key_or_scalar(rest[: max(length, 1)].strip(), line, column)

    def _key_or_scalar(self, value: str, line: int, column: int) -> Iterator[tuple[str, str, int]]:
        at = self.at
        while at < len(self.text) and self.text[at] in " \t":
            at += 1
        after = self.text[at + 1 : at + 2]
        if self.text[at : at + 1] == ":" and (after in ("", " ", "\t", "\n", "\r") or self.flow):
            if not self.flow:
                self.indent = column
            self.at = at + 1
            yield ("key", value, line)
        elif self.explicit:
            self.explicit = False
            yield ("key", value, line)
        else:
            yield ("scalar", value, line)


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r?\n[ \t]*|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a", "b": "\b", "v": "\v", "f": "\f",
           "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else ""
        return "" if code[:1] in "\r\n" else _SIMPLE.get(code, code)

    return _ESCAPE.sub(one, text)


def _tag(piece: Piece, tag: str, line: int) -> None:
    if tag.startswith(FOREIGN):
        piece.find(TAG, f"line {line}: {tag[:200]}", name=tag[:200])
        return
    if not tag.startswith(PYTHON):
        return
    kind, _, name = tag[len(PYTHON) :].partition(":")
    if kind in PLAIN and not name:
        return
    kind = kind.strip("/")
    shown = f"line {line}: !!python/{kind}:{name[:200]}"
    piece.runs(
        f"!!python/{kind}:{name[:200]}",
        "yaml.load with UnsafeLoader or Loader, yaml.unsafe_load; FullLoader before PyYAML 5.4",
        "yaml.safe_load",
    )
    if name in python_names.YAML_DATA:
        return
    if python_names.is_dangerous(name) and kind in ("object/apply", "object/new", "object", "name", "module"):
        piece.find(TAG_UNSAFE, shown, name=name)
    else:
        piece.find(TAG, shown, name=name)
