"""Files on a web server: what is fetched, what is verified, and everything that a server can do wrong."""

from __future__ import annotations

import hashlib
import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from remote.server import Web

from artifactkit import remote, sources, trees
from artifactkit.errors import ArtifactkitError, Corrupt, Interrupted, LimitExceeded, OutputError, Unreadable
from artifactkit.placing import Progress
from artifactkit.remote import cache as cache_
from artifactkit.remote import tree as tree_
from artifactkit.remote import web as web_

DATA = random.Random(1).randbytes(300_000)
SHA = hashlib.sha256(DATA).hexdigest()


def pinned(url: str, data: bytes = DATA) -> str:
    return f"{url}#sha256={hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a small file is read in ranges."""
    monkeypatch.setattr(tree_, "WHOLE", 0)


def content(path: str) -> bytes:
    file = trees.open_file(path)
    return file.read(0, file.size)


# -- what is right


def test_a_small_file_is_fetched_and_verified_at_once(web: Web, cache: Path) -> None:
    found = remote.mount(pinned(web.serve("/x/m.bin", DATA)))
    assert found.path == f"{web.url}/x/m.bin"
    assert (found.uri, found.pinned) == (f"{web.url}/x/m.bin#sha256={SHA}", True)
    assert (trees.is_file(found.path), trees.is_dir(found.path), trees.size(found.path)) == (True, False, len(DATA))
    assert trees.sha256(found.path) == SHA
    assert content(found.path) == DATA
    assert (cache / "blobs" / SHA).read_bytes() == DATA
    assert not list((cache / "partial").iterdir())


def test_a_pinned_file_in_the_cache_needs_no_server(web: Web, cache: Path) -> None:
    url = pinned(web.serve("/m.bin", DATA))
    content(remote.mount(url).path)
    asked = len(web.asked)
    trees._mounted.clear()
    assert content(remote.mount(url).path) == DATA
    assert len(web.asked) == asked
    # Content that is no longer what its name says is thrown away and fetched again.
    trees._mounted.clear()
    (cache / "blobs" / SHA).write_bytes(b"x" + DATA[1:])
    assert content(remote.mount(url).path) == DATA


def test_headers_are_read_in_ranges(web: Web, in_ranges: None, cache: Path) -> None:
    big = random.Random(2).randbytes(3_000_000)
    path = remote.mount(pinned(web.serve("/m.bin", big), big)).path
    file = trees.open_file(path)
    assert file.size == len(big)
    assert file.read(10, 100) == big[10:110]
    assert file.read(2_900_000, 1000) == big[2_900_000:2_901_000]
    assert file.read(len(big) - 3, 3) == big[-3:]
    assert file.read(len(big), 0) == b""
    sent = sum(int(r.split("-")[1]) - int(r.split("=")[1].split("-")[0]) + 1 for _, r in web.asked if r)
    assert sent < 400_000
    assert not cache.exists()
    # Fetched whole, it is read from the cache.
    sources.fetch([path])
    asked = len(web.asked)
    assert file.read(1_000_000, 1000) == big[1_000_000:1_001_000]
    assert content(path) == big
    assert len(web.asked) == asked


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 299_999), st.integers(0, 200_000)), max_size=8))
def test_any_ranges_are_those_of_the_file(runs: list[tuple[int, int]]) -> None:
    class Memory:
        shown, size, has_ranges, version = "x", len(DATA), True, "v"

        def read(self, start: int, end: int) -> bytes:
            return DATA[start:end]

        def stream(self, start: int) -> Any:
            raise AssertionError

    tree = tree_.RemoteTree("mem://x")
    tree.entries["f"] = tree_.Entry("x", None, len(DATA), Memory())  # type: ignore[arg-type]
    file = tree_.RangedFile(tree, "f", Memory())  # type: ignore[arg-type]
    for offset, n in runs:
        n = min(n, len(DATA) - offset)
        assert file.read(offset, n) == DATA[offset : offset + n]
        space = bytearray(n)
        file.read_into(offset, memoryview(space))
        assert space == DATA[offset : offset + n]


def test_an_unpinned_file_is_fetched_once_for_each_version(web: Web, cache: Path) -> None:
    url = web.serve("/m.bin", DATA)
    said: list[str] = []
    path = sources.locate(url, say=said.append).path
    assert said == [f"{url} is not pinned: #sha256= and the digest behind it would see to it that it stays the same"]
    assert (content(path), trees.sha256(path)) == (DATA, None)
    trees._mounted.clear()
    web.asked.clear()
    assert content(sources.locate(url).path) == DATA
    assert web.asked == [("/m.bin", "bytes=0-65535")]  # a look at the version, and no more
    trees._mounted.clear()
    other = web.serve("/m.bin", DATA[::-1], etag='"v2"')
    assert content(sources.locate(other).path) == DATA[::-1]


def test_files_of_one_folder_do_not_get_in_each_others_way(web: Web, cache: Path) -> None:
    one, two = web.serve("/f/one", b"1"), web.serve("/f/two", b"2")
    first, second = remote.mount(one).path, remote.mount(two).path
    assert (content(first), content(second)) == (b"1", b"2")
    # The same name at another query is another file, and a digest is not taken from a place without one.
    third = web.serve("/f/one?v=2", b"3")
    assert content(remote.mount(third).path) == b"3"
    assert content(remote.mount(pinned(one, b"1")).path) == b"1"
    with pytest.raises(Corrupt):
        content(remote.mount(pinned(one, b"9")).path)
    assert content(first) == b"1"


@pytest.mark.parametrize(
    "how", [{"ranges": False}, {"ranges": False, "length": False}, {"etag": None}, {"etag": 'W/"v"'}]
)
def test_servers_without_ranges_lengths_or_versions(web: Web, in_ranges: None, how: dict[str, Any]) -> None:
    said: list[str] = []
    path = remote.mount(pinned(web.serve("/m.bin", DATA, **how)), say=said.append).path
    assert content(path) == DATA
    if how == {"ranges": False}:
        assert said == [f"the server sends no ranges: m.bin is fetched whole ({len(DATA)} bytes)"]


@pytest.mark.parametrize("how", [{}, {"ranges": False}, {"length": False, "ranges": False}])
def test_an_empty_file(web: Web, how: dict[str, Any]) -> None:
    path = remote.mount(pinned(web.serve("/m.bin", b"", **how), b"")).path
    assert content(path) == b""


def test_without_ranges_a_file_too_large_is_not_fetched_for_its_header(
    web: Web, in_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_, "WITHOUT_RANGES", len(DATA) - 1)
    path = remote.mount(web.serve("/m.bin", DATA, ranges=False)).path
    with pytest.raises(LimitExceeded):
        trees.open_file(path)


# -- what passes, and what is gone on from


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_fault_that_passes_is_waited_out(web: Web, status: int) -> None:
    url = web.serve("/m.bin", DATA, status=status, times=2)
    assert content(remote.mount(url).path) == DATA


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (503, "the server does not work at the moment"),
        (429, "too many requests"),
        (404, "no such file on the server"),
        (410, "no such file on the server"),
        (401, "the server does not let us in"),
        (403, "the server does not let us in"),
        (418, "the server refuses"),
        (204, "the server answers otherwise than asked"),
    ],
)
def test_a_fault_that_does_not(web: Web, status: int, what: str) -> None:
    with pytest.raises(Unreadable) as caught:
        remote.mount(web.serve("/m.bin", DATA, status=status, times=99))
    assert caught.value.what == what


def test_a_wait_that_is_too_long_is_not_waited(web: Web) -> None:
    url = web.serve("/m.bin", DATA, status=503, times=1, headers={"Retry-After": "3600"})
    with pytest.raises(Unreadable):
        remote.mount(url)
    assert len(web.asked) == 1


def test_a_download_goes_on_where_it_was_cut(web: Web, cache: Path) -> None:
    url = web.serve("/m.bin", DATA)
    path = remote.mount(pinned(url)).path
    web.files["/m.bin"].cut, web.files["/m.bin"].times = 100_000, 2
    web.asked.clear()
    progress = Progress()
    sources.fetch([path], progress)
    assert web.asked == [("/m.bin", None), ("/m.bin", "bytes=100000-"), ("/m.bin", "bytes=200000-")]
    assert (progress.done, progress.total) == (len(DATA), len(DATA))
    assert content(path) == DATA


def test_a_download_goes_on_where_another_run_was_ended(web: Web, cache: Path) -> None:
    path = remote.mount(pinned(web.serve("/m.bin", DATA))).path
    web.files["/m.bin"].cut, web.files["/m.bin"].times = 50_000, 1
    progress = Progress()
    progress.on_change = lambda now: now.stop.set() if now.done else None
    with pytest.raises(Interrupted):
        sources.fetch([path], progress)
    (partial,) = (cache / "partial").iterdir()
    assert 0 < partial.stat().st_size < len(DATA)
    had = partial.stat().st_size
    web.asked.clear()
    web.files["/m.bin"].times = 0
    sources.fetch([path])
    assert web.asked == [("/m.bin", f"bytes={had}-")]
    assert content(path) == DATA


def test_what_came_before_is_not_believed(web: Web, cache: Path) -> None:
    """A partial file with other content ends as a wrong digest, is thrown away, and the next run is right."""
    url = pinned(web.serve("/m.bin", DATA))
    key = hashlib.sha256(f"{web.url}/m.bin\0{SHA}".encode()).hexdigest()
    (cache / "partial").mkdir(parents=True)
    (cache / "partial" / key).write_bytes(b"planted")
    path = remote.mount(url).path
    with pytest.raises(Corrupt, match="not what its digest says"):
        content(path)
    assert not list((cache / "partial").iterdir())
    assert content(path) == DATA


def test_without_ranges_a_cut_download_begins_anew(web: Web) -> None:
    path = remote.mount(pinned(web.serve("/m.bin", DATA, ranges=False))).path
    web.files["/m.bin"].cut, web.files["/m.bin"].times = 100_000, 2
    progress = Progress()
    sources.fetch([path], progress)
    assert progress.done == len(DATA)
    assert content(path) == DATA


def test_a_connection_that_always_breaks(web: Web, in_ranges: None) -> None:
    path = remote.mount(pinned(web.serve("/m.bin", DATA))).path
    web.files["/m.bin"].cut, web.files["/m.bin"].times = 0, 99
    with pytest.raises(Unreadable, match="ends too early"):
        sources.fetch([path])
    with pytest.raises(Unreadable, match="ends too early"):
        trees.open_file(path).read(200_000, 10)


def test_two_runs_at_once(web: Web, cache: Path) -> None:
    url = pinned(web.serve("/m.bin", DATA))
    errors: list[ArtifactkitError] = []

    def fetch() -> None:
        try:
            store = web_.WebFile(remote.parse(url), "x")
            assert cache_.fetch(store, store.address.url, SHA) == SHA
        except ArtifactkitError as error:
            errors.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (cache / "blobs" / SHA).read_bytes() == DATA
    assert not list((cache / "partial").iterdir())


# -- what a server can do wrong


def test_a_wrong_digest_keeps_nothing(web: Web, cache: Path) -> None:
    path = remote.mount(pinned(web.serve("/m.bin", DATA), b"other")).path
    with pytest.raises(Corrupt) as caught:
        content(path)
    error = caught.value
    assert (error.exit_code, error.file) == (3, f"{web.url}/m.bin")
    assert error.expected == f"sha256 {hashlib.sha256(b'other').hexdigest()}"
    assert error.found == f"sha256 {SHA}, {len(DATA)} bytes"
    assert not list((cache / "blobs").iterdir())
    assert not list((cache / "partial").iterdir())


def test_a_file_that_changes_while_it_is_read(web: Web, in_ranges: None) -> None:
    path = remote.mount(web.serve("/m.bin", DATA)).path
    file = trees.open_file(path)
    file.read(0, 10)
    web.serve("/m.bin", DATA[::-1], etag='"v2"')
    with pytest.raises(Corrupt, match="changed on the server"):
        file.read(200_000, 10)


@pytest.mark.parametrize(
    ("stated", "what"),
    [
        ("bytes 0-9/10", "more than it says"),
        ("bytes 5-65540/300000", "another range"),
        ("bytes 0-65535/*", "does not say which"),
        ("bytes */300000", "does not say which"),
        ("items 0-1/2", "does not say which"),
        ("bytes 9-3/300000", "cannot be"),
        ("bytes 0-65535/7", "cannot be"),
        ("bytes 0-65535/99999999999999999999999", "does not say which"),
        ("bytes 0-65535/400000", None),
    ],
)
def test_a_range_that_is_not_the_one(web: Web, in_ranges: None, stated: str, what: str | None) -> None:
    url = web.serve("/m.bin", DATA, content_range=stated)
    if what is None:  # only the next answer shows that the size was wrong
        path = remote.mount(url).path
        web.files["/m.bin"].content_range = None
        with pytest.raises(Corrupt, match="another range"):
            trees.open_file(path).read(200_000, 10)
        return
    with pytest.raises(Corrupt, match=what):
        remote.mount(url)


@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("https://127.0.0.1:1/m.bin", "the server redirects to another scheme"),
        ("file:///etc/passwd", "the server redirects to nowhere"),
        ("ftp://h/x", "the server redirects to another scheme"),
        ("", "the server redirects to nowhere"),
        ("http://h:99999/x", "the server redirects to nowhere"),
        ("/m.bin", "too many redirects"),
    ],
)
def test_redirects_that_are_refused(web: Web, location: str, what: str) -> None:
    with pytest.raises(Unreadable) as caught:
        remote.mount(web.serve("/m.bin", DATA, status=302, headers={"Location": location}))
    assert caught.value.what == what


def test_a_redirect_may_lead_to_another_path_or_server(web: Web) -> None:
    other = Web()
    try:
        target = other.serve("/there.bin", DATA)
        url = web.serve("/m.bin", DATA, status=302, headers={"Location": target + "?sig=1"})
        other.files["/there.bin?sig=1"] = other.files["/there.bin"]
        path = remote.mount(pinned(url)).path
        assert path == f"{web.url}/m.bin"
        assert content(path) == DATA
        assert not any("Authorization" in head or "Cookie" in head for head in other.heads)
    finally:
        other.close()


def test_a_server_elsewhere_may_not_redirect_to_this_machine() -> None:
    file = web_.WebFile.__new__(web_.WebFile)
    file.address, file.shown = remote.parse(f"http://example.com/m.bin#sha256={SHA}"), "x"
    with pytest.raises(Unreadable, match="redirects to this machine"):
        file._next("http://example.com/m.bin", "http://127.0.0.1/admin", 1)
    assert file._next("http://example.com/m.bin", "/other", 1) == "http://example.com/other"


def test_a_packed_answer_is_refused(web: Web) -> None:
    with pytest.raises(Unreadable, match="packs what it was asked"):
        remote.mount(web.serve("/m.bin", DATA, headers={"Content-Encoding": "gzip"}))


def test_more_headers_than_anybody_needs(web: Web) -> None:
    with pytest.raises(Unreadable):
        remote.mount(web.serve("/m.bin", DATA, headers={f"X-{n}": "x" for n in range(500)}))


@pytest.mark.parametrize(
    "answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n"]
)
def test_an_answer_that_is_none(cache: Path, answer: bytes) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        with pytest.raises(Unreadable):
            remote.mount(f"http://127.0.0.1:{server.getsockname()[1]}/m.bin")
    finally:
        server.close()


def test_nobody_is_there(cache: Path) -> None:
    with pytest.raises(Unreadable, match="cannot be reached") as caught:
        remote.mount("http://127.0.0.1:1/m.bin?token=s3cr3t")
    assert "s3cr3t" not in str(caught.value)


def test_more_bytes_than_announced(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    path = remote.mount(web.serve("/m.bin", DATA)).path
    web.serve("/m.bin", DATA + b"more", etag='"v1"')
    with pytest.raises(Corrupt):
        sources.fetch([path])


def test_a_file_without_end(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_, "MAX_SIZE", 100_000)
    with pytest.raises(LimitExceeded):
        remote.mount(web.serve("/m.bin", DATA, ranges=False, length=False))


def test_a_cache_that_cannot_be_written(web: Web, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    with pytest.raises(OutputError) as caught:
        content(remote.mount(web.serve("/m.bin", DATA)).path)
    assert caught.value.exit_code == 5


def test_a_link_in_the_place_of_a_partial_file_is_not_followed(web: Web, cache: Path, tmp_path: Path) -> None:
    url = pinned(web.serve("/m.bin", DATA))
    key = hashlib.sha256(f"{web.url}/m.bin\0{SHA}".encode()).hexdigest()
    (cache / "partial").mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (cache / "partial" / key).symlink_to(victim)
    with pytest.raises(ArtifactkitError):
        content(remote.mount(url).path)
    assert victim.read_text() == "mine"


def test_what_to_write_to_have_a_file_again(web: Web) -> None:
    path = sources.locate(web.serve("/m.bin", DATA)).path
    assert sources.uri_of(path) == path
    content(path)
    assert sources.uri_of(path) == f"{path}#sha256={SHA}"
    assert sources.uri_of("/a/path") == "/a/path"
    signed = remote.mount(web.serve("/n.bin?X-Amz-Signature=s", DATA)).path
    assert "Signature" not in sources.uri_of(signed) + signed


def test_converting_from_a_web_server(
    web: Web, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user sees it: the digest is in the command to verify with, and a wrong one writes nothing."""
    from artifactkit.cli.main import main

    monkeypatch.chdir(tmp_path)
    data = (fixtures / "trainer.ckpt").read_bytes()
    url = web.serve("/trainer.ckpt", data)
    assert main(["convert", url, "out.safetensors"]) == 0
    said = capsys.readouterr()
    assert f"note: {url} is not pinned" in said.err
    assert f"--against '{pinned(url, data)}'" in said.out
    assert main(["verify", "out.safetensors", "--against", pinned(url, data)]) == 0
    capsys.readouterr()
    assert main(["convert", pinned(url, b"other"), "other.safetensors"]) == 3
    assert "the file is not what its digest says" in capsys.readouterr().err
    assert not (tmp_path / "other.safetensors").exists()
    assert main(["convert", url, "other.safetensors", "--require-pinned"]) == 2


def test_inspecting_fetches_the_header_alone(
    web: Web, in_ranges: None, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from artifactkit.cli.main import main

    header = b'{"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4000000]}}'
    data = len(header).to_bytes(8, "little") + header + bytes(4_000_000)
    assert main(["inspect", web.serve("/m.safetensors", data)]) == 0
    assert "[1000, 1000]" in capsys.readouterr().out
    assert len(web.asked) <= 3
    assert not cache.exists()
