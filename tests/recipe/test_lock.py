"""The lock: what it holds, that it stays, what moves it, what drifts, and converting by it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hub.server import Hub
from hypothesis import given
from hypothesis import strategies as st
from remote.server import Web

from artifactkit import sources
from artifactkit.errors import ArtifactkitError, Refused, Unreadable, UsageError
from artifactkit.recipe import lock, lockfile
from artifactkit.recipe.locked import locked
from artifactkit.recipe.lockfile import Lock, LockedFile, LockedSource
from artifactkit.recipe.problems import Invalid
from artifactkit.recipe.read import read

RECIPE = """\
[models.m]
source = "tiny-llama"
[inputs.text]
source = "texts"
[targets.t]
model = "m"
format = "safetensors"
dtype = ["f16", "bf16"]
"""


@pytest.fixture
def folder(tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project: a recipe, a model and two texts."""
    shutil.copytree(fixtures / "tiny-llama", tmp_path / "tiny-llama")
    (tmp_path / "texts" / "deeper").mkdir(parents=True)
    (tmp_path / "texts" / "one.txt").write_text("one\n")
    (tmp_path / "texts" / "deeper" / "two.txt").write_text("two\n")
    (tmp_path / "artifactkit.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def locked_now(upgrade: tuple[str, ...] = ()) -> str:
    """Write the lock as `artifactkit lock` does; returns its text."""
    recipe = read()
    text = lock.text_of(lock.make(recipe, lock.existing(recipe.file), upgrade))
    lock.write(recipe.file, text)
    return text


def drift() -> list[str]:
    """What `artifactkit lock --check` finds."""
    recipe = read()
    old = lock.existing(recipe.file)
    return [f"{change.what}: {change.detail}" for change in lock.changes(old, lock.check(recipe, old))]


# -- what it holds


def test_every_file_that_is_used_is_locked_with_its_digest(folder: Path) -> None:
    (folder / "tiny-llama" / "unrelated.txt").write_text("not used")
    (folder / "tiny-llama" / "training_args.bin").write_bytes(b"not used")
    found = lockfile.parse(locked_now().encode())
    model = found.sources["models.m"]
    assert [file.name for file in model.files] == [
        "README.md", "config.json", "generation_config.json", "modeling_tiny.py", "pytorch_model.bin", "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip
    for file in model.files:
        data = (folder / "tiny-llama" / file.name).read_bytes()
        assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    # Of an input everything is.
    assert [file.name for file in found.sources["inputs.text"].files] == ["deeper/two.txt", "one.txt"]
    assert dict(found.targets["t-f16"]) == {"model": "m", "format": "safetensors", "dtype": "f16"}
    assert {"artifactkit", "python", "numpy", "ml-dtypes", "safetensors"} <= found.tools.keys()
    assert found.tools["python"].count(".") == 1


@pytest.mark.parametrize("source", ["sharded", "sharded/model.safetensors.index.json"])
def test_the_shards_of_an_index_are_used(folder: Path, fixtures: Path, source: str) -> None:
    shutil.copytree(fixtures / "sharded", folder / "sharded")
    index = next(path.name for path in (folder / "sharded").iterdir() if path.name.endswith(".index.json"))
    (folder / "artifactkit.toml").write_text(
        f'[models.m]\nsource = "{source.replace("model.safetensors.index.json", index)}"\n'
    )
    names = {file.name for file in lockfile.parse(locked_now().encode()).sources["models.m"].files}
    shards = set(json.loads((folder / "sharded" / index).read_text())["weight_map"].values())
    assert len(shards) > 1
    if source == "sharded":
        assert names >= shards | {index}
    else:
        assert names == shards | {index}


def test_a_missing_shard_is_told_of(folder: Path, fixtures: Path) -> None:
    shutil.copytree(fixtures / "sharded", folder / "sharded")
    next(path for path in sorted((folder / "sharded").iterdir()) if "-of-" in path.name).unlink()
    (folder / "artifactkit.toml").write_text('[models.m]\nsource = "sharded"\n')
    with pytest.raises(Unreadable, match=r"models\.m: "):
        locked_now()


def test_same_recipe_same_bytes_wherever_it_lies(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = locked_now()
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "deep"
    shutil.copytree(folder, elsewhere)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1, 1))
    (elsewhere / "artifactkit.lock").unlink()
    os.chdir(elsewhere.parent)  # and from whatever folder
    recipe = read("deep/artifactkit.toml")
    text = lock.text_of(lock.make(recipe, None))
    assert text == first
    assert str(folder) not in text
    assert all(line.count("sha256") <= 1 for line in text.splitlines())


def test_a_lock_that_cannot_be_written(folder: Path) -> None:
    with pytest.raises(ArtifactkitError) as caught:
        lock.write("nowhere/artifactkit.toml", "x")
    assert caught.value.exit_code == 5
    (folder / "artifactkit.lock").mkdir()
    with pytest.raises(ArtifactkitError):
        locked_now()
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,6}", fullmatch=True)
line_text = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=10)
file_name = st.lists(
    line_text.filter(lambda t: t not in (".", "..") and "/" not in t and "\\" not in t), min_size=1, max_size=3
).map("/".join)
digests = st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}")
files = st.lists(
    st.builds(LockedFile, file_name, st.integers(0, 2**63 - 1), digests), max_size=4, unique_by=lambda file: file.name
).map(lambda found: tuple(sorted(found, key=lambda file: file.name)))
commits = st.none() | st.integers(0, 2**160 - 1).map(lambda n: f"{n:040x}")
sources_ = st.builds(
    LockedSource, st.sampled_from(["models", "inputs"]), names, line_text, st.none() | line_text, commits,
    st.just({}), files,
)  # fmt: skip
locks = st.builds(
    Lock,
    st.dictionaries(names, line_text, max_size=3),
    st.lists(sources_, max_size=3).map(lambda found: {source.what: source for source in found}),
    st.dictionaries(names, st.dictionaries(line_text, line_text | st.booleans() | st.integers(0, 99), max_size=3)),
)


@given(locks)
def test_a_lock_reads_as_it_was_written(made: Lock) -> None:
    text = lockfile.dump(made)
    assert lockfile.parse(text.encode()) == made
    assert lockfile.dump(lockfile.parse(text.encode())) == text


GOOD = f'schema = 1\n[tools]\n[models.m]\nsource = "m"\nfiles = [{{ name = "a", size = 1, sha256 = "{"0" * 64}" }}]\n'


@pytest.mark.parametrize(
    ("bad", "good", "what"),
    [
        ("schema = 1", "", "artifactkit.lock needs the key 'schema'"),
        ("schema = 1", "schema = true", "`schema` has a wrong value"),
        ("[tools]", "", "artifactkit.lock needs the key 'tools'"),
        ("[tools]", "[tools]\nx = 1", "`x` has a wrong value"),
        ('source = "m"', "", "a model needs the key 'source'"),
        ('source = "m"', 'source = "m"\ncommit = "abc"', "`commit` has a wrong value"),
        ('name = "a"', 'name = "../a"', "a file's name leads out of its source"),
        ('name = "a"', 'name = "/a"', "a file's name leads out of its source"),
        ("size = 1", "size = -1", "`size` has a wrong value"),
        ("0" * 64, "G" * 64, "`sha256` has a wrong value"),
        ("files = [{", "files = {", "`files` has a wrong value"),
        ("files = [", f'files = [{{ name = "a", size = 1, sha256 = "{"0" * 64}" }}, ', "'a' comes twice"),
        ("[tools]", "[tools]\n[targets]\nx = 1", "a target has a wrong value"),
        ("[models.m]", "[model.m]", "artifactkit.lock has no key 'model'"),
    ],
)
def test_a_lock_that_cannot_be_understood(bad: str, good: str, what: str) -> None:
    lockfile.parse(GOOD.encode())
    text = GOOD.replace(bad, good, 1)
    if "files = {" in text:
        text = text.replace("}]", "}")
    with pytest.raises(Invalid) as caught:
        lockfile.parse(text.encode())
    assert any(problem.what == what for problem in caught.value.problems), caught.value.problems
    assert caught.value.hint == "remove it and write it anew (artifactkit lock), and look at what changes"


def test_a_lock_of_a_newer_version_and_one_with_marks_of_a_merge() -> None:
    with pytest.raises(UsageError, match="newer version"):
        lockfile.parse(b"schema = 2\nanything = 1\n")
    with pytest.raises(Invalid) as caught:
        lockfile.parse(GOOD.encode() + b"<<<<<<< ours\n")
    assert caught.value.problems[0].hint == "a merge left its marks here"


# -- what drifts


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return change


DRIFTS: list[tuple[str, Callable[[Path], object], list[str]]] = [
    ("nothing", lambda folder: os.utime(folder / "tiny-llama" / "config.json", (5, 5)), []),
    ("a comment", edit("artifactkit.toml", "[inputs.text]", "# text\n[inputs.text]"), []),
    (
        "content",
        lambda folder: (folder / "texts" / "one.txt").write_text("eno\n"),
        ["inputs.text: texts: files changed"],
    ),
    ("a file more", lambda folder: (folder / "texts" / "x").write_text(""), ["inputs.text: texts: files changed"]),
    (
        "a file less",
        lambda folder: (folder / "tiny-llama" / "tokenizer.json").unlink(),
        ["models.m: tiny-llama: files changed"],
    ),
    (
        "another dtype",
        edit("artifactkit.toml", '"bf16"', '"f32"'),
        ["targets.t-bf16: removed: the recipe does not name it", "targets.t-f32: added"],
    ),
    (
        "another option",
        edit("artifactkit.toml", "dtype", 'max-shard-size = "5GB"\ndtype'),
        [f'targets.t-{d}: max-shard-size = "5GB" added' for d in ("bf16", "f16")],
    ),
    (
        "another source",
        edit("artifactkit.toml", '"texts"', '"texts/one.txt"'),
        ["inputs.text: texts -> texts/one.txt"],
    ),
    (
        "an input less",
        edit("artifactkit.toml", '[inputs.text]\nsource = "texts"\n', ""),
        ["inputs.text: removed: the recipe does not name it"],
    ),
    (
        "a key of a model",
        edit("artifactkit.toml", '"tiny-llama"', '"tiny-llama"\nall = true'),
        ["models.m: all = true added"],
    ),
    (
        "a source elsewhere",
        edit("artifactkit.toml", "[inputs.text]", '[models.hub]\nsource = "hf://o/n"\nrevision = "v1"\n[inputs.text]'),
        ["models.hub: not locked: hf://o/n at v1"],
    ),
    (
        "another version",
        edit("artifactkit.lock", 'python = "3.', 'python = "2.'),
        ["tools.python: 2.{minor} -> 3.{minor}"],
    ),
    (
        "a digest in the lock",
        edit("artifactkit.lock", "size = 4, sha256", "size = 5, sha256"),
        ["inputs.text: texts: files changed"],
    ),
]


@pytest.mark.parametrize(("change", "said"), [d[1:] for d in DRIFTS], ids=[d[0] for d in DRIFTS])
def test_what_drifts_is_said(folder: Path, change: Callable[[Path], object], said: list[str]) -> None:
    import sys

    locked_now()
    assert drift() == []
    change(folder)
    assert drift() == [line.format(minor=sys.version_info.minor) for line in said]


def test_a_tool_that_is_not_installed_here_is_no_drift(folder: Path) -> None:
    edit("artifactkit.toml", 'format = "safetensors"', 'format = "tensorrt"')(folder)
    locked_now()
    text = (folder / "artifactkit.lock").read_text()
    assert "\ntensorrt = " not in text
    (folder / "artifactkit.lock").write_text(text.replace("[tools]\n", '[tools]\ntensorrt = "11.0"\n'))
    recipe = read()
    state = lock.check(recipe, lock.existing(recipe.file))
    assert state.absent == ("tensorrt",)
    assert lock.changes(lock.existing(recipe.file), state) == []


def test_files_are_told_apart_one_by_one(folder: Path) -> None:
    locked_now()
    (folder / "texts" / "one.txt").write_text("longer\n")
    (folder / "texts" / "deeper" / "two.txt").unlink()
    (folder / "texts" / "three.txt").write_text("3")
    recipe = read()
    (change,) = lock.changes(lock.existing(recipe.file), lock.check(recipe, lock.existing(recipe.file)))
    assert [(f.sign, f.name, f.before and f.before.size, f.after and f.after.size) for f in change.files] == [
        ("-", "deeper/two.txt", 4, None), ("~", "one.txt", 4, 7), ("+", "three.txt", None, 1)
    ]  # fmt: skip


def test_odd_names_of_files(folder: Path) -> None:
    odd = ["a\nb", "a\\b", "'\"", "# x", " ", "ä", "\x7f", "-rf"]
    shutil.rmtree(folder / "texts")
    (folder / "texts").mkdir()
    for name in odd:
        (folder / "texts" / name).write_text(name)
    assert [file.name for file in lockfile.parse(locked_now().encode()).sources["inputs.text"].files] == sorted(odd)
    assert drift() == []
    (folder / "texts" / os.fsdecode(b"\xff")).write_text("x")
    with pytest.raises(Unreadable, match="no text"):
        locked_now()


def test_links_to_folders_are_not_followed(folder: Path) -> None:
    (folder / "texts" / "deeper" / "round").symlink_to(folder / "texts")
    found = lockfile.parse(locked_now().encode())
    assert [file.name for file in found.sources["inputs.text"].files] == ["deeper/two.txt", "one.txt"]


# -- the hub


def hub_recipe(folder: Path, revision: str | None = "main") -> None:
    line = "" if revision is None else f'revision = "{revision}"\n'
    (folder / "artifactkit.toml").write_text(
        f'[models.hub]\nsource = "hf://owner/tiny"\n{line}[targets.t]\nmodel = "hub"\nformat = "safetensors"\n'
    )


@pytest.fixture
def commits_(hub: Hub, here: Path, folder: Path) -> tuple[str, str]:
    """Two commits of a model on the hub, of which main is at the first."""
    files = {path.name: path.read_bytes() for path in (folder / "tiny-llama").iterdir()}
    repo = hub.repo("owner/tiny")
    first = repo.commit(files)
    changed = {**files, "config.json": files["config.json"] + b"\n", "chat_template.jinja": b"{{ x }}"}
    del changed["README.md"]
    second = repo.commit(changed, branch=None)
    hub_recipe(folder)
    return first, second


def test_a_branch_is_locked_at_its_commit_without_fetching_weights(
    hub: Hub, folder: Path, commits_: tuple[str, str]
) -> None:
    found = lockfile.parse(locked_now().encode()).sources["models.hub"]
    assert (found.revision, found.commit) == ("main", commits_[0])
    for file in found.files:
        data = (folder / "tiny-llama" / file.name).read_bytes()
        assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert not [request for request in hub.requests if request.name == "pytorch_model.bin"]


def test_a_branch_that_moves_stays_locked_until_it_is_upgraded(hub: Hub, commits_: tuple[str, str]) -> None:
    first, second = commits_
    text = locked_now()
    hub.repo("owner/tiny").branches["main"] = second
    with hub.watched() as requests:
        assert locked_now() == text
        assert drift() == []
    assert requests == []  # nobody was asked
    recipe = read()
    old = lock.existing(recipe.file)
    state = lock.make(recipe, old, ["hub"])
    (change,) = lock.changes(old, state)
    assert (change.what, change.detail) == ("models.hub", f"commit {first} -> {second}")
    assert [(file.sign, file.name) for file in change.files] == [
        ("-", "README.md"), ("+", "chat_template.jinja"), ("~", "config.json")
    ]  # fmt: skip


def test_a_recipe_that_asks_for_another_revision_is_drift(folder: Path, commits_: tuple[str, str]) -> None:
    _, second = commits_
    locked_now()
    hub_recipe(folder, second)
    assert drift() == [f"models.hub: hf://owner/tiny at main -> hf://owner/tiny at {second}"]
    locked_now()
    assert drift() == []
    assert lockfile.read().sources["models.hub"].commit == second


def test_only_what_is_named_is_upgraded(hub: Hub, folder: Path, commits_: tuple[str, str]) -> None:
    other = hub.repo("owner/other")
    other.commit({"model.safetensors": b"x", "config.json": b"{}"})
    with (folder / "artifactkit.toml").open("a") as file:
        file.write('[models.other]\nsource = "hf://owner/other"\n')
    locked_now()
    moved = other.commit({"model.safetensors": b"xy", "config.json": b"{}"})
    hub.repo("owner/tiny").branches["main"] = commits_[1]
    found = lockfile.parse(locked_now(("models.other",)).encode()).sources
    assert (found["models.other"].commit, found["models.hub"].commit) == (moved, commits_[0])
    with pytest.raises(UsageError) as caught:
        locked_now(("othr",))
    assert caught.value.hint == "did you mean 'other'?"


def test_the_lock_names_no_token(
    hub: Hub, commits_: tuple[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.token = "hf_secret"
    hub.repo("owner/tiny").private = True
    assert "hf_secret" not in locked_now()


# -- --locked


def test_locked_takes_the_commit_of_the_lock(hub: Hub, commits_: tuple[str, str], folder: Path) -> None:
    first, second = commits_
    locked_now()
    hub.repo("owner/tiny").branches["main"] = second
    for given_ in ("hf://owner/tiny", "hf://owner/tiny@main", f"hf://owner/tiny@{first}"):
        assert locked(given_).src == f"hf://owner/tiny@{first}"
    for given_ in (f"hf://owner/tiny@{second}", "hf://owner/tiny@v2", "hf://owner/tiny/config.json", "hf://owner/tine"):
        with pytest.raises(Refused):
            locked(given_)
    hub_recipe(folder, "v2")
    with pytest.raises(Refused, match=r"disagree about models\.hub"):
        locked("hf://owner/tiny")


def test_what_is_locked_is_held_against_what_is_read(commits_: tuple[str, str], folder: Path) -> None:
    locked_now()
    text = (folder / "artifactkit.lock").read_text()
    pin = locked("hf://owner/tiny")
    root = sources.locate(pin.src).path
    paths = [f"{root}/{name}" for name in pin.files]
    assert pin.expect(paths, root) == {f"{root}/{name}": file.sha256 for name, file in pin.files.items()}
    # The hub states the digest of a large file, so another one is known before it is fetched.
    weights = pin.files["pytorch_model.bin"]
    (folder / "artifactkit.lock").write_text(text.replace(weights.sha256, "0" * 64))
    with pytest.raises(Refused, match="not what it was") as caught:
        locked("hf://owner/tiny").expect(paths, root)
    assert caught.value.found == f"sha256 {weights.sha256}"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda folder: None, ""),
        (lambda folder: (folder / "tiny-llama" / "config.json").write_text("{}"), "not what it was"),
        (lambda folder: (folder / "tiny-llama" / "chat_template.jinja").write_text("x"), "does not hold a file"),
        (lambda folder: (folder / "tiny-llama" / "tokenizer.json").unlink(), "is gone"),
        (lambda folder: (folder / "artifactkit.lock").unlink(), "there is no lock"),
        (edit("artifactkit.toml", '"tiny-llama"', '"other"'), r"disagree about models\.m"),
        (edit("artifactkit.toml", "models.m]", "models.n]"), r"disagree about models\.m"),
    ],
)
def test_a_local_source_that_drifted_is_refused(folder: Path, change: Callable[[Path], object], what: str) -> None:
    (folder / "artifactkit.toml").write_text('[models.m]\nsource = "tiny-llama"\n')
    locked_now()
    change(folder)
    src = str(folder / "tiny-llama") + "/"
    present = [str(path) for path in sorted((folder / "tiny-llama").iterdir())]
    if not what:
        assert locked(src).expect(present, src).keys() == set(present)
        return
    with pytest.raises(Refused, match=what):
        locked(src).expect(present, src)


def test_converting_by_the_lock(folder: Path, akit: Callable[..., object]) -> None:
    from artifactkit.cli.main import main

    (folder / "artifactkit.toml").write_text('[models.m]\nsource = "tiny-llama"\n')
    locked_now()
    assert main(["convert", "tiny-llama", "out", "-t", "safetensors", "--locked"]) == 0
    path = folder / "tiny-llama" / "pytorch_model.bin"
    data = bytearray(path.read_bytes())
    data[40_000] ^= 1
    path.write_bytes(data)
    for more in ([], ["--no-verify"]):
        assert main(["convert", "tiny-llama", "out2", "-t", "safetensors", "--locked", *more]) == 1
        assert not (folder / "out2").exists()
    assert main(["convert", "tiny-llama", "out2", "-t", "safetensors"]) == 0


# -- elsewhere


def test_a_file_of_a_web_server(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from artifactkit.cli.main import main

    data = (folder / "tiny-llama" / "pytorch_model.bin").read_bytes()
    url, sha256 = web.serve("/m.bin", data), hashlib.sha256(data).hexdigest()
    (folder / "artifactkit.toml").write_text(f'[models.m]\nsource = "{url}"\n')
    found = lockfile.parse(locked_now().encode()).sources["models.m"]
    assert found.files == (LockedFile("m.bin", len(data), sha256),)
    # What is there now is not asked for again, until it is to be.
    web.serve("/m.bin", data[::-1], etag='"v2"')
    asked = len(web.asked)
    assert drift() == []
    locked_now()
    assert len(web.asked) == asked
    # The lock pins what the URL does not.
    assert locked(url).src == f"{url}#sha256={sha256}"
    (folder / "xdg" / "artifactkit" / "blobs" / sha256).unlink()
    assert main(["convert", url, "out.safetensors", "--locked"]) == 3
    assert "the file is not what its digest says" in capsys.readouterr().err
    web.serve("/m.bin", data)
    assert main(["convert", url, "out.safetensors", "--locked", "--require-pinned"]) == 0
    changed = lockfile.parse(locked_now(("m",)).encode())
    assert changed.sources["models.m"].files == found.files


def test_a_digest_that_is_given_is_locked_without_fetching(web: Web, folder: Path) -> None:
    data = b"x" * 10_000_000
    url = f"{web.serve('/m.bin', data)}#sha256={hashlib.sha256(data).hexdigest()}"
    (folder / "artifactkit.toml").write_text(f'[inputs.m]\nsource = "{url}"\n')
    locked_now()
    assert web.asked == [("/m.bin", "bytes=0-65535")]
