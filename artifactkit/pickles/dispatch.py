"""The table from opcode to action, which the ``ops`` modules fill, and what those modules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .opcodes import OPCODES

if TYPE_CHECKING:
    from .machine import Machine

Action = Callable[["Machine"], None]
DISPATCH: list[Action | None] = [None] * 256  # STOP is the machine's own
_CODES = {name: code for code, (name, _) in OPCODES.items()}
NUMBER_LINE = 64 << 10  # bytes of a line that holds one number

NO_FRAME = 1 << 63  # the end of a frame when there is none


def register(name: str, action: Action) -> None:
    """Let ``action`` interpret the opcode ``name``."""
    DISPATCH[_CODES[name]] = action


def opcode(name: str) -> Callable[[Action], Action]:
    """``register`` as a decorator."""

    def decorate(action: Action) -> Action:
        register(name, action)
        return action

    return decorate


def shown(line: bytes) -> str:
    """The beginning of an argument, for messages."""
    return line[:40].decode("latin-1") + ("..." if len(line) > 40 else "")
