"""What the scan puts in the place of the values of a pickle: just enough to follow the file, and to judge it.

They take whatever a real object of that kind might take, for the scan must go on as long as any unpickler would.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..pickles import Call, Dict, Global, Handler, Inert, Machine, Opaque, Payload, function
from .pickle_names import ENCODINGS, JOBLIB_MODULES, SAFE, STORAGES

if TYPE_CHECKING:
    from .pickle_judge import Judge

LATIN1 = frozenset("latin1 latin-1 latin_1 iso-8859-1 iso8859-1 8859".split())  # noqa: SIM905 - a list reads worse
ARRAY_CODE = re.compile(r"[<>|=]?([?bBhHiIlLqQefdgFDGSUVOmMcpP]|[biufcmMOSaUV])(\d{0,9})(\[[^\]]*\])?")
SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "l": 8, "L": 8, "q": 8, "Q": 8, "e": 2, "f": 4, "d": 8,
         "g": 16, "F": 8, "D": 16, "G": 32, "c": 1, "m": 8, "M": 8}  # fmt: skip
BY_NAME = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
           "float16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16, "bool_": 1, "int_": 8,
           "intc": 4, "half": 2, "single": 4, "double": 8, "datetime64": 8, "timedelta64": 8}  # fmt: skip


class Made(Inert):
    """What a call of a name in the table makes. Takes items and state; keeps none."""

    __slots__ = ("callee",)

    def __init__(self, callee: Global) -> None:
        self.callee = callee

    def build(self, state: object, machine: Machine) -> object:
        return self

    def extend(self, items: list[object], machine: Machine) -> None:
        return None

    def update(self, pairs: list[tuple[object, object]], machine: Machine) -> None:
        return None

    def add(self, items: list[object], machine: Machine) -> None:
        return None


class Given(Made):
    """What the loader would supply for a persistent id that describes no storage."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Global("", "(persistent id)"))


class Stored(Made):
    """A storage that a persistent id describes. ``nbytes`` is what it should weigh; ``numel`` counts elements."""

    __slots__ = ("itemsize", "key", "numel", "whole")

    def __init__(self, callee: Global, key: str, numel: int, whole: bool = True) -> None:
        super().__init__(callee)
        self.key, self.numel, self.whole = key, numel, whole
        self.itemsize = STORAGES[callee.name]

    @property
    def typed(self) -> bool:
        return "typed" not in self.callee.name.lower()


class DType(Made):
    """A numpy.dtype: bytes an element, None when not known; whether its elements are objects."""

    __slots__ = ("itemsize", "objects")

    def __init__(self, callee: Global, code: object) -> None:
        super().__init__(callee)
        self.itemsize: int | None = None
        self.objects = False
        if isinstance(code, bytes):
            code = code.decode("latin-1")
        if isinstance(code, Global):
            code = code.name
        if isinstance(code, DType):
            self.itemsize, self.objects = code.itemsize, code.objects
        elif isinstance(code, str):
            self._read(code)

    def _read(self, code: str) -> None:
        if code in BY_NAME:
            self.itemsize = BY_NAME[code]
            return
        match = ARRAY_CODE.fullmatch(code)
        self.objects = code in ("object", "object_") or (match is not None and match[1] == "O")
        if match is not None and not self.objects:
            digits = match[2]
            self.itemsize = int(digits) * (4 if match[1] == "U" else 1) if digits else SIZES.get(match[1])

    def build(self, state: object, machine: Machine) -> object:
        """(version, byte order, subdtype, names, fields, itemsize, alignment, flags): records state their size here."""
        if isinstance(state, tuple) and len(state) > 5 and type(state[5]) is int and state[5] > 0:
            self.itemsize = state[5]
        if isinstance(state, tuple) and len(state) > 7 and type(state[7]) is int and state[7] & 0x01:
            self.objects = True  # NPY_ITEM_REFCOUNT: a record that holds objects
        return self


class JoblibArray(Made):
    """joblib's NumpyArrayWrapper: to joblib the array's bytes follow in the stream, right after BUILD.

    To a plain unpickler they are opcodes like any others; ``Judge.plain`` is that view.
    """

    __slots__ = ("judge",)

    def __init__(self, callee: Global, judge: Judge) -> None:
        super().__init__(callee)
        self.judge = judge

    def build(self, state: object, machine: Machine) -> object:
        judge = self.judge
        if judge.plain or judge.nested or not isinstance(state, dict):
            return self
        dtype, shape = state.get("dtype"), state.get("shape")
        judge.arrays += 1
        if machine.position == machine.frame_end:
            machine.end_frame()  # the pickler ends its frame before it writes the array
        if not isinstance(dtype, DType) or not isinstance(shape, tuple | list):
            raise machine.corrupt("a joblib array lacks its type or shape")
        if dtype.objects:
            judge.nested = True  # joblib reads it with CPython's own unpickler, which knows no wrappers
            try:
                machine.nested()
            finally:
                judge.nested = False
            return self
        count = 1
        for size in shape:
            if not isinstance(size, int) or size < 0:
                raise machine.corrupt("a joblib array has no valid shape")
            count *= size
        if dtype.itemsize is None:
            raise machine.corrupt("the size of a joblib array's elements is not known")
        if state.get("numpy_array_alignment_bytes") is not None:
            machine.take(machine.take_uint(1))
        machine.take(count * dtype.itemsize)
        return self


class JoblibFile(Made):
    """joblib before 0.10: the array is in a file of its own beside this one."""

    __slots__ = ("judge",)

    def __init__(self, callee: Global, judge: Judge) -> None:
        super().__init__(callee)
        self.judge = judge

    def build(self, state: object, machine: Machine) -> object:
        name = state.get("filename") if isinstance(state, dict) else None
        self.judge.beside(name, machine.at)
        return self


def literal_bytes(value: object) -> bytes | Payload | None:
    """``value`` when it is bytes of the file, else None."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, bytes) or (isinstance(value, Payload) and value.kind != "str"):
        return value
    return None


def _encode(call: Call) -> object:
    """``_codecs.encode(text, 'latin1')``: how protocols 0 to 2 keep bytes."""
    text, encoding = call.args[0] if call.args else None, call.args[1] if len(call.args) > 1 else "utf-8"
    if not isinstance(encoding, str) or encoding.lower() not in ENCODINGS:
        return Opaque(call.callee, call.args, call.kwargs, via=call.via, offset=call.offset)
    if isinstance(text, Payload) and text.kind == "str" and text.nbytes <= 64 << 20:
        text = text.read().decode("utf-8", "surrogatepass")
    if isinstance(text, str):
        call.machine.allocate(len(text))
        try:
            return text.encode(encoding)
        except UnicodeError:
            return Made(call.callee)
    return Made(call.callee)


def _pairs(call: Call, value: object) -> list[tuple[object, object]]:
    if isinstance(value, dict):
        call.machine.charge(len(value))
        call.machine.allocate(100 * len(value))
        return list(value.items())
    out: list[tuple[object, object]] = []
    if isinstance(value, list | tuple):
        call.machine.charge(len(value))
        call.machine.allocate(100 * len(value))
        for item in value:
            if isinstance(item, list | tuple) and len(item) == 2:
                call.machine.check_key(item[0])
                out.append((item[0], item[1]))
    return out


# Answered by Python's own values: what a file goes on to do with these depends on them.
PLAIN = frozenset(
    {("builtins", "tuple"), ("builtins", "list"), ("torch", "Size"), ("torch.serialization", "_get_layout")}
)  # fmt: skip


def _plain(call: Call) -> object:
    given = call.args[0] if len(call.args) == 1 else ()
    if call.callee.name == "_get_layout":
        return given if isinstance(given, str) else Made(call.callee)
    if not isinstance(given, list | tuple):
        return Made(call.callee)
    call.machine.charge(len(given))
    call.machine.allocate(60 + 8 * len(given))
    return list(given) if call.callee.name == "list" else tuple(given)


class Names(dict[tuple[str, str], Handler]):
    """The machine's table: every name is answered here, by ``answer``, as the judge sees fit. Holds nothing."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.judge = judge
        self._handler = function(self.answer)

    def get(self, key: object, default: object = None) -> Handler:
        return self._handler

    def answer(self, call: Call) -> object:
        callee = call.callee
        key = (callee.module, callee.name)
        if key == ("builtins", "getattr"):
            owner, name = call.args if len(call.args) == 2 else (None, None)
            if isinstance(owner, Global) and isinstance(name, str) and len(owner.name) + len(name) < 1000:
                return Global(owner.module, f"{owner.name}.{name}", call.offset)
        if key not in SAFE:
            return call.opaque()
        module, name = key
        if module == "collections" and name != "deque":
            start = 1 if name == "defaultdict" else 0
            return Dict(name, _pairs(call, call.args[start]) if len(call.args) > start else ())
        if key == ("builtins", "dict"):
            return Dict("dict", _pairs(call, call.args[0]) if call.args else ())
        if key == ("numpy", "dtype"):
            return DType(callee, call.args[0] if call.args else None)
        if key == ("_codecs", "encode"):
            made = _encode(call)
            self.judge.held(made, offset=call.offset)
            return made
        if key in (("builtins", "bytes"), ("builtins", "bytearray")) and call.args:
            known = _encode(call) if len(call.args) > 1 else literal_bytes(call.args[0])
            return known if isinstance(known, bytes | Payload) else Made(callee)
        if key in PLAIN:
            return _plain(call)
        if module == "torch._utils" and name.startswith("_rebuild_tensor"):
            from .sparse import view_of

            return view_of(call.args, callee)
        if module in JOBLIB_MODULES:
            return JoblibArray(callee, self.judge) if name == "NumpyArrayWrapper" else JoblibFile(callee, self.judge)
        if key == ("copyreg", "_reconstructor") or module == "copyreg":
            made = call.args[0] if call.args else None
            if isinstance(made, Global) and (made.module, made.name) != key and made.module != "copyreg":
                return self.answer(Call(call.machine, made, (), {}, call.via, call.offset))
        return Made(callee)
