"""TensorFlow graphs: SavedModel, MetaGraphDef (.meta) and GraphDef (.pb), binary or as text; and keras_metadata.pb.

The operators of all nodes are listed, those of the function library included: a function is called by a node of its
name. Source: saved_model.proto, meta_graph.proto, graph.proto, function.proto, node_def.proto, attr_value.proto,
saved_object_graph.proto, saved_metadata.proto.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .. import outside
from ..containers.protobuf import LENGTH, MAX_DEPTH, VARINT, Wire
from ..errors import ArtifactkitError, Corrupt, LimitExceeded
from ..files import Bytes
from . import keras_config, savedmodel_ops
from .model import Rule
from .piece import Piece
from .pointers import is_pointer

PYTHON = Rule(
    "tf-python-operator", "malicious", "a TensorFlow graph calls a Python function",
    "the operator hands the call to a function of the loading process, which the graph picks by a token",
    "do not load it; a graph for deployment has no such operator",
)  # fmt: skip
FILES = Rule(
    "tf-file-operator", "suspicious", "a TensorFlow graph reads or writes files",
    "the graph itself says which: it can read secrets into an output, or write what is run later",
    "run it only where there is nothing to read or write; look at what the operator is for",
)  # fmt: skip
NETWORK = Rule(
    "tf-network-operator", "suspicious", "a TensorFlow graph reaches other processes",
    "tensors are sent to, or taken from, addresses that the graph gives",
    "run it only without a network; look at what the operator is for",
)  # fmt: skip
OPAQUE = Rule(
    "tf-opaque-operator", "suspicious", "a TensorFlow graph holds a part that cannot be looked into",
    "an engine compiled for a device, or a graph within a string", "take the model from before that step",
)  # fmt: skip
CUSTOM = Rule(
    "tf-custom-operator", "suspicious", "a TensorFlow graph needs an operator that TensorFlow does not have",
    "it runs only with a native library that implements it, and that library is code",
    "find out which library the operator comes from, and whether you trust it",
)  # fmt: skip
ASSET = Rule(
    "tf-asset-outside", "malicious", "a SavedModel names an asset outside of its folder",
    "the loader hands the path of that file to the graph, which reads it", "do not load it",
)  # fmt: skip
RULES = (PYTHON, FILES, NETWORK, OPAQUE, CUSTOM, ASSET)

MAX_NAMES = 100_000
MAX_FUNCTIONS = 400_000
MAX_TEXT = 64 << 20
MAX_METADATA = 16 << 20
# (field of MetaGraphDef that the inner message begins with) for the check of the outermost bytes.
META_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7})


@dataclass
class Graph:
    """What was met: operator -> offset of the first node, names of functions, file names of assets."""

    operators: dict[str, int] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    assets: dict[str, int] = field(default_factory=dict)
    printed: dict[str, int] = field(default_factory=dict)  # where PrintV2 writes to
    metadata: list[tuple[int, int]] = field(default_factory=list)  # JSON of Keras: (start, end)

    def add(self, operator: str, offset: int) -> None:
        if operator not in self.operators:
            if len(self.operators) >= MAX_NAMES:
                raise LimitExceeded("more different operators than any graph has", offset=offset)
            self.operators[operator] = offset


def looks_like_saved_model(data: Bytes, first: bytes) -> bool:
    """Whether the outermost message is a SavedModel: a schema version, then MetaGraphDefs that reach to the end."""
    if first[:2] != b"\x08\x01" or first[2:3] != b"\x12":
        return False
    wire = Wire(data)
    try:
        for number, kind, start, end in wire.fields(0, data.size):
            if number == 2 and kind == LENGTH:
                inner = [(n, k) for (n, k, _, _), _ in zip(wire.fields(start, end), range(2), strict=False)]
                return bool(inner) and all(n in META_FIELDS and k == LENGTH for n, k in inner)
            if number != 1 or kind != VARINT:
                return False
    except ArtifactkitError:
        return False
    return False


def scan(piece: Piece, kind: str) -> None:
    if not piece.size or is_pointer(piece.first):
        return
    graph = Graph()
    text = kind.endswith("-text")
    try:
        if text:
            _Text(piece, graph).read()
        else:
            _Binary(piece, graph, kind).read()
    except ArtifactkitError:
        _sweep(piece, graph)
        raise
    finally:
        _judge(piece, graph)
    if kind == "saved-model-name" and piece.depth == 0 and "saved-model" not in piece.report.formats:
        piece.report.formats.append("saved-model")
    for start, end in graph.metadata:
        if end - start <= MAX_METADATA:
            # A class that nobody has registered is revived from the graph: nothing is imported for it.
            keras_config.judge(piece, piece.data.read(start, end - start), revived=True)


def _sweep(piece: Piece, graph: Graph) -> None:
    """A message that breaks off, or lies about a length: operators that matter are still there as bytes."""
    names = sorted(savedmodel_ops.PYTHON | savedmodel_ops.FILES | savedmodel_ops.OPAQUE)
    mark = re.compile(b"|".join(b"\x12%c%s" % (len(name), re.escape(name.encode())) for name in names), re.DOTALL)
    for at in range(0, min(piece.size, MAX_TEXT), 1 << 20):
        for match in mark.finditer(piece.data.read(at, min((1 << 20) + 64, piece.size - at))):
            graph.add(match[0][2:].decode(), at + match.start())


def _judge(piece: Piece, graph: Graph) -> None:
    for operator, offset in graph.operators.items():
        rule = rule_of(operator)
        if rule is CUSTOM and operator in graph.functions:
            continue
        if rule is not None:
            piece.find(rule, f"the operator {operator[:200]}", offset=offset, name=operator[:200])
    for stream, offset in graph.printed.items():
        if stream not in ("stderr", "stdout", "log(info)", "log(warning)", "log(error)", ""):
            piece.find(FILES, f"PrintV2 writes to {stream[:200]!r}", offset=offset, name="PrintV2")
    for name, offset in graph.assets.items():
        if name and outside.by_name(name).problem:
            piece.find(ASSET, f"the asset {name[:200]!r}", offset=offset, name=name[:200])
    if graph.operators:
        what = f"a TensorFlow graph of {len(graph.operators)} kinds of operators"
        piece.runs(what, "tf.saved_model.load and its like", "run it in a sandbox, as any program")


def rule_of(operator: str) -> Rule | None:
    """The rule that an operator falls under; CUSTOM for one that is not TensorFlow's."""
    if operator in savedmodel_ops.ORDINARY:
        return None
    if operator in savedmodel_ops.PYTHON:
        return PYTHON
    if operator in savedmodel_ops.FILES:
        return FILES
    if operator in savedmodel_ops.NETWORK:
        return NETWORK
    return OPAQUE if operator in savedmodel_ops.OPAQUE else CUSTOM


class _Binary:
    def __init__(self, piece: Piece, graph: Graph, kind: str) -> None:
        self.piece, self.graph, self.kind = piece, graph, kind
        self.wire = Wire(piece.data)
        self.depth = 0

    def read(self) -> None:
        end = self.wire.size
        if self.kind == "keras-metadata":
            for number, _, a, b in self._parts(0, end):
                if number == 1:
                    self.graph.metadata += [(x, y) for _, _, x, y in self._parts(a, b) if self._is_json(x, y)]
        elif self.kind == "meta-graph":
            self.meta_graph(0, end)
        elif self.kind == "graph-def":
            if self._is_graph(end):
                self.graph_def(0, end)
        else:
            found = False
            for number, _, a, b in self._parts(0, end):
                if number == 2:
                    found = True
                    self.meta_graph(a, b)
            if not found:
                raise Corrupt("a SavedModel without a graph")

    def _is_graph(self, end: int) -> bool:
        """``.pb`` is the suffix of many things: a GraphDef begins with a node that has a name and an operator."""
        try:
            for number, kind, a, b in self.wire.fields(0, end):
                if kind != LENGTH or number not in (1, 2, 4):
                    return False
                if number == 1:
                    parts = [n for n, k, _, _ in self.wire.fields(a, b) if k == LENGTH]
                    return 2 in parts and all(n in (1, 2, 3, 4, 5, 6, 7) for n in parts)
        except ArtifactkitError:
            return False
        return False

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitExceeded("messages nested too deeply", offset=start)
        for number, kind, a, b in self.wire.fields(start, end):
            if kind == LENGTH:
                yield number, kind, a, b
        self.depth -= 1

    def _is_json(self, a: int, b: int) -> bool:
        return b - a > 2 and self.piece.data.read(a, 1) == b"{"

    def meta_graph(self, start: int, end: int) -> None:
        for number, _, a, b in self._parts(start, end):
            if number == 2:
                self.graph_def(a, b)
            elif number == 6:
                self._asset(a, b)
            elif number == 7:
                self._objects(a, b)
            elif number == 4:
                self._collection(a, b)

    def _asset(self, start: int, end: int) -> None:
        for number, _, a, b in self._parts(start, end):
            if number == 2 and len(self.graph.assets) < MAX_NAMES:
                self.graph.assets.setdefault(self.wire.text(a, b), a)

    def _collection(self, start: int, end: int) -> None:
        """``saved_model_assets`` of TensorFlow 1: Any messages that hold AssetFileDefs."""
        key, value = "", (0, 0)
        for number, _, a, b in self._parts(start, end):
            if number == 1:
                key = self.wire.text(a, min(b, a + 256))
            elif number == 2:
                value = (a, b)
        if key != "saved_model_assets" or value == (0, 0):
            return
        for number, _, a, b in self._parts(*value):
            if number == 5:  # any_list
                for _, _, x, y in self._parts(a, b):
                    for inner, _, p, q in self._parts(x, y):
                        if inner == 2:
                            self._asset(p, q)

    def _objects(self, start: int, end: int) -> None:
        """SavedObjectGraph: Keras before 2.5 kept its configuration in the objects' metadata."""
        for number, _, a, b in self._parts(start, end):
            if number != 1:
                continue
            for inner, _, x, y in self._parts(a, b):
                if inner == 4:
                    parts = list(self._parts(x, y))
                    self.graph.metadata += [(p, q) for n, _, p, q in parts if n == 3 and self._is_json(p, q)]
            if len(self.graph.metadata) > MAX_NAMES:
                raise LimitExceeded("more objects with metadata than any model has", offset=a)

    def graph_def(self, start: int, end: int) -> None:
        for number, _, a, b in self._parts(start, end):
            if number == 1:
                self._node(a, b)
            elif number == 2:
                self._library(a, b)

    def _library(self, start: int, end: int) -> None:
        for number, _, a, b in self._parts(start, end):
            if number == 1:
                self._function(a, b)

    def _function(self, start: int, end: int) -> None:
        for number, _, a, b in self._parts(start, end):
            if number == 1:
                for inner, _, x, y in self._parts(a, b):
                    if inner == 1:
                        if len(self.graph.functions) >= MAX_FUNCTIONS:
                            raise LimitExceeded("more functions than any graph has", offset=x)
                        self.graph.functions.add(self.wire.text(x, y))
            elif number == 3:
                self._node(a, b)

    def _node(self, start: int, end: int) -> None:
        operator, attributes = "", list[tuple[int, int]]()
        for number, _, a, b in self._parts(start, end):
            if number == 2:
                operator = self.wire.text(a, b)
                self.graph.add(operator, start)
            elif number == 5 and len(attributes) < 4096:
                attributes.append((a, b))
        if operator == "PrintV2":
            for a, b in attributes:
                self._printed(a, b)

    def _printed(self, start: int, end: int) -> None:
        key, value = "", ""
        for number, _, a, b in self._parts(start, end):
            if number == 1:
                key = self.wire.text(a, min(b, a + 256))
            elif number == 2:
                for inner, _, x, y in self._parts(a, b):
                    if inner == 2:
                        value = self.wire.text(x, min(y, x + 4096))
        if key == "output_stream" and len(self.graph.printed) < 1000:
            self.graph.printed.setdefault(value, start)


# Quantifiers are possessive, and an unterminated string is a token too: the search stays linear on any text.
_STRING = r"""(?:"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?)"""
_WORD = re.compile(
    rf"""#[^\n]*+|(?<!\w)(?P<key>[A-Za-z_]\w*+)\s*+:?\s*+\[?\s*+(?P<open>[{{<])|(?P<bare>[{{<])|(?P<close>[}}>])"""
    rf"""|(?<!\w)(?P<field>[A-Za-z_]\w*+)\s*+:\s*+(?P<value>{_STRING}(?:\s*+{_STRING})*+|[^\s{{}}<>"'\[]++)|{_STRING}"""
)
_ESCAPE = re.compile(r"""\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|(.))""", re.DOTALL)


class _Text:
    """The text form: fields in nested blocks. What counts is which block a name lies in."""

    def __init__(self, piece: Piece, graph: Graph) -> None:
        self.piece, self.graph = piece, graph

    def read(self) -> None:
        piece = self.piece
        if piece.size > MAX_TEXT:
            raise LimitExceeded("a graph as text, out of proportion", expected=f"{MAX_TEXT} bytes", found=piece.size)
        text = piece.data.read(0, piece.size).decode("utf-8", "replace")
        blocks: list[str] = []
        last = ""  # the block that was closed: further ones of a list have no name of their own
        for match in _WORD.finditer(text):
            if match["open"] or match["bare"]:
                blocks.append(match["key"] or last)
                if len(blocks) > MAX_DEPTH:
                    raise LimitExceeded("blocks nested too deeply", offset=match.start())
            elif match["close"]:
                if blocks:
                    last = blocks.pop()
            elif match["field"]:
                self._field(blocks[-1] if blocks else "", match["field"], match["value"], match.start())

    def _field(self, block: str, key: str, value: str, offset: int) -> None:
        if block in ("node", "node_def") and key == "op":
            self.graph.add(_unquoted(value), offset)
        elif block == "signature" and key == "name":
            self.graph.functions.add(_unquoted(value))
        elif block == "asset_file_def" and key == "filename":
            self.graph.assets.setdefault(_unquoted(value), offset)
        elif key == "s" and block == "value" and (found := _unquoted(value)).startswith("file:"):
            self.graph.printed.setdefault(found, offset)
        elif key == "metadata" and (found := _unquoted(value)).startswith("{"):
            keras_config.judge(self.piece, found.encode("utf-8", "surrogateescape"), revived=True)


def _unquoted(value: str) -> str:
    """The string that one or several literals give."""
    parts = re.findall(_STRING, value)
    return "".join(_ESCAPE.sub(_unescaped, part[1:].removesuffix(part[0])) for part in parts) if parts else value


def _unescaped(match: re.Match[str]) -> str:
    if match[1] or match[3]:
        return chr(int(match[1] or match[3], 16))
    if match[2]:
        return chr(int(match[2], 8))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[4], match[4])


__all__ = ["RULES", "looks_like_saved_model", "rule_of", "scan"]
