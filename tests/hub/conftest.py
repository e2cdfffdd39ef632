"""The hub on loopback, and two ways to work against it: the program as a user runs it, and the library in this process.

What the environment says of the real hub (tokens, caches, proxies, offline) is out of sight in both.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import environment
from hub.server import Hub

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        yield server


def hub_environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """The environment of a user whose hub is ``hub`` and whose cache is below ``home``."""
    keep = {k: v for k, v in environment().items() if not k.upper().startswith(("HF_", "HUGGING", "TRANSFORMERS_"))}
    keep = {
        k: v for k, v in keep.items() if k.upper() not in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "XDG_CACHE_HOME")
    }
    return keep | {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"} | more


@pytest.fixture
def run(hub: Hub, tmp_path: Path) -> Run:
    """``run("inspect", "hf://o/n")``: one command line in a process of its own, in ``tmp_path``."""

    def start(*args: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "artifactkit", *map(str, args)]
        there = hub_environment(hub, tmp_path / "home", **more)
        return subprocess.run(
            command, cwd=tmp_path, env=there, capture_output=True, text=True, timeout=120, check=False
        )

    return start


@pytest.fixture
def here(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The library in this process speaks to ``hub``; waits are short. Gives the folder of its cache."""
    from huggingface_hub import constants

    from artifactkit import trees
    from artifactkit.hub import client

    for name in [name for name in os.environ if name.upper().startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    cache = tmp_path / "cache"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(client, "FIRST_WAIT", 0.001)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    monkeypatch.setattr(trees, "_mounted", {})
    yield cache


@pytest.fixture
def call(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """As ``run``, in this process, which is quicker: the cache is ``here``, and ``offline`` cuts the connection."""
    from huggingface_hub import constants

    from artifactkit.cli.main import main

    monkeypatch.chdir(tmp_path)

    def start(*args: str | Path, offline: bool = False) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(arg) for arg in args])
        return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())

    return start
