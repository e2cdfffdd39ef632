"""A web server, a cache of its own for each test, and waits that are short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from remote.server import Web

from artifactkit import trees
from artifactkit.remote import store


@pytest.fixture
def web(cache: Path) -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where fetched files are kept; proxies of the environment are out of sight."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(store, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(trees, "_mounted", {})
    return tmp_path / "xdg" / "artifactkit"
