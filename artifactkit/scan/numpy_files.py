"""NumPy's .npy: the header parsed without evaluating it; object arrays are pickles, and are read as such."""

from __future__ import annotations

from ..containers import npy
from ..errors import ArtifactkitError
from ..files import part
from . import detect
from .model import Rule
from .piece import Piece

ODD = Rule(
    "npy-odd", "suspicious", "the .npy file is not as long as its header says",
    "bytes that belong to no array can be a second file, and a short array makes readers fill in what is not there",
    "get the file again from its producer, or save the array again",
)  # fmt: skip
HEADER = Rule(
    "npy-header", "suspicious", "the .npy header is not what NumPy writes",
    "old readers evaluate the header as Python", "save the array again with NumPy",
)  # fmt: skip
RULES = (ODD, HEADER)


def scan(piece: Piece, kind: str) -> None:
    """Look at the header, and into the pickle of an object array."""
    data = piece.data
    try:
        header = npy.read_header(data, member=piece.member)
    except ArtifactkitError as error:
        if b"__" in piece.first or b"lambda" in piece.first or b"import" in piece.first:
            piece.find(HEADER, "the .npy header holds an expression", offset=0)
        _pickle_behind(piece)
        piece.unreadable(error)
        return
    start, left = header.data_offset, data.size - header.data_offset
    plain = npy.parse_descr(header.descr)
    if _has_objects(header.descr):
        piece.look(piece.inner(part(data, start, left), "(objects)", "npy"))
        return
    size = plain.itemsize if plain is not None else _record(header.descr)
    if size is None:
        piece.find(HEADER, f"the .npy header names no type: {str(header.descr)[:100]}", offset=0)
        _pickle_behind(piece)
        return
    wanted = header.count * size
    if left > wanted:
        piece.find(ODD, f"{left - wanted} bytes follow the array", offset=start + wanted)
        rest = piece.inner(part(data, start + wanted, left - wanted), "(after the array)", "npy")
        if detect.formats(rest):
            piece.look(rest)
    elif left < wanted:
        from ..errors import Truncated

        raise Truncated("the array is cut short", offset=start, expected=f"{wanted} bytes", found=f"{left} bytes")


def _pickle_behind(piece: Piece) -> None:
    """Readers that take the header otherwise may still find a pickle behind it."""
    at = piece.first.find(b"\x80", 8)
    while 0 < at < len(piece.first) - 1:
        if piece.first[at + 1] in b"\x02\x03\x04\x05":
            piece.look(piece.inner(part(piece.data, at, piece.size - at), f"(at {at})", "npy"))
            return
        at = piece.first.find(b"\x80", at + 1)


def _has_objects(descr: object) -> bool:
    """Whether a type, or any field of it, is objects."""
    pending, steps = [descr], 0
    while pending and steps < 100_000:
        steps += 1
        value = pending.pop()
        if isinstance(value, str):
            plain = npy.parse_descr(value)
            if plain is not None and plain.kind == "O":
                return True
        elif isinstance(value, list | tuple):
            for item in value:
                # (name, type[, shape]): the name is no type
                if isinstance(item, tuple) and len(item) >= 2:
                    pending.append(item[1])
                elif isinstance(item, str) and not isinstance(value, list):
                    pending.append(item)
        elif isinstance(value, dict):
            pending.extend(value.values())
    return False


def _record(descr: object, depth: int = 0) -> int | None:
    """Bytes of a record or sub-array; None when it is not understood."""
    if depth > 16:
        return None
    if isinstance(descr, str):
        plain = npy.parse_descr(descr)
        return None if plain is None else plain.itemsize
    if isinstance(descr, tuple) and len(descr) == 2:
        inner = _record(descr[0], depth + 1)
        return None if inner is None else inner * _count(descr[1])
    if not isinstance(descr, list):
        return None
    total = 0
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            return None
        size = _record(field[1], depth + 1)
        if size is None:
            return None
        total += size * (_count(field[2]) if len(field) == 3 else 1)
    return total


def _count(shape: object) -> int:
    count = 1
    for size in shape if isinstance(shape, tuple) else (shape,):
        count *= size if type(size) is int and size >= 0 else 0
    return count
