"""A file or folder in a store that fsspec reaches: S3, Google Cloud Storage, Azure, and memory for tests.

Credentials are found by the store's own library in its own places. The words of its errors are not repeated: they may
hold signed addresses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ..errors import Corrupt, LimitExceeded, MissingExtra, Unreadable
from .address import Address, bad_name
from .store import Cut, attempt

MAX_FILES = 10_000
BLOCK = 4 << 20
# The roots of what the libraries raise; a library that is not loaded has raised nothing.
_ERRORS = (
    ("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError"), ("aiohttp", "ClientError"),
    ("google.auth.exceptions", "GoogleAuthError"), ("gcsfs.retry", "HttpError"),
    ("azure.core.exceptions", "AzureError"),
)  # fmt: skip
T = TypeVar("T")


def open_filesystem(address: Address) -> tuple[Any, str]:
    """(the file system, the path in it). MissingExtra when the library for it is not installed."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise _missing(address) from error
    try:
        fs, path = url_to_fs(address.url)
    except ImportError as error:
        raise _missing(address) from error
    except _errors() as error:
        raise _failed(error, address.uri) from error
    return fs, str(path)


def _missing(address: Address) -> MissingExtra:
    return MissingExtra(
        f"reading {address.scheme}:// takes a library that is not installed", file=address.uri,
        hint="pip install 'artifactkit[remote]'",
    )  # fmt: skip


def _errors() -> tuple[type[Exception], ...]:
    found: list[type[Exception]] = [OSError, ValueError, TimeoutError]
    for module, name in _ERRORS:
        known = getattr(sys.modules.get(module), name, None)
        if isinstance(known, type) and issubclass(known, Exception):
            found.append(known)
    return tuple(found)


def _failed(error: Exception, shown: str) -> Unreadable:
    if isinstance(error, FileNotFoundError):
        return Unreadable("no such file or folder in the store", file=shown)
    if isinstance(error, PermissionError):
        return Unreadable(
            "the store does not let us in", file=shown, hint="log in with the store's own tool, as for any other"
        )
    return Unreadable(
        "the store cannot be read", file=shown, found=type(error).__name__,
        hint="check the address, the connection, and the credentials",
    )  # fmt: skip


def called(shown: str, work: Callable[[], T]) -> T:
    """``work()``, its failures as errors of ours."""
    try:
        return work()
    except _errors() as error:
        raise _failed(error, shown) from error


class StoredFile:
    """One file of a store."""

    has_ranges = True

    def __init__(self, fs: Any, path: str, shown: str, info: dict[str, Any]) -> None:
        self._fs, self._path, self.shown = fs, path, shown
        size = info.get("size")
        if not isinstance(size, int) or size < 0:
            raise Corrupt("the store states no size", file=shown, found=str(size)[:50])
        self.size: int | None = size
        keys = ("ETag", "etag", "generation", "VersionId", "version_id", "mtime", "LastModified", "updated", "created")
        stated = [f"{key}={info[key]}" for key in keys if info.get(key)]
        self.version = f"{stated[0]}, {size}" if stated else ""

    def read(self, start: int, end: int) -> bytes:
        data = attempt(lambda: self._part(start, end))
        if len(data) != end - start:
            raise Corrupt(
                "the store sent another range than was asked for", file=self.shown, offset=start,
                expected=f"{end - start} bytes", found=f"{len(data)} bytes",
            )  # fmt: skip
        return data

    def _part(self, start: int, end: int) -> bytes:
        """One answer of the store. Cut when another try may do."""
        try:
            data: bytes = self._fs.cat_file(self._path, start=start, end=end)
        except (ConnectionError, TimeoutError) as error:
            raise Cut(_failed(error, self.shown)) from error
        except _errors() as error:
            raise _failed(error, self.shown) from error
        return data

    def stream(self, start: int) -> Iterator[bytes]:
        size = self.size or 0
        for at in range(start, size, BLOCK):
            data = self._part(at, min(at + BLOCK, size))
            if not data:
                raise Corrupt("the store's file ends too early", file=self.shown, offset=at, expected=f"{size} bytes")
            yield data


def _walked(fs: Any, path: str, shown: str) -> dict[str, dict[str, Any]]:
    """The files below ``path``, folder by folder, so that a store of millions is not listed to its end."""
    found: dict[str, dict[str, Any]] = {}
    for folder, _, files in fs.walk(path, detail=True):
        for name, about in files.items():
            found[f"{folder.rstrip('/')}/{name}"] = about
        if len(found) > MAX_FILES:
            raise LimitExceeded("a folder of too many files", file=shown, expected=f"at most {MAX_FILES}")
    return found


def listing(fs: Any, path: str, shown: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """The files at or below ``path``: relative name (empty for the file itself) -> (path in the store, info)."""
    info = called(shown, lambda: fs.info(path))
    if info.get("type") == "file":
        return {"": (path, info)}
    found = called(shown, lambda: _walked(fs, path, shown))
    prefix = path.rstrip("/") + "/"
    out = {}
    for full, about in sorted(found.items()):
        name = full.removeprefix(prefix)
        if full == path or about.get("type") != "file":
            continue
        problem = bad_name(name)
        if problem is not None or not full.startswith(prefix):
            raise Corrupt(
                f"the store lists a file whose name is {problem or 'elsewhere'}", file=shown, found=full[:200]
            )
        out[name] = (full, about)
    if not out:
        raise Unreadable("no such file or folder in the store", file=shown)
    return out
