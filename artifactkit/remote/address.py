"""How a file elsewhere is written: ``https://host/path/file#sha256=<digest>``, and the URLs that fsspec knows."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..errors import UsageError

WEB = ("https", "http")
# Storage that fsspec reaches. Its other protocols run commands, unpack archives or lead back to this machine.
STORES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "memory")
SCHEMES = (*WEB, *STORES)

_CHAIN = re.compile(r"::[A-Za-z0-9+]*://")  # fsspec opens what one names through what the other does
_DIGEST = re.compile(r"sha256=([0-9a-fA-F]{64})")
# Parameters by which a signed address is let in: whoever reads a log must not be.
_SECRET = re.compile(r"sig|token|key|password|secret|auth|credential|x-(?:amz|goog|ms)-|^se$|^st$|^sp$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """One place: ``url`` is what is asked for, without the digest; ``sha256`` what has to be there, if given."""

    url: str
    scheme: str
    sha256: str | None
    _parts: SplitResult

    @property
    def folder(self) -> str:
        """What the file lies in, as messages show it: no query, which can hold a secret."""
        return f"{self.scheme}://{self._parts.netloc}" + self._parts.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The file's name."""
        return (
            unquote(self._parts.path.rpartition("/")[2]) if self.scheme in WEB else self._parts.path.rpartition("/")[2]
        )

    @property
    def mark(self) -> str:
        """What tells it from another address of the same folder and name; empty where there is no query."""
        return hashlib.sha256(self._parts.query.encode()).hexdigest()[:8] if self._parts.query else ""

    @property
    def has_secret(self) -> bool:
        """Whether the query holds something that lets its holder in."""
        return any(_SECRET.search(key) for key, _ in parse_qsl(self._parts.query, keep_blank_values=True))

    @property
    def uri(self) -> str:
        """By which it can be had again, with its digest if that is known; a signed query is left out."""
        query = f"?{self._parts.query}" if self._parts.query and not self.has_secret else ""
        pin = f"#sha256={self.sha256}" if self.sha256 else ""
        return f"{self.scheme}://{self._parts.netloc}{self._parts.path}{query}{pin}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine that is asked."""
        return is_loopback(self._parts.hostname)


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine, judged by its name alone."""
    if host is None:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse(text: str) -> Address:
    """Take an address apart. UsageError says what is wrong with it."""
    shown = without_query(text)
    if not text.isascii() or any(c <= " " or c == "\x7f" for c in text):
        raise UsageError(
            "a URL with a character that none can have",
            file=shown,
            hint="write it in percent encoding: %20 for a space",
        )
    whole, mark, fragment = text.partition("#")
    if _CHAIN.search(whole) or (not whole.lower().startswith(("http://", "https://")) and "::" in whole):
        raise UsageError("chained URLs are not read", file=shown, hint="give the URL of the file itself")
    try:
        parts = urlsplit(whole)
        port = parts.port  # raises for one that is no number
    except ValueError as error:
        raise UsageError(f"not a URL: {error}", file=shown) from error
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES:
        raise UsageError(
            f"nothing is read from {scheme}://", file=shown, expected=f"hf://, {', '.join(f'{s}://' for s in SCHEMES)}",
            hint="give a local file or folder",
        )  # fmt: skip
    digest = _DIGEST.fullmatch(fragment)
    if mark and digest is None:
        raise UsageError(
            "what follows # is no digest", file=shown, expected="#sha256= and 64 hexadecimal digits",
            found="#" + fragment[:100], hint="sha256sum FILE prints it",
        )  # fmt: skip
    address = Address(whole, scheme, digest[1].lower() if digest else None, parts._replace(scheme=scheme))
    if scheme in WEB:
        _check_web(address, parts, port, shown)
    elif parts.query:
        raise UsageError("a URL of a store has no query", file=shown)
    return address


def _check_web(address: Address, parts: SplitResult, port: int | None, shown: str) -> None:
    if not parts.hostname or port == 0:
        raise UsageError("a URL without a host", file=shown, expected=f"{address.scheme}://host/path/file")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "a URL with a user or password in it would stand in logs and statements", file=shown,
            hint="fetch the file with a tool that logs in, and give the local file",
        )  # fmt: skip
    problem = bad_name(address.name)
    if problem is not None:
        raise UsageError(f"the URL names no file: its last part is {problem}", file=shown)
    if address.scheme == "http" and address.sha256 is None and not address.is_loopback:
        raise UsageError(
            "what comes over http:// can be changed on the way", file=shown, expected="https://, or #sha256= behind it",
            hint="add #sha256= and the digest of the file, or use https://",
        )  # fmt: skip


def bad_name(name: str) -> str | None:
    """What is wrong with a name that becomes one within a tree, or None."""
    parts = name.split("/")
    if not name:
        return "empty"
    if not name.isprintable() or "\\" in name:
        return "no name of a file"
    if any(part in ("", ".", "..") for part in parts):
        return "one that leads out of its folder"
    if any(len(part.encode("utf-8", "replace")) > 255 for part in parts) or len(name) > 4000:
        return "too long"
    return None


def without_query(text: str) -> str:
    """A URL as it may be shown: no query, no user."""
    plain = re.split(r"[?#]", text, maxsplit=1)[0]
    return re.sub(r"(://)[^/@]*@", r"\1", plain)[:300]
