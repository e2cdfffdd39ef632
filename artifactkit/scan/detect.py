"""Which formats a piece has, told by its bytes; and which rules its name alone calls for. Cheap: imports no rule.

Every mark that is present counts, at the start and at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .piece import Piece

# format -> the module of artifactkit.scan whose ``scan(piece, kind)`` looks into it. The whole table of rules.
MODULES: dict[str, str] = {
    "pickle": "pickled",
    "zip": "zipped",
    "tar": "tarred",
}


def formats(piece: Piece) -> list[str]:
    """The formats of the piece's content, first the one at its start; ``pickle`` when it may be one."""
    raise NotImplementedError


def by_name(piece: Piece) -> list[str]:
    """Rules that the name calls for, whatever the content: ``config.json``, ``*.py``, ``sitecustomize.py``."""
    return []
