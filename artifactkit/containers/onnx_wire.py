"""ONNX models as protobuf messages on the wire: walked by offset, no tensor byte is read, nothing is built.

Field numbers are those of onnx.proto3 (onnx/onnx.proto, IR version 14); the wire format is protobuf's ("Encoding").
``walk`` goes over everything that a runtime would look at: the graph, the graphs in attributes, sparse tensors,
training information and model-local functions. It tells a ``Visitor`` what it meets and keeps one node at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import Corrupt, LimitExceeded
from ..files import Bytes
from .protobuf import LENGTH, MAX_DEPTH, MAX_STRING, VARINT, Wire, signed

MAX_ENTRIES = 4096  # (key, value) pairs of one tensor, dimensions, inputs: what is kept of one message

# ModelProto
M_IR_VERSION, M_PRODUCER, M_PRODUCER_VERSION, M_DOMAIN, M_MODEL_VERSION, M_DOC, M_GRAPH, M_OPSETS = range(1, 9)
M_METADATA, M_TRAINING, M_FUNCTIONS = 14, 20, 25
FIRST = frozenset(b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca\xd2")  # of the tags of ModelProto's fields
ABOUT = {
    M_IR_VERSION: "ir_version", M_PRODUCER: "producer", M_PRODUCER_VERSION: "producer_version", M_DOMAIN: "domain",
    M_MODEL_VERSION: "model_version",
}  # fmt: skip
ONCE = {2: "data_type", 8: "name", 9: "raw_data", 14: "data_location"}  # of TensorProto
PACKED = (4, 5, 7, 10, 11)  # float_data, int32_data, int64_data, double_data, uint64_data
STANDARD = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"})
# Compiled into ONNX Runtime (onnxruntime/core/graph/constants.h): no further library is needed.
BUILT_IN = frozenset({
    "com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "com.microsoft.dml", "com.ms.internal.nhwc",
})  # fmt: skip
# AttributeProto.type of those that hold code, or tensors
ATTRIBUTE_FIELDS_TENSOR, ATTRIBUTE_FIELDS_GRAPH, ATTRIBUTE_FIELDS_SPARSE = (5, 10), (6, 11), (22, 23)


@dataclass(slots=True)
class Tensor:
    """A TensorProto. ``external`` are its (key, value) pairs in order, duplicates included; ``place`` says where it is.

    ``raw`` is (offset, nbytes) in the file of ``raw_data``. ``location`` is 1 for data in another file. ``offset`` and
    ``end`` are where the message lies. ``packed`` are runs of typed data, (field, offset, nbytes); ``loose`` names a
    field of those that is written element by element. ``rest`` are the fields that say nothing of the data, (offset,
    end). ``node`` is the one that has it in its ``attribute``; both are complete once the walk is. ``again`` names a
    field that came twice, which readers that take the first and those that take the last see differently.
    """

    name: str = ""
    dims: tuple[int, ...] = ()
    data_type: int = 0
    location: int = 0
    external: list[tuple[str, str]] = field(default_factory=list)
    raw: tuple[int, int] | None = None
    place: str = ""
    offset: int = 0
    end: int = 0
    role: str = "initializer"  # or attribute, sparse
    packed: list[tuple[int, int, int]] = field(default_factory=list)
    loose: int = 0
    strings: int = 0
    segment: bool = False
    rest: list[tuple[int, int]] = field(default_factory=list)
    node: Node | None = None
    attribute: str = ""
    again: str = ""


@dataclass(slots=True)
class Node:
    """A NodeProto, without its tensors and graphs, which are visited by themselves.

    ``inputs`` and ``outputs`` are there for a visitor that asks for ``wires``.

    ``strings`` are the string attributes, (attribute, offset, nbytes); ``integers`` (attribute, value). ``twice`` names
    a field that readers which take the first and those which take the last would see differently.
    """

    name: str = ""
    op_type: str = ""
    domain: str = ""
    overload: str = ""
    strings: list[tuple[str, int, int]] = field(default_factory=list)
    integers: list[tuple[str, int]] = field(default_factory=list)
    place: str = ""
    offset: int = 0
    twice: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A FunctionProto: a model-local operator. Its nodes are visited by themselves."""

    name: str = ""
    domain: str = ""
    overload: str = ""
    offset: int = 0


class Visitor:
    """What a caller wants to know. Each method may be left as it is. ``wires``: whether names of values are wanted."""

    wires = False

    def about(self, key: str, value: str) -> None: ...
    def value(self, role: str, name: str, elem_type: int, dims: tuple[int | str | None, ...] | None) -> None: ...
    def opset(self, domain: str, version: int) -> None: ...
    def metadata(self, key: str, value: str) -> None: ...
    def node(self, node: Node) -> None: ...
    def tensor(self, tensor: Tensor) -> None: ...
    def function(self, function: Function) -> None: ...
    def twice(self, what: str, offset: int) -> None: ...


def looks_like_model(data: Bytes, first: bytes) -> bool:
    """Whether the outermost message is one with a graph and an IR version, or opsets. Reads a few bytes."""
    if not first or first[0] not in FIRST:
        return False
    wire = Wire(data)
    seen: set[int] = set()
    try:
        for count, (number, kind, start, end) in enumerate(wire.fields(0, data.size)):
            if count > 100_000:
                break
            if number == M_IR_VERSION and (kind != VARINT or start > 1 << 16):
                return False
            if number == M_GRAPH and (kind != LENGTH or not _is_graph(wire, start, end)):
                return False
            if number == M_OPSETS and kind != LENGTH:
                return False
            seen.add(number)
    except Corrupt:
        return M_IR_VERSION in seen and M_GRAPH in seen
    return M_GRAPH in seen and (M_IR_VERSION in seen or M_OPSETS in seen)


def _is_graph(wire: Wire, start: int, end: int) -> bool:
    """Whether the first field of a message is one of GraphProto's."""
    for number, kind, _, _ in wire.fields(start, end):
        return kind == LENGTH and number in (1, 2, 5, 10, 11, 12, 13, 14, 15, 16)
    return True


def walk(data: Bytes, visitor: Visitor) -> None:
    """Go over the whole model. Raises Truncated, Corrupt or LimitExceeded with the offset."""
    _Walk(Wire(data), visitor).model()


class _Walk:
    def __init__(self, wire: Wire, visitor: Visitor) -> None:
        self.wire, self.visitor = wire, visitor
        self.depth = 0

    def model(self) -> None:
        wire, seen, repeated = self.wire, set[int](), False
        for number, kind, start, end in wire.fields(0, wire.size):
            if kind != LENGTH:
                if kind == VARINT and number in ABOUT and self.visitor.wires:
                    self.visitor.about(ABOUT[number], str(start))
                continue
            if number == M_GRAPH:
                if M_GRAPH in seen and not repeated:
                    self.visitor.twice("graph", start)
                    repeated = True
                seen.add(M_GRAPH)
                self.graph(start, end, "graph")
            elif number == M_OPSETS:
                self._opset(start, end)
            elif number in ABOUT and self.visitor.wires:
                self.visitor.about(ABOUT[number], wire.text(start, min(end, start + MAX_STRING)))
            elif number == M_METADATA:
                self.visitor.metadata(*self._pair(start, end))
            elif number == M_TRAINING:
                self._training(start, end)
            elif number == M_FUNCTIONS:
                self._function(start, end)
        if M_GRAPH not in seen:
            raise Corrupt("an ONNX model without a graph", file=wire.file, offset=0)

    def _opset(self, start: int, end: int) -> None:
        domain, version = "", 0
        for number, kind, a, b in self.wire.fields(start, end):
            if number == 1 and kind == LENGTH:
                domain = self.wire.text(a, b)
            elif number == 2 and kind == VARINT:
                version = a
        self.visitor.opset(domain, version)

    def _pair(self, start: int, end: int) -> tuple[str, str]:
        key = value = ""
        for number, kind, a, b in self.wire.fields(start, end):
            if kind == LENGTH and number == 1:
                key = self.wire.text(a, b)
            elif kind == LENGTH and number == 2:
                value = self.wire.text(a, min(b, a + MAX_STRING))
        return key, value

    def _training(self, start: int, end: int) -> None:
        for number, kind, a, b in self.wire.fields(start, end):
            if kind == LENGTH and number in (1, 2):
                self.graph(a, b, "training")

    def _deeper(self, at: int, by: int) -> None:
        self.depth += by
        if self.depth > MAX_DEPTH:
            raise LimitExceeded("messages nested too deeply", file=self.wire.file, offset=at)

    def graph(self, start: int, end: int, place: str) -> None:
        self._deeper(start, 1)
        for number, kind, a, b in self.wire.fields(start, end):
            if kind != LENGTH:
                continue
            if number == 1:
                self._node(a, b, place)
            elif number == 5:
                self._tensor(a, b, place)
            elif number == 15:
                self._sparse(a, b, place)
            elif number in (11, 12) and place == "graph" and self.visitor.wires:
                self._value("input" if number == 11 else "output", a, b)
        self.depth -= 1

    def _value(self, role: str, start: int, end: int) -> None:
        """A ValueInfoProto: its name, and type and dimensions where it is a tensor. -1 is what is no tensor."""
        name, elem_type, dims = "", -1, None
        for number, kind, a, b in self.wire.fields(start, end):
            if kind == LENGTH and number == 1:
                name = self.wire.text(a, b)
            elif kind == LENGTH and number == 2:
                for inner, inner_kind, c, d in self.wire.fields(a, b):
                    if inner_kind == LENGTH and inner == 1:
                        elem_type, dims = self._tensor_type(c, d)
        self.visitor.value(role, name, elem_type, dims)

    def _tensor_type(self, start: int, end: int) -> tuple[int, tuple[int | str | None, ...] | None]:
        elem_type, dims = 0, None
        for number, kind, a, b in self.wire.fields(start, end):
            if number == 1 and kind == VARINT:
                elem_type = a
            elif number == 2 and kind == LENGTH:
                found: list[int | str | None] = []
                for inner, inner_kind, c, d in self.wire.fields(a, b):
                    if inner != 1 or inner_kind != LENGTH:
                        continue
                    if len(found) >= MAX_ENTRIES:
                        raise LimitExceeded("a value of thousands of dimensions", file=self.wire.file, offset=start)
                    found.append(self._dimension(c, d))
                dims = tuple(found)
        return elem_type, dims

    def _dimension(self, start: int, end: int) -> int | str | None:
        for number, kind, a, b in self.wire.fields(start, end):
            if number == 1 and kind == VARINT:
                return signed(a)
            if number == 2 and kind == LENGTH:
                return self.wire.text(a, b) or None
        return None

    def _function(self, start: int, end: int) -> None:
        function = Function(offset=start)
        self._deeper(start, 1)
        for number, kind, a, b in self.wire.fields(start, end):
            if kind != LENGTH:
                continue
            if number == 1:
                function.name = self.wire.text(a, b)
            elif number == 10:
                function.domain = self.wire.text(a, b)
            elif number == 13:
                function.overload = self.wire.text(a, b)
            elif number == 7:
                self._node(a, b, f"function {function.name}")
            elif number == 11:  # default values of attributes
                self._attribute(a, b, Node(place=f"function {function.name}"))
            elif number == 9:
                self._opset(a, b)
        self.depth -= 1
        self.visitor.function(function)

    def _node(self, start: int, end: int, place: str) -> None:
        node = Node(place=place, offset=start)
        wire = self.wire
        self._deeper(start, 1)
        seen = 0
        for number, kind, a, b in wire.fields(start, end):
            if kind != LENGTH:
                continue
            if number == 5:
                self._attribute(a, b, node)
            elif number in (1, 2):
                if self.visitor.wires:
                    (node.inputs if number == 1 else node.outputs).append(wire.text(a, b))
            elif number in (3, 4, 7, 8):
                text = wire.text(a, b)
                if seen >> number & 1 and number != 3:
                    node.twice = {4: "op_type", 7: "domain", 8: "overload"}[number]
                seen |= 1 << number
                if number == 3:
                    node.name = text
                elif number == 4:
                    node.op_type = text
                elif number == 7:
                    node.domain = text
                else:
                    node.overload = text
        self.depth -= 1
        self.visitor.node(node)

    def _attribute(self, start: int, end: int, node: Node) -> None:
        """Fields may come in any order, and the name last: what is found is told once it is known."""
        wire = self.wire
        self._deeper(start, 1)
        name = ""
        strings: list[tuple[int, int]] = []
        tensors: list[Tensor] = []
        for number, kind, a, b in wire.fields(start, end):
            if kind == LENGTH:
                if number == 1:
                    name = wire.text(a, b)
                elif number in (4, 9):
                    strings.append((a, b - a))
                elif number in ATTRIBUTE_FIELDS_TENSOR:
                    tensor = self._tensor(a, b, node.place, "attribute", node)
                    if self.visitor.wires:
                        tensors.append(tensor)
                elif number in ATTRIBUTE_FIELDS_GRAPH:
                    self.graph(a, b, f"{node.place} > {node.op_type or 'node'}"[:200])
                elif number in ATTRIBUTE_FIELDS_SPARSE:
                    self._sparse(a, b, node.place)
            elif kind == VARINT and number == 3 and len(node.integers) < MAX_ENTRIES:
                node.integers.append((name, a))
        self.depth -= 1
        for tensor in tensors:
            tensor.attribute = name
        node.strings.extend((name, a, n) for a, n in strings[: max(0, MAX_ENTRIES - len(node.strings))])

    def _sparse(self, start: int, end: int, place: str) -> None:
        self._deeper(start, 1)
        for number, kind, a, b in self.wire.fields(start, end):
            if kind == LENGTH and number in (1, 2):
                self._tensor(a, b, place, "sparse")
        self.depth -= 1

    def _tensor(self, start: int, end: int, place: str, role: str = "initializer", node: Node | None = None) -> Tensor:
        tensor = Tensor(place=place, offset=start, end=end, role=role, node=node)
        dims: list[int] = []
        wire = self.wire
        self._deeper(start, 1)
        seen = 0
        for number, kind, a, b in wire.fields(start, end):
            if number in ONCE:
                tensor.again = ONCE[number] if seen >> number & 1 else tensor.again
                seen |= 1 << number
            if number == 1:
                if kind == VARINT:
                    dims.append(a)
                elif kind == LENGTH:
                    dims.extend(self._packed(a, b))
                if len(dims) > MAX_ENTRIES:
                    raise LimitExceeded("a tensor of thousands of dimensions", file=wire.file, offset=start)
            elif number == 2 and kind == VARINT:
                tensor.data_type = a
            elif number == 14 and kind == VARINT:
                tensor.location = a
            elif kind != LENGTH:
                if number in PACKED:
                    tensor.loose = number
            elif kind == LENGTH:
                if number == 8:
                    tensor.name = wire.text(a, b)
                elif number == 9:
                    tensor.raw = (a, b - a)
                elif number in PACKED:
                    if len(tensor.packed) >= MAX_ENTRIES:
                        raise LimitExceeded("a tensor's data in thousands of pieces", file=wire.file, offset=start)
                    tensor.packed.append((number, a, b - a))
                elif number == 6:
                    tensor.strings += 1
                elif number == 3:
                    tensor.segment = True
                elif number != 13 and len(tensor.rest) < MAX_ENTRIES:
                    tensor.rest.append((wire.begin, b))
                elif number == 13:
                    if len(tensor.external) >= MAX_ENTRIES:
                        raise LimitExceeded("a tensor in thousands of places", file=wire.file, offset=start)
                    tensor.external.append(self._pair(a, b))
        self.depth -= 1
        tensor.dims = tuple(dims)
        self.visitor.tensor(tensor)
        return tensor

    def _packed(self, start: int, end: int) -> Iterator[int]:
        for _ in range(MAX_ENTRIES + 1):
            if start >= end:
                return
            value, start = self.wire._varint(start, end)
            yield value
