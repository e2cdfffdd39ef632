"""What names of Python's own library mean in a checkpoint: containers, numbers, and data classes kept as Opaque."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from ..errors import Corrupt
from ..files import Bytes
from ..pickles import Call, Dict, Global, Handler, List, Opaque, Payload, function
from .arguments import arity, integer

LATIN1 = frozenset({"latin1", "latin-1", "latin_1", "iso-8859-1", "iso8859-1", "8859"})
STEP = 1 << 20  # bytes of text between two marks in the index of Latin1Text

# Data that people keep beside weights. Known to be harmless, kept as Opaque with what they were given.
DATA_CLASSES = (
    ("argparse", "Namespace"), ("types", "SimpleNamespace"), ("pathlib", "PosixPath"), ("pathlib", "WindowsPath"),
    ("pathlib", "PurePosixPath"), ("pathlib", "PureWindowsPath"), ("pathlib", "Path"), ("pathlib", "PurePath"),
    ("pathlib._local", "PosixPath"), ("pathlib._local", "WindowsPath"), ("pathlib._local", "PurePosixPath"),
    ("pathlib._local", "PureWindowsPath"), ("datetime", "datetime"), ("datetime", "date"), ("datetime", "time"),
    ("datetime", "timedelta"), ("datetime", "timezone"), ("uuid", "UUID"), ("uuid", "SafeUUID"), ("decimal", "Decimal"),
    ("fractions", "Fraction"), ("builtins", "object"), ("ipaddress", "IPv4Address"),
)  # fmt: skip


class Latin1Text(Bytes):
    """The bytes that text stored as UTF-8 means in Latin-1: how protocols 0 to 2 keep ``bytes``.

    One pass at the start counts the characters and marks every mebibyte; reads then decode from the mark before.
    """

    def __init__(self, text: Payload) -> None:
        self.text = text
        self.marks: list[int] = []  # characters before each STEP of text
        self.label = getattr(text.data, "label", "")
        count = 0
        for start in range(0, text.nbytes, STEP):
            self.marks.append(count)
            raw = text.data.read(text.offset + start, min(STEP, text.nbytes - start))
            continuation = raw.translate(None, bytes(range(0x80)) + bytes(range(0xC0, 0x100)))
            if any(lead not in b"\xc2\xc3" for lead in set(raw.translate(None, bytes(range(0xC0))))):
                raise Corrupt("text that should mean bytes holds characters beyond Latin-1", offset=text.offset + start)
            count += len(raw) - len(continuation)
        self._size = count

    @property
    def size(self) -> int:
        return self._size

    def read(self, offset: int, n: int) -> bytes:
        if offset < 0 or n < 0 or offset + n > self._size:
            raise Corrupt("the data ends too early", expected=f"{n} bytes", found=f"{self._size - offset} bytes")
        low, high = 0, len(self.marks)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.marks[middle] <= offset else (low, middle)
        out: list[bytes] = []
        skip, left, at = offset - self.marks[low] if self.marks else 0, n, low * STEP
        decode = codecs.getincrementaldecoder("utf-8")()
        first = self.text.data.read(self.text.offset + at, 1) if n else b""
        if first and 0x80 <= first[0] < 0xC0:  # the mark cuts a character in two; it belongs to the step before
            at += 1
        while left:
            raw = self.text.data.read(self.text.offset + at, min(STEP, self.text.nbytes - at))
            at += len(raw)
            try:
                part = decode.decode(raw).encode("latin-1")[skip : skip + left] if raw else b""
            except UnicodeError as error:
                raise Corrupt(f"text that should mean bytes is not Latin-1: {error}", offset=self.text.offset) from None
            skip = 0 if part else skip
            if not raw:
                raise Corrupt("text that should mean bytes is not UTF-8", offset=self.text.offset)
            out.append(part)
            left -= len(part)
        return b"".join(out)


def _encode(call: Call) -> object:
    arity(call, 1, 2)
    text, encoding = call.args[0], call.args[1] if len(call.args) > 1 else "utf-8"
    if not isinstance(encoding, str) or encoding.lower() not in LATIN1:
        return call.opaque()
    if isinstance(text, Payload) and text.kind == "str":
        data = Latin1Text(text)
        return Payload(data, 0, data.size, "bytes")
    if not isinstance(text, str):
        raise call.corrupt("the argument is no text", found=type(text).__name__)
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise call.corrupt("the text holds characters beyond Latin-1") from None


def _items(call: Call, value: object) -> Iterable[object]:
    if not isinstance(value, list | tuple | set | frozenset | dict):
        raise call.corrupt("the argument is no list of items", found=type(value).__name__)
    call.machine.charge(len(value))
    call.machine.allocate(60 * len(value))
    return value


def _pairs(call: Call, value: object) -> list[tuple[object, object]]:
    if isinstance(value, dict):
        call.machine.charge(len(value))
        call.machine.allocate(100 * len(value))
        return list(value.items())
    out: list[tuple[object, object]] = []
    for item in _items(call, value):
        if not isinstance(item, list | tuple) or len(item) != 2:
            raise call.corrupt("an item is no pair of key and value", found=type(item).__name__)
        call.machine.check_key(item[0])
        out.append((item[0], item[1]))
    return out


def _ordered_dict(call: Call) -> object:
    arity(call, 0, 1)
    return Dict("OrderedDict", _pairs(call, call.args[0]) if call.args else ())


def _counter(call: Call) -> object:
    arity(call, 0, 1)
    return Dict("Counter", _pairs(call, call.args[0]) if call.args else ())


def _default_dict(call: Call) -> object:
    arity(call, 0, 2)
    return Dict("defaultdict", _pairs(call, call.args[1]) if len(call.args) > 1 else ())


def _dict(call: Call) -> object:
    arity(call, 0, 1)
    return dict(_pairs(call, call.args[0])) if call.args else {}


def _deque(call: Call) -> object:
    arity(call, 0, 2)
    return List("deque", _items(call, call.args[0]) if call.args else ())


def _list(call: Call) -> object:
    arity(call, 0, 1)
    return list(_items(call, call.args[0])) if call.args else []


def _tuple(call: Call) -> object:
    arity(call, 0, 1)
    return tuple(_items(call, call.args[0])) if call.args else ()


def _set(call: Call) -> object:
    arity(call, 0, 1)
    items = list(_items(call, call.args[0])) if call.args else []
    call.machine.charge(2 * len(items))  # hashing is dearer than copying
    for item in items:
        call.machine.check_key(item)
    return set(items) if call.callee.name == "set" else frozenset(items)


def _slice(call: Call) -> object:
    arity(call, 1, 3)
    return slice(*call.args)


def _range(call: Call) -> object:
    arity(call, 1, 3)
    numbers = [integer(call, arg, "the argument") for arg in call.args]
    if len(numbers) == 3 and numbers[2] == 0:
        raise call.corrupt("a range with a step of 0")
    return range(*numbers)


def _complex(call: Call) -> object:
    arity(call, 0, 2)
    parts = [arg for arg in call.args if isinstance(arg, int | float)]
    if len(parts) != len(call.args):
        return call.opaque()
    try:
        return complex(*parts)
    except OverflowError:
        raise call.corrupt("a number out of range") from None


def _bytes(call: Call) -> object:
    """bytes and bytearray of nothing, of bytes, or of text and its encoding."""
    empty: bytes | bytearray = bytearray() if call.callee.name == "bytearray" else b""
    if not call.args:
        return empty
    data = _encode(call) if len(call.args) == 2 else call.args[0]
    if isinstance(data, Payload):
        return Payload(data.data, data.offset, data.nbytes, "bytearray" if empty == bytearray() else "bytes")
    if not isinstance(data, bytes | bytearray):
        return call.opaque()
    call.machine.charge(len(data) >> 3)
    call.machine.allocate(len(data))
    return type(empty)(data)


def _reconstructor(call: Call) -> object:
    """copyreg._reconstructor(class, base, state): how protocols 0 and 1 make an object of a class."""
    arity(call, 3, 3)
    cls, base, state = call.args
    if not isinstance(cls, Global | Opaque):
        raise call.corrupt("the argument is no class", found=type(cls).__name__)
    if isinstance(base, Global) and base.name == "object":
        return call.machine.call(cls, (), {}, "NEWOBJ")  # one step: whatever answers `cls` is called without arguments
    made = Opaque(cls, (), via=call.via, offset=call.offset)
    if isinstance(state, dict):
        call.machine.charge(len(state))
        made.pairs.extend(state.items())
    elif isinstance(state, list | tuple | set | frozenset):
        call.machine.charge(len(state))
        made.items.extend(state)
    elif state is not None:
        made.items.append(state)
    return made


def _newobj(call: Call) -> object:
    if not call.args or not isinstance(call.args[0], Global):
        return call.opaque()
    return Opaque(call.args[0], call.args[1:], via=call.via, offset=call.offset)


def _entries() -> dict[tuple[str, str], Handler]:
    out: dict[tuple[str, str], Handler] = {
        ("collections", "OrderedDict"): function(_ordered_dict),
        ("collections", "Counter"): function(_counter),
        ("collections", "defaultdict"): function(_default_dict),
        ("collections", "deque"): function(_deque),
        ("_codecs", "encode"): function(_encode),
        ("copyreg", "_reconstructor"): function(_reconstructor),
        ("copyreg", "__newobj__"): function(_newobj),
    }
    builtin = {
        "dict": _dict, "list": _list, "tuple": _tuple, "set": _set, "frozenset": _set, "slice": _slice,
        "range": _range, "complex": _complex, "bytes": _bytes, "bytearray": _bytes,
    }  # fmt: skip
    for name, answer in builtin.items():
        out[("builtins", name)] = function(answer)
    for name in ("int", "float", "bool", "str"):  # as classes: the factory of a defaultdict
        out[("builtins", name)] = function(Call.opaque)
    for key in DATA_CLASSES:
        out[key] = function(Call.opaque)
    return out


PYTHON: dict[tuple[str, str], Handler] = _entries()
