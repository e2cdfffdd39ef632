"""The hub of tests/hub and the web server of tests/remote, for sources that are locked."""

from hub.conftest import here, hub, run
from remote.conftest import cache, web

__all__ = ["cache", "here", "hub", "run", "web"]
