"""A file on a web server: ranges where it has them, one try again for what passes, and bounds on all that it says.

``urllib`` of the standard library bounds the headers (http.client: 100 of 64 KiB). Certificates are the system's, and
proxies those of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from .. import __version__
from ..errors import Corrupt, Unreadable
from .address import Address, is_loopback, without_query
from .store import Cut, attempt

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

TIMEOUT = 30.0  # seconds for an answer, or for its next bytes
MAX_REDIRECTS = 5
FIRST = 64 << 10  # bytes that the first request asks for: the header of most files
BLOCK = 1 << 20
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)")


class WebFile:
    """One file of a web server. Made by asking for its first bytes, so that an absent one is told of at once."""

    def __init__(self, address: Address, shown: str) -> None:
        self.address, self.shown = address, shown
        self.size: int | None = None
        self.first = b""
        self._ranges = False
        self._etag = self._modified = ""
        self._probe()

    @property
    def has_ranges(self) -> bool:
        return self._ranges

    @property
    def version(self) -> str:
        """The strong ETag, else the time of the last change together with the size."""
        if self._etag:
            return self._etag
        return f"{self._modified}, {self.size}" if self._modified and self.size is not None else ""

    def _probe(self) -> None:
        def ask() -> None:
            with self._answer({"Range": f"bytes=0-{FIRST - 1}"}) as answer:
                headers = answer.headers
                etag = headers.get("ETag", "")
                self._etag = etag if etag.startswith('"') else ""  # a weak one promises nothing about bytes
                self._modified = headers.get("Last-Modified", "")
                if answer.status == 206:
                    start, end, size = self._range_of(headers)
                    if (start, end) != (0, min(FIRST, size)):
                        raise self._wrong_range(0, FIRST, headers)
                    self._ranges, self.size = True, size
                    self.first = _exactly(answer, end, self.shown)
                elif answer.status == 200:
                    self.size = _length(headers)
                else:
                    raise Unreadable("the server answers otherwise than asked", file=self.shown, found=answer.status)

        try:
            attempt(ask)
        except _Empty:
            self._ranges, self.size = True, 0

    def read(self, start: int, end: int) -> bytes:
        if end <= len(self.first):
            return self.first[start:end]

        def ask() -> bytes:
            with self._answer({"Range": f"bytes={start}-{end - 1}"}) as answer:
                if answer.status != 206:
                    raise Unreadable("the server has no ranges any more", file=self.shown, hint="run again")
                if self._range_of(answer.headers) != (start, end, self.size):
                    raise self._wrong_range(start, end, answer.headers)
                self._check_version(answer.headers)
                return _exactly(answer, end - start, self.shown)

        return attempt(ask)

    def stream(self, start: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-"} if start and self._ranges else {}
        with self._answer(headers) as answer:
            if headers and answer.status == 206:
                at, _, size = self._range_of(answer.headers)
                if at != start or size != self.size:
                    raise self._wrong_range(start, self.size or start, answer.headers)
                self._check_version(answer.headers)
            elif answer.status != 200 or headers:
                raise Unreadable("the server answers otherwise than asked", file=self.shown, found=answer.status)
            while True:
                try:
                    block = answer.read(BLOCK)
                except _transport() as error:
                    raise Cut(_broken(self.shown)) from error
                if not block:
                    return
                yield block

    # -- one answer

    @contextmanager
    def _answer(self, headers: dict[str, str]) -> Iterator[Any]:
        """One request; redirects followed. Raises Cut or Unreadable for an answer that is none."""
        from urllib.error import HTTPError, URLError
        from urllib.request import Request

        url, hops = self.address.url, 0
        while True:
            request = Request(url, headers=self._headers(headers))
            try:
                answer = _opener(url).open(request, timeout=TIMEOUT)
            except HTTPError as error:
                with error:
                    if error.code in (301, 302, 303, 307, 308):
                        hops += 1
                        url = self._next(url, error.headers.get("Location", ""), hops)
                        continue
                    raise self._refused(error.code, error.headers) from error
            except URLError as error:
                raise self._unreached(error.reason) from error
            except _transport() as error:
                raise self._unreached(error) from error
            with answer:
                coding = answer.headers.get("Content-Encoding", "identity")
                if coding.lower() != "identity":
                    raise Unreadable(
                        "the server packs what it was asked to send as it is", file=self.shown, found=coding[:50],
                        hint="fetch the file with another tool, and give the local file",
                    )  # fmt: skip
                yield answer
            return

    def _headers(self, extra: dict[str, str]) -> dict[str, str]:
        return {"User-Agent": f"artifactkit/{__version__}", "Accept-Encoding": "identity", **extra}

    def _next(self, url: str, location: str, hops: int) -> str:
        """Where a redirect leads. It may lead to another host, never to another scheme or to this machine."""
        if hops > MAX_REDIRECTS:
            raise Unreadable("too many redirects", file=self.shown, expected=f"at most {MAX_REDIRECTS}")
        try:
            target = urljoin(url, location.partition("#")[0])
            parts = urlsplit(target)
            fine = bool(parts.hostname) and parts.port != 0
        except ValueError:
            fine = False
        if not location or not fine or not target.isascii() or any(c <= " " for c in target):
            raise Unreadable("the server redirects to nowhere", file=self.shown, found=location[:200] or "no address")
        if parts.scheme != self.address.scheme:
            raise Unreadable(
                "the server redirects to another scheme", file=self.shown, expected=f"{self.address.scheme}://",
                found=without_query(target), hint="give that URL, if it is what you mean",
            )  # fmt: skip
        if is_loopback(parts.hostname) and not self.address.is_loopback:
            raise Unreadable("the server redirects to this machine", file=self.shown, found=without_query(target))
        return target

    def _refused(self, status: int, headers: Any) -> Exception:
        if status == 416 and (match := _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))) and match[3] == "0":
            return _Empty()
        if status in PASSING:
            what = "too many requests" if status == 429 else "the server does not work at the moment"
            error = Unreadable(what, file=self.shown, found=f"status {status}", hint="try again later")
            return Cut(error, _seconds(headers.get("Retry-After", "")))
        if status in (404, 410):
            return Unreadable("no such file on the server", file=self.shown, found=f"status {status}")
        if status in (401, 403):
            return Unreadable(
                "the server does not let us in", file=self.shown, found=f"status {status}",
                hint="fetch the file with a tool that logs in, and give the local file",
            )  # fmt: skip
        return Unreadable("the server refuses", file=self.shown, found=f"status {status}")

    def _unreached(self, reason: object) -> Exception:
        import ssl

        host = urlsplit(self.address.url).hostname
        if isinstance(reason, ssl.SSLCertVerificationError):
            return Unreadable(
                "the server's certificate is not trusted", file=self.shown, found=reason.verify_message,
                hint="check the address, the clock, and SSL_CERT_FILE",
            )  # fmt: skip
        error = Unreadable(
            "the server cannot be reached", file=self.shown, found=f"no answer from {host}",
            hint="check the connection and the address",
        )  # fmt: skip
        return Cut(error)

    # -- what an answer says

    def _range_of(self, headers: Any) -> tuple[int, int, int]:
        """(start, end, size) as Content-Range states them."""
        stated = headers.get("Content-Range", "")
        match = _CONTENT_RANGE.fullmatch(stated)
        if match is None or match[1] is None or match[3] == "*":
            raise Corrupt("the server sends a range and does not say which", file=self.shown, found=stated[:100])
        start, end, size = int(match[1]), int(match[2]) + 1, int(match[3])
        if not start < end <= size:
            raise Corrupt("the server states a range that cannot be", file=self.shown, found=stated[:100])
        return start, end, size

    def _wrong_range(self, start: int, end: int, headers: Any) -> Corrupt:
        return Corrupt(
            "the server sent another range than was asked for, or of another file", file=self.shown, offset=start,
            expected=f"bytes {start}-{end - 1}/{self.size if self.size is not None else '*'}",
            found=headers.get("Content-Range", "none")[:100],
        )  # fmt: skip

    def _check_version(self, headers: Any) -> None:
        etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
        if self._etag and etag.startswith('"'):
            same = etag == self._etag
        else:
            same = not (self._modified and modified) or modified == self._modified
        if not same:
            raise Corrupt("the file changed on the server while it was being read", file=self.shown, hint="run again")


class _Empty(Exception):
    """No range of the file can be had, since it has no bytes."""


def _exactly(answer: IO[bytes], n: int, shown: str) -> bytes:
    """``n`` bytes of the body; Cut when they do not come, Corrupt when more do."""
    found = bytearray()
    try:
        while len(found) < n:
            block = answer.read(min(n - len(found), BLOCK))
            if not block:
                raise Cut(_broken(shown))
            found += block
        more = answer.read(1)
    except _transport() as error:
        raise Cut(_broken(shown)) from error
    if more:
        raise Corrupt("the server sends more than it says", file=shown, expected=f"{n} bytes")
    return bytes(found)


def _broken(shown: str) -> Unreadable:
    return Unreadable("the answer ends too early, each time", file=shown, hint="check the connection, and run again")


def _length(headers: Any) -> int | None:
    stated = headers.get("Content-Length", "")
    return int(stated) if re.fullmatch(r"\d{1,18}", stated) else None


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,6}", text) else 0.0


def _transport() -> tuple[type[Exception], ...]:
    """What a connection that breaks raises."""
    from http.client import HTTPException

    return (HTTPException, ConnectionError, TimeoutError, OSError)


def _opener(url: str) -> OpenerDirector:
    """Asks, and follows nothing by itself."""
    from urllib.request import (
        HTTPDefaultErrorHandler,
        HTTPErrorProcessor,
        HTTPHandler,
        HTTPSHandler,
        OpenerDirector,
        ProxyHandler,
    )

    opener = OpenerDirector()
    # A proxy is not what this machine is asked through.
    proxies = ProxyHandler({}) if is_loopback(urlsplit(url).hostname) else ProxyHandler()
    for handler in (proxies, HTTPHandler(), HTTPSHandler(), HTTPDefaultErrorHandler(), HTTPErrorProcessor()):
        opener.add_handler(handler)
    return opener
