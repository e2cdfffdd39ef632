"""Imports lead downwards, plug-ins do not know each other, heavy libraries wait, only the command line speaks.

Read from the syntax trees, so that an import inside a function counts too, and one that never ran.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "artifactkit"

# From low to high. A module may import what stands in a lower level, and what stands before it in its own line, but
# nothing of another line of its level: those are to be kept apart. Folders are named like modules.
LEVELS: list[tuple[str, list[list[str]]]] = [
    ("L0", [["errors", "dtypes"], ["report"]]),
    (
        "L1",
        [["files", "trees", "outside", "ranged", "pickles", "containers", "source", "strided", "stored", "artifact"]],
    ),
    (
        "L2",
        [
            [
                "types", "filesystem", "beside", "staging", "placing", "patterns", "sharded", "floats", "casting",
                "ggml", "npwrite", "tensor_names", "torch_files", "torch_script", "numpy_files", "checkpoint_walk",
                "checkpoint", "modeling", "children", "mlx", "safetensors_files",
                "token_inputs",
                "onnx_files", "tokens",
            ]
        ],
    ),
    ("L3", [["formats"], ["passes"], ["architectures"], ["lowerings"], ["runners"]]),
    (
        "L4",
        [
            ["known", "registry", "opening", "imatrix", "translate"],
            ["scan"], ["verify"], ["provenance"], ["hub"], ["remote"],
        ],
    ),
    (
        "L5",
        [
            ["sources", "recipe"], ["targets", "mlx_route", "route", "forecast", "attest", "retrace", "verdict"],
            ["judge"],
        ],
    ),
    ("L6", [["run", "samples", "function"], ["via"]]),
    ("L7", [["diagnose"], ["audit"], ["build"], ["measure"]]),
    ("L8", [["cli", "__main__"]]),
]  # fmt: skip
PLACE = {
    name: (level, line, column)
    for level, (_, lines) in enumerate(LEVELS)
    for line, names in enumerate(lines)
    for column, name in enumerate(names)
}
# One file (or package) is one plug-in here, and none imports another.
PLUGINS = {"formats", "passes", "architectures", "lowerings", "runners"}
# The trusted base reads hostile files, so it stands on as little as can be.
SCAN_MAY_IMPORT = {name for name, (level, _, _) in PLACE.items() if level <= 1} | {"scan"}

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# The linter knows the same list, and says so while one types; it does not see `if`, `try` and `class` bodies as we do.
HEAVY = set(CONFIG["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"])

# Modules that may turn a string into a module. The strings are names of our own files, and entry points.
IMPORTS_BY_NAME = {
    "artifactkit/registry.py",
    "artifactkit/cli/main.py",
    "artifactkit/scan/rules.py",
    "artifactkit/scan/scanner.py",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def component(module: str) -> str:
    """``artifactkit.formats.npy`` -> ``formats``; the package itself is the empty string."""
    return module.partition(".")[2].partition(".")[0]


def plugin(module: str) -> str:
    """``artifactkit.formats.gguf.reader`` -> ``formats.gguf``."""
    return ".".join(module.split(".")[1:3])


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import of our own package, wherever it stands."""
    package = name_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "artifactkit":
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                module = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            else:
                module = node.module or ""
            if module.split(".")[0] != "artifactkit":
                continue
            for alias in node.names:
                # `from . import x` imports the module x, `from .x import y` a name of x or the module x.y.
                deeper = f"{module}.{alias.name}"
                yield node.lineno, deeper if is_module(deeper) else module


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def may_import(importer: str, imported: str) -> bool:
    """Whether the level of ``importer`` lets it import ``imported``; both are absolute names of modules."""
    here, there = component(importer), component(imported)
    if not there:  # the package's own __init__: the version
        return True
    if not here:
        return False
    if here == "scan" and there not in SCAN_MAY_IMPORT:
        return False
    if here == there:
        return here not in PLUGINS or plugin(importer) == plugin(imported)
    (level, line, column), (other_level, other_line, other_column) = PLACE[here], PLACE[there]
    if level != other_level:
        return other_level < level
    return line == other_line and other_column < column


def at_top(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """(line, first name) of imports that run when the module is imported."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, (node.module or "").split(".")[0]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_top(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name in ("body", "orelse", "finalbody"):
                yield from at_top(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from at_top(handler.body)


def speaks(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of everything that prints or ends the process."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in ("print", "exit", "quit", "SystemExit", "input", "breakpoint"):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in (
            "sys.exit", "os._exit", "os.abort", "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"
        ):  # fmt: skip
            yield node.lineno, ast.unparse(node)


def runs_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of everything that could run code named by data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in ("eval", "exec", "compile", "__import__"):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("importlib.import_module", "runpy.run_path"):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ((node.lineno, name) for name in names if name.split(".")[0] in UNPICKLERS and not level(node))


UNPICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}


def level(node: ast.AST) -> int:
    return getattr(node, "level", 0)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def test_every_module_has_a_level() -> None:
    names = {component(name_of(path)) for path in modules()} - {""}
    assert names <= PLACE.keys(), f"no level in LEVELS: {sorted(names - PLACE.keys())}"


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_imports_lead_downwards(path: Path) -> None:
    wrong = [
        f"{relative(path)}:{line} imports {imported}"
        for line, imported in imports(parsed(path), path)
        if not may_import(name_of(path), imported)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_heavy_libraries_are_imported_inside_functions(path: Path) -> None:
    wrong = [f"{relative(path)}:{line} imports {name}" for line, name in at_top(parsed(path).body) if name in HEAVY]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    if component(name_of(path)) in ("cli", "__main__"):
        return
    wrong = [f"{relative(path)}:{line} uses {what}" for line, what in speaks(parsed(path))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_no_module_runs_what_data_names(path: Path) -> None:
    found = list(runs_names(parsed(path)))
    if relative(path) in IMPORTS_BY_NAME:
        found = [(line, what) for line, what in found if what != "importlib.import_module"]
    assert not found, "\n".join(f"{relative(path)}:{line} uses {what}" for line, what in found)


# The rules themselves, each with a twin that passes.


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("artifactkit.dtypes", "artifactkit.errors", True),
        ("artifactkit.errors", "artifactkit.dtypes", False),
        ("artifactkit.errors", "artifactkit.report", False),
        ("artifactkit.containers.zip", "artifactkit.pickles", True),
        ("artifactkit.pickles.machine", "artifactkit.containers.zip", False),
        ("artifactkit.formats.npy", "artifactkit.types", True),
        ("artifactkit.formats.npy", "artifactkit.formats.npz", False),
        ("artifactkit.formats.npy", "artifactkit.formats", False),
        ("artifactkit.formats.gguf", "artifactkit.formats.gguf.reader", True),
        ("artifactkit.formats.npy", "artifactkit.passes.cast", False),
        ("artifactkit.formats.npy", "artifactkit.registry", False),
        ("artifactkit.scan.names", "artifactkit.containers.zip", True),
        ("artifactkit.scan.names", "artifactkit.types", False),
        ("artifactkit.verify.values", "artifactkit.provenance", False),
        ("artifactkit.route", "artifactkit.registry", True),
        ("artifactkit.route", "artifactkit.run", False),
        ("artifactkit.cli.main", "artifactkit", True),
        ("artifactkit", "artifactkit.errors", False),
    ],
)
def test_who_may_import_whom(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) is allowed


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import numpy", {"numpy"}),
        ("import numpy.linalg as n", {"numpy"}),
        ("from torch import nn", {"torch"}),
        ("try:\n    import onnx\nexcept ImportError:\n    import rich.console", {"onnx", "rich"}),
        ("class A:\n    import torch", {"torch"}),
        ("with open('x'):\n    import torch", {"torch"}),
        ("def f():\n    import numpy", set()),
        ("if TYPE_CHECKING:\n    import numpy", set()),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import numpy", {"numpy"}),
        ("from .torch import x", set()),
    ],
)
def test_what_counts_as_an_import_at_the_top(source: str, found: set[str]) -> None:
    assert {name for _, name in at_top(ast.parse(source).body)} == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(1)", ["print"]),
        ("show = print", ["print"]),
        ("import sys\nsys.exit(1)", ["sys.exit"]),
        ("raise SystemExit", ["SystemExit"]),
        ("import sys\nsys.stderr.write('x')", ["sys.stderr"]),
        ("pprint(1)", []),
        ("os.exit_code = 1", []),
    ],
)
def test_what_counts_as_speaking(source: str, found: list[str]) -> None:
    assert [what for _, what in speaks(ast.parse(source))] == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", ["pickle"]),
        ("def f():\n    from _pickle import loads", ["_pickle"]),
        ("eval(text)", ["eval"]),
        ("importlib.import_module(name)", ["importlib.import_module"]),
        ("from . import pickle", []),
        ("from .pickle import FORMAT", []),
        ("import pickletools", []),
    ],
)
def test_what_counts_as_running_names(source: str, found: list[str]) -> None:
    assert [what for _, what in runs_names(ast.parse(source))] == found
