"""From paths to reports: lists what is there in a stable order, and hands each file to the scanner once.

What a name says is no reason to leave a file out: caches and hidden folders are looked into as well. Left out are only
the object store and the bookkeeping of git, whose bytes nobody loads by path and which are no files of the tree; hooks
and configuration of git run commands and are looked at. Links to folders are not followed, so that no walk is endless
and none leaves the tree; what they point to in the tree is met under its own name. What is neither file nor folder is
never opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .. import trees
from ..errors import Unreadable
from .model import FileReport, Finding
from .rules import SCANNER_FAULT, UNREADABLE
from .scanner import scan_file

# Inside of a .git folder: not entered, wherever it lies in there (submodules keep a whole one under modules/).
GIT_STORES = frozenset({"objects", "refs", "logs", "lfs", "annex", "rr-cache"})
# Inside of a .git folder: the files that make git run something.
GIT_FILES = frozenset({"config", "config.worktree"})

KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISDIR, "a folder"),
)

# What a fault of the scanner could look like. One bad file must not end the scan of the others, and is never clean.
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
          ValueError)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing found. ``relative`` is its path under the given folder (``""`` for a file given as such).

    ``kind`` is file, link (to a file, or to nothing), folder-link, special, or unreadable: then ``problem`` says why.
    """

    path: str
    relative: str
    kind: str
    key: tuple[int, int, str] | None = None
    problem: str = ""


@dataclass(slots=True)
class Walk:
    """A scan of several paths. Iterate over ``reports()``; then ``absent`` and ``empty`` say what was not there."""

    paths: Sequence[str]
    absent: list[Unreadable] = field(default_factory=list)  # given paths that do not exist
    empty: list[str] = field(default_factory=list)  # given folders without a file
    repeated: int = 0  # further paths to a file that was scanned already
    _seen: set[tuple[int, int, str]] = field(default_factory=set)

    def reports(self) -> Iterator[FileReport]:
        """One report a file, path by path as given, each folder in order of names. Nothing in a file raises."""
        for path in self.paths:
            if trees.find(path) is not None:
                yield from self._mounted(path)
                continue
            try:
                info = os.stat(path)
            except (OSError, ValueError) as error:
                # A link to nothing is there; a NUL in the name is not.
                if isinstance(error, ValueError) or not os.path.islink(path):
                    self.absent.append(_absent(path, error))
                    continue
                info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                yield from self._folder(path)
            elif self._is_new((info.st_dev, info.st_ino, os.path.basename(path))):
                yield _special(path, info.st_mode) if _is_special(info.st_mode) else scan_one(path, _shown(path))

    def _mounted(self, path: str) -> Iterator[FileReport]:
        """A file or folder of a mounted tree. Such a tree has no links and nothing special in it."""
        if trees.is_file(path):
            yield scan_one(path)
        elif trees.is_dir(path):
            yield from self._reports(path, list(_inside(path)))
        else:
            self.absent.append(Unreadable("no such file or folder", file=path))

    def _folder(self, root: str) -> Iterator[FileReport]:
        found = list(entries(root))
        if not found:
            self.empty.append(root)
            return
        yield from self._reports(root, found)

    def _reports(self, root: str, found: list[Entry]) -> Iterator[FileReport]:
        about_tree = _tree_reports(root, found)
        for entry in found:
            extra = about_tree.pop(entry.relative, None)
            report = self._entry(entry)
            if extra is not None and report is not None:
                _merge(report, extra)
            report = report or extra
            if report is not None:
                report.path = _shown(os.path.join(root, entry.relative) if entry.relative else root)
                yield report
        for relative, report in sorted(about_tree.items()):  # what is said of folders, or of the tree as a whole
            report.path = _shown(os.path.join(root, relative) if relative else root)
            yield report

    def _entry(self, entry: Entry) -> FileReport | None:
        if entry.kind == "unreadable":
            return unreadable(entry.path, entry.problem)
        if entry.kind == "folder-link":
            return None
        if entry.key is not None and not self._is_new(entry.key):
            return None
        if entry.kind == "special":
            return unreadable(entry.path, f"not a regular file: {entry.problem}, which is never opened")
        return scan_one(entry.path)

    def _is_new(self, key: tuple[int, int, str]) -> bool:
        """A file is scanned once under one name, whatever leads to it; a further name may call for rules of its own."""
        if key in self._seen:
            self.repeated += 1
            return False
        self._seen.add(key)
        return True


def scan_one(path: str, shown: str | None = None) -> FileReport:
    """As ``scan_file``, and a fault of the scanner itself becomes a finding: never clean, never the end of a scan."""
    try:
        return scan_file(path, shown)
    except FAULTS as error:
        if os.environ.get("ARTIFACTKIT_DEBUG"):
            raise
        report = FileReport(shown or path)
        what = f"{SCANNER_FAULT.title}: {type(error).__name__}: {error}"
        report.findings.append(Finding(SCANNER_FAULT.id, SCANNER_FAULT.severity, what, hint=SCANNER_FAULT.hint))
        return report


def entries(root: str) -> Iterator[Entry]:
    """Everything under ``root`` but folders, in order of names as bytes; folders are entered where they sort."""
    try:
        device = os.stat(root).st_dev
    except OSError as error:
        yield Entry(root, "", "unreadable", problem=f"cannot list: {error.strerror}")
        return
    # Entered folders are listed when their turn comes, so that one listing at a time is held besides the path to it.
    waiting: list[Entry] = [Entry(root, "", "folder", (device, 0, ""))]
    while waiting:
        entry = waiting.pop()
        if entry.kind != "folder":
            yield entry
            continue
        try:
            with os.scandir(entry.path) as found:
                children = sorted(found, key=lambda child: os.fsencode(child.name), reverse=True)
        except OSError as error:
            yield Entry(entry.path, entry.relative, "unreadable", problem=f"cannot list: {error.strerror}")
            continue
        inside_git = _inside_git(entry.relative if entry.relative else os.path.basename(os.path.abspath(root)))
        for child in children:
            if inside_git and _left_out(child, inside_git):
                continue
            relative = f"{entry.relative}/{child.name}" if entry.relative else child.name
            waiting.append(_classified(child, relative, device))


def _classified(child: os.DirEntry[str], relative: str, device: int) -> Entry:
    try:
        if child.is_symlink():
            if child.is_dir():
                return Entry(child.path, relative, "folder-link")
            try:
                info = child.stat()
            except OSError:
                return Entry(child.path, relative, "link")  # to nothing; the scanner says what it finds
            kind = _is_special(info.st_mode)
            key = (info.st_dev, info.st_ino, child.name)
            return Entry(child.path, relative, "special" if kind else "link", key, kind)
        if child.is_dir(follow_symlinks=False):
            return Entry(child.path, relative, "folder", (device, 0, ""))
        if child.is_file(follow_symlinks=False):
            return Entry(child.path, relative, "file", (device, child.inode(), child.name))
        return Entry(child.path, relative, "special", None, _is_special(child.stat(follow_symlinks=False).st_mode))
    except OSError as error:
        return Entry(child.path, relative, "unreadable", problem=str(error.strerror or error))


def _inside(folder: str) -> Iterator[Entry]:
    """The same of a folder of a mounted tree."""
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        path = f"{folder}/{relative}" if relative else folder
        if trees.is_file(path):
            yield Entry(path, relative, "file")
            continue
        waiting += [f"{relative}/{name}" if relative else name for name in reversed(trees.listing(path))]


def _inside_git(relative: str) -> str:
    """For a folder in a ``.git``: its path from there (``.git/hooks``), else the empty string."""
    parts = relative.split("/")
    return "/".join(parts[parts.index(".git") :]) if ".git" in parts else ""


def _left_out(child: os.DirEntry[str], inside: str) -> bool:
    """Whether git keeps this for itself. Everything below hooks/ counts, whatever it is."""
    if "/hooks" in inside + "/":
        return False
    if child.is_dir(follow_symlinks=False):
        return child.name in GIT_STORES
    return child.name not in GIT_FILES


def _is_special(mode: int) -> str:
    """What it is, when it is neither a file nor a link; else the empty string."""
    return next((name for test, name in KINDS if test(mode)), "")


def _special(path: str, mode: int) -> FileReport:
    return unreadable(_shown(path), f"not a regular file: {_is_special(mode)}, which is never opened")


def unreadable(path: str, what: str) -> FileReport:
    """The report of something that could not be looked into."""
    report = FileReport(path)
    report.findings.append(Finding(UNREADABLE.id, UNREADABLE.severity, what, hint=UNREADABLE.hint))
    return report


def _absent(path: str, error: OSError | ValueError) -> Unreadable:
    reason = "no such file or folder"
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        reason = f"cannot be looked at: {error.strerror or error}"
    return Unreadable(reason, file=path, hint="give files or folders that are here")


def _shown(path: str) -> str:
    """The path as it is shown: as given, without ``./`` at the start."""
    while path.startswith("./") and len(path) > 2:
        path = path[2:].lstrip("/") or "."
    return path


def _merge(report: FileReport, extra: FileReport) -> None:
    """Add what is said of a file as a part of its tree."""
    report.findings.extend(finding for finding in extra.findings if finding not in report.findings)
    report.inventory.extend(entry for entry in extra.inventory if entry not in report.inventory)


def _tree_reports(root: str, found: Iterable[Entry]) -> dict[str, FileReport]:
    """What is to be said of files as parts of a tree, by path under ``root``: links that leave it, missing shards."""
    from . import repository

    reports: dict[str, FileReport] = {}
    for report in repository.scan_tree(root, [entry.relative for entry in found if entry.kind != "unreadable"]):
        if report.path in reports:
            _merge(reports[report.path], report)
        else:
            reports[report.path] = report
    return reports
