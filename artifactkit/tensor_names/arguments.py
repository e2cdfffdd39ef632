"""Checks of the arguments that a file gives to the names in the table."""

from __future__ import annotations

from ..pickles import Call, Payload
from ..source import Source, span


def integer(call: Call, value: object, what: str) -> int:
    """``value`` as an int of at most 64 bits; Corrupt for anything else."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise call.corrupt(f"{what} is no integer", expected="an integer of 64 bits", found=type(value).__name__)
    return value


def integers(call: Call, value: object, what: str) -> tuple[int, ...]:
    """``value`` (tuple or list) as a tuple of ints; Corrupt for anything else."""
    if not isinstance(value, tuple | list) or len(value) > 64:
        raise call.corrupt(f"{what} is no short list of integers", found=type(value).__name__)
    return tuple(integer(call, item, what) for item in value)


def arity(call: Call, low: int, high: int) -> None:
    """Corrupt when the number of positional arguments is not in ``low``..``high``."""
    if not low <= len(call.args) <= high or call.kwargs:
        raise call.corrupt(
            "wrong number of arguments", expected=f"{low}" if low == high else f"{low} to {high}", found=len(call.args)
        )


def raw_source(data: bytes | Payload, place: tuple[str, int]) -> Source:
    """Where the bytes of a value are: in memory, or in the file. ``place`` tells equal bytes of two values apart."""
    if isinstance(data, Payload):
        return span(data.data, data.offset, data.nbytes, place)
    from ..source import Inline

    return Inline(bytes(data), place)
