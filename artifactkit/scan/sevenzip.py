"""Archives that the standard library does not read: 7z through py7zr, the others only by name."""

from __future__ import annotations

from ..errors import ArtifactkitError, Unreadable
from ..files import File
from . import library
from .model import Rule
from .paths import unsafe_path
from .piece import Piece
from .zipped import PATH

RULES: tuple[Rule, ...] = ()
NAMES = {"rar": "RAR", "cab": "CAB", "compress": "compress (.Z)", "lzip": "lzip", "arj": "ARJ", "ar": "ar"}
FREE = 256 << 20


def scan(piece: Piece, kind: str) -> None:
    if kind != "7z":
        raise Unreadable(f"a {NAMES.get(kind, kind)} archive, which is not read here", hint="unpack it first")
    with library.scratch() as folder:
        limit = max(0, min(piece.budget.unpacked, FREE))
        names, members = library.sevenzip(piece, folder, limit)
        for name in names:
            if unsafe_path(name):
                piece.find(PATH, f"the member {name[:200]} would be unpacked outside the folder", member=name)
        for name, path in members:
            try:
                file = File(path)
            except ArtifactkitError as error:
                piece.inner(piece.data, name, "7z").unreadable(error)
                continue
            try:
                piece.spend(file.size)
                piece.look(piece.inner(file, name, "7z"))
            finally:
                file.close()
