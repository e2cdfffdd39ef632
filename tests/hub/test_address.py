"""What is an address of a model on the hub, what is none, and what is said then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.errors import UsageError
from artifactkit.hub.address import Address, bad_name, parse

C = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "repo", "revision", "path"),
    [
        ("hf://o/n", "o/n", None, ""),
        ("hf://o/n/", "o/n", None, ""),
        ("hf://o/n@main", "o/n", "main", ""),
        ("hf://o/n@main/", "o/n", "main", ""),
        ("hf://o/n@v1.0/sub/model.safetensors", "o/n", "v1.0", "sub/model.safetensors"),
        (f"hf://o/n@{C}", "o/n", C, ""),
        (f"hf://o/n@{C.upper()}/x", "o/n", C, "x"),
        ("hf://o/n@refs/pr/1", "o/n", "refs/pr/1", ""),
        ("hf://o/n@refs/pr/12/config.json", "o/n", "refs/pr/12", "config.json"),
        ("hf://o/n@refs%2Fpr%2F1/config.json", "o/n", "refs/pr/1", "config.json"),
        ("hf://o/n@refs/convert/parquet/x", "o/n", "refs/convert/parquet", "x"),
        ("hf://o/n@feature%2Fnew/config.json", "o/n", "feature/new", "config.json"),
        ("hf://o/n@refs/prx", "o/n", "refs", "prx"),
        ("hf://o/n/file@1.bin", "o/n", None, "file@1.bin"),
        ("hf://Open-Org_2/My.Model-7b@abcd", "Open-Org_2/My.Model-7b", "abcd", ""),
    ],
)
def test_understood(text: str, repo: str, revision: str | None, path: str) -> None:
    assert parse(text) == Address(repo, revision, path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hf://", "no owner and name"),
        ("hf://gpt2", "before the name"),
        ("hf://gpt2@main", "before the name"),
        ("hf:///n", "no owner and name"),
        ("hf://o/", "before the name"),
        ("hf://o/@main", "''"),
        ("hf://o/n@", "no revision"),
        ("hf://o/n@/x", "no revision"),
        ("hf://datasets/o/n", "datasets/"),
        ("hf://spaces/o/n", "spaces/"),
        ("hf://o/n@a..b", "no branch"),
        ("hf://o/n@..", "no branch"),
        ("hf://o/n@%2Fetc", "no branch"),
        ("hf://o/n@..%2F..%2Fx", "no branch"),
        ("hf://o/n@a%2F.%2Fb", "no branch"),
        ("hf://o/n@a%00b", "no branch"),
        ("hf://o/n@a b", "no branch"),
        ("hf://o/n@x.lock", "no branch"),
        ("hf://o/n@" + C + "0", "too long"),
        ("hf://o--p/n", "no owner"),
        ("hf://o/n..m", "no name"),
        ("hf://-o/n", "no owner"),
        ("hf://o/n~m", "no name"),
        ("hf://o/" + "n" * 97, "no name"),
        ("hf://o/n/../x", "leads out"),
        ("hf://o/n@main/a/./b", "dot"),
        ("hf://o/n@main//x", "absolute"),
        ("hf://o/n@main/a//b", "empty part"),
        ("hf://o/n/a\\b", "backslash"),
        ("hf://o/n/a\0b", "NUL"),
    ],
)
def test_refused_with_the_right_form(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert why in caught.value.what
    assert caught.value.expected == "hf://owner/name[@revision][/path]"
    assert caught.value.hint is not None and "hf://" in caught.value.hint


@pytest.mark.parametrize(
    ("revision", "short"),
    [("abcd", True), ("ABCDEF12", True), (C[:39], True), ("2024", True), (C, False), ("abc", False), ("main", False)],
)
def test_a_short_hash_is_known_by_its_form(revision: str, short: bool) -> None:
    assert Address("o/n", revision, "").is_short_hash is short


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../b", "a/..", "./a", "a//b", "a/", "a\\b", "..\\x", "C:\\x", "c:x", "a\0b",
             "x" * 256, "/".join(["d" * 200] * 11), "/".join(["d"] * 40), "a\ud800b"],
)  # fmt: skip
def test_names_that_are_no_files_of_a_repository(name: str) -> None:
    assert bad_name(name)


@pytest.mark.parametrize(
    "name", ["a", "config.json", "a/b/c.bin", "..a", "a..b/c", ".gitattributes", "файл.bin", "a b", "ab:c", "é" * 100]
)
def test_names_that_are(name: str) -> None:
    assert bad_name(name) is None


NAME = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9.]{0,5}[A-Za-z0-9])?", fullmatch=True).filter(lambda s: ".." not in s)
REVISION = st.text("abz019_-/", min_size=1, max_size=12)
PATH = st.lists(st.from_regex(r"[a-z@% ]{1,6}", fullmatch=True), max_size=3).map("/".join)


@given(NAME, NAME, REVISION | st.none(), PATH)
def test_written_out_and_read_again(owner: str, name: str, revision: str | None, path: str) -> None:
    """An address that is accepted comes back from its own text; any text either parses or is a usage error."""
    address = Address(f"{owner}/{name}", revision, path)
    try:
        again = parse(address.uri())
    except UsageError:
        return
    assert again == address


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = parse("hf://" + text)
    except UsageError:
        return
    assert parse(address.uri()) == address
    assert not address.path or bad_name(address.path) is None
