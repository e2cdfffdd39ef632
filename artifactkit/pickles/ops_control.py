"""Opcodes that move, remember, name, call and frame (pickletools.py describes each)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import text
from .dispatch import NO_FRAME, NUMBER_LINE, opcode, register, shown
from .opcodes import HIGHEST_PROTOCOL
from .values import EightBit, Inert, Payload, Via

if TYPE_CHECKING:
    from .machine import Machine

# -- stack and memo


@opcode("MARK")
def _mark(m: Machine) -> None:
    m.fence = len(m.stack)
    m.marks.append(m.fence)
    m.allocate(16)


@opcode("POP")
def _pop(m: Machine) -> None:
    if m.marks and m.marks[-1] == len(m.stack):
        m.pop_mark()
    else:
        m.pop()


@opcode("POP_MARK")
def _pop_mark(m: Machine) -> None:
    del m.stack[m.pop_mark() :]


@opcode("DUP")
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
        raise m.corrupt(str(error), found=shown(line)) from None


@opcode("GET")
def _get(m: Machine) -> None:
    m.recall(_index(m))


@opcode("BINGET")
def _binget(m: Machine) -> None:
    m.recall(m.take_uint(1))


@opcode("LONG_BINGET")
def _long_binget(m: Machine) -> None:
    m.recall(m.take_uint(4))


@opcode("PUT")
def _put(m: Machine) -> None:
    index = _index(m)
    if not 0 <= index < 1 << 63:
        raise m.corrupt("no such memo index", found=index if index.bit_length() < 100 else "a huge number")
    m.store(index)


@opcode("BINPUT")
def _binput(m: Machine) -> None:
    m.store(m.take_uint(1))


@opcode("LONG_BINPUT")
def _long_binput(m: Machine) -> None:
    m.store(m.take_uint(4))


@opcode("MEMOIZE")
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
        m.anomaly("eight-bit-name", shown(line))
        raise m.corrupt(f"a name is not {encoding}: {error.reason}", found=shown(line)) from None


@opcode("GLOBAL")
def _global(m: Machine) -> None:
    module = _name_line(m, "utf-8")
    m.stack.append(m.resolve(module, _name_line(m, "utf-8")))


@opcode("STACK_GLOBAL")
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

    register(name, action)


_extension("EXT1", 1)
_extension("EXT2", 2)
_extension("EXT4", 4)


@opcode("REDUCE")
def _reduce(m: Machine) -> None:
    args, callee = _arguments(m, m.pop()), m.pop()
    m.stack.append(m.call(callee, args, {}, "REDUCE"))


def _arguments(m: Machine, args: object) -> tuple[object, ...]:
    if m.tolerant and isinstance(args, Inert):
        return (args,)
    if not isinstance(args, tuple):
        raise m.corrupt("the arguments are no tuple", found=type(args).__name__)
    return args


@opcode("NEWOBJ")
def _newobj(m: Machine) -> None:
    _construct(m, m.pop(), {}, "NEWOBJ")


@opcode("NEWOBJ_EX")
def _newobj_ex(m: Machine) -> None:
    kwargs, args = m.pop(), m.pop()
    if m.tolerant and isinstance(kwargs, Inert):
        kwargs = {}
    if not isinstance(kwargs, dict):
        raise m.corrupt("the keyword arguments are no dict", found=type(kwargs).__name__)
    _construct(m, args, kwargs, "NEWOBJ_EX")


def _construct(m: Machine, args: object, kwargs: dict[object, object], via: Via) -> None:
    args = _arguments(m, args)
    m.stack.append(m.call(m.pop(), args, kwargs, via))


@opcode("OBJ")
def _obj(m: Machine) -> None:
    items = m.pop_items()
    if not items:
        raise m.corrupt("there is no class after the mark")
    m.stack.append(m.call(items[0], tuple(items[1:]), {}, "OBJ"))


@opcode("INST")
def _inst(m: Machine) -> None:
    if not m.marks:
        raise m.corrupt("there is no mark")
    module = _name_line(m, "ascii")
    cls = m.resolve(module, _name_line(m, "ascii"))
    m.stack.append(m.call(cls, tuple(m.pop_items()), {}, "INST"))


@opcode("BUILD")
def _build(m: Machine) -> None:
    if len(m.stack) - 2 < m.fence:
        raise m.underflow()
    state = m.stack.pop()
    m.stack[-1] = m.build(m.stack[-1], state)


@opcode("PERSID")
def _persid(m: Machine) -> None:
    line = m.take_line(m.limits.name)
    try:
        pid = line.decode("ascii")
    except UnicodeDecodeError:
        raise m.corrupt("a persistent id is not ASCII", found=shown(line)) from None
    m.stack.append(m.persist(pid))


@opcode("BINPERSID")
def _binpersid(m: Machine) -> None:
    m.stack.append(m.persist(m.pop()))


# -- framing


@opcode("PROTO")
def _proto(m: Machine) -> None:
    version = m.take_uint(1)
    if m.at != m.begin:
        m.anomaly("proto-misplaced", f"at {m.at - m.begin} bytes from the start")
    if version > HIGHEST_PROTOCOL:
        m.anomaly("proto-unsupported", f"protocol {version}")
        raise m.corrupt("there is no such protocol", expected=f"at most {HIGHEST_PROTOCOL}", found=version)
    m.proto = version


@opcode("FRAME")
def _frame(m: Machine) -> None:
    length = m.take_uint(8)
    if m.position < m.frame_end < NO_FRAME:
        m.anomaly("frame-overlap", f"the frame before it ends at {m.frame_end}")
    else:
        m.end_frame()
    if length > m.left:
        m.anomaly("frame-too-long", f"{length} bytes, {m.left} are left")
        if not m.tolerant:
            raise m.truncated(length)
    m.frame_end = m.position + length
