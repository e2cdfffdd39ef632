"""What each opcode does: one small function each, in the order of the protocols (pickletools.py describes them)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from . import text
from .opcodes import HIGHEST_PROTOCOL, OPCODES
from .values import EightBit, Inert, Payload, Via

if TYPE_CHECKING:
    from .machine import Machine

Action = Callable[["Machine"], None]
DISPATCH: list[Action | None] = [None] * 256
_CODES = {name: code for code, (name, _) in OPCODES.items()}
NUMBER_LINE = 64 << 10  # bytes of a line that holds one number
DOUBLE = struct.Struct(">d")


def _op(*names: str) -> Callable[[Action], Action]:
    def register(action: Action) -> Action:
        for name in names:
            DISPATCH[_CODES[name]] = action
        return action

    return register


# -- constants and numbers


def _push(name: str, value: object) -> None:
    DISPATCH[_CODES[name]] = lambda m: m.stack.append(value)


_push("NONE", None)
_push("NEWTRUE", True)
_push("NEWFALSE", False)
_push("EMPTY_TUPLE", ())


@_op("BININT")
def _binint(m: Machine) -> None:
    m.stack.append(int.from_bytes(m.take_bytes(4), "little", signed=True))


@_op("BININT1")
def _binint1(m: Machine) -> None:
    m.stack.append(m.take_uint(1))


@_op("BININT2")
def _binint2(m: Machine) -> None:
    m.stack.append(m.take_uint(2))


@_op("LONG1")
def _long1(m: Machine) -> None:
    m.stack.append(int.from_bytes(m.take_bytes(m.take_uint(1)), "little", signed=True))


@_op("LONG4")
def _long4(m: Machine) -> None:
    size = int.from_bytes(m.take_bytes(4), "little", signed=True)
    if size < 0:
        raise m.corrupt("a negative number of bytes", found=size)
    if size > m.limits.integer:
        if size > m.left:
            raise m.truncated(size)
        raise m.limit("an integer is too long", expected=f"at most {m.limits.integer} bytes", found=f"{size} bytes")
    m.stack.append(int.from_bytes(m.take_bytes(size), "little", signed=True))


@_op("BINFLOAT")
def _binfloat(m: Machine) -> None:
    m.stack.append(DOUBLE.unpack(m.take_bytes(8))[0])


def _number(name: str, parse: Callable[[bytes], object]) -> None:
    def action(m: Machine) -> None:
        line = m.take_line(NUMBER_LINE)
        try:
            m.stack.append(parse(line))
        except ValueError as error:
            raise m.corrupt(str(error), found=_shown(line)) from None

    DISPATCH[_CODES[name]] = action


def _shown(line: bytes) -> str:
    return line[:40].decode("latin-1") + ("..." if len(line) > 40 else "")


_number("INT", text.parse_int)
_number("LONG", text.parse_long)
_number("FLOAT", text.parse_float)


# -- text and bytes


@_op("STRING")
def _string(m: Machine) -> None:
    line = m.take_line(m.limits.line)
    try:
        raw, hidden = text.parse_string(line)
    except ValueError as error:
        raise m.corrupt(str(error), found=_shown(line)) from None
    if hidden:
        m.anomaly("text-escape", _shown(line))
    m.stack.append(_eight_bit(raw))


def _eight_bit(raw: bytes) -> object:
    """A Python 2 string: ASCII is text beyond doubt, anything else keeps its bytes."""
    return raw.decode("ascii") if raw.isascii() else EightBit(raw)


@_op("UNICODE")
def _unicode(m: Machine) -> None:
    line = m.take_line(m.limits.line)
    try:
        value, hidden = text.parse_unicode(line)
    except UnicodeDecodeError as error:
        raise m.corrupt(f"not raw-unicode-escape: {error.reason}", found=_shown(line)) from None
    if hidden:
        m.anomaly("text-escape", _shown(line))
    m.stack.append(value)


def _sized(name: str, width: int, kind: Literal["bytes", "bytearray", "str", "string"]) -> None:
    """An opcode with a length of ``width`` bytes, then that many bytes."""
    convert: Callable[[Machine, bytes], object] = {
        "bytes": lambda m, raw: raw,
        "bytearray": lambda m, raw: bytearray(raw),
        "str": _utf8,
        "string": lambda m, raw: _eight_bit(raw),
    }[kind]
    signed = name == "BINSTRING"

    def action(m: Machine) -> None:
        size = int.from_bytes(m.take_bytes(width), "little", signed=signed)
        if size < 0:
            raise m.corrupt("a negative number of bytes", found=size)
        if size > m.payload_min:
            m.stack.append(Payload(m.data, m.skip(size), size, kind))
            m.allocate(100)
        else:
            m.stack.append(convert(m, m.take_bytes(size)))

    DISPATCH[_CODES[name]] = action


def _utf8(m: Machine, raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise m.corrupt(f"not UTF-8: {error.reason}", found=_shown(raw)) from None


_sized("BINSTRING", 4, "string")
_sized("SHORT_BINSTRING", 1, "string")
_sized("BINUNICODE", 4, "str")
_sized("SHORT_BINUNICODE", 1, "str")
_sized("BINUNICODE8", 8, "str")
_sized("BINBYTES", 4, "bytes")
_sized("SHORT_BINBYTES", 1, "bytes")
_sized("BINBYTES8", 8, "bytes")
_sized("BYTEARRAY8", 8, "bytearray")


@_op("NEXT_BUFFER")
def _next_buffer(m: Machine) -> None:
    raise m.corrupt("the data is kept outside the pickle, where a file cannot have it")


@_op("READONLY_BUFFER")
def _readonly_buffer(m: Machine) -> None:
    top = m.pop()
    if not isinstance(top, bytes | bytearray | Payload) or (isinstance(top, Payload) and top.kind == "str"):
        raise m.corrupt("a value of this type is no buffer", found=type(top).__name__)
    m.stack.append(top)


# -- containers


@_op("EMPTY_LIST")
def _empty_list(m: Machine) -> None:
    m.allocate(64)
    m.stack.append([])


@_op("EMPTY_DICT")
def _empty_dict(m: Machine) -> None:
    m.allocate(72)
    m.stack.append({})


@_op("EMPTY_SET")
def _empty_set(m: Machine) -> None:
    m.allocate(224)
    m.stack.append(set())


@_op("LIST")
def _list(m: Machine) -> None:
    items = m.pop_items()
    m.allocate(64 + 8 * len(items))
    m.stack.append(items)


@_op("TUPLE")
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

    DISPATCH[_CODES[name]] = action


_counted_tuple("TUPLE1", 1)
_counted_tuple("TUPLE2", 2)
_counted_tuple("TUPLE3", 3)


@_op("FROZENSET")
def _frozenset(m: Machine) -> None:
    items = m.pop_items()
    m.allocate(224 + 64 * len(items))
    for item in items:
        m.check_key(item)
    m.stack.append(frozenset(items))


@_op("DICT")
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
    elif isinstance(target, Inert):
        if m.observer is not None:
            m.observer.stored(target, items, opcode=m.opcode, offset=m.at)
        target.update(list(zip(items[::2], items[1::2], strict=True)), m)
    elif isinstance(target, list):
        for i in range(0, len(items), 2):
            key = items[i]
            if not isinstance(key, int) or not -len(target) <= key < len(target):
                raise m.corrupt("no such index of a list")
            target[key] = items[i + 1]
    else:
        raise m.corrupt("items are set in a value that holds none", found=type(target).__name__)


def _append_items(m: Machine, target: object, items: list[object]) -> None:
    if isinstance(target, list):
        m.allocate(10 * len(items))
        target.extend(items)
    elif isinstance(target, Inert):
        if m.observer is not None:
            m.observer.stored(target, items, opcode=m.opcode, offset=m.at)
        target.extend(items, m)
    elif isinstance(target, bytearray):
        for item in items:
            if not isinstance(item, int) or not 0 <= item <= 255:
                raise m.corrupt("a bytearray holds bytes only")
            target.append(item)
    else:
        raise m.corrupt("items are appended to a value that is no list", found=type(target).__name__)


def _target(m: Machine, index: int) -> object:
    """The item at ``index``, to which the items after it belong."""
    if index < m.fence:
        raise m.underflow()
    return m.stack[index]


@_op("APPEND")
def _append(m: Machine) -> None:
    target = _target(m, len(m.stack) - 2)
    _append_items(m, target, [m.stack.pop()])


@_op("APPENDS")
def _appends(m: Machine) -> None:
    mark = m.pop_mark()
    target = _target(m, mark - 1)
    items = m.stack[mark:]
    del m.stack[mark:]
    if items:  # CPython looks at the target only when there is something to append
        _append_items(m, target, items)


@_op("SETITEM")
def _setitem(m: Machine) -> None:
    target = _target(m, len(m.stack) - 3)
    items = m.stack[-2:]
    del m.stack[-2:]
    _set_items(m, target, items)


@_op("SETITEMS")
def _setitems(m: Machine) -> None:
    mark = m.pop_mark()
    target = _target(m, mark - 1)
    items = m.stack[mark:]
    del m.stack[mark:]
    if items:
        _set_items(m, target, items)


@_op("ADDITEMS")
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
    elif isinstance(target, Inert):
        if m.observer is not None:
            m.observer.stored(target, items, opcode=m.opcode, offset=m.at)
        target.add(items, m)
    else:
        raise m.corrupt("items are added to a value that is no set", found=type(target).__name__)


# -- stack and memo


@_op("MARK")
def _mark(m: Machine) -> None:
    m.fence = len(m.stack)
    m.marks.append(m.fence)
    m.allocate(16)


@_op("POP")
def _pop(m: Machine) -> None:
    if m.marks and m.marks[-1] == len(m.stack):
        m.pop_mark()
    else:
        m.pop()


@_op("POP_MARK")
def _pop_mark(m: Machine) -> None:
    del m.stack[m.pop_mark() :]


@_op("DUP")
def _dup(m: Machine) -> None:
    if len(m.stack) <= m.fence:
        raise m.underflow()
    m.anomaly("dup")
    m.stack.append(m.stack[-1])


def _index(m: Machine) -> int:
    line = m.take_line(NUMBER_LINE)
    try:
        return text.parse_number(line, 10)
    except ValueError as error:
        raise m.corrupt(str(error), found=_shown(line)) from None


@_op("GET")
def _get(m: Machine) -> None:
    m.recall(_index(m))


@_op("BINGET")
def _binget(m: Machine) -> None:
    m.recall(m.take_uint(1))


@_op("LONG_BINGET")
def _long_binget(m: Machine) -> None:
    m.recall(m.take_uint(4))


@_op("PUT")
def _put(m: Machine) -> None:
    index = _index(m)
    if not 0 <= index < 1 << 63:
        raise m.corrupt("no such memo index", found=index if index.bit_length() < 100 else "a huge number")
    m.store(index)


@_op("BINPUT")
def _binput(m: Machine) -> None:
    m.store(m.take_uint(1))


@_op("LONG_BINPUT")
def _long_binput(m: Machine) -> None:
    m.store(m.take_uint(4))


@_op("MEMOIZE")
def _memoize(m: Machine) -> None:
    m.store(len(m.memo))


# -- names and objects


def _name_line(m: Machine, encoding: str) -> str:
    line = m.take_line(m.limits.name)
    if not line:
        raise m.corrupt("an empty name")
    try:
        return line.decode(encoding)
    except UnicodeDecodeError as error:
        m.anomaly("eight-bit-name", _shown(line))
        raise m.corrupt(f"a name is not {encoding}: {error.reason}", found=_shown(line)) from None


@_op("GLOBAL")
def _global(m: Machine) -> None:
    module = _name_line(m, "utf-8")
    m.stack.append(m.resolve(module, _name_line(m, "utf-8")))


@_op("STACK_GLOBAL")
def _stack_global(m: Machine) -> None:
    name, module = m.pop(), m.pop()
    if isinstance(module, EightBit) or isinstance(name, EightBit):
        m.anomaly("eight-bit-name")
    parts: list[str] = []
    literal = True
    for part in (module, name):
        if isinstance(part, EightBit):
            part = part.decode("latin-1")
        if isinstance(part, Payload) and part.kind in ("str", "string"):
            raise m.limit("a name is too long", expected=f"at most {m.payload_min} bytes", found=f"{part.nbytes} bytes")
        if isinstance(part, Inert):
            # The result of a call might be text. Which, only running the file would tell.
            literal = False
            part = "(computed)"
        if not isinstance(part, str):
            raise m.corrupt("a name is no text", found=type(part).__name__)
        parts.append(part)
    if not literal:
        m.anomaly("computed-name", ".".join(parts))
    m.stack.append(m.resolve(parts[0], parts[1], literal))


def _extension(name: str, width: int) -> None:
    def action(m: Machine) -> None:
        code = int.from_bytes(m.take_bytes(width), "little", signed=width == 4)
        if code <= 0:
            raise m.corrupt("no such extension code", found=code)
        m.stack.append(m.resolve_extension(code))

    DISPATCH[_CODES[name]] = action


_extension("EXT1", 1)
_extension("EXT2", 2)
_extension("EXT4", 4)


@_op("REDUCE")
def _reduce(m: Machine) -> None:
    args, callee = m.pop(), m.pop()
    if not isinstance(args, tuple):
        raise m.corrupt("the arguments are no tuple", found=type(args).__name__)
    m.stack.append(m.call(callee, args, {}, "REDUCE"))


@_op("NEWOBJ")
def _newobj(m: Machine) -> None:
    _construct(m, m.pop(), {}, "NEWOBJ")


@_op("NEWOBJ_EX")
def _newobj_ex(m: Machine) -> None:
    kwargs, args = m.pop(), m.pop()
    if not isinstance(kwargs, dict):
        raise m.corrupt("the keyword arguments are no dict", found=type(kwargs).__name__)
    _construct(m, args, kwargs, "NEWOBJ_EX")


def _construct(m: Machine, args: object, kwargs: dict[object, object], via: Via) -> None:
    cls = m.pop()
    if not isinstance(args, tuple):
        raise m.corrupt("the arguments are no tuple", found=type(args).__name__)
    m.stack.append(m.call(cls, args, kwargs, via))


@_op("OBJ")
def _obj(m: Machine) -> None:
    items = m.pop_items()
    if not items:
        raise m.corrupt("there is no class after the mark")
    m.stack.append(m.call(items[0], tuple(items[1:]), {}, "OBJ"))


@_op("INST")
def _inst(m: Machine) -> None:
    if not m.marks:
        raise m.corrupt("there is no mark")
    module = _name_line(m, "ascii")
    cls = m.resolve(module, _name_line(m, "ascii"))
    m.stack.append(m.call(cls, tuple(m.pop_items()), {}, "INST"))


@_op("BUILD")
def _build(m: Machine) -> None:
    if len(m.stack) - 2 < m.fence:
        raise m.underflow()
    state = m.stack.pop()
    m.stack[-1] = m.build(m.stack[-1], state)


@_op("PERSID")
def _persid(m: Machine) -> None:
    line = m.take_line(m.limits.name)
    try:
        pid = line.decode("ascii")
    except UnicodeDecodeError:
        raise m.corrupt("a persistent id is not ASCII", found=_shown(line)) from None
    m.stack.append(m.persist(pid))


@_op("BINPERSID")
def _binpersid(m: Machine) -> None:
    m.stack.append(m.persist(m.pop()))


# -- framing


@_op("PROTO")
def _proto(m: Machine) -> None:
    version = m.take_uint(1)
    if m.at != m.begin:
        m.anomaly("proto-misplaced", f"at {m.at - m.begin} bytes from the start")
    if version > HIGHEST_PROTOCOL:
        m.anomaly("proto-unsupported", f"protocol {version}")
        raise m.corrupt("there is no such protocol", expected=f"at most {HIGHEST_PROTOCOL}", found=version)
    m.proto = version


@_op("FRAME")
def _frame(m: Machine) -> None:
    length = m.take_uint(8)
    if m.position < m.frame_end < 1 << 63:
        m.anomaly("frame-overlap", f"the frame before it ends at {m.frame_end}")
    if length > m.left:
        m.anomaly("frame-too-long", f"{length} bytes, {m.left} are left")
        raise m.truncated(length)
    m.frame_end = m.position + length
