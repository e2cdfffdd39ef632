"""torch.export archives (.pt2): what the graph calls by name, the expressions that are parsed, and compiled parts.

Source: torch/_export/serde/serialize.py (``deserialize_operator`` walks attributes from ``torch``; shapes go through
sympy.sympify, which evaluates what it is given) and torch/export/pt2_archive/constants.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..containers.zip import Zip
from ..errors import ArtifactkitError, Corrupt, LimitExceeded
from . import python_names, torch_operators
from .model import Rule
from .piece import Piece

_AVOID = "do not load it; export the model again from its source"
CUSTOM = Rule(
    "pt2-custom-operator", "suspicious", "an exported program calls something that is no operator of torch",
    "it needs a library that registers the operator, or it names a function of a module",
    "find out where it comes from, and whether you trust it",
)  # fmt: skip
UNSAFE = Rule(
    "pt2-unsafe-target", "malicious", "an exported program calls a function that runs code or opens files",
    "the loader walks the name from the torch module, by attributes, and the graph calls what it finds", _AVOID,
)  # fmt: skip
EXPRESSION = Rule(
    "pt2-expression", "malicious", "a shape of an exported program is more than arithmetic",
    "shapes are given to sympy.sympify, which evaluates Python", _AVOID,
)  # fmt: skip
COMPILED = Rule(
    "pt2-compiled", "suspicious", "an archive of torch.export holds compiled code",
    "AOTInductor's libraries and kernels are loaded into the process and run; what they do cannot be seen",
    "compile the exported program yourself",
)  # fmt: skip
RULES = (CUSTOM, UNSAFE, EXPRESSION, COMPILED)

MAX_JSON = 256 << 20
NATIVE = (".so", ".dll", ".dylib", ".pyd", ".cubin", ".hsaco", ".o", ".ptx", ".spv", ".fatbin")
SOURCES = (".cpp", ".cu", ".c", ".py")
_ARITHMETIC = """
abs add and_ concat contains eq floordiv ge getitem gt index inv invert is_ is_not le lshift lt matmul mod mul ne neg
not_ or_ pos pow rshift sub truediv truth xor
"""
ARITHMETIC = frozenset(_ARITHMETIC.split())
_MATH = """
acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist erf erfc exp exp2 expm1 fabs
factorial floor fmod frexp fsum gamma gcd hypot isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p
log2 modf nextafter perm pow prod radians remainder sin sinh sqrt tan tanh trunc ulp
"""
MATH = frozenset(_MATH.split())
_SYMBOLIC = """
sym_int sym_float sym_max sym_min sym_not sym_ite sym_sum sym_sqrt sym_fresh_size _sym_sqrt _sym_cos _sym_sin _sym_tan
_sym_log2 _sym_exp _sym_floor _sym_ceil _sym_abs _sym_cosh _sym_sinh _sym_tanh _sym_acos _sym_asin _sym_atan _check
_check_is_size
"""
SYMBOLIC = frozenset(_SYMBOLIC.split())
ORDINARY = {"_operator": ARITHMETIC, "operator": ARITHMETIC, "math": MATH, "torch": SYMBOLIC}
# aten::__and__ and its kin are operators; other dunder names lead into Python.
ARITHMETIC_DUNDERS = frozenset({"and", "or", "xor", "lshift", "rshift", "iand", "ior", "ixor", "ilshift", "irshift"})
_NAMES = """
Symbol Integer Float Rational Max Min Mod FloorDiv CleanDiv CeilDiv PythonMod ModularIndexing Where Abs Add Mul Pow Eq
Ne Lt Le Gt Ge And Or Not Piecewise floor ceiling sqrt TruncToInt TruncToFloat CeilToInt FloorToInt FloatTrueDiv
IntTrueDiv FloatPow PowByNatural RoundToInt RoundDecimal ToFloat Identity IsNonOverlappingAndDenseIndicator
OpaqueUnaryFn_sqrt BitwiseFn_bitwise_and BitwiseFn_bitwise_or BitwiseFn_bitwise_xor LShift RShift Equality Unequality
StrictLessThan LessThan StrictGreaterThan GreaterThan AddAssign OpaqueUnaryFn_cos OpaqueUnaryFn_sin OpaqueUnaryFn_tan
OpaqueUnaryFn_exp OpaqueUnaryFn_log OpaqueUnaryFn_log2 OpaqueUnaryFn_tanh log exp cos sin tan tanh
"""
CALLABLE = frozenset(_NAMES.split())
EXPRESSION_TOKEN = re.compile(
    r"\s++|(?P<call>[^\W\d]\w*+)(?=\s*+\()|(?P<name>[^\W\d]\w*+)|(?P<number>\d++(?:\.\d*+)?(?:e[+-]?\d++)?)|\.\d++"
    r"|'(?P<text>[^'\\]*+)'|(?P<sign>[-+*/%(),=<>!&|~^])|(?P<other>.)",
    re.DOTALL,
)


def scan(piece: Piece, kind: str) -> None:
    if kind == "pt2":
        _compiled(piece)
        return
    if piece.size > MAX_JSON:
        raise LimitExceeded("a graph out of proportion", expected=f"at most {MAX_JSON} bytes", found=piece.size)
    try:
        document = json.loads(piece.data.read(0, piece.size))
    except (ValueError, UnicodeDecodeError) as error:
        raise Corrupt(f"not JSON: {error}") from None
    except RecursionError:
        raise LimitExceeded("JSON nested too deeply") from None
    for one in _objects(document):
        target = one.get("target")
        if isinstance(target, str) and ("inputs" in one or "outputs" in one):
            _target(piece, target)
        text = one.get("expr_str")
        if isinstance(text, str):
            _expression(piece, text)
        ranges = one.get("range_constraints")
        for key in ranges if isinstance(ranges, dict) else ():
            _expression(piece, key)


def _objects(root: object) -> Iterator[dict[str, object]]:
    waiting: list[object] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _target(piece: Piece, target: str) -> None:
    """The rules follow ``deserialize_operator``: only the beginning of the name decides on the module."""
    parts = target.split(".")
    shown = target[:200]
    if parts[:2] == ["torch", "ops"] and len(parts) in (4, 5) and all(p.isidentifier() for p in parts):
        kind = torch_operators.rule_name(parts[2], parts[3])
        if any(part.startswith("__") and part.strip("_") not in ARITHMETIC_DUNDERS for part in parts):
            kind = "import"
        if kind in ("file", "import"):
            piece.find(UNSAFE, f"calls {shown}", name=shown)
        elif kind == "custom":
            piece.find(CUSTOM, f"calls {shown}", name=shown)
        elif kind == "known":
            piece.runs(f"{shown}: an operator of another package", "its native library, once that is imported", _AVOID)
        return
    module, _, name = target.partition(".")
    if name in ORDINARY.get(module, ()):
        return
    rule = UNSAFE if python_names.is_dangerous(target) or target.startswith("_operator") else CUSTOM
    piece.find(rule, f"calls {shown}", name=shown)


def _expression(piece: Piece, text: str) -> None:
    """What sympy prints for a shape: names, numbers, arithmetic, and calls of its own classes."""
    for match in EXPRESSION_TOKEN.finditer(text):
        bad = match["other"] or (match["call"] and match["call"] not in CALLABLE)
        for word in (match["name"], match["text"]):
            bad = bad or (word is not None and (word.startswith("_") or (word != "" and not word.isidentifier())))
        if bad:
            piece.find(EXPRESSION, f"the shape {text[:200]!r}", name=text[:200])
            return


def _compiled(piece: Piece) -> None:
    try:
        members = Zip(piece.data).members
    except ArtifactkitError:
        return  # said by the rule for zip archives
    for member in members:
        name = member.name.lower()
        if name.endswith(NATIVE):
            piece.find(COMPILED, f"compiled code: {member.name.rpartition('/')[2][:200]}", member=member.name)
            piece.runs(f"native code: {member.name[:200]}", "torch._inductor.aoti_load_package, by dlopen", _AVOID)
        elif name.endswith(SOURCES) and "/aotinductor/" in name:
            piece.runs(f"source of compiled code: {member.name[:200]}", "who compiles it again", _AVOID)
