"""Which formats a piece has, told by its bytes; and which rules its name alone calls for. Cheap: imports no rule.

Every mark that is present counts, at the start and at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..containers.tar import is_tar
from . import detect_models

if TYPE_CHECKING:
    from .piece import Piece

# format -> the module of artifactkit.scan whose ``scan(piece, kind)`` looks into it. The whole table of rules.
MODULES: dict[str, str] = {
    "pickle": "pickled",
    "zip": "zipped",
    "tar": "tarred",
    "gzip": "packed",
    "bz2": "packed",
    "xz": "packed",
    "lzma": "packed",
    "zlib": "packed",
    "lz4": "packed",
    "zstd": "packed",
    "zfile": "packed",
    "npy": "numpy_files",
} | detect_models.MODULES

# (offset, magic, format): one line for each mark that stands at a fixed place.
MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\xfd7zXZ\x00", "xz"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\x93NUMPY", "npy"),
    (0, b"ZF0x", "zfile"),
    *detect_models.MAGIC,
)

# Opcodes that CPython takes with nothing on the stack: any other first byte ends the load before it has begun.
FIRST_OPCODES = frozenset(b"()]}NIJKMLFGSTUVXBCcPi\x80\x82\x83\x84\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x95\x96\x97")


def _is_zip(piece: Piece) -> bool:
    # Readers look for the end of the directory, some for a first member only.
    return piece.first.startswith(b"PK\x03\x04") or b"PK\x05\x06" in piece.last


def _is_bz2(piece: Piece) -> bool:
    head = piece.first
    return head.startswith(b"BZh") and head[3:4].isdigit() and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")


def _is_lzma(piece: Piece) -> bool:
    head = piece.first
    return len(head) >= 13 and head[0] == 0x5D and head[1:3] == b"\0\0" and (
        head[5:13] == b"\xff" * 8 or head[11:13] == b"\0\0"
    )  # fmt: skip


def _is_zlib(piece: Piece) -> bool:
    head = piece.first
    return len(head) > 5 and head[:1] == b"x" and int.from_bytes(head[:2], "big") % 31 == 0 and not head[1] & 0x20


# The marks that are no constant at a fixed place: format -> test.
TESTS: tuple[tuple[str, Callable[[Piece], bool]], ...] = (
    ("zip", _is_zip),
    ("tar", lambda piece: is_tar(piece.first)),
    ("bz2", _is_bz2),
    ("lzma", _is_lzma),
    ("zlib", _is_zlib),
    *detect_models.TESTS,
    # Last: most files may begin so; the rule itself says whether this is one.
    ("pickle", lambda piece: piece.first[:1] != b"" and piece.first[0] in FIRST_OPCODES),
)


def formats(piece: Piece) -> list[str]:
    """The formats of the piece's content, first those marked at its start; ``pickle`` when it may be one."""
    if not piece.size:
        return []
    first = piece.first
    found = [kind for at, magic, kind in MAGIC if first.startswith(magic, at)]
    found += [kind for kind, test in TESTS if test(piece)]
    return list(dict.fromkeys(found))


# Name (lower case, last part of the path) -> rules; and the same by suffix.
NAMES: dict[str, tuple[str, ...]] = detect_models.NAMES
SUFFIXES: dict[str, tuple[str, ...]] = dict(detect_models.SUFFIXES)
for _suffix in (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt"):
    SUFFIXES[_suffix] = ("pickle", *SUFFIXES.get(_suffix, ()))


def by_name(piece: Piece) -> list[str]:
    """Rules that the name calls for, whatever the content: ``config.json``, ``*.py``, ``sitecustomize.py``."""
    name = piece.name.lower()
    found = list(NAMES.get(name, ()))
    at = name.find(".")
    while at >= 0:  # every suffix: ``.gguf.part`` and ``.part``
        found += SUFFIXES.get(name[at:], ())
        at = name.find(".", at + 1)
    found += detect_models.by_path(piece)
    return list(dict.fromkeys(found))
