"""Whether a regular expression clearly takes exponential time: a repetition of nothing but a repetition.

A rough look at the structure, for the dialects of Oniguruma, Python and PCRE alike. What is not clear is not said.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_PATTERN = 20_000


@dataclass(slots=True)
class _Sequence:
    """One alternative: for each element, its text, whether it may repeat without bound, whether it may be absent."""

    elements: list[tuple[str, bool, bool]] = field(default_factory=list)


def is_exponential(pattern: str) -> bool:
    """True for ``(a+)+``, ``(a*)*``, ``(\\w+\\s?)*``, ``(a|a)*``; False for what only looks complicated."""
    if len(pattern) > MAX_PATTERN or not any(c in pattern for c in "+*{"):
        return False
    parser = _Parser(pattern)
    parser.alternatives(0)
    return parser.found


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text, self.at, self.found = pattern, 0, False

    def alternatives(self, depth: int) -> list[_Sequence]:
        out = [_Sequence()]
        while self.at < len(self.text) and depth < 100:
            c = self.text[self.at]
            if c == ")":
                break
            if c == "|":
                self.at += 1
                out.append(_Sequence())
                continue
            self._element(out[-1], depth)
        return out

    def _element(self, into: _Sequence, depth: int) -> None:
        start = self.at
        c = self.text[start]
        inner: list[_Sequence] = []
        atomic = around = False
        if c == "(":
            self.at += 1
            atomic = self.text.startswith("?>", self.at)
            around = self.text.startswith(("?=", "?!", "?<=", "?<!"), self.at)
            self._group_start()
            inner = self.alternatives(depth + 1)
            self.at += 1
        elif c == "[":
            self._set()
        elif c == "\\":
            self.at += 2
            if self.text[start + 1 : start + 2] in tuple("pPxukg") and self.text[self.at : self.at + 1] == "{":
                end = self.text.find("}", self.at)
                self.at = len(self.text) if end < 0 else end + 1
        else:
            self.at += 1
        body = self.text[start : self.at]
        least, unbounded, possessive = self._quantifier()
        if around or body in ("^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z", "\\G"):
            return  # takes no characters
        if unbounded and inner and not possessive and not atomic and _repeats_itself(inner):
            self.found = True
        endless = unbounded or (bool(inner) and _repeats_itself(inner) and not atomic)
        into.elements.append((body, endless and not possessive, least == 0))

    def _group_start(self) -> None:
        """Over ``?:``, ``?<name>``, ``?i:`` and their like."""
        if not self.text.startswith("?", self.at):
            return
        i = self.at + 1
        if self.text[i : i + 1] in ("<", "P", "'") and self.text[i + 1 : i + 2] not in ("=", "!"):
            end = self.text.find(">", i)
            self.at = len(self.text) if end < 0 else end + 1
            return
        while i < len(self.text) and self.text[i] in "imsxaLu-:=!<>":
            i += 1
            if self.text[i - 1] in ":=!>":
                break
        self.at = i

    def _set(self) -> None:
        depth, self.at = 1, self.at + 1
        if self.text.startswith("^", self.at):
            self.at += 1
        if self.text.startswith("]", self.at):
            self.at += 1
        while self.at < len(self.text) and depth:
            c = self.text[self.at]
            self.at += 2 if c == "\\" else 1
            if c == "[" and self.text[self.at : self.at + 1] == ":":
                end = self.text.find(":]", self.at)
                self.at = self.at if end < 0 else end + 2
            elif c == "]":
                depth -= 1

    def _quantifier(self) -> tuple[int, bool, bool]:
        """(least number of times, whether without bound, whether possessive)"""
        c = self.text[self.at : self.at + 1]
        least, unbounded = 1, False
        if c in ("*", "+", "?"):
            self.at += 1
            least, unbounded = (1 if c == "+" else 0), c != "?"
        elif c == "{":
            end = self.text.find("}", self.at)
            body = self.text[self.at + 1 : end] if end > 0 else ""
            low, comma, high = body.partition(",")
            if end < 0 or not (low + high).isdigit():
                return 1, False, False
            self.at = end + 1
            least = int(low or 0)
            unbounded = bool(comma) and not high or int(high or low or 0) > 30
        else:
            return 1, False, False
        possessive = self.text[self.at : self.at + 1] == "+"
        if possessive or self.text[self.at : self.at + 1] == "?":
            self.at += 1
        return least, unbounded, possessive


def _repeats_itself(alternatives: list[_Sequence]) -> bool:
    """Whether a repetition of these can match one text in exponentially many ways."""
    for sequence in alternatives:
        needed = [e for e in sequence.elements if not e[2]]
        endless = [e for e in sequence.elements if e[1]]
        # Nothing but one element repeats, and all others may be absent: where one round ends is arbitrary.
        if endless and (not needed or (len(needed) == 1 and needed[0][1])):
            return True
    texts = ["".join(e[0] for e in s.elements) for s in alternatives if all(not e[1] and not e[2] for e in s.elements)]
    return len(texts) > len(set(texts)) or _made_of_one(texts)


def _made_of_one(texts: list[str]) -> bool:
    """``(a|aa)+``"""
    plain = [t for t in texts if t and t.isalnum() and len(set(t)) == 1]
    return len(plain) > len({t[0] for t in plain})
