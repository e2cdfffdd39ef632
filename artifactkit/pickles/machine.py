"""The pickle machine: interprets the opcodes of protocols 0 to 5 and builds inert values.

It follows CPython's C unpickler (Modules/_pickle.c) in what it accepts. It imports nothing and calls nothing that the
file names: a name means what the ``table`` says, or nothing. Nothing here recurses, so nesting costs no stack.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Mapping

from ..errors import ArtifactkitError
from ..files import Bytes
from . import ops_control, ops_data  # noqa: F401  they fill DISPATCH
from .dispatch import DISPATCH, NO_FRAME
from .opcodes import OPCODES, STOP
from .stream import Stream
from .values import (
    Anomaly,
    Call,
    Dict,
    EightBit,
    Global,
    Inert,
    Limits,
    List,
    Observer,
    Opaque,
    Payload,
    Persistent,
    Table,
    Via,
)

ANOMALIES: dict[str, str] = {
    "proto-misplaced": "PROTO is not the first opcode, or comes twice",
    "proto-missing": "opcodes are newer than the protocol that the pickle declares",
    "proto-unsupported": "PROTO names a protocol that does not exist",
    "frame-straddled": "an opcode reaches over the end of its frame: CPython's unpicklers disagree",
    "frame-overlap": "a frame begins within another: CPython's unpicklers disagree",
    "frame-unfinished": "the pickle stops within a frame: CPython's unpicklers leave the file at different places",
    "frame-too-long": "a frame reaches past the end of the data",
    "memo-overwritten": "a memo entry is replaced by another value",
    "memo-sparse": "a memo index that no pickler would use next",
    "dup": "DUP, which no pickler writes",
    "text-escape": "an escape in text hides a plain character",
    "eight-bit-name": "a name is given in 8-bit text",
    "computed-name": "a name is computed by the file",
    "build-on-global": "BUILD changes a class, function or module",
    "store-on-global": "items are put into something that the file only names (sys.path, os.environ)",
}

MAX_ANOMALIES = 1000  # kept on the machine; all go to the observer
HASH_SELF = (1 << 61) - 1  # ints below this modulus hash to themselves, so they cannot be made to collide
FREE_COLLISIONS = 1000
LONG_KEY = 4096
PLAIN = (str, bytes, bytearray, int, float, complex, type(None), list, tuple, dict, set, frozenset, Payload)


class Machine(Stream):
    """Interprets pickles in ``data``, one for each ``load()``, from ``position`` on.

    ``table`` maps exact (module, name) pairs to handlers. ``persistent`` answers persistent ids; without it they become
    ``Persistent``. Runs of bytes or text longer than ``payload_min`` stay in the file as ``Payload``.

    ``names`` counts every name asked for, and ``unknown`` those outside the table; they hold what was seen even when
    ``load`` raises. ``extensions`` are the codes of EXT opcodes.
    """

    def __init__(
        self,
        data: Bytes,
        *,
        table: Table,
        persistent: Callable[[object], object] | None = None,
        observer: Observer | None = None,
        file: str | None = None,
        member: str | None = None,
        start: int = 0,
        limits: Limits | None = None,
        payload_min: int = 65536,
    ) -> None:
        super().__init__(data, start, file, member)
        self.table = table
        self.observer = observer
        self.limits = limits or Limits()
        self.payload_min = payload_min
        self.names: dict[tuple[str, str], int] = {}
        self.unknown: dict[tuple[str, str], int] = {}
        self.extensions: list[int] = []
        self.anomalies: list[Anomaly] = []
        self.opcodes = 0
        # For a scan: go on where some unpickler would, past a frame that is too long (CPython in Python), and
        # where what a call made may be the tuple, dict or index that is needed.
        self.tolerant = False
        self._persistent = persistent
        self._memory = self.limits.memory
        self._work = self.limits.work + self.limits.work_per_byte * data.size
        self._hashes: dict[int, int] = {}
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.fence = 0  # items below belong to an outer mark
        self.memo: dict[int, object] = {}
        self.proto = 0
        self.frame_end = NO_FRAME
        self.begin = start  # of the pickle being interpreted

    # -- running

    def load(self) -> object:
        """Interpret one pickle up to its STOP and return its value; ``position`` is then the byte after it.

        Raises Corrupt, Truncated or LimitExceeded with file, member, offset and opcode. Memo and stack are the
        pickle's own; limits are shared by all pickles of a machine.
        """
        self.begin = self.position
        self.stack, self.marks, self.fence, self.memo = [], [], 0, {}
        self.proto, self.frame_end = 0, NO_FRAME
        seen = bytearray(256)
        try:
            self._run(seen)
            if not self.stack or len(self.stack) <= self.fence:
                raise self.corrupt("nothing on the stack")
            if self.position < self.frame_end < NO_FRAME:
                self.anomaly("frame-unfinished", f"{self.frame_end - self.position} bytes of the frame are left")
            return self.stack.pop()
        except ArtifactkitError as error:
            self.locate(error)
            self.end_frame()
            raise
        finally:
            self.memo, self.stack = {}, []
            newest = max((OPCODES[code][1] for code in range(256) if seen[code] and code in OPCODES), default=0)
            if newest > 1 and newest > self.proto:
                self.anomaly("proto-missing", f"protocol {self.proto} declared, opcodes of protocol {newest} used")

    def _run(self, seen: bytearray) -> None:
        dispatch = DISPATCH
        limit = self.limits.opcodes
        while True:
            pos = self._pos
            if pos >= len(self._buf):
                self.at = self.position
                if self.left <= 0:
                    raise self._no_stop()
                self._fill(1)
                pos = 0
            code = self._buf[pos]
            self._pos = pos + 1
            self.at = self._base + pos
            self.code = code
            self.opcodes = count = self.opcodes + 1
            if count > limit:
                raise self.limit("too many opcodes", expected=f"at most {limit}")
            seen[code] = 1
            if code == STOP:
                return
            action = dispatch[code]
            if action is None:
                raise self.corrupt("there is no such opcode")
            action(self)
            if self.frame_end != NO_FRAME and self._base + self._pos >= self.frame_end:
                self.end_frame()

    def end_frame(self) -> None:
        # Reading from a file, the C unpickler loses the rest of the frame here, and goes on with other names.
        if self.position > self.frame_end:
            self.anomaly("frame-straddled", f"the frame ends at {self.frame_end}")
        self.frame_end = NO_FRAME

    def _no_stop(self) -> ArtifactkitError:
        error = self.truncated(1)
        error.what = "the pickle ends without STOP"
        return error

    def nested(self, table: Table | None = None) -> object:
        """Interpret the pickle that begins at ``position`` with a machine of its own; go on after it.

        For streams that hold a pickle between two opcodes of another (joblib's object arrays).
        """
        inner = Machine(
            self.data,
            table=self.table if table is None else table,
            persistent=self._persistent,
            observer=self.observer,
            file=self.file,
            member=self.member,
            start=self.position,
            limits=self.limits,
            payload_min=self.payload_min,
        )
        inner.names, inner.unknown, inner.extensions = self.names, self.unknown, self.extensions
        inner.anomalies, inner._hashes = self.anomalies, self._hashes
        inner._memory, inner._work, inner.opcodes = self._memory, self._work, self.opcodes
        try:
            return inner.load()
        finally:
            self._memory, self._work, self.opcodes = inner._memory, inner._work, inner.opcodes
            self.position = inner.position

    def take(self, n: int) -> Payload:
        """The next ``n`` bytes of the stream as a Payload, passed over unread: for handlers of inline data."""
        if n < 0:
            raise self.corrupt("a negative number of bytes", found=n)
        return Payload(self.data, self.skip(n), n, "bytes")

    # -- budgets

    def charge(self, work: int) -> None:
        """Count work that one opcode multiplies; LimitExceeded when it is out of proportion to the file."""
        self._work -= work
        if self._work < 0:
            raise self.limit(
                "the work asked for is out of proportion to the file",
                expected=f"at most {self.limits.work + self.limits.work_per_byte * self.size} steps",
            )

    def allocate(self, nbytes: int) -> None:
        """Count memory for a Python object of about ``nbytes``; LimitExceeded when there is too much of it."""
        self._memory -= nbytes
        if self._memory < 0:
            raise self.limit("too many objects", expected=f"at most {self.limits.memory} bytes of them")

    def anomaly(self, kind: str, detail: str = "") -> None:
        """Note an anomaly, at the current opcode."""
        found = Anomaly(kind, detail or ANOMALIES[kind], self.at, self.opcode)
        if len(self.anomalies) < MAX_ANOMALIES:
            self.anomalies.append(found)
        if self.observer is not None:
            self.observer.anomaly(found)

    # -- the stack

    def pop(self) -> object:
        """The topmost item above the last mark."""
        if len(self.stack) <= self.fence:
            raise self.underflow()
        return self.stack.pop()

    def underflow(self) -> ArtifactkitError:
        return self.corrupt("a mark stands where an item is needed" if self.marks else "the stack is empty")

    def pop_mark(self) -> int:
        """Index of the first item after the last mark, which is forgotten."""
        if not self.marks:
            raise self.corrupt("there is no mark")
        mark = self.marks.pop()
        self.fence = self.marks[-1] if self.marks else 0
        return mark

    def pop_items(self) -> list[object]:
        """The items after the last mark, taken off the stack."""
        mark = self.pop_mark()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def store(self, index: int) -> None:
        """Memoise the topmost item under ``index``."""
        if len(self.stack) <= self.fence:
            raise self.underflow()
        memo, value = self.memo, self.stack[-1]
        if index in memo:
            if memo[index] is not value:
                self.anomaly("memo-overwritten", f"memo {index}")
        else:
            count = len(memo)
            if index != count and index != count + 1:  # Python 2 counted from 1 in protocol 0
                self.anomaly("memo-sparse", f"memo {index} after {count} entries")
            self._memory -= 100
            if self._memory < 0:
                self.allocate(0)
        memo[index] = value

    def recall(self, index: int) -> None:
        """Push what is memoised under ``index``."""
        try:
            value = self.memo[index]
        except KeyError:
            raise self.corrupt(f"nothing is memoised under {index}") from None
        self.stack.append(value)

    # -- names and calls

    def resolve(self, module: str, name: str, literal: bool = True) -> object:
        """What the table says that ``module.name`` means: an inert constant, or a Global."""
        if self.proto < 3:
            if (module, name) in NAME_MAPPING:
                module, name = NAME_MAPPING[(module, name)]
            elif module in IMPORT_MAPPING:
                module = IMPORT_MAPPING[module]
        return self._found(Global(module, name, self.at), literal)

    def resolve_extension(self, code: int) -> object:
        """A Global for an EXT code: which name it stands for is not in the file."""
        self.extensions.append(code)
        if self.observer is not None:
            self.observer.extension(code, opcode=self.opcode, offset=self.at)
        return self._found(Global("copyreg", f"(extension {code})", self.at, extension=code), literal=False)

    def _found(self, found: Global, literal: bool) -> object:
        self.allocate(200)
        key = (found.module, found.name)
        self.names[key] = self.names.get(key, 0) + 1
        handler = None if found.extension is not None else self.table.get(key)
        if handler is None:
            self.unknown[key] = self.unknown.get(key, 0) + 1
        if self.observer is not None:
            self.observer.resolved(found, opcode=self.opcode, literal=literal, known=handler is not None)
        if handler is None or handler.kind == "call":
            return found
        return handler.value

    def call(self, callee: object, args: tuple[object, ...], kwargs: Mapping[object, object], via: Via) -> object:
        """Answer a call: our own function when the table has one for the name, else an Opaque."""
        if isinstance(callee, PLAIN):
            raise self.corrupt("the callee is no name", found=type(callee).__name__)
        if self.observer is not None:
            self.observer.called(callee, args, kwargs, opcode=via, offset=self.at)
        self.allocate(600)
        if isinstance(callee, Global) and callee.extension is None:
            handler = self.table.get((callee.module, callee.name))
            if handler is not None and handler.function is not None:
                return handler.function(Call(self, callee, args, kwargs, via, self.at))
        return Opaque(callee, args, kwargs, via=via, offset=self.at)

    def persist(self, pid: object) -> object:
        """Answer a persistent id."""
        if self.observer is not None:
            self.observer.persistent(pid, opcode=self.opcode, offset=self.at)
        self.allocate(100)
        return Persistent(pid, self.at) if self._persistent is None else self._persistent(pid)

    def build(self, target: object, state: object) -> object:
        """Answer BUILD; what is returned stands on the stack from then on."""
        if self.observer is not None:
            self.observer.built(target, state, offset=self.at)
        if isinstance(target, Inert):
            return target.build(state, self)
        if isinstance(target, Global):
            # Python would set attributes of a class, function or module. Nothing happens here, but it is no accident.
            self.anomaly("build-on-global", target.full)
            return target
        halves = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        for half in halves:
            if half is not None and not isinstance(half, dict) and not (self.tolerant and isinstance(half, Inert)):
                raise self.corrupt("the state is no dict", found=type(half).__name__)
        if isinstance(target, Dict | List):
            for half in halves:
                if isinstance(half, dict):
                    self.charge(len(half))
                    target.attrs.update(half)
        elif halves[0] is not None or halves[1]:
            raise self.corrupt("a value of this type takes no state", found=type(target).__name__)
        return target

    def foreign(self, target: object, items: list[object]) -> bool:
        """Whether ``target`` is no plain container; then the observer hears what is stored in it."""
        if not isinstance(target, Inert | Global):
            return False
        if self.observer is not None:
            self.observer.stored(target, items, opcode=self.opcode, offset=self.at)
        if isinstance(target, Global):
            self.anomaly("store-on-global", target.full)
        return True

    # -- keys

    def check_key(self, key: object) -> None:
        """Refuse a key that cannot be hashed, or only at a cost.

        CPython hashes and compares nested tuples recursively in C: deep ones end the process, and shared ones cost
        exponential time. Colliding numbers make a dict quadratic.
        """
        kind = type(key)
        if kind is str or kind is bytes or kind is EightBit:
            if len(key) > LONG_KEY:  # type: ignore[arg-type]
                self.charge(len(key) >> 6)  # type: ignore[arg-type]
        elif kind is int:
            if not -HASH_SELF < key < HASH_SELF:  # type: ignore[operator]
                self.charge(key.bit_length() >> 6)  # type: ignore[attr-defined]
                self._count_hash(hash(key))
        elif kind is tuple or kind is frozenset:
            self._check_nested(key)
            self._count_hash(hash(key))
        else:
            self._check_leaf(key)
            if kind is complex or kind is float:
                self._count_hash(hash(key))

    def _check_leaf(self, key: object) -> None:
        if isinstance(key, list | dict | set | bytearray | slice) or (
            isinstance(key, Payload) and key.kind == "bytearray"
        ):
            raise self.corrupt("a key is not hashable", found=type(key).__name__)

    def _count_hash(self, value: int) -> None:
        count = self._hashes.get(value, 0) + 1
        self._hashes[value] = count
        if count == 1:
            self.allocate(100)
        elif count > FREE_COLLISIONS:
            self.charge(count)

    def _check_nested(self, key: object) -> None:
        pending: list[tuple[object, int]] = [(key, 1)]
        while pending:
            value, depth = pending.pop()
            if isinstance(value, tuple | frozenset):
                if depth > self.limits.key_depth:
                    raise self.limit("a key is nested too deep", expected=f"at most {self.limits.key_depth} levels")
                self.charge(1 + len(value))
                pending.extend((item, depth + 1) for item in value)
            elif isinstance(value, int):
                self.charge(value.bit_length() >> 6)
            elif isinstance(value, str | bytes):
                self.charge(len(value) >> 6)
            else:
                self._check_leaf(value)
