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

MAX_YAML = 4 << 20
FOREIGN = ("!ruby/", "tag:yaml.org,2002:ruby/", "tag:ruby.yaml.org", "tag:yaml.org,2002:java")
PYTHON = "tag:yaml.org,2002:python/"
# What !!python/ gives that is a plain value: no name follows.
PLAIN = frozenset(
    ["none", "bool", "str", "unicode", "bytes", "int", "long", "float", "complex", "list", "tuple", "dict"]
)
BREAKS = "\n\r\x85\u2028\u2029"
BLANK = ("", " ", "\t", *BREAKS)
BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
HANDLES = {"!": "!", "!!": "tag:yaml.org,2002:"}
DIRECTIVE = re.compile(r"%TAG[ \t]+(![\w-]*!|!)[ \t]+(\S+)")
TAG_TEXT = re.compile(r"!<[^>\s]*>|![^\s{}]*")
ANCHOR = re.compile(r"[&*][^\s,\[\]{}]+")
BLOCK_HEADER = re.compile(r"[|>][0-9+-]{0,3}[ \t]*(?:#.*)?")
DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
SINGLE = re.compile(r"'(?:[^']|'')*'", re.DOTALL)
PLAIN_KEY = re.compile(r":(?=\s|$)")
PLAIN_END = re.compile(r":(?=\s|$)|[ \t]#")
PLAIN_END_FLOW = re.compile(r":(?=[\s,\[\]{}]|$)|[ \t]#|[,\[\]{}]")
# Without one of these there is nothing that a loader would act on.
WORTH_READING = re.compile(r"!.{0,40}(?:python|ruby|java|%)|%TAG|!<|target|\\[xuU\n\r]")


def scan(piece: Piece, kind: str) -> None:
    raw = piece.data.read(0, min(piece.size, MAX_YAML))
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = raw.decode("utf-16", "replace")
    else:
        text = raw.decode("utf-8-sig", "replace")
    if piece.size <= MAX_YAML and not WORTH_READING.search(text):
        return
    if piece.size > MAX_YAML:
        if not WORTH_READING.search(text) and not _worth_reading(piece):
            return
        raise LimitExceeded("a YAML file out of proportion", expected=f"at most {MAX_YAML} bytes", found=piece.size)
    pending = anchor = ""
    anchors: dict[str, str] = {}
    for token, value, line in tokens(text):
        if token == "anchor":
            anchor = value
            continue
        if anchor and token in ("scalar", "key"):
            anchors[anchor] = value
        if token == "alias":
            value = anchors.get(value, "*" + value)
            if not pending and value in ("_target_", "target"):
                pending = value  # an alias can be a key
                continue
        if token != "tag":
            anchor = ""
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


def _worth_reading(piece: Piece) -> bool:
    """Whether what follows the part that is read holds a tag, or the name of a callable."""
    wide = piece.first[:2] in (b"\xff\xfe", b"\xfe\xff")
    for at in range(MAX_YAML, piece.size, MAX_YAML):
        raw = piece.data.read(at - 256, min(MAX_YAML + 256, piece.size - at + 256))
        if WORTH_READING.search(raw.replace(b"\0", b"").decode("latin-1") if wide else raw.decode("latin-1")):
            return True
    return False


def tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """(tag | key | scalar | anchor | alias | bad, text, line). Tags are resolved by the %TAG directives before them.

    Where it is not clear whether something is a block of text, it is taken for structure: a tag in doubt is told.
    """
    yield from _Lexer(text).run()


class _Lexer:
    """Knows where nodes begin, what is quoted, what is a block of text, and where a plain scalar goes on."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self.line_start, self.line_end = 0, -1
        self.fresh = True  # nothing but spaces before, in this line
        self.flow = 0
        self.handles = dict(HANDLES)
        self.explicit = False  # after a question mark: what comes is a key
        self.after_plain = False  # a plain scalar ended with its line: the next one may belong to it
        self.indent = -1  # column of the last key or dash: what belongs to its value is deeper than that

    def run(self) -> Iterator[tuple[str, str, int]]:
        text, n = self.text, len(self.text)
        while self.at < n:
            c = text[self.at]
            if c in BREAKS:
                self._next_line()
            elif c in " \t\ufeff":
                self.at += 1
            elif c == "#" and (self.fresh or text[self.at - 1] in " \t" or not self.after_plain):
                self.at = self._line_end()
                self.after_plain = False
            elif self._is_marker():
                if c == ".":
                    self.handles = dict(HANDLES)
                self.at += 3
                self.flow, self.indent, self.after_plain, self.fresh = 0, -1, False, False
            elif self.after_plain and self._goes_on(c):
                self.at = self._plain_end()
            else:
                self.after_plain = False
                yield from self._node(c)

    def _node(self, c: str) -> Iterator[tuple[str, str, int]]:
        text = self.text
        fresh, self.fresh = self.fresh, False
        if fresh and c == "%" and not self.flow and self.at == self.line_start:
            self._directive()
        elif c in "[{":
            self.flow += 1
            self.at += 1
        elif c in "]}":
            self.flow = max(0, self.flow - 1)
            self.at += 1
        elif c == "," and self.flow:
            self.at += 1
        elif c in "-?:" and (text[self.at + 1 : self.at + 2] in BLANK or (self.flow and c == ":")):
            if c != ":" or fresh:
                self.indent = self.at - self.line_start
            self.explicit = c == "?"
            self.fresh = fresh and c != ":"  # a dash, and what follows is placed as at the start of a line
            self.at += 1
        elif c == "!":
            yield ("tag", self._tag(), self.line)
        elif c in "&*":
            found = ANCHOR.match(text, self.at)
            self.at = found.end() if found else self.at + 1
            if found:
                yield ("alias" if c == "*" else "anchor", found.group()[1:], self.line)
        elif c in "|>" and not self.flow and BLOCK_HEADER.fullmatch(text, self.at, self._line_end()):
            line = self.line
            yield ("scalar", self._block(), line)
        elif c in "\"'":
            yield from self._quoted(c)
        else:
            yield from self._plain()

    def _next_line(self) -> None:
        self.at += 2 if self.text.startswith("\r\n", self.at) else 1
        self.line += 1
        self.line_start, self.fresh = self.at, True

    def _line_end(self) -> int:
        """Where this line ends; found once a line, for some are very long."""
        if self.line_end < self.at:
            found = BREAK.search(self.text, self.at)
            self.line_end = found.start() if found else len(self.text)
        return self.line_end

    def _is_marker(self) -> bool:
        """``---`` or ``...`` at the start of a line: a document begins, or ends."""
        return self.at == self.line_start and self.text.startswith(("---", "..."), self.at) and (
            self.text[self.at + 3 : self.at + 4] in BLANK
        )  # fmt: skip

    def _goes_on(self, c: str) -> bool:
        """Whether this line belongs to the plain scalar before: then it is text, whatever it begins with."""
        if self.flow:
            return c not in ",[]{}:"
        if self.at - self.line_start <= self.indent:
            return False
        # A colon would make it a key, and the document one that no reader takes: it is looked at as structure.
        return PLAIN_KEY.search(self.text, self.at, self._line_end()) is None

    def _directive(self) -> None:
        found = DIRECTIVE.match(self.text, self.at, self._line_end())
        if found:
            self.handles[found[1]] = found[2]
        self.at = self._line_end()

    def _tag(self) -> str:
        found = TAG_TEXT.match(self.text, self.at)
        raw = found.group() if found else "!"
        if self.flow and not raw.startswith("!<"):
            raw = raw.rstrip(",]}") or "!"
        self.at += len(raw)
        if raw.startswith("!<"):
            return unquote(raw[2:-1])
        end = raw.find("!", 1)
        handle, suffix = (raw[: end + 1], raw[end + 1 :]) if end > 0 else ("!", raw[1:])
        return self.handles.get(handle, handle) + unquote(suffix)

    def _block(self) -> str:
        """The lines of a literal or folded block: those deeper than the key, and empty ones."""
        self.at = self._line_end()
        lines: list[str] = []
        size = 0
        while self.at < len(self.text):
            before = (self.at, self.line, self.line_start)
            self._next_line()
            end = self._line_end()
            start = self.at
            while start < end and self.text[start] == " ":
                start += 1
            if (start < end and start - self.at <= max(self.indent, 0)) or self._is_marker():
                self.at, self.line, self.line_start = before
                break
            if size < 4096:
                lines.append(self.text[start:end].strip()[:4096])
                size += len(lines[-1])
            self.at = end
        return "\n".join(lines).strip()

    def _quoted(self, quote: str) -> Iterator[tuple[str, str, int]]:
        line, column = self.line, self.at - self.line_start
        found = (DOUBLE if quote == '"' else SINGLE).match(self.text, self.at)
        if found is None:
            yield ("bad", "a quote that does not end", line)
            self.at += 1  # what follows is looked at as structure
            return
        raw = found.group()
        self.at = found.end()
        if BREAK.search(raw):
            self.line += len(BREAK.findall(raw))
            self.line_start = self.at - (len(raw) - max(raw.rfind(b) for b in BREAKS) - 1)
        value = _unescaped(raw[1:-1]) if quote == '"' else raw[1:-1].replace("''", "'")
        yield from self._key_or_scalar(value, line, column)

    def _plain_end(self) -> int:
        """Where a plain scalar ends in this line."""
        found = (PLAIN_END_FLOW if self.flow else PLAIN_END).search(self.text, self.at, self._line_end())
        return found.start() if found else self._line_end()

    def _plain(self) -> Iterator[tuple[str, str, int]]:
        line, start = self.line, self.at
        self.at = max(self._plain_end(), start + 1)
        self.after_plain = self.text[start] not in "|>%@`"  # these begin none: what follows is looked at as structure
        value = self.text[start : min(self.at, start + 4096)].strip()
        yield from self._key_or_scalar(value, line, start - self.line_start)

    def _key_or_scalar(self, value: str, line: int, column: int) -> Iterator[tuple[str, str, int]]:
        at = self.at
        while at < len(self.text) and self.text[at] in " \t":
            at += 1
        if self.text[at : at + 1] == ":" and (self.text[at + 1 : at + 2] in BLANK or self.flow):
            if not self.flow:
                self.indent = column
            self.at = at + 1
            self.after_plain = self.explicit = False
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
