"""The reader of GGUF headers: values of every type in both byte orders, and every lie refused with its place."""

from __future__ import annotations

import struct

import pytest
from hostile.gguf import ARCHITECTURE, ARRAY, STRING, TWO, TWO_DATA, array, built, pair, string, tensor, text
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.containers import gguf_header as gguf
from artifactkit.containers.gguf_types import GGML_TYPES
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated, Unreadable
from artifactkit.files import Memory

# type -> a value of it
VALUES: dict[int, int | float | bool] = {
    gguf.U8: 200,
    gguf.I8: -5,
    gguf.U16: 60_000,
    gguf.I16: -300,
    gguf.U32: 4_000_000_000,
    gguf.I32: -70_000,
    gguf.F32: 0.5,
    gguf.BOOL: True,
    gguf.U64: 2**63 + 1,
    gguf.I64: -(2**40),
    gguf.F64: 1e-300,
}


def read(content: bytes) -> gguf.Header:
    return gguf.read_header(Memory(content, "a.gguf"))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_and_arrays_of_every_type(kind: int, order: str) -> None:
    raw = struct.pack(order + gguf.CODES[kind], VALUES[kind])
    content = built([pair("one", kind, raw, order), array("many", kind, [raw] * 3, order)], order=order)
    header = read(content)
    assert header.value("one") == VALUES[kind] and type(header.value("one")) is type(VALUES[kind])
    many = header.value("many")
    assert isinstance(many, gguf.Array) and many.count == 3
    assert gguf.read_array(Memory(content), header, many) == [VALUES[kind]] * 3
    assert header.big_endian is (order == ">") and header.anomalies == []


@pytest.mark.parametrize("order", ["<", ">"])
def test_strings_and_arrays_within_arrays(order: str) -> None:
    words = [text(w, order) for w in ("a", "", "größer")]
    inner = struct.pack(order + "IQ", STRING, 3) + b"".join(words)
    content = built(
        [string("s", "x", order), array("words", STRING, words, order), array("nested", ARRAY, [inner, inner], order)],
        order=order,
    )
    header, data = read(content), Memory(content)
    assert header.value("s") == "x"
    values = [header.value(key) for key in ("words", "nested")]
    assert all(isinstance(v, gguf.Array) for v in values)
    assert [gguf.read_array(data, header, v) for v in values if isinstance(v, gguf.Array)] == [
        ["a", "", "größer"],
        [["a", "", "größer"]] * 2,
    ]


def test_long_strings_stay_in_the_file() -> None:
    long = "x" * (gguf.INLINE + 1)
    content = built([string("long", long), string("short", "y")])
    header = read(content)
    value = header.value("long")
    assert isinstance(value, gguf.Text) and value.nbytes == len(long)
    assert gguf.read_text(Memory(content), value) == long
    with pytest.raises(LimitExceeded):
        gguf.read_text(Memory(content), value, limit=100)
    assert header.value("short") == "y"


def test_tensors_have_places_in_the_file() -> None:
    content = built([ARCHITECTURE], TWO, TWO_DATA)
    header = read(content)
    a, b = header.tensors
    assert (a.name, a.type_name, a.dims, a.nbytes) == ("a", "F32", (8,), 32)
    assert (b.name, b.type_name, b.dims, b.nbytes) == ("b", "Q8_0", (32, 2), 68)
    assert header.data_start % 32 == 0 and b.offset == a.offset + 32
    assert header.data_end == b.offset + 68 <= len(content)


@pytest.mark.parametrize("kind", GGML_TYPES)
def test_sizes_of_every_tensor_type(kind: int) -> None:
    _, block, nbytes = GGML_TYPES[kind]
    content = built([], [tensor("t", [block * 2, 3], kind)], bytes(6 * nbytes))
    assert read(content).tensors[0].nbytes == 6 * nbytes
    if block > 1:
        with pytest.raises(Corrupt, match="whole number of blocks"):
            read(built([], [tensor("t", [block + 1], kind)], bytes(4096)))


def test_vocabularies_larger_than_the_window() -> None:
    words = [text("w" * (i % 40)) for i in range(30_000)]
    content = built([array("tokens", STRING, words), string("after", "z")])
    header = read(content)
    assert header.value("after") == "z"
    tokens = header.value("tokens")
    assert isinstance(tokens, gguf.Array)
    assert gguf.read_array(Memory(content), header, tokens)[39:41] == ["w" * 39, ""]


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"GGUF", Truncated, "too short"),
        (b"GGML" + bytes(40), Corrupt, "not a GGUF"),
        (built([], version=1) + bytes(8), Unreadable, "version"),
        (built([], version=9), Corrupt, "version"),
        (built([], n_pairs=2**63), Corrupt, "key-value pairs that no file has"),
        (built([ARCHITECTURE], n_pairs=500), Truncated, "key-value pairs for which"),
        (built([ARCHITECTURE], n_tensors=2**63), Corrupt, "tensors that no file has"),
        (built([text("k") + struct.pack("<IQ", STRING, 500) + bytes(20)]), Truncated, "ends within the value of 'k'"),
        (built([array("k", gguf.U8, [b"a"] * 20, count=2**61)]), Corrupt, "claims a size that no file has"),
        (built([array("k", STRING, [text("a")] * 20, count=30)]), Truncated, "the array 'k'"),
        (built([pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 20)]), LimitExceeded, "nested too deeply"),
        (built([string("k", "a"), string("k", "b")]), Corrupt, "comes twice"),
        (built([ARCHITECTURE], TWO, TWO_DATA)[:-40], Truncated, "past the end"),
    ],
)
def test_refusals(content: bytes, error: type[ArtifactkitError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        read(content)
    assert caught.value.file == "a.gguf"


def test_a_file_of_a_hundred_bytes_cannot_make_it_loop() -> None:
    """An array that declares 2**40 elements of no size: there are none, and strings need eight bytes each."""
    for kind in (STRING, ARRAY, gguf.U8):
        with pytest.raises(Corrupt):
            read(built([array("k", kind, [bytes(20)], count=2**40)]))


@given(st.binary(max_size=200), st.integers(0, 400))
def test_anything_is_read_or_refused(junk: bytes, at: int) -> None:
    good = built([ARCHITECTURE, array("k", STRING, [text("a"), text("b")])], TWO, TWO_DATA)
    for content in (good[:at] + junk + good[at + len(junk) :], good[:at], junk):
        try:
            header = read(content)
        except ArtifactkitError:
            continue
        assert header.data_end <= len(content)
