"""What a Python file calls at the moment of its import: from its syntax tree, nothing is run."""

from __future__ import annotations

import ast
import enum
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

# Calls that start a program. Exact names, after imports and their aliases are resolved.
COMMANDS = frozenset({
    "os.system", "os.popen", "os.startfile", "os.execl", "os.execle", "os.execlp", "os.execlpe", "os.execv",
    "os.execve", "os.execvp", "os.execvpe", "os.spawnl", "os.spawnle", "os.spawnlp", "os.spawnlpe", "os.spawnv",
    "os.spawnve", "os.spawnvp", "os.spawnvpe", "os.posix_spawn", "os.posix_spawnp", "posix.system", "nt.system",
    "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "subprocess.Popen",
    "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn", "commands.getoutput", "popen2.popen2",
    "asyncio.create_subprocess_shell", "asyncio.create_subprocess_exec", "pip.main", "pip._internal.main",
})  # fmt: skip
STRINGS = frozenset({"exec", "eval", "builtins.exec", "builtins.eval", "execfile", "runpy.run_path", "code.interact"})
BUILDS = frozenset({"subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
                    "subprocess.Popen", "subprocess.getoutput", "os.popen"})  # fmt: skip
DECODERS = frozenset({
    "b64decode", "b32decode", "b16decode", "a85decode", "b85decode", "urlsafe_b64decode", "decompress", "fromhex",
    "unhexlify", "decodebytes", "loads", "rot13",
})  # fmt: skip
FETCHERS = frozenset({"urllib.request.urlopen", "urllib.urlopen", "requests.get", "requests.post", "httpx.get",
                      "urllib3.request", "http.client.HTTPSConnection"})  # fmt: skip
UNPICKLERS = frozenset({"pickle.loads", "marshal.loads", "dill.loads", "cloudpickle.loads", "_pickle.loads"})
# These call what they are given: at once, in a thread, or when the process ends.
CALLERS = frozenset({"map", "threading.Thread", "threading.Timer", "multiprocessing.Process", "atexit.register",
                     "_thread.start_new_thread", "signal.signal", "weakref.finalize"})  # fmt: skip

MAX_STRINGS, MAX_CALLS = 50, 100  # by then it is clear what the file is


class Danger(enum.Enum):
    """COMMAND: a command, or code from a string. HIDDEN: code that was encoded."""

    COMMAND = "command"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Call:
    """One call at import. ``builds``: of a kind that installation scripts make as a matter of course."""

    danger: Danger
    what: str
    name: str
    line: int
    builds: bool = False


def at_import(source: bytes) -> list[Call] | None:
    """The calls that importing the file makes and that run a command or code; None when it cannot be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of strings with odd escapes: not ours to say
        try:
            tree = ast.parse(source)
            return _Importing(tree).calls()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


class _Importing:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.aliases: dict[str, str] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.constants: dict[str, ast.expr] = {}
        self.found: list[Call] = []
        self.entered: set[str] = set()
        self.strings = 0  # of code that were looked into

    def calls(self) -> list[Call]:
        for statement in _statements_of(self.tree):
            if isinstance(statement, ast.Import):
                for item in statement.names:
                    self.aliases[item.asname or item.name.partition(".")[0]] = (
                        item.name if item.asname else item.name.partition(".")[0]
                    )
            elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
                for item in statement.names:
                    self.aliases[item.asname or item.name] = f"{statement.module}.{item.name}"
                    if item.name == "*":
                        inside = (full.rpartition(".") for full in COMMANDS)
                        self.aliases.update((n, f"{m}.{n}") for m, _, n in inside if m == statement.module)
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value
        self._statements(self.tree.body)
        return list(dict.fromkeys(self.found))

    def _statements(self, body: list[ast.stmt]) -> None:
        waiting: list[ast.AST] = list(reversed(body))
        while waiting and len(self.found) < MAX_CALLS:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # The body waits for a call; decorators and defaults do not.
                waiting.extend([*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)])
                continue
            if isinstance(node, ast.Lambda):
                continue
            if isinstance(node, ast.If) and _is_main(node.test):
                waiting.extend(node.orelse)
                continue
            if isinstance(node, ast.Call):
                self._call(node)
                if isinstance(node.func, ast.Lambda):  # called where it is written
                    waiting.append(node.func.body)
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))

    def _call(self, node: ast.Call) -> None:
        name = self._name(node.func)
        if name is None:
            return
        if name in self.functions and name not in self.entered:
            self.entered.add(name)
            self._statements(self.functions[name].body)
        if name in CALLERS:
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                given = self._name(argument) if isinstance(argument, ast.Name | ast.Attribute) else None
                if given in COMMANDS:
                    self.found.append(Call(Danger.COMMAND, f"hands {given} to {name}", given, node.lineno))
        if name in COMMANDS:
            self.found.append(Call(Danger.COMMAND, f"calls {name}", name, node.lineno, name in BUILDS))
        elif name in STRINGS and node.args:
            self._string(node, name)
        elif name in UNPICKLERS and node.args and self._is_constant(node.args[0]):
            self.found.append(Call(Danger.HIDDEN, f"calls {name} on bytes in the file", name, node.lineno))
        elif name in UNPICKLERS and node.args and (fetched := self._fetched(node.args[0])):
            self.found.append(Call(Danger.COMMAND, f"calls {name} on what {fetched} gives", name, node.lineno))

    def _string(self, node: ast.Call, name: str) -> None:
        decoder = self._decoder(node.args[0], 0)
        fetched = self._fetched(node.args[0])
        if decoder:
            self.found.append(Call(Danger.HIDDEN, f"calls {name} on what {decoder} gives", name, node.lineno))
        elif fetched:
            self.found.append(Call(Danger.HIDDEN, f"calls {name} on what {fetched} gives", name, node.lineno))
        elif not isinstance(node.args[0], ast.Constant):
            return  # of what the program itself has put together: ordinary, in code that makes code
        elif isinstance(node.args[0].value, str | bytes) and self.strings < MAX_STRINGS:
            self.strings += 1
            inner = node.args[0].value
            inside = at_import(inner.encode("utf-8", "replace") if isinstance(inner, str) else inner)
            if inside:
                self.found.extend(Call(c.danger, f"{name}: {c.what}", c.name, node.lineno, c.builds) for c in inside)

    def _fetched(self, node: ast.expr) -> str:
        """The name of the function that fetches, or spells out by numbers, what is run."""
        if isinstance(node, ast.Name) and node.id in self.constants:
            node = self.constants[node.id]
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                name = self._name(inner.func) or ""
                if name in FETCHERS or (name == "chr" and not inner.keywords) or name == "codecs.decode":
                    return name
        return ""

    def _decoder(self, node: ast.expr, depth: int) -> str:
        """The name of the function that decodes a constant on the way to ``node``; else the empty string."""
        if depth > 8:
            return ""
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self._decoder(self.constants[node.id], depth + 1)
        if not isinstance(node, ast.Call):
            return ""
        last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        last = self.aliases.get(last, last).rpartition(".")[2]
        inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        fed, found = False, ""
        for argument in inner:
            if self._is_constant(argument):
                fed = True
            elif not found:
                found = self._decoder(argument, depth + 1)
        return last if last in DECODERS and (fed or found) else found

    def _is_constant(self, node: ast.expr) -> bool:
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if isinstance(one, ast.Name) and isinstance(self.constants.get(one.id), ast.Constant):
                continue
            if isinstance(one, ast.BinOp):
                waiting += [one.left, one.right]
            elif not isinstance(one, ast.Constant) or not isinstance(one.value, str | bytes):
                return False
        return True

    def _name(self, node: ast.expr) -> str | None:
        """The dotted name of what is called, aliases resolved; ``__import__('os').system`` and getattr included."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.NamedExpr):
            node = node.value
            return None if parts else self._name(node)
        if isinstance(node, ast.Name):
            base = self.aliases.get(node.id, node.id)
            bound = self.constants.get(node.id)
            if isinstance(bound, ast.Name) and base == node.id:
                base = self.aliases.get(bound.id, bound.id)
            if bound is not None and node.id not in self.aliases and isinstance(bound, ast.Attribute | ast.Call):
                resolved = self._name(bound) if isinstance(bound, ast.Attribute) else self._imported(bound)
                base = resolved or base
        elif isinstance(node, ast.Call):
            imported = self._imported(node)
            if imported is None:
                return None
            base = imported
        else:
            return None
        return ".".join([base, *reversed(parts)])

    def _imported(self, node: ast.Call) -> str | None:
        """What ``__import__('os')``, ``import_module('os')`` and ``getattr(os, 'system')`` give: a dotted name."""
        name = self._name(node.func) if not isinstance(node.func, ast.Call) else None
        arguments = [text for text in map(_text, node.args) if text is not None]
        if name in ("__import__", "builtins.__import__", "importlib.import_module", "importlib.__import__"):
            return arguments[0] if arguments else None
        if name in ("getattr", "builtins.getattr") and len(node.args) >= 2 and arguments:
            base = self._name(node.args[0]) if not isinstance(node.args[0], ast.Call) else self._imported(node.args[0])
            return f"{'builtins' if base == '__builtins__' else base}.{arguments[0]}" if base else None
        return None


def _statements_of(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement of the file, in any block; expressions, which are most of a tree, are passed over."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, None)
            if isinstance(inner, list):
                waiting.extend(reversed(inner))
        if isinstance(node, ast.stmt):
            yield node


def _text(node: ast.expr) -> str | None:
    """The string that the expression is: a constant, or a few put together."""
    parts: list[str] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            waiting += [one.right, one.left]
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and len(parts) < 100:
            parts.append(one.value)
        else:
            return None
    return "".join(parts)


def _is_main(test: ast.expr) -> bool:
    """``__name__ == "__main__"``, alone or beside other conditions."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_main(value) for value in test.values)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, test.comparators[0])
    return {getattr(side, "id", getattr(side, "value", None)) for side in sides} == {"__name__", "__main__"}
