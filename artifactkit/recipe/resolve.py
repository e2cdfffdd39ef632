"""From what a recipe names to what it led to: commits, and the digest of every file that is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from .. import opening, sources, trees
from ..errors import ArtifactkitError, LimitExceeded, Unreadable
from ..hub import address
from ..placing import sha256_file
from .lockfile import LockedFile, LockedSource
from .model import Pinned, Recipe

MAX_FILES = 10_000  # of one input that is a folder
Say = Callable[[str], None]  # is told in a sentence what the user should know
Hashing = Callable[[str, int], None]  # is told of each file before it is read: its path and its bytes


def nobody(path: str, nbytes: int) -> None:
    """Progress that nobody watches."""


def silent(message: str) -> None:
    """For who does not listen."""


def is_local(source: str) -> bool:
    """Whether a source is a path of this machine."""
    return not trees.is_url(source)


def path_of(recipe_file: str, source: str) -> str:
    """A source as it is opened from the current folder: a path is relative to the recipe's folder."""
    return os.path.join(os.path.dirname(recipe_file), source) if is_local(source) else source


def uri_of(pinned: Pinned | LockedSource, revision: str | None = None) -> str:
    """The source with its revision, or another one."""
    if not pinned.source.startswith(address.SCHEME):
        return pinned.source
    return address.parse(pinned.source).uri(revision or pinned.revision)


def resolve(pinned: Pinned, recipe: Recipe, hashing: Hashing = nobody, say: Say = silent) -> LockedSource:
    """Look a source up, as it is now. Raises what locating and opening raise, with the name of the table."""
    path = path_of(recipe.file, uri_of(pinned))
    try:
        # That a URL is not pinned by itself is no news here: the lock pins it.
        located = sources.locate(path, say=say if path.startswith(address.SCHEME) else silent)
        files = tuple(_locked(located.path, name, hashing) for name in _used(pinned, located.path))
    except ArtifactkitError as error:
        error.what = f"{pinned.what}: {error.what}"
        raise
    return LockedSource(pinned.kind, pinned.name, pinned.source, pinned.revision, located.commit, pinned.options, files)


def _used(pinned: Pinned, path: str) -> list[str]:
    """The files of a source, by path: of a model those that opening it reads, of an input all."""
    if pinned.kind == "models":
        form = pinned.options.get("from")
        return opening.used_files(path, None if form is None else str(form))
    if not trees.is_dir(path):
        if not trees.exists(path):
            raise Unreadable("no such file or folder", file=path)
        return [path]
    files = []
    for file in _walk(path):
        files.append(file)
        if len(files) > MAX_FILES:
            raise LimitExceeded(
                "an input of too many files", file=path, expected=f"at most {MAX_FILES}",
                hint="name the files that are meant, each as an input of its own",
            )  # fmt: skip
    if not files:
        raise Unreadable("the folder is empty", file=path)
    return files


def _walk(folder: str) -> Iterator[str]:
    """All files below a folder, in order of name. Links to folders are not followed: they could lead round."""
    for name in trees.listing(folder):
        path = os.path.join(folder, name)
        if trees.is_dir(path):
            if not os.path.islink(path):
                yield from _walk(path)
        else:
            yield path


def name_in(path: str, root: str) -> str:
    """The name of a file within its source: relative to the folder ``root``, or to that of the file ``root``."""
    folder = root if trees.is_dir(root) else os.path.dirname(root)
    if trees.is_url(path):
        return path.removeprefix(folder).strip("/")
    return os.path.relpath(path, folder or os.curdir).replace(os.sep, "/")


def _locked(root: str, path: str, hashing: Hashing) -> LockedFile:
    """One file with its digest: as its place states it, else of its content."""
    name = name_in(path, root)
    if any("\ud800" <= c <= "\udfff" for c in name):
        raise Unreadable("a file's name is no text, and a lock file is", file=path, hint="rename it")
    mounted = trees.find(path)
    if mounted is not None and trees.is_file(path):
        tree, inner = mounted
        stated = tree.sha256(inner)
        if stated is not None:
            return LockedFile(name, tree.size(inner), stated)
        tree.fetch([inner])  # of a hub's, a small one: large ones are stored by their sha256
    file = trees.open_file(path)
    hashing(path, file.size)
    digest = sha256_file(file)
    file.close()
    return LockedFile(name, digest.size, digest.sha256)
