"""An ONNX model as tensors and a graph, by its headers: no library is imported and no tensor byte is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from ..artifact import Graph, Skipped, TensorView, Value, Weights
from ..containers.onnx_wire import BUILT_IN, STANDARD, Function, Node, Tensor, Visitor, walk
from ..containers.protobuf import signed
from ..errors import Corrupt, LimitExceeded
from ..files import Bytes
from ..source import Inline, Source, concat, span
from .elements import DOUBLE_DATA, FIELD_NAMES, FLOAT_DATA, STRING, TYPES, field_of, size
from .external import Folder
from .packed import varints
from .structure import Slot, Structure

MAX_TENSORS = 250_000
MAX_NAMES = 100_000  # different operators, functions, inputs
MAX_SIZE = 1 << 60
# Names that exporters give to weights which they have folded something into: the node that takes them says more.
ANONYMOUS = re.compile(r"(?:onnx::\w+?_)?\d+|val_\d+")
_ODD = re.compile("[\ud800-\udfff]")
# External data's bytes, by tensor, name and size.
Outside = Callable[[Tensor, str, int], Source]


def utf8(text: str, what: str, file: str, offset: int | None = None) -> str:
    """``text`` itself; Corrupt where its bytes were no UTF-8, which protobuf's strings are."""
    if not text.isascii() and _ODD.search(text):
        raise Corrupt(f"the {what} is no UTF-8", file=file, offset=offset, found=ascii(text[:80]))
    return text


class _Met(Visitor):
    """Keeps what a model says, within bounds."""

    wires = True

    def __init__(self, file: str) -> None:
        self.file = file
        self.facts: dict[str, str] = {}
        self.opsets: dict[str, int] = {}
        self.pairs: dict[str, str] = {}
        self.operators: Counter[tuple[str, str]] = Counter()
        self.functions: dict[tuple[str, str], None] = {}
        self.values: dict[str, list[Value]] = {"input": [], "output": []}
        self.tensors: list[Tensor] = []
        self.users: dict[str, tuple[str, str]] = {}

    def _room(self, kept: int, offset: int | None = None, most: int = MAX_NAMES) -> None:
        if kept >= most:
            raise LimitExceeded("more than any model has", file=self.file, offset=offset, expected=f"at most {most}")

    def _text(self, text: str, what: str) -> str:
        return utf8(text, what, self.file)

    def about(self, key: str, value: str) -> None:
        if value:
            self.facts[key] = self._text(value, key)

    def opset(self, domain: str, version: int) -> None:
        self._room(len(self.opsets))
        self.opsets[self._text(domain, "domain")] = version

    def metadata(self, key: str, value: str) -> None:
        self._room(len(self.pairs))
        if key in self.pairs:
            raise Corrupt("a key of the metadata comes twice", file=self.file, found=key[:200])
        self.pairs[self._text(key, "key of the metadata")] = self._text(value, "value of the metadata")

    def value(self, role: str, name: str, elem_type: int, dims: tuple[int | str | None, ...] | None) -> None:
        self._room(len(self.values[role]))
        for n in dims or ():
            if isinstance(n, str):
                self._text(n, "name of a dimension")
        kind = "string" if elem_type == STRING else TYPES[elem_type].name if elem_type in TYPES else "no tensor"
        self.values[role].append(Value(self._text(name, f"name of an {role}"), kind, dims))

    def node(self, node: Node) -> None:
        key = (self._text(node.domain, "domain"), self._text(node.op_type, "name of an operator"))
        if node.twice:
            raise Corrupt(f"{node.twice} of a node comes twice", file=self.file, offset=node.offset, found=node.name)
        if key not in self.operators:
            self._room(len(self.operators), node.offset)
        self.operators[key] += 1
        for name in node.inputs[1:]:
            if ANONYMOUS.fullmatch(name) and len(self.users) < MAX_TENSORS:
                self.users.setdefault(name, (self._text(node.name, "name of a node"), node.op_type))

    def function(self, function: Function) -> None:
        self._room(len(self.functions), function.offset)
        domain = self._text(function.domain, "domain")
        self.functions[domain, self._text(function.name, "name of a function")] = None

    def tensor(self, tensor: Tensor) -> None:
        self._room(len(self.tensors), tensor.offset, MAX_TENSORS)
        self.tensors.append(tensor)

    def twice(self, what: str, offset: int) -> None:
        raise Corrupt(f"the {what} comes twice", file=self.file, offset=offset)


class _Names:
    """Names of tensors, each once: initialisers by their own, those in nodes by what they are there."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.known: set[str] = set()
        self.own: set[str] = set()  # of the outermost graph's initialisers

    def name(self, tensor: Tensor) -> str:
        node = tensor.node
        if tensor.role != "attribute" or node is None:
            name = tensor.name
            if not name:
                raise Corrupt("an initialiser without a name", file=self.file, offset=tensor.offset)
            if tensor.place == "graph":
                if name in self.own:
                    raise Corrupt("two initialisers have one name", file=self.file, tensor=name, offset=tensor.offset)
                self.own.add(name)
        elif node.op_type == "Constant" and tensor.attribute == "value" and node.outputs and node.outputs[0]:
            name = node.outputs[0]
        else:
            name = f"{node.name or (node.outputs or [''])[0] or node.op_type}.{tensor.attribute}"
        return self._free(utf8(name, "name of a tensor", self.file, tensor.offset))

    def _free(self, name: str) -> str:
        """Graphs in nodes have names of their own, which may be those of others."""
        free, n = name, 1
        while free in self.known:
            n += 1
            free = f"{name}@{n}"
        self.known.add(free)
        return free


def read(data: Bytes, path: str, outside: Outside | None = None) -> Weights:
    """The tensors of the model in ``data``, and its graph. Raises Corrupt, Truncated, LimitExceeded and Refused.

    ``outside`` is asked for external data; by default the files beside ``path`` are, by the rules of ``external``.
    """
    folder = Folder(path)
    met = _Met(path)
    walk(data, met)
    names = _Names(path)
    weights = Weights({}, "onnx", metadata=met.pairs)
    slots: dict[str, Slot] = {}
    elsewhere: list[tuple[str, str]] = []
    # The outermost graph's come first, so that it is theirs to keep their names.
    for tensor in sorted(met.tensors, key=lambda t: (t.role != "initializer" or t.place != "graph", t.offset)):
        if tensor.role == "sparse":
            if tensor.external or tensor.location:
                raise Corrupt("external data of a sparse tensor", file=path, tensor=tensor.name, offset=tensor.offset)
            if tensor.name:  # the values; the indices have none
                elsewhere.append((tensor.name, "a sparse tensor"))
            continue
        name = names.name(tensor)
        if tensor.data_type == STRING:
            if tensor.external or tensor.location:
                raise Corrupt("external data of a tensor of strings", file=path, tensor=name, offset=tensor.offset)
            elsewhere.append((name, "a tensor of strings"))
            continue
        view = _view(data, path, tensor, name, outside or folder.span)
        weights.tensors[name] = view
        slots[name] = Slot(tensor, view)
    weights.skipped = [Skipped(name, what, "") for name, what in elsewhere]
    held = {slot.tensor.name for slot in slots.values() if slot.tensor.role == "initializer"}
    users = {name: user for name, user in met.users.items() if name in held}
    weights.graph = _graph(met, held, Structure(data, slots, users, tuple(elsewhere)))
    weights.files = (path, *sorted({file.path for file in folder.opened.values()}))
    weights.pinned = tuple(folder.opened.values())
    return weights


def _graph(met: _Met, held: set[str], model: Structure) -> Graph:
    def shown(domain: str, name: str) -> str:
        return f"{domain or 'ai.onnx'}::{name}"

    known = STANDARD | BUILT_IN
    custom = {d for d, name in met.operators if d not in known and (d, name) not in met.functions}
    return Graph(
        # Until IR version 4 initialisers had to be inputs too.
        inputs=tuple(value for value in met.values["input"] if value.name not in held),
        outputs=tuple(met.values["output"]),
        operators={shown(*key): n for key, n in sorted(met.operators.items(), key=lambda item: (-item[1], item[0]))},
        opsets=dict(sorted((domain or "ai.onnx", version) for domain, version in met.opsets.items())),
        facts=met.facts,
        functions=tuple(sorted(shown(*key) for key in met.functions)),
        custom=tuple(sorted(custom)),
        model=model,
    )


def _view(data: Bytes, path: str, tensor: Tensor, name: str, outside: Outside) -> TensorView:
    """The tensor where its bytes are. What it says of itself must agree."""

    def corrupt(what: str, **more: object) -> Corrupt:
        return Corrupt(what, file=path, tensor=name, offset=tensor.offset, **more)  # type: ignore[arg-type]

    if tensor.again:
        raise corrupt(f"{tensor.again} of a tensor comes twice")
    dtype = TYPES.get(tensor.data_type)
    if dtype is None:
        raise corrupt("unknown element type", expected="a number of TensorProto.DataType", found=tensor.data_type)
    dims = tuple(map(signed, tensor.dims))
    if any(n < 0 for n in dims):
        raise corrupt("a negative dimension", found=list(dims[:8]))
    if tensor.segment:
        raise corrupt("a tensor in segments, which no version of ONNX has defined")
    if tensor.loose:
        raise corrupt(f"{FIELD_NAMES[tensor.loose]} is not packed", hint="onnx.save writes it packed")
    if tensor.strings:
        raise corrupt("strings in a tensor of numbers")
    nbytes = size(dtype, dims)
    if nbytes > MAX_SIZE:
        raise corrupt("dimensions that no file has", found=list(dims[:8]))
    fields = sorted({number for number, _, _ in tensor.packed})
    told = [FIELD_NAMES[number] for number in fields]
    told += ["raw_data"] if tensor.raw is not None else []
    told += ["external_data"] if tensor.external or tensor.location == 1 else []
    if len(told) > 1:
        raise corrupt("a tensor's data in more than one field", found=", ".join(told))
    if tensor.location not in (0, 1):
        raise corrupt("unknown data_location", expected="0 or 1", found=tensor.location)
    source: Source
    if tensor.raw is not None:
        start, length = tensor.raw
        if length != nbytes:
            raise corrupt(
                "raw_data of another length than the tensor", expected=f"{nbytes} bytes", found=f"{length} bytes"
            )
        source = span(data, start, nbytes, (path, start))
    elif fields:
        if fields[0] != field_of(tensor.data_type):
            raise corrupt(
                f"{told[0]} of a tensor of {dtype}", expected=FIELD_NAMES[field_of(tensor.data_type)], found=told[0]
            )
        source = _typed(data, path, tensor, name, nbytes, dtype.bits, corrupt)
    elif told:
        source = outside(tensor, name, nbytes)
    elif nbytes:
        raise corrupt("a tensor without data", expected=f"{nbytes} bytes", found="none")
    else:
        source = Inline(b"", (path, tensor.offset))
    return TensorView(name, dtype, dims, source)


def _typed(
    data: Bytes, path: str, tensor: Tensor, name: str, nbytes: int, bits: int, corrupt: Callable[..., Corrupt]
) -> Source:
    """Typed data: numbers of fixed size lie as raw data would, integers are varints."""
    runs = concat([span(data, start, length, (path, start)) for _, start, length in tensor.packed])
    number = tensor.packed[0][0]
    if number in (FLOAT_DATA, DOUBLE_DATA):
        if runs.nbytes != nbytes:
            raise corrupt(
                f"{FIELD_NAMES[number]} of another length than the tensor", expected=f"{nbytes} bytes",
                found=f"{runs.nbytes} bytes",
            )  # fmt: skip
        return runs
    itemsize = max(1, bits // 8)
    count = nbytes // itemsize
    if not count <= runs.nbytes <= 10 * count:
        raise corrupt(
            f"{FIELD_NAMES[number]} cannot hold the tensor's values", expected=f"{count} to {10 * count} bytes",
            found=f"{runs.nbytes} bytes",
        )  # fmt: skip
    return varints(runs, count, itemsize, name)
