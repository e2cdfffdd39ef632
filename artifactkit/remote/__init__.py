"""Files elsewhere: ``https://host/path/file#sha256=...``, and the stores that fsspec reaches (extra ``remote``).

``mount`` makes of a URL a path into a mounted tree (``artifactkit.trees``). Headers are read in ranges where the place
has them; whole files are fetched into a cache of our own, and verified before they are used. A URL without a digest is
not pinned: what is there may be something else tomorrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import trees
from ..errors import Unreadable
from . import cache
from .address import SCHEMES, STORES, WEB, Address, parse
from .tree import Entry, RemoteTree, Say, mounted, nobody


@dataclass(frozen=True, slots=True)
class Mounted:
    """A URL that can be opened: ``path`` leads into a mounted tree, ``uri`` names it so that it can be had again."""

    path: str
    uri: str
    pinned: bool


def mount(url: str, *, say: Say = nobody) -> Mounted:
    """Look at what is there, and mount it. Nothing is fetched but the first bytes, or a folder's listing.

    Raises UsageError for a URL that cannot be meant, Unreadable for what is not to be had, MissingExtra where a library
    is missing.
    """
    address = parse(url)
    if address.scheme in WEB:
        return _mount_web(address, say)
    return _mount_store(address, say)


def _mount_web(address: Address, say: Say) -> Mounted:
    from .web import WebFile

    entry = _from_cache(address)
    if entry is None:
        store = WebFile(address, f"{address.folder}/{address.name}")
        if store.size is None:
            # Only the whole tells how much it is, and what is read is read by offset.
            sha256 = cache.fetch(store, address.url, address.sha256)
            size = _size_of(sha256)
            entry = Entry(address.url, address.sha256, size, store, sha256)
        else:
            entry = Entry(address.url, address.sha256, store.size, store)
    root = address.folder + (f"?{address.mark}" if address.mark else "")
    return _added(root, address.name, entry, address, say)


def _from_cache(address: Address) -> Entry | None:
    """The entry of what is in the cache under its digest: nobody else needs to be asked."""
    if address.sha256 is None:
        return None
    size = _size_of(address.sha256)
    if size < 0 or not cache.verified(address.sha256):
        return None
    return Entry(address.url, address.sha256, size, None, address.sha256)


def _size_of(sha256: str) -> int:
    import os

    try:
        return os.path.getsize(cache.blob(sha256))
    except OSError:
        return -1


def _added(root: str, name: str, entry: Entry, address: Address, say: Say) -> Mounted:
    """Put one file into the tree at ``root``; into one beside it, where that has another file of the name."""
    tree = mounted(root)
    there = None if tree is None else tree.entries.get(name)
    if there is not None and (there.url, there.sha256) != (entry.url, entry.sha256):
        if there.url == entry.url and entry.sha256 is None:
            entry = there  # the same place, known by its digest already
        else:
            root = f"{root}?{(entry.sha256 or 'unpinned')[:8]}"
            tree = mounted(root)
    if tree is None:
        tree = RemoteTree(root, say)
        trees.mount(tree)
    tree.say = say
    tree.entries.setdefault(name, entry)
    return Mounted(f"{root}/{name}", address.uri, address.sha256 is not None)


def _mount_store(address: Address, say: Say) -> Mounted:
    from . import fs

    filesystem, path = fs.open_filesystem(address)
    shown = address.uri.partition("#")[0].rstrip("/")
    found = fs.listing(filesystem, path, shown)
    if "" in found:
        full, info = found[""]
        store = fs.StoredFile(filesystem, full, shown, info)
        entry = _from_cache(address) or Entry(address.url, address.sha256, store.size or 0, store)
        return _added(shown.rpartition("/")[0], shown.rpartition("/")[2], entry, address, say)
    if address.sha256 is not None:
        raise Unreadable(
            "a digest is of a file, and this is a folder", file=shown, hint="give the URL of the file, or no digest"
        )
    tree = mounted(shown)
    if tree is None:
        tree = RemoteTree(shown, say)
        trees.mount(tree)
    for name, (full, info) in found.items():
        file = fs.StoredFile(filesystem, full, tree.shown(name), info)
        tree.entries.setdefault(name, Entry(f"{shown}/{name}", None, file.size or 0, file))
    return Mounted(shown, shown, False)


def uri_of(path: str) -> str:
    """By which a file in a tree of ours can be had again, with the digest that it has; other paths as they are."""
    found = trees.find(path)
    if found is None or not isinstance(found[0], RemoteTree) or found[1] not in found[0].entries:
        return path
    entry = found[0].entries[found[1]]
    return replace(parse(entry.url), sha256=entry.sha256 or entry.have).uri


def inside(path: str) -> RemoteTree | None:
    """The tree of ours that ``path`` leads into."""
    found = trees.find(path)
    return found[0] if found is not None and isinstance(found[0], RemoteTree) else None


__all__ = ["SCHEMES", "STORES", "WEB", "Mounted", "RemoteTree", "inside", "mount", "parse", "uri_of"]
