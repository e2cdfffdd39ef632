"""Patterns over tensor names: globs, and regular expressions that cannot run for ever.

Names come from files that others made, and Python's ``re`` backtracks: on a name chosen for it, a harmless looking
pattern can take longer than the universe has. Patterns whose time would grow exponentially are refused for their form,
the others for names that are too long for them.
"""

from __future__ import annotations

import fnmatch
import math
import re

from .errors import Refused, UsageError

MAX_PATTERN = 1000  # characters
BUDGET = 10**8  # steps that one match may take at worst: some seconds
_QUANTIFIER = re.compile(r"[*+?]|\{\d*,?\d*\}")


class Pattern:
    """A compiled pattern: a glob that must match the whole name, or with ``re:`` a regular expression to search for."""

    def __init__(self, text: str, *, regex: bool | None = None) -> None:
        """``regex`` says which of the two; by default the prefix ``re:`` does. UsageError for what does not compile."""
        self.text = text
        if regex is None:
            regex = text.startswith("re:")
            body = text.removeprefix("re:")
        else:
            body = text
        if not body:
            raise UsageError("an empty pattern", expected="a glob, or re: and a regular expression")
        if len(body) > MAX_PATTERN:
            raise UsageError("a pattern is too long", expected=f"at most {MAX_PATTERN} characters", found=len(body))
        self.repeats = _repeats(body) if regex else 0
        try:
            # fnmatch's translation is made of atomic groups: it does not backtrack beyond one star.
            self.compiled = re.compile(body if regex else fnmatch.translate(body))
        except re.error as error:
            raise UsageError(f"the pattern {text!r} is no regular expression: {error}") from None
        except (OverflowError, RecursionError):
            raise UsageError(f"the pattern {text!r} is too large") from None
        self.regex = regex

    def check_name(self, name: str) -> None:
        """Refused when matching ``name`` could take more than the budget of steps."""
        if self.repeats and math.comb(len(name) + self.repeats, self.repeats) > BUDGET:
            raise Refused(
                "a tensor's name is too long for this pattern", tensor=name[:80] + "...",
                found=f"{len(name)} characters, {self.repeats} repetitions in {self.text!r}",
                hint="use fewer of * and + in it, or a glob",
            )  # fmt: skip

    def matches(self, name: str) -> bool:
        """Whether a glob matches all of ``name`` (case counts), or a regular expression some part of it."""
        self.check_name(name)
        return (self.compiled.search(name) if self.regex else self.compiled.match(name)) is not None


def _repeats(pattern: str) -> int:
    """How many repetitions without a small bound there are; UsageError for a repetition of what repeats or branches.

    A search starts at every place, which counts as one more.
    """
    open_groups: list[bool] = [False]  # for each open group: does it hold a repetition or a branch?
    closed: bool | None = None  # the same for a group that has just been closed
    count = 1
    i = 0
    while i < len(pattern):
        c = pattern[i]
        quantifier = _QUANTIFIER.match(pattern, i)
        if c == "\\":
            i, closed = i + 2, None
        elif c == "[":
            end = i + 1
            if pattern[end : end + 1] == "^":
                end += 1
            if pattern[end : end + 1] == "]":
                end += 1
            while end < len(pattern) and pattern[end] != "]":
                end += 2 if pattern[end] == "\\" else 1
            i, closed = end + 1, None
        elif c == "(":
            open_groups.append(False)
            closed = None
            # (?: (?P<name> (?= ... : the question mark is no quantifier
            i += 2 if pattern[i + 1 : i + 2] == "?" else 1
        elif c == ")":
            closed = open_groups.pop() if len(open_groups) > 1 else False
            open_groups[-1] = open_groups[-1] or closed
            i += 1
        elif c == "|":
            open_groups[-1], closed = True, None
            i += 1
        elif quantifier and (c != "{" or quantifier[0] != "{}"):
            once = quantifier[0] in ("?", "{0,1}", "{1}", "{0}")
            if not once:
                if closed:
                    raise UsageError(
                        f"the pattern {pattern!r} repeats a group that itself repeats or branches",
                        hint="such patterns can take exponential time; repeat something simpler",
                    )
                count += 1
            open_groups[-1] = True
            i = quantifier.end()
            if pattern[i : i + 1] in ("?", "+"):  # lazy or possessive
                i += 1
            closed = None
        else:
            i, closed = i + 1, None
    return count
