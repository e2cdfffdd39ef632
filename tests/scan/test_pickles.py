"""The judge of pickles: every name that CPython's unpickler would resolve is said or is data; the table is exact."""

from __future__ import annotations

import json
import pickle
import random
import struct
import subprocess
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator
from pathlib import Path

import pickle_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.files import Memory
from artifactkit.scan.model import FileReport
from artifactkit.scan.pickle_danger import reason
from artifactkit.scan.pickle_names import SAFE
from artifactkit.scan.pickle_words import looks_like
from artifactkit.scan.piece import Budget, Piece
from artifactkit.scan.scanner import look
from artifactkit.tensor_names import tensor_table


def judged(data: bytes, name: str = "a.pkl") -> FileReport:
    """The report on ``data`` as a file of this name."""
    report = FileReport(name)
    look(Piece(Memory(data), name, name, report, Budget(), look))
    return report


# -- the oracle: the C unpickler with inert stubs, in a process of its own


class Oracle:
    def __init__(self) -> None:
        command = [sys.executable, "-I", "-W", "ignore", str(Path(pickle_oracle.__file__))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def names(self, data: bytes) -> tuple[bool, set[tuple[str, str]]]:
        """Whether the program was loaded to its end, and the names that were resolved on the way."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(len(data).to_bytes(4, "little") + data)
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["ok"] is True, {(module, name) for module, name in answer["names"] if module}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    made = Oracle()
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(timeout=20)


MODULES = ("os", "my.models", "collections", "__builtin__", "commands", "torch", "builtins", "copy_reg", "functools")
NAMES = (
    "system",
    "Net",
    "OrderedDict",
    "eval",
    "set",
    "getattr",
    "type",
    "partial",
    "_reconstructor",
    "a.b",
    "float32",
)


def _short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def _sized(opcode: bytes, width: int, text: str) -> bytes:
    return opcode + len(text).to_bytes(width, "little") + text.encode()


module, attribute = st.sampled_from(MODULES), st.sampled_from(NAMES)
pair = st.tuples(module, attribute)
index = st.integers(0, 4).map(lambda n: bytes([n]))
OPERATIONS = st.one_of(
    pair.map(lambda p: f"c{p[0]}\n{p[1]}\n".encode()),
    pair.map(lambda p: f"(i{p[0]}\n{p[1]}\n".encode()),
    pair.map(lambda p: _short(p[0]) + _short(p[1]) + b"\x93"),
    pair.map(lambda p: f"V{p[0]}\nS'{p[1]}'\n".encode() + b"\x93"),
    pair.map(lambda p: _sized(b"X", 4, p[0]) + _sized(b"\x8d", 8, p[1]) + b"\x93"),
    pair.map(lambda p: _sized(b"U", 1, p[0]) + _sized(b"T", 4, p[1]) + b"\x93"),
    pair.map(lambda p: f"V\\u{ord(p[0][0]):04x}{p[0][1:]}\nS'\\x{ord(p[1][0]):02x}{p[1][1:]}'\n".encode() + b"\x93"),
    pair.map(lambda p: _short(p[1]) + b"\x940" + _short(p[0]) + b"\x940h\x01h\x00\x93"),
    module.map(_short),
    st.sampled_from([b"(", b")", b"]", b"}", b"N", b"K\x01", b"t", b"\x85", b"\x86", b"\x87", b"l", b"d", b"\x8f",
                     b"R", b"o", b"\x81", b"\x92", b"b", b"a", b"e", b"s", b"u", b"\x90", b"\x91", b"0", b"1", b"2",
                     b"\x93", b"\x94", b"Q", b"\x88", b"(tR", b")R", b")\x81", b"}b", b"0N"]),
    index.map(lambda n: b"h" + n),
    index.map(lambda n: b"q" + n),
    index.map(lambda n: b"g%d\n" % n[0]),
    index.map(lambda n: b"p%d\n" % n[0]),
    index.map(lambda n: b"r" + n + b"\0\0\0"),
    index.map(lambda n: b"j" + n + b"\0\0\0"),
    st.sampled_from([b"\x80\x02", b"\x80\x04", b"\x82\x07", b"Pa\n", b"\x95\x04\0\0\0\0\0\0\0", b"C\x02ab", b"."]),
)  # fmt: skip
PROGRAMS = st.tuples(st.sampled_from([b"", b"\x80\x02", b"\x80\x04"]), st.lists(OPERATIONS, max_size=14)).map(
    lambda parts: parts[0] + b"".join(parts[1]) + b"."
)


def said_or_data(report: FileReport, module: str, name: str) -> bool:
    """Whether the name, or what Python 3 makes of it, is data or stands in a finding."""
    for key in ((module, name), NAME_MAPPING.get((module, name)), (IMPORT_MAPPING.get(module, module), name)):
        if key is not None and (key in SAFE or any(f.name and ".".join(key) in f.name for f in report.findings)):
            return True
        if key == ("builtins", "type"):
            return True  # judged by its arguments: the type of None is data
        if key == ("builtins", "getattr") and report.verdict != "clean":
            return True  # judged as the name that it reaches
    return False


@settings(max_examples=700)
@given(data=PROGRAMS)
def test_no_name_that_the_unpickler_resolves_goes_unsaid(oracle: Oracle, data: bytes) -> None:
    whole, names = oracle.names(data)
    report = judged(data)
    for module, name in names:
        assert said_or_data(report, module, name), (module, name, report.findings)
    if not whole:
        assert report.verdict != "clean" or b"." in data[:-1], report.findings


@settings(max_examples=300)
@given(program=PROGRAMS, junk=st.binary(max_size=40))
def test_whatever_follows_a_payload_it_stays_malicious(program: bytes, junk: bytes) -> None:
    payload = b"cos\nsystem\n(S'echo'\ntR"
    assert judged(payload + program + junk).verdict == "malicious"
    assert judged(b"\x80\x02" + payload + junk).verdict == "malicious"


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_verdict(data: bytes) -> None:
    for name in ("a.pkl", "a.bin", "a"):
        assert judged(data, name).verdict in ("clean", "suspicious", "malicious", "unreadable")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.sets(st.integers())
    ),
    max_leaves=20,
)


@settings(max_examples=150)
@given(PLAIN, st.integers(0, 5))
def test_plain_values_are_clean(value: object, protocol: int) -> None:
    report = judged(pickle.dumps(value, protocol))
    assert report.verdict == "clean", report.findings


# -- files that are no pickles


def test_text_and_numbers_are_no_pickles() -> None:
    rng = random.Random(7)
    words = [f"{rng.choice('CNMKIJFGSUVTBXcPil(')}{'abcdefg'[: rng.randrange(1, 7)]}" for _ in range(2000)]
    texts = ["\n".join(words), " ".join(words), "\r\n".join(words), "Notes.\n" + " ".join(words), "(c) 2024. " * 30]
    for text in texts:
        for name in ("README", "vocab.txt", "merges.txt"):
            report = judged(text.encode(), name)
            assert report.verdict == "clean", (name, text[:40], report.findings)
    for text in ("class\ncode\nimport\n", "config\nsystem\nnetwork\n", "cat\nos\n", "(internal\nsystem\n"):
        assert judged(text.encode(), "words.txt").verdict == "clean", text
    for seed in range(400):
        rng = random.Random(seed)
        floats = struct.pack("<200f", *[rng.gauss(0, 1) for _ in range(200)])
        text = bytes(rng.choices(range(32, 127), k=300))
        for data in (floats, rng.randbytes(800), rng.randbytes(4) + bytes(500), text):
            report = judged(data, "weights.bin")
            assert report.verdict == "clean", (seed, data[:40], report.findings)
            assert report.formats == []


# -- the tables


def test_what_readers_take_for_data_is_data_here_too() -> None:
    assert set(tensor_table()) <= SAFE


def test_no_name_is_both_data_and_dangerous() -> None:
    assert [key for key in SAFE if reason(*key) is not None] == []


@pytest.mark.parametrize(
    ("module", "name", "known"),
    [
        ("os", "system", True),
        ("os.path", "join", True),
        ("osx", "system", True),  # the name alone says enough
        ("osx", "Net", False),
        ("asyncio.unix_events", "x", True),
        ("torch", "float32", False),
        ("torch.fx", "GraphModule", True),
        ("pathlib", "Path.write_text", True),
        ("my.models", "Model.load", False),
        ("my.models", "Model", False),
        ("code.models", "Net", True),
        ("profile_net", "Net", False),
    ],
)
def test_reasons(module: str, name: str, known: bool) -> None:
    assert (reason(module, name) is not None) == known


def test_look_alikes() -> None:
    assert looks_like("\u043es.system") == "os.system"
    assert looks_like("m\u00fcller.Net") is None


def test_storages_that_a_pickle_refers_to_are_known_to_the_archive() -> None:
    data = (
        b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ."
    )  # fmt: skip
    report = FileReport("a")
    piece = Piece(Memory(data), "a", "a", report, Budget(), look)
    look(piece)
    assert piece.stored == {"0": 16}
