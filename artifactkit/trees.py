"""Where files lie: on this machine, or in a tree that is mounted under a name, as one revision of a hub repository is.

What opens a source asks here and not ``os.path``. A mounted tree is of one revision: its names and its bytes do not
change while it is mounted. Its root has a scheme (``hf://owner/name@<commit>``), so no path of this machine is one.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .errors import Unreadable
from .files import File

SCHEME = "://"


class Tree(Protocol):
    """Files under one root; their names are relative, with ``/`` between the parts."""

    @property
    def root(self) -> str:
        """The name it is mounted under, without a slash at the end. Messages name files by it."""
        ...

    def names(self) -> Sequence[str]:
        """The names of all files, sorted."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file, without opening it."""
        ...

    def sha256(self, name: str) -> str | None:
        """The digest of a file as its place states it, without opening it; None where it states none.

        A file that is fetched whole is checked against it before it is read. Ranges of it are not.
        """
        ...

    def open(self, name: str) -> File:
        """The file, opened, its ``path`` being ``root/name``. Raises Unreadable."""
        ...

    def fetch(self, names: Iterable[str], progress: Any = None) -> None:
        """Have these files on this machine, each checked against what its place states of it. Raises Unreadable.

        ``progress`` is a ``placing.Progress``, which counts the bytes of all the files.
        """
        ...


class Names(tuple[str, ...]):
    """Sorted names that know quickly what is among them."""

    def __contains__(self, name: object) -> bool:
        known = self.__dict__.get("known")
        if known is None:
            known = self.__dict__["known"] = frozenset(self)
        return name in known


_mounted: dict[str, Tree] = {}


def mount(tree: Tree) -> None:
    """Let paths under ``tree.root`` lead into ``tree``; another tree of that name is replaced."""
    _mounted[tree.root] = tree


def is_url(path: str) -> bool:
    """Whether ``path`` has a scheme and so is no path of this machine."""
    return SCHEME in path and path.split(SCHEME, 1)[0].isalnum()


def find(path: str) -> tuple[Tree, str] | None:
    """(the mounted tree that ``path`` leads into, the name in it, "" for its root), or None."""
    if not _mounted or SCHEME not in path:
        return None
    for root, tree in _mounted.items():
        if path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
            return tree, path[len(root) :].strip("/")
    return None


def _below(names: Sequence[str], folder: str) -> Sequence[str]:
    """Those of the sorted ``names`` that lie in ``folder``: a tree of very many is not looked through for each."""
    return names[bisect_left(names, folder + "/") : bisect_left(names, folder + "0")]  # 0 comes next after /


def open_file(path: str | os.PathLike[str]) -> File:
    """The file at ``path``, wherever that is. Raises Unreadable."""
    found = find(os.fspath(path))
    if found is None:
        return File(path)
    tree, name = found
    if name not in tree.names():
        what = "a folder" if is_dir(os.fspath(path)) else "nothing of that name"
        raise Unreadable("not a regular file", file=os.fspath(path), expected="a regular file", found=what)
    return tree.open(name)


def is_file(path: str) -> bool:
    found = find(path)
    return os.path.isfile(path) if found is None else found[1] in found[0].names()


def is_dir(path: str) -> bool:
    found = find(path)
    if found is None:
        return os.path.isdir(path)
    tree, name = found
    return not name or bool(_below(tree.names(), name))


def exists(path: str) -> bool:
    """Whether there is something; of a link on this machine, whether it leads anywhere."""
    return os.path.exists(path) if find(path) is None else is_file(path) or is_dir(path)


def size(path: str) -> int:
    """Bytes of a file. OSError where it is not there and not of a mounted tree."""
    found = find(path)
    return os.path.getsize(path) if found is None else found[0].size(found[1])


def sha256(path: str) -> str | None:
    """The digest that is stated of a file in a mounted tree; None where none is, and for files of this machine."""
    found = find(path)
    return None if found is None else found[0].sha256(found[1])


def listing(folder: str) -> list[str]:
    """The names directly in ``folder``, sorted. Raises Unreadable."""
    found = find(folder)
    if found is not None:
        tree, name = found
        start = len(name) + 1 if name else 0
        inside = tree.names() if not name else _below(tree.names(), name)
        return sorted({other[start:].split("/", 1)[0] for other in inside})
    try:
        return sorted(os.listdir(folder or os.curdir))
    except OSError as error:
        raise Unreadable(f"cannot list the folder: {error.strerror}", file=folder) from error


# What a repository is not called, and a file is.
_FILES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".npz", ".npy", ".gguf", ".onnx", ".json", ".plan")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?:@[\w./%-]+)?")


def is_hub_name(src: str) -> bool:
    """Whether ``src`` is nothing here and looks like a repository on the hub, written as other tools write it."""
    if _HUB_NAME.fullmatch(src) is None or src.endswith(_FILES):
        return False
    return not os.path.lexists(src) and not os.path.exists(os.path.dirname(src))
