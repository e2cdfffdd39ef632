"""The documentation cannot lie: its sessions and code are run, its reference is generated, every command is in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment
from sessions import Shell, blocks, check, package_with, titled

from artifactkit.cli import COMMANDS

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# Pages that add one plug-in, and the one file of the package that they add.
NEW_FILES = {"add-a-format.md": "formats/rowfile.py", "add-an-architecture.md": "architectures/olmo.py"}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in NEW_FILES], ids=lambda page: page.name)
def test_sessions_and_code_are_run(page: Path, tmp_path: Path, fixtures: Path) -> None:
    shell = Shell(tmp_path, fixtures, environment())
    wrong = check(page, shell, documentation=True)
    assert not wrong, "\n\n".join(wrong) + "\n\n`make docs` writes what is really printed"
    code = [block for block in blocks(page.read_text(encoding="utf-8")) if block.language == "python"]
    for block in code:
        command = [sys.executable, "-c", "\n" * block.line + "\n".join(block.lines)]
        done = subprocess.run(
            command, cwd=shell.folder, env=shell.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{page.name}:{block.line}: {done.stderr}"


@pytest.mark.parametrize("name", NEW_FILES)
def test_a_plug_in_is_one_new_file_and_nothing_else(name: str, tmp_path: Path, fixtures: Path) -> None:
    """The page's code, put where the page says into a copy of the package, and the page's session run on that copy."""
    text = (DOCS / name).read_text(encoding="utf-8")
    (tmp_path / "copy").mkdir()
    package = package_with(text, ROOT / "artifactkit", tmp_path / "copy")
    original = {path.relative_to(ROOT / "artifactkit") for path in (ROOT / "artifactkit").rglob("*.py")}
    assert {path.relative_to(package) for path in package.rglob("*.py")} - original == {Path(NEW_FILES[name])}
    there = environment() | {"PYTHONPATH": str(package.parent)}
    wrong = check(DOCS / name, Shell(tmp_path / "shell", fixtures, there), documentation=True)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize(("name", "file"), NEW_FILES.items())
def test_the_new_plug_in_keeps_the_rules_of_the_layers(name: str, file: str) -> None:
    from test_layers import HEAVY, at_top, imports, may_import, runs_names, speaks

    code = titled((DOCS / name).read_text(encoding="utf-8"))[f"artifactkit/{file}"]
    tree = ast.parse(code)
    here = ROOT / "artifactkit" / file
    module = "artifactkit." + file.removesuffix(".py").replace("/", ".")
    assert all(may_import(module, imported) for _, imported in imports(tree, here))
    assert not [name for _, name in at_top(tree.body) if name in HEAVY]
    assert not [*speaks(tree), *runs_names(tree)]


def test_the_reference_is_what_the_program_says() -> None:
    command = [sys.executable, str(DOCS / "make_reference.py"), "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "docs/reference.md is out of date: make docs\n" + done.stderr


def test_the_families_are_those_that_are_there() -> None:
    command = [sys.executable, str(DOCS / "make_architectures.py"), "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "docs/architectures.md is out of date: make docs\n" + done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {COMMANDS[name]} |" in readme
    pages = [page.read_text(encoding="utf-8") for page in PAGES if page.name != "reference.md"]
    shown = [block for page in pages for block in blocks(page) if block.language == "console"]
    assert any(line.startswith(f"$ artifactkit {name}") for block in shown for line in block.lines)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_names_only_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            for line in block.lines if block.language == "sh" else []:
                for target in re.findall(r"^make ([a-z-]+)", line):
                    assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"
