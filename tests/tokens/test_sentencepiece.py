"""sentencepiece's file: read as the library reads it; each lie is refused, and has a twin that is read."""

from __future__ import annotations

import struct

import made_tokenizers as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated
from artifactkit.files import Memory
from artifactkit.tokens import sentencepiece as sp
from artifactkit.tokens.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text: bytes, score: float = 0.0, kind: int | None = None) -> bytes:
    body = field(1, text) + b"\x15" + struct.pack("<f", score)
    return field(1, body if kind is None else body + b"\x18" + varint(kind))


GOOD = piece(b"<unk>", 0, 2) + piece(b"a", -1.5)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_are_those_of_the_library(kind: str) -> None:
    spm = pytest.importorskip("sentencepiece")
    data = made.pieces(kind)
    theirs = spm.SentencePieceProcessor(model_proto=data)
    ours = sp.read(Memory(data))
    assert ours.texts == [theirs.id_to_piece(i) for i in range(theirs.vocab_size())]
    assert ours.scores == [theirs.get_score(i) for i in range(theirs.vocab_size())]
    for i, found in enumerate(ours.types):
        wanted = (
            UNKNOWN
            if theirs.is_unknown(i)
            else CONTROL
            if theirs.is_control(i)
            else BYTE
            if theirs.is_byte(i)
            else NORMAL
        )
        assert found == wanted
    assert ours.ids == {n: getattr(theirs, f"{n}_id")() for n in ("unk", "bos", "eos", "pad")}
    assert (ours.kind, bool(ours.charsmap), ours.squeeze) == ((2, False, False) if kind == "bpe" else (1, True, True))


def test_a_model_is_told_from_what_tiktoken_writes() -> None:
    assert sp.looks_like(GOOD[:16]) and not sp.looks_like(b"IQ== 0\nIg== 1\n") and not sp.looks_like(b"")


def test_the_smallest_that_is_read() -> None:
    found = sp.read(Memory(GOOD))
    assert (found.texts, found.scores, found.types) == (["<unk>", "a"], [0.0, -1.5], [2, 1])
    assert found.kind == sp.UNIGRAM and found.space_prefix and found.squeeze  # the proto's defaults


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", Corrupt),
        (GOOD[:-1], Truncated),
        (GOOD + piece(b"b", 0, 9), Corrupt),
        (GOOD + piece(b"b", float("nan")), Corrupt),
        (GOOD + piece(b"b", float("inf")), Corrupt),
        (GOOD + piece(b"x" * 70000), LimitExceeded),
        (GOOD + field(2, b"\x18\x09"), Corrupt),  # model_type 9
        (GOOD + b"\x0a\xff\xff\xff\xff\x0f", Truncated),  # 4 GB that are not there
        (GOOD + b"\x0f", Corrupt),  # wire type 7
    ],
    ids=["empty", "cut", "type", "nan", "inf", "long", "kind", "huge", "wire"],
)
def test_lies_are_refused(data: bytes, error: type[ArtifactkitError]) -> None:
    with pytest.raises(error):
        sp.read(Memory(data))


@given(st.binary(max_size=80), st.integers(0, len(GOOD)))
def test_nothing_else_is_raised(noise: bytes, at: int) -> None:
    try:
        sp.read(Memory(GOOD[:at] + noise + GOOD[at:]))
    except ArtifactkitError:
        pass
