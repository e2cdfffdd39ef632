"""extract_weights: a graph's initialisers and constants, as named tensors without their graph.

Names are the graph's own. Exporters that fold something into a weight give it a number (``onnx::MatMul_12``,
``val_3``); the node that takes it still says whose it was: ``/encoder/layer.0/query/MatMul`` is
``encoder.layer.0.query.weight``.
Values stay as the graph has them, which for the matrix of a linear layer is transposed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..artifact import Step, TensorView, Weights
from ..dtypes import BY_NAME
from ..onnx_files.structure import Structure
from ..onnx_files.widen import widened
from ..report import Loss
from ..types import Lowering

# The operators whose second input is what a module calls its weight.
WEIGHTED = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})
_SCOPE = re.compile(r"/(.+)/[A-Za-z]\w*$")
WIDER = {"i4": "i8", "i2": "i8", "u4": "u8", "u2": "u8"}
NUMBERED = "named by the node that takes it; its values stay as the graph has them"


def run(weights: Weights) -> Weights:
    """The tensors without the graph, renamed where their own name says nothing. No tensor byte is read."""
    graph = weights.graph
    if graph is None or not isinstance(graph.model, Structure):
        return weights
    names = _names(graph.model, weights)
    tensors: dict[str, TensorView] = {}
    for name, tensor in weights.tensors.items():
        view = tensor.renamed(names.get(name, name), NUMBERED)
        tensors[view.name] = _whole_bytes(view)
    losses = list(weights.losses)
    for name, what in graph.model.elsewhere:
        losses.append(Loss("tensor-dropped", f"{what} is not extracted", tensor=name))
    notes = list(weights.notes)
    if names:
        some = ", ".join(f"{old} -> {new}" for old, new in sorted(names.items())[:3])
        notes.append(
            f"{len(names)} weights are named by the nodes that take them ({some}{', ...' if len(names) > 3 else ''}); "
            "a linear layer's matrix stands transposed there"
        )
    return replace(weights, tensors=tensors, losses=losses, notes=notes, graph=None)


def _names(model: Structure, weights: Weights) -> dict[str, str]:
    """New names for those that are numbers, where the node that takes them says one that nobody has."""
    found: dict[str, str] = {}
    taken = set(weights.tensors)
    for name, (node, operator) in model.users.items():
        scope = _SCOPE.fullmatch(node)
        if name not in weights.tensors or operator not in WEIGHTED or scope is None:
            continue
        new = scope[1].replace("/", ".") + ".weight"
        if new not in taken:
            taken.add(new)
            found[name] = new
    return found


def _whole_bytes(view: TensorView) -> TensorView:
    """Integers of fewer than eight bits as bytes: formats of weights have no type for them."""
    wider = WIDER.get(view.dtype.name)
    if wider is None:
        return view
    step = Step("cast", f"{view.dtype} -> {wider}")
    source = widened(view.source, view.dtype, view.numel)
    return replace(view, dtype=BY_NAME[wider], source=source, origins=view.came_from(), steps=(*view.steps, step))


LOWERING = Lowering("extract_weights", "graph", "weights", "the tensors of a graph, without the graph", run)
