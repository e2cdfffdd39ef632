"""sentencepiece's model file (sentencepiece_model.proto), read by the bounded protobuf reader."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ..containers.protobuf import FIXED32, LENGTH, VARINT, Wire
from ..errors import Corrupt, LimitExceeded
from ..files import Bytes, label
from .vocabulary import NORMAL

MAX_BYTES = 64 << 20  # the largest there are have some 15 MB
MAX_PIECES = 1 << 22
UNIGRAM, BPE = 1, 2
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@dataclass(slots=True)
class Pieces:
    """What the file says. Types are those of ``vocabulary``; ``ids`` are unk, bos, eos and pad, -1 for none."""

    texts: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    kind: int = UNIGRAM
    byte_fallback: bool = False
    space_is_suffix: bool = False
    ids: dict[str, int] = field(default_factory=lambda: {"unk": 0, "bos": 1, "eos": 2, "pad": -1})
    charsmap: bytes = b""
    space_prefix: bool = True
    squeeze: bool = True
    escape: bool = True


def looks_like(first: bytes) -> bool:
    """Whether a file begins as such a model: with a piece. What tiktoken writes is text, under the same name."""
    return first[:1] == b"\x0a" and len(first) > 2 and first[2:3] == b"\x0a"


def read(file: Bytes) -> Pieces:
    """The pieces and what is done to text before them. Raises Corrupt, Truncated, LimitExceeded."""
    name = label(file)
    if file.size > MAX_BYTES:
        raise LimitExceeded("a sentencepiece model is never this large", file=name, found=f"{file.size} bytes")
    wire, pieces = Wire(file), Pieces()
    for number, kind, start, end in wire.fields(0, file.size):
        if kind != LENGTH:
            continue
        if number == 1:
            _piece(wire, start, end, pieces)
        elif number == 2:
            _trainer(wire, start, end, pieces)
        elif number == 3:
            _normalizer(wire, file, start, end, pieces)
    if not pieces.texts:
        raise Corrupt("a sentencepiece model without pieces", file=name, expected="at least one", found="none")
    if pieces.kind not in MODEL_TYPES:
        raise Corrupt("an unknown kind of sentencepiece model", file=name, member="model_type", found=pieces.kind)
    return pieces


def _piece(wire: Wire, start: int, end: int, pieces: Pieces) -> None:
    if len(pieces.texts) >= MAX_PIECES:
        raise LimitExceeded("more pieces than any vocabulary has", file=wire.file, offset=start)
    text, score, kind_of = "", 0.0, NORMAL
    for number, kind, first, last in wire.fields(start, end):
        if number == 1 and kind == LENGTH:
            text = wire.text(first, last)
        elif number == 2 and kind == FIXED32:
            [score] = struct.unpack("<f", wire.data.read(first, 4))
        elif number == 3 and kind == VARINT:
            kind_of = first
    if not 1 <= kind_of <= 6:
        raise Corrupt("a piece of an unknown type", file=wire.file, offset=start, expected="1 to 6", found=kind_of)
    if score != score or score in (float("inf"), float("-inf")):
        raise Corrupt("a piece's score is no number", file=wire.file, offset=start, found=score)
    pieces.texts.append(text)
    pieces.scores.append(score)
    pieces.types.append(kind_of)


def _trainer(wire: Wire, start: int, end: int, pieces: Pieces) -> None:
    names = {40: "unk", 41: "bos", 42: "eos", 43: "pad"}
    for number, kind, value, _ in wire.fields(start, end):
        if kind != VARINT:
            continue
        if number == 3:
            pieces.kind = value
        elif number == 24:
            pieces.space_is_suffix = bool(value)
        elif number == 35:
            pieces.byte_fallback = bool(value)
        elif number in names:
            pieces.ids[names[number]] = value if value < 1 << 31 else -1


def _normalizer(wire: Wire, file: Bytes, start: int, end: int, pieces: Pieces) -> None:
    for number, kind, value, last in wire.fields(start, end):
        if number == 2 and kind == LENGTH:
            pieces.charsmap = bytes(file.read(value, last - value))
        elif kind == VARINT and number == 3:
            pieces.space_prefix = bool(value)
        elif kind == VARINT and number == 4:
            pieces.squeeze = bool(value)
        elif kind == VARINT and number == 5:
            pieces.escape = bool(value)
