"""Where whole files from elsewhere are kept: ``$XDG_CACHE_HOME/artifactkit``, by their sha256.

blobs/<sha256>           content; hashed again each time before it is used
versions/<key>           the sha256 that a URL had at one version (ETag), so that it is not fetched twice
partial/<key>            what has come so far of a file, to go on from
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable

from ..errors import Corrupt, LimitExceeded, OutputError
from ..files import File, buffer
from ..filesystem import try_lock
from .store import Cut, Store, pause

BLOCK = 256 << 10
_SHA256 = re.compile(r"[0-9a-f]{64}")
Advance = Callable[[int], None]  # told of bytes as they come; may raise to end the work


def nobody(n: int) -> None:
    """Progress that nobody watches."""


def root() -> str:
    """The folder of the cache, made when it is first written to."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification has relative ones ignored
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "artifactkit")


def blob(sha256: str) -> str:
    """Where content of this digest is, or would be."""
    return os.path.join(root(), "blobs", sha256)


def verified(sha256: str, advance: Advance = nobody) -> bool:
    """Whether content of this digest is in the cache, by hashing it; what is there and is not it is thrown away."""
    path = blob(sha256)
    if not os.path.isfile(path):
        return False
    if _sha256(path, advance) == sha256:
        return True
    with contextlib.suppress(OSError):
        os.unlink(path)
    return False


def _sha256(path: str, advance: Advance) -> str:
    file = File(path)
    digest, space = hashlib.sha256(), buffer(min(BLOCK, file.size))
    with contextlib.closing(file):
        for at in range(0, file.size, BLOCK):
            block = space[: min(BLOCK, file.size - at)]
            file.read_into(at, block)
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def remembered(url: str, version: str) -> str | None:
    """The sha256 that the content of ``url`` had at ``version``, if it was fetched before."""
    if not version:
        return None
    try:
        with open(_version_path(url, version), encoding="ascii") as file:
            found = file.read(100).strip()
    except (OSError, ValueError):
        return None
    return found if _SHA256.fullmatch(found) else None


def _version_path(url: str, version: str) -> str:
    return os.path.join(root(), "versions", hashlib.sha256(f"{url}\0{version}".encode()).hexdigest())


def fetch(store: Store, url: str, sha256: str | None, advance: Advance = nobody) -> str:
    """Have the content of ``store`` in the cache; returns its sha256.

    What came before an interruption is gone on from. Corrupt when it is not ``sha256``, and then nothing is kept.
    Raises OutputError when the cache cannot be written, and what reading the store raises.
    """
    version = store.version
    known = sha256 or remembered(url, version)
    if known is not None and verified(known, advance):
        return known
    resumable = sha256 is not None or bool(version)
    key = hashlib.sha256(f"{url}\0{sha256 or version}".encode()).hexdigest()
    try:
        for name in ("blobs", "partial", "versions"):
            os.makedirs(os.path.join(root(), name), mode=0o700, exist_ok=True)
        path = os.path.join(root(), "partial", key)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not try_lock(fd):  # another run fetches the same: beside it, and not into it
            os.close(fd)
            path, resumable = f"{path}.{secrets.token_hex(4)}", False
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _not_stored(error, store.shown) from error
    with os.fdopen(fd, "r+b", buffering=0) as file:
        partial = _Partial(store, file.fileno(), advance)
        try:
            found = partial.run(resumable)
            _check(store, partial.at, sha256, found)
            os.fsync(file.fileno())
            os.replace(path, blob(found))
            if version:
                with open(_version_path(url, version), "w", encoding="ascii") as note:
                    note.write(found)
        except OSError as error:
            raise _not_stored(error, store.shown) from error
        except Corrupt:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            if not resumable:
                with contextlib.suppress(OSError):
                    os.unlink(path)
    return found


class _Partial:
    """What has come so far of one file."""

    def __init__(self, store: Store, fd: int, advance: Advance) -> None:
        self.store, self.fd, self.advance = store, fd, advance
        self.digest = hashlib.sha256()
        self.at = 0

    def run(self, resumable: bool) -> str:
        """Fetch what is missing; returns the sha256 of all."""
        self._take_up(resumable)
        tries = 0
        while self.store.size is None or self.at < self.store.size or not self.at:
            before = self.at
            try:
                self._stream()
                break
            except Cut as cut:
                tries = (
                    0 if self.at > before else tries
                )  # a connection that breaks again and again gets on all the same
                pause(cut, tries)
                tries += 1
        return self.digest.hexdigest()

    def _take_up(self, resumable: bool) -> None:
        size = os.fstat(self.fd).st_size
        if not (resumable and self.store.has_ranges and self.store.size is not None and size <= self.store.size):
            os.ftruncate(self.fd, 0)
            return
        while self.at < size:
            block = os.pread(self.fd, min(BLOCK, size - self.at), self.at)
            if not block:
                break
            self._took(block)

    def _stream(self) -> None:
        if not self.store.has_ranges and self.at:
            self.advance(-self.at)
            self.digest, self.at = hashlib.sha256(), 0
            os.ftruncate(self.fd, 0)
        for block in self.store.stream(self.at):
            if self.store.size is not None and self.at + len(block) > self.store.size:
                raise Corrupt(
                    "more comes than was announced", file=self.store.shown, expected=f"{self.store.size} bytes"
                )
            if self.at + len(block) > MAX_SIZE:
                raise LimitExceeded("a file without end", file=self.store.shown, expected=f"at most {MAX_SIZE} bytes")
            view = memoryview(block)
            while view:
                done = os.pwrite(self.fd, view, self.at + len(block) - len(view))
                view = view[done:]
            self._took(block)
        if self.store.size is not None and self.at < self.store.size:
            raise Cut(
                Corrupt(
                    "the answer ends too early, each time", file=self.store.shown,
                    expected=f"{self.store.size} bytes", found=f"{self.at} bytes", hint="run again to go on",
                )
            )  # fmt: skip

    def _took(self, block: bytes) -> None:
        self.digest.update(block)
        self.at += len(block)
        self.advance(len(block))


MAX_SIZE = 1 << 44  # bytes: 17 TB, where a server does not say how many there are


def _check(store: Store, size: int, sha256: str | None, found: str) -> None:
    if sha256 is not None and found != sha256:
        raise Corrupt(
            "the file is not what its digest says", file=store.shown, expected=f"sha256 {sha256}",
            found=f"sha256 {found}, {size} bytes", hint="nothing was kept; look at who changed what is there",
        )  # fmt: skip


def _not_stored(error: OSError, shown: str) -> OutputError:
    return OutputError(
        f"cannot write to the cache: {error.strerror or error}", file=shown, found=root(),
        hint="free some space, or set XDG_CACHE_HOME to a folder with room",
    )  # fmt: skip
