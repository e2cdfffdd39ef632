"""What all tests share: the seeded fixtures, the program as a user runs it, one deterministic hypothesis profile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# The same examples in every run and no clock: a test that fails, fails again.
hypothesis.settings.register_profile("artifactkit", derandomize=True, deadline=None, database=None, print_blob=False)
hypothesis.settings.load_profile("artifactkit")


@pytest.fixture(scope="session")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all fixtures (fixtures/MANIFEST.json lists them). Not to be written to: copy what you change."""
    import make

    folder = tmp_path_factory.mktemp("fixtures")
    make.make(folder)
    return folder


def environment() -> dict[str, str]:
    """Where the program runs in tests: this checkout, no terminal, no colour, no network, one hash order as any."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("ARTIFACTKIT_", "TYPER_", "PYTEST_"))}
    return keep | {
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        "COLUMNS": "80",
        "LC_ALL": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "",
    }


Akit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def akit(tmp_path: Path) -> Akit:
    """Run ``python -m artifactkit ARGS`` as a user would: ``akit("inspect", path)``; ``cwd`` is ``tmp_path``."""

    def run(*args: str | Path, stdin: str | None = None, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "artifactkit", *map(str, args)]
        return subprocess.run(
            command, input=stdin, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120, check=False
        )

    return run
