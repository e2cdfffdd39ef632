"""Files in stores that fsspec reaches, by its memory file system; what is missing says how to get it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifactkit import sources, trees
from artifactkit.errors import Corrupt, LimitExceeded, MissingExtra, Unreadable, UsageError
from artifactkit.remote import fs as fs_
from artifactkit.remote import store as store_
from artifactkit.remote import tree as tree_

fsspec = pytest.importorskip("fsspec")
DATA = random.Random(3).randbytes(200_000)
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def memory(cache: Path) -> Iterator[None]:
    store = fsspec.filesystem("memory")
    store.pipe({"/models/m/config.json": b"{}", "/models/m/deep/model.bin": DATA, "/models/one.bin": DATA})
    yield
    store.rm("/", recursive=True)


def content(path: str) -> bytes:
    file = trees.open_file(path)
    return file.read(0, file.size)


@pytest.mark.parametrize("whole", [0, 1 << 20])
def test_a_file(monkeypatch: pytest.MonkeyPatch, whole: int, cache: Path) -> None:
    monkeypatch.setattr(tree_, "WHOLE", whole)
    found = sources.locate(f"memory://models/one.bin#sha256={SHA}", require_pinned=True)
    assert (found.path, found.uri) == ("memory://models/one.bin", f"memory://models/one.bin#sha256={SHA}")
    assert content(found.path) == DATA
    sources.fetch([found.path])
    assert (cache / "blobs" / SHA).read_bytes() == DATA
    assert content(found.path) == DATA


def test_a_folder() -> None:
    said: list[str] = []
    found = sources.locate("memory://models/m", say=said.append)
    assert len(said) == 1
    assert trees.is_dir(found.path)
    assert trees.listing(found.path) == ["config.json", "deep"]
    assert content(found.path + "/deep/model.bin") == DATA
    with pytest.raises(UsageError, match="not pinned"):
        sources.locate("memory://models/m", require_pinned=True)
    with pytest.raises(Unreadable, match="a digest is of a file"):
        sources.locate(f"memory://models/m#sha256={SHA}")


def test_a_file_and_its_folder_together() -> None:
    one = sources.locate(f"memory://models/m/config.json#sha256={hashlib.sha256(b'{}').hexdigest()}")
    folder = sources.locate("memory://models/m")
    assert content(one.path) == content(folder.path + "/config.json") == b"{}"
    assert trees.sha256(one.path) == hashlib.sha256(b"{}").hexdigest()


def test_what_is_not_there_or_wrong() -> None:
    with pytest.raises(Unreadable, match="no such file or folder in the store"):
        sources.locate("memory://models/none")
    with pytest.raises(Corrupt, match="not what its digest says"):
        content(sources.locate(f"memory://models/one.bin#sha256={'0' * 64}").path)


def test_a_folder_of_too_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs_, "MAX_FILES", 1)
    with pytest.raises(LimitExceeded):
        sources.locate("memory://models/m")


@pytest.mark.parametrize("missing", ["fsspec.core", "s3fs"])
def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra) as caught:
        sources.locate("s3://bucket/key.bin")
    assert (caught.value.exit_code, caught.value.hint) == (4, "pip install 'artifactkit[remote]'")


@pytest.mark.parametrize(("failures", "whole"), [(1, 0), (2, 0), (1, 1 << 20), (99, 0), (99, 1 << 20)])
def test_a_store_that_is_cut_off_is_asked_again(monkeypatch: pytest.MonkeyPatch, failures: int, whole: int) -> None:
    """A few times, in ranges as when a file is fetched whole; then it is an error."""
    monkeypatch.setattr(tree_, "WHOLE", whole)
    monkeypatch.setattr(store_, "FIRST_WAIT", 0.0)
    path = sources.locate("memory://models/one.bin").path
    real, left = fsspec.filesystem("memory").cat_file, [failures]

    def flaky(*args: object, **kwargs: object) -> bytes:
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionResetError("cut")
        found: bytes = real(*args, **kwargs)
        return found

    monkeypatch.setattr(fsspec.filesystem("memory"), "cat_file", flaky)
    if failures < store_.TRIES:
        assert content(path) == DATA
        assert left[0] < 0
    else:
        with pytest.raises(Unreadable, match="the store cannot be read"):
            content(path)
        assert left[0] == failures - store_.TRIES
