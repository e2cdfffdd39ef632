"""Template files: chat_template.jinja and its kin."""

from __future__ import annotations

import os

from . import templates
from .piece import Piece
from .pointers import is_pointer

RULES = templates.RULES
MAX_READ = 16 << 20  # bytes: what is longer than a template can be is only searched for names


def scan(piece: Piece, kind: str) -> None:
    """A chat template is judged as one; a template of another use may include others, and is judged for the rest."""
    if not piece.size or b"\0" in piece.first or is_pointer(piece.first):
        return
    text = piece.data.read(0, min(piece.size, MAX_READ)).decode("utf-8-sig", "replace")
    folder = os.path.basename(os.path.dirname((piece.member or piece.path).replace("!/", "/")))
    chat = "chat" in piece.name.lower() or "chat_template" in folder
    templates.judge(piece, text, piece.name, whole_site=not chat)
