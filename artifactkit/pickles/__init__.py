"""The safe pickle machine: interprets opcodes, imports nothing, calls nothing; its table of names is an argument.

``Machine(data, table=...)`` reads one pickle with each ``load()``. Standard library only; part of the trusted base.
"""

from .machine import ANOMALIES, Machine
from .values import (
    Anomaly,
    Call,
    Dict,
    EightBit,
    Global,
    Handler,
    Inert,
    Limits,
    List,
    Observer,
    Opaque,
    Payload,
    Persistent,
    Table,
    Via,
    constant,
    function,
)

__all__ = [
    "ANOMALIES", "Anomaly", "Call", "Dict", "EightBit", "Global", "Handler", "Inert", "Limits", "List", "Machine",
    "Observer", "Opaque", "Payload", "Persistent", "Table", "Via", "constant", "function",
]  # fmt: skip
