"""What an expression of a template may be as a string: folded, never run, bounded in length and number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .template_variables import MAX_VALUES, Node, Nodes, Variables, is_a, name_of

MAX_LENGTH = 4096
MAX_STEPS = 20_000  # of one expression
_KEEPS = {"lower", "upper", "trim", "strip", "lstrip", "rstrip", "title", "capitalize", "reverse", "string", "list",
          "e", "escape", "safe", "forceescape"}  # fmt: skip
BUILDERS = frozenset({"join", "format", "replace", "reverse", "format_map", "translate", "decode", "encode", "zfill",
                      "removeprefix", "removesuffix", "urlize", "urlencode", "center", "pprint", "swapcase", "casefold",
                      "partition", "split", "rsplit", "splitlines"})  # fmt: skip


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
class Folder(Variables):
    """Folds expressions of one template, by what its variables are set to anywhere in it."""

    _busy: set[str] = field(default_factory=set)
    _steps: int = 0

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
            return self._variable(f"{name_of(node.node)}.{node.attr}", depth)
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
        if name_of(node.node) in ("varargs", "kwargs"):
            return self._variable(name_of(node.node), depth)
        items = self._elements(node.node)
        return self._either(items, depth) if items else UNKNOWN


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
