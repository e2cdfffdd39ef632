"""Without a connection: what is in the cache serves at its commit, verified, and what is missing is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hub.files import safetensors, sharded
from hub.server import Hub, git_blob

from artifactkit import opening, sources, trees
from artifactkit.errors import Corrupt, Unreadable, UsageError
from artifactkit.hub import HubTree

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def tree_at(root: str) -> HubTree:
    found = trees.find(root)
    assert found is not None and isinstance(found[0], HubTree)
    return found[0]


def cached(hub: Hub, files: dict[str, bytes], only: list[str] | None = None) -> str:
    """A commit whose files (or ``only`` these) are in the cache, fetched from a branch."""
    commit = hub.repo("o/n").commit(files)
    tree_at(sources.locate("hf://o/n@main").path).fetch(only or list(files))
    trees._mounted.clear()
    return commit


def by_hand(cache: Path, files: dict[str, bytes], commit: str = "a" * 40) -> Path:
    """A cache as somebody copies it into an image: blobs and a snapshot of links, and no refs."""
    repo = cache / "models--o--n"
    (repo / "blobs").mkdir(parents=True)
    for name, data in files.items():
        blob = repo / "blobs" / git_blob(data)
        blob.write_bytes(data)
        link = repo / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return repo


def test_a_pinned_commit_needs_no_refs(hub: Hub, here: Path, cut_off: None) -> None:
    """H01: the revision goes to every look-up, so `main` is never looked for."""
    files = sharded(1)
    by_hand(here, files)
    notes: list[str] = []
    root = sources.locate(f"hf://o/n@{'a' * 40}", say=notes.append).path
    opened = opening.open_source(root)
    sources.fetch([*opened.weights.files, *(c.path for c in opened.weights.companions)])
    assert len(opened.weights.tensors) == 3
    assert not hub.requests
    assert len(notes) == 1 and "offline" in notes[0]
    assert not (here / "models--o--n/refs").exists()


def test_a_branch_is_where_it_was(hub: Hub, here: Path, cut_off: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    commit = cached(hub, sharded(1))
    hub.repo("o/n").commit(sharded(2))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    notes: list[str] = []
    located = sources.locate("hf://o/n@main", say=notes.append)
    assert located.commit == commit and located.moved_from == "main"
    assert "main was at this commit when it was last looked up" in notes[0]
    assert sources.locate("hf://o/n").commit == commit


@pytest.mark.parametrize("down", ["closed", "503"])
def test_a_hub_that_is_not_there_is_as_being_offline(hub: Hub, down: str) -> None:
    files = sharded(1)
    commit = cached(hub, files)
    if down == "closed":
        hub.__exit__()
    else:
        hub.fault("", times=999, status=503)
    notes: list[str] = []
    for uri in (f"hf://o/n@{commit}", "hf://o/n@main"):
        root = sources.locate(uri, say=notes.append).path
        assert len(opening.open_source(root).weights.tensors) == 3
    assert all("cannot be reached" in note or "does not work" in note for note in notes)


@pytest.mark.parametrize(
    ("src", "what"),
    [
        ("hf://o/other", "this revision is not in the cache"),
        ("hf://o/n", "this revision is not in the cache"),
        ("hf://o/n@dev", "this revision is not in the cache"),
        ("hf://o/n@" + "b" * 40, "this commit is not in the cache"),
        ("hf://o/n@" + "a" * 40 + "/model.safetensors", "not in the cache, and there is no connection"),
    ],
)
def test_what_is_not_in_the_cache(here: Path, cut_off: None, src: str, what: str) -> None:
    by_hand(here, {"config.json": b"{}"})
    with pytest.raises(Unreadable) as caught:
        sources.locate(src)
    assert what in caught.value.what
    assert caught.value.hint


def test_missing_shards_are_named(hub: Hub, here: Path, cut_off: None) -> None:
    files = sharded(1, shards=4)
    gone = ["model-00002-of-00004.safetensors", "model-00004-of-00004.safetensors"]
    by_hand(here, {name: data for name, data in files.items() if name not in gone})
    with pytest.raises(Unreadable) as caught:
        opening.open_source(sources.locate(f"hf://o/n@{'a' * 40}").path)
    assert caught.value.what == "2 of 4 shards are missing"
    assert all(name in (caught.value.found or "") for name in gone)


def test_links_to_nothing_are_named(here: Path, cut_off: None) -> None:
    files = sharded(1)
    repo = by_hand(here, files)
    name = "model-00002-of-00003.safetensors"
    blob = (repo / "snapshots" / ("a" * 40) / name).resolve()
    blob.unlink()
    root = sources.locate(f"hf://o/n@{'a' * 40}").path
    for work in (
        lambda: opening.open_source(root),
        lambda: sources.fetch([f"{root}/{name}"]),
        lambda: trees.open_file(f"{root}/{name}"),
    ):
        with pytest.raises(Unreadable) as caught:
            work()
        assert "leads nowhere" in caught.value.what
        assert caught.value.file == f"{root}/{name}"
        assert caught.value.expected == str(blob)


def test_everything_missing_is_named_at_once(hub: Hub, cut_off: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    files = sharded(1)
    commit = cached(hub, files)
    for name in ("config.json", "tokenizer.json"):
        Path(constants.HF_HUB_CACHE, "models--o--n/snapshots", commit, name).unlink()
    mine = tree_at(sources.locate(f"hf://o/n@{commit}").path)
    mine.connected = False
    with pytest.raises(Unreadable) as caught:
        mine.fetch(files)
    assert caught.value.found == "no config.json, tokenizer.json"


def test_a_blob_with_other_content_is_found_by_its_name(here: Path, cut_off: None) -> None:
    """H03: a blob named by 64 zeros, with other content; the library hands it out."""
    from huggingface_hub import hf_hub_download

    data = safetensors(1)
    repo = here / "models--o--n"
    link = repo / "snapshots" / ("a" * 40) / "model.safetensors"
    (repo / "blobs").mkdir(parents=True)
    link.parent.mkdir(parents=True)
    blob = repo / "blobs" / ("0" * 64)
    blob.write_bytes(data)
    link.symlink_to(blob)
    assert hf_hub_download("o/n", "model.safetensors", revision="a" * 40) == str(link)
    with pytest.raises(Corrupt) as caught:
        opening.open_source(sources.locate(f"hf://o/n@{'a' * 40}").path)
    error = caught.value
    assert error.file == f"hf://o/n@{'a' * 40}/model.safetensors"
    assert error.expected == "sha256 " + "0" * 64
    assert (error.found or "").startswith("sha256 ") and error.found != error.expected
    assert str(blob) in (error.hint or "")


def test_a_kept_listing_says_digests_where_there_are_no_links(here: Path, cut_off: None) -> None:
    """Caches are copied without links, and then the name of a blob is lost; the library's listing has it."""
    data, config = safetensors(1), b'{"a": 1}'
    repo = by_hand(here, {"config.json": config})
    commit = "a" * 40
    (repo / "snapshots" / commit / "model.safetensors").write_bytes(data)
    notes: list[str] = []
    root = sources.locate(f"hf://o/n@{commit}", say=notes.append).path
    assert any("does not say the digest of 1 of its 2 files" in note for note in notes)
    assert len(opening.open_source(root).weights.tensors) == 2
    listing = {"size": len(data), "blob_id": "0" * 40, "lfs_sha256": "1" * 64, "lfs_size": len(data)}
    (repo / "trees").mkdir()
    (repo / "trees" / f"{commit}.json").write_text(
        json.dumps({"format_version": 1, "files": {"model.safetensors": listing}})
    )
    trees._mounted.clear()
    with pytest.raises(Corrupt, match="not what the hub states"):
        opening.open_source(sources.locate(f"hf://o/n@{commit}").path)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "[" * 5000, '{"format_version": 2}', '{"format_version": 1, "files": 7}',
        '{"format_version": 1, "files": {"model.safetensors": {"size": "x"}}}',
    ],
)  # fmt: skip
def test_a_kept_listing_that_is_none_is_passed_over(here: Path, cut_off: None, text: str) -> None:
    repo = by_hand(here, {"model.safetensors": safetensors(1)})
    (repo / "trees").mkdir()
    (repo / "trees" / f"{'a' * 40}.json").write_text(text)
    assert len(opening.open_source(sources.locate(f"hf://o/n@{'a' * 40}").path).weights.tensors) == 2


def test_a_short_hash_that_the_library_has_kept_as_a_branch(here: Path, cut_off: None) -> None:
    """``hf download --revision abc1234`` leaves refs/abc1234 behind."""
    repo = by_hand(here, {"config.json": b"{}"}, commit="ab" * 20)
    (repo / "refs").mkdir()
    for name in ("ababab", "beef"):
        (repo / "refs" / name).write_text("ab" * 20)
    with pytest.raises(UsageError) as caught:
        sources.locate("hf://o/n@ababab")
    assert f"hf://o/n@{'ab' * 20}" in (caught.value.hint or "")
    assert sources.locate("hf://o/n@beef").commit == "ab" * 20


@pytest.mark.parametrize("content", ["", "main", "../../../x", "A" * 40, "0" * 39, "0" * 41])
def test_a_ref_that_names_no_commit(here: Path, cut_off: None, content: str) -> None:
    repo = by_hand(here, {"config.json": b"{}"})
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(content)
    with pytest.raises(Unreadable, match="this revision is not in the cache"):
        sources.locate("hf://o/n")


def test_a_cache_that_may_only_be_read(hub: Hub, here: Path) -> None:
    """Images come with a cache that nobody may write to: what is there is used all the same."""
    files = sharded(1)
    commit = cached(hub, files)
    shutil.rmtree(here / "models--o--n/refs")
    (here / "models--o--n/refs").write_text("in the way")
    mine = tree_at(sources.locate("hf://o/n@main").path)
    mine.fetch(files)
    assert mine.commit == commit
