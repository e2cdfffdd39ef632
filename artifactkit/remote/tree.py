"""Files elsewhere as a mounted tree: read in ranges for their headers, fetched and verified whole for their tensors."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .. import ranged, trees
from ..errors import LimitExceeded, Unreadable
from ..files import File
from ..placing import Digest, Progress
from . import cache
from .store import Store

WHOLE = 4 << 20  # a file of up to so many bytes is fetched at once, and so verified
WITHOUT_RANGES = 2 << 30  # without ranges a file is fetched whole, were it only for its header: up to so many bytes
GRAIN = 64 << 10  # bytes of a block
AHEAD = 2 << 20  # of one request
KEPT = 32 << 20  # bytes of blocks that one file keeps
Say = Callable[[str], None]


def nobody(message: str) -> None:
    """For who does not listen."""


@dataclass(slots=True)
class Entry:
    """One file of a tree. ``store`` is None where the cache alone serves it; ``url`` is what the cache knows it by."""

    url: str
    sha256: str | None
    size: int
    store: Store | None
    have: str | None = None  # the sha256 of the content that is in the cache, verified in this process


class RemoteTree:
    """The files of one folder elsewhere, or those of them that were asked for."""

    def __init__(self, root: str, say: Say = nobody) -> None:
        self._root, self.say = root, say
        self.entries: dict[str, Entry] = {}
        self.lock = threading.RLock()
        self._names = trees.Names()

    @property
    def root(self) -> str:
        return self._root

    def names(self) -> Sequence[str]:
        if len(self._names) != len(self.entries):  # files are added, and never taken away
            self._names = trees.Names(sorted(self.entries))
        return self._names

    def shown(self, name: str) -> str:
        """The path of a file, as messages name it."""
        return f"{self._root}/{name}"

    def entry(self, name: str) -> Entry:
        """Raises Unreadable where there is none."""
        found = self.entries.get(name)
        if found is None:
            raise Unreadable("no such file here", file=self.shown(name))
        return found

    def size(self, name: str) -> int:
        if name not in self.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file here", self.shown(name))
        return self.entries[name].size

    def sha256(self, name: str) -> str | None:
        return self.entry(name).sha256

    def open(self, name: str) -> File:
        entry = self.entry(name)
        if entry.have is None and (entry.store is None or entry.size <= WHOLE):
            self.fetch([name])
        if entry.have is None and entry.store is not None and not entry.store.has_ranges:
            if entry.size > WITHOUT_RANGES:
                raise LimitExceeded(
                    "the server sends no ranges, and the file is too large to be fetched for its header",
                    file=self.shown(name), expected=f"at most {WITHOUT_RANGES} bytes", found=f"{entry.size} bytes",
                    hint="fetch it with another tool, and give the local file",
                )  # fmt: skip
            self.say(f"the server sends no ranges: {name} is fetched whole ({entry.size} bytes)")
            self.fetch([name])
        if entry.have is not None:
            return CachedFile(self.shown(name), cache.blob(entry.have))
        assert entry.store is not None
        return RangedFile(self, name, entry.store)

    def digest(self, name: str) -> Digest | None:
        """The sha256 of a file that was fetched and verified; None where it was not."""
        entry = self.entry(name)
        return None if entry.have is None else Digest(self.shown(name), entry.size, entry.have)

    def fetch(self, names: Iterable[str], progress: Progress | None = None) -> None:
        """Have these files in the cache, verified against their digest where one was given.

        Raises Unreadable for what is not to be had, Corrupt for other content, OutputError when the cache is full,
        Interrupted when ``progress`` says stop. ``progress`` counts the bytes of all the files.
        """
        wanted = [name for name in dict.fromkeys(names) if self.entry(name).have is None]
        progress = progress or Progress()
        progress.total = sum(self.entries[name].size for name in wanted)
        for name in wanted:
            entry, start = self.entries[name], progress.done

            def advance(n: int, name: str = name) -> None:
                progress.add(n, name)

            with self.lock:
                if entry.store is None:
                    assert entry.sha256 is not None
                    entry.have = entry.sha256 if cache.verified(entry.sha256, advance) else None
                    if entry.have is None:
                        raise Unreadable(
                            "the cached file was not what its digest says, and was removed", file=self.shown(name),
                            hint="run again to fetch it anew",
                        )  # fmt: skip
                else:
                    entry.have = cache.fetch(entry.store, entry.url, entry.sha256, advance)
                    entry.size = os.path.getsize(cache.blob(entry.have))
            progress.add(start + entry.size - progress.done, name)


class CachedFile(File):
    """A file of the cache under the name that it has elsewhere."""

    __slots__ = ()

    def __init__(self, shown: str, path: str) -> None:
        super().__init__(path)
        self.path = shown


class RangedFile(ranged.RangedFile):
    """A file that is read where it lies. When it is fetched whole meanwhile, from the cache."""

    __slots__ = ("_ahead", "_blocks", "_end", "_name", "_store", "_tree")

    def __init__(self, tree: RemoteTree, name: str, store: Store) -> None:
        super().__init__(tree.shown(name), tree.size(name))
        self._tree, self._name, self._store = tree, name, store
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._ahead, self._end = GRAIN, -1

    def read(self, offset: int, n: int) -> bytes:
        self._bounds(offset, n)
        with self._tree.lock:
            if self._local is None and self._tree.entry(self._name).have is not None:
                self._local = self._tree.open(self._name)
            if self._local is not None:
                return self._local.read(offset, n)
            return self._ranges(offset, n)

    def _ranges(self, offset: int, n: int) -> bytes:
        first, last = offset // GRAIN, max(offset + n - 1, offset) // GRAIN
        pieces, number = [], first
        while number <= last and n:
            block = self._blocks.get(number)
            if block is None:
                block = self._fetch(number, last)
            else:
                self._blocks.move_to_end(number)
            pieces.append(block)
            number += -(-len(block) // GRAIN)
        start = offset - first * GRAIN
        return b"".join(pieces)[start : start + n]

    def _fetch(self, number: int, last: int) -> bytes:
        """Blocks from ``number`` on: what is needed, and more the longer the file is read in order."""
        start = number * GRAIN
        self._ahead = min(self._ahead * 2, AHEAD) if start == self._end else GRAIN
        wanted = max((last + 1) * GRAIN - start, self._ahead)
        end = min(start + min(wanted, AHEAD), self.size)
        data = self._store.read(start, end)
        self._end = end
        for at in range(0, len(data), GRAIN):
            self._blocks[number + at // GRAIN] = data[at : at + GRAIN]
        while len(self._blocks) * GRAIN > KEPT:
            self._blocks.popitem(last=False)
        return data


def mounted(root: str) -> RemoteTree | None:
    """The tree of ours that is mounted there."""
    found = trees.find(root)
    return found[0] if found is not None and isinstance(found[0], RemoteTree) and not found[1] else None
