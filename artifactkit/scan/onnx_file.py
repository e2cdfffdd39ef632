"""ONNX: data in other files, operators that are not ONNX's, functions in their place, compiled parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import outside
from ..containers import onnx_wire
from ..containers.onnx_wire import BUILT_IN, STANDARD, Function, Node, Tensor, Visitor
from ..containers.protobuf import MAX_STRING
from ..errors import LimitExceeded
from ..files import part
from .model import Rule, Severity
from .piece import Piece
from .pointers import is_pointer

ESCAPES = Rule(
    "onnx-external-escape",
    "malicious",
    "an ONNX model takes data from a file outside of its folder",
    "a runtime reads that file into a tensor, and an output can carry it away",
    "do not load it; keep model and data in one folder, with plain relative names",
)
LINKED = Rule(
    "onnx-external-link",
    "suspicious",
    "an ONNX model takes data from a file that has several names",
    "a hard link makes a file from elsewhere look as if it lay in the folder; no runtime tells it apart",
    "replace the file by a copy of its own",
)
BOUNDS = Rule(
    "onnx-external-bounds",
    "suspicious",
    "an ONNX model points outside of the data file, or not to what the tensor needs",
    "such places make a runtime read memory or files that are not meant",
    "export the model again",
)
CUSTOM = Rule(
    "onnx-custom-operator",
    "suspicious",
    "an ONNX model needs operators that a runtime does not have",
    "it runs only with a native library that implements them, and that library is code",
    "find out which library the operators come from, and whether you trust it",
)
PYTHON = Rule(
    "onnx-python-operator",
    "malicious",
    "an ONNX model calls Python",
    "a runtime built with that operator imports a module by name and calls it",
    "do not load it; export the model with standard operators only",
)
SHADOWS = Rule(
    "onnx-function-shadows",
    "malicious",
    "an ONNX model redefines an operator of the standard",
    "some runtimes use the model's definition and some their own: they compute different things",
    "do not load it; functions belong into a domain of their own",
)
PRECOMPILED = Rule(
    "onnx-precompiled",
    "suspicious",
    "an ONNX model holds, or names, a part compiled for one device",
    "what it does cannot be seen; it runs with the rights of the driver that loads it",
    "take the model before compilation and compile it yourself",
)
AMBIGUOUS = Rule(
    "onnx-ambiguous",
    "suspicious",
    "an ONNX model says something twice that can be said once",
    "readers that take the first and readers that take the last see two models",
    "export the model again",
)
RULES = (ESCAPES, LINKED, BOUNDS, CUSTOM, PYTHON, SHADOWS, PRECOMPILED, AMBIGUOUS)

PYTHON_OPERATORS = frozenset({"PyOp", "PythonOp", "PythonOpGrad", "PyCustomOp", "PyFunc", "EagerPyFunc", "TritonOp"})
EXTERNAL_KEYS = frozenset({"location", "offset", "length", "checksum", "basepath"})
# Bits an element (onnx.proto3, TensorProto.DataType); strings have no size.
BITS = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
    17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2,
}  # fmt: skip
MAX_NAMES = 100_000  # different operators, functions, files
MAX_BLOB = 64 << 20


@dataclass
class _Collector(Visitor):
    piece: Piece
    operators: dict[tuple[str, str], Node] = field(default_factory=dict)
    functions: set[tuple[str, str]] = field(default_factory=set)
    places: dict[str, outside.Place] = field(default_factory=dict)

    def _room(self, kept: int, offset: int) -> None:
        if kept >= MAX_NAMES:
            raise LimitExceeded("more different names than any model has", offset=offset, expected=f"{MAX_NAMES}")

    def twice(self, what: str, offset: int) -> None:
        self.piece.find(AMBIGUOUS, f"{what} comes twice", offset=offset)

    def metadata(self, key: str, value: str) -> None:
        if key == "ort_config":
            self.piece.runs(
                "session options in the model's metadata (ort_config)",
                "ONNX Runtime, when ORT_LOAD_CONFIG_FROM_MODEL is set",
                "leave that variable unset",
            )

    def node(self, node: Node) -> None:
        key = (node.domain, node.op_type)
        if node.twice:
            self.twice(f"{node.twice} of node {node.name!r}", node.offset)
        if node.op_type == "EPContext":
            self._compiled(node)
        if key not in self.operators:
            self._room(len(self.operators), node.offset)
            self.operators[key] = node

    def function(self, function: Function) -> None:
        self._room(len(self.functions), function.offset)
        self.functions.add((function.domain, function.name))
        shown = f"{function.domain or 'ai.onnx'}::{function.name}"
        if function.domain in STANDARD:
            self.piece.find(SHADOWS, f"defines {shown}", offset=function.offset, name=shown)
        elif function.domain in BUILT_IN:
            self.piece.find(SHADOWS, f"defines {shown}", offset=function.offset, name=shown, severity="suspicious")

    def tensor(self, tensor: Tensor) -> None:
        if not tensor.external and tensor.location != 1:
            return
        pairs = dict(tensor.external)
        if len(pairs) < len(tensor.external):
            self.twice(f"a key of the external data of {tensor.name!r}", tensor.offset)
        locations = [value for key, value in tensor.external if key == "location"]
        if not locations:
            self.piece.find(BOUNDS, f"{tensor.name!r}: external data without a location", offset=tensor.offset)
        for location in locations:
            place = self._look_at(location, tensor.offset)
            size = place.size if place is not None else None
            problem = _bounds(tensor, pairs, size)
            if problem:
                self.piece.find(BOUNDS, f"{tensor.name!r}: {problem}", offset=tensor.offset)

    def _look_at(self, location: str, offset: int) -> outside.Place:
        """Judge a file that the model names, once."""
        known = self.places.get(location)
        if known is not None:
            return known
        self._room(len(self.places), offset)
        place = outside.look_at(location, self.piece.path if self.piece.depth == 0 else None)
        self.places[location] = place
        shown = location[:200]
        if place.problem:
            severity: Severity = "suspicious" if place.mild else "malicious"
            self.piece.find(ESCAPES, f"{place.problem}: {shown!r}", offset=offset, name=shown, severity=severity)
        elif place.links > 1:
            self.piece.find(LINKED, f"{shown!r} is a hard link ({place.links} names)", offset=offset, name=shown)
        return place

    def _compiled(self, node: Node) -> None:
        """EPContext of com.microsoft: ``ep_cache_context`` is the binary (embed_mode 1) or its path (0)."""
        modes = {value for name, value in node.integers if name == "embed_mode"} or {1}
        self.piece.find(PRECOMPILED, f"an EPContext node {node.name!r}", offset=node.offset, name="EPContext")
        self.piece.runs(
            "a part compiled for one execution provider",
            "ONNX Runtime with that provider: QNN, TensorRT, OpenVINO, VitisAI",
            "use the model before compilation",
        )
        for name, start, length in node.strings:
            if name != "ep_cache_context" or not length:
                continue
            if 0 in modes and length <= MAX_STRING:
                self._look_at(self.piece.data.read(start, length).decode("utf-8", "surrogateescape"), node.offset)
            if modes != {0} and length <= MAX_BLOB:
                blob = part(self.piece.data, start, length, "ep_cache_context")
                self.piece.look(self.piece.inner(blob, "ep_cache_context", "onnx"))

    def finish(self) -> None:
        """Operators can be judged when all functions are known."""
        for (domain, op_type), node in sorted(self.operators.items()):
            shown = f"{domain or 'ai.onnx'}::{op_type}"
            own = (domain, op_type) in self.functions
            if op_type == "PyOp" or (op_type in PYTHON_OPERATORS and domain not in STANDARD and not own):
                self.piece.find(PYTHON, f"uses {shown}", offset=node.offset, name=shown)
            elif domain not in STANDARD and domain not in BUILT_IN and not own:
                self.piece.find(CUSTOM, f"uses {shown}, in {node.place}", offset=node.offset, name=shown)


def _bounds(tensor: Tensor, pairs: dict[str, str], size: int | None) -> str:
    """What is wrong with offset and length, or the empty string. ``size`` is the data file's, when it is there."""
    numbers: dict[str, int] = {}
    for key in ("offset", "length"):
        text = pairs.get(key)
        if text is None or (text == "" and key == "length"):
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 19:
            return f"the {key} is {text[:40]!r}"
        numbers[key] = int(text)
    offset, length = numbers.get("offset", 0), numbers.get("length")
    bits = BITS.get(tensor.data_type)
    needed = None
    if bits is not None:
        count = 1
        for n in tensor.dims:
            count *= n
        if count >= 1 << 60:
            return f"dimensions {list(tensor.dims[:8])} that no file has"
        needed = -(-count * bits // 8)
    if length is not None and needed is not None and length != needed:
        return f"a length of {length} bytes for a tensor of {needed}"
    end = offset + (length if length is not None else needed or 0)
    if size is not None and end > size:
        return f"bytes {offset} to {end} of a file of {size}"
    return ""


def scan(piece: Piece, kind: str) -> None:
    if is_pointer(piece.first) or (kind == "onnx-name" and onnx_wire.looks_like_model(piece.data, piece.first)):
        return  # said by the rule for pointers; told by content already
    collector = _Collector(piece)
    try:
        onnx_wire.walk(piece.data, collector)
    finally:
        collector.finish()  # what was met before an error counts
