"""Whether two graphs are one: their inputs and outputs, their operations, and all else but the bytes of tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ..artifact import Graph, Value, Weights
from ..onnx_files.structure import Place, Splicer, Structure
from ..report import Check
from ..source import CHUNK

SHOWN = 5


def digest(graph: Graph) -> str:
    """sha256 of the model without metadata and with a mark for each tensor: wherever its bytes lie, it is the same."""
    structure = graph.model
    assert isinstance(structure, Structure)
    views = {name: slot.view for name, slot in structure.slots.items()}
    order = sorted(structure.slots, key=lambda name: structure.slots[name].tensor.offset)
    places = {name: Place("", number) for number, name in enumerate(order)}
    found = hashlib.sha256()
    for source, _ in Splicer(structure, views, places, {}).pieces():
        for at in range(0, source.nbytes, CHUNK):
            block = bytearray(min(CHUNK, source.nbytes - at))
            source.read_into(at, memoryview(block))
            found.update(block)
    return found.hexdigest()


def differences(a: Graph, b: Graph) -> list[tuple[str, str, str]]:
    """(what, in a, in b), in words; the last resort is that the nodes differ. Empty where the graphs are one."""
    if digest(a) == digest(b):
        return []
    found: list[tuple[str, str, str]] = []
    said: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
        ("opset", a.opsets, b.opsets), ("operator", a.operators, b.operators), ("fact", a.facts, b.facts),
    )  # fmt: skip
    for what, mine, other in said:
        for key in sorted({*mine, *other}):
            left, right = mine.get(key), other.get(key)
            if left != right:
                found.append((f"{what} {key}", _text(left), _text(right)))
    for role, values, others in (("input", a.inputs, b.inputs), ("output", a.outputs, b.outputs)):
        named, theirs = ({value.name: value for value in listed} for listed in (values, others))
        for name in sorted({*named, *theirs}):
            if named.get(name) != theirs.get(name):
                found.append((f"{role} {name}", _value(named.get(name)), _value(theirs.get(name))))
    return found or [("nodes", "", "others, or joined in another way")]


def _text(value: object) -> str:
    return "absent" if value is None else str(value)[:60]


def _value(value: Value | None) -> str:
    return "absent" if value is None else f"{value.type} {list(value.dims) if value.dims is not None else ''}".strip()


def check(made: Weights, source: Weights) -> list[Check]:
    """Level 1 of a graph: what it does must be what its source does. Nothing to say where one is no graph."""
    if made.graph is None or source.graph is None:
        return []
    found = differences(source.graph, made.graph)
    if not found:
        nodes = sum(made.graph.operators.values())
        return [Check("accounting", "graph", "passed", f"{nodes} nodes, inputs and outputs as in the source")]
    shown = "; ".join(f"{what}: {left or 'some'} -> {right}" for what, left, right in found[:SHOWN])
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return [Check("accounting", "graph", "failed", f"not the source's: {shown}{more}")]
