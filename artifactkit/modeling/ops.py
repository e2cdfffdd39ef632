"""What is done to a tensor's bytes between two worlds, as lazy sources, and how each is undone.

An operation takes pieces (type, shape, source) and gives pieces. Nothing is read here: a row order is a strided view
whose element is a row, stacked experts are sources one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..dtypes import BY_NAME, DType, numel
from ..errors import Corrupt, RouteRefused
from ..report import Outcome
from ..source import Inline, Mapped, Source, concat, view
from .config import Config

Dim = int | str  # a size, or the config key that holds it


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor without a name."""

    dtype: DType
    shape: tuple[int, ...]
    source: Source

    @property
    def row_bytes(self) -> int:
        """Bytes of one slice along the first axis."""
        return self.dtype.nbytes(self.shape[1:])


class Op(Protocol):
    """One operation and its inverse. ``outcome`` and ``text`` are what the ledger says of it."""

    @property
    def outcome(self) -> Outcome: ...

    @property
    def text(self) -> str: ...

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]: ...

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]: ...


def _one(pieces: list[Piece]) -> Piece:
    if len(pieces) != 1:
        raise TypeError("an operation for one tensor was given several")  # a fault in a family's table
    return pieces[0]


def _strides(shape: Sequence[int]) -> list[int]:
    out = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        out[i] = out[i + 1] * shape[i + 1]
    return out


def reorder(piece: Piece, dims: Sequence[int], order: Sequence[int]) -> Source:
    """The rows of ``piece`` seen as ``dims`` and read in the axis order ``order``."""
    strides = _strides(dims)
    return view(
        piece.source, max(piece.row_bytes, 1), 0, tuple(dims[i] for i in order), tuple(strides[i] for i in order)
    )


@dataclass(frozen=True, slots=True)
class Regroup:
    """Rows as an array of ``dims`` (one may be -1), its axes put in the order ``order``. The shape stays."""

    dims: tuple[Dim, ...]
    order: tuple[int, ...]
    text: str
    outcome: Outcome = "permuted"

    def _resolved(self, piece: Piece, config: Config) -> list[int]:
        known = [config.dim(d) if d != -1 else -1 for d in self.dims]
        product = 1
        for d in known:
            product *= d if d > 0 else 1
        rows = piece.shape[0] if piece.shape else 0
        if rows % product or (-1 not in known and rows != product):
            raise Corrupt(
                "the rows do not divide as the config says", expected=f"a multiple of {product} rows", found=rows
            )
        return [d if d > 0 else rows // product for d in known]

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        return [Piece(piece.dtype, piece.shape, reorder(piece, self._resolved(piece, config), self.order))]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        dims = self._resolved(piece, config)
        back = [self.order.index(i) for i in range(len(dims))]
        return [Piece(piece.dtype, piece.shape, reorder(piece, [dims[i] for i in self.order], back))]


def rotary(heads: str) -> Regroup:
    """Rows of a query or key matrix from transformers' order (all first halves, then all second) to ggml's pairs."""
    return Regroup((heads, 2, -1), (0, 2, 1), "rotary halves of each head interleaved")


@dataclass(frozen=True, slots=True)
class Transpose:
    """The last two axes exchanged."""

    text: str = "transposed"
    outcome: Outcome = "transposed"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        if len(piece.shape) < 2:
            raise Corrupt("only a matrix can be transposed", expected="two dimensions or more", found=list(piece.shape))
        shape, strides = list(piece.shape), _strides(piece.shape)
        shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
        source = view(piece.source, piece.dtype.itemsize, 0, tuple(shape), tuple(strides))
        return [Piece(piece.dtype, tuple(shape), source)]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return self.forward(pieces, config)


@dataclass(frozen=True, slots=True)
class Stack:
    """Tensors of one shape become one with a new first axis: the experts of a layer."""

    text: str = "stacked"
    outcome: Outcome = "merged"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        first = pieces[0]
        for piece in pieces[1:]:
            if piece.shape != first.shape or piece.dtype != first.dtype:
                raise Corrupt(
                    "tensors that are stacked differ in shape or type", expected=f"{first.dtype} {list(first.shape)}",
                    found=f"{piece.dtype} {list(piece.shape)}",
                )  # fmt: skip
        source = concat([piece.source for piece in pieces])
        return [Piece(first.dtype, (len(pieces), *first.shape), source)]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        size = piece.row_bytes
        rows = range(piece.shape[0])
        return [Piece(piece.dtype, piece.shape[1:], part(piece.source, i * size, size)) for i in rows]


def part(source: Source, offset: int, nbytes: int) -> Source:
    """``nbytes`` bytes from ``offset`` of a source, as plainly as can be."""
    if nbytes == source.nbytes:
        return source
    if nbytes == 0:
        return Inline(b"", source.position)
    return view(source, 1, offset, (nbytes,), (1,))


@dataclass(frozen=True, slots=True)
class Split:
    """One tensor cut along its first axis as the parts' ``sizes`` say."""

    sizes: tuple[Dim, ...]
    text: str = "split"
    outcome: Outcome = "split"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        sizes = [config.dim(s) for s in self.sizes]
        if not piece.shape or sum(sizes) != piece.shape[0]:
            raise Corrupt("the rows are not as many as the config says", expected=sum(sizes), found=list(piece.shape))
        out, at = [], 0
        for size in sizes:
            out.append(_rows(piece, at, size))
            at += size
        return out

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return [_join(pieces)]


def _rows(piece: Piece, first: int, count: int) -> Piece:
    size = piece.row_bytes
    return Piece(piece.dtype, (count, *piece.shape[1:]), part(piece.source, first * size, count * size))


def _join(pieces: list[Piece]) -> Piece:
    first = pieces[0]
    if any(p.dtype != first.dtype or p.shape[1:] != first.shape[1:] for p in pieces):
        raise Corrupt("tensors that are joined differ in shape or type")
    rows = sum(p.shape[0] for p in pieces)
    return Piece(first.dtype, (rows, *first.shape[1:]), concat([p.source for p in pieces]))


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows in groups of some queries, one key and one value each, put as all queries, then keys, then values.

    ``groups`` counts the groups of a config, ``heads`` names the key that counts the queries of all.
    """

    groups: Callable[[Config], int]
    heads: str
    text: str = "queries, keys and values of each group set apart"
    outcome: Outcome = "permuted"

    def _layout(self, piece: Piece, config: Config) -> tuple[int, int, int]:
        """(groups, queries a group, rows a head)."""
        groups, heads = self.groups(config), config.count(self.heads)
        rows = piece.shape[0] if piece.shape else 0
        if heads % groups or rows % (heads + 2 * groups):
            raise Corrupt("the rows do not divide into groups of heads", expected=f"{heads} + 2 x {groups}", found=rows)
        return groups, heads // groups, rows // (heads + 2 * groups)

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        groups, queries, size = self._layout(piece, config)
        row, whole = max(piece.row_bytes, 1), (queries + 2) * size
        parts = [
            view(piece.source, row, first * size, (groups, count * size), (whole, 1))
            for first, count in ((0, queries), (queries, 1), (queries + 1, 1))
        ]
        return [Piece(piece.dtype, piece.shape, concat(parts))]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        groups, queries, size = self._layout(piece, config)
        head = size * piece.row_bytes
        starts = (0, groups * queries * head, groups * (queries + 1) * head)
        parts = [
            part(piece.source, start + group * count * head, count * head)
            for group in range(groups)
            for start, count in zip(starts, (queries, 1, 1), strict=True)
        ]
        return [Piece(piece.dtype, piece.shape, concat(parts))]


@dataclass(frozen=True, slots=True)
class HeadSplit:
    """Rows of every head cut in two: [heads x (first + second), n] as [heads, first, n] and [heads, second, n]."""

    heads: Dim
    first: Dim
    second: Dim
    text: str = "keys and values of each head set apart"
    outcome: Outcome = "split"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        heads, first, second = config.dim(self.heads), config.dim(self.first), config.dim(self.second)
        if not piece.shape or piece.shape[0] != heads * (first + second):
            raise Corrupt(
                "the rows are not as many as the config says", expected=heads * (first + second),
                found=list(piece.shape),
            )  # fmt: skip
        row = max(piece.row_bytes, 1)
        return [
            Piece(
                piece.dtype, (heads, size, *piece.shape[1:]),
                view(piece.source, row, start, (heads, size), (first + second, 1)),
            )
            for start, size in ((0, first), (first, second))
        ]  # fmt: skip

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        a, b = pieces
        if a.shape[0] != b.shape[0] or a.shape[2:] != b.shape[2:] or a.dtype != b.dtype:
            raise Corrupt("keys and values differ in shape or type", expected=list(a.shape), found=list(b.shape))
        parts = [part(p.source, h * p.row_bytes, p.row_bytes) for h in range(a.shape[0]) for p in pieces]
        return [Piece(a.dtype, (a.shape[0] * (a.shape[1] + b.shape[1]), *a.shape[2:]), concat(parts))]


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation on one of several pieces."""

    index: int
    op: Op

    @property
    def text(self) -> str:
        return self.op.text

    @property
    def outcome(self) -> Outcome:
        return self.op.outcome

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return self._at(self.op.forward, pieces, config)

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return self._at(self.op.inverse, pieces, config)

    def _at(
        self, run: Callable[[list[Piece], Config], list[Piece]], pieces: list[Piece], config: Config
    ) -> list[Piece]:
        i = self.index
        return [*pieces[:i], *run([pieces[i]], config), *pieces[i + 1 :]]


@dataclass(frozen=True, slots=True)
class Halves:
    """One tensor cut into two halves along its axis ``axis`` (0 or 1): experts' gate and up, kept in one tensor."""

    axis: int
    text: str = "split into halves"
    outcome: Outcome = "split"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = _one(pieces)
        if len(piece.shape) <= self.axis or piece.shape[self.axis] % 2:
            raise Corrupt("the tensor does not halve", expected=f"an even axis {self.axis}", found=list(piece.shape))
        half = list(piece.shape)
        half[self.axis] //= 2
        outer = numel(tuple(half[: self.axis]))
        inner = piece.dtype.nbytes(tuple(half[self.axis :]))
        out = []
        for i in range(2):
            source = view(piece.source, max(inner, 1), i, (outer,), (2,))
            out.append(Piece(piece.dtype, tuple(half), source))
        return out

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        first, second = pieces
        if first.shape != second.shape or first.dtype != second.dtype:
            raise Corrupt("two halves differ in shape or type", expected=list(first.shape), found=list(second.shape))
        outer = numel(first.shape[: self.axis])
        inner = first.dtype.nbytes(first.shape[self.axis :])
        parts = [part(p.source, i * inner, inner) for i in range(outer) for p in pieces]
        whole = list(first.shape)
        whole[self.axis] *= 2
        return [Piece(first.dtype, tuple(whole), concat(parts))]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Another shape for the same bytes. ``dims`` of the target and ``back`` of the source; one may be -1."""

    dims: tuple[Dim, ...]
    back: tuple[Dim, ...]
    text: str = "reshaped"
    outcome: Outcome = "reshaped"

    def _to(self, piece: Piece, dims: tuple[Dim, ...], config: Config) -> list[Piece]:
        known = [config.dim(d) if d != -1 else -1 for d in dims]
        product, count = 1, numel(piece.shape)
        for d in known:
            product *= d if d > 0 else 1
        if count % product or (-1 not in known and count != product):
            raise Corrupt("the tensor has not the shape that the config says", expected=known, found=list(piece.shape))
        shape = tuple(d if d > 0 else count // product for d in known)
        return [Piece(piece.dtype, shape, piece.source)]

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return self._to(_one(pieces), self.dims, config)

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return self._to(_one(pieces), self.back, config)


@dataclass(frozen=True, slots=True)
class Shift:
    """1 added to every value: a norm that multiplies by (1 + w) becomes one that multiplies by w. Computed in f32.

    Undone, a value is what it was wherever 1 + w has an f32 of its own: all bf16 weights above 2^-16 in magnitude, and
    f32 weights to within 2^-24.
    """

    text: str = "1 added: the norm multiplies by 1 + w"
    outcome: Outcome = "shifted"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = as_f32(_one(pieces))
        label = "shift 1"
        return [Piece(piece.dtype, piece.shape, Mapped(piece.source, numel(piece.shape), 4, 4, _plus_one, label))]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = as_f32(_one(pieces))
        label = "shift -1"
        return [Piece(piece.dtype, piece.shape, Mapped(piece.source, numel(piece.shape), 4, 4, _minus_one, label))]


def _plus_one(data: memoryview, out: memoryview) -> None:
    _add(data, out, 1.0)


def _minus_one(data: memoryview, out: memoryview) -> None:
    _add(data, out, -1.0)


def _add(data: memoryview, out: memoryview, amount: float) -> None:
    import numpy as np

    np.add(np.frombuffer(data, "<f4"), np.float32(amount), out=np.frombuffer(out, "<f4"))


def as_f32(piece: Piece) -> Piece:
    """The same values as f32, which holds those of f16 and bf16 exactly."""
    from ..casting import cast_block

    f32 = BY_NAME["f32"]
    if piece.dtype == f32:
        return piece
    if piece.dtype.name not in ("f16", "bf16"):
        raise RouteRefused(
            f"a tensor of {piece.dtype} has no place in GGUF", expected="f32, f16 or bf16", found=piece.dtype.name,
            hint="cast it first: artifactkit convert with --dtype f32 to safetensors",
        )  # fmt: skip
    was = piece.dtype

    def widen(data: memoryview, out: memoryview) -> None:
        cast_block(data, out, was, f32)

    label = f"cast {was} -> f32 refuse"
    source = Mapped(piece.source, numel(piece.shape), was.itemsize, 4, widen, label)
    return Piece(f32, piece.shape, source)


@dataclass(frozen=True, slots=True)
class SkipRows:
    """The first rows left out: positions that the model never looks up. Undone, they are zeros."""

    count: Dim
    plus: int
    text: str
    outcome: Outcome = "cut"

    def _count(self, config: Config) -> int:
        value = config[self.count] if isinstance(self.count, str) else self.count
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 20:
            raise config.wrong(str(self.count), "a whole number")
        return value + self.plus

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece, skip = _one(pieces), self._count(config)
        if not piece.shape or piece.shape[0] <= skip:
            raise Corrupt("the tensor has no row left", expected=f"more than {skip} rows", found=list(piece.shape))
        return [_rows(piece, skip, piece.shape[0] - skip)]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece, skip = _one(pieces), self._count(config)
        zeros = Piece(
            piece.dtype, (skip, *piece.shape[1:]), Inline(bytes(skip * piece.row_bytes), piece.source.position)
        )
        return [_join([zeros, piece])]
