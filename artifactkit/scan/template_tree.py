"""The judge of a parsed template. Imported only when a file has a template, for it needs Jinja's parser.

Two passes over the tree. The first collects what each variable was ever set to; the second looks at every place where a
name is used to reach into an object, and folds what leads there. Nothing is evaluated but bounded string operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .template_fold import Folder
from .template_variables import Node, Nodes, every, is_a
from .templates import BOMB, COMPUTED, HIDDEN, INCLUDES, ODD, SYNTAX, UNSAFE, Remark

# Attributes without underscore at the start that lead from an object to the interpreter, or are its doors.
GADGETS = frozenset({
    "mro", "func_globals", "func_code", "func_builtins", "func_closure", "im_func", "im_self", "im_class", "gi_frame",
    "gi_code", "gi_yieldfrom", "cr_frame", "cr_code", "cr_origin", "ag_frame", "ag_code", "f_globals", "f_locals",
    "f_builtins", "f_back", "f_code", "tb_frame", "tb_next", "co_code", "co_consts", "popen", "builtins", "subclasses",
    "from_string", "get_template", "select_template", "import_module", "check_output", "load_module", "exec_module",
})  # fmt: skip
# Names that web frameworks and Jinja itself put before a template, and that are the usual first step out.
ODD_NAMES = frozenset({
    "self", "lipsum", "url_for", "get_flashed_messages", "request", "current_app", "environ", "os", "sys", "subprocess",
    "importlib", "builtins", "eval", "exec", "compile", "open", "getattr", "globals", "locals", "vars", "breakpoint",
})  # fmt: skip
GLOBALS_TO_CALL = frozenset({"cycler", "joiner", "namespace", "dict", "range"})  # fine when called, odd when handed on
ATTRIBUTE_FILTERS = frozenset({
    "map", "selectattr", "rejectattr", "sort", "groupby", "unique", "sum", "min", "max", "join",
})  # fmt: skip
POSITIONAL_ATTRIBUTE = frozenset({"selectattr", "rejectattr", "groupby"})  # the attribute is their first argument
PADDING = frozenset({"center", "indent", "batch", "slice", "wordwrap", "ljust", "rjust", "zfill", "expandtabs"})
MAX_ITERATIONS = 100_000  # of constant loops, nested ones multiplied; Jinja's sandbox stops at as many in one range
MAX_REPEAT = 1_000_000
MAX_DEPTH = 200
FORMAT_FIELD = re.compile(r"\{[^{}]*[.\[]_|\{[^{}]*\.(?:mro|func_globals|gi_frame)")
FORMAT_WIDTH = re.compile(r"%[-+ #0]*\d{6,}|\{[^{}]*:[^{}]*\d{6,}|%[^%a-zA-Z]*\.\d{6,}")
MARK = re.compile(r"<[^<>]*>|\[/?[A-Z_]+\]")  # <|vision_start|>, [INST]: no words to the model
WORD = re.compile(r"[^\W\d_]{3,}")


def _parse(text: str) -> Node:
    """The tree, by the rules under which transformers and llama.cpp's own engine take templates."""
    from jinja2 import Environment
    from jinja2.ext import Extension

    class Generation(Extension):
        """``{% generation %}``, by which transformers marks what the model wrote."""

        tags = {"generation"}  # noqa: RUF012  # as the base class has it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    extensions = ("jinja2.ext.loopcontrols", "jinja2.ext.do", Generation)
    return Environment(trim_blocks=True, lstrip_blocks=True, extensions=extensions, cache_size=0).parse(text)


def walk(text: str) -> list[Remark]:
    """The remarks about one template, in order of line."""
    from jinja2.exceptions import TemplateError

    try:
        tree = _parse(text)
        judge = _Judge(tree)
        judge.visit(tree, 0, 1)
        if judge.fold.exhausted:
            judge.add(BOMB, "too intricate to be followed to its end", tree)
    except TemplateError as error:
        line = getattr(error, "lineno", 1) or 1
        return [*lexical(text), Remark(SYNTAX, f"it cannot be parsed: {error.message}", line)]
    except (RecursionError, MemoryError):
        return [*lexical(text), Remark(BOMB, "nested too deeply to be parsed", 1)]
    except (ValueError, OverflowError, SyntaxError) as error:  # a number of thousands of digits
        return [*lexical(text), Remark(SYNTAX, f"it cannot be parsed: {error}", 1)]
    return sorted(dict.fromkeys(judge.remarks), key=lambda r: r.line)


INTERNALS = re.compile(
    r"__(?:class|globals|subclasses|mro|base|bases|builtins|init|import|dict|getattribute|getattr|code|self|func|call"
    r"|reduce|reduce_ex|closure|wrapped|loader|spec|module|getitem|new|enter|exit)__"
)


def lexical(text: str) -> list[Remark]:
    """What a template that cannot be parsed names all the same: some engines are more tolerant than Jinja."""
    found = INTERNALS.search(text)
    if found is None:
        return []
    line = text.count("\n", 0, found.start()) + 1
    return [Remark(UNSAFE, f"names {found.group()}", line, found.group())]


class _Judge:
    def __init__(self, tree: Node) -> None:
        self.remarks: list[Remark] = []
        self.fold = Folder(tree)
        self._inner: set[int] = set()  # ids of Add nodes within a chain
        self.macros: list[tuple[str, bool]] = []  # the macros around, and whether something conditional is between

    def add(self, rule: object, what: str, node: Node, name: str | None = None) -> None:
        self.remarks.append(Remark(rule, what, node.lineno, name))  # type: ignore[arg-type]

    def visit(self, node: Node, depth: int, repeats: int) -> None:
        if depth > MAX_DEPTH:
            raise RecursionError
        handler = getattr(self, f"on_{type(node).__name__}", None)
        if handler is not None:
            handler(node)
        if is_a(node, "For"):
            repeats *= self._iterations(node)
            if repeats > MAX_ITERATIONS:
                self.add(BOMB, f"loops that run {repeats} times whatever the messages are", node)
                repeats = 1
        inner = self._conditional(node)
        if is_a(node, "Macro"):
            self.macros.append((node.name, False))
        for child in node.iter_child_nodes():
            self.visit(child, depth + 1, repeats)
        if is_a(node, "Macro"):
            self.macros.pop()
        elif inner:
            self.macros[-1] = (self.macros[-1][0], False)

    def _conditional(self, node: Node) -> bool:
        """Mark that what follows runs only at times; true when the mark is to be taken back."""
        if self.macros and is_a(node, "If", "For", "CondExpr") and not self.macros[-1][1]:
            self.macros[-1] = (self.macros[-1][0], True)
            return True
        return False

    # ---- reaching into objects

    def _key(self, node: Node, key: Node, how: str, *, strict: bool) -> None:
        """Judge ``key`` as the name by which something is reached. ``strict``: nothing but a constant is ordinary."""
        values = self.fold.strings(key)
        for value in sorted(values.known):
            for part in value.split("."):
                self._name(node, part, how)
        if values.complete:
            return
        if values.built and values.may_be_private:
            self.add(COMPUTED, f"{how} by a name that is put together: it may be any name", node)
        elif strict and values.may_be_private:
            self.add(COMPUTED, f"{how} by a name that is no constant", node)

    def _name(self, node: Node, name: str, how: str) -> None:
        bare = name.strip()
        if bare.startswith("__") or bare in GADGETS:
            self.add(UNSAFE, f"{how} {bare}", node, bare)
        elif bare.startswith("_") and bare[1:2].isalpha():
            self.add(ODD, f"{how} {bare}, a private name", node, bare)

    def on_Getattr(self, node: Node) -> None:
        self._name(node, node.attr, "reads the attribute")

    def on_Getitem(self, node: Node) -> None:
        if not is_a(node.arg, "Slice"):
            self._key(node, node.arg, "reads the item", strict=False)

    def on_NSRef(self, node: Node) -> None:
        self._name(node, node.attr, "sets the attribute")

    def on_Keyword(self, node: Node) -> None:
        if node.key.startswith("__"):
            self.add(UNSAFE, f"passes a keyword {node.key}", node, node.key)

    def on_Name(self, node: Node) -> None:
        if node.name.startswith("__"):
            self.add(UNSAFE, f"uses {node.name}", node, node.name)
        elif node.ctx == "load" and not self.fold.is_set(node.name):
            if node.name in ODD_NAMES:
                self.add(ODD, f"uses {node.name}", node, node.name)
            elif node.name in GLOBALS_TO_CALL and id(node) not in self.fold.called:
                self.add(ODD, f"hands on {node.name} instead of calling it", node, node.name)

    def on_Const(self, node: Node) -> None:
        if isinstance(node.value, str) and "." not in node.value:  # with a dot it is no name, but may be split
            self._internal(node, node.value, "holds the name")

    def on_Concat(self, node: Node) -> None:
        self._put_together(node)

    def on_Add(self, node: Node) -> None:
        if id(node) not in self._inner:  # a chain is looked at once, as a whole
            self._put_together(node)
        self._inner.add(id(node.left))

    def on_AssignBlock(self, node: Node) -> None:
        self._block(node)

    def on_FilterBlock(self, node: Node) -> None:
        self._block(node)

    def _block(self, node: Node) -> None:
        for inner in every(*node.body):
            if is_a(inner, "TemplateData"):
                self._internal(inner, inner.data, "holds the name")

    def _put_together(self, node: Node) -> None:
        for value in sorted(self.fold.strings(node).known):
            self._internal(node, value, "puts together")

    def _internal(self, node: Node, text: str, how: str) -> None:
        """A word, and no sentence, that names a way to Python's internals; wherever it is used."""
        word = text.strip()
        if "__" in word and len(word) < 200 and not any(c.isspace() for c in word):
            found = INTERNALS.search(word.lower())
            if found:
                self.add(UNSAFE, f"{how} {found.group()}", node, found.group())

    def on_Filter(self, node: Node) -> None:
        self._filter(node, node.name, node.args, node.kwargs)
        if (node.dyn_args or node.dyn_kwargs) and (node.name == "attr" or node.name in ATTRIBUTE_FILTERS):
            self.add(COMPUTED, f"hands a list of arguments to the filter {node.name}", node)
        if node.name in ("join", "format", "replace", "reverse", "lower"):
            self._put_together(node)

    def _filter(self, node: Node, name: str, args: Nodes, kwargs: Nodes) -> None:
        if name == "attr":
            keys = [*args[:1], *(k.value for k in kwargs if k.key == "name")]
            for key in keys:
                self._key(node, key, "reads, through the filter attr,", strict=True)
        elif name in ATTRIBUTE_FILTERS:
            for key in (k.value for k in kwargs if k.key == "attribute"):
                self._key(node, key, f"reads, through the filter {name},", strict=True)
            if name in POSITIONAL_ATTRIBUTE:
                for key in args[:1]:
                    self._key(node, key, f"reads, through the filter {name},", strict=True)
            if name == "map" and args:
                self._mapped(node, args, kwargs)
        elif name in PADDING:
            self._padding(node, name, args, kwargs)
        if name in ("format", "string", "replace") and is_a(node, "Filter") and node.node is not None:
            self._format(node, node.node)

    def _mapped(self, node: Node, args: Nodes, kwargs: Nodes) -> None:
        """``map('attr', '__class__')``: the filter to be applied is an argument itself."""
        names = self.fold.strings(args[0])
        if not names.complete:
            self.add(COMPUTED, "applies a filter whose name is no constant", node)
        for name in sorted(names.known):
            if name != "map":
                self._filter(node, name, args[1:], kwargs)

    # ---- calls, strings and numbers

    def on_Call(self, node: Node) -> None:
        func = node.node
        if is_a(func, "Getattr"):
            if func.attr in ("join", "format", "replace", "lower"):
                self._put_together(node)
            if func.attr in ("format", "format_map"):
                self._format(node, func.node)
            elif func.attr in PADDING:
                self._padding(node, func.attr, node.args, node.kwargs)
        if is_a(func, "Name"):
            if func.name == "range" and not self.fold.is_set("range"):
                count = self._range(node)
                if count > MAX_ITERATIONS:
                    self.add(BOMB, f"counts up to {count}", node)
            if self.macros and (func.name, False) == self.macros[-1]:
                self.add(BOMB, f"the macro {func.name} calls itself whatever happens", node)

    def _format(self, node: Node, template: Node) -> None:
        values = self.fold.strings(template)
        for value in values.known:
            if FORMAT_FIELD.search(value):
                self.add(UNSAFE, f"formats with {value[:60]!r}, which reaches into its arguments", node)
            if FORMAT_WIDTH.search(value):
                self.add(BOMB, f"formats with {value[:60]!r}, which makes a string of millions of characters", node)

    def _padding(self, node: Node, name: str, args: Nodes, kwargs: Nodes) -> None:
        for value in (*args, *(k.value for k in kwargs)):
            number = self.fold.number(value)
            if number is not None and number > MAX_REPEAT:
                self.add(BOMB, f"{name} to a width of {number}", node)

    def on_Mod(self, node: Node) -> None:
        self._format(node, node.left)

    def on_Mul(self, node: Node) -> None:
        for text, times in ((node.left, node.right), (node.right, node.left)):
            number = self.fold.number(times)
            if number is not None and number > MAX_REPEAT and self.fold.number(text) is None:
                self.add(BOMB, f"repeats something {number} times", node)

    def on_Pow(self, node: Node) -> None:
        base, power = self.fold.number(node.left), self.fold.number(node.right)
        if power is None or power > 64 or (base is not None and abs(base) > 1 << 32):
            self.add(BOMB, "raises to a power without bound", node)

    def _range(self, node: Node) -> int:
        numbers = [self.fold.number(a) for a in node.args]
        if not numbers or any(n is None for n in numbers):
            return 1
        start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        if start is None or stop is None or not step:
            return 1
        return max(0, -(-(stop - start) // step))

    def _iterations(self, node: Node) -> int:
        over = node.iter
        if is_a(over, "Call") and is_a(over.node, "Name") and over.node.name == "range":
            return max(1, self._range(over))
        if is_a(over, "List", "Tuple"):
            return max(1, len(over.items))
        if is_a(over, "Const") and isinstance(over.value, str):
            return max(1, len(over.value))
        return 1

    # ---- other files, hidden prompts

    def _other_file(self, node: Node, how: str) -> None:
        self.add(INCLUDES, f"{how} another template", node)

    def on_Include(self, node: Node) -> None:
        self._other_file(node, "includes")

    def on_Import(self, node: Node) -> None:
        self._other_file(node, "imports")

    def on_FromImport(self, node: Node) -> None:
        self._other_file(node, "imports from")
        for name in node.names:
            self._name(node, name if isinstance(name, str) else name[0], "imports")

    def on_Extends(self, node: Node) -> None:
        self._other_file(node, "extends")

    def on_If(self, node: Node) -> None:
        words = sorted(set(self._trigger_words(node.test)))
        if not words:
            return
        text = MARK.sub(" ", "".join(_literal_text(node.body)))
        shown = ", ".join(repr(w[:40]) for w in words[:4])
        if len(WORD.findall(text)) >= 6:
            self.add(HIDDEN, f"when a message contains {shown}, it adds {' '.join(text.split())[:80]!r}", node)
        else:
            self.add(None, f"decides by whether a message contains {shown}", node)

    def _trigger_words(self, test: Node) -> Iterator[str]:
        """Words whose presence in a message's text is asked for. Marks such as ``</think>`` are no words."""
        for node in every(test):
            if is_a(node, "Compare"):
                for operand in node.ops:
                    if operand.op in ("in", "notin") and self.fold.is_message_text(operand.expr):
                        yield from _words(self.fold.strings(node.expr).known)
            elif is_a(node, "Call") and is_a(node.node, "Getattr") and node.args:
                if node.node.attr in ("startswith", "endswith", "find", "count", "index"):
                    if self.fold.is_message_text(node.node.node):
                        yield from _words(self.fold.strings(node.args[0]).known)


def _words(values: frozenset[str]) -> Iterator[str]:
    for value in values:
        if WORD.search(value) and not re.search(r"[<>\[\]{}|/#*`:]", value):
            yield value


def _literal_text(body: Nodes) -> Iterator[str]:
    for node in every(*body):
        if is_a(node, "TemplateData"):
            yield node.data
        elif is_a(node, "Const") and isinstance(node.value, str):
            yield node.value + " "
