"""What the variables of a template may be: everything that they are set to, anywhere in it.

Nodes of the tree are told by the names of their classes, so that Jinja itself is imported only where it parses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Node = Any  # jinja2.nodes.Node
Nodes = Sequence[Any]
BINARY = ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "And", "Or")

MAX_VALUES = 32  # that a variable may have
MAX_WORK = 300_000  # of a template: beyond, nothing is taken for known
# Methods and filters that give the items of what they are given, in some order.
_SAME_ITEMS = frozenset({"list", "keys", "values", "items", "dictsort", "reverse", "sort", "unique", "copy"})
# Parts of a message that hold what somebody wrote.
TEXT_KEYS = frozenset({"content", "text", "prompt", "query", "question", "user_message", "last_message", "input"})


def is_a(node: Node, *names: str) -> bool:
    """Whether the node is of one of these classes of ``jinja2.nodes``."""
    return type(node).__name__ in names


def every(*roots: Node) -> Iterator[Node]:
    """The nodes and all that is below them, in order."""
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(node.iter_child_nodes())))


@dataclass(slots=True)
class Variables:
    """The variables of one template, and what lists, numbers and messages its expressions are by them."""

    tree: Node
    called: set[int] = field(default_factory=set)  # ids of Name nodes that are called
    _set: dict[str, list[Any]] = field(default_factory=dict)  # None: something that is not known
    _crowded: set[str] = field(default_factory=set)
    _work: int = 0

    def __post_init__(self) -> None:
        for node in every(self.tree):
            if is_a(node, "Assign"):
                self._assign(node.target, node.node)
            elif is_a(node, "Macro", "CallBlock"):
                for target in node.args:
                    self._assign(target, None)
                for default in node.defaults:
                    for target in node.args:
                        self._assign(target, default)
                if is_a(node, "Macro"):
                    self._set.setdefault(node.name, []).append(None)
            elif is_a(node, "Call"):
                if is_a(node.node, "Name"):
                    self.called.add(id(node.node))
            elif is_a(node, "AssignBlock"):
                self._assign(node.target, _block_value(node))
            elif is_a(node, "With"):
                for target, value in zip(node.targets, node.values, strict=True):
                    self._assign(target, value)
        self._macro_arguments()
        for node in every(self.tree):
            if is_a(node, "For"):  # at last: over lists that variables hold
                for item in self._elements(node.iter) or [None]:
                    self._assign(node.target, item)
        self._thin_out()

    def _thin_out(self) -> None:
        """Variables that are set too often to be followed: of their values, plain ones that matter are kept."""
        for name, values in self._set.items():
            if len(values) <= MAX_VALUES:
                continue
            plain = [v for v in values if is_a(v, "Const")]
            private = {v.value: v for v in plain if isinstance(v.value, str) and v.value.lstrip().startswith("_")}
            numbers = [v for v in plain if isinstance(v.value, int | float)]
            largest = [max(numbers, key=lambda v: float(min(v.value, 1e60)))] if numbers else []
            self._set[name] = [*list(private.values())[:MAX_VALUES], *largest]
            self._crowded.add(name)

    def _macro_arguments(self) -> None:
        macros = {node.name: node for node in every(self.tree) if is_a(node, "Macro")}
        for call in every(self.tree):
            if not is_a(call, "Call") or not is_a(call.node, "Name") or call.node.name not in macros:
                continue
            macro = macros[call.node.name]
            for target, value in zip(macro.args, call.args, strict=False):
                self._assign(target, value)
            self._set.setdefault("varargs", []).extend(call.args[len(macro.args) :])
            for keyword in call.kwargs:
                self._set.setdefault(keyword.key, []).append(keyword.value)
                self._set.setdefault(f"kwargs.{keyword.key}", []).append(keyword.value)
        calls = [node for node in every(self.tree) if is_a(node, "Call") and name_of(node.node) == "caller"]
        for block in every(self.tree):
            if is_a(block, "CallBlock") and block.args:
                for call in calls[:MAX_VALUES]:
                    for target, value in zip(block.args, call.args, strict=False):
                        self._assign(target, value)

    def _assign(self, target: Node, value: Node) -> None:
        if is_a(target, "Name"):
            self._set.setdefault(target.name, []).append(value)
            if value is not None and is_a(value, "Call") and name_of(value.node) == "namespace":
                for keyword in value.kwargs:
                    self._set.setdefault(f"{target.name}.{keyword.key}", []).append(keyword.value)
        elif is_a(target, "NSRef"):
            self._set.setdefault(f"{target.name}.{target.attr}", []).append(value)
        elif is_a(target, "Tuple", "List"):
            parts = value.items if is_a(value, "Tuple", "List") else []
            for i, item in enumerate(target.items):
                self._assign(item, parts[i] if len(parts) == len(target.items) else None)

    def is_set(self, name: str) -> bool:
        """Whether the template itself gives ``name`` a value."""
        return name in self._set

    def is_message_text(self, node: Node) -> bool:
        """Whether the expression is, or comes from, what a message says."""
        return self._message_text(node, 0)

    def _message_text(self, node: Node, depth: int) -> bool:
        self._work += 1
        if depth > 8 or self._work > MAX_WORK:
            return False
        if is_a(node, "Getitem"):
            key = node.arg
            if is_a(key, "Const") and key.value in TEXT_KEYS:
                return True
            return is_a(key, "Slice") and self._message_text(node.node, depth + 1)
        if is_a(node, "Getattr"):
            return node.attr in TEXT_KEYS or self._variable_text(f"{name_of(node.node)}.{node.attr}", depth)
        if is_a(node, "Filter"):
            return node.node is not None and self._message_text(node.node, depth + 1)
        if is_a(node, "Call") and is_a(node.node, "Getattr"):
            if node.node.attr == "get" and node.args and is_a(node.args[0], "Const"):
                return node.args[0].value in TEXT_KEYS
            return self._message_text(node.node.node, depth + 1)
        if is_a(node, "Concat"):
            return any(self._message_text(n, depth + 1) for n in node.nodes)
        if is_a(node, *BINARY):
            return self._message_text(node.left, depth + 1) or self._message_text(node.right, depth + 1)
        if is_a(node, "Name"):
            return node.name in TEXT_KEYS or self._variable_text(node.name, depth)
        return False

    def _variable_text(self, name: str, depth: int) -> bool:
        return any(v is not None and self._message_text(v, depth + 1) for v in self._set.get(name, [])[:MAX_VALUES])

    def number(self, node: Node, depth: int = 0) -> int | None:
        """The integer that the expression is, when that can be told; huge ones are cut at 2**200."""
        self._work += 1
        if depth > 20 or self._work > MAX_WORK:
            return None
        if is_a(node, "Const"):
            value = node.value
            return int(value) if isinstance(value, int | float) and abs(value) < 1e60 else None
        if is_a(node, "Name"):
            values = self._set.get(node.name, [])
            found = [self.number(v, depth + 5) for v in values if v is not None]
            return max((n for n in found if n is not None), default=None)
        if is_a(node, "Neg"):
            inner = self.number(node.node, depth + 1)
            return None if inner is None else -inner
        if is_a(node, "Filter") and node.name == "int" and node.node is not None:
            return self.number(node.node, depth + 1)
        if not is_a(node, *BINARY):
            return None
        left, right = self.number(node.left, depth + 1), self.number(node.right, depth + 1)
        if left is None or right is None:
            return None
        if is_a(node, "Add"):
            return left + right
        if is_a(node, "Sub"):
            return left - right
        if is_a(node, "Mul"):
            return min(left * right, 1 << 200)
        if is_a(node, "Pow"):
            if right < 0 or left.bit_length() * right > 200:
                return 1 << 200
            return int(left**right)
        if is_a(node, "FloorDiv") and right:
            return left // right
        return None

    def _elements(self, node: Node, depth: int = 0) -> list[Any]:
        """What a list or a dictionary of the template holds, keys too, also when a variable holds it."""
        self._work += 1
        if node is None or depth > 6 or self._work > MAX_WORK:
            return []
        if is_a(node, "List", "Tuple"):
            return list(node.items[: 4 * MAX_VALUES])
        if is_a(node, "Dict"):
            return [part for pair in node.items[: 4 * MAX_VALUES] for part in (pair.key, pair.value)]
        if is_a(node, "Name"):
            values = self._set.get(node.name, [])[:MAX_VALUES]
            return [item for value in values for item in self._elements(value, depth + 1)][: 4 * MAX_VALUES]
        if is_a(node, "Filter") and node.name in _SAME_ITEMS:
            return self._elements(node.node, depth + 1)
        if is_a(node, "Call") and is_a(node.node, "Getattr") and node.node.attr in _SAME_ITEMS:
            return self._elements(node.node.node, depth + 1)
        return []

    @property
    def exhausted(self) -> bool:
        """Whether the template is so intricate that not all of it could be followed."""
        return self._work > MAX_WORK


def name_of(node: Node) -> str:
    return node.name if is_a(node, "Name") else ""


class PutTogether:
    """A value that is made of pieces in ways that are not followed."""


def _block_value(node: Node) -> Node:
    """``{% set x %}...{% endset %}``: what is put out, when there is nothing else in it."""
    if len(node.body) == 1 and is_a(node.body[0], "Output") and node.filter is None:
        return node.body[0]
    return PutTogether()
