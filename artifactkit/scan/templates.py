"""Chat templates: parsed with Jinja's own parser into a tree, judged, never rendered.

Most programs render the template that a model brings with it, some outside of Jinja's sandbox. A template that only
formats messages reads their fields, joins strings and loops; it never touches a name that begins with an underscore.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .model import Rule

if TYPE_CHECKING:
    from .piece import Piece

_HINT = "replace the template by the one of the model's original producer, or pass your own when you load it"
UNSAFE = Rule(
    "template-unsafe",
    "malicious",
    "a chat template reaches for Python's internals",
    "whatever renders the template outside of a sandbox runs what it asks for: a command, a file, a connection",
    _HINT,
)
COMPUTED = Rule(
    "template-computed-name",
    "suspicious",
    "a chat template computes the name of what it reads",
    "a name put together from pieces can be one that leads to Python's internals",
    _HINT,
)
INCLUDES = Rule(
    "template-includes",
    "suspicious",
    "a chat template loads another template",
    "include, import and extends read further files; a chat template is complete without them",
    _HINT,
)
BOMB = Rule(
    "template-bomb",
    "suspicious",
    "a chat template takes time or memory out of proportion",
    "rendering it makes the program that serves the model hang or end",
    _HINT,
)
SYNTAX = Rule(
    "template-syntax",
    "suspicious",
    "a chat template is no template that Jinja can parse",
    "what cannot be parsed cannot be judged; another engine may read it otherwise",
    _HINT,
)
ODD = Rule(
    "template-odd-object",
    "suspicious",
    "a chat template uses an object that formatting has no use for",
    "such objects are known ways from a template to Python's internals",
    _HINT,
)
HIDDEN = Rule(
    "template-hidden-prompt",
    "suspicious",
    "a chat template adds instructions when a message contains certain words",
    "the model is told something that neither the user nor the program wrote, and only then",
    _HINT,
)
RULES = (UNSAFE, COMPUTED, INCLUDES, BOMB, SYNTAX, ODD, HIDDEN)

MAX_TEMPLATE = 1 << 17  # characters; the longest that are in use have about 40,000


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing about a template: under which rule, what, in which line, which name. ``rule`` None: inventory."""

    rule: Rule | None
    what: str
    line: int
    name: str | None = None


def looks_like_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def judge(piece: Piece, text: str, where: str, *, whole_site: bool = False) -> None:
    """Add what is to be said about the template ``text``; ``where`` names it (a key of the file's metadata).

    ``whole_site``: a template of unknown use, which may well be put together from several.
    """
    piece.runs(
        f"{where}: a template that is filled in for every conversation",
        "tokenizers (apply_chat_template), llama.cpp and servers render it; in a sandbox, most of them",
        "pass a chat template of your own when you load the model",
    )
    for remark in remarks(text):
        if remark.rule is None:
            piece.runs(
                f"{where}, line {remark.line}: {remark.what}",
                "takes effect whenever the template is rendered",
                "read the template; pass one of your own",
            )
        elif not (whole_site and remark.rule is INCLUDES):
            piece.find(remark.rule, f"{where}, line {remark.line}: {remark.what}", name=remark.name)


def remarks(text: str) -> list[Remark]:
    """Everything that there is to say about a template. Jinja is imported here, and only its parser is used."""
    if not looks_like_template(text):
        return []
    if len(text) > MAX_TEMPLATE:
        from .template_tree import lexical

        return [*lexical(text), Remark(BOMB, f"a template of {len(text)} characters", 1)]
    from .template_tree import walk

    return walk(text)
