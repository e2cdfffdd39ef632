"""Operations that cut a tensor, join several or set parts apart: lazy sources, cut out or one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..dtypes import numel
from ..errors import Corrupt
from ..report import Outcome
from ..source import Inline, Source, concat
from ..strided import view
from .config import Config
from .ops import Dim, Piece, only


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
        piece = only(pieces)
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
        piece = only(pieces)
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
        piece = only(pieces)
        groups, queries, size = self._layout(piece, config)
        row, whole = max(piece.row_bytes, 1), (queries + 2) * size
        parts = [
            view(piece.source, row, first * size, (groups, count * size), (whole, 1))
            for first, count in ((0, queries), (queries, 1), (queries + 1, 1))
        ]
        return [Piece(piece.dtype, piece.shape, concat(parts))]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = only(pieces)
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
        piece = only(pieces)
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
class Halves:
    """One tensor cut into two halves along its axis ``axis`` (0 or 1): experts' gate and up, kept in one tensor."""

    axis: int
    text: str = "split into halves"
    outcome: Outcome = "split"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = only(pieces)
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
        piece, skip = only(pieces), self._count(config)
        if not piece.shape or piece.shape[0] <= skip:
            raise Corrupt("the tensor has no row left", expected=f"more than {skip} rows", found=list(piece.shape))
        return [_rows(piece, skip, piece.shape[0] - skip)]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece, skip = only(pieces), self._count(config)
        zeros = Piece(
            piece.dtype, (skip, *piece.shape[1:]), Inline(bytes(skip * piece.row_bytes), piece.source.position)
        )
        return [_join([zeros, piece])]
