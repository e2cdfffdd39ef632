"""What is imported when a command starts. Counted in modules, since time on a shared machine proves nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment

from artifactkit.cli import COMMANDS, SUBCOMMANDS

HEAVY = {
    "numpy",
    "torch",
    "onnx",
    "onnxruntime",
    "rich",
    "pydantic",
    "safetensors",
    "ml_dtypes",
    "huggingface_hub",
    "jinja2",
}
# Commands that answer from headers. The others compare or cast values, and need numpy for that.
HEADERS_ONLY = [
    ["--help"],
    ["--version"],
    *([name, "--help"] for name in COMMANDS),
    *([name, sub, "--help"] for name, subs in SUBCOMMANDS.items() for sub in subs),
    ["inspect", "trainer.ckpt"],
    ["inspect", "tiny-llama", "--json"],
    ["inspect", "sharded"],
    ["formats"],
    ["route", "trainer.ckpt"],
    ["route", "plain.pt", "-t", "safetensors"],
]
NOT_COMMANDS = {"__init__", "converted", "located", "main", "options", "render"}


def imported(folder: Path, *args: str) -> set[str]:
    """The modules in ``sys.modules`` after one command line has run in ``folder``, without an error."""
    code = f"""
import sys
from artifactkit.cli.main import main
code = main({list(args)!r})
with open("modules.json", "w") as file:
    import json
    json.dump([code, sorted(sys.modules)], file)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    code_, modules = json.loads((folder / "modules.json").read_text())
    assert code_ == 0, done.stdout + done.stderr
    return set(modules)


def heavy(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] in HEAVY}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Path:
    """A folder in which relative paths lead to the fixtures."""
    where = tmp_path_factory.mktemp("startup")
    for path in fixtures.iterdir():
        (where / path.name).symlink_to(path)
    return where


@pytest.mark.parametrize("args", HEADERS_ONLY, ids=" ".join)
def test_nothing_heavy_is_imported(folder: Path, args: list[str]) -> None:
    # A chat template is judged on its parsed tree: only where there is one is the parser imported.
    parser = {"jinja2", "markupsafe"} if {"tiny-llama", "sharded"} & set(args) else set()
    assert {name.split(".")[0] for name in heavy(imported(folder, *args))} <= parser


def test_help_imports_no_command(folder: Path) -> None:
    modules = imported(folder, "--help")
    assert not {f"artifactkit.cli.{name}" for name in COMMANDS} & modules
    assert {name for name in modules if name.startswith("artifactkit")} <= {
        "artifactkit", "artifactkit.errors", "artifactkit.cli", "artifactkit.cli.main", "artifactkit.cli.render"
    }  # fmt: skip


def test_the_count_of_modules_stays_small(folder: Path) -> None:
    # An empty typer app is most of it. What comes on top is counted, whatever version of typer there is.
    command = [sys.executable, "-c", "import sys, typer, typer.main; print(len(sys.modules))"]
    empty = int(subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout)

    def others(*args: str) -> int:
        return sum(not name.startswith("artifactkit") for name in imported(folder, *args)) - empty

    assert others("--help") <= 10
    assert others("inspect", "trainer.ckpt") <= 40


def test_the_rule_can_fail(folder: Path) -> None:
    """A conversion does import numpy, so the test above sees what is there."""
    assert "numpy" in heavy(imported(folder, "convert", "trainer.ckpt", "seen.npz", "--dtype", "f16"))


def test_the_table_of_commands_is_that_of_the_modules() -> None:
    """``--help`` prints the table without importing the modules, so the two have to say the same."""
    found = {}
    for path in sorted((ROOT / "artifactkit" / "cli").glob("*.py")):
        if path.stem not in NOT_COMMANDS:
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            found[path.stem.replace("_", "-")] = (doc or "").splitlines()[0]
    assert found == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_json_and_a_first_line_that_fits(name: str) -> None:
    tree = ast.parse((ROOT / "artifactkit" / "cli" / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8"))
    wanted = SUBCOMMANDS.get(name, {"command": ""})
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for sub, text in wanted.items():
        function = functions[sub.replace("-", "_")]
        assert "json" in {arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]}
        assert not text or (ast.get_docstring(function) or "").splitlines()[0] == text
    for line in (COMMANDS[name], *SUBCOMMANDS.get(name, {}).values()):
        assert not line.endswith(".")
        assert len(line) <= 68, "it would be broken in two on a terminal of 80 columns"
