"""Nothing half-written under the final name, nothing that was there harmed.

Output is written under a recognisable name in the destination's own folder (a rename is atomic within one file system
only), fsynced, and renamed as one. The staged file or folder is held under an advisory lock for as long as the process
lives, so that the next run can tell a leftover of a killed process from the work of one that is still running.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from .errors import DestinationExists, OutputError, UsageError

MARK = ".artifactkit-"  # .NAME.artifactkit-new-3f9a12bc.tmp: new is staged work, old is what --force is replacing
NEW, OLD = "new", "old"
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2  # linux/fs.h


def failed(error: OSError, path: str) -> OutputError:
    """The OutputError for an OSError of the destination."""
    hint = {
        errno.ENOSPC: "free some space, or write to another file system",
        errno.EDQUOT: "the disk quota is used up",
        errno.EACCES: "you may not write there",
        errno.EPERM: "you may not write there",
        errno.EROFS: "the file system is read-only",
        errno.ENAMETOOLONG: "choose a shorter name",
        errno.EFBIG: "the file system, or a limit (ulimit -f), does not allow a file of this size",
    }.get(error.errno or 0)
    return OutputError(f"cannot write: {error.strerror or error}", file=path, hint=hint)


def _rename2(old: str, new: str, flags: int) -> bool:
    """``renameat2``; False where the system or the file system does not have it. OSError passes through."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameat2", None)
    if call is None:
        return False
    if call(-100, os.fsencode(old), -100, os.fsencode(new), flags) == 0:  # -100: AT_FDCWD
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), new)


def _fsync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(path: str) -> int | None:
    """A descriptor that holds the exclusive lock of ``path`` (file or folder), or None if another process has it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove(path: str) -> None:
    """Remove a file or folder of ours; links are removed, never followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


class Stage:
    """Work staged beside ``destination``: a file, or with ``folder`` a folder of files.

    ``with Stage(...) as stage``: write to ``stage.path(name)``, then ``stage.commit()``. Left without commit, for
    whatever reason, it removes what it made. Raises DestinationExists, UsageError or OutputError, all before anything
    is written.
    """

    def __init__(self, destination: str, *, folder: bool, force: bool, inputs: Iterable[str] = ()) -> None:
        self.destination = os.path.abspath(destination)
        self.parent, self.name = os.path.split(self.destination)
        self.given = destination
        self.folder = folder
        self.force = force
        self.made: str | None = None
        self._lock_fd: int | None = None
        self._check(list(inputs))

    # -- before anything is written

    def _check(self, inputs: list[str]) -> None:
        if not self.name:
            raise UsageError("the destination has no name", file=self.given)
        if not os.path.isdir(self.parent):
            raise OutputError("the destination's folder is not there", file=self.given, hint=f"mkdir -p {self.parent}")
        self._check_inputs(inputs)
        self._recover()
        try:
            there = os.lstat(self.destination)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(error, self.given) from error
        if not self.force:
            raise DestinationExists(
                "the destination exists", file=self.given, hint="give --force to replace it, or another name"
            )
        if stat.S_ISDIR(there.st_mode):
            if not self.folder:
                raise UsageError(
                    "the destination is a folder, the output one file",
                    file=self.given,
                    hint=f"give a name in it: {os.path.join(self.given, 'model.safetensors')}",
                )
            self._check_replaceable()
        elif stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode):
            if self.folder:
                raise UsageError(
                    "the destination is a file, the output a folder", file=self.given, hint="give another name"
                )
        else:
            raise UsageError("the destination is no regular file", file=self.given, hint="give another name")

    def _check_inputs(self, inputs: list[str]) -> None:
        """Refuse to write over, around or (for folders) into what is being read."""
        target = os.path.realpath(self.destination)
        for path in inputs:
            real = os.path.realpath(path)
            with contextlib.suppress(OSError):
                if os.path.samefile(path, self.destination):
                    raise UsageError("the destination is the source itself", file=self.given, hint="give another name")
            if real.startswith(target + os.sep):
                raise UsageError("the source lies inside the destination", file=self.given, hint="give another name")
            if self.folder and os.path.isdir(real) and target.startswith(real + os.sep):
                raise UsageError(
                    "the destination lies inside the source", file=self.given, hint="give a folder beside it"
                )

    def _check_replaceable(self) -> None:
        """``--force`` replaces a folder of files, never a tree: a mistyped name must not cost a home folder."""
        with os.scandir(self.destination) as entries:
            strange = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) or e.name.startswith(".git"))
        if strange:
            raise UsageError(
                "--force replaces a folder of model files only; this one holds other folders",
                file=self.given,
                found=", ".join(strange[:5]),
                hint="remove it yourself, or give another name",
            )
        if os.path.samefile(self.destination, os.getcwd()) or os.path.ismount(self.destination):
            raise UsageError(
                "--force does not replace the current folder or a mount point",
                file=self.given,
                hint="give another name",
            )

    def _recover(self) -> None:
        """Clean up after a killed run for the same destination: put back what it moved aside, remove what it staged."""
        prefix = f".{self.name}{MARK}"
        try:
            names = sorted(n for n in os.listdir(self.parent) if n.startswith(prefix) and n.endswith(".tmp"))
        except OSError as error:
            raise failed(error, self.parent) from error
        for name in names:
            path = os.path.join(self.parent, name)
            try:
                fd = _lock(path)
            except OSError:
                continue
            if fd is None:
                continue  # another process is at work on it
            try:
                if name.startswith(prefix + OLD) and not os.path.lexists(self.destination):
                    os.rename(path, self.destination)
                else:
                    _remove(path)
            finally:
                os.close(fd)

    # -- the work

    def __enter__(self) -> Self:
        made = os.path.join(self.parent, f".{self.name}{MARK}{NEW}-{secrets.token_hex(4)}.tmp")
        try:
            if self.folder:
                os.mkdir(made, 0o777)
                self.made = made
            else:
                os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666))
                self.made = made
            self._lock_fd = _lock(made)
        except OSError as error:
            self._abandon()
            raise failed(error, self.given) from error
        return self

    def path(self, name: str = "") -> str:
        """Where to write the output file ``name`` (relative, of a folder) or the output itself."""
        assert self.made is not None
        return os.path.join(self.made, name) if self.folder else self.made

    def final(self, name: str = "") -> str:
        """Where that file will be."""
        return os.path.join(self.given, name) if self.folder else self.given

    def commit(self) -> None:
        """Make it durable and give it its name. OutputError on failure, and then nothing is changed."""
        assert self.made is not None
        try:
            self._sync()
            if self.force and os.path.lexists(self.destination):
                self._replace()
            else:
                self._claim()
            self.made = None
            _fsync_folder(self.parent)
        except FileExistsError as error:
            raise DestinationExists(
                "the destination appeared while the work was going on",
                file=self.given,
                hint="give --force to replace it, or another name",
            ) from error
        except OSError as error:
            raise failed(error, self.given) from error

    def _sync(self) -> None:
        assert self.made is not None
        paths = [self.made]
        if self.folder:
            paths = [os.path.join(root, n) for root, _, names in os.walk(self.made) for n in sorted(names)]
        for path in paths:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        if self.folder:
            _fsync_folder(self.made)

    def _claim(self) -> None:
        """Take the final name without replacing anything that appeared meanwhile."""
        assert self.made is not None
        if _rename2(self.made, self.destination, RENAME_NOREPLACE):
            return
        if self.folder:
            os.mkdir(self.destination)  # the claim: fails if somebody was first; rename replaces an empty folder
            os.rename(self.made, self.destination)
        else:
            os.link(self.made, self.destination)
            os.unlink(self.made)

    def _replace(self) -> None:
        assert self.made is not None
        if not self.folder:
            os.replace(self.made, self.destination)
            return
        if os.path.islink(self.destination):
            raise OutputError(
                "the destination is a link to a folder", file=self.given, hint="remove the link, or give another name"
            )
        old = self.made.replace(f"{MARK}{NEW}-", f"{MARK}{OLD}-")
        if _rename2(self.made, self.destination, RENAME_EXCHANGE):
            os.rename(self.made, old)
        else:
            os.rename(self.destination, old)
            try:
                os.rename(self.made, self.destination)
            except OSError:
                os.rename(old, self.destination)
                raise
        _fsync_folder(self.parent)
        _remove(old)

    def _abandon(self) -> None:
        made, self.made = self.made, None
        if made is not None:
            _remove(made)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()
