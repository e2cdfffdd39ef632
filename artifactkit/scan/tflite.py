"""TensorFlow Lite models, and the flat buffers of mobile torch: which operators beyond the built-in ones they need.

Source: tensorflow/lite/schema/schema.fbs (version 3, identifier TFL3).
"""

from __future__ import annotations

from ..containers.flatbuffer import FlatBuffer
from .model import Rule
from .piece import Piece
from .savedmodel import CUSTOM as TF_CUSTOM
from .savedmodel import rule_of

FLEX = Rule(
    "tflite-flex-operator", "suspicious", "a TFLite model calls an operator that reads, writes or runs code",
    "with the Flex delegate the interpreter runs TensorFlow's own operators, those for files and Python included",
    "run it without the Flex delegate; look at what the operator is for",
)  # fmt: skip
RULES = (FLEX,)

OPERATOR_CODES, CUSTOM_CODE = 1, 1  # fields of Model and of OperatorCode
DETECTION = "TFLite_Detection_PostProcess"  # compiled into the interpreter


def scan(piece: Piece, kind: str) -> None:
    buffer = FlatBuffer(piece.data)
    start, count = buffer.vector(buffer.root(), OPERATOR_CODES)
    for i in range(count):
        code = buffer.follow(start + 4 * i)
        at = buffer.field(code, CUSTOM_CODE)
        name = buffer.string(at) if at is not None else ""
        if name.startswith("Flex"):
            _flex(piece, name, code)
        elif name and name != DETECTION:
            piece.runs(f"the custom operator {name[:200]}", "a native library that is registered with the interpreter",
                       "register no operators that you do not know")  # fmt: skip


def _flex(piece: Piece, name: str, offset: int) -> None:
    rule = rule_of(name.removeprefix("Flex"))
    piece.runs(f"{name[:200]}: an operator of TensorFlow", "the Flex delegate", "run it without that delegate")
    if rule is not None and rule is not TF_CUSTOM:
        piece.find(FLEX, f"the operator {name[:200]}", offset=offset, name=name[:200], severity=rule.severity)
