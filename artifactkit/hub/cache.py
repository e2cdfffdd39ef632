"""What lies in huggingface_hub's cache, and whether it is what the hub says it is.

    models--owner--name/refs/<branch>             the commit that the branch was at
    models--owner--name/snapshots/<commit>/<file> a link to ../../blobs/<digest>
    models--owner--name/trees/<commit>.json       the listing, where the library has kept it

The library compares lengths at most, so a blob with other content under the right name is taken for the file. Here
every blob is hashed before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ArtifactkitError, Corrupt, Unreadable
from ..files import File, buffer
from .listing import Entry

BLOCK = 256 << 10
MAX_TREE = 64 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}")


def folder(repo: str) -> str:
    """Where the library keeps this repository."""
    from huggingface_hub import constants

    return os.path.join(constants.HF_HUB_CACHE, "models--" + repo.replace("/", "--"))


def pointer(repo: str, commit: str, name: str) -> str:
    """The path of a file in the snapshot of a commit; the name has been checked."""
    return os.path.join(folder(repo), "snapshots", commit, *name.split("/"))


def commit_of(repo: str, revision: str) -> str | None:
    """The commit that a branch or tag was at when it was last looked up, or None."""
    path = os.path.join(folder(repo), "refs", *revision.split("/"))
    try:
        with open(path, encoding="ascii") as file:
            found = file.read(100).strip()
    except (OSError, ValueError):
        return None
    return found if _COMMIT.fullmatch(found) else None


def keep_commit(repo: str, revision: str, commit: str) -> None:
    """Remember what a branch was at, as the library does, so that it is found without a connection.

    It is a convenience: a cache that cannot be written to is left as it is.
    """
    path = os.path.join(folder(repo), "refs", *revision.split("/"))
    if commit_of(repo, revision) == commit:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(commit)
    except OSError:
        pass


def snapshot(repo: str, commit: str) -> dict[str, Entry] | None:
    """The files of a commit that are in the cache, by name, links that lead nowhere included; None without a snapshot.

    Their digests are those of the kept listing, else the names of the blobs that the links lead to.
    """
    root = os.path.join(folder(repo), "snapshots", commit)
    if not os.path.isdir(root):
        return None
    stated = _kept_listing(repo, commit)
    found: dict[str, Entry] = {}
    for where, folders, names in os.walk(root):
        folders.sort()
        for base in names:
            path = os.path.join(where, base)
            name = os.path.relpath(path, root).replace(os.sep, "/")
            found[name] = stated.get(name) or _by_blob(path)
    return dict(sorted(found.items()))


def _by_blob(path: str) -> Entry:
    """What the name of the blob says: a sha256, or the object id that git gives."""
    try:
        size = os.path.getsize(path)
    except OSError:
        size = 0
    blob = os.path.basename(os.readlink(path)) if os.path.islink(path) else ""
    if re.fullmatch(r"[0-9a-f]{64}", blob):
        return Entry(size, sha256=blob)
    return Entry(size, blob=blob if _COMMIT.fullmatch(blob) else None)


def _kept_listing(repo: str, commit: str) -> dict[str, Entry]:
    """The listing as the library (2.x) keeps it; empty when there is none, or none that is understood."""
    path = os.path.join(folder(repo), "trees", f"{commit}.json")
    try:
        if os.path.getsize(path) > MAX_TREE:
            return {}
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["format_version"] != 1:
            return {}
        out = {}
        for name, info in document["files"].items():
            sha256, size = info.get("lfs_sha256"), info.get("lfs_size")
            if sha256 is None:
                sha256, size = None, info["size"]
            if isinstance(size, int) and isinstance(sha256 or info["blob_id"], str):
                out[str(name)] = Entry(size, sha256, None if sha256 else info["blob_id"])
        return out
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


Identity = tuple[int, int, int, int]  # device, inode, size, time of last change


@dataclass(frozen=True, slots=True)
class Verified:
    """A file of the cache whose content was hashed and is what the hub states."""

    path: str
    identity: Identity
    sha256: str


class CachedFile(File):
    """A file of the cache under the name that it has on the hub, in the very bytes that were verified."""

    __slots__ = ("sha256",)

    def __init__(self, shown: str, path: str, verified: Verified | None = None) -> None:
        try:
            super().__init__(path)
        except ArtifactkitError as error:
            error.file = shown
            raise
        self.path = shown
        self.sha256 = None
        if verified is not None:
            self.sha256 = verified.sha256
            if self.identity() != verified.identity:
                self.close()
                raise Corrupt("the cached file changed after it was verified", file=shown, hint="run again")

    def identity(self) -> Identity:
        """What would be another if the file were written anew."""
        info = os.fstat(self._fd)
        return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def verify(shown: str, path: str, entry: Entry, advance: Callable[[int], None] | None = None) -> Verified:
    """Hash the file at ``path`` and compare with what the hub states.

    Corrupt says the file, what was expected and found, and how to be rid of it. ``advance`` is told of bytes read and
    may raise to end the work.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise dangling(shown, path)
    file = CachedFile(shown, path)
    try:
        if file.size != entry.size:
            raise _wrong(
                "has another size than the hub states", shown, path, f"{entry.size} bytes", f"{file.size} bytes"
            )
        sha256 = hashlib.sha256()
        # Git's object id: SHA-1 of a header and the content. It identifies here what git identifies by it.
        sha1 = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False) if entry.blob is not None else None
        space = buffer(min(BLOCK, file.size))
        for at in range(0, file.size, BLOCK):
            block = space[: min(BLOCK, file.size - at)]
            file.read_into(at, block)
            sha256.update(block)
            if sha1 is not None:
                sha1.update(block)
            if advance is not None:
                advance(len(block))
        file.check_unchanged()
        found = sha256.hexdigest()
        if entry.sha256 is not None and found != entry.sha256:
            raise _wrong("is not what the hub states", shown, path, f"sha256 {entry.sha256}", f"sha256 {found}")
        if sha1 is not None and sha1.hexdigest() != entry.blob:
            raise _wrong(
                "is not what the hub states", shown, path, f"git blob {entry.blob}", f"git blob {sha1.hexdigest()}"
            )
        return Verified(path, file.identity(), found)
    finally:
        file.close()


def _wrong(what: str, shown: str, path: str, expected: str, found: str) -> Corrupt:
    real = os.path.realpath(path)
    return Corrupt(
        f"a file in the cache {what}", file=shown, expected=expected, found=found,
        hint=f"remove it, and run again to fetch it anew: rm {_quoted(real)}",
    )  # fmt: skip


def dangling(shown: str, path: str) -> Unreadable:
    """The error for a link of a snapshot whose blob is gone."""
    return Unreadable(
        "a link in the cache leads nowhere: its content was removed", file=shown,
        expected=os.path.realpath(path), hint="run again with a connection to fetch it anew",
    )  # fmt: skip


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(path)
