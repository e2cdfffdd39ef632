"""A model changed by a library that never sees its weights.

The library gets the model with a mark in the place of each large tensor, and what it makes of that is read again: where
a mark stands, the tensor's bytes are those of the source. What is small stays, since operators are changed by it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..artifact import Dropped, Step, TensorView, Weights
from ..children import Json
from ..containers.onnx_wire import Tensor
from ..errors import Corrupt, LimitExceeded, RouteRefused
from ..files import Memory
from ..source import Source, read_all
from . import library, reader
from .structure import Place, Splicer, Structure

MARK = "artifactkit"  # location of external data that is a mark; its offset is the tensor's number
SMALL = 1024  # bytes that a library may look at
LARGEST = 512 << 20  # bytes of a model without its tensors


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A model's bytes with marks in it, and the tensors that they stand for, by number."""

    data: bytes
    marked: tuple[TensorView, ...]


def skeleton(weights: Weights, *, floats: bool) -> Skeleton:
    """The model without its large tensors; without ``floats`` also without any tensor of floats, however small."""
    structure = _structure(weights)
    marked: list[TensorView] = []
    places: dict[str, Place] = {}
    for name, view in weights.tensors.items():
        if view.nbytes <= SMALL and (floats or view.dtype.cls != "float") or not view.nbytes:
            places[name] = Place()
        else:
            places[name] = Place(MARK, len(marked))
            marked.append(view)
    pieces = Splicer(structure, weights.tensors, places).pieces()
    nbytes = sum(source.nbytes for source, _ in pieces)
    if nbytes > LARGEST:
        raise LimitExceeded(
            "the graph alone is larger than any model's", expected=f"at most {LARGEST} bytes", found=f"{nbytes} bytes"
        )
    return Skeleton(b"".join(read_all(source) for source, _ in pieces), tuple(marked))


def _structure(weights: Weights) -> Structure:
    if weights.graph is None or not isinstance(weights.graph.model, Structure):
        raise RouteRefused("the weights come without a graph")
    return weights.graph.model


def rewritten(
    weights: Weights, request: Mapping[str, object], why: str, *, floats: bool = True
) -> tuple[Weights, Json]:
    """``weights`` with the graph that the library makes at ``request``; and what it says of it.

    Tensors keep their bytes, and their types too where the library has changed those: that is left to the caller, who
    finds the new type in the structure. ``why`` stands in the ledger for what is new or gone. Raises MissingExtra,
    RouteRefused and RunFailed.
    """
    library.need()
    path = weights.files[0] if weights.files else ""
    bare = skeleton(weights, floats=floats)
    said, data = library.ask(dict(request), path, bare.data)
    found: dict[str, TensorView] = {}

    def outside(tensor: Tensor, name: str, nbytes: int) -> Source:
        pairs = dict(tensor.external)
        number = int(pairs.get("offset", "-1"))
        if pairs.get("location") != MARK or not 0 <= number < len(bare.marked):
            raise Corrupt("the onnx library gave back a tensor that it was not given", file=path, tensor=name)
        found[name] = bare.marked[number]
        return found[name].source

    after = reader.read(Memory(data, path), path, outside)
    tensors = {name: _traced(view, found.get(name), weights.tensors, path, why) for name, view in after.tensors.items()}
    used = {origin for tensor in tensors.values() for origin in tensor.came_from()}
    gone = [
        Dropped(name, why, view.nbytes, asked=True)
        for name, view in weights.tensors.items()
        if not used.issuperset(view.came_from())
    ]
    return replace(weights, tensors=tensors, graph=after.graph, dropped=[*weights.dropped, *gone]), said


def _traced(
    view: TensorView, marked: TensorView | None, before: Mapping[str, TensorView], path: str, why: str
) -> TensorView:
    """The tensor as what it was before, if it was one; else one that was made."""
    if marked is not None:
        return marked.renamed(view.name, why)
    old = before.get(view.name)
    if old is not None and (old.dtype, old.shape) == (view.dtype, view.shape):
        if read_all(old.source) == read_all(view.source):  # it is small
            return old
    return replace(view, origins=(os.path.basename(path) or "graph",), steps=(Step("made", why),))
