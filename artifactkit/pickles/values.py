"""What the pickle machine builds: inert values, and the words in which it is told what names mean.

None of these runs anything. A name outside the table is a ``Global``; whatever a file would call with it is an
``Opaque`` that keeps what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import Corrupt, LimitExceeded
from ..files import Bytes

if TYPE_CHECKING:
    from .machine import Machine

Via = Literal["REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"]


class EightBit(bytes):
    """A Python 2 string that is not ASCII. The file does not say its encoding, so its bytes are kept."""

    __slots__ = ()

    def text(self) -> str:
        """As text for people: UTF-8 when it is that, else Latin-1, which never fails."""
        try:
            return self.decode("utf-8")
        except UnicodeDecodeError:
            return self.decode("latin-1")


# Three classes written out: no named tuples, for on the machine's stack a tuple is one of the file's; no dataclasses,
# for making one in every process costs more than reading a small checkpoint does.


class Global:
    """A name that the file asks for: never looked up. ``offset`` is where the file asked.

    ``extension`` is the code of EXT1/2/4, whose name only the copyreg registry of the loading process knows.
    """

    __slots__ = ("extension", "module", "name", "offset")

    def __init__(self, module: str, name: str, offset: int = 0, extension: int | None = None) -> None:
        self.module, self.name, self.offset, self.extension = module, name, offset, extension

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"

    def __eq__(self, other: object) -> bool:
        """Alike wherever the file asked for it."""
        if not isinstance(other, Global):
            return NotImplemented
        return (self.module, self.name, self.extension) == (other.module, other.name, other.extension)

    def __hash__(self) -> int:
        return hash((self.module, self.name, self.extension))

    def __repr__(self) -> str:
        return f"Global({self.module!r}, {self.name!r})"


class Payload:
    """A long run of bytes or text left in the file: ``nbytes`` bytes at ``offset`` of ``data``.

    ``kind`` is the Python type that it stands for: ``str`` is UTF-8 (surrogates passed), ``string`` a Python 2 string.
    """

    __slots__ = ("data", "kind", "nbytes", "offset")

    def __init__(
        self, data: Bytes, offset: int, nbytes: int, kind: Literal["bytes", "bytearray", "str", "string"]
    ) -> None:
        self.data, self.offset, self.nbytes, self.kind = data, offset, nbytes, kind

    def read(self, limit: int = 64 << 20) -> bytes:
        """The bytes; LimitExceeded when there are more than ``limit``."""
        if self.nbytes > limit:
            raise LimitExceeded(
                "a value is too long to be held in memory", offset=self.offset, expected=f"at most {limit} bytes",
                found=f"{self.nbytes} bytes",
            )  # fmt: skip
        return self.data.read(self.offset, self.nbytes)


class Persistent:
    """What the file expects its loader to supply for the persistent id ``pid`` (no callback was given)."""

    __slots__ = ("offset", "pid")

    def __init__(self, pid: object, offset: int = 0) -> None:
        self.pid, self.offset = pid, offset


class Inert:
    """Base of our values that take part in BUILD, APPEND(S), SETITEM(S) or ADDITEMS. Hashed by identity.

    By default they refuse: a file that appends to a tensor is corrupt.
    """

    __slots__ = ()

    def build(self, state: object, machine: Machine) -> object:
        """Take BUILD's state; what is returned takes this value's place on the stack (as a rule ``self``)."""
        raise Corrupt(f"a {type(self).__name__} takes no state")

    def extend(self, items: list[object], machine: Machine) -> None:
        raise Corrupt(f"items are appended to a {type(self).__name__}")

    def update(self, pairs: list[tuple[object, object]], machine: Machine) -> None:
        raise Corrupt(f"items are set in a {type(self).__name__}")

    def add(self, items: list[object], machine: Machine) -> None:
        raise Corrupt(f"items are added to a {type(self).__name__}")


class Opaque(Inert):
    """An object that the file would make by calling a name that we do not know. It was not called.

    ``callee`` is what would have been called: a Global, or another value for a call of something computed (then
    ``module`` is empty). ``state`` is the last BUILD state as it stands; ``attrs`` merges the dicts and slots of all
    of them. ``items`` collects APPEND(S) and ADDITEMS, ``pairs`` SETITEM(S).
    """

    __slots__ = (
        "args", "attrs", "builds", "callee", "items", "kwargs", "module", "name", "offset", "pairs", "state", "via",
    )  # fmt: skip

    def __init__(
        self,
        callee: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[object, object] | None = None,
        *,
        via: Via = "REDUCE",
        offset: int = 0,
    ) -> None:
        self.callee = callee
        self.module = callee.module if isinstance(callee, Global) else ""
        self.name = callee.name if isinstance(callee, Global) else "(computed)"
        self.args = args
        self.kwargs: Mapping[object, object] = kwargs or {}
        self.via = via
        self.offset = offset
        self.state: object = None
        self.attrs: dict[object, object] = {}
        self.items: list[object] = []
        self.pairs: list[tuple[object, object]] = []
        self.builds = 0

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name

    def build(self, state: object, machine: Machine) -> object:
        self.state = state
        self.builds += 1
        # The two halves of copyreg's protocol: __dict__, and slots when the state is a pair.
        halves = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        for half in halves:
            if isinstance(half, dict):
                machine.charge(len(half))
                self.attrs.update(half)
        return self

    def extend(self, items: list[object], machine: Machine) -> None:
        self.items.extend(items)

    def update(self, pairs: list[tuple[object, object]], machine: Machine) -> None:
        self.pairs.extend(pairs)

    def add(self, items: list[object], machine: Machine) -> None:
        self.items.extend(items)

    def __repr__(self) -> str:
        return f"<Opaque {self.full}>"  # shallow: its contents may be deep, or contain it


class Dict(dict[object, object]):
    """A dict of another type: OrderedDict, defaultdict, Counter. ``attrs`` is its ``__dict__``."""

    __slots__ = ("attrs", "cls")

    def __init__(self, cls: str, pairs: Iterable[tuple[object, object]] = ()) -> None:
        super().__init__(pairs)
        self.cls = cls
        self.attrs: dict[object, object] = {}


class List(list[object]):
    """A list of another type: deque. ``attrs`` as for ``Dict``."""

    __slots__ = ("attrs", "cls")

    def __init__(self, cls: str, items: Iterable[object] = ()) -> None:
        super().__init__(items)
        self.cls = cls
        self.attrs: dict[object, object] = {}


class Call(NamedTuple):
    """One call that the file asks for, given to the handler of its name."""

    machine: Machine
    callee: Global
    args: tuple[object, ...]
    kwargs: Mapping[object, object]
    via: Via
    offset: int

    def opaque(self) -> Opaque:
        """The call as an inert value, for a handler that does not know these arguments."""
        return Opaque(self.callee, self.args, self.kwargs, via=self.via, offset=self.offset)

    def corrupt(self, what: str, expected: object = None, found: object = None) -> Corrupt:
        """An error about this call's arguments, to be raised."""
        return Corrupt(f"{self.callee.full}: {what}", offset=self.offset, expected=expected, found=found)


class Handler(NamedTuple):
    """What a name in the table means.

    ``value``: the name stands for the inert constant ``value``. ``call``: the name stays a Global, and a call of it is
    answered by our own ``function``.
    """

    kind: Literal["value", "call"]
    value: object = None
    function: Callable[[Call], object] | None = None


def constant(value: object) -> Handler:
    """A handler for a name that stands for an inert constant."""
    return Handler("value", value=value)


def function(fn: Callable[[Call], object]) -> Handler:
    """A handler for a name whose calls ``fn`` answers."""
    return Handler("call", function=fn)


# Exact (module, name) pairs, after the renaming of Python 2 modules; never a prefix.
Table = Mapping[tuple[str, str], Handler]


class Limits(NamedTuple):
    """What one machine may take, however its file is shaped. Counts, or bytes.

    ``work`` bounds what single opcodes can multiply (hashing nested tuples, copying memoised dicts); it grows with
    the file by ``work_per_byte``. ``memory`` bounds the Python objects made, by their usual sizes.
    """

    opcodes: int = 50_000_000
    memory: int = 2 << 30
    work: int = 1 << 20
    work_per_byte: int = 8
    key_depth: int = 100  # nesting of tuples and frozensets used as keys: CPython hashes them recursively in C
    line: int = 256 << 20  # bytes of a text line: STRING and UNICODE of protocol 0
    name: int = 64 << 10  # bytes of a module's or global's name
    integer: int = 1 << 20  # bytes of LONG4


class Anomaly(NamedTuple):
    """Something that CPython's pickler never writes, or that its unpicklers disagree about."""

    kind: str
    detail: str
    offset: int
    opcode: str


class Observer:
    """Told what happens while it happens; every method may be overridden, and raising from one aborts the load.

    Offsets are those of the opcode. A scanner judges here, not by the final value, since a file can drop what it made.
    """

    def resolved(self, name: Global, *, opcode: str, literal: bool, known: bool) -> None:
        """A global was asked for. ``literal``: module and name stand in the file as text, not computed by it."""

    def called(self, callee: object, args: tuple[object, ...], kwargs: Mapping[object, object], *, opcode: Via,
               offset: int) -> None:  # fmt: skip
        """A call or construction is asked for; ``callee`` is a Global or whatever stood there."""

    def built(self, target: object, state: object, *, offset: int) -> None:
        """BUILD: ``state`` is about to be given to ``target``."""

    def stored(self, target: object, items: list[object], *, opcode: str, offset: int) -> None:
        """Items are appended to, added to or set in something that is no plain container."""

    def persistent(self, pid: object, *, opcode: str, offset: int) -> None:
        """A persistent id is asked for."""

    def held(self, value: object, *, offset: int) -> None:
        """The file holds ``value``: bytes, a bytearray, a Python 2 string, or a Payload of one of them."""

    def extension(self, code: int, *, opcode: str, offset: int) -> None:
        """EXT1/2/4: a callable from the copyreg registry of the loading process."""

    def anomaly(self, anomaly: Anomaly) -> None:
        """See ``Anomaly``; ``kind`` is one of ``machine.ANOMALIES``."""
