"""Importance matrices: how much each column of a matrix mattered in a run over a calibration text.

Two forms (llama.cpp, tools/imatrix): a GGUF file with ``NAME.in_sum2`` and ``NAME.counts`` for each tensor, and the
older binary one. Importance is the mean square of what entered a column; for experts, expert by expert.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from . import registry
from .artifact import TensorView
from .errors import Corrupt, Truncated, Unreadable
from .files import File
from .source import read_all
from .trees import open_file
from .types import ReadOptions

if TYPE_CHECKING:
    import numpy as np

SUMS, COUNTS = ".in_sum2", ".counts"
MAX_ENTRIES = 1 << 20
MAX_NAME = 1 << 12


def read_imatrix(path: str) -> dict[str, np.ndarray]:
    """The importance of each column by tensor name, as flat f32 arrays. Raises Corrupt or Truncated."""
    file = open_file(path)
    if file.read(0, min(4, file.size)) != b"GGUF":
        return _read_old(file)
    fmt, head = registry.sniff(path, "gguf")
    if fmt.read is None:
        raise Unreadable("this version does not read gguf", file=path)
    weights = fmt.read(head, ReadOptions())
    found = {}
    for name, tensor in weights.tensors.items():
        if name.endswith(SUMS):
            found[name.removesuffix(SUMS)] = _mean(tensor, weights.tensors.get(name.removesuffix(SUMS) + COUNTS), path)
    if not found:
        raise Unreadable(
            "no importance matrix", file=path, expected=f"tensors called NAME{SUMS} and NAME{COUNTS}",
            hint="llama-imatrix makes one from a calibration text",
        )  # fmt: skip
    return found


def _mean(sums: TensorView, counts: TensorView | None, path: str) -> np.ndarray:
    """Sums by how often: an expert that was never chosen counts as 1 everywhere, as llama-quantize has it."""
    import numpy as np

    if counts is None or sums.dtype.name != "f32" or counts.dtype.name != "f32":
        raise Corrupt("sums without counts, or of another type", file=path, tensor=sums.name, expected="f32")
    values = np.frombuffer(read_all(sums.source), "<f4")
    number = np.frombuffer(read_all(counts.source), "<f4")
    if not number.size or values.size % number.size:
        raise Corrupt(
            "sums and counts do not fit", file=path, tensor=sums.name, expected=f"a multiple of {number.size}",
            found=values.size,
        )  # fmt: skip
    if not (number >= 0).all():
        raise Corrupt("a count that is none", file=path, tensor=counts.name, found=f"{float(number.min())}")
    rows = values.reshape(number.size, -1)
    many = number[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(many > 0, rows / many, np.float32(1)).astype("<f4").reshape(-1)


def _read_old(file: File) -> dict[str, np.ndarray]:
    """The binary form: number of entries; for each its name, number of calls, number of values, values."""
    import numpy as np

    at = 0

    def number(what: str, most: int) -> int:
        nonlocal at
        (value,) = struct.unpack("<i", file.read(at, 4))
        if not 0 < value <= most:
            raise Corrupt(f"{what} is out of bounds", file=file.path, offset=at, expected=f"1 to {most}", found=value)
        at += 4
        return int(value)

    found: dict[str, np.ndarray] = {}
    for _ in range(number("the number of entries", MAX_ENTRIES)):
        length = number("the length of a name", MAX_NAME)
        name = file.read(at, length).decode("utf-8", "backslashreplace")
        at += length
        calls = number("the number of calls", 2**31 - 1)
        count = number("the number of values", 2**31 - 1)
        if count * 4 > file.size - at:
            raise Truncated("the file ends within an entry", file=file.path, offset=at, expected=4 * count)
        if name in found:
            raise Corrupt("an entry comes twice", file=file.path, tensor=name)
        found[name] = np.frombuffer(file.read(at, 4 * count), "<f4") / np.float32(calls)
        at += 4 * count
    return found
