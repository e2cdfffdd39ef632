"""The .npy header: as numpy writes it, in all versions, and every way in which it can be no header."""

from __future__ import annotations

import io
import random
import struct

import numpy as np
import pytest

from artifactkit.containers.npy import MAGIC, Descr, parse_descr, read_header
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated, Unreadable
from artifactkit.files import Memory


def written(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version, allow_pickle=True)
    return buffer.getvalue()


def header(text: str, version: int = 1) -> Memory:
    body = text.encode("latin-1")
    size = struct.pack("<H" if version == 1 else "<I", len(body))
    return Memory(MAGIC + bytes([version, 0]) + size + body)


FIELDS = np.dtype([("a", "<f4"), ("b", "<i2", (2, 3)), ("c", [("d", "|u1")])])
TITLED = np.dtype({"names": ["n"], "formats": ["<f8"], "titles": ['it\'s "titled"']})


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype="<f4").reshape(2, 3), np.asfortranarray(np.zeros((2, 3))), np.array(1.5), np.zeros((0, 4)),
     np.zeros(3, FIELDS), np.zeros(3, TITLED), np.zeros(2, ">i8"), np.array([None, 1], dtype=object),
     np.zeros(2, "<U5"), np.zeros(1, "<M8[ns]")],
    ids=lambda a: str(a.dtype)[:20],
)  # fmt: skip
def test_reads_what_numpy_wrote(array: np.ndarray, version: tuple[int, int]) -> None:
    raw = written(array, version)
    got = read_header(Memory(raw))
    assert got.version == version
    assert got.shape == array.shape
    assert got.descr == np.lib.format.dtype_to_descr(array.dtype)
    assert got.fortran_order == (array.flags.f_contiguous and not array.flags.c_contiguous)
    if not array.dtype.hasobject:
        assert len(raw) - got.data_offset == array.nbytes == got.count * array.dtype.itemsize


def test_unicode_field_names() -> None:
    got = read_header(Memory(written(np.zeros(1, np.dtype([("ü\u2603", "<f4")])), (3, 0))))
    assert got.descr == [("ü\u2603", "<f4")]


def test_what_python_2_wrote() -> None:
    got = read_header(header("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 2L), }   \n"))
    assert got.shape == (3, 2)


@pytest.mark.parametrize(
    ("descr", "want"),
    [("<f4", ("f", 4, False)), (">f4", ("f", 4, True)), ("|b1", ("b", 1, False)), ("|O", ("O", 0, False)),
     ("<U5", ("U", 20, False)), ("|S3", ("S", 3, False)), ("|V2", ("V", 2, False)), ("<M8[ns]", ("M", 8, False)),
     ("?", ("b", 1, False)), ("<x4", None), ("f4f4", None), ("", None), ([("a", "<f4")], None), (3, None)],
)  # fmt: skip
def test_descr(descr: object, want: tuple[str, int, bool] | None) -> None:
    got = parse_descr(descr)
    assert got == (None if want is None else Descr(*want, str(descr)))


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{'descr': '<f4'}", GOOD + "x", GOOD + ", 1", GOOD.replace("(3,)", "(-1,)"),
     GOOD.replace("(3,)", "(True,)"), GOOD.replace("(3,)", "[3]"), GOOD.replace("(3,)", "(3)"),
     GOOD.replace("(3,)", f"({'1,' * 65})"), GOOD.replace("False", "0"), GOOD.replace("False", "None"),
     GOOD.replace("'<f4'", "__import__('os')"), GOOD.replace("'<f4'", "(" * 200 + ")" * 200),
     "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", GOOD.replace("(3,)", "(1.5,)"),
     GOOD.replace("'<f4'", "'\\q'"), "{1: 2}", GOOD.replace("}", ", 'more': 1}"), GOOD.replace("(3,)", "(3 3)"),
     GOOD.replace("(3,)", "(999999999999999999999999,)")],
)  # fmt: skip
def test_what_is_no_header_is_corrupt(text: str) -> None:
    assert read_header(header(GOOD)).shape == (3,)
    with pytest.raises(Corrupt):
        read_header(header(text))


def test_sizes_that_lie() -> None:
    with pytest.raises(LimitExceeded):
        read_header(Memory(MAGIC + b"\2\0\xff\xff\xff\xff" + b"x" * 100))
    with pytest.raises(Truncated):
        read_header(Memory(MAGIC + b"\1\0\xff\xff{"))
    with pytest.raises(Unreadable, match="version"):
        read_header(Memory(MAGIC + b"\x09\0\x01\0{" + b" " * 20))


def test_whatever_is_changed_only_our_errors_come() -> None:
    rng = random.Random(4)
    base = written(np.zeros(3, FIELDS))
    for _ in range(3000):
        raw = bytearray(base[: rng.choice([len(base), rng.randrange(len(base))])])
        for _ in range(rng.randrange(4)):
            if raw:
                raw[rng.randrange(min(len(raw), 130))] = rng.choice(b"'\"{}[]()\\,:0L" + bytes([rng.randrange(256)]))
        try:
            read_header(Memory(bytes(raw)))
        except ArtifactkitError:
            pass
