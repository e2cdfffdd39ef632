"""skops files: a zip archive whose schema.json is a tree of nodes, each with the module and class to import.

Source: skops/io/_audit.py and the nodes in skops/io/_general.py, _numpy.py, _scipy.py, _sklearn.py. A node with a
loader for functions, methods or operators calls what it names; others build an object of the class.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import configs, python_names, skops_names
from .model import Rule
from .piece import Piece

_AVOID = "load it with skops.io.load(trusted=[...]) and only the types that you have looked at"
TYPE = Rule(
    "skops-type", "suspicious", "a skops file asks for a type that is not known to be data",
    "with the name trusted, the loader imports it and builds an object with the file's state", _AVOID,
)  # fmt: skip
FUNCTION = Rule(
    "skops-function", "suspicious", "a skops file asks for a function, a method or an operator",
    "the loader resolves it by name, and calls it or hands it to an object that does", _AVOID,
)  # fmt: skip
UNSAFE = Rule(
    "skops-unsafe-name", "malicious", "a skops file asks for something that runs code",
    "the name is imported, and may be called with arguments of the file's choice", "do not load it",
)  # fmt: skip
LOADER = Rule(
    "skops-unknown-loader", "suspicious", "a skops file has a node of a kind that is not known",
    "what the loader would do for it is not known", _AVOID,
)  # fmt: skip
RULES = (TYPE, FUNCTION, UNSAFE, LOADER)

_LOADERS = """
DictNode DefaultDictNode ListNode SetNode TupleNode FunctionNode PartialNode TypeNode SliceNode ObjectNode MethodNode
JsonNode BytesNode BytearrayNode OperatorFuncNode ConstructorFromReduceNode CachedNode NdArrayNode MaskedArrayNode
RandomStateNode RandomGeneratorNode DTypeNode SparseMatrixNode TreeNode LossNode SGDNode ReduceNode QuantileForestNode
_DictWithDeprecatedKeysNode
"""
LOADERS = frozenset(_LOADERS.split())
# Getters of the operator module reach any attribute; the rest is arithmetic.
OPERATORS = frozenset({"operator.attrgetter", "operator.methodcaller", "operator.call"})


def scan(piece: Piece, kind: str) -> None:
    document = configs.load(piece)
    if not isinstance(document, dict) or not ("__loader__" in document or "protocol" in document):
        return  # another program's schema
    for node in _nodes(document):
        loader = node.get("__loader__")
        if isinstance(loader, str):
            _judge(piece, node, loader)


def _nodes(root: object) -> Iterator[dict[str, object]]:
    waiting: list[object] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            if isinstance(value, configs.Object):
                waiting.extend(value.others)
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def _judge(piece: Piece, node: dict[str, object], loader: str) -> None:
    name = _full(node.get("__module__"), node.get("__class__"))
    if loader not in LOADERS:
        piece.find(LOADER, f"the loader {loader[:100]}", name=loader[:100])
    if loader == "MethodNode":
        method = _content(node, "func")
        piece.find(FUNCTION, f"the method {method[:100]} of {name[:100]}", name=f"{name}.{method}"[:200])
        owner = "object" if name == "builtins.method" else name  # the object's own node says of which class it is
        _name(piece, f"{owner}.{method}", TYPE, said=True)
        return
    if loader == "FunctionNode":
        inner = node.get("content")
        if isinstance(inner, dict) and ("module_path" in inner or "function" in inner):
            name = _full(inner.get("module_path"), inner.get("function"))
        _name(piece, name, FUNCTION)
    elif loader == "OperatorFuncNode":
        rule = UNSAFE if name in OPERATORS or not name.startswith("operator.") else FUNCTION
        piece.find(rule, f"the operator {name[:200]}", name=name[:200])
    elif loader == "PartialNode":
        if name != "functools.partial":
            _name(piece, name, FUNCTION)
    elif loader == "TypeNode":
        inner = node.get("content")
        if isinstance(inner, dict):
            name = _full(inner.get("__module__"), inner.get("__class__"))
        _name(piece, name, TYPE)
    else:
        _name(piece, name, TYPE)


def _content(node: dict[str, object], key: str) -> str:
    inner = node.get("content")
    value = inner.get(key) if isinstance(inner, dict) else None
    return value if isinstance(value, str) else ""


def _full(module: object, name: object) -> str:
    left = module if isinstance(module, str) else ""
    right = name if isinstance(name, str) else ""
    return f"{left}.{right}" if left else right


def _name(piece: Piece, name: str, rule: Rule, said: bool = False) -> None:
    if name in skops_names.TYPES or name in ("builtins.NoneType", ""):
        return
    if python_names.is_dangerous(name) or python_names.is_dangerous(f"builtins.{name}") and "." not in name:
        piece.find(UNSAFE, f"asks for {name[:200]}", name=name[:200])
    elif not said:
        piece.find(rule, f"asks for {name[:200]}", name=name[:200])
    piece.runs(f"{name[:200]}: imported by name", "skops.io.load, once the name is trusted", _AVOID)
