"""ONNX models as protobuf messages on the wire: walked by offset, no tensor byte is read, nothing is built.

Field numbers are those of onnx.proto3 (onnx/onnx.proto, IR version 14); the wire format is protobuf's ("Encoding").
``walk`` goes over everything that a runtime would look at: the graph, the graphs in attributes, sparse tensors,
training information and model-local functions. It tells a ``Visitor`` what it meets and keeps one node at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import Corrupt, LimitExceeded, Truncated
from ..files import Bytes, label

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
MAX_DEPTH = 100  # messages within messages; protobuf's own limit
MAX_FIELDS = 20_000_000
MAX_STRING = 1 << 16  # of names, paths and operators
MAX_ENTRIES = 4096  # (key, value) pairs of one tensor, dimensions, inputs: what is kept of one message
WINDOW = 1 << 16

# ModelProto
M_IR_VERSION, M_PRODUCER, M_PRODUCER_VERSION, M_DOMAIN, M_MODEL_VERSION, M_DOC, M_GRAPH, M_OPSETS = range(1, 9)
M_METADATA, M_TRAINING, M_FUNCTIONS = 14, 20, 25
FIRST = frozenset(b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca\xd2")  # of the tags of ModelProto's fields
# AttributeProto.type of those that hold code, or tensors
ATTRIBUTE_FIELDS_TENSOR, ATTRIBUTE_FIELDS_GRAPH, ATTRIBUTE_FIELDS_SPARSE = (5, 10), (6, 11), (22, 23)


@dataclass(slots=True)
class Tensor:
    """A TensorProto. ``external`` are its (key, value) pairs in order, duplicates included; ``place`` says where it is.

    ``raw`` is (offset, nbytes) in the file of ``raw_data``. ``location`` is 1 for data in another file.
    """

    name: str = ""
    dims: tuple[int, ...] = ()
    data_type: int = 0
    location: int = 0
    external: list[tuple[str, str]] = field(default_factory=list)
    raw: tuple[int, int] | None = None
    place: str = ""
    offset: int = 0


@dataclass(slots=True)
class Node:
    """A NodeProto, without its tensors and graphs, which are visited by themselves.

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


@dataclass(slots=True)
class Function:
    """A FunctionProto: a model-local operator. Its nodes are visited by themselves."""

    name: str = ""
    domain: str = ""
    overload: str = ""
    offset: int = 0


class Visitor:
    """What a caller wants to know. Each method may be left as it is."""

    def opset(self, domain: str, version: int) -> None: ...
    def metadata(self, key: str, value: str) -> None: ...
    def node(self, node: Node) -> None: ...
    def tensor(self, tensor: Tensor) -> None: ...
    def function(self, function: Function) -> None: ...
    def twice(self, what: str, offset: int) -> None: ...


class Wire:
    """Protobuf fields of a run of bytes, read forward through one window."""

    def __init__(self, data: Bytes) -> None:
        self.data, self.size, self.file = data, data.size, label(data)
        self._base, self._window = 0, b""
        self._fields = 0

    def _load(self, at: int, n: int) -> int:
        """Have ``n`` bytes from ``at`` in the window (or all that are left); returns where they begin in it."""
        start = at - self._base
        if start < 0 or start + n > len(self._window):
            self._base, start = at, 0
            self._window = self.data.read(at, min(WINDOW, self.size - at))
        return start

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """(value, offset behind it)"""
        start = self._load(at, 10)
        window, stop = self._window, min(end - self._base, start + 10)
        value = shift = 0
        for i in range(start, min(stop, len(window))):
            byte = window[i]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, self._base + i + 1
            shift += 7
        if shift >= 70:
            raise Corrupt("a number of more than 10 bytes", file=self.file, offset=at)
        raise Truncated("the message ends within a number", file=self.file, offset=at)

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(number, wire type, value or start, end or offset) for each field between two offsets.

        VARINT: (number, 0, value, offset of the field). LENGTH: (number, 2, start, end). The others: where they lie.
        """
        groups: list[int] = []
        while at < end:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise LimitExceeded("more fields than any model has", file=self.file, offset=at)
            begin = at
            start = at - self._base
            window = self._window
            # A tag or a value of one byte is the rule; the way round is for the others.
            if 0 <= start < len(window) and window[start] < 0x80:
                tag, at = window[start], at + 1
            else:
                tag, at = self._varint(at, end)
            number, kind = tag >> 3, tag & 7
            if number == 0 or number > 0x1FFFFFFF:
                raise Corrupt("a field number out of range", file=self.file, offset=begin, found=number)
            if kind == LENGTH:
                start = at - self._base
                if 0 <= start < len(window) and at < end and window[start] < 0x80 and window is self._window:
                    length, at = window[start], at + 1
                else:
                    length, at = self._varint(at, end)
                if length > end - at:
                    if length > 1 << 40 or end < self.size:
                        raise Corrupt(
                            "a field reaches past the end of what it is in", file=self.file, offset=begin,
                            expected=f"at most {end - at} bytes", found=length,
                        )  # fmt: skip
                    raise Truncated(
                        "the file ends within a field", file=self.file, offset=begin,
                        expected=f"{length} bytes", found=f"{end - at} bytes",
                    )  # fmt: skip
                if not groups:
                    yield number, kind, at, at + length
                at += length
            elif kind == VARINT:
                value, at = self._varint(at, end)
                if not groups:
                    yield number, kind, value, begin
            elif kind in (FIXED64, FIXED32):
                n = 8 if kind == FIXED64 else 4
                if n > end - at:
                    raise Truncated("the message ends within a field", file=self.file, offset=begin)
                if not groups:
                    yield number, kind, at, at + n
                at += n
            elif kind == START_GROUP:  # no field of ONNX is a group; readers step over unknown ones
                groups.append(number)
                if len(groups) > MAX_DEPTH:
                    raise LimitExceeded("groups nested too deeply", file=self.file, offset=begin)
            elif kind == END_GROUP and groups and groups[-1] == number:
                groups.pop()
            else:
                raise Corrupt("an impossible wire type", file=self.file, offset=begin, found=kind)
        if groups:
            raise Corrupt("a group that does not end", file=self.file, offset=end)

    def text(self, start: int, end: int) -> str:
        if end - start > MAX_STRING:
            raise LimitExceeded(
                "a name out of proportion", file=self.file, offset=start,
                expected=f"at most {MAX_STRING} bytes", found=end - start,
            )  # fmt: skip
        at = self._load(start, end - start)
        return self._window[at : at + end - start].decode("utf-8", "surrogateescape")


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
                continue
            if number == M_GRAPH:
                if M_GRAPH in seen and not repeated:
                    self.visitor.twice("graph", start)
                    repeated = True
                seen.add(M_GRAPH)
                self.graph(start, end, "graph")
            elif number == M_OPSETS:
                self._opset(start, end)
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
        self.depth -= 1

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
        for number, kind, a, b in wire.fields(start, end):
            if kind == LENGTH:
                if number == 1:
                    name = wire.text(a, b)
                elif number in (4, 9):
                    strings.append((a, b - a))
                elif number in ATTRIBUTE_FIELDS_TENSOR:
                    self._tensor(a, b, node.place)
                elif number in ATTRIBUTE_FIELDS_GRAPH:
                    self.graph(a, b, f"{node.place} > {node.op_type or 'node'}"[:200])
                elif number in ATTRIBUTE_FIELDS_SPARSE:
                    self._sparse(a, b, node.place)
            elif kind == VARINT and number == 3 and len(node.integers) < MAX_ENTRIES:
                node.integers.append((name, a))
        self.depth -= 1
        node.strings.extend((name, a, n) for a, n in strings[: max(0, MAX_ENTRIES - len(node.strings))])

    def _sparse(self, start: int, end: int, place: str) -> None:
        self._deeper(start, 1)
        for number, kind, a, b in self.wire.fields(start, end):
            if kind == LENGTH and number in (1, 2):
                self._tensor(a, b, place)
        self.depth -= 1

    def _tensor(self, start: int, end: int, place: str) -> None:
        tensor = Tensor(place=place, offset=start)
        dims: list[int] = []
        wire = self.wire
        self._deeper(start, 1)
        for number, kind, a, b in wire.fields(start, end):
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
            elif kind == LENGTH:
                if number == 8:
                    tensor.name = wire.text(a, b)
                elif number == 9:
                    tensor.raw = (a, b - a)
                elif number == 13:
                    if len(tensor.external) >= MAX_ENTRIES:
                        raise LimitExceeded("a tensor in thousands of places", file=wire.file, offset=start)
                    tensor.external.append(self._pair(a, b))
        self.depth -= 1
        tensor.dims = tuple(dims)
        self.visitor.tensor(tensor)

    def _packed(self, start: int, end: int) -> Iterator[int]:
        for _ in range(MAX_ENTRIES + 1):
            if start >= end:
                return
            value, start = self.wire._varint(start, end)
            yield value
