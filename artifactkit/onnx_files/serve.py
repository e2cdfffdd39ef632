"""What the child process answers: the onnx library's view of a model, and what it makes of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..children import Json
from ..children.server import Failed
from ..children.server import main as serve
from .convert_opset import convert_opset
from .half import to_half

MANY = 2000  # tensors a frame


def _names(model: Any) -> Iterator[tuple[str, Any]]:
    """(name, TensorProto) of everything in the model, by the library's own classes: in the order of the file, those of
    the outermost graph first. The same rule as ours, and none of our code."""
    later: list[tuple[str, Any]] = []

    def of_node(node: Any) -> None:
        for attribute in node.attribute:
            stem = node.name or (node.output[0] if node.output else "") or node.op_type
            constant = node.op_type == "Constant" and attribute.name == "value" and node.output and node.output[0]
            name = node.output[0] if constant else f"{stem}.{attribute.name}"
            if attribute.HasField("t"):
                later.append((name, attribute.t))
            if attribute.HasField("g"):
                of_graph(attribute.g)
            later.extend((name, tensor) for tensor in attribute.tensors)
            for graph in attribute.graphs:
                of_graph(graph)

    def of_graph(graph: Any) -> None:
        for node in graph.node:
            of_node(node)
        later.extend((tensor.name, tensor) for tensor in graph.initializer)

    for node in model.graph.node:
        of_node(node)
    for training in model.training_info:
        of_graph(training.initialization)
        of_graph(training.algorithm)
    for function in model.functions:
        for node in function.node:
            of_node(node)
    yield from ((tensor.name, tensor) for tensor in model.graph.initializer)
    yield from later


def _length(tensor: Any) -> int:
    """Bytes of a tensor's data as the library has them, wherever they are. -1 where it does not say."""
    if tensor.data_location == 1:
        told = {pair.key: pair.value for pair in tensor.external_data}
        return int(told.get("length", -1))
    return len(tensor.raw_data) if tensor.HasField("raw_data") else -1


def check(path: str) -> Iterator[tuple[Json, bytes]]:
    """Every tensor that the library finds, and what its checker says. Data beside the model is not loaded."""
    import onnx

    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
        found = []
        for name, tensor in _names(model):
            told = {pair.key: pair.value for pair in tensor.external_data}
            place = [told.get("location"), int(told.get("offset", 0))]
            found.append([name, tensor.data_type, list(tensor.dims), _length(tensor), *place])
        del model
        onnx.checker.check_model(path)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise Failed("the onnx library refuses the model", found=str(error)[:500]) from error
    yield {"done": True}, json.dumps(found).encode()


def _parsed(payload: bytes) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return onnx.load_model_from_string(payload)
    except DecodeError as error:
        raise Failed("the onnx library does not read the model", found=str(error)[:300]) from error


def answer(asked: Json, payload: bytes) -> Iterator[tuple[Json, bytes]]:
    try:
        yield from _answer(asked, payload)
    except UnicodeDecodeError as error:
        raise Failed("a name in the model is no UTF-8", "refused", found=repr(error.object[:80])) from error


def _answer(asked: Json, payload: bytes) -> Iterator[tuple[Json, bytes]]:
    if asked["op"] == "check":
        yield from check(asked["path"])
    elif asked["op"] == "opset":
        yield {"done": True}, convert_opset(_parsed(payload), asked["opset"]).SerializeToString(deterministic=True)
    elif asked["op"] == "half":
        model, changes = to_half(_parsed(payload), asked["overflow"], asked["edges"])
        yield {"done": True, "changes": changes}, model.SerializeToString(deterministic=True)
    else:
        raise Failed(f"unknown request {asked['op']!r}", "usage")


def main() -> None:
    serve(answer)
