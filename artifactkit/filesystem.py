"""What the file system does for us: renaming without replacing, exchanging names, locks, making durable, removing.

Each falls back on what every POSIX system has. Errors are OSError; ``failed`` makes an OutputError of one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator

from .errors import OutputError

NAME_MAX = 255  # limits.h
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2  # linux/fs.h
# What file systems and sandboxes answer to a call that they do not have; the plain way is tried then.
NOT_HERE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)


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


def rename2(old: str, new: str, flags: int) -> bool:
    """``renameat2``; False where the system or the file system does not have it. OSError passes through."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameat2", None)
    if call is None:
        return False
    if call(-100, os.fsencode(old), -100, os.fsencode(new), flags) == 0:  # -100: AT_FDCWD
        return True
    code = ctypes.get_errno()
    if code in NOT_HERE:
        return False
    raise OSError(code, os.strerror(code), new)


def fsync(path: str) -> None:
    """Make a file or a folder durable, where the file system has a way to."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in NOT_HERE:
            raise
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the exclusive lock of an open file or folder; False if another process has it.

    Where the file system has no locks, true: there it must be enough that no two runs draw the same name.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def lock(path: str) -> int | None:
    """A descriptor that holds the lock of ``path`` (file or folder, not a link), or None if another process has it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if try_lock(fd):
        return fd
    os.close(fd)
    return None


@contextlib.contextmanager
def locked(path: str) -> Iterator[int]:
    """Hold the lock of the file or folder at ``path``, waiting for whoever has it; its descriptor. OSError passes.

    A file that was replaced while we waited is another file: its lock is taken anew.
    """
    while True:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):  # no locks in this file system
                fcntl.flock(fd, fcntl.LOCK_EX)
            if is_at(fd, path):
                yield fd
                return
        finally:
            os.close(fd)


def is_at(fd: int, path: str) -> bool:
    """Whether the open file or folder is (still) the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def remove(path: str) -> None:
    """Remove a file or folder of ours; links are removed, never followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def resolved(path: str) -> tuple[str, str]:
    """(folder, name) of ``path``: links in the folder are followed, a link under the name itself is not."""
    head, name = os.path.split(path.rstrip(os.sep) or os.sep)
    if name in ("", os.curdir, os.pardir):
        head, name = os.path.split(os.path.realpath(path))
    return os.path.realpath(head or os.curdir), name
