"""The hub of tests/hub, for sources that are locked at a commit."""

from hub.conftest import here, hub, run

__all__ = ["here", "hub", "run"]
