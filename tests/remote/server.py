"""A web server on loopback that can be told to misbehave, and keeps a record of what it was asked."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Served:
    """One file: its bytes and how they are sent."""

    data: bytes
    ranges: bool = True
    length: bool = True  # whether the answer says how long it is
    etag: str | None = '"v1"'
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 0  # sent instead, while ``times`` lasts
    times: int = 0
    cut: int | None = None  # bytes of the body after which the connection ends, while ``times`` lasts
    content_range: str | None = None  # said instead of the true one
    then: Any = None  # called after an answer


class Web:
    """``url`` is the server's own; ``files`` are by path. ``asked`` are the ranges of all requests, in order."""

    def __init__(self) -> None:
        self.files: dict[str, Served] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.heads: list[dict[str, str]] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are recorded, not printed."""

            def do_GET(self) -> None:
                web.answer(self)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hangs up is no news."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def serve(self, path: str, data: bytes, **how: Any) -> str:
        """Serve ``data``; returns its URL."""
        self.files[path] = Served(data, **how)
        return self.url + path

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.asked.append((request.path, asked))
        self.heads.append(dict(request.headers))
        file = self.files.get(request.path)
        if file is None:
            self._send(request, 404, b"", {})
            return
        cut = None
        if file.times:
            file.times -= 1
            cut = file.cut
            if file.status:
                self._send(request, file.status, b"no", file.headers)
                return
        elif file.status and not file.times and "Location" in file.headers:
            self._send(request, file.status, b"", file.headers)
            return
        data, status, headers = file.data, 200, dict(file.headers)
        if file.etag:
            headers["ETag"] = file.etag
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        if match and file.ranges:
            start, end = int(match[1]), min(int(match[2] or len(data)) + 1, len(data))
            if start >= len(data):
                self._send(request, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            status = 206
            headers["Content-Range"] = file.content_range or f"bytes {start}-{end - 1}/{len(data)}"
            data = data[start:end]
        self._send(request, status, data, headers, cut, file.length)
        if file.then is not None:
            file.then()

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        data: bytes,
        headers: dict[str, str],
        cut: int | None = None,
        length: bool = True,
    ) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if length:
            request.send_header("Content-Length", str(len(data)))
        else:
            request.send_header("Connection", "close")
            request.close_connection = True
        request.end_headers()
        request.wfile.write(data if cut is None else data[:cut])
        if cut is not None:
            request.close_connection = True
