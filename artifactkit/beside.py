"""A small file that is about an artifact and stands beside it: it comes with the artifact, and goes with it.

Two names cannot be taken at once. So the order is: the new file is written under a name that says what it waits for
(``due``), the old one is moved aside (``was``), the artifact takes its name, the new file takes its own, the old one is
removed. Whoever finds ``due`` or ``was`` later, the next line of the same process or the next run after a kill, can
tell from the artifact's identity whether it took its name, and goes on or goes back. Seen from outside there is never
an artifact with the file of another one: between the two renames it has none. Of two runs at once one waits for the
other before the first of these renames: they are made under the lock of the folder that they happen in.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat

from .errors import DestinationExists, OutputError, UsageError
from .filesystem import NAME_MAX, failed, fsync, is_at, lock, resolved, try_lock

DUE, WAS = "due", "was"
LEFTOVER = re.compile(r"\.artifactkit-(due|was)-([0-9a-f]{8})-([0-9a-f]{16})\.tmp")


def identity(path: str) -> str | None:
    """16 hexadecimal digits that a file or folder keeps when it is renamed, and no other has; None where none is.

    Inode numbers are used again, so the time of the last change of its content is in it.
    """
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return hashlib.sha256(f"{info.st_dev} {info.st_ino} {info.st_mtime_ns}".encode("ascii")).hexdigest()[:16]


def path_of(artifact: str, suffix: str) -> str:
    """The file beside ``artifact``: named as that was given, unless that is no name (``.``, ``out/..``)."""
    path = artifact.rstrip(os.sep)
    if os.path.basename(path) in ("", os.curdir, os.pardir):
        path = os.path.join(*resolved(artifact))
    return path + suffix


class Beside:
    """The file ``destination + suffix``. ``stem`` is how the names begin under which it is staged, in ``parent``."""

    def __init__(self, parent: str, stem: str, destination: str, suffix: str, given: str) -> None:
        self.parent, self.stem = parent, stem
        self.destination = destination
        self.suffix = suffix
        self.path = destination + suffix
        self.given = path_of(given, suffix)
        self._due: str | None = None
        self._was: str | None = None
        self._identity = ""

    def check(self, force: bool) -> None:
        """Raise what is in the way, before any work: a file there without ``force``, something that is no file."""
        if len(os.fsencode(os.path.basename(self.path))) > NAME_MAX:
            raise OutputError(
                "the destination's name is too long for the statement beside it",
                file=self.given,
                expected=f"at most {NAME_MAX} bytes",
                found=len(os.fsencode(os.path.basename(self.path))),
                hint="choose a shorter name, or --no-statement",
            )
        try:
            there = os.lstat(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(error, self.given) from error
        if not (stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode)):
            raise UsageError(
                "what stands where the statement goes is no regular file", file=self.given, hint="give another name"
            )
        if not force:
            raise DestinationExists(
                "a statement is there, of an artifact that is not",
                file=self.given,
                hint="remove it, as its artifact was, or give --force to replace it",
            )

    def _name(self, kind: str, token: str) -> str:
        return os.path.join(self.parent, f"{self.stem}.artifactkit-{kind}-{token}-{self._identity}.tmp")

    def prepare(self, made: str, token: str, data: bytes | None, force: bool) -> None:
        """Write ``data`` under a staged name and move what is there aside. ``made`` is the artifact, staged and whole.

        With None no new file is written, and the old one goes when the artifact is replaced. FileExistsError when one
        appeared since ``check``, and there is no ``force``.
        """
        if not force and os.path.lexists(self.path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)
        self._identity = identity(made) or ""
        if data is not None:
            self._due = self._name(DUE, token)
            while not self._write(self._due, data):
                pass
        if os.path.lexists(self.path):
            self._was = self._name(WAS, token)
            os.rename(self.path, self._was)

    def _write(self, path: str, data: bytes) -> bool:
        """False when another run took it for a leftover between its making and its locking, and removed it."""
        fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            if not (try_lock(fd) and is_at(fd, path)):
                return False
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
            return True
        finally:
            os.close(fd)

    def settle(self) -> None:
        """Go on where the artifact has taken its name, else go back. May be called again, whatever came between."""
        _settle(self._identity, self.destination, self.path, self._due, self._was)
        self._due = self._was = None


def _settle(wanted: str, destination: str, path: str, due: str | None, was: str | None) -> None:
    if due is None and was is None:
        return
    taken = bool(wanted) and identity(destination) == wanted
    if due is not None and os.path.lexists(due):
        if taken:
            os.replace(due, path)
        else:
            os.unlink(due)
    if was is not None and os.path.lexists(was):
        if taken or os.path.lexists(path):
            os.unlink(was)
        else:
            os.rename(was, path)


def recover(parent: str, stem: str, destination: str, suffix: str) -> None:
    """Settle what a killed run left for this destination. OSError passes through."""
    for (token, wanted), kinds in _left(parent, stem).items():
        names = {kind: os.path.join(parent, f"{stem}.artifactkit-{kind}-{token}-{wanted}.tmp") for kind in kinds}
        held = _hold(destination, wanted, os.path.join(parent, f"{stem}.artifactkit-new-{token}.tmp"))
        if held is None:
            continue  # another process is at work on it
        try:
            with contextlib.suppress(FileNotFoundError):  # it was settled while we looked
                _settle(wanted, destination, destination + suffix, names.get(DUE), names.get(WAS))
                fsync(parent)
        finally:
            for fd in held:
                os.close(fd)


def _hold(destination: str, wanted: str, staged: str) -> list[int] | None:
    """Locks of the artifact that the work is about, under whichever name it has; None when another has one."""
    held: list[int] = []
    for path in (staged, destination):
        if path == destination and (identity(destination) != wanted or _same(staged, destination)):
            continue  # not the one, or locked already: where a name is taken by a hard link, both are there
        try:
            fd = lock(path)
        except OSError:
            continue
        if fd is None:
            for other in held:
                os.close(other)
            return None
        held.append(fd)
    return held


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _left(parent: str, stem: str) -> dict[tuple[str, str], list[str]]:
    """What is left of killed runs: {(token, identity): kinds}."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in sorted(os.listdir(parent)):
        match = LEFTOVER.fullmatch(name[len(stem) :]) if name.startswith(stem) else None
        if match is not None:
            found.setdefault((match[2], match[3]), []).append(match[1])
    return found


def pending(parent: str, stem: str, destination: str) -> str | None:
    """The file that a killed run was about to put beside the artifact at ``destination``, if there is one."""
    here = identity(destination)
    try:
        left = _left(parent, stem)
    except OSError:
        return None
    for (token, wanted), kinds in left.items():
        if wanted == here and DUE in kinds:
            return os.path.join(parent, f"{stem}.artifactkit-{DUE}-{token}-{wanted}.tmp")
    return None
