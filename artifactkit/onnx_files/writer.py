"""Writing an ONNX model: the graph as it is, around the tensors that it is given; all in one file, or data beside it.

In a folder the model is ``model.onnx`` and its data, when it has some, ``model.onnx.data``: written once, nothing in it
that no tensor names but the zeros before large tensors, which begin on a page.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..artifact import TensorView, Weights
from ..errors import RouteRefused, UsageError
from ..types import SUMMARY_PREFIX, OutputFile, Part, WriteOptions
from .elements import NUMBERS
from .structure import Piece, Place, Slot, Splicer, Structure

MODEL, DATA = "model.onnx", ".data"
LARGEST = (1 << 31) - 1  # bytes of a protobuf message
INSIDE = 1 << 28  # bytes of tensors that a folder's model keeps in itself, when nothing is asked
LEAST = 1 << 10  # bytes from which a tensor is put outside then
LEAST_CONSTANT = 1 << 20  # and from which one in a node is: runtimes look at those when they load
PAGE, ALIGNED = 4096, 1 << 20  # tensors from the second on begin on a page, so that they can be mapped


def write(weights: Weights, options: WriteOptions) -> list[OutputFile]:
    """The model, and the files of its data. No tensor byte is read. Raises RouteRefused and UsageError."""
    if weights.graph is None or not isinstance(weights.graph.model, Structure):
        raise RouteRefused("the weights come without a graph", hint="export the model from its own code")
    structure = weights.graph.model
    views: dict[str, TensorView] = {**{name: alias.view for name, alias in weights.aliases.items()}, **weights.tensors}
    for view in views.values():
        if view.dtype.name not in NUMBERS:
            raise RouteRefused(f"ONNX has no element type {view.dtype}", tensor=view.name)
    least = options.external_data
    if least is not None and not options.folder:
        raise UsageError(
            "--external-data makes several files, the destination is one file", hint="give a folder as destination"
        )
    name = MODEL if options.folder else options.name
    if options.folder and least is None and sum(view.nbytes for view in weights) > INSIDE:
        least = LEAST
    places, files = _outside(structure, weights, views, name, least, options.max_shard_size)
    pieces = Splicer(structure, views, places, _metadata(weights, options)).pieces()
    model = _file(name, pieces, set(weights.tensors))
    if model.size > LARGEST:
        raise RouteRefused(
            "an ONNX model with its data inside is at most 2 GiB", expected=f"at most {LARGEST} bytes",
            found=f"{model.size} bytes", hint="give a folder as destination: its data then stands in a file beside it",
        )  # fmt: skip
    return [model, *files]


def _metadata(weights: Weights, options: WriteOptions) -> dict[str, str] | None:
    """The metadata, where they are not the model's own. What an earlier conversion said of itself goes."""
    if options.summary is None:
        return None
    kept = {key: value for key, value in weights.metadata.items() if not key.startswith(SUMMARY_PREFIX)}
    return {**kept, **options.summary.metadata()}


def _outside(
    structure: Structure,
    weights: Weights,
    views: Mapping[str, TensorView],
    model: str,
    least: int | None,
    most: int | None,
) -> tuple[dict[str, Place], list[OutputFile]]:
    """Where each tensor goes, and the data files, of at most ``most`` bytes where one tensor is not larger."""
    places = dict.fromkeys(views, Place())
    if least is None:
        return places, []
    chosen = [
        name
        for name, slot in sorted(structure.slots.items(), key=lambda item: item[1].tensor.offset)
        if name in weights.tensors and views[name].nbytes >= max(1, _least(slot, least))
    ]
    groups: list[tuple[list[Part], int]] = [([], 0)]
    at_in: dict[str, tuple[int, int]] = {}
    for name in chosen:
        view = views[name]
        parts, end = groups[-1]
        at = -(-end // PAGE) * PAGE if view.nbytes >= ALIGNED else end
        if most is not None and parts and at + view.nbytes > most:
            parts, at = [], 0
            groups.append((parts, 0))
        parts.append(Part(at, view.source, name))
        groups[-1] = (parts, at + view.nbytes)
        at_in[name] = (len(groups) - 1, at)
    if not at_in:
        return places, []
    count = len(groups)
    stem = model.removesuffix(".onnx")
    names = [f"{stem}-{n:05}-of-{count:05}.onnx{DATA}" for n in range(1, count + 1)] if count > 1 else [model + DATA]
    for name, (group, at) in at_in.items():
        places[name] = Place(names[group], at)
    for name, alias in weights.aliases.items():
        places[name] = places[alias.target]
    return places, [OutputFile(name, size, tuple(parts)) for name, (parts, size) in zip(names, groups, strict=True)]


def _least(slot: Slot, least: int) -> int:
    """From how many bytes on a tensor goes outside. Small integers stay: shapes and axes are looked at by everybody."""
    if slot.tensor.role != "initializer":
        return max(least, LEAST_CONSTANT)
    return least if slot.view.dtype.cls in ("float", "complex") else max(least, LEAST)


def _file(name: str, pieces: list[Piece], stored: set[str]) -> OutputFile:
    """One file of the pieces in a row. A tied tensor's second copy has no name of its own in it."""
    parts: list[Part] = []
    at = 0
    for source, tensor in pieces:
        parts.append(Part(at, source, tensor if tensor in stored else None))
        at += source.nbytes
    return OutputFile(name, at, tuple(parts))
