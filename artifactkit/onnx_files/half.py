"""In the child process: a graph that computes in float16, by what each operator's schema allows.

Every float32 value becomes a float16 one. Where a schema takes or gives float32 only, a Cast stands before or behind
the node. Inputs and outputs of the model keep their types. Tensors are marked: their values are cast by who wrote the
marks; numbers in attributes are cast here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..children.server import Failed

FLOAT, FLOAT16 = 1, 10
STANDARD = ("", "ai.onnx")
GREATEST = 65504.0
OVERFLOW = 65520.0  # rounds to infinity from here on
# Attributes that name the type of an output.
TYPED = {
    "Cast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype", "RandomNormalLike": "dtype",
    "RandomUniformLike": "dtype", "Bernoulli": "dtype", "SequenceEmpty": "dtype", "BlackmanWindow": "output_datatype",
    "HannWindow": "output_datatype", "HammingWindow": "output_datatype", "MelWeightMatrix": "output_datatype",
    "DequantizeLinear": "output_dtype", "BitCast": "to",
}  # fmt: skip
# Those whose output is float32 when the attribute is not there.
DEFAULTS = {
    "RandomNormal": "dtype", "RandomUniform": "dtype", "SequenceEmpty": "dtype", "BlackmanWindow": "output_datatype",
    "HannWindow": "output_datatype", "HammingWindow": "output_datatype", "MelWeightMatrix": "output_datatype",
    "EyeLike": "dtype",
}  # fmt: skip


def to_half(model: Any, overflow: str, edges: bool) -> tuple[Any, list[list[object]]]:
    """The model in float16, and what became of numbers in attributes: [name, value, what]. Raises Failed.

    With ``edges`` the model's inputs and outputs become float16 too.
    """
    import onnx

    if model.functions:
        raise Failed(
            "the model defines operators of its own, whose types cannot be changed one by one", "refused",
            found=", ".join(sorted({f"{f.domain}::{f.name}" for f in model.functions})[:5]),
        )  # fmt: skip
    half = _Half(model, overflow, edges)
    for graph in _graphs(model.graph):
        for node in graph.node:
            half.schema(node)  # raises where there is none
    told = {value.name for value in model.graph.value_info}
    try:
        half.model = onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False)
    except (RuntimeError, ValueError, onnx.shape_inference.InferenceError) as error:
        raise Failed("the types of the graph's values cannot be inferred", "refused", found=str(error)[:300]) from error
    made, changes = half.run()
    kept = [value for value in made.graph.value_info if value.name in told]  # what was inferred was for us
    del made.graph.value_info[:]
    made.graph.value_info.extend(kept)
    return made, changes


class _Half:
    def __init__(self, model: Any, overflow: str, edges: bool) -> None:
        self.model, self.overflow, self.edges = model, overflow, edges
        self.opsets = {pair.domain: pair.version for pair in model.opset_import}
        self.names = {name for graph in _graphs(model.graph) for name in _all_names(graph)}
        self.floats: set[str] = set()  # values that were float32
        self.kept: set[str] = set()  # initialisers that stay float32: only such operators take them
        self.changes: list[list[object]] = []

    def run(self) -> tuple[Any, list[list[object]]]:
        import onnx

        graph = self.model.graph
        for inner in _graphs(graph):
            self.floats |= {value.name for value in (*inner.input, *inner.output, *inner.value_info) if _float(value)}
            self.floats |= {tensor.name for tensor in inner.initializer if tensor.data_type == FLOAT}
            if inner.sparse_initializer:
                raise Failed("the model holds sparse tensors, which stay as they are", "refused")
        self._keep()
        for inner in _graphs(graph):
            self._initialisers(inner)
        self._body(graph, {})
        if not self.edges:
            self._edges(graph)
        for inner in _graphs(graph):
            for value in (
                *inner.value_info,
                *(() if inner is graph and not self.edges else (*inner.input, *inner.output)),
            ):
                if value.name not in self.kept:
                    _halve(value)
        try:
            onnx.shape_inference.infer_shapes(self.model, check_type=True, strict_mode=False)
        except (RuntimeError, ValueError, onnx.shape_inference.InferenceError) as error:
            raise Failed("the graph does not compute in float16", "refused", found=str(error)[-300:]) from error
        return self.model, self.changes

    def _fresh(self, name: str) -> str:
        free, n = name, 1
        while free in self.names:
            n += 1
            free = f"{name}_{n}"
        self.names.add(free)
        return free

    def schema(self, node: Any) -> Any:
        import onnx

        domain = "" if node.domain in STANDARD else node.domain
        version = self.opsets.get(domain, self.opsets.get("ai.onnx", 0) if not domain else 0)
        try:
            return onnx.defs.get_schema(node.op_type, version, domain)
        except (onnx.defs.SchemaError, TypeError) as error:  # TypeError: a version that is no int32
            raise Failed(
                f"the types that {domain or 'ai.onnx'}::{node.op_type} takes are not known", "refused",
                found=f"node {node.name or (node.output[0] if node.output else '')}",
                hint="cast the model before operators of other domains are put in",
            ) from error  # fmt: skip

    def _wants_float(self, schema: Any, formals: Any, index: int) -> bool:
        """Whether the parameter at ``index`` can be float32 and cannot be float16."""
        if not formals:
            return False
        text = formals[min(index, len(formals) - 1)].type_str
        allowed = next((set(c.allowed_type_strs) for c in schema.type_constraints if c.type_param_str == text), {text})
        return "tensor(float)" in allowed and "tensor(float16)" not in allowed

    def _keep(self) -> None:
        """Constants that only operators take which have no float16 for them (Resize's scales) stay as they are."""
        wanted: set[str] = set()
        other: set[str] = set()
        held = {tensor.name for inner in _graphs(self.model.graph) for tensor in inner.initializer}
        held |= {node.output[0] for inner in _graphs(self.model.graph) for node in inner.node if _constant(node)}
        for inner in _graphs(self.model.graph):
            other |= {value.name for value in inner.output}
            for node in inner.node:
                schema = self.schema(node)
                for i, name in enumerate(node.input):
                    (wanted if self._wants_float(schema, schema.inputs, i) else other).add(name)
        self.kept = (wanted - other) & held & self.floats

    def _initialisers(self, graph: Any) -> None:
        for tensor in graph.initializer:
            if tensor.data_type == FLOAT and tensor.name not in self.kept:
                self._tensor(tensor)

    def _tensor(self, tensor: Any) -> None:
        """Another type for a marked tensor; one without elements has no mark."""
        tensor.data_type = FLOAT16
        for pair in tensor.external_data:
            if pair.key == "length":
                pair.value = str(int(pair.value) // 2)
        if tensor.data_location != 1:
            tensor.ClearField("float_data")
            tensor.raw_data = b""

    def _body(self, graph: Any, names: dict[str, str]) -> None:
        """A graph's nodes, with Casts where they are needed. ``names`` are values that go by another name now."""
        nodes: list[Any] = []
        for node in graph.node:
            nodes += self._node(node)
        del graph.node[:]
        graph.node.extend(nodes)

    def _node(self, node: Any) -> Iterator[Any]:
        from onnx import helper

        schema = self.schema(node)
        self._attributes(node)
        for i, name in enumerate(node.input):
            if name in self.floats and name not in self.kept and self._wants_float(schema, schema.inputs, i):
                wide = self._fresh(f"{name}_f32")
                yield helper.make_node("Cast", [name], [wide], name=self._fresh(f"{wide}_cast"), to=FLOAT)
                node.input[i] = wide
        after = []
        for i, name in enumerate(node.output):
            if name in self.floats and self._wants_float(schema, schema.outputs, i):
                wide = self._fresh(f"{name}_f32")
                after.append(helper.make_node("Cast", [wide], [name], name=self._fresh(f"{wide}_cast"), to=FLOAT16))
                node.output[i] = wide
        yield node
        yield from after

    def _attributes(self, node: Any) -> None:
        from onnx import helper

        key = TYPED.get(node.op_type) if node.domain in STANDARD else None
        named = False
        for attribute in list(node.attribute):
            if attribute.name == key:
                named = True
                if attribute.i == FLOAT:
                    attribute.i = FLOAT16
            if attribute.HasField("g"):
                self._body(attribute.g, {})
            for inner in attribute.graphs:
                self._body(inner, {})
            if node.output and node.output[0] in self.kept and _constant(node):
                continue
            if attribute.HasField("t") and attribute.t.data_type == FLOAT:
                self._tensor(attribute.t)
            if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                values = [attribute.f] if attribute.name == "value_float" else list(attribute.floats)
                dims = [] if attribute.name == "value_float" else [len(values)]
                tensor = helper.make_tensor("", FLOAT16, dims, self._numbers(node.output[0], values))
                node.attribute.remove(attribute)
                node.attribute.append(helper.make_attribute("value", tensor))
        if key is not None and not named and node.op_type in DEFAULTS and node.output[0] in self.floats:
            node.attribute.append(helper.make_attribute(key, FLOAT16))

    def _numbers(self, name: str, values: list[float]) -> list[float]:
        """Numbers that fit: those too large are refused, or become what was asked for."""
        import math

        import numpy as np

        out = []
        for value in values:
            if math.isfinite(value) and abs(value) >= OVERFLOW:
                if self.overflow == "refuse":
                    raise Failed(
                        "values too large for f16", "refused", tensor=name,
                        expected=f"at most {GREATEST:g} in magnitude", found=f"{value:g}, in an attribute",
                        hint="--overflow saturate|inf",
                    )  # fmt: skip
                self.changes.append([name, value, self.overflow])
                value = math.copysign(GREATEST if self.overflow == "saturate" else math.inf, value)
            elif value and float(np.float16(value)) == 0:
                self.changes.append([name, value, "zero"])
            out.append(value)
        return out

    def _edges(self, graph: Any) -> None:
        """Casts at the model's inputs and outputs, which keep their types."""
        from onnx import helper

        held = {tensor.name for tensor in graph.initializer}
        first, last, narrow = [], [], {}
        for value in graph.input:
            if _float(value) and value.name not in held:
                if value.type.WhichOneof("value") != "tensor_type":
                    raise Failed("an input is a sequence of floats, which cannot be cast", "refused", tensor=value.name)
                narrow[value.name] = self._fresh(f"{value.name}_f16")
                node = helper.make_node(
                    "Cast", [value.name], [narrow[value.name]], name=self._fresh(f"{value.name}_cast"), to=FLOAT16
                )
                first.append(node)
            elif value.name in held and value.name not in self.kept:
                _halve(value)
        _rename(graph, narrow, inputs_only=True)
        wide = {}
        for value in graph.output:
            if not _float(value):
                continue
            if value.type.WhichOneof("value") != "tensor_type":
                raise Failed("an output is a sequence of floats, which cannot be cast", "refused", tensor=value.name)
            source = narrow.get(value.name) or self._fresh(f"{value.name}_f16")
            if value.name not in narrow and value.name not in held:
                wide[value.name] = source
            elif value.name in held:
                raise Failed("an output of the model is one of its weights", "refused", tensor=value.name)
            else:
                raise Failed("an output of the model is one of its inputs", "refused", tensor=value.name)
            name = self._fresh(f"{value.name}_cast_out")
            last.append(helper.make_node("Cast", [source], [value.name], name=name, to=FLOAT))
        _rename(graph, wide, inputs_only=False)
        for value in graph.value_info:
            value.name = wide.get(value.name, value.name)
        nodes = [*first, *graph.node, *last]
        del graph.node[:]
        graph.node.extend(nodes)


def _constant(node: Any) -> bool:
    return node.op_type == "Constant" and node.domain in STANDARD


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph, and those in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
            for inner in attribute.graphs:
                yield from _graphs(inner)


def _all_names(graph: Any) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output, *graph.value_info))
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)


def _float_type(kind: Any) -> Any:
    """The tensor type of float32 in a type: itself, or what a sequence or an optional value is of; None if none is."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return kind.tensor_type if kind.tensor_type.elem_type == FLOAT else None
    if which in ("sequence_type", "optional_type"):
        return _float_type(getattr(kind, which).elem_type)
    return None


def _float(value: Any) -> bool:
    return _float_type(value.type) is not None


def _halve(value: Any) -> None:
    found = _float_type(value.type)
    if found is not None:
        found.elem_type = FLOAT16


def _rename(graph: Any, names: dict[str, str], *, inputs_only: bool) -> None:
    """Other names for values, in graphs within too: names are unique there."""
    if not names:
        return
    for inner in _graphs(graph):
        for node in inner.node:
            for i, name in enumerate(node.input):
                node.input[i] = names.get(name, name)
            if not inputs_only:
                for i, name in enumerate(node.output):
                    node.output[i] = names.get(name, name)
        if inner is not graph:
            for value in inner.output:
                value.name = names.get(value.name, value.name)
