"""A file of the hub that is read where it lies: ranges of it, on demand, kept in blocks within a bound.

A reader of headers touches the first kilobytes of a file and perhaps its end. Each request costs a journey, so reading
on in order fetches ahead, twice as much each time; a jump fetches little more than was asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import Corrupt, Unreadable
from ..files import File
from ..ranged import RangedFile
from . import client
from .listing import Entry

if TYPE_CHECKING:
    from .tree import HubTree

GRAIN = 16 << 10  # bytes of a block
FIRST = 32 << 10  # fetched when a file is first touched
WHOLE = 256 << 10  # a file of up to so many bytes is fetched at once, and verified
AHEAD = 4 << 20  # at most, of one request
KEPT = 32 << 20  # bytes of blocks that one tree keeps
MUCH = 64 << 20  # read of one file in ranges, and more than half of it: then it is fetched whole, and read once
# Without ranges a file is fetched whole, were it only for its header: up to so many bytes.
WHOLE_WITHOUT_RANGES = 2 << 30

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class NotInRanges(Exception):
    """The file is to be fetched whole. The text is a sentence that says why."""


class Blocks:
    """The blocks of all files of one tree, those not used for longest given up first."""

    def __init__(self, limit: int = KEPT) -> None:
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._size, self._limit = 0, limit

    def get(self, name: str, number: int) -> bytes | None:
        block = self._kept.get((name, number))
        if block is not None:
            self._kept.move_to_end((name, number))
        return block

    def put(self, name: str, offset: int, data: bytes) -> None:
        """Keep ``data``, which begins on a block; a block that is not whole is the last of its file."""
        for at in range(0, len(data), GRAIN):
            key = (name, (offset + at) // GRAIN)
            self._size -= len(self._kept.pop(key, b""))
            self._kept[key] = block = data[at : at + GRAIN]
            self._size += len(block)
        while self._size > self._limit and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1])


class Ranges:
    """Fetches ranges of one file and remembers how far ahead to fetch, and where the content really lies."""

    def __init__(self, repo: str, commit: str, name: str, entry: Entry, blocks: Blocks) -> None:
        self.repo, self.commit, self.name, self.entry = repo, commit, name, entry
        self.shown = f"hf://{repo}@{commit}/{name}"
        self._blocks = blocks
        self._end, self._ahead = -1, 0
        self._fetched = 0
        self._direct: str | None = None  # where the hub last redirected to, for a while

    def read(self, offset: int, n: int) -> bytes:
        """``n`` bytes at ``offset``, which lie within the file. Raises NotInRanges, or our error for a failure."""
        end = offset + n
        if n == 0:
            return b""
        if self.entry.size <= WHOLE and self._blocks.get(self.name, offset // GRAIN) is None:
            data = self._whole()
            self._blocks.put(self.name, 0, data)
            return data[offset:end]
        first, last = offset // GRAIN, (end - 1) // GRAIN
        pieces: list[bytes] = []
        number = first
        while number <= last:
            block = self._blocks.get(self.name, number)
            if block is None:
                data = self._fetch(number * GRAIN, min((last + 1) * GRAIN, self.entry.size))
                pieces.append(data)
                number += -(-len(data) // GRAIN)
            else:
                pieces.append(block)
                number += 1
        start = offset - first * GRAIN
        return b"".join(pieces)[start : start + n]

    def _fetch(self, start: int, needed: int) -> bytes:
        """From ``start`` at least one block and at most up to what is needed and the read-ahead."""
        if self._end < 0:
            self._ahead = FIRST
        elif start == self._end:
            self._ahead = min(self._ahead * 2, AHEAD)
        else:
            self._ahead = GRAIN
        end = min(max(needed, start + self._ahead), start + AHEAD, self.entry.size)
        end = min(-(-end // GRAIN) * GRAIN, self.entry.size)
        if self._fetched > max(MUCH, self.entry.size // 2) and self.entry.size <= WHOLE_WITHOUT_RANGES:
            raise NotInRanges(f"most of {self.name} is read")
        data = client.attempt(self.shown, lambda: self._request(start, end))
        self._end = end
        self._fetched += len(data)
        self._blocks.put(self.name, start, data)
        return data

    def _whole(self) -> bytes:
        """The content of a small file, verified."""
        data = client.attempt(self.shown, lambda: self._request(0, None))
        entry = self.entry
        expected, found = entry.sha256, hashlib.sha256(data).hexdigest()
        if entry.blob is not None:
            header = b"blob %d\0" % len(data)
            expected, found = entry.blob, hashlib.sha1(header + data, usedforsecurity=False).hexdigest()
        if len(data) != entry.size or (expected is not None and found != expected):
            raise Corrupt(
                "the hub sent other content than it states", file=self.shown,
                expected=f"{expected}, {entry.size} bytes", found=f"{found}, {len(data)} bytes", hint="run again",
            )  # fmt: skip
        return data

    def _request(self, start: int, end: int | None) -> bytes:
        """One request, for bytes ``start`` to ``end``, or for all."""
        from huggingface_hub.errors import HfHubHTTPError

        wanted = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        headers = client.headers(wanted)
        url = client.resolve_url(self.repo, self.commit, self.name)
        if self._direct is not None:
            url = self._direct
            headers.pop("authorization", None)
        try:
            with (
                client.library().get_session().stream("GET", url, headers=headers, timeout=client.timeout()) as response
            ):
                if response.status_code >= 400:
                    client.read_bounded(response, 1 << 20)
                client.library().hf_raise_for_status(response)
                self._check_commit(response)
                data = self._body(response, start, end)
                self._keep_direct(response)
                return data
        except HfHubHTTPError as error:
            if self._direct is None or error.response.status_code in client.PASSING:
                raise
            self._direct = None  # it was signed for some minutes only: ask the hub anew
            return self._request(start, end)

    def _body(self, response: Any, start: int, end: int | None) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            if end is None:
                return client.read_bounded(response, self.entry.size)
            raise NotInRanges("the server sends no ranges")
        if end is None:
            return client.read_bounded(response, self.entry.size)
        if response.status_code != 206:
            raise NotInRanges("the server sends no ranges")
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        stated = (int(match[1]), int(match[2]) + 1) if match else None
        if stated != (start, end) or match is None or match[3] not in ("*", str(self.entry.size)):
            raise Corrupt(
                "the hub sent another range than was asked for, or of another file", file=self.shown, offset=start,
                expected=f"bytes {start}-{end - 1}/{self.entry.size}", found=response.headers.get("Content-Range"),
            )  # fmt: skip
        data = client.read_bounded(response, end - start)
        if len(data) != end - start:
            raise ConnectionError("cut short")
        return data

    def _check_commit(self, response: Any) -> None:
        for answer in (*response.history, response):
            commit = answer.headers.get("X-Repo-Commit")
            if commit is not None and commit != self.commit:
                raise Corrupt(
                    "the hub answered from another commit", file=self.shown, expected=self.commit, found=commit
                )

    def _keep_direct(self, response: Any) -> None:
        if response.history and urlsplit(str(response.url))[:2] != urlsplit(client.endpoint())[:2]:
            self._direct = str(response.url)


class RemoteFile(RangedFile):
    """A file that is read in ranges. What it is read from does not change: it is of one commit."""

    __slots__ = ("_name", "_open_local", "_ranges", "_tree")

    def __init__(self, tree: HubTree, name: str, ranges: Ranges, open_local: Callable[[str], File]) -> None:
        super().__init__(ranges.shown, ranges.entry.size)
        self._tree, self._name, self._ranges, self._open_local = tree, name, ranges, open_local

    def read(self, offset: int, n: int) -> bytes:
        self._bounds(offset, n)
        if self._local is None:
            with self._tree.lock:
                try:
                    return self._ranges.read(offset, n)
                except NotInRanges as error:
                    self._local = self._open_local(str(error))
        if self._local.size != self.size:
            raise Unreadable("the file has another size than the hub states", file=self.path)
        return self._local.read(offset, n)
