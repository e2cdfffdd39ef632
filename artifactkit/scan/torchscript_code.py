"""TorchScript: which operators and classes the code of an archive asks for.

The code is text in ``code/**.py``, in a language of its own that looks like Python; torch.jit.load parses it, and the
interpreter runs it. It reaches no Python; what it can do is what the registered operators can. ``torch.x`` is an
operator of aten, ``ops.a.b`` is a::b (torch/csrc/jit/serialization/python_print.cpp, import_source.cpp). Models for
mobile devices have byte code with the same names (``bytecode.pkl``, or a flat buffer, mobile_bytecode.fbs).
"""

from __future__ import annotations

import re

from ..errors import LimitExceeded
from . import torch_operators
from .model import Rule
from .piece import Piece

CUSTOM = Rule(
    "torchscript-custom-operator", "suspicious", "TorchScript code needs an operator or class that torch does not have",
    "it runs only where a native library registers it, and that library is code",
    "find out which library it comes from, and whether you trust it",
)  # fmt: skip
FILES = Rule(
    "torchscript-file-operator", "suspicious", "TorchScript code reads or writes a file",
    "the code itself says which: it can read secrets into an output, or write what is run later",
    "do not run it; take the weights, and the model from its own source",
)  # fmt: skip
HIDDEN = Rule(
    "torchscript-hidden-operator", "suspicious", "TorchScript code asks for operators in a way that torch never writes",
    "a namespace kept in a variable hides which operator is called", "do not run it",
)  # fmt: skip
RULES = (CUSTOM, FILES, HIDDEN)

MAX_SOURCE = 64 << 20
# Quantifiers are possessive and strings may end anywhere, so that the search is linear.
TOKEN = re.compile(
    r"""#[^\n]*+|(?P<text>"(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?)|(?P<name>[^\W\d]\w*+)|(?P<number>\d[\w.]*+)"""
    r"""|(?P<sign>[^\s\w])""",
    re.DOTALL,
)
_GAP = r"(?:\s|\\|#[^\n]*+)*+"
_STEP = rf"{_GAP}\.{_GAP}([^\W\d]\w*+)"
STEPS = re.compile(rf"(?:{_STEP}(?:{_STEP}(?:{_STEP}(?:{_STEP})?)?)?)?")  # up to four names behind dots
CALLED = re.compile(rf"{_GAP}\(")
DEFINED = re.compile(r"\bdef\s++(save|from_file)\b")
LOCAL = re.compile(r"\b(ops|torch)\s*+[:=]")  # parameters and variables that happen to be called so
# A string of a pickle, its length before it; one of a text pickle ends with its line.
QUALIFIED = re.compile(rb"(?:X(.)\0\0\0|\x8c(.)|U(.)|[VS]'?)([A-Za-z_]\w{0,100}::[A-Za-z_][\w.]{0,200})", re.DOTALL)


def scan(piece: Piece, kind: str) -> None:
    if kind == "torchscript":
        piece.runs("TorchScript code", "torch.jit.load, in torch's own interpreter", "take the weights only")
        return
    if piece.size > MAX_SOURCE:
        raise LimitExceeded("code out of proportion", expected=f"at most {MAX_SOURCE} bytes", found=piece.size)
    if kind == "torchscript-flat":
        _flat(piece)
        return
    raw = piece.data.read(0, piece.size)
    if kind == "torchscript-bytecode":
        for match in QUALIFIED.finditer(raw):
            length = next((group[0] for group in match.groups()[:3] if group), None)
            namespace, _, name = match[4][:length].decode().partition("::")
            _operator(piece, namespace, name, match.start())
        return
    _source(piece, raw.decode("utf-8", "replace"))


def _source(piece: Piece, text: str) -> None:
    own, local = set(DEFINED.findall(text)), set(LOCAL.findall(text))
    before = earlier = ""  # the last two names or signs
    seen: set[tuple[str, ...]] = set()
    for match in TOKEN.finditer(text):
        if match.lastgroup is None:
            continue
        word = match[0] if match.lastgroup in ("name", "sign") else ""
        at = match.start()
        if before == ".":
            # Any operator can be called as a method of its first argument.
            if word in ("save", "from_file") and word not in own and earlier != "torch":
                if CALLED.match(text, match.end()):
                    _operator(piece, "aten", word, at)
        elif word in ("ops", "torch", "__torch__"):
            steps = STEPS.match(text, match.end())
            path = (word, *(step for step in steps.groups() if step)) if steps else (word,)
            if path not in seen:
                seen.add(path)
                _name(piece, word, path[1:], at, local)
        earlier, before = before, word


def _name(piece: Piece, word: str, steps: tuple[str, ...], at: int, local: set[str]) -> None:
    if word == "__torch__":
        if steps[:2] == ("torch", "classes") and len(steps) > 2:
            _class(piece, steps[2], at)
    elif not steps or (word == "ops" and len(steps) < 2):
        if word not in local:
            shown = ".".join([word, *steps])[:100]
            piece.find(HIDDEN, f"{shown} is used as a value", offset=at, name=shown)
    elif word == "ops":
        _operator(piece, steps[0], steps[1], at)
    elif steps[0] == "ops" and len(steps) > 2:
        _operator(piece, steps[1], steps[2], at)
    elif steps[0] == "classes" and len(steps) > 1:
        _class(piece, steps[1], at)
    else:
        _operator(piece, "aten", steps[0], at)


def _operator(piece: Piece, namespace: str, name: str, offset: int) -> None:
    kind = torch_operators.rule_name(namespace, name)
    full = f"{namespace}::{name}"[:200]
    if kind in ("file", "import"):
        piece.find(FILES, f"calls {full}", offset=offset, name=full)
    elif kind == "custom":
        piece.find(CUSTOM, f"calls {full}", offset=offset, name=full)
    elif kind == "known":
        what = f"{full}: an operator of another package"
        piece.runs(what, "its native library, once that is imported", "take the weights only")


def _class(piece: Piece, namespace: str, offset: int) -> None:
    if namespace not in torch_operators.CLASSES:
        full = f"torch.classes.{namespace}"[:200]
        piece.find(CUSTOM, f"uses {full}", offset=offset, name=full)


# Fields of mobile_bytecode.fbs: Module.ivalues, IValue.val_type and val, Function.operators, Operator.name.
IVALUES, VALUE_TYPE, VALUE, OPERATORS, NAME, FUNCTION = 4, 0, 1, 2, 0, 16


def _flat(piece: Piece) -> None:
    from ..containers.flatbuffer import FlatBuffer

    buffer = FlatBuffer(piece.data)
    piece.runs("TorchScript byte code", "torch's interpreter for mobile devices", "take the weights only")
    start, count = buffer.vector(buffer.root(), IVALUES)
    for i in range(count):
        value = buffer.follow(start + 4 * i)
        kind, at = buffer.field(value, VALUE_TYPE), buffer.field(value, VALUE)
        if kind is None or at is None or buffer.number(kind, 1) != FUNCTION:
            continue
        first, operators = buffer.vector(buffer.follow(at), OPERATORS)
        for k in range(operators):
            operator = buffer.follow(first + 4 * k)
            name = buffer.field(operator, NAME)
            if name is not None:
                namespace, _, op = buffer.string(name).partition("::")
                _operator(piece, namespace, op, operator)
