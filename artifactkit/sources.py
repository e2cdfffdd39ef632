"""From what the user calls SRC to what can be opened: a path of this machine, or a path into a mounted tree.

``locate`` pins: a branch becomes a commit here, once, and everything is then read from that commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import trees
from .errors import Unreadable, UsageError

if TYPE_CHECKING:
    from .hub import Address, HubTree
    from .placing import Progress


@dataclass(frozen=True, slots=True)
class Located:
    """A source that is pinned. ``path`` is what to open.

    ``uri`` names it so that it can be had again: ``hf://owner/name@<commit>[/path]``, ``https://...#sha256=...``; None
    for a path of this machine. ``commit`` is the revision's, of a hub repository. ``moved_from`` is the branch, tag or
    nothing that was resolved to it ("" where the default branch was meant, None where the source was pinned already).
    """

    given: str
    path: str
    uri: str | None = None
    commit: str | None = None
    moved_from: str | None = None

    def to_json(self) -> dict[str, object]:
        """What a document says of it beside the source's name; nothing for a path of this machine."""
        return {} if self.uri is None else {"uri": self.uri, "commit": self.commit, "moved_from": self.moved_from}


class NotPinned(UsageError):
    """The source can move, and ``require_pinned`` was given. ``uri`` is where it is now."""

    code = "not-pinned"

    def __init__(self, src: str, uri: str, found: str) -> None:
        super().__init__("the source is not pinned", file=src, expected="a commit", found=found, hint=f"write {uri}")
        self.uri = uri


def _nowhere(message: str) -> None:
    """For who does not listen."""


def locate(src: str, *, require_pinned: bool = False, say: Callable[[str], None] = _nowhere) -> Located:
    """Resolve ``src`` and mount what it is in. No file is fetched, but what a listing takes.

    ``say`` is told, in a sentence, what the user should know of it. UsageError for a source that is not understood, and
    with ``require_pinned`` for a branch; Unreadable when it is not to be had.
    """
    if not trees.is_url(src):
        return Located(src, src)
    scheme = src.partition(trees.SCHEME)[0]
    if scheme.lower() == "hf":
        return _on_the_hub(src, require_pinned, say)
    return _elsewhere(src, require_pinned, say)


def _on_the_hub(src: str, require_pinned: bool, say: Callable[[str], None]) -> Located:
    from . import hub

    address = hub.parse(hub.SCHEME + src.partition(trees.SCHEME)[2])
    tree = hub.mount(address, say=say)
    path = tree.root + (f"/{address.path}" if address.path else "")
    if address.path and not trees.exists(path):
        raise _not_there(tree, address)
    moved_from = None if address.commit else address.revision or ""
    if moved_from is not None and require_pinned:
        name = moved_from or "main"
        raise NotPinned(src, path, f"{name}, which is at {tree.commit} now")
    return Located(src, path, path, tree.commit, moved_from)


def _elsewhere(src: str, require_pinned: bool, say: Callable[[str], None]) -> Located:
    """A file on a web server, or in a store: pinned by its digest, or not at all."""
    from . import remote

    address = remote.parse(src)
    if address.sha256 is None:
        if require_pinned:
            raise UsageError(
                "the source is not pinned", file=address.uri, expected="#sha256= and the file's digest behind it",
                hint="sha256sum FILE prints the digest of a file that was fetched",
            )  # fmt: skip
        say(f"{address.uri} is not pinned: #sha256= and the digest behind it would see to it that it stays the same")
    mounted = remote.mount(src, say=say)
    return Located(src, mounted.path, mounted.uri)


def _not_there(tree: HubTree, address: Address) -> Unreadable:
    from difflib import get_close_matches

    near = get_close_matches(address.path, tree.names(), n=1)
    what = "no such file or folder in this revision"
    if not tree.connected:
        what = "not in the cache, and there is no connection"
    return Unreadable(
        what, file=f"{tree.root}/{address.path}",
        hint=f"did you mean {tree.root}/{near[0]}?" if near else f"artifactkit inspect {tree.root}",
    )  # fmt: skip


def uri_of(path: str) -> str:
    """What to write on a command line to have ``path`` again: a file on a web server with the digest that it has."""
    if trees.find(path) is None:
        return path
    from . import remote

    return remote.uri_of(path)


def fetch(paths: Iterable[str], progress: Progress | None = None) -> int:
    """Have whole, here and verified, those of ``paths`` that lie in mounted trees, before their tensors are read.

    Returns how many bytes they are; 0 where all are files of this machine. What was opened of them before is to be
    opened again: from now on the fetched file answers. Raises what fetching does.
    """
    by_tree: dict[str, tuple[trees.Tree, list[str]]] = {}
    for path in dict.fromkeys(paths):
        found = trees.find(path)
        if found is not None:
            by_tree.setdefault(found[0].root, (found[0], []))[1].append(found[1])
    for tree, names in by_tree.values():
        tree.fetch(names, progress)
    return sum(tree.size(name) for tree, names in by_tree.values() for name in names)
