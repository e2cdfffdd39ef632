"""A small hub on loopback: repositories with commits, branches and tags, spoken to by the real huggingface_hub client.

    with Hub() as hub:
        repo = hub.repo("owner/name")
        first = repo.commit({"config.json": b"{}", "model.safetensors": data}, branch="main")
        run(..., env={"HF_ENDPOINT": hub.url})
        hub.requests     # what was asked, in order

Large files (``lfs``: by suffix, as the hub's .gitattributes) are redirected to a second server, as the real hub sends
clients to its CDN, and what headers they carry there is on record too. Faults are set by ``hub.fault(...)``.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

LARGE = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz", ".gguf", ".h5", ".msgpack")
PIECE = 64 << 10


class Content:
    """Bytes of a file that may be far larger than memory: ``size`` and a function of (offset, n)."""

    def __init__(self, size: int, read: Callable[[int, int], bytes], sha256: str | None = None) -> None:
        self.size, self._read, self._sha256 = size, read, sha256

    @classmethod
    def of(cls, data: bytes) -> Content:
        return cls(len(data), lambda offset, n: data[offset : offset + n])

    @classmethod
    def sparse(cls, head: bytes, size: int, sha256: str) -> Content:
        """``head``, then zeros up to ``size``; the digest is made up."""

        def read(offset: int, n: int) -> bytes:
            return (head[offset : offset + n] + b"\0" * n)[:n]

        return cls(size, read, sha256)

    def read(self, offset: int, n: int) -> bytes:
        return self._read(offset, max(0, min(n, self.size - offset)))

    def whole(self) -> bytes:
        return self.read(0, self.size)

    @property
    def sha256(self) -> str:
        self._sha256 = self._sha256 or hashlib.sha256(self.whole()).hexdigest()
        return self._sha256

    @property
    def oid(self) -> str:
        return git_blob(self.whole())


def git_blob(data: bytes) -> str:
    """The object id that git gives a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Request:
    """One request as it came: ``path`` without the query. ``sent`` is the number of bytes of the answer's body."""

    host: str  # hub or cdn
    method: str
    path: str
    headers: Mapping[str, str]
    status: int = 0
    sent: int = 0

    @property
    def range(self) -> str | None:
        return self.headers.get("range")

    @property
    def commit(self) -> str | None:
        """The revision in the path of a file."""
        match = re.search(r"/(?:resolve|cdn)/([^/]+)/", self.path)
        return match[1] if match else None

    @property
    def name(self) -> str | None:
        match = re.search(r"/(?:resolve|cdn)/[^/]+/(.*)", self.path)
        return unquote(match[1]) if match else None


class Repo:
    def __init__(self, name: str) -> None:
        self.name = name
        self.commits: dict[str, dict[str, Content]] = {}
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.gated = False
        self.private = False
        self.listed: list[dict[str, Any]] = []  # further entries of every listing, true or not

    def commit(self, files: Mapping[str, bytes | Content], branch: str | None = "main", tag: str | None = None) -> str:
        """A commit of exactly these files; returns its 40 digits, which follow from the content."""
        contents = {name: c if isinstance(c, Content) else Content.of(c) for name, c in files.items()}
        text = json.dumps([self.name, len(self.commits), sorted((n, c.sha256) for n, c in contents.items())])
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = contents
        if branch is not None:
            self.branches[branch] = sha
        if tag is not None:
            self.tags[tag] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        if revision in self.commits:
            return revision
        found = self.branches.get(revision) or self.tags.get(revision)
        if found is None and re.fullmatch(r"[0-9a-f]{7,39}", revision):  # the real hub takes short hashes, too
            found = next((sha for sha in self.commits if sha.startswith(revision)), None)
        return found


@dataclass
class Fault:
    """What goes wrong, how often, and for which requests (a regular expression on ``METHOD host path``)."""

    where: re.Pattern[str]
    times: int
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None  # bytes of the body after which the connection ends
    content: bytes | None = None  # other bytes
    no_ranges: bool = False
    then: Callable[[], None] | None = None  # called before the answer


class Hub:
    """Both servers. ``url`` is what HF_ENDPOINT is set to."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.token: str | None = None  # that opens gated and private repositories
        self.page = 1000  # entries of one page of a listing
        self._lock = threading.Lock()
        self._hub = _serve(self, "hub")
        self._cdn = _serve(self, "cdn")
        self.url = f"http://127.0.0.1:{self._hub.server_address[1]}"
        # Another host name as well: older clients tell hosts apart without looking at the port.
        self.cdn = f"http://localhost:{self._cdn.server_address[1]}"

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()

    def repo(self, name: str) -> Repo:
        return self.repos.setdefault(name, Repo(name))

    def fault(self, where: str, times: int = 1, **what: Any) -> None:
        self.faults.append(Fault(re.compile(where), times, **what))

    def take_fault(self, text: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times and fault.where.search(text):
                    fault.times -= 1
                    return fault
        return None

    def record(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def sent(self) -> int:
        """Bytes of all bodies."""
        return sum(request.sent for request in self.requests)

    @contextmanager
    def watched(self) -> Iterator[list[Request]]:
        """The requests of the block alone."""
        start = len(self.requests)
        found: list[Request] = []
        yield found
        found += self.requests[start:]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


def _serve(hub: Hub, host: str) -> _Server:
    handler = type("Handler", (_Handler,), {"hub": hub, "host": host})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub
    host: str

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are recorded, not printed."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        self.record = Request(self.host, self.command, url.path, {k.lower(): v for k, v in self.headers.items()})
        self.hub.record(self.record)
        self.fault = self.hub.take_fault(f"{self.command} {self.host} {url.path}")
        if self.fault is not None and self.fault.then is not None:
            self.fault.then()
        if self.fault is not None and self.fault.status:
            self._error(self.fault.status, None, self.fault.headers)
            return
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if self.host == "cdn":
            self._file(url.path, query)
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree|refs)(?:/([^/]+))?", url.path):
            self._api(match[1], match[2], unquote(match[3] or ""), query)
        else:
            self._file(url.path, query)

    # -- who may

    def _repo(self, name: str, content: bool) -> Repo | None:
        """The repository, or None after an answer that refuses it."""
        repo = self.hub.repos.get(name)
        known = self.hub.token is not None and self.record.headers.get("authorization") == f"Bearer {self.hub.token}"
        given = "authorization" in self.record.headers
        if given and self.hub.token is not None and not known:
            self._error(401, None, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif repo is None or (repo.private and not known):
            self._error(404 if given else 401, "RepoNotFound")
        elif repo.gated and content and not known:
            self._error(403 if given else 401, "GatedRepo")
        else:
            return repo
        return None

    # -- what there is

    def _api(self, name: str, what: str, revision: str, query: Mapping[str, str]) -> None:
        repo = self._repo(name, content=False)
        if repo is None:
            return
        if what == "refs":
            self._json({
                "branches": [{"name": n, "targetCommit": c} for n, c in repo.branches.items()],
                "tags": [{"name": n, "targetCommit": c} for n, c in repo.tags.items()],
                "converts": [],
            })  # fmt: skip
            return
        commit = repo.resolve(revision)
        if commit is None:
            self._error(404, "RevisionNotFound")
        elif what == "revision":
            self._json({"id": name, "sha": commit, "siblings": [{"rfilename": n} for n in repo.commits[commit]]})
        else:
            entries = [entry(n, c) for n, c in sorted(repo.commits[commit].items())] + repo.listed
            folders = sorted({n.rsplit("/", 1)[0] for n in repo.commits[commit] if "/" in n})
            entries = [{"type": "directory", "path": n, "size": 0, "oid": "0" * 40} for n in folders] + entries
            start = int(query.get("cursor", "0"))
            page = entries[start : start + self.hub.page]
            more = {}
            if start + self.hub.page < len(entries):
                following = f"{self.hub.url}{urlsplit(self.path).path}?recursive=true&cursor={start + self.hub.page}"
                more = {"Link": f'<{following}>; rel="next"'}
            self._json(page, more)

    def _file(self, path: str, query: Mapping[str, str]) -> None:
        match = re.fullmatch(r"/([^/]+/[^/]+)/(resolve|cdn)/([^/]+)/(.+)", path)
        if match is None:
            self._error(404, None)
            return
        name = unquote(match[4])
        repo = self._repo(match[1], content=True) if self.host == "hub" else self.hub.repos.get(match[1])
        if repo is None:
            return
        commit = repo.resolve(unquote(match[3]))
        if commit is None:
            self._error(404, "RevisionNotFound")
            return
        content = repo.commits[commit].get(name)
        if content is None:
            self._error(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        if self.host == "hub" and name.endswith(LARGE):
            where = f"{self.hub.cdn}/{match[1]}/cdn/{commit}/{quote(name)}?signature=s3cr3t"
            headers = {"X-Repo-Commit": commit, "X-Linked-Etag": f'"{content.sha256}"', "X-Linked-Size": content.size,
                       "ETag": f'"{content.sha256}"', "Location": where}  # fmt: skip
            self._send(302, b"", headers)
            return
        if self.host == "cdn" and query.get("signature") != "s3cr3t":
            self._error(403, None)
            return
        etag = content.sha256 if name.endswith(LARGE) else content.oid
        headers = {"ETag": f'"{etag}"', "Content-Type": "application/octet-stream"}
        if self.host == "hub":
            headers["X-Repo-Commit"] = commit
        self._content(content, headers)

    # -- how it is sent

    def _content(self, content: Content, headers: dict[str, object]) -> None:
        fault = self.fault
        if fault is not None and fault.content is not None:
            content = Content.of(fault.content)
        start, end, status = 0, content.size, 200
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.record.range or "")
        if match and not (fault is not None and fault.no_ranges):
            start, end = int(match[1]), min(int(match[2] or content.size) + (1 if match[2] else 0), content.size)
            if start >= content.size:
                self._error(416, None, {"Content-Range": f"bytes */{content.size}"})
                return
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.size}"
        self._head(status, headers | {"Content-Length": end - start})
        if self.command == "HEAD":
            return
        stop = end if fault is None or fault.cut is None else min(end, start + fault.cut)
        for at in range(start, stop, PIECE):
            data = content.read(at, min(PIECE, stop - at))
            self.record.sent += len(data)
            self.wfile.write(data)
        if stop < end:
            self.close_connection = True

    def _json(self, document: object, headers: Mapping[str, object] = {}) -> None:
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"} | dict(headers))

    def _error(self, status: int, code: str | None, headers: Mapping[str, object] = {}) -> None:
        body = json.dumps({"error": f"{status} {code or ''}"}).encode()
        extra = {"X-Error-Code": code} if code else {}
        self._send(status, body, {"Content-Type": "application/json"} | extra | dict(headers))

    def _send(self, status: int, body: bytes, headers: Mapping[str, object]) -> None:
        self._head(status, dict(headers) | {"Content-Length": len(body)})
        if self.command != "HEAD":
            self.record.sent += len(body)
            self.wfile.write(body)

    def _head(self, status: int, headers: Mapping[str, object]) -> None:
        self.record.status = status
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.end_headers()


def entry(name: str, content: Content) -> dict[str, object]:
    """One file as a listing gives it."""
    out: dict[str, object] = {"type": "file", "path": name, "size": content.size}
    if name.endswith(LARGE):
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{content.sha256}\nsize {content.size}\n"
        out["oid"] = git_blob(pointer.encode())
        out["lfs"] = {"oid": content.sha256, "size": content.size, "pointerSize": len(pointer)}
    else:
        out["oid"] = content.oid
    return out
