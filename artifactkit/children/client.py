"""The side that asks: a child process, asked within a time limit, and gone with whoever started it."""

from __future__ import annotations

import json
import os
import select
import signal
import site
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from ..errors import ArtifactkitError, DeviceAbsent, MissingExtra, RouteRefused, RunFailed, UsageError
from . import FRAME, JSON_LIMIT, PAYLOAD_LIMIT, Json

KEPT = 64  # lines of what the child said
SHOWN = 4
READ = 1 << 20

# Where a frame's payload of so many bytes goes: a place of exactly that size.
Place = Callable[[Json, int], memoryview]
# What ``server.Failed.kind`` becomes here.
KINDS: dict[str, type[ArtifactkitError]] = {
    "run": RunFailed, "device": DeviceAbsent, "missing": MissingExtra, "usage": UsageError, "refused": RouteRefused,
}  # fmt: skip


class Child:
    """One child process that runs ``script``, by its path. ``name`` is the runtime's, ``file`` is what errors name.

    Variables of the environment that begin with one of ``unset`` are kept from it: what they say to the runtime would
    change what is done, unseen. Any failure but one that it answers ends the process, and every later request fails.
    """

    def __init__(self, script: str, name: str, file: str, unset: tuple[str, ...] = ()) -> None:
        self.name, self.file = name, file
        self.said: deque[str] = deque(maxlen=KEPT)
        self._rest = b""
        self._pending = memoryview(b"")  # what is left to be sent of a request
        # Linux kills the child with the *thread* that started it. Only the main thread lasts as long as the process.
        tied = "tied" if threading.current_thread() is threading.main_thread() else "loose"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", *unset))}
        # Nothing of the working directory can be imported; packages of the user's own only where we could import them.
        apart = ["-P", "-E", "-B", *([] if site.ENABLE_USER_SITE else ["-s"])]
        try:
            self.process = subprocess.Popen(
                [sys.executable, *apart, script, str(os.getpid()), tied],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=os.sep,
                start_new_session=True,  # Ctrl-C is for us: a child stopped by it would only say that it died
            )  # fmt: skip
        except OSError as error:
            raise RunFailed(f"cannot start a process for {name}: {error.strerror}", file=file) from error
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._in, self._out, self._err = (
            p.fileno() for p in (self.process.stdin, self.process.stdout, self.process.stderr)
        )
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)
        self._end = weakref.finalize(self, _end, self.process)

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        """Ends the process, if it is there; twice does no harm."""
        self._end()

    def ask(
        self, request: Json, seconds: float, payload: bytes | memoryview = b"", place: Place | None = None
    ) -> tuple[Json, bytes]:
        """The last frame of the answer. ``seconds``: until it is there. ``place`` says where payloads before it go.

        Raises RunFailed, or the error that the child's answer is. The process goes on only after such an answer.
        """
        if not self._end.alive:
            raise RunFailed("the session has ended", file=self.file)
        try:
            head, got = self._ask(request, _Limit(seconds, str(request["op"])), payload, place)
        except BaseException:  # half an answer may be under way, also when we are interrupted
            self.close()
            raise
        if "error" in head:
            raise self._error(head)
        return head, got

    def _ask(
        self, request: Json, limit: _Limit, payload: bytes | memoryview, place: Place | None
    ) -> tuple[Json, bytes]:
        asked = json.dumps(request).encode()
        nbytes = memoryview(payload).nbytes
        self._pending = memoryview(b"".join((FRAME.pack(len(asked), nbytes), asked, payload)))
        while True:
            head_bytes, nbytes = FRAME.unpack(self._take(FRAME.size, limit))
            if head_bytes > JSON_LIMIT:
                raise RunFailed("the child answers with too much", file=self.file, found=f"{head_bytes} bytes")
            head: Json = json.loads(self._take(head_bytes, limit))
            last = "error" in head or head.get("done")
            if place and nbytes and not last:
                self._fill(place(head, nbytes), limit)
                got = b""
            elif nbytes <= PAYLOAD_LIMIT:
                got = self._take(nbytes, limit)
            else:
                raise RunFailed("the child answers with too much", file=self.file, found=f"{nbytes} bytes")
            if last:
                self._drain()
                return head, got

    def _take(self, count: int, limit: _Limit) -> bytes:
        buffer = bytearray(count)
        self._fill(memoryview(buffer), limit)
        return bytes(buffer)

    def _fill(self, view: memoryview, limit: _Limit) -> None:
        """Reads ``view`` full, sending what is left of the request and keeping what is said meanwhile."""
        while view.nbytes:
            if self._out in self._poll(limit):
                try:
                    count = os.readv(self._out, [view[:READ]])
                except BlockingIOError:
                    continue
                if not count:
                    raise self._died()
                view = view[count:]

    def _poll(self, limit: _Limit) -> set[int]:
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        poll.register(self._err, select.POLLIN)
        if self._pending:
            poll.register(self._in, select.POLLOUT)
        left = limit.end - time.monotonic()
        events = poll.poll(max(0.0, left * 1000)) if left > 0 else []
        if not events:
            self._drain()
            raise RunFailed(
                f"{self.name} did not {limit.what} within {limit.seconds:g} s", file=self.file, hint=self._hint()
            )
        ready = {fd for fd, _ in events}
        if self._err in ready:
            self._drain()
        if self._in in ready:
            try:
                self._pending = self._pending[os.write(self._in, self._pending[:READ]) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                raise self._died() from None
        return ready

    def _drain(self) -> None:
        """What the child has said up to now, by line."""
        while True:
            try:
                said = os.read(self._err, 65536)
            except BlockingIOError:
                return
            if not said:
                return
            *lines, self._rest = (self._rest + said).split(b"\n")
            self._rest = self._rest[-1000:]
            self.said.extend(line.decode("utf-8", "replace") for line in lines if line.strip())

    def last_words(self) -> list[str]:
        """The last lines that the child said."""
        lines = [*self.said, *([self._rest.decode("utf-8", "replace")] if self._rest.strip() else [])]
        return lines[-SHOWN:]

    def _hint(self) -> str | None:
        words = self.last_words()
        return f"{self.name} said: {' | '.join(words)}" if words else None

    def _died(self) -> RunFailed:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        self._drain()
        how = "it closed its output" if code is None else f"exit {code}" if code >= 0 else _signal(-code)
        return RunFailed(f"{self.name} died", file=self.file, found=how, hint=self._hint())

    def _error(self, head: Json) -> ArtifactkitError:
        made = KINDS.get(str(head.get("kind")), RunFailed)
        named = {key: _text(head.get(key)) for key in ("tensor", "expected", "found", "hint")}
        if named["hint"] is None and made is RunFailed:
            named["hint"] = self._hint()
        return made(str(head["error"]), file=self.file, **named)  # type: ignore[arg-type]


class _Limit:
    """Until when an answer has to be there."""

    def __init__(self, seconds: float, op: str) -> None:
        self.seconds, self.end = seconds, time.monotonic() + seconds
        self.what = {"load": "load the file", "run": "run the inputs", "trace": "trace the model"}.get(op, "answer")


def _text(value: object) -> str | None:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills it, stopped or not, and takes its exit code, so that no zombie stays."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()
