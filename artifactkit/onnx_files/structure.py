"""A model taken apart: everything but the tensors' bytes stays where it is, and tensors can be put elsewhere.

A message that holds something of another length needs another length itself, and so on outwards: those few bytes are
written anew, and the rest is taken from the model as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..artifact import TensorView
from ..containers.onnx_wire import M_METADATA, Tensor
from ..containers.protobuf import LENGTH, VARINT, Wire
from ..files import Bytes
from ..source import Inline, Source, span
from .elements import NUMBERS, size

SMALL = 4096  # bytes that are copied into memory rather than remembered as a place
# A run of the model: its bytes, and the tensor whose they are.
Piece = tuple[Source, str | None]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one tensor stands in the model: its message, and how that says where the bytes are."""

    tensor: Tensor
    view: TensorView


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's bytes shall be: in the model, or in ``file`` at ``offset``."""

    file: str | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Structure:
    """A model, and the tensors that can be put elsewhere, by name.

    ``users`` are the node and the operator that take an initialiser whose own name says nothing. ``elsewhere`` are
    tensors that stay in the model and cannot be had from it: (name, what it is).
    """

    data: Bytes
    slots: dict[str, Slot]
    users: dict[str, tuple[str, str]] = field(default_factory=dict)
    elsewhere: tuple[tuple[str, str], ...] = ()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def message(number: int, content: bytes) -> bytes:
    """A field of bytes, text or message."""
    return tag(number, LENGTH) + varint(len(content)) + content


def pair(number: int, key: str, value: str) -> bytes:
    """A StringStringEntryProto."""
    return message(
        number,
        message(1, encoded(key)) + message(2, encoded(value)),
    )


def encoded(text: str) -> bytes:
    """Bytes of a text that was read with ``surrogateescape``: what is no UTF-8 stays what it is."""
    return text.encode("utf-8", "surrogateescape")


class Splicer:
    """Puts a model together again around the tensors ``views``, each where ``places`` says.

    ``metadata`` replaces the model's own; None leaves it.
    """

    def __init__(
        self,
        structure: Structure,
        views: Mapping[str, TensorView],
        places: Mapping[str, Place],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.data, self.metadata = structure.data, metadata
        self.wire = Wire(structure.data)
        self.edits = sorted(
            ((slot.tensor, self._content(slot, views[name], places[name])) for name, slot in structure.slots.items()),
            key=lambda edit: edit[0].offset,
        )
        self.starts = [tensor.offset for tensor, _ in self.edits]

    def pieces(self) -> list[Piece]:
        """The model from its first byte to its last."""
        out = self._message(0, self.data.size, 0, len(self.edits), outermost=True)
        for key, value in sorted((self.metadata or {}).items()):
            out.append((Inline(pair(M_METADATA, key, value)), None))
        return joined(out)

    def _own(self, start: int, end: int) -> list[Piece]:
        """The model's own bytes between two offsets."""
        if start >= end:
            return []
        if end - start <= SMALL:
            return [(Inline(self.data.read(start, end - start)), None)]
        return [(span(self.data, start, end - start), None)]

    def _content(self, slot: Slot, view: TensorView, place: Place) -> list[Piece]:
        """A TensorProto's fields. One that stays as it was keeps its bytes, the order of the fields included."""
        tensor = slot.tensor
        same = view.dtype == slot.view.dtype and view.shape == slot.view.shape
        if place.file is None and tensor.raw is not None and same:
            start, nbytes = tensor.raw
            return [*self._own(tensor.offset, start), (view.source, view.name), *self._own(start + nbytes, tensor.end)]
        head = b"".join(tag(1, VARINT) + varint(n) for n in view.shape)
        head += tag(2, VARINT) + varint(NUMBERS[view.dtype.name])
        if tensor.name:
            head += message(8, encoded(tensor.name))
        rest = [piece for start, end in tensor.rest for piece in self._own(start, end)]
        if place.file is None:
            head += tag(9, LENGTH) + varint(view.nbytes)
            return [(Inline(head), None), (view.source, view.name), *rest]
        for key, value in (
            ("location", place.file),
            ("offset", place.offset),
            ("length", size(view.dtype, view.shape)),
        ):
            head += pair(13, key, str(value))
        head += tag(14, VARINT) + varint(1)
        return [(Inline(head), None), *rest]

    def _message(self, start: int, end: int, first: int, last: int, *, outermost: bool = False) -> list[Piece]:
        """A message with the edits ``first`` to ``last`` in it."""
        out: list[Piece] = []
        copied = start
        for number, kind, a, b in self.wire.fields(start, end):
            if kind != LENGTH:
                continue
            begin = self.wire.begin
            if outermost and number == M_METADATA and self.metadata is not None:
                out += self._own(copied, begin)
                copied = b
                continue
            if first == last or self.starts[first] >= b:
                continue
            until = bisect_left(self.starts, b, first, last)
            tensor, content = self.edits[first]
            inner = content if (tensor.offset, tensor.end) == (a, b) else self._message(a, b, first, until)
            out += self._own(copied, begin)
            head = tag(number, LENGTH) + varint(sum(source.nbytes for source, _ in inner))
            out.append((Inline(head), None))
            out += inner
            copied, first = b, until
        return out + self._own(copied, end)


def joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours that are in memory, as one."""
    out: list[Piece] = []
    held: list[bytes] = []

    def flush() -> None:
        if held:
            out.append((Inline(b"".join(held)), None))
            held.clear()

    for source, name in pieces:
        if name is None and isinstance(source, Inline):
            held.append(source.data)
        else:
            flush()
            out.append((source, name))
    flush()
    return out
