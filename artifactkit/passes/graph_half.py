"""``--dtype f16`` of a graph: its operations compute in float16, its inputs and outputs keep their types."""

from __future__ import annotations

from dataclasses import replace

from ..artifact import Weights
from ..onnx_files.rewrite import rewritten
from ..onnx_files.structure import Structure
from ..report import Loss, LossKind

KINDS: dict[str, tuple[LossKind, str]] = {
    "zero": ("value-underflow", "became zero"),
    "saturate": ("value-saturated", "was saturated"),
    "inf": ("value-infinite", "became infinite"),
}


def half(weights: Weights, overflow: str, edges: bool = False) -> tuple[Weights, frozenset[str]]:
    """(the graph in float16, names of the tensors that are float32 still and are float16 in it).

    Casting those is another pass. ``overflow`` is what becomes of numbers in attributes that are too large: "refuse",
    "saturate", "inf"; with ``edges`` inputs and outputs change their types too. Raises RouteRefused for operators whose
    types are not known, MissingExtra without the library.
    """
    request = {"op": "half", "overflow": overflow, "edges": edges}
    after, said = rewritten(weights, request, "the graph computes in f16", floats=False)
    assert after.graph is not None and isinstance(after.graph.model, Structure)
    slots = after.graph.model.slots
    cast = frozenset(name for name, view in after.tensors.items() if view.dtype != slots[name].view.dtype)
    losses = list(after.losses)
    for name, value, what in said["changes"]:
        kind, text = KINDS[what]
        losses.append(Loss(kind, f"{value:g} in an attribute {text}", tensor=name, asked=what != "zero"))
    return replace(after, losses=losses), cast
