"""What a person or a program sees: answers on stdout, messages and progress on stderr, one JSON document when asked."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import ArtifactkitError, OutputError, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SCHEMA_VERSION = 1
BAR_AFTER = 0.5  # seconds; a job that is done sooner needs no bar, and never imports rich
BAR_EVERY = 0.1  # seconds between two drawings

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB", "EB")


def size(nbytes: int) -> str:
    """Bytes for people, in powers of 1000 like disks, ``--max-shard-size`` and the Hub: ``999 B``, ``2.15 GB``."""
    if nbytes < 1000:
        return f"{nbytes} B"
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def count(n: int, one: str, many: str | None = None) -> str:
    """``1 tensor``, ``12,288 tensors``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def shape(sizes: Sequence[int]) -> str:
    """``[2, 3]``; ``[]`` for a 0-d tensor."""
    return "[" + ", ".join(map(str, sizes)) + "]"


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def table(rows: Iterable[Sequence[object]], head: Sequence[str] | None = None, right: Iterable[int] = ()) -> list[str]:
    """Rows as lines of aligned columns, two spaces between them. ``right`` are the columns aligned to the right.

    Cells are made safe for a terminal. No cell is cut: a name that is cut cannot be searched for.
    """
    cells = [[printable(str(cell)) for cell in row] for row in ([head] if head else []) + list(rows)]
    if not cells:
        return []
    columns = max(len(row) for row in cells)
    widths = [max((len(row[i]) for row in cells if i < len(row)), default=0) for i in range(columns)]
    to_right = set(right)
    return [
        "  ".join(
            cell.rjust(width) if i in to_right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in cells
    ]


Advance = Callable[..., None]


class Out:
    """The two streams of one command line. ``start`` sets it up anew; streams are looked up when they are written."""

    def __init__(self) -> None:
        self.command = ""
        self.json = False
        self.words: list[str] = []
        self._kept: dict[str, object] = {}
        self._documented = False
        self._bar: Bar | None = None

    def start(self, command: str, json: bool, words: Sequence[str] = ()) -> None:
        """Called once by ``main`` for each command line, whose words are ``words``."""
        self.command, self.json, self.words = command, json, list(words)
        self._kept, self._documented, self._bar = {}, False, None
        for stream in (sys.stdout, sys.stderr):
            # A name that the terminal's encoding lacks is shown escaped. It must not end the run.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    def data(self, *lines: str) -> None:
        """Lines of the answer, to stdout. Silent with ``--json``, where the document is the answer."""
        if not self.json:
            self._write(sys.stdout, lines)

    def say(self, *lines: str) -> None:
        """Lines of messages, to stderr. A bar that is on the screen is taken away first."""
        if self._bar is not None:
            self._bar.hide()
        self._write(sys.stderr, lines)

    def warn(self, *lines: str) -> None:
        """As ``say``, the first line marked ``warning:``."""
        self.say(*(("warning: " if i == 0 else "") + line for i, line in enumerate(lines)))

    def keep(self, **keys: object) -> None:
        """Keys that the document of ``--json`` holds even when an error ends the command before ``document``."""
        self._kept.update(keys)

    def document(self, *, ok: bool, **keys: object) -> None:
        """Print the one document of ``--json``, once; nothing without ``--json``. Values must be JSON already."""
        self._document(ok, [], keys)

    def _document(self, ok: bool, errors: Sequence[ArtifactkitError], keys: dict[str, object]) -> None:
        if self.json and not self._documented:
            self.whole(self.document_text(ok, errors, keys))

    def document_text(self, ok: bool, errors: Sequence[ArtifactkitError], keys: Mapping[str, object]) -> str:
        """The document of ``--json`` as text, for a command that writes it to a file."""
        import json

        head: dict[str, object] = {
            "schema": f"artifactkit/{self.command.replace(' ', '-') or 'cli'}/{SCHEMA_VERSION}",
            "command": self.command,
            "ok": ok,
            "errors": [error.to_json() for error in errors],
        }
        return json.dumps(head | self._kept | dict(keys), indent=2, ensure_ascii=True, allow_nan=False)

    def whole(self, *lines: str) -> None:
        """Lines to stdout that are the whole answer, in whatever form was asked for; no document follows them."""
        self._documented = True
        self._write(sys.stdout, lines)

    def error(self, error: ArtifactkitError) -> None:
        """Render one error: ``error:`` and its lines to stderr, and with ``--json`` the document too."""
        first, *rest = error.lines()
        self.say("error: " + first, *rest)
        self._document(False, [error], {})

    @property
    def terminal(self) -> bool:
        """Whether messages are read by a person at a terminal that can redraw a line."""
        return _is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"

    @property
    def color(self) -> bool:
        """Whether stderr may be coloured. No colour carries meaning alone, so nothing is lost without."""
        return self.terminal and not os.environ.get("NO_COLOR")

    @contextmanager
    def progress(self, what: str, nbytes: int, tensors: int | None = None) -> Iterator[Advance]:
        """A bar of bytes, tensors, rate and time left, on a terminal only.

        Yields ``advance(nbytes, tensors=0)``, to be called with what was done since the last call. It is cheap.
        """
        if not self.terminal or self.json:
            yield _nowhere
            return
        self._bar = bar = Bar(what, nbytes, tensors, self.color)
        try:
            yield bar.advance
        finally:
            bar.hide()
            self._bar = None

    def flush(self) -> None:
        """Push out what is buffered, so that a full disk or a closed pipe is seen while it can still be told."""
        self._write(sys.stdout, ())
        self._write(sys.stderr, ())

    def abandon(self) -> None:
        """Whoever read stdout is gone: what is buffered goes nowhere, and Python's own last flush says nothing."""
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:
                os.dup2(null, stream.fileno())
            except (OSError, ValueError, AttributeError):
                pass
        os.close(null)

    def _write(self, stream: TextIO | None, lines: Iterable[str]) -> None:
        if stream is None:  # closed by the caller (`>&-`)
            return
        try:
            for line in lines:
                stream.write(line + "\n")
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            if stream is sys.stderr:
                return
            raise OutputError(f"cannot write to standard output: {error.strerror}") from error


class Bar:
    """A progress bar. rich is imported when it is first drawn, which short jobs never come to."""

    def __init__(self, what: str, nbytes: int, tensors: int | None, color: bool) -> None:
        self.what, self.nbytes, self.tensors, self.color = what, nbytes, tensors, color
        self.done, self.tensors_done = 0, 0
        self._next = time.monotonic() + BAR_AFTER
        self._began = time.monotonic()
        self._live: Progress | None = None
        self._task: TaskID | None = None

    def advance(self, nbytes: int, tensors: int = 0) -> None:
        """Count what was done since the last call, and draw if it is time to."""
        self.done += nbytes
        self.tensors_done += tensors
        now = time.monotonic()
        if now >= self._next:
            self._next = now + BAR_EVERY
            self._draw()

    def _draw(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            columns: list[Any] = [
                TextColumn("{task.description}"), BarColumn(), DownloadColumn(),
                TextColumn("{task.fields[tensors]}"), TransferSpeedColumn(), TimeRemainingColumn(),
            ]  # fmt: skip
            console = Console(file=sys.stderr, no_color=not self.color, highlight=False)
            # transient: what stays on the screen is the report, not the bar. No thread draws behind our back.
            self._live = Progress(*columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False)
            self._live.start()
            self._task = self._live.add_task(printable(self.what), total=self.nbytes or None, tensors="")
        if self._task is not None:
            tensors = f"{self.tensors_done:,}/{self.tensors:,} tensors" if self.tensors else ""
            self._live.update(self._task, completed=self.done, tensors=tensors, refresh=True)

    def hide(self) -> None:
        """Take the bar off the screen; the next ``advance`` that draws brings it back."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def _nowhere(nbytes: int, tensors: int = 0) -> None:
    """Progress that nobody watches."""


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


out = Out()
