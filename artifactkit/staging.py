"""Nothing half-written under the final name, nothing that was there harmed.

Output is written under a recognisable name in the destination's own folder (a rename is atomic within one file system
only), fsynced, and renamed as one. The staged file or folder is held under an advisory lock for as long as the process
lives, so that the next run can tell a leftover of a killed process from the work of one that is still running.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shlex
import stat
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from . import beside, filesystem
from .errors import DestinationExists, OutputError, UsageError
from .filesystem import NAME_MAX, failed, fsync, is_at, lock, locked, remove, resolved, try_lock

MARK = ".artifactkit-"  # .NAME.artifactkit-new-3f9a12bc.tmp: new is staged work, old is what --force is replacing
NEW, OLD = "new", "old"
LEFTOVER = re.compile(r"\.artifactkit-(new|old|due|was)-[0-9a-f]{8}(?:-[0-9a-f]{16})?\.tmp")  # the last two: beside


def _stem(name: str) -> str:
    """How staged names begin. A name too long to carry the mark is cut, and told from others by its digest."""
    raw = os.fsencode(name)
    room = NAME_MAX - len(f".{MARK}{NEW}-01234567-0123456789abcdef.tmp")
    if len(raw) > room:
        raw = raw[: room - 9] + b"-" + hashlib.sha256(raw).hexdigest()[:8].encode("ascii")
    return "." + os.fsdecode(raw)


def _anything(name: str) -> bool:
    return True


def unfinished(destination: str) -> str | None:
    """What a killed run was about to put beside the artifact at ``destination``, if there is something."""
    parent, name = resolved(destination)
    return beside.pending(parent, _stem(name), os.path.join(parent, name))


class Stage:
    """Work staged beside ``destination``: a file, or with ``folder`` a folder of files.

    ``with Stage(...) as stage``: write to ``stage.path(name)``, then ``stage.commit()``. Left without commit, for
    whatever reason, it removes what it made. Raises DestinationExists, UsageError or OutputError, all before anything
    is written. ``familiar`` says of a file's name whether ``force`` may replace a folder that holds such a file.
    With ``look_only`` the destination is judged, and leftovers of other runs stay. ``suffix`` is that of a file which
    stands beside the destination and is about it: ``commit`` writes it, and what is there is judged like the
    destination itself.
    """

    def __init__(
        self,
        destination: str,
        *,
        folder: bool,
        force: bool,
        inputs: Iterable[str] = (),
        familiar: Callable[[str], bool] = _anything,
        look_only: bool = False,
        suffix: str | None = None,
    ) -> None:
        self.given = destination
        self.parent, self.name = resolved(destination)
        self.destination = os.path.join(self.parent, self.name)
        self.folder = folder
        self.force = force
        self.made: str | None = None
        self._familiar = familiar
        self._lock_fd: int | None = None
        self._look_only = look_only
        self._beside: beside.Beside | None = None
        if suffix is not None:
            self._beside = beside.Beside(self.parent, _stem(self.name), self.destination, suffix, destination)
        self._check(list(inputs))

    # -- before anything is written

    def _check(self, inputs: list[str]) -> None:
        if not self.name or not self.given:  # an empty path would be the current folder
            raise UsageError("the destination has no name", file=self.given)
        if not os.path.isdir(self.parent):
            raise OutputError("the destination's folder is not there", file=self.given, hint=self._how_to_make_parent())
        self._check_inputs(inputs)
        if not self._look_only:
            self._recover()
        try:
            there = os.lstat(self.destination)
        except FileNotFoundError:
            if self._beside is not None:
                self._beside.check(self.force)
            return
        except OSError as error:
            raise failed(error, self.given) from error
        if not self.force:
            raise DestinationExists(
                "the destination exists", file=self.given, hint="give --force to replace it, or another name"
            )
        if self._beside is not None:
            self._beside.check(self.force)
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
                kind = "link" if stat.S_ISLNK(there.st_mode) else "file"
                raise UsageError(
                    f"the destination is a {kind}, the output a folder", file=self.given, hint="give another name"
                )
        else:
            raise UsageError("the destination is no regular file", file=self.given, hint="give another name")

    def _how_to_make_parent(self) -> str:
        there = self.parent
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        return f"mkdir -p {shlex.quote(self.parent)}" if os.path.isdir(there) else f"{there} is no folder"

    def _check_inputs(self, inputs: list[str]) -> None:
        """Refuse to write over, around or (for folders) into what is being read."""
        for path in inputs:
            with contextlib.suppress(OSError):
                if os.path.samefile(path, self.destination):
                    raise UsageError("the destination is the source itself", file=self.given, hint="give another name")
            real = os.path.realpath(path)
            if any(p.startswith(self.destination + os.sep) for p in (real, os.path.join(*resolved(path)))):
                raise UsageError("the source lies inside the destination", file=self.given, hint="give another name")
            if self.folder and os.path.isdir(real) and self.destination.startswith(real + os.sep):
                raise UsageError(
                    "the destination lies inside the source", file=self.given, hint="give a folder beside it"
                )

    def _check_replaceable(self) -> None:
        """``--force`` replaces a folder of model files, never anything else: a mistyped name must not cost a home."""
        try:
            with os.scandir(self.destination) as entries:
                strange = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) or not self._ours(e.name))
        except OSError as error:
            raise failed(error, self.given) from error
        if strange:
            raise UsageError(
                "--force replaces a folder of model files only; this one holds other things",
                file=self.given,
                found=", ".join(strange[:5]) + (f" and {len(strange) - 5} more" if len(strange) > 5 else ""),
                hint="remove it yourself, or give another name",
            )
        if os.path.samefile(self.destination, os.getcwd()) or os.path.ismount(self.destination):
            raise UsageError(
                "--force does not replace the current folder or a mount point",
                file=self.given,
                hint="give another name",
            )

    def _ours(self, name: str) -> bool:
        """Whether a file in the folder to be replaced may go: a model's, or the leftover of a killed run."""
        if LEFTOVER.search(name) is None:
            return self._familiar(name)
        try:
            fd = lock(os.path.join(self.destination, name))
        except OSError:
            return False
        if fd is None:
            return False
        os.close(fd)
        return True

    def _recover(self) -> None:
        """Clean up after a killed run for the same destination: put back what it moved aside, remove what it staged."""
        stem = _stem(self.name)
        try:
            if self._beside is not None:
                beside.recover(self.parent, stem, self.destination, self._beside.suffix)
            names = sorted(os.listdir(self.parent))
        except PermissionError:
            return  # a folder that may be written to but not looked into
        except OSError as error:
            raise failed(error, self.given) from error
        for name in names:
            kind = LEFTOVER.fullmatch(name[len(stem) :]) if name.startswith(stem) else None
            if kind is None or kind[1] not in (NEW, OLD):
                continue
            path = os.path.join(self.parent, name)
            try:
                fd = lock(path)
            except OSError:
                continue
            if fd is None:
                continue  # another process is at work on it
            try:
                if not is_at(fd, path):
                    continue  # it was cleaned up or put back while we looked
                if kind[1] == OLD and not os.path.lexists(self.destination):
                    os.rename(path, self.destination)
                else:
                    remove(path)
            except OSError as error:
                raise failed(error, self.given) from error
            finally:
                os.close(fd)

    # -- the work

    def __enter__(self) -> Self:
        try:
            while not self._make():
                pass
            return self
        except OSError as error:
            self._abandon()
            raise failed(error, self.given) from error
        except BaseException:  # interrupted: __exit__ will not be called
            self._abandon()
            raise

    def _make(self) -> bool:
        """Make and lock the staged file or folder; False when it must be tried again under another name.

        Between the making and the locking, another run that cleans up may take it for a leftover and remove it.
        """
        path = os.path.join(self.parent, f"{_stem(self.name)}{MARK}{NEW}-{secrets.token_hex(4)}.tmp")
        self.made = path
        try:
            if self.folder:
                os.mkdir(path, 0o777)
            else:
                self._lock_fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            self.made = None  # somebody else's
            return False
        if self.folder:
            with contextlib.suppress(FileNotFoundError):
                self._lock_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._lock_fd is not None and try_lock(self._lock_fd) and is_at(self._lock_fd, path):
            return True
        self._abandon()
        return False

    def path(self, name: str = "") -> str:
        """Where to write the output file ``name`` (relative, of a folder) or the output itself."""
        assert self.made is not None
        if not self.folder:
            return self.made
        path = os.path.join(self.made, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise failed(error, self.final(name)) from error
        return path

    def final(self, name: str = "") -> str:
        """Where that file will be."""
        return os.path.join(self.given, name) if self.folder else self.given

    def commit(self, about: bytes | None = None) -> None:
        """Make it durable and give it its name. OutputError on failure, and then nothing is changed.

        ``about`` is the content of the file beside it; with None there will be none.

        Interrupted or killed at any moment, the destination is what it was, or wholly what is to be; folders under
        ``force`` are the exception where the system cannot exchange two names: there the old one may be left under
        its ``old`` name, and the next run for this destination puts it back.
        """
        assert self.made is not None
        try:
            self._sync()
            self._take_names(about)
            with contextlib.suppress(PermissionError):  # a folder that may be written to but not opened
                fsync(self.parent)
        except FileExistsError as error:
            raise self._appeared() from error
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):  # what rename says instead, of folders
                raise self._appeared() from error
            raise failed(error, self.given) from error
        self._abandon()  # what was replaced bears the staged name now

    def _take_names(self, about: bytes | None) -> None:
        """Rename the artifact, and with it what stands beside it: alone, lest two runs mix theirs."""
        if self._beside is None:
            while not self._take_name():
                pass
            return
        assert self.made is not None
        token = self.made[-len("01234567.tmp") : -len(".tmp")]
        with contextlib.ExitStack() as alone:
            with contextlib.suppress(PermissionError):  # a folder that may be written to but not opened
                alone.enter_context(locked(self.parent))
            try:
                self._beside.prepare(self.made, token, about, self.force)
                while not self._take_name():
                    pass
            finally:
                self._beside.settle()

    def _appeared(self) -> DestinationExists:
        return DestinationExists(
            "the destination appeared while the work was going on",
            file=self.given,
            hint="give --force to replace it, or another name",
        )

    def _sync(self) -> None:
        assert self.made is not None
        if not self.folder:
            fsync(self.made)
            return
        for root, _, names in os.walk(self.made, topdown=False):
            for name in sorted(names):
                fsync(os.path.join(root, name))
            fsync(root)

    def _take_name(self) -> bool:
        """Rename; False when the destination came or went at that very moment, to be tried again."""
        if not self.force:
            self._claim()
            return True
        try:
            if os.path.lexists(self.destination):
                self._replace()
            else:
                self._claim()
        except (FileExistsError, FileNotFoundError):
            if self.made is None or not os.path.lexists(self.made):
                raise
            return False
        return True

    def _claim(self) -> None:
        """Take the final name without replacing anything that appeared meanwhile."""
        assert self.made is not None
        if filesystem.rename2(self.made, self.destination, filesystem.RENAME_NOREPLACE):
            return
        if self.folder:
            os.rename(self.made, self.destination)  # replaces nothing but an empty folder
            return
        try:
            os.link(self.made, self.destination)
        except OSError as error:
            if error.errno not in filesystem.NOT_HERE:
                raise
            # A file system with neither call (FAT): look, then rename.
            if os.path.lexists(self.destination):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.destination) from error
            os.rename(self.made, self.destination)
            return
        os.unlink(self.made)

    def _replace(self) -> None:
        """Put the new in the place of the old, which then bears the staged name."""
        assert self.made is not None
        if not self.folder:
            os.replace(self.made, self.destination)
        elif not filesystem.rename2(self.made, self.destination, filesystem.RENAME_EXCHANGE):
            self._move_aside()

    def _move_aside(self) -> None:
        """The old folder away, the new one in its place: two steps, and what undoes the first if there is no second."""
        assert self.made is not None
        old = self.made.replace(f"{MARK}{NEW}-", f"{MARK}{OLD}-")
        held = lock(self.destination)  # no other run shall take it for a leftover meanwhile
        if held is None:
            raise OutputError(
                "another process is at work on the destination", file=self.given, hint="wait for it, or stop it"
            )
        try:
            os.rename(self.destination, old)
            os.rename(self.made, self.destination)
            os.rename(old, self.made)
        except BaseException:
            if os.path.lexists(old):
                os.rename(old, self.made if os.path.lexists(self.destination) else self.destination)
            raise
        finally:
            os.close(held)

    def _abandon(self) -> None:
        if self.made is not None:
            try:
                self._take_away(self.made)
            except BaseException:  # a second interruption must not leave what the first was to take away
                self._take_away(self.made)
                raise
            self.made = None
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def _take_away(self, made: str) -> None:
        if self._beside is not None:
            with contextlib.suppress(OSError):  # then the next run settles it
                self._beside.settle()
        remove(made)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()
