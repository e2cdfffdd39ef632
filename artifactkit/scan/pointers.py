"""Files that stand for others: pointers of Git LFS, git-annex and DVC. What they stand for was not scanned."""

from __future__ import annotations

import os
import re

from .. import trees
from ..errors import Unreadable
from .model import Rule
from .piece import Piece
from .rules import CONTENT_ABSENT

OUTSIDE = Rule(
    "dvc-outside",
    "suspicious",
    "a DVC file names content outside of its folder",
    "pulling it writes to a place that the repository has no business with",
    "do not pull; ask the producer for a corrected file",
)
RULES = (OUTSIDE,)

# Git LFS specification v1: these lines, sorted, version first, under 1024 bytes.
LFS = re.compile(rb"version https://(?:git-lfs\.github\.com/spec/v\d+|hawser\.github\.com/spec/v\d+)\r?\n")
LFS_OID = re.compile(rb"^oid (\w+):([0-9a-f]{16,128})\r?$", re.MULTILINE)
LFS_SIZE = re.compile(rb"^size (\d{1,19})\r?$", re.MULTILINE)
ANNEX = re.compile(rb"/?(?:[^\n]*/)?annex/objects/(?:[^\n]*/)?([A-Z0-9]+E?)((?:-[a-zA-Z]\d+)*)--([^\s/]+)\s*")
ANNEX_TARGET = re.compile(r"(?:^|/)\.git/annex/objects/.*?([A-Z0-9]+E?)((?:-[a-zA-Z]\d+)*)--([^/]+)$")
MAX_POINTER = 1024
MAX_DVC = 1 << 20
DVC_FIELD = re.compile(
    rb"^[ \t]{0,40}(?:-[ \t]{1,40})?(md5|etag|checksum|size|path|hash)[ \t]*:[ \t]*[\"']?([^\s\"'#]+)", re.MULTILINE
)


def is_pointer(first: bytes) -> bool:
    """Whether a file that begins with ``first`` is a pointer of Git LFS or git-annex."""
    return bool(LFS.match(first)) or (len(first) < MAX_POINTER and bool(ANNEX.fullmatch(first)))


def scan(piece: Piece, kind: str) -> None:
    if kind == "dvc":
        _dvc(piece)
        return
    first = piece.first
    if LFS.match(first):
        oid, size = LFS_OID.search(first), LFS_SIZE.search(first)
        digest = f"{_text(oid[1])}:{_text(oid[2])}" if oid else "an unknown digest"
        _absent(piece, f"Git LFS pointer to {digest}", _text(size[1]) if size else None)
        if piece.size > MAX_POINTER:
            raise Unreadable("more bytes follow a Git LFS pointer", offset=MAX_POINTER, found=f"{piece.size} bytes")
        return
    found = ANNEX.fullmatch(first)
    if found:
        _absent(piece, f"git-annex pointer to {_text(found[1])}:{_text(found[3])}", annex_size(_text(found[2])))


def annex_size(fields: str) -> str | None:
    """The size in the fields of a git-annex key, ``-s1048576-m1700000000``."""
    return next((part[1:] for part in fields.split("-") if part.startswith("s")), None)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _absent(piece: Piece, what: str, size: str | None) -> None:
    piece.find(CONTENT_ABSENT, f"{what}, {size or 'unknown'} bytes: the content is not here")


def _dvc(piece: Piece) -> None:
    """``model.pt.dvc`` stands beside ``model.pt``, once that has been pulled."""
    if piece.size > MAX_DVC:
        raise Unreadable("a DVC file out of proportion", expected=f"at most {MAX_DVC} bytes", found=piece.size)
    fields: dict[str, str] = {}
    for key, value in DVC_FIELD.findall(piece.data.read(0, piece.size)):
        fields.setdefault(_text(key), _text(value))
    digest = fields.get("md5") or fields.get("etag") or fields.get("checksum")
    path = fields.get("path")
    if not path or not digest:
        return
    parts = path.replace("\\", "/").split("/")
    if path.startswith(("/", "\\")) or ".." in parts:
        piece.find(OUTSIDE, f"names {path}", name=path)
        return
    beside = os.path.join(os.path.dirname(piece.path), path)
    if piece.depth == 0 and (os.path.lexists(beside) or trees.exists(beside)):
        return
    _absent(piece, f"DVC pointer to {path}, md5:{digest}", fields.get("size"))
