"""Which commit a revision is, and which files it holds: their names, sizes and digests, as the hub states them.

What the hub says is input like any other. Names become paths on this machine, so a listing with a name that leads out
of the repository is refused as a whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ..errors import Corrupt, LimitExceeded, Unreadable, UsageError
from . import client
from .address import Address, bad_name

MAX_FILES = 200_000
MAX_NAMES = 64 << 20  # characters of all names
MAX_PAGES = 1000
_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a commit. ``sha256`` is that of a file in large storage (LFS, Xet), ``blob`` else git's object id.

    Both are None where only a cache without digests is there to ask.
    """

    size: int
    sha256: str | None = None
    blob: str | None = None


def resolve(address: Address) -> str:
    """The commit that a branch or tag is at now. A full commit is asked for nothing: its listing tells if it is there.

    UsageError for a short hash. Unreached when the hub is not there; Unreadable when it has no such revision.
    """
    if address.commit is not None:
        return address.commit
    if address.is_short_hash:
        _refuse_short(address)
    sha = _commit_of(address)
    if sha is None:
        raise Corrupt("the hub names no commit for this revision", file=address.uri(), expected="40 hexadecimal digits")
    return sha


def _commit_of(address: Address) -> str | None:
    revision = "main" if address.revision is None else address.revision
    url = f"{client.endpoint()}/api/models/{address.repo}/revision/{quote(revision, safe='')}"
    document, _ = client.get_json(url, Address(address.repo, address.revision, "").uri())
    sha = document.get("sha") if isinstance(document, dict) else None
    return sha if isinstance(sha, str) and _SHA1.fullmatch(sha) else None


def _refuse_short(address: Address) -> None:
    """A hash cut short can mean another commit tomorrow. A branch or tag may be called as it looks, though."""
    document, _ = client.get_json(f"{client.endpoint()}/api/models/{address.repo}/refs", address.uri())
    names = [
        item.get("name")
        for kind in ("branches", "tags")
        for item in (document.get(kind) if isinstance(document, dict) else None) or []
        if isinstance(item, dict)
    ]
    if address.revision in names:
        return
    try:
        full = _commit_of(address)
    except Unreadable:
        full = None
    if full is None or not full.startswith((address.revision or "").lower()):
        full = None
    raise short_hash(address, full)


def short_hash(address: Address, full: str | None) -> UsageError:
    """The refusal of a commit that is cut short; ``full`` is the commit that it most likely means."""
    return UsageError(
        "a commit is given by all of its 40 digits; a shorter one can come to mean another", file=address.uri(),
        expected="40 hexadecimal digits, or the name of a branch or tag", found=address.revision,
        hint=f"write {address.uri(full)}" if full else "git log, or the model's page, shows the commits in full",
    )  # fmt: skip


def files(repo: str, commit: str) -> dict[str, Entry]:
    """The files of a commit by name, sorted. Corrupt for a listing that cannot be."""
    what = f"hf://{repo}@{commit}"
    found: dict[str, Entry] = {}
    url: str | None = f"{client.endpoint()}/api/models/{repo}/tree/{commit}"
    params: dict[str, str] | None = {"recursive": "true", "expand": "false"}
    for _ in range(MAX_PAGES):
        if url is None:
            break
        document, url = client.get_json(url, what, params)
        params = None  # the address of the next page has its own
        if not isinstance(document, list):
            raise Corrupt("the hub's listing is no list", file=what, expected="list", found=type(document).__name__)
        for item in document:
            _add(found, item, what)
        if len(found) > MAX_FILES or sum(map(len, found)) > MAX_NAMES:
            raise LimitExceeded("the repository holds too many files", file=what, expected=f"at most {MAX_FILES}")
    else:
        raise LimitExceeded("the hub's listing does not end", file=what, expected=f"at most {MAX_PAGES} pages")
    check_names(found, what)
    return dict(sorted(found.items()))


def _add(found: dict[str, Entry], item: Any, what: str) -> None:
    if not isinstance(item, dict):
        raise Corrupt("an entry of the hub's listing is no object", file=what, found=type(item).__name__)
    if item.get("type", "file") != "file":
        return
    name, lfs = item.get("path"), item.get("lfs")
    if not isinstance(name, str):
        raise Corrupt("the hub lists a file without a name", file=what)
    if name in found:
        raise Corrupt("the hub lists a file twice", file=what, found=name)
    size = item.get("size") if lfs is None else _of(lfs, "size")
    sha256 = None if lfs is None else _of(lfs, "oid")
    blob = item.get("oid") if lfs is None else None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
        raise Corrupt("the hub states no size", file=f"{what}/{name}", expected="bytes", found=size)
    if lfs is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise Corrupt("the hub states no sha256", file=f"{what}/{name}", expected="64 hexadecimal digits", found=sha256)
    if lfs is None and not (isinstance(blob, str) and _SHA1.fullmatch(blob)):
        raise Corrupt("the hub states no digest", file=f"{what}/{name}", expected="40 hexadecimal digits", found=blob)
    found[name] = Entry(size, sha256, blob)


def _of(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def check_names(names: dict[str, Entry], what: str) -> None:
    """Corrupt when a name could not be that of a file below a folder of its own."""
    ordered = sorted(names)
    for name in ordered:
        problem = bad_name(name)
        if problem is not None:
            raise Corrupt(
                f"the hub lists a file whose name is {problem}", file=what, found=name[:200],
                expected="a path within the repository", hint="never trust a model that tries this",
            )  # fmt: skip
        below = bisect_left(ordered, name + "/")
        if below < len(ordered) and ordered[below].startswith(name + "/"):
            raise Corrupt("the hub lists a name as a file and as a folder", file=what, found=name)
