"""Whether a file that another one names lies in that one's folder: by its name, and by what is there on the disk."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

from . import trees

DRIVE = re.compile(r"[A-Za-z]:|[A-Za-z][A-Za-z0-9+.-]*://|\\\\|//")


@dataclass(frozen=True, slots=True)
class Place:
    """``problem`` says why the place is not inside; ``mild`` when that leads no reader astray.

    ``size`` is in bytes, None when the file is not there; ``links`` is the number of names that it has.
    """

    problem: str = ""
    mild: bool = False
    size: int | None = None
    links: int = 1


def by_name(name: str) -> Place:
    """What a relative name says about itself, without a look at the disk."""
    if not name or "\0" in name:
        return Place("a name that is empty, or has a NUL")
    if DRIVE.match(name):
        return Place("an absolute path or an address")
    path = name.replace("\\", "/")
    if path.startswith("/"):
        return Place("an absolute path")
    if path.startswith("~"):
        return Place("a path into somebody's home")
    depth, dotted = 0, False
    for step in path.split("/"):
        if step == "..":
            dotted = True
            depth -= 1
            if depth < 0:
                return Place("a path that leads out of the folder")
        elif step not in ("", "."):
            depth += 1
    if dotted:
        return Place("a path with .. in it", mild=True)
    return Place()


def look_at(name: str, owner: str | None) -> Place:
    """Judge ``name``, which the file at ``owner`` asks for. None for one in an archive: there is no disk to look at."""
    place = by_name(name)
    if place.problem or owner is None:
        return place
    if trees.find(owner) is not None:  # a tree without links
        at = os.path.join(os.path.dirname(owner), name.replace("\\", "/"))
        return Place(size=trees.size(at)) if trees.is_file(at) else place
    folder = os.path.dirname(os.path.abspath(owner))
    at = folder
    linked = False
    try:
        for step in name.replace("\\", "/").split("/"):
            if step in ("", "."):
                continue
            at = os.path.join(at, step)
            info = os.lstat(at)
            linked = linked or stat.S_ISLNK(info.st_mode)
        if linked:
            if not is_inside(at, folder):
                return Place("a link that leads out of the folder")
            info = os.stat(at)
    except (OSError, ValueError):
        return place  # not there; a runtime will say so
    if not stat.S_ISREG(info.st_mode):
        return Place("not a regular file", mild=stat.S_ISDIR(info.st_mode))
    return Place(size=info.st_size, links=info.st_nlink)


def is_inside(path: str, folder: str) -> bool:
    """Whether ``path``, all links followed, lies in ``folder``; or is where the Hub's cache keeps its content.

    The cache has snapshots/<commit>/<file> point to blobs/ beside snapshots/ (huggingface_hub, "cache-system").
    """
    real, home = os.path.realpath(path), os.path.realpath(folder)
    if real == home or real.startswith(home.rstrip(os.sep) + os.sep):
        return True
    root, found, _ = (home + os.sep).rpartition(f"{os.sep}snapshots{os.sep}")
    return bool(found) and os.path.dirname(real) == os.path.join(root, "blobs")
