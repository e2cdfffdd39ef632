"""How a model repository of the hub is written: ``hf://owner/name[@revision][/path]``.

The revision is a branch, a tag, a full commit, or a pull request's ``refs/pr/1``; a slash in another name is written
``%2F``, as everywhere on the hub (``huggingface_hub.hf_file_system`` reads the same form).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ..errors import UsageError

SCHEME = "hf://"
FORM = "hf://owner/name[@revision][/path]"

MAX_PART = 255  # bytes of one part of a path (limits.h, NAME_MAX)
MAX_DEPTH = 32
MAX_NAME = 2000  # characters; half of what a path may have (limits.h, PATH_MAX) is left to the folder of the cache

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-fA-F]{4,39}")
# Names of owners and repositories, as the hub allows them: 96 characters, no "--" or "..", which its cache reserves.
_NAME = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
# References with a slash of their own that need no %2F.
_SPECIAL = re.compile(r"refs/(?:pr/[0-9]+|convert/[A-Za-z0-9_]+)(?=/|$)")
# What git allows in the name of a reference (git-check-ref-format), and no more.
_REVISION = re.compile(
    r"(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\./-][^\x00-\x20\x7f~^:?*\[\\]{0,199}"
)
_KINDS = ("datasets", "spaces", "models", "kernels")


@dataclass(frozen=True, slots=True)
class Address:
    """A place on the hub: ``repo`` is ``owner/name``, ``revision`` None for the default branch, ``path`` inside."""

    repo: str
    revision: str | None
    path: str

    @property
    def commit(self) -> str | None:
        """The revision, where it is a full commit: 40 hexadecimal digits."""
        return self.revision if self.revision is not None and _COMMIT.fullmatch(self.revision) else None

    @property
    def is_short_hash(self) -> bool:
        """Whether the revision looks like the first digits of a commit."""
        return self.revision is not None and _SHORT.fullmatch(self.revision) is not None

    def uri(self, revision: str | None = None) -> str:
        """The address written out, at ``revision`` where one is given."""
        wanted = revision or self.revision
        at = "" if wanted is None else "@" + _written(wanted)
        return f"{SCHEME}{self.repo}{at}" + (f"/{self.path}" if self.path else "")


def _written(revision: str) -> str:
    return revision if _SPECIAL.fullmatch(revision) else quote(revision, safe="")


def parse(text: str) -> Address:
    """Take an address apart. UsageError says what is wrong with it and shows the right form."""
    rest = text.removeprefix(SCHEME)
    parts = rest.split("/")
    if parts[0] in _KINDS:
        raise _wrong(text, f"{parts[0]}/ comes before the owner", f"models are written hf://{'/'.join(parts[1:4])}")
    if len(parts) < 2 or not parts[0] or not parts[1]:
        found = "no owner" if parts[0] else "nothing"
        raise _wrong(text, "no owner and name of a repository" if not parts[0] else f"{found} before the name")
    owner = parts[0]
    name, at, start = parts[1].partition("@")
    for what, part in (("owner", owner), ("name", name)):
        if _NAME.fullmatch(part) is None:
            raise _wrong(text, f"{part!r} is no {what} of a repository")
    revision: str | None = None
    path = "/".join(parts[2:])
    if at:
        behind = f"{start}/{path}" if len(parts) > 2 else start
        special = _SPECIAL.match(behind)
        revision = special[0] if special else unquote(start)
        if special:
            path = behind[special.end() :].removeprefix("/")
        if not revision:
            raise _wrong(text, "no revision after the @")
        if not revision.isprintable() or _REVISION.fullmatch(revision) is None or revision.endswith(("/", ".")):
            raise _wrong(text, f"{revision!r} is no branch, tag or commit")
        if _COMMIT.fullmatch(revision.lower()):
            revision = revision.lower()
        elif re.fullmatch(r"[0-9a-fA-F]{41,}", revision):
            raise _wrong(text, "the commit is too long; it has 40 hexadecimal digits")
    path = path.rstrip("/")
    problem = bad_name(path) if path else None
    if problem is not None:
        raise _wrong(text, f"the path is {problem}")
    return Address(f"{owner}/{name}", revision, path)


def _wrong(text: str, why: str, hint: str | None = None) -> UsageError:
    return UsageError(
        f"this is no address of a model on the hub: {why}", file=text, expected=FORM,
        hint=hint or "for example hf://openai-community/gpt2@main",
    )  # fmt: skip


def bad_name(name: str) -> str | None:
    """What is wrong with the name of a file in a repository, or None. Such names become paths on this machine."""
    parts = name.split("/")
    if not name:
        return "empty"
    if "\0" in name:
        return "one with a NUL in it"
    if "\\" in name:
        return "one with a backslash in it"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "absolute"
    if ".." in parts or "." in parts:
        return "one that leads out of the repository" if ".." in parts else "one with a dot as a part"
    if "" in parts:
        return "one with an empty part"
    if (
        len(name) > MAX_NAME
        or len(parts) > MAX_DEPTH
        or any(len(p.encode("utf-8", "replace")) > MAX_PART for p in parts)
    ):
        return "too long, or too deep"
    if any("\ud800" <= c <= "\udfff" for c in name):
        return "no text"
    return None
