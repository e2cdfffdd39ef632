"""The project around the code: extras, pins, make targets, and an installation from nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from conftest import ROOT, environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[<>=!~;\[ ]", requirement)[0].lower().replace("_", "-") for requirement in requirements]


def test_all_cpu_is_every_extra_that_needs_no_gpu() -> None:
    (everything,) = EXTRAS["all-cpu"]
    listed = set(everything.partition("[")[2].rstrip("]").split(","))
    assert listed == EXTRAS.keys() - {"cuda", "tensorrt", "all-cpu", "test", "dev"}


def test_everything_that_the_tests_need_is_pinned() -> None:
    wanted = {*names(PROJECT["dependencies"]), *names(EXTRAS["test"]), *names(EXTRAS["dev"])} - {"artifactkit"}
    assert wanted <= PINS.keys()


def test_what_runs_here_is_what_is_pinned() -> None:
    """A test that passes with other versions than the pinned ones says nothing about these."""
    from importlib.metadata import version

    for name in ("numpy", "safetensors", "torch", "typer"):
        assert version(name).partition("+")[0] == PINS[name]


def test_both_scripts_are_the_command_line() -> None:
    assert set(PROJECT["scripts"]) == {"artifactkit", "akit"}
    assert len(set(PROJECT["scripts"].values())) == 1


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\S+)", shown, re.MULTILINE)) == set(phony[1].split())


def test_the_demo_runs_a_second_time(tmp_path: Path) -> None:
    """What the first run wrote, the statement too, must not stand in the way of the next."""
    demo = ["make", "-s", "demo", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/core", f"OUT={tmp_path / 'out'}"]
    for _ in range(2):
        done = subprocess.run(demo, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "verdict: PASSED" in done.stdout


@pytest.mark.slow
def test_a_wheel_in_an_environment_of_its_own(tmp_path: Path, fixtures: Path) -> None:
    """What a user installs does the main job with the core's dependencies alone, outside the checkout."""
    here = {k: v for k, v in environment().items() if k != "PYTHONPATH"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            [str(part) for part in command], cwd=tmp_path, env=here, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    wheels = tmp_path / "wheels"
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", wheels, ROOT)
    (wheel,) = wheels.glob("artifactkit-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    assert "torch" not in run(programs / "python", "-m", "pip", "list").split()
    assert run(programs / "artifactkit", "--version") == run(programs / "akit", "--version")
    out = tmp_path / "out.safetensors"
    run(programs / "artifactkit", "convert", fixtures / "trainer.ckpt", out)
    assert "verified" in run(programs / "akit", "verify", out, "--against", fixtures / "trainer.ckpt")
    # The folders are the tables, so they have to be in the wheel, whole.
    lists = "from artifactkit import registry; print(*registry.formats())"
    assert run(programs / "python", "-c", lists) == run(
        sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {lists}"
    )
