"""What is done to a tensor's bytes between two worlds, as lazy sources, and how each is undone.

An operation takes pieces (type, shape, source) and gives pieces. Nothing is read here: a row order is a strided view
whose element is a row. Here are those of one tensor; ``parts`` has those that cut and join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..dtypes import BY_NAME, DType, numel
from ..errors import Corrupt, RouteRefused
from ..report import Outcome
from ..source import Mapped, Source
from ..strided import view
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


def only(pieces: list[Piece]) -> Piece:
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
        piece = only(pieces)
        return [Piece(piece.dtype, piece.shape, reorder(piece, self._resolved(piece, config), self.order))]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = only(pieces)
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
        piece = only(pieces)
        if len(piece.shape) < 2:
            raise Corrupt("only a matrix can be transposed", expected="two dimensions or more", found=list(piece.shape))
        shape, strides = list(piece.shape), _strides(piece.shape)
        shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
        source = view(piece.source, piece.dtype.itemsize, 0, tuple(shape), tuple(strides))
        return [Piece(piece.dtype, tuple(shape), source)]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return self.forward(pieces, config)


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
        return self._to(only(pieces), self.dims, config)

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        return self._to(only(pieces), self.back, config)


@dataclass(frozen=True, slots=True)
class Shift:
    """1 added to every value: a norm that multiplies by (1 + w) becomes one that multiplies by w. Computed in f32.

    Undone, a value is what it was wherever 1 + w has an f32 of its own: all bf16 weights above 2^-16 in magnitude, and
    f32 weights to within 2^-24.
    """

    text: str = "1 added: the norm multiplies by 1 + w"
    outcome: Outcome = "shifted"

    def forward(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = as_f32(only(pieces))
        label = "shift 1"
        return [Piece(piece.dtype, piece.shape, Mapped(piece.source, numel(piece.shape), 4, 4, _plus_one, label))]

    def inverse(self, pieces: list[Piece], config: Config) -> list[Piece]:
        piece = as_f32(only(pieces))
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
