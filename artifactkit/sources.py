"""From what the user calls SRC to what can be opened: a path of this machine, or a path into a mounted tree.

``locate`` pins: a branch becomes a commit here, once, and everything is then read from that commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import trees
from .errors import UsageError


@dataclass(frozen=True, slots=True)
class Located:
    """A source that is pinned. ``path`` is what to open.

    ``uri`` names it so that it can be had again: ``hf://owner/name@<commit>[/path]``, ``https://...#sha256=...``; None
    for a path of this machine. ``commit`` is the revision's, of a hub repository. ``moved_from`` is the branch, tag or
    nothing that was resolved to it ("" where the default branch was meant, None where the source was pinned already).
    """

    given: str
    path: str
    uri: str | None = None
    commit: str | None = None
    moved_from: str | None = None


def locate(src: str, *, require_pinned: bool = False) -> Located:
    """Resolve ``src`` and mount what it is in. No file is fetched, but what a listing takes.

    UsageError for a source that is not understood, and with ``require_pinned`` for a branch; Unreadable when it is not
    to be had.
    """
    if not trees.is_url(src):
        return Located(src, src)
    raise UsageError("this version does not read from there", file=src, hint="give a local file or folder")
