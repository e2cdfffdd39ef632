"""What an expression of a template may be as a string: folded without running anything, bounded in length and number.

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
MAX_LENGTH = 4096
MAX_STEPS = 20_000  # of one expression
MAX_WORK = 300_000  # of a template: beyond, nothing is taken for known
_KEEPS = {"lower", "upper", "trim", "strip", "lstrip", "rstrip", "title", "capitalize", "reverse", "string", "list",
          "e", "escape", "safe", "forceescape"}  # fmt: skip
BUILDERS = frozenset({"join", "format", "replace", "reverse", "format_map", "translate", "decode", "encode", "zfill",
                      "removeprefix", "removesuffix", "urlize", "urlencode", "center", "pprint", "swapcase", "casefold",
                      "partition", "split", "rsplit", "splitlines"})  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class Strings:
    """What is known: the values it may have; whether these are all; whether it is put together from pieces."""

    known: frozenset[str] = frozenset()
    complete: bool = False
    built: bool = False
    may_be_private: bool = True  # whether it may begin with an underscore


UNKNOWN = Strings()
NUMBER = Strings(complete=True, may_be_private=False)


def _all(values: set[str], built: bool) -> Strings:
    short = frozenset(v[:MAX_LENGTH] for v in values)
    return Strings(short, True, built, any(v.lstrip().startswith("_") for v in short))


@dataclass(slots=True)
class Folder:
    """Folds expressions of one template, by what its variables are set to anywhere in it."""

    tree: Node
    called: set[int] = field(default_factory=set)  # ids of Name nodes that are called
    _set: dict[str, list[Any]] = field(default_factory=dict)  # None: something that is not known
    _crowded: set[str] = field(default_factory=set)
    _busy: set[str] = field(default_factory=set)
    _steps: int = 0
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
        calls = [node for node in every(self.tree) if is_a(node, "Call") and _name_of(node.node) == "caller"]
        for block in every(self.tree):
            if is_a(block, "CallBlock") and block.args:
                for call in calls[:MAX_VALUES]:
                    for target, value in zip(block.args, call.args, strict=False):
                        self._assign(target, value)

    def _assign(self, target: Node, value: Node) -> None:
        if is_a(target, "Name"):
            self._set.setdefault(target.name, []).append(value)
            if value is not None and is_a(value, "Call") and _name_of(value.node) == "namespace":
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
            return node.attr in TEXT_KEYS or self._variable_text(f"{_name_of(node.node)}.{node.attr}", depth)
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

    # ---- numbers

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

    # ---- strings

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

    def strings(self, node: Node) -> Strings:
        self._steps = 0
        self._busy.clear()
        if self.exhausted and not is_a(node, "Const"):
            return Strings(built=True)
        return self._fold(node, 0)

    def _fold(self, node: Node, depth: int) -> Strings:
        self._steps += 1
        self._work += 1
        if node is None or depth > 30 or self._steps > MAX_STEPS:
            return UNKNOWN
        if is_a(node, "Const"):
            return _all({node.value}, False) if isinstance(node.value, str) else NUMBER
        if is_a(node, "TemplateData"):
            return _all({node.data}, False)
        if is_a(node, "PutTogether"):
            return Strings(built=True)
        if is_a(node, "Output"):
            return self._joined(node.nodes, "", depth)
        if is_a(node, "Concat"):
            return self._joined(node.nodes, "", depth)
        if is_a(node, "Add"):
            return self._joined([node.left, node.right], "", depth, plus=True)
        if is_a(node, "Mul"):
            return self._repeated(node, depth)
        if is_a(node, "Sub", "Div", "FloorDiv", "Pow", "Neg", "Compare", "Not"):
            return NUMBER
        if is_a(node, "Mod"):
            left = self._fold(node.left, depth + 1)
            if left.complete and not left.known:
                return NUMBER
            return self._formatted(left, [node.right])
        if is_a(node, "CondExpr"):
            return self._either([node.expr1, node.expr2], depth)
        if is_a(node, "And", "Or"):
            return self._either([node.left, node.right], depth)
        if is_a(node, "Name"):
            return self._variable(node.name, depth)
        if is_a(node, "Getattr"):
            return self._variable(f"{_name_of(node.node)}.{node.attr}", depth)
        if is_a(node, "Filter"):
            return self._filtered(node, depth)
        if is_a(node, "Call"):
            return self._called(node, depth)
        if is_a(node, "Getitem"):
            return self._item(node, depth)
        return UNKNOWN

    def _variable(self, name: str, depth: int) -> Strings:
        values = self._set.get(name)
        if not values or name in self._busy:
            return UNKNOWN
        if name in self._crowded:
            return Strings(frozenset(v.value for v in values if isinstance(v.value, str)), built=True)
        self._busy.add(name)
        out = self._either(list(values), depth)
        self._busy.discard(name)
        return out

    def _either(self, options: Nodes, depth: int) -> Strings:
        known: set[str] = set()
        complete, built, private = True, False, False
        for option in options:
            one = self._fold(option, depth + 1)
            known |= one.known
            complete, built = complete and one.complete, built or one.built
            private = private or one.may_be_private
        if len(known) > MAX_VALUES:
            known = {v for v in known if v.startswith("_")} or set(sorted(known)[:MAX_VALUES])
        return Strings(frozenset(known), complete, built, private)

    def _joined(self, parts: Nodes, between: str, depth: int, plus: bool = False) -> Strings:
        folded = [self._fold(part, depth + 1) for part in parts]
        if plus and all(f.complete and not f.known for f in folded):
            return NUMBER
        if all(f.complete and f.known for f in folded):
            values = {""}
            for i, one in enumerate(folded):
                values = {(v + (between if i else "") + w)[:MAX_LENGTH] for v in values for w in one.known}
                if len(values) > MAX_VALUES:
                    break
            else:
                return _all(values, True)
        # ``x + 1`` is a number far more often than a string: only a string among the parts makes it one.
        text = not plus or any(f.known or f.built for f in folded)
        return Strings(frozenset(), False, text and len(parts) > 1, _may_begin_private(folded))

    def _repeated(self, node: Node, depth: int) -> Strings:
        for text, times in ((node.left, node.right), (node.right, node.left)):
            one, number = self._fold(text, depth + 1), self.number(times)
            if one.known and one.complete and number is not None:
                return _all({(v * min(max(number, 0), MAX_LENGTH))[:MAX_LENGTH] for v in one.known}, True)
            if one.known:
                return Strings(frozenset(), False, True, one.may_be_private)
        return NUMBER

    def _formatted(self, template: Strings, args: Nodes) -> Strings:
        """``'%s%s' % (a, b)``, ``'{}'.format(a)``: the pieces are looked at, the format itself is not carried out."""
        if not template.complete:
            return Strings(frozenset(), False, True)
        values: set[str] = set()
        for pattern in template.known:
            done = _carry_out(pattern, [item for a in args for item in _items(a)], self)
            if done is None:
                begins = pattern[:1]
                return Strings(frozenset(), False, True, begins in ("", "%", "{", "_"))
            values.add(done)
        return _all(values, True)

    def _filtered(self, node: Node, depth: int) -> Strings:
        if node.name == "join":
            return self._join(node.node, node.args[0] if node.args else None, depth)
        if node.name == "format" and node.node is not None:
            return self._formatted(self._fold(node.node, depth + 1), node.args)
        if node.name in ("first", "last", "random", "min", "max") and node.node is not None:
            items = _items(node.node) or self._elements(node.node)
            return self._either(items, depth) if items else UNKNOWN
        if node.name in ("length", "count", "int", "float", "abs", "round", "sum", "wordcount"):
            return NUMBER
        if node.name in ("default", "d"):
            return self._either([node.node, *node.args[:1]], depth)
        return self._method(node.node, node.name, node.args, depth)

    def _called(self, node: Node, depth: int) -> Strings:
        func = node.node
        if is_a(func, "Getattr"):
            if func.attr == "join" and node.args:
                return self._join(node.args[0], func.node, depth)
            if func.attr == "format":
                return self._formatted(self._fold(func.node, depth + 1), node.args)
            return self._method(func.node, func.attr, node.args, depth)
        return UNKNOWN

    def _join(self, items: Node, between: Node, depth: int) -> Strings:
        parts = _items(items)
        if is_a(items, "Filter") and items.name in ("reverse", "list") and items.node is not None:
            parts = _items(items.node)[:: -1 if items.name == "reverse" else 1]
        if is_a(items, "Call") and is_a(items.node, "Name") and items.node.name == "dict":
            glue = frozenset({""}) if between is None else self._fold(between, depth + 1).known
            return _all({g.join(k.key for k in items.kwargs) for g in glue}, True)
        if is_a(items, "Dict"):
            parts = [pair.key for pair in items.items]
        if is_a(items, "Name"):
            for value in self._set.get(items.name, ()):
                parts = _items(value) or parts
        glue = frozenset({""}) if between is None else self._fold(between, depth + 1).known
        if parts and len(glue) == 1:
            return self._joined(parts, next(iter(glue)), depth)
        return Strings(frozenset(), False, True)

    def _method(self, subject: Node, name: str, args: Nodes, depth: int) -> Strings:
        one = self._fold(subject, depth + 1)
        if name in _KEEPS:
            if not one.complete:
                return Strings(frozenset(), False, one.built or name == "reverse", one.may_be_private)
            return _all({w for v in one.known for w in _kept(v, name)}, True)
        if name == "replace" and len(args) >= 2:
            old, new = self._fold(args[0], depth + 1), self._fold(args[1], depth + 1)
            if one.complete and old.complete and new.complete:
                pairs = [(o, n) for o in old.known for n in new.known]
                return _all({v.replace(o, n)[:MAX_LENGTH] for v in one.known for o, n in pairs}, True)
        if name in ("split", "rsplit") and one.complete and one.known:
            between = self._fold(args[0], depth + 1).known if args else frozenset({""})
            return _all({w for v in one.known for b in between for w in v.split(b or None)}, True)
        return Strings(frozenset(), False, one.built or name in BUILDERS, True)

    def _item(self, node: Node, depth: int) -> Strings:
        """``'...'[::-1]``, ``['a', 'b'][0]``: a part of something constant."""
        one = self._fold(node.node, depth + 1)
        if is_a(node.arg, "Slice") and one.complete and one.known:
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            start, stop, step = (None if bound is None else self.number(bound) for bound in bounds)
            if step != 0:
                return _all({v[start:stop:step] for v in one.known}, True)
        items = _items(node.node)
        if items:
            return self._either(list(items), depth)
        if is_a(node.node, "Dict"):
            return self._either([pair.value for pair in node.node.items], depth)
        if is_a(node.node, "Call") and one.complete and one.known:
            return one  # one of the pieces of a split
        if _name_of(node.node) in ("varargs", "kwargs"):
            return self._variable(_name_of(node.node), depth)
        items = self._elements(node.node)
        return self._either(items, depth) if items else UNKNOWN


def _name_of(node: Node) -> str:
    return node.name if is_a(node, "Name") else ""


class PutTogether:
    """A value that is made of pieces in ways that are not followed."""


def _block_value(node: Node) -> Node:
    """``{% set x %}...{% endset %}``: what is put out, when there is nothing else in it."""
    if len(node.body) == 1 and is_a(node.body[0], "Output") and node.filter is None:
        return node.body[0]
    return PutTogether()


def _items(node: Node) -> list[Any]:
    """The items of a list; of another expression that is a value by itself, the expression."""
    if node is None or is_a(node, "Name", "Getattr", "Getitem", "Call", "Filter", "Dict"):
        return []
    return list(node.items) if is_a(node, "List", "Tuple") else [node]


def _kept(value: str, name: str) -> set[str]:
    match name:
        case "lower":
            return {value.lower()}
        case "upper":
            return {value.upper(), value}
        case "trim" | "strip" | "lstrip" | "rstrip":
            return {value.strip()}
        case "reverse":
            return {value[::-1]}
        case "title" | "capitalize":
            return {value.title()}
        case _:
            return {value}


def _may_begin_private(parts: list[Strings]) -> bool:
    """Whether what begins with these parts may begin with an underscore."""
    for part in parts:
        if part.complete and part.known and "" not in part.known:
            return part.may_be_private
        if not part.complete:
            return part.may_be_private
    return True


def _carry_out(pattern: str, args: Nodes, folder: Folder) -> str | None:
    """A plain format: ``%s``, ``%c``, ``{}`` and ``{0}`` with constants. None for everything else."""
    out: list[str] = []
    i = taken = 0
    while i < len(pattern):
        if (pattern[i] == "%" and pattern[i + 1 : i + 2] in ("s", "c", "r", "d")) or pattern.startswith("{}", i):
            piece, step = taken, 2
        elif pattern[i] == "{" and pattern[i + 2 : i + 3] == "}" and pattern[i + 1].isdigit():
            piece, step = int(pattern[i + 1]), 3
        elif pattern[i] in "%{}":
            return None
        else:
            out.append(pattern[i])
            i += 1
            continue
        if piece >= len(args):
            return None
        value = folder._fold(args[piece], 10)
        number = folder.number(args[piece])
        if len(value.known) == 1 and value.complete:
            out.append(next(iter(value.known)))
        elif number is not None:
            out.append(chr(number) if pattern[i + 1] == "c" and 0 <= number < 0x110000 else str(number))
        else:
            return None
        taken += 1
        i += step
    return "".join(out)
