"""One commit, mounted: what is resolved, listed, read in ranges, fetched and verified, against the hub of the tests."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest
from hub.files import enormous, safetensors, sharded
from hub.server import Content, Hub, git_blob

from artifactkit import opening, sources, trees
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, OutputError, Unreadable, UsageError
from artifactkit.hub import HubTree, client, listing, ranged, tree
from artifactkit.placing import Progress
from artifactkit.scan import walk

pytestmark = pytest.mark.usefixtures("here")


def mounted(uri: str, notes: list[str] | None = None) -> HubTree:
    located = sources.locate(uri, say=(notes if notes is not None else []).append)
    found = trees.find(located.path)
    assert found is not None and isinstance(found[0], HubTree)
    return found[0]


# -- revisions


def test_a_branch_a_tag_a_pull_request_and_a_commit_are_one_commit(hub: Hub) -> None:
    repo = hub.repo("o/n")
    first = repo.commit({"a": b"1"}, tag="v1")
    second = repo.commit({"a": b"2"}, branch="refs/pr/1")
    repo.branches["feature/x"] = second
    for revision, commit in (
        ("", first), ("@main", first), ("@v1", first), (f"@{first}", first), (f"@{second.upper()}", second),
        ("@refs/pr/1", second), ("@refs%2Fpr%2F1", second), ("@feature%2Fx", second),
    ):  # fmt: skip
        located = sources.locate(f"hf://o/n{revision}/a")
        assert located.path == located.uri == f"hf://o/n@{commit}/a"
        assert located.commit == commit
        pinned = revision.lower().lstrip("@") in (first, second)
        assert located.moved_from == (None if pinned else {"": ""}.get(revision, sources_revision(revision)))
        assert trees.open_file(located.path).read(0, 1) == (b"1" if commit == first else b"2")


def sources_revision(text: str) -> str:
    return text[1:].replace("%2F", "/")


def test_a_branch_that_moves_is_resolved_once(hub: Hub) -> None:
    repo = hub.repo("o/n")
    first = repo.commit(sharded(1))
    moved: list[str] = []
    hub.fault(f"GET hub /api/models/o/n/tree/{first}", then=lambda: moved.append(repo.commit(sharded(100))))
    root = sources.locate("hf://o/n@main").path
    assert moved and repo.branches["main"] == moved[0] != first
    mine = mounted(root)
    opened = opening.open_source(root)
    sources.fetch(opened.weights.files)
    assert {r.commit for r in hub.requests if r.name} == {first}
    for name in mine.names():
        assert trees.open_file(f"{root}/{name}").read(0, 4) == repo.commits[first][name].read(0, 4)


def test_a_short_hash_is_refused_with_the_whole(hub: Hub) -> None:
    commit = hub.repo("o/n").commit({"a": b"1"})
    for digits in (7, 39):
        with pytest.raises(UsageError) as caught:
            sources.locate(f"hf://o/n@{commit[:digits]}/a")
        assert f"hf://o/n@{commit}/a" in (caught.value.hint or "")
    with pytest.raises(UsageError):
        sources.locate("hf://o/n@dead")
    # The twin: a branch or tag of that very name.
    hub.repo("o/n").tags[commit[:7]] = commit
    hub.repo("o/n").branches["2024"] = commit
    assert sources.locate(f"hf://o/n@{commit[:7]}").commit == commit
    assert sources.locate("hf://o/n@2024").moved_from == "2024"


def test_require_pinned_shows_the_pinned_address(hub: Hub) -> None:
    commit = hub.repo("o/n").commit({"a": b"1"})
    for src in ("hf://o/n/a", "hf://o/n@main/a"):
        with pytest.raises(sources.NotPinned) as caught:
            sources.locate(src, require_pinned=True)
        assert caught.value.exit_code == 2
        assert caught.value.hint == f"write hf://o/n@{commit}/a"
    assert sources.locate(f"hf://o/n@{commit}/a", require_pinned=True).commit == commit
    assert sources.locate("/somewhere/model.pt", require_pinned=True).path == "/somewhere/model.pt"


@pytest.mark.parametrize(
    ("src", "what"),
    [
        ("hf://o/absent", "no such model"),
        ("hf://o/n@absent", "no such branch"),
        ("hf://o/n@" + "0" * 40, "no such branch"),
        ("hf://o/n/modell.safetensors", "no such file or folder in this revision"),
        ("hf://o/private", "no such model, or a private one"),
    ],
)
def test_what_is_not_there(hub: Hub, src: str, what: str) -> None:
    hub.repo("o/n").commit({"model.safetensors": b"1"})
    hub.repo("o/private").commit({"a": b"1"})
    hub.repo("o/private").private = True
    with pytest.raises(Unreadable) as caught:
        sources.locate(src)
    assert what in caught.value.what
    assert caught.value.hint
    assert caught.value.exit_code == 3


def test_a_missing_file_is_told_with_the_nearest(hub: Hub) -> None:
    commit = hub.repo("o/n").commit({"model.safetensors": b"1"})
    with pytest.raises(Unreadable) as caught:
        sources.locate("hf://o/n/modell.safetensors")
    assert caught.value.hint == f"did you mean hf://o/n@{commit}/model.safetensors?"


# -- listings


def test_a_listing_of_many_pages(hub: Hub) -> None:
    hub.page = 3
    names = {f"d/{i:02}.bin": b"%d" % i for i in range(10)}
    hub.repo("o/n").commit(names)
    assert list(mounted("hf://o/n").names()) == sorted(names)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "file", "path": "../../.bashrc"},
        {"type": "file", "path": "/etc/passwd"},
        {"type": "file", "path": "a/../../b"},
        {"type": "file", "path": "..\\..\\x"},
        {"type": "file", "path": "C:/x"},
        {"type": "file", "path": "a\0b"},
        {"type": "file", "path": "a//b"},
        {"type": "file", "path": ""},
        {"type": "file", "path": "config.json/x"},
        {"type": "file", "path": "config.json"},
        {"type": "file", "path": 7},
        {"type": "file"},
        {"type": "file", "path": "x", "size": -1},
        {"type": "file", "path": "x", "size": "1"},
        {"type": "file", "path": "x", "size": True},
        {"type": "file", "path": "x", "size": 1 << 70},
        {"type": "file", "path": "x", "oid": "zz"},
        {"type": "file", "path": "x", "oid": None},
        {"type": "file", "path": "x", "lfs": {"oid": "0" * 63, "size": 1, "pointerSize": 1}},
        {"type": "file", "path": "x", "lfs": {"oid": "../../x" + "0" * 57, "size": 1}},
        {"type": "file", "path": "x", "lfs": 7},
        7,
    ],
    ids=str,
)
def test_a_hostile_listing_is_refused_as_a_whole(hub: Hub, here: Path, entry: object) -> None:
    repo = hub.repo("o/n")
    repo.commit({"config.json": b"{}"})
    repo.listed = [{"size": 1, "oid": "0" * 40} | entry if isinstance(entry, dict) else entry]
    with pytest.raises(Corrupt) as caught:
        sources.locate("hf://o/n")
    assert "hf://o/n@" in (caught.value.file or "")
    assert not here.exists()
    # The twin.
    repo.listed = [{"type": "file", "size": 1, "oid": "0" * 40, "path": "..a/b"}, {"type": "directory", "path": "../x"}]
    assert "..a/b" in mounted("hf://o/n").names()


def test_a_listing_that_goes_on_elsewhere_would_take_the_token_along(hub: Hub) -> None:
    hub.repo("o/n").commit({"a": b"1"})
    hub.fault("GET hub .*/tree/", status=200, headers={"Link": '<http://127.0.0.1:9/next>; rel="next"'})
    with pytest.raises(Corrupt, match=r"another host|no list"):
        sources.locate("hf://o/n")
    assert mounted("hf://o/n").names() == ("a",)


def test_answers_that_are_no_json(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.repo("o/n").commit({"a": b"1"})
    monkeypatch.setattr(client, "read_bounded", lambda response, limit: b"<html>")
    with pytest.raises(Corrupt, match="no JSON"):
        sources.locate(f"hf://o/n@{commit}")


def test_a_listing_too_long(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repo("o/n").commit({f"{i}": b"1" for i in range(50)})
    monkeypatch.setattr(client, "MAX_ANSWER", 1000)
    with pytest.raises(LimitExceeded):
        sources.locate("hf://o/n")


# -- ranges


def test_a_model_of_a_hundred_gigabytes_is_looked_at_with_a_few_megabytes(hub: Hub, here: Path) -> None:
    commit = hub.repo("o/n").commit(enormous(shards=20, gigabytes=5))
    root = sources.locate("hf://o/n").path
    opened = opening.open_source(root)
    assert opened.weights.nbytes > 99 * 10**9
    assert len(opened.weights.tensors) == 20 * 40
    assert hub.sent() < 2_000_000
    content = [r for r in hub.requests if r.name]
    assert {r.commit for r in content} == {commit}
    assert all(r.range for r in content if r.name and r.name.endswith(".safetensors"))
    assert not here.exists(), "nothing was written to the cache"


def test_read_ahead_grows_and_jumps_stay_small(hub: Hub) -> None:
    data = bytes(range(256)) * (20 << 12)  # 20 MiB
    hub.repo("o/n").commit({"a.bin": data})
    file = trees.open_file(sources.locate("hf://o/n").path + "/a.bin")
    with hub.watched() as found:
        for at in range(0, 10 << 20, 4096):
            assert file.read(at, 4096) == data[at : at + 4096]
    assert len([r for r in found if r.host == "cdn"]) < 14
    with hub.watched() as found:
        assert file.read(15 << 20, 10) == data[15 << 20 :][:10]
        assert file.read((15 << 20) + 5, 10) == data[(15 << 20) + 5 :][:10]
    assert sum(r.sent for r in found) <= ranged.GRAIN
    with hub.watched() as found:  # what was read is kept
        assert file.read(1 << 20, 100_000) == data[1 << 20 :][:100_000]
    assert not found


def test_the_address_behind_a_redirect_serves_again_and_is_asked_anew_when_it_expires(hub: Hub) -> None:
    data = os.urandom(1 << 20)
    hub.repo("o/n").commit({"a.bin": data})
    file = trees.open_file(sources.locate("hf://o/n").path + "/a.bin")
    file.read(0, 10)
    with hub.watched() as found:
        assert file.read(500_000, 10) == data[500_000:][:10]
    assert [r.host for r in found] == ["cdn"]
    hub.fault("GET cdn", status=403)
    with hub.watched() as found:
        assert file.read(700_000, 10) == data[700_000:][:10]
    assert [(r.host, r.status) for r in found] == [("cdn", 403), ("hub", 302), ("cdn", 206)]


def test_any_range_reads_what_the_file_holds(hub: Hub) -> None:
    import random

    data = random.Random(1).randbytes(700_001)
    hub.repo("o/n").commit({"a.bin": data, "empty.bin": b"", "small.bin": data[:5000], "s.txt": data[:300_000]})
    root = sources.locate("hf://o/n").path
    numbers = random.Random(2)
    for name, size in (("a.bin", 700_001), ("small.bin", 5000), ("s.txt", 300_000)):
        for _ in range(60):
            file = trees.open_file(f"{root}/{name}")
            start = numbers.randrange(size + 1)
            n = min(numbers.choice([0, 1, 10, 5000, 70_000, size]), size - start)
            assert file.read(start, n) == data[start : start + n]
            space = bytearray(n)
            file.read_into(start, memoryview(space))
            assert space == data[start : start + n]
            with pytest.raises(ArtifactkitError):
                file.read(start, size - start + 1)
    assert trees.open_file(f"{root}/empty.bin").read(0, 0) == b""


def test_blocks_are_given_up_beyond_the_bound() -> None:
    blocks = ranged.Blocks(limit=4 * ranged.GRAIN)
    blocks.put("a", 0, bytes(3 * ranged.GRAIN))
    assert blocks.get("a", 0) is not None
    blocks.put("b", ranged.GRAIN, bytes(2 * ranged.GRAIN))
    assert [blocks.get("a", i) is not None for i in range(3)] == [True, False, True]
    assert [blocks.get("b", i) is not None for i in range(3)] == [False, True, True]
    blocks.put("b", ranged.GRAIN, bytes(2 * ranged.GRAIN))  # again: counted once
    assert blocks.get("a", 0) is not None


def test_a_server_without_ranges_sends_the_file_whole_and_that_is_said(hub: Hub) -> None:
    data = safetensors(1, rows=4000)
    hub.repo("o/n").commit({"model.safetensors": data})
    hub.fault("GET (hub|cdn)", times=99, no_ranges=True)
    notes: list[str] = []
    root = sources.locate("hf://o/n", say=notes.append).path
    assert opening.open_source(root).weights.nbytes == 2 * 4000 * 32 * 4
    assert any("no ranges" in note and "model.safetensors" in note for note in notes)
    assert len(notes) == 1


def test_a_file_too_large_to_be_fetched_for_its_header(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "WHOLE_WITHOUT_RANGES", 1 << 20)
    hub.repo("o/n").commit({"model.safetensors": safetensors(1, rows=8000)})
    hub.fault("GET (hub|cdn)", times=99, no_ranges=True)
    with pytest.raises(LimitExceeded) as caught:
        opening.open_source(sources.locate("hf://o/n").path)
    assert "hf download" in (caught.value.hint or "")


def test_a_file_of_which_most_is_read_is_fetched_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "MUCH", 1 << 20)
    data = os.urandom(16 << 20)
    hub.repo("o/n").commit({"a.bin": data})
    notes: list[str] = []
    file = trees.open_file(sources.locate("hf://o/n", say=notes.append).path + "/a.bin")
    for at in range(0, len(data), 64 << 10):
        assert file.read(at, 64 << 10) == data[at : at + (64 << 10)]
    file.check_unchanged()
    assert notes == ["most of a.bin is read: a.bin is fetched whole (16777216 bytes)"]
    assert hub.sent() < 2.2 * len(data)


def test_a_small_file_is_verified_though_it_is_not_fetched(hub: Hub) -> None:
    hub.repo("o/n").commit({"config.json": b'{"a": 1}', "small.bin": b"12345678"})
    root = sources.locate("hf://o/n").path
    for name in ("config.json", "small.bin"):
        hub.fault(name, content=b'{"a": 2}', times=2)
        with pytest.raises(Corrupt) as caught:
            trees.open_file(f"{root}/{name}").read(0, 8)
        assert caught.value.file == f"{root}/{name}"
        hub.faults.clear()
    assert trees.open_file(f"{root}/config.json").read(0, 8) == b'{"a": 1}'


@pytest.mark.parametrize("header", [{"Content-Range": "bytes 0-9/1000"}, {"Content-Range": "nonsense"}, {}])
def test_a_range_that_was_not_asked_for(hub: Hub, header: dict[str, str]) -> None:
    hub.repo("o/n").commit({"a.bin": bytes(1 << 20)})
    file = trees.open_file(sources.locate("hf://o/n").path + "/a.bin")
    hub.fault("GET cdn", status=206, headers=header)
    with pytest.raises(Corrupt, match="another range"):
        file.read(100_000, 10)
    assert file.read(100_000, 10) == bytes(10)


def test_an_answer_from_another_commit(hub: Hub) -> None:
    hub.repo("o/n").commit({"a.txt": bytes(1 << 20)})
    file = trees.open_file(sources.locate("hf://o/n").path + "/a.txt")
    hub.fault("GET hub /o/n/resolve", status=200, headers={"X-Repo-Commit": "f" * 40})
    with pytest.raises(Corrupt, match="another commit"):
        file.read(0, 10)


# -- faults that pass, and faults that stay


@pytest.mark.parametrize(
    "fault",
    [{"status": 503}, {"status": 500}, {"status": 429, "headers": {"Retry-After": "0"}}, {"cut": 100}, {"cut": 0}],
    ids=str,
)
def test_faults_that_pass(hub: Hub, fault: dict[str, object]) -> None:
    data = safetensors(1, rows=4000)
    hub.repo("o/n").commit({"model.safetensors": data, "config.json": b"{}"})
    if "status" in fault:
        hub.fault("/api/models/o/n/revision", times=2, **fault)
        hub.fault("/api/models/o/n/tree", times=2, **fault)
    hub.fault("GET (hub|cdn) /o/n", times=3, **fault)
    root = sources.locate("hf://o/n").path
    opened = opening.open_source(root)
    assert opened.weights.nbytes == 2 * 4000 * 32 * 4
    hub.fault("GET cdn /o/n", times=1, **fault)
    mounted(root).fetch(["model.safetensors", "config.json"])
    assert trees.open_file(f"{root}/model.safetensors").read(0, len(data)) == data


def test_a_cut_download_is_resumed_where_it_was_cut(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 64 << 10)
    data = os.urandom(1 << 20)
    hub.repo("o/n").commit({"a.bin": data})
    mine = mounted("hf://o/n")
    hub.fault("GET cdn", cut=300_000)
    with hub.watched() as found:
        mine.fetch(["a.bin"])
    gets = [r for r in found if r.host == "cdn"]
    assert len(gets) == 2 and gets[0].sent == 300_000
    assert gets[1].range is not None and int(gets[1].range.removeprefix("bytes=").rstrip("-")) > 0
    assert mine.open("a.bin").read(0, len(data)) == data


@pytest.mark.parametrize(
    ("fault", "what", "hint"),
    [
        ({"status": 503}, "does not work at the moment", "later"),
        ({"status": 429}, "too many requests", "hf auth login"),
        ({"status": 429, "headers": {"Retry-After": "3600"}}, "too many requests", "3600 seconds"),
        ({"status": 418}, "the hub refuses", None),
    ],
)
def test_faults_that_stay_end_within_bounds(hub: Hub, fault: dict[str, object], what: str, hint: str | None) -> None:
    hub.repo("o/n").commit({"a.bin": bytes(1 << 20)})
    root = sources.locate("hf://o/n").path
    hub.fault("GET hub", times=999, **fault)
    with hub.watched() as found, pytest.raises(Unreadable) as caught:
        trees.open_file(f"{root}/a.bin").read(0, 10)
    assert what in caught.value.what
    assert hint is None or hint in (caught.value.hint or "")
    assert caught.value.file == f"{root}/a.bin"
    assert len(found) <= client.TRIES


def test_nobody_there(hub: Hub) -> None:
    hub.repo("o/n").commit({"a.bin": b"1"})
    hub.__exit__()
    with pytest.raises(Unreadable) as caught:
        sources.locate("hf://o/n")
    assert caught.value.what == "the hub cannot be reached"


# -- who may


def test_a_gated_model(hub: Hub, tmp_path: Path) -> None:
    repo = hub.repo("o/gated")
    repo.commit({"model.safetensors": safetensors(1, rows=4000), "config.json": b"{}"})
    repo.gated = True
    mine = mounted("hf://o/gated")  # the listing of a gated model is public
    for name in mine.names():
        for work in (lambda name=name: mine.open(name).read(0, 2), lambda name=name: mine.fetch([name])):
            with pytest.raises(Unreadable) as caught:
                work()
            assert caught.value.what == "access to this model is gated"
            assert f"{hub.url}/o/gated" in (caught.value.hint or "")
            assert "hf auth login" in (caught.value.hint or "")
    (tmp_path / "token").write_text("hf_goodgoodgood")
    hub.token = "hf_goodgoodgood"
    mine.fetch(mine.names())
    assert mine.open("config.json").read(0, 2) == b"{}"


def test_a_token_that_is_not_taken(hub: Hub, tmp_path: Path) -> None:
    hub.repo("o/n").commit({"a": b"1"})
    hub.token = "hf_good"
    (tmp_path / "token").write_text("hf_badbadbad")
    with pytest.raises(Unreadable) as caught:
        sources.locate("hf://o/n")
    assert caught.value.what == "the hub does not take the token"
    assert "hf_badbadbad" not in str(caught.value)


def test_the_token_goes_to_the_hub_alone(hub: Hub, tmp_path: Path) -> None:
    repo = hub.repo("o/private")
    repo.commit({"model.safetensors": safetensors(1, rows=4000), "config.json": b"{}"})
    repo.private = True
    hub.token = "hf_goodgoodgood"
    (tmp_path / "token").write_text(hub.token)
    mine = mounted("hf://o/private")
    mine.open("model.safetensors").read(0, 100)
    mine.open("model.safetensors").read(500_000, 100)
    mine.fetch(mine.names())
    assert {r.host for r in hub.requests if "authorization" in r.headers} == {"hub"}
    assert any(r.host == "cdn" for r in hub.requests)
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "token"]
    assert written and not any(b"hf_good" in data for data in written)


# -- fetched files


def test_what_is_fetched_is_read_from_the_cache_and_its_digest_known(hub: Hub, here: Path) -> None:
    files = sharded(1, rows=3000)
    commit = hub.repo("o/n").commit(files)
    mine = mounted("hf://o/n")
    assert mine.digest("config.json") is None
    counted: list[int] = []
    progress = Progress(on_change=lambda now: counted.append(now.done))
    mine.fetch(mine.names(), progress)
    assert progress.total == progress.done == sum(map(len, files.values()))
    with hub.watched() as found:
        for name, data in files.items():
            file = mine.open(name)
            assert file.path == f"hf://o/n@{commit}/{name}"
            assert file.read(0, file.size) == data
            digest = mine.digest(name)
            assert digest is not None and digest.sha256 == hashlib.sha256(data).hexdigest() == file.sha256
            assert digest.size == len(data)
        mine.fetch(mine.names())
    assert not found
    assert (here / "models--o--n" / "refs" / "main").read_text() == commit


def test_fetching_again_asks_for_nothing_but_verifies(hub: Hub) -> None:
    hub.repo("o/n").commit({"a.bin": b"1" * 1000, "b.txt": b"2"})
    mounted("hf://o/n").fetch(["a.bin", "b.txt"])
    mine = mounted("hf://o/n")
    with hub.watched() as found:
        mine.fetch(["a.bin", "b.txt"])
    assert not found
    assert mine.digest("a.bin") is not None


@pytest.mark.parametrize(("name", "kind"), [("model.safetensors", "sha256"), ("config.json", "git blob")])
def test_wrong_bytes_of_the_right_length(hub: Hub, name: str, kind: str) -> None:
    files = {"model.safetensors": safetensors(1), "config.json": b'{"a": 1}'}
    hub.repo("o/n").commit(files)
    mine = mounted("hf://o/n")
    other = bytes(reversed(files[name]))
    hub.fault(f"GET (hub|cdn) /o/n/.*{name}", content=other)
    with pytest.raises(Corrupt) as caught:
        mine.fetch([name])
    error = caught.value
    assert error.file == mine.shown(name)
    right = hashlib.sha256(files[name]).hexdigest() if kind == "sha256" else git_blob(files[name])
    wrong = hashlib.sha256(other).hexdigest() if kind == "sha256" else git_blob(other)
    assert (error.expected, error.found) == (f"{kind} {right}", f"{kind} {wrong}")
    # The hint works as it is pasted.
    command = (error.hint or "").split(": rm ")[1]
    os.remove(command)
    mine.fetch([name])
    assert mine.open(name).read(0, len(files[name])) == files[name]


def test_a_cached_blob_with_other_content_is_found(hub: Hub, here: Path) -> None:
    """The library takes what lies under the name of the digest; its length may even be right (H03)."""
    files = {"model.safetensors": safetensors(1, rows=4000), "config.json": b'{"a": 1}'}
    commit = hub.repo("o/n").commit(files)
    mounted("hf://o/n").fetch(files)
    for name, data in files.items():
        blob = (here / "models--o--n/snapshots" / commit / name).resolve()
        blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        mine = mounted("hf://o/n")
        with pytest.raises(Corrupt) as caught:
            mine.open(name).read(0, 1)  # small enough to be hashed rather than read in ranges
        assert str(blob) in (caught.value.hint or "")
        with pytest.raises(Corrupt):
            mine.fetch([name])
        blob.write_bytes(data[:-1])
        with pytest.raises(Corrupt, match="another size"):
            mine.fetch([name])


def test_a_blob_that_changes_after_it_was_verified(hub: Hub, here: Path) -> None:
    data = safetensors(1)
    commit = hub.repo("o/n").commit({"model.safetensors": data})
    mine = mounted("hf://o/n")
    mine.fetch(["model.safetensors"])
    file = mine.open("model.safetensors")
    blob = (here / "models--o--n/snapshots" / commit / "model.safetensors").resolve()
    blob.write_bytes(data)
    os.utime(blob, ns=(1, 1))
    with pytest.raises(Corrupt):
        file.check_unchanged()
    with pytest.raises(Corrupt, match="changed after"):
        mine.open("model.safetensors")


def test_a_large_cached_file_is_read_in_ranges_until_it_is_verified(
    hub: Hub, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "HASHED_AT_ONCE", 1000)
    data = safetensors(1, rows=4000)
    commit = hub.repo("o/n").commit({"model.safetensors": data})
    mounted("hf://o/n").fetch(["model.safetensors"])
    (here / "models--o--n/snapshots" / commit / "model.safetensors").resolve().write_bytes(bytes(len(data)))
    assert len(opening.open_source(sources.locate("hf://o/n").path).weights.tensors) == 2


def test_a_link_to_nothing_is_fetched_anew(hub: Hub, here: Path) -> None:
    data = safetensors(1)
    commit = hub.repo("o/n").commit({"model.safetensors": data})
    mounted("hf://o/n").fetch(["model.safetensors"])
    (here / "models--o--n/snapshots" / commit / "model.safetensors").resolve().unlink()
    mine = mounted("hf://o/n")
    mine.fetch(["model.safetensors"])
    assert mine.open("model.safetensors").read(0, len(data)) == data


def test_a_cache_that_cannot_be_written(hub: Hub, here: Path) -> None:
    hub.repo("o/n").commit({"a.bin": b"1"})
    here.write_text("a file where the folder would be")
    with pytest.raises(OutputError) as caught:
        mounted("hf://o/n").fetch(["a.bin"])
    assert "HF_HOME" in (caught.value.hint or "")


def test_fetching_stops_when_it_is_told_to(hub: Hub) -> None:
    from artifactkit.errors import Interrupted

    hub.repo("o/n").commit({"a.bin": os.urandom(1 << 20), "b.bin": b"1"})
    stop = threading.Event()
    progress = Progress(stop=stop, on_change=lambda now: stop.set())
    mine = mounted("hf://o/n")
    with pytest.raises(Interrupted):
        mine.fetch(["a.bin", "b.bin"], progress)
    mine.fetch(["a.bin", "b.bin"])


def test_two_mounted_commits_stay_apart(hub: Hub) -> None:
    repo = hub.repo("o/n")
    first, second = repo.commit({"a.txt": b"1"}), repo.commit({"a.txt": b"2"})
    roots = [sources.locate(f"hf://o/n@{commit}").path for commit in (first, second)]
    sources.fetch([f"{root}/a.txt" for root in roots])
    assert [trees.open_file(f"{root}/a.txt").read(0, 1) for root in roots] == [b"1", b"2"]


def test_names_know_what_is_among_them(hub: Hub) -> None:
    hub.repo("o/n").commit({"a/b": b"1", "c": b"2"})
    root = sources.locate("hf://o/n").path
    assert trees.listing(root) == ["a", "c"]
    assert trees.is_dir(f"{root}/a") and trees.is_file(f"{root}/a/b") and not trees.exists(f"{root}/d")
    assert trees.size(f"{root}/c") == 1
    with pytest.raises(FileNotFoundError):
        trees.size(f"{root}/d")
    with pytest.raises(Unreadable):
        trees.open_file(f"{root}/a")
    assert trees.sha256(f"{root}/c") is None
    assert Content.of(b"x").sha256 == hashlib.sha256(b"x").hexdigest()


def test_a_tree_of_very_many_folders_is_walked_in_proportion(hub: Hub) -> None:
    names = {f"d{i // 7:05}/e{i % 7}/f": listing.Entry(1, blob="0" * 40) for i in range(40_000)}
    listing.check_names(names, "hf://o/n@x")
    many = HubTree("o/n", "a" * 40, names)
    trees.mount(many)
    found = list(walk._inside(many.root))
    assert [entry.relative for entry in found] == list(many.names())
    assert trees.listing(f"{many.root}/d00001") == [f"e{i}" for i in range(7)]
    assert not trees.is_dir(f"{many.root}/d0000") and not trees.is_dir(f"{many.root}/d00001/e0/f")
