"""How files elsewhere are written, and what is refused before anybody is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifactkit import sources
from artifactkit.errors import UsageError
from artifactkit.remote.address import parse

DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("url", "folder", "name", "sha256", "uri"),
    [
        ("https://h/a/b.bin", "https://h/a", "b.bin", None, "https://h/a/b.bin"),
        ("https://h/b.bin", "https://h", "b.bin", None, "https://h/b.bin"),
        (f"https://h/b.bin#sha256={DIGEST}", "https://h", "b.bin", DIGEST, f"https://h/b.bin#sha256={DIGEST}"),
        (f"https://h/b#sha256={'A' * 64}", "https://h", "b", DIGEST, f"https://h/b#sha256={DIGEST}"),
        ("HTTPS://h/a%20b.bin?download=true", "https://h", "a b.bin", None, "https://h/a%20b.bin?download=true"),
        ("https://h/b?X-Amz-Signature=s&x=1", "https://h", "b", None, "https://h/b"),
        ("https://h/b?token=s", "https://h", "b", None, "https://h/b"),
        ("https://h:8443/b", "https://h:8443", "b", None, "https://h:8443/b"),
        (f"http://h/b#sha256={DIGEST}", "http://h", "b", DIGEST, f"http://h/b#sha256={DIGEST}"),
        ("http://127.0.0.1:80/b", "http://127.0.0.1:80", "b", None, "http://127.0.0.1:80/b"),
        ("http://localhost/b", "http://localhost", "b", None, "http://localhost/b"),
        ("http://[::1]/b", "http://[::1]", "b", None, "http://[::1]/b"),
        ("s3://bucket/a/b.bin", "s3://bucket/a", "b.bin", None, "s3://bucket/a/b.bin"),
        (f"memory://a/b#sha256={DIGEST}", "memory://a", "b", DIGEST, f"memory://a/b#sha256={DIGEST}"),
    ],
)  # fmt: skip
def test_what_a_url_says(url: str, folder: str, name: str, sha256: str | None, uri: str) -> None:
    found = parse(url)
    assert (found.folder, found.name, found.sha256, found.uri) == (folder, name, sha256, uri)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://example.com/b", "what comes over http:// can be changed on the way"),
        ("http://127.0.0.1.example.com/b", "what comes over http:// can be changed on the way"),
        ("http://localhost.example.com/b", "what comes over http:// can be changed on the way"),
        ("https://user:pw@h/b", "a URL with a user or password in it would stand in logs and statements"),
        ("https://h/", "the URL names no file: its last part is empty"),
        ("https://h", "the URL names no file: its last part is empty"),
        ("https:///b", "a URL without a host"),
        ("https://h/..", "the URL names no file: its last part is one that leads out of its folder"),
        ("https://h/%2e%2e", "the URL names no file: its last part is one that leads out of its folder"),
        ("https://h/a%2fb%2f..", "the URL names no file: its last part is one that leads out of its folder"),
        ("https://h/a%00b", "the URL names no file: its last part is no name of a file"),
        ("https://h/a%5cb", "the URL names no file: its last part is no name of a file"),
        ("https://h/a\nb", "a URL with a character that none can have"),
        ("https://h/a b", "a URL with a character that none can have"),
        ("https://h/ä", "a URL with a character that none can have"),
        ("https://h:x/b", "not a URL: Port could not be cast to integer value as 'x'"),
        ("https://[::1/b", "not a URL: Invalid IPv6 URL"),
        ("https://h/b#sha256=abc", "what follows # is no digest"),
        ("https://h/b#md5=" + "a" * 64, "what follows # is no digest"),
        (f"https://h/b#sha256={DIGEST}&x=1", "what follows # is no digest"),
        ("ftp://h/b", "nothing is read from ftp://"),
        ("file:///etc/passwd", "nothing is read from file://"),
        ("github://o:r@/b", "nothing is read from github://"),
        ("zip://b::https://h/a.zip", "chained URLs are not read"),
        ("simplecache::s3://b/c", "chained URLs are not read"),
        ("s3://b/c?versionId=1", "a URL of a store has no query"),
    ],
)
def test_what_is_refused(url: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(url)
    assert caught.value.what == what
    assert "pw" not in str(caught.value)


@given(st.text(max_size=40), st.sampled_from(["https://", "http://", "s3://", "https://h/", "http://localhost/"]))
def test_any_text_is_an_address_or_a_usage_error(text: str, start: str) -> None:
    try:
        found = parse(start + text)
    except UsageError:
        return
    assert found.name not in (".", "..") or found.scheme == "s3"
    assert "/" not in found.folder.removeprefix(found.scheme + "://").partition("/")[0]


def test_a_source_that_has_to_be_pinned_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(UsageError) as caught:
        sources.locate("https://127.0.0.1:1/b", require_pinned=True)
    assert (caught.value.exit_code, caught.value.what) == (2, "the source is not pinned")
