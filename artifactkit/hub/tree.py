"""One commit of a repository as a mounted tree: read in ranges until files are fetched, from then on in the cache."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import trees
from ..errors import ArtifactkitError, Corrupt, LimitExceeded, Unreadable
from ..files import File
from ..placing import Digest, Progress
from . import cache, client
from .address import Address
from .listing import Entry
from .ranged import WHOLE_WITHOUT_RANGES, Blocks, Ranges, RemoteFile

DOWNLOADS = 3  # tries of a file, each of which the library tries for half a minute
# A file of the cache of up to so many bytes is hashed at once and read there; of a larger one, ranges are quicker.
HASHED_AT_ONCE = 64 << 20


def _nowhere(message: str) -> None:
    """For who does not listen."""


class HubTree:
    """The files of ``repo`` at ``commit``. ``connected`` is False where only the cache is to be had.

    ``say`` is told, in a sentence, of what the user should know: a file fetched whole since the server has no ranges.
    """

    def __init__(
        self,
        repo: str,
        commit: str,
        entries: dict[str, Entry],
        *,
        connected: bool = True,
        revision: str | None = None,
        say: Callable[[str], None] = _nowhere,
    ) -> None:
        self.repo, self.commit, self.connected, self.say = repo, commit, connected, say
        self.revision = revision
        self.lock = threading.RLock()
        self._entries = entries
        self._names = trees.Names(sorted(entries))
        self._blocks = Blocks()
        self._ranges: dict[str, Ranges] = {}
        self._verified: dict[str, cache.Verified] = {}

    @property
    def root(self) -> str:
        return f"hf://{self.repo}@{self.commit}"

    def names(self) -> trees.Names:
        return self._names

    def size(self, name: str) -> int:
        entry = self._entries.get(name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such file in this revision", self.shown(name))
        return entry.size

    def sha256(self, name: str) -> str | None:
        """As the hub states it of a file in large storage, or as it was found when the file was verified."""
        verified = self._verified.get(name)
        return self.entry(name).sha256 or (None if verified is None else verified.sha256)

    def shown(self, name: str) -> str:
        """The path of a file, as messages name it."""
        return f"{self.root}/{name}"

    def entry(self, name: str) -> Entry:
        """What the hub states of a file. Unreadable where there is none."""
        entry = self._entries.get(name)
        if entry is None:
            raise Unreadable("no such file in this revision", file=self.shown(name))
        return entry

    def open(self, name: str) -> File:
        entry = self.entry(name)
        with self.lock:
            if name not in self._verified:
                path = cache.pointer(self.repo, self.commit, name)
                if os.path.isfile(path):
                    if not self.connected or entry.size <= HASHED_AT_ONCE:
                        self._verified[name] = cache.verify(self.shown(name), path, entry)
                elif not self.connected:
                    raise self._missing([name])
            if name in self._verified:
                return self._cached(name)
            ranges = self._ranges.get(name)
            if ranges is None:
                ranges = Ranges(self.repo, self.commit, name, entry, self._blocks)
                self._ranges[name] = ranges
            return RemoteFile(self, name, ranges, lambda why: self._instead(name, why))

    def _cached(self, name: str) -> cache.CachedFile:
        verified = self._verified[name]
        return cache.CachedFile(self.shown(name), verified.path, verified)

    def _instead(self, name: str, why: str) -> File:
        """The file fetched whole, since it cannot be had in ranges."""
        size = self.size(name)
        if size > WHOLE_WITHOUT_RANGES:
            raise LimitExceeded(
                f"{why}, and the file is too large to be fetched for its header",
                file=self.shown(name), expected=f"at most {WHOLE_WITHOUT_RANGES} bytes", found=f"{size} bytes",
                hint=f"fetch it first: hf download {self.repo} {name} --revision {self.commit}",
            )  # fmt: skip
        if name not in self._verified:
            self.say(f"{why}: {name} is fetched whole ({size} bytes)")
            self.fetch([name])
        return self._cached(name)

    def digest(self, name: str) -> Digest | None:
        """The sha256 of a file that was fetched and verified; None where it was not."""
        verified = self._verified.get(name)
        return None if verified is None else Digest(self.shown(name), verified.identity[2], verified.sha256)

    def fetch(self, names: Iterable[str], progress: Progress | None = None) -> None:
        """Have these files in the cache, each verified against what the hub states. What is there is not fetched again.

        Raises Unreadable for what is not to be had, Corrupt for other content, OutputError when the cache is full,
        Interrupted when ``progress`` says stop. ``progress`` counts the bytes of all the files.
        """
        wanted = [name for name in dict.fromkeys(names) if self.entry(name) and name not in self._verified]
        progress = progress or Progress()
        progress.total = sum(self.size(name) for name in wanted)
        if not self.connected:
            self._check_cached(wanted)
        for name in wanted:
            path = cache.pointer(self.repo, self.commit, name)
            if not os.path.isfile(path):
                with self.lock:
                    path = self._download(name, path, progress)
                self._verified[name] = cache.verify(
                    self.shown(name), path, self.entry(name), lambda n: progress.check()
                )
            else:
                self._verified[name] = cache.verify(self.shown(name), path, self.entry(name), _counted(progress, name))
        if wanted and self.connected and self.revision is not None:
            cache.keep_commit(self.repo, self.revision, self.commit)

    def _check_cached(self, names: list[str]) -> None:
        """Without a connection: name everything that is missing, at once."""
        missing = []
        for name in names:
            path = cache.pointer(self.repo, self.commit, name)
            if not os.path.isfile(path):
                if os.path.islink(path):
                    raise cache.dangling(self.shown(name), path)
                missing.append(name)
        if missing:
            raise self._missing(missing)

    def _missing(self, names: list[str]) -> Unreadable:
        path = cache.pointer(self.repo, self.commit, names[0])
        if os.path.islink(path):
            return cache.dangling(self.shown(names[0]), path)
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        return Unreadable(
            "not in the cache, and there is no connection", file=self.root, found=f"no {', '.join(names[:20])}{more}",
            hint=f"with a connection: hf download {self.repo} --revision {self.commit}",
        )  # fmt: skip

    def _download(self, name: str, expected: str, progress: Progress) -> str:
        """Fetch one file through the library; returns its path in the snapshot."""
        from huggingface_hub import hf_hub_download

        from .. import __version__

        shown = self.shown(name)
        before = progress.done

        def work() -> str:
            progress.add(before - progress.done, name)
            found: str = hf_hub_download(
                self.repo, name, revision=self.commit, library_name="artifactkit", library_version=__version__,
                endpoint=client.endpoint(), tqdm_class=_bar(progress, name),
            )  # fmt: skip
            return found

        try:
            path = client.attempt(shown, lambda: _translated(work, shown), progress.stop, DOWNLOADS)
        finally:
            progress.add(0, name)
        if os.path.abspath(path) != os.path.abspath(expected):
            raise Corrupt("the hub answered from another commit", file=shown, expected=expected, found=path)
        progress.add(before + self.size(name) - progress.done, name)
        return path


def _counted(progress: Progress, name: str) -> Callable[[int], None]:
    return lambda n: progress.add(n, name)


def _translated(work: Callable[[], str], shown: str) -> str:
    """What the library raises of its own accord, as an error of ours or one that ``attempt`` knows."""
    from huggingface_hub import errors

    try:
        return work()
    except errors.LocalEntryNotFoundError as error:  # which hides what came before
        cause = error.__cause__
        if isinstance(cause, Exception) and isinstance(cause, (errors.HfHubHTTPError, *client.transport_errors())):
            raise cause from error
        raise Unreadable(
            "the hub's answer lacks what a download needs", file=shown, hint="check HF_ENDPOINT, and proxies"
        ) from error
    except errors.HfHubHTTPError:
        raise
    except client.transport_errors() as error:
        if isinstance(error, ValueError) and "hf_xet" in str(error):
            raise Unreadable(
                "the file is too large to be fetched without Xet", file=shown, hint="pip install hf_xet"
            ) from error
        raise
    except OSError as error:
        if error.errno is None:  # the library found another length than it was told
            raise ConnectionError("cut short") from error
        raise client.not_stored(error, shown) from error
    except RuntimeError as error:  # of the Xet client
        raise ConnectionError("the transfer failed") from error


def _bar(progress: Progress, name: str) -> Any:
    """The class that the library reports to while it fetches; it draws nothing."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(disable=True)  # type: ignore[no-untyped-call]
            start = options.get("initial")
            if isinstance(start, int) and start:
                progress.add(start, name)

        def update(self, n: float | None = 1) -> bool | None:
            progress.add(int(n or 0), name)
            return None

        def update_transfer(self, n: float) -> None:
            """Bytes on the line; what counts is what is written."""

    return Bar


def mount(address: Address, *, say: Callable[[str], None] = _nowhere) -> HubTree:
    """Resolve the revision of ``address`` to a commit, list that commit, and mount it.

    Without a connection, a commit or a branch that is in the cache serves; what the user should know of it is said.
    Raises UsageError for a short hash, Unreadable where nothing is to be had.
    """
    from .listing import files, resolve

    revision = None if address.commit else address.revision or "main"
    if client.offline():
        return _mounted(_from_cache(address, "offline (HF_HUB_OFFLINE)", say, None))
    try:
        commit = resolve(address)
        tree = HubTree(address.repo, commit, files(address.repo, commit), revision=revision, say=say)
    except client.Unreached as error:
        return _mounted(_from_cache(address, "the hub cannot be reached", say, error))
    return _mounted(tree)


def _mounted(tree: HubTree) -> HubTree:
    trees.mount(tree)
    return tree


def _from_cache(address: Address, why: str, say: Callable[[str], None], cause: ArtifactkitError | None) -> HubTree:
    from .listing import check_names, short_hash

    revision = address.revision or "main"
    commit = address.commit or cache.commit_of(address.repo, revision)
    if commit is not None and address.is_short_hash and commit.startswith(revision.lower()):
        raise short_hash(address, commit)
    entries = None if commit is None else cache.snapshot(address.repo, commit)
    if commit is None or entries is None:
        if cause is not None:
            raise cause
        what = "this revision is not in the cache" if commit is None else "this commit is not in the cache"
        which = f" --revision {revision}" if address.revision else ""
        raise Unreadable(
            f"{what}, and connections are forbidden (HF_HUB_OFFLINE)", file=address.uri(),
            expected=cache.folder(address.repo),
            hint=f"with a connection: hf download {address.repo}{which}",
        )  # fmt: skip
    check_names(entries, address.uri())
    moved = "" if address.commit else f"; {revision} was at this commit when it was last looked up"
    unknown = sum(entry.sha256 is None and entry.blob is None for entry in entries.values())
    if unknown:
        say(f"the cache does not say the digest of {unknown} of its {len(entries)} files: these are taken as they are")
    say(f"{why}: {len(entries)} files of {commit} are in the cache{moved}")
    return HubTree(address.repo, commit, entries, connected=False, say=say)


def inside(paths: Iterable[str]) -> Iterator[tuple[HubTree, str]]:
    """(tree, name) of the paths that lead into a mounted commit."""
    for path in paths:
        found = trees.find(path)
        if found is not None and isinstance(found[0], HubTree):
            yield found[0], found[1]
