"""The three kinds of artifact, as values: named tensors, a graph, a plan (DESIGN section 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from .dtypes import DType, numel
from .errors import ArtifactkitError
from .files import File
from .report import Loss, Outcome
from .source import Source, files_of
from .stored import StoredArray

Kind = Literal["weights", "graph", "plan"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done to a tensor on its way: ``renamed`` from X, ``cast`` f32 -> bf16."""

    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TensorView:
    """A named tensor: its type, shape and where its bytes live, row-major and little-endian as ``source`` gives them.

    ``origins`` are the names, in the file that was read, of the tensors that it is made from; ``steps`` say how.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    source: Source
    origins: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    @property
    def numel(self) -> int:
        return numel(self.shape)

    def came_from(self) -> tuple[str, ...]:
        return self.origins or (self.name,)

    def renamed(self, name: str, why: str) -> TensorView:
        """The same tensor under another name, with the step and its reason recorded."""
        if name == self.name:
            return self
        step = Step("renamed", why)
        return replace(self, name=name, origins=self.came_from(), steps=(*self.steps, step))

    def same_bytes(self, other: TensorView) -> bool:
        """Whether both are one tensor in storage: equal span, type and shape, and not empty."""
        return (
            self.nbytes > 0 and self.dtype == other.dtype and self.shape == other.shape and self.source == other.source
        )


@dataclass(frozen=True, slots=True)
class Dropped:
    """A tensor that was read and is not passed on, and why: ``optimizer state``, ``--exclude``, ``unindexed: b:w``."""

    name: str
    why: str
    nbytes: int = 0
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value in the file that is no tensor: ``best_ema``, ``float64``, ``0.5``. ``text`` is short and printable."""

    path: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class NamedCode:
    """A name outside the closed table that the file asks for. It was listed, not imported and not called."""

    module: str
    name: str
    count: int = 1

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


CompanionRole = Literal["config", "tokenizer", "code", "doc", "other"]


@dataclass(frozen=True, slots=True)
class Companion:
    """A file beside the weights that belongs to the model: ``name`` is relative to the folder, with slashes."""

    name: str
    path: str
    role: CompanionRole


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One typed fact about the model, as GGUF keeps them: ``llama.block_count``, ``u32``, 30.

    ``kind`` is a GGUF value type: ``u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool string``, or ``arr[f32]`` and the like
    with a tuple as ``value``. A long array that was read (a vocabulary) is a ``StoredArray`` instead: it lies in its
    file until ``elements`` is asked.
    """

    key: str
    kind: str
    value: int | float | bool | str | tuple[object, ...] | StoredArray

    @property
    def is_array(self) -> bool:
        return self.kind.startswith("arr[")

    @property
    def count(self) -> int:
        """How many elements an array has; 1 for a scalar."""
        return len(self.value) if isinstance(self.value, tuple | StoredArray) else 1

    def same(self, other: KeyValue) -> bool:
        """Whether both say the same, wherever a long array lies."""
        if (self.key, self.kind, self.count) != (other.key, other.kind, other.count):
            return False
        return self.elements() == other.elements() if self.is_array else self.value == other.value

    def elements(self) -> tuple[object, ...]:
        """The elements of an array, read from the file if need be; a scalar as a tuple of one."""
        if isinstance(self.value, tuple):
            return self.value
        return self.value.elements() if isinstance(self.value, StoredArray) else (self.value,)


@dataclass(frozen=True, slots=True)
class Alias:
    """A tensor that is not stored a second time: its own view, and the name of the tensor that holds its bytes."""

    view: TensorView
    target: str


@dataclass(frozen=True, slots=True)
class Value:
    """An input or output of a graph. A dimension is a number, the name of one that is open, or None; ``dims`` is None
    where not even their number is said. ``type`` is an element type's name, or what else the value is: ``sequence``."""

    name: str
    type: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Graph:
    """The operations that weights belong to, as far as headers tell; ``model`` is what its format rewrites.

    ``operators`` counts nodes by ``domain::name``, ``opsets`` is by domain, and ``facts`` are what a model says of
    itself: IR version, producer. ``functions`` are operators that the model defines, ``custom`` the domains of those
    that neither it nor a standard defines.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    operators: dict[str, int]
    opsets: dict[str, int]
    facts: dict[str, str]
    functions: tuple[str, ...]
    custom: tuple[str, ...]
    model: object


@dataclass(slots=True)
class Weights:
    """Named tensors and what came with them. ``tensors`` is keyed by name and ordered as the file is.

    Ties are equal spans in ``tensors``; a reader restores both names. Only the tie pass, just before writing, moves the
    names that are not stored a second time to ``aliases``, keyed by name.
    ``refused`` are tensors that no target can hold, with the refusal that converting them would raise.
    ``chosen`` says which part of a checkpoint the tensors are from, and by which rule.
    ``naming`` is whose names the tensors have: "source" as they were read, "gguf" after an architecture's rules.
    ``keyvalues`` are typed facts about the model and its tokenizer, for formats that keep them.
    ``graph`` is the graph that the tensors are the weights of, where the artifact is of that kind.
    """

    tensors: dict[str, TensorView]
    format: str
    aliases: dict[str, Alias] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    pinned: tuple[File, ...] = ()  # open since before the first header byte was read
    metadata: dict[str, str] = field(default_factory=dict)
    keyvalues: tuple[KeyValue, ...] = ()
    companions: tuple[Companion, ...] = ()
    naming: str = "source"
    chosen: str = ""
    refused: dict[str, ArtifactkitError] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    code: list[NamedCode] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    graph: Graph | None = None

    kind = "weights"

    def __iter__(self) -> Iterator[TensorView]:
        return iter(self.tensors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, each name counted."""
        return sum(t.nbytes for t in self)

    def open_files(self) -> list[File]:
        """The open files that tensors are read from, each once; first those that the reader pinned."""
        found = {id(file): file for file in self.pinned}
        for tensor in self:
            found |= {id(file): file for file in files_of(tensor.source)}
        return list(found.values())


@dataclass(slots=True)
class Plan:
    """Compiled code for one device family. Nothing leads out of it."""

    source: Source
    device: str
    built_with: str

    kind = "plan"
