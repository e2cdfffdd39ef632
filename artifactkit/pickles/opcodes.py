"""The opcodes of pickle protocols 0 to 5: code, name, and the protocol that introduced it (PEP 307, 3154, 574)."""

from __future__ import annotations

OPCODES: dict[int, tuple[str, int]] = {
    0x28: ("MARK", 0), 0x29: ("EMPTY_TUPLE", 1), 0x2e: ("STOP", 0), 0x30: ("POP", 0), 0x31: ("POP_MARK", 1),
    0x32: ("DUP", 0), 0x42: ("BINBYTES", 3), 0x43: ("SHORT_BINBYTES", 3), 0x46: ("FLOAT", 0), 0x47: ("BINFLOAT", 1),
    0x49: ("INT", 0), 0x4a: ("BININT", 1), 0x4b: ("BININT1", 1), 0x4c: ("LONG", 0), 0x4d: ("BININT2", 1),
    0x4e: ("NONE", 0), 0x50: ("PERSID", 0), 0x51: ("BINPERSID", 1), 0x52: ("REDUCE", 0), 0x53: ("STRING", 0),
    0x54: ("BINSTRING", 1), 0x55: ("SHORT_BINSTRING", 1), 0x56: ("UNICODE", 0), 0x58: ("BINUNICODE", 1),
    0x5d: ("EMPTY_LIST", 1), 0x61: ("APPEND", 0), 0x62: ("BUILD", 0), 0x63: ("GLOBAL", 0), 0x64: ("DICT", 0),
    0x65: ("APPENDS", 1), 0x67: ("GET", 0), 0x68: ("BINGET", 1), 0x69: ("INST", 0), 0x6a: ("LONG_BINGET", 1),
    0x6c: ("LIST", 0), 0x6f: ("OBJ", 1), 0x70: ("PUT", 0), 0x71: ("BINPUT", 1), 0x72: ("LONG_BINPUT", 1),
    0x73: ("SETITEM", 0), 0x74: ("TUPLE", 0), 0x75: ("SETITEMS", 1), 0x7d: ("EMPTY_DICT", 1), 0x80: ("PROTO", 2),
    0x81: ("NEWOBJ", 2), 0x82: ("EXT1", 2), 0x83: ("EXT2", 2), 0x84: ("EXT4", 2), 0x85: ("TUPLE1", 2),
    0x86: ("TUPLE2", 2), 0x87: ("TUPLE3", 2), 0x88: ("NEWTRUE", 2), 0x89: ("NEWFALSE", 2), 0x8a: ("LONG1", 2),
    0x8b: ("LONG4", 2), 0x8c: ("SHORT_BINUNICODE", 4), 0x8d: ("BINUNICODE8", 4), 0x8e: ("BINBYTES8", 4),
    0x8f: ("EMPTY_SET", 4), 0x90: ("ADDITEMS", 4), 0x91: ("FROZENSET", 4), 0x92: ("NEWOBJ_EX", 4),
    0x93: ("STACK_GLOBAL", 4), 0x94: ("MEMOIZE", 4), 0x95: ("FRAME", 4), 0x96: ("BYTEARRAY8", 5),
    0x97: ("NEXT_BUFFER", 5), 0x98: ("READONLY_BUFFER", 5),
}  # fmt: skip

HIGHEST_PROTOCOL = 5
STOP = 0x2E


def opcode_name(code: int) -> str:
    """``BINGET`` for 0x68; ``opcode 0xff`` for a byte that is none."""
    known = OPCODES.get(code)
    return known[0] if known else f"opcode 0x{code:02x}"
