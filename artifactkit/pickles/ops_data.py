"""Opcodes that make values: numbers, text, bytes, containers (pickletools.py describes each)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from . import text
from .dispatch import NUMBER_LINE, opcode, register, shown
from .values import EightBit, Inert, Payload

if TYPE_CHECKING:
    from .machine import Machine

DOUBLE = struct.Struct(">d")

# -- constants and numbers


def _push(name: str, value: object) -> None:
    register(name, lambda m: m.stack.append(value))


_push("NONE", None)
_push("NEWTRUE", True)
_push("NEWFALSE", False)
_push("EMPTY_TUPLE", ())


@opcode("BININT")
def _binint(m: Machine) -> None:
    m.stack.append(int.from_bytes(m.take_bytes(4), "little", signed=True))


@opcode("BININT1")
def _binint1(m: Machine) -> None:
    m.stack.append(m.take_uint(1))


@opcode("BININT2")
def _binint2(m: Machine) -> None:
    m.stack.append(m.take_uint(2))


@opcode("LONG1")
def _long1(m: Machine) -> None:
    m.stack.append(int.from_bytes(m.take_bytes(m.take_uint(1)), "little", signed=True))


@opcode("LONG4")
def _long4(m: Machine) -> None:
    size = int.from_bytes(m.take_bytes(4), "little", signed=True)
    if size < 0:
        raise m.corrupt("a negative number of bytes", found=size)
    if size > m.limits.integer:
        if size > m.left:
            raise m.truncated(size)
        raise m.limit("an integer is too long", expected=f"at most {m.limits.integer} bytes", found=f"{size} bytes")
    m.stack.append(int.from_bytes(m.take_bytes(size), "little", signed=True))


@opcode("BINFLOAT")
def _binfloat(m: Machine) -> None:
    m.stack.append(DOUBLE.unpack(m.take_bytes(8))[0])


def _number(name: str, parse: Callable[[bytes], object]) -> None:
    def action(m: Machine) -> None:
        line = m.take_line(NUMBER_LINE)
        try:
            m.stack.append(parse(line))
        except ValueError as error:
            raise m.corrupt(str(error), found=shown(line)) from None

    register(name, action)


_number("INT", text.parse_int)
_number("LONG", text.parse_long)
_number("FLOAT", text.parse_float)


# -- text and bytes


@opcode("STRING")
def _string(m: Machine) -> None:
    line = m.take_line(m.limits.line)
    try:
        raw, hidden = text.parse_string(line)
    except ValueError as error:
        raise m.corrupt(str(error), found=shown(line)) from None
    if hidden:
        m.anomaly("text-escape", shown(line))
    m.stack.append(_eight_bit(raw))


def _eight_bit(raw: bytes) -> object:
    """A Python 2 string: ASCII is text beyond doubt, anything else keeps its bytes."""
    return raw.decode("ascii") if raw.isascii() else EightBit(raw)


@opcode("UNICODE")
def _unicode(m: Machine) -> None:
    line = m.take_line(m.limits.line)
    try:
        value, hidden = text.parse_unicode(line)
    except UnicodeDecodeError as error:
        raise m.corrupt(f"not raw-unicode-escape: {error.reason}", found=shown(line)) from None
    if hidden:
        m.anomaly("text-escape", shown(line))
    m.stack.append(value)


def _sized(name: str, width: int, kind: Literal["bytes", "bytearray", "str", "string"]) -> None:
    """An opcode with a length of ``width`` bytes, then that many bytes."""
    convert: Callable[[Machine, bytes], object] = {
        "bytes": lambda m, raw: raw,
        "bytearray": lambda m, raw: bytearray(raw),
        "str": _utf8,
        "string": lambda m, raw: _eight_bit(raw),
    }[kind]
    signed, binary = name == "BINSTRING", kind != "str"

    def action(m: Machine) -> None:
        size = int.from_bytes(m.take_bytes(width), "little", signed=signed)
        if size < 0:
            raise m.corrupt("a negative number of bytes", found=size)
        if size > m.payload_min:
            value: object = Payload(m.data, m.skip(size), size, kind)
            m.allocate(100)
        else:
            value = convert(m, m.take_bytes(size))
        m.stack.append(value)
        if binary and m.observer is not None:
            m.observer.held(value, offset=m.at)

    register(name, action)


def _utf8(m: Machine, raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise m.corrupt(f"not UTF-8: {error.reason}", found=shown(raw)) from None


_sized("BINSTRING", 4, "string")
_sized("SHORT_BINSTRING", 1, "string")
_sized("BINUNICODE", 4, "str")
_sized("SHORT_BINUNICODE", 1, "str")
_sized("BINUNICODE8", 8, "str")
_sized("BINBYTES", 4, "bytes")
_sized("SHORT_BINBYTES", 1, "bytes")
_sized("BINBYTES8", 8, "bytes")
_sized("BYTEARRAY8", 8, "bytearray")


@opcode("NEXT_BUFFER")
def _next_buffer(m: Machine) -> None:
    raise m.corrupt("the data is kept outside the pickle, where a file cannot have it")


@opcode("READONLY_BUFFER")
def _readonly_buffer(m: Machine) -> None:
    top = m.pop()
    text = isinstance(top, EightBit) or (isinstance(top, Payload) and top.kind in ("str", "string"))
    if text or not isinstance(top, bytes | bytearray | Payload):
        raise m.corrupt("a value of this type is no buffer", found=type(top).__name__)
    m.stack.append(top)


# -- containers


@opcode("EMPTY_LIST")
def _empty_list(m: Machine) -> None:
    m.allocate(64)
    m.stack.append([])


@opcode("EMPTY_DICT")
def _empty_dict(m: Machine) -> None:
    m.allocate(72)
    m.stack.append({})


@opcode("EMPTY_SET")
def _empty_set(m: Machine) -> None:
    m.allocate(224)
    m.stack.append(set())


@opcode("LIST")
def _list(m: Machine) -> None:
    items = m.pop_items()
    m.allocate(64 + 8 * len(items))
    m.stack.append(items)


@opcode("TUPLE")
def _tuple(m: Machine) -> None:
    items = m.pop_items()
    m.allocate(48 + 8 * len(items))
    m.stack.append(tuple(items))


def _counted_tuple(name: str, count: int) -> None:
    def action(m: Machine) -> None:
        if len(m.stack) - count < m.fence:
            raise m.underflow()
        m.allocate(48 + 8 * count)
        m.stack[-count:] = [tuple(m.stack[-count:])]

    register(name, action)


_counted_tuple("TUPLE1", 1)
_counted_tuple("TUPLE2", 2)
_counted_tuple("TUPLE3", 3)


@opcode("FROZENSET")
def _frozenset(m: Machine) -> None:
    items = m.pop_items()
    m.allocate(224 + 64 * len(items))
    for item in items:
        m.check_key(item)
    m.stack.append(frozenset(items))


@opcode("DICT")
def _dict(m: Machine) -> None:
    items = m.pop_items()
    m.allocate(72)
    made: dict[object, object] = {}
    _set_items(m, made, items)
    m.stack.append(made)


def _set_items(m: Machine, target: object, items: list[object]) -> None:
    """``target[key] = value`` for keys and values in turn, as CPython's unpickler allows it for plain containers."""
    if len(items) % 2:
        raise m.corrupt("a key without a value", expected="an even number of items", found=len(items))
    if isinstance(target, dict):
        m.allocate(50 * len(items))
        for i in range(0, len(items), 2):
            key = items[i]
            m.check_key(key)
            target[key] = items[i + 1]
    elif m.foreign(target, items):
        if isinstance(target, Inert):
            target.update(list(zip(items[::2], items[1::2], strict=True)), m)
    elif isinstance(target, list | bytearray):
        for i in range(0, len(items), 2):
            key, value = items[i], items[i + 1]
            if m.tolerant and isinstance(key, Inert):
                continue
            if not isinstance(key, int) or not -len(target) <= key < len(target):
                raise m.corrupt("there is no such index")
            if isinstance(target, list):
                target[key] = value
            else:
                target[key] = _byte(m, value)
    else:
        raise m.corrupt("items are set in a value that holds none", found=type(target).__name__)


def _byte(m: Machine, value: object) -> int:
    if m.tolerant and isinstance(value, Inert):
        return 0
    if not isinstance(value, int) or not 0 <= value <= 255:
        raise m.corrupt("a bytearray holds bytes only")
    return value


def _append_items(m: Machine, target: object, items: list[object]) -> None:
    if isinstance(target, list):
        m.allocate(10 * len(items))
        target.extend(items)
    elif m.foreign(target, items):
        if isinstance(target, Inert):
            target.extend(items, m)
    elif isinstance(target, bytearray):
        target.extend([_byte(m, item) for item in items])
    else:
        raise m.corrupt("items are appended to a value that is no list", found=type(target).__name__)


def _target(m: Machine, index: int) -> object:
    """The item at ``index``, to which the items after it belong."""
    if index < m.fence:
        raise m.underflow()
    return m.stack[index]


@opcode("APPEND")
def _append(m: Machine) -> None:
    target = _target(m, len(m.stack) - 2)
    _append_items(m, target, [m.stack.pop()])


@opcode("APPENDS")
def _appends(m: Machine) -> None:
    mark = m.pop_mark()
    target = _target(m, mark - 1)
    items = m.stack[mark:]
    del m.stack[mark:]
    if items:  # CPython looks at the target only when there is something to append
        _append_items(m, target, items)


@opcode("SETITEM")
def _setitem(m: Machine) -> None:
    target = _target(m, len(m.stack) - 3)
    items = m.stack[-2:]
    del m.stack[-2:]
    _set_items(m, target, items)


@opcode("SETITEMS")
def _setitems(m: Machine) -> None:
    mark = m.pop_mark()
    target = _target(m, mark - 1)
    items = m.stack[mark:]
    del m.stack[mark:]
    if items:
        _set_items(m, target, items)


@opcode("ADDITEMS")
def _additems(m: Machine) -> None:
    mark = m.pop_mark()
    target = _target(m, mark - 1)
    items = m.stack[mark:]
    del m.stack[mark:]
    if not items:
        return
    if isinstance(target, set):
        m.allocate(64 * len(items))
        for item in items:
            m.check_key(item)
            target.add(item)
    elif m.foreign(target, items):
        if isinstance(target, Inert):
            target.add(items, m)
    else:
        raise m.corrupt("items are added to a value that is no set", found=type(target).__name__)
