"""Indices of sparse tensors, checked against the size: loaders have taken wrong ones, and native code then reads and
writes beyond its memory (CVE-2026-24747)."""

from __future__ import annotations

import array
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from ..errors import ArtifactkitError
from ..files import Bytes
from ..pickles import Global
from .pickle_values import Made, Stored

MAX_INDICES = 4 << 20  # elements of one index tensor that are read
COMPRESSED = {"torch.sparse_csr": False, "torch.sparse_csc": True, "torch.sparse_bsr": False, "torch.sparse_bsc": True}


class View(Made):
    """A tensor that views a storage: ``offset``, ``size`` and ``stride`` count elements."""

    __slots__ = ("offset", "size", "storage", "stride")

    def __init__(self, callee: Global, storage: Stored, offset: int, size: tuple[int, ...], stride: tuple[int, ...]):
        super().__init__(callee)
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride


class Sparse(NamedTuple):
    """One sparse tensor as its pickle describes it."""

    layout: str
    parts: tuple[object, ...]
    offset: int


def view_of(args: tuple[object, ...], callee: Global) -> Made:
    """A View when the arguments of a rebuild function describe one, else a plain value."""
    if len(args) >= 4 and isinstance(args[0], Stored) and isinstance(args[1], int):
        size, stride = args[2], args[3]
        if isinstance(size, tuple) and isinstance(stride, tuple) and all(type(n) is int for n in size + stride):
            return View(callee, args[0], args[1], size, stride)
    return Made(callee)


def sparse_of(args: tuple[object, ...], offset: int) -> Sparse | None:
    """What ``_rebuild_sparse_tensor(layout, data)`` describes; None when it is not understood."""
    if len(args) < 2 or not isinstance(args[1], tuple):
        return None
    layout = args[0]
    name = layout if isinstance(layout, str) else layout.full if isinstance(layout, Global) else ""
    return Sparse(name, args[1], offset)


def numbers(view: object, read: Callable[[str], Bytes | None]) -> list[int] | None:
    """The elements of an index tensor, in order; None when they cannot be had or are too many."""
    if not isinstance(view, View) or view.storage.callee.name not in ("LongStorage", "IntStorage"):
        return None
    count = 1
    for n in view.size:
        count *= n
    plain: list[int] = []
    step = 1
    for n in reversed(view.size):
        plain.append(step)
        step *= max(n, 1)
    data = read(view.storage.key)
    width = view.storage.itemsize
    contiguous = all(n <= 1 or have == want for n, have, want in zip(view.size, view.stride, plain[::-1], strict=False))
    if data is None or not contiguous or not 0 <= count <= MAX_INDICES:
        return None
    try:
        raw = data.read(view.offset * width, count * width)
    except ArtifactkitError:
        return None
    out = array.array("q" if width == 8 else "i", raw)
    if sys.byteorder == "big":
        out.byteswap()
    return out.tolist()


def wrong(found: Sparse, read: Callable[[str], Bytes | None]) -> str | None:
    """What is wrong with the indices; None when nothing is, or they cannot be read."""
    parts = found.parts
    if found.layout == "torch.sparse_coo" and len(parts) >= 3:
        return _coordinates(parts[0], parts[2], read)
    if found.layout in COMPRESSED and len(parts) >= 4:
        return _compressed(parts[0], parts[1], parts[2], parts[3], COMPRESSED[found.layout], read)
    return None


def _size(value: object) -> tuple[int, ...] | None:
    if isinstance(value, tuple) and all(type(n) is int for n in value):
        return value
    return None


def _coordinates(indices: object, size: object, read: Callable[[str], Bytes | None]) -> str | None:
    dims, values = _size(size), numbers(indices, read)
    if dims is None or values is None or not isinstance(indices, View) or len(indices.size) != 2:
        return None
    rank, count = indices.size
    if rank > len(dims):
        return f"indices of {rank} dimensions for a tensor of {len(dims)}"
    for dim in range(rank):
        row = values[dim * count : (dim + 1) * count]
        if row and not (min(row) >= 0 and max(row) < dims[dim]):
            return f"an index of {max(row)} or {min(row)} in a dimension of {dims[dim]}"
    return None


def _compressed(
    ends: object, plain: object, values: object, size: object, columns: bool, read: Callable[[str], Bytes | None]
) -> str | None:
    dims, rows, others = _size(size), numbers(ends, read), numbers(plain, read)
    if dims is None or len(dims) != 2 or rows is None or others is None:
        return None
    blocks = values.size[1:] if isinstance(values, View) and len(values.size) == 3 else (1, 1)
    along, across = (1, 0) if columns else (0, 1)
    if len(rows) != dims[along] // max(blocks[along], 1) + 1:
        return f"{len(rows)} row ends for a size of {dims[along]}"
    if rows[0] != 0 or rows[-1] != len(others) or any(a > b for a, b in pairwise(rows)):
        return "the row ends do not count the indices"
    limit = dims[across] // max(blocks[across], 1)
    if others and not (min(others) >= 0 and max(others) < limit):
        return f"an index of {max(others)} or {min(others)} in a dimension of {limit}"
    return None
