"""Where bytes elsewhere come from: what every kind of place can do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from ..errors import ArtifactkitError

TRIES = 4
FIRST_WAIT = 0.3  # seconds, doubled with each try
LONGEST_WAIT = 30.0  # seconds that a place may ask to wait
T = TypeVar("T")


class Cut(Exception):
    """No answer, one that says to come again, or one that ended too early: to be tried again, from where it ended.

    ``error`` is what to say when it was tried often enough, ``wait`` the seconds that the place asks to wait.
    """

    def __init__(self, error: ArtifactkitError, wait: float = 0.0) -> None:
        super().__init__(str(error))
        self.error, self.wait = error, wait


def attempt(work: Callable[[], T]) -> T:
    """``work()``, again a few times while it is cut. Raises the error of the last time."""
    for tries in range(TRIES):
        try:
            return work()
        except Cut as cut:
            pause(cut, tries)
    raise AssertionError("not reached")


def pause(cut: Cut, tries: int) -> None:
    """Wait before the next try; raises the error of ``cut`` when there is to be none."""
    wait = max(FIRST_WAIT * 2**tries, cut.wait)
    if tries + 1 >= TRIES or wait > LONGEST_WAIT:
        raise cut.error from cut.__cause__
    time.sleep(wait)


class Store(Protocol):
    """One file elsewhere. ``size`` is in bytes, None where only fetching tells; ``shown`` names it in messages."""

    shown: str
    size: int | None

    @property
    def has_ranges(self) -> bool:
        """Whether parts of it can be had."""
        ...

    @property
    def version(self) -> str:
        """What would be another if the content were; empty where the place says nothing of the kind."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to before ``end``. Raises Cut, Unreadable, or Corrupt for another version."""
        ...

    def stream(self, start: int) -> Iterator[bytes]:
        """The bytes from ``start`` to the end; from 0 where the place has no ranges. Raises Cut, Unreadable."""
        ...
