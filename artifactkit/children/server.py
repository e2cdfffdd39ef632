"""The side that answers. Runs in the child process; imports the standard library only."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import FRAME, PAYLOAD_LIMIT, Json

# What is answered to a request and its payload: frames, the last one with ``done``.
Answer = Callable[[Json, bytes], Iterator[tuple[Json, Any]]]


class Failed(Exception):
    """What a request cannot be answered with. ``kind`` is one of ``client.KINDS`` and says which error it becomes."""

    def __init__(self, what: str, kind: str = "run", **more: object) -> None:
        super().__init__(what)
        self.answer: Json = {"error": what, "kind": kind, **more}


class Server:
    """Reads requests beside the work, so that the end of the input is seen in the middle of a call."""

    def __init__(self, answer: Answer, out: int) -> None:
        self.answer, self.out = answer, out
        self.requests: queue.SimpleQueue[tuple[Json, bytes]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with open(0, "rb", closefd=False) as given:
            while head := given.read(FRAME.size):
                if len(head) < FRAME.size:
                    break
                sizes = FRAME.unpack(head)
                if max(sizes) > PAYLOAD_LIMIT:
                    break
                asked, payload = (given.read(size) for size in sizes)
                if len(asked) + len(payload) < sum(sizes):
                    break
                self.requests.put((json.loads(asked), payload))
        # The parent is gone, or has let go of us. A native call cannot be asked to stop.
        os.kill(os.getpid(), signal.SIGKILL)

    def send(self, head: Json, payload: Any = b"") -> None:
        asked = json.dumps(head).encode()
        view = memoryview(payload).cast("B") if len(payload) else memoryview(b"")
        self._write(memoryview(FRAME.pack(len(asked), view.nbytes) + asked))
        self._write(view)

    def _write(self, view: memoryview) -> None:
        while view.nbytes:
            view = view[os.write(self.out, view) :]

    def serve(self) -> None:
        while True:
            asked, payload = self.requests.get()
            try:
                for head, more in self.answer(asked, payload):
                    self.send(head, more)
            except Failed as failed:
                self.send(failed.answer)
            except MemoryError:
                self.send({"error": "there is not enough memory", "kind": "run"})


def bounded() -> None:
    """No core file of a process as large as a model, and no more memory than the machine has, whatever a file says."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def tied_to(parent: int) -> None:
    """Dies with the parent (Linux), even when stopped. Elsewhere the end of stdin does it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it went before we said so
        os.kill(os.getpid(), signal.SIGKILL)


def main(answer: Answer) -> None:
    """What a child's script calls: bounds itself and serves until the parent lets go. Never returns."""
    parent, tied = sys.argv[1:3]
    if tied == "tied" and sys.platform == "linux":
        tied_to(int(parent))
    bounded()
    out = os.dup(1)
    os.dup2(2, 1)  # what native code prints must not stand among the frames
    Server(answer, out).serve()
