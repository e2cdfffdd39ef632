"""Destinations that staging refuses, with everything as it was; their twins that pass; links; missing rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Akit, environment
from test_staging import contents, listing, put, put_folder, write

from artifactkit.errors import ArtifactkitError, DestinationExists, OutputError, UsageError
from artifactkit.staging import Stage

# What is refused before anything is written. Each has a twin above or below that passes.

Prepare = Callable[[Path], tuple[str, dict[str, object]]]


def existing_file(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").write_text("old")
    return "out", {"folder": False}


def existing_folder(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").mkdir()
    return "out", {"folder": True}


def dangling_link(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").symlink_to("nowhere")
    return "out", {"folder": False}


def file_for_folder(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").write_text("old")
    return "out", {"folder": True, "force": True}


def folder_for_file(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").mkdir()
    return "out", {"folder": False, "force": True}


def link_for_folder(root: Path) -> tuple[str, dict[str, object]]:
    (root / "real").mkdir()
    (root / "out").symlink_to("real")
    return "out/", {"folder": True, "force": True}


def fifo(root: Path) -> tuple[str, dict[str, object]]:
    os.mkfifo(root / "out")
    return "out", {"folder": False, "force": True}


def subfolder(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out" / "photos").mkdir(parents=True)
    return "out", {"folder": True, "force": True}


def repository(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out" / ".git").mkdir(parents=True)
    return "out", {"folder": True, "force": True}


def strange_file(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").mkdir()
    (root / "out" / "thesis.docx").write_text("years of work")
    return "out", {"folder": True, "force": True, "familiar": lambda name: name.endswith(".safetensors")}


def current_folder(root: Path) -> tuple[str, dict[str, object]]:
    return ".", {"folder": True, "force": True}


def same_file(root: Path) -> tuple[str, dict[str, object]]:
    (root / "m").write_text("source")
    return "m", {"folder": False, "force": True, "inputs": ["m"]}


def same_by_hard_link(root: Path) -> tuple[str, dict[str, object]]:
    (root / "m").write_text("source")
    os.link(root / "m", root / "out")
    return "out", {"folder": False, "force": True, "inputs": ["m"]}


def same_by_link(root: Path) -> tuple[str, dict[str, object]]:
    (root / "m").write_text("source")
    (root / "out").symlink_to("m")
    return "out", {"folder": False, "force": True, "inputs": ["m"]}


def same_the_other_way(root: Path) -> tuple[str, dict[str, object]]:
    (root / "m").write_text("source")
    (root / "link").symlink_to("m")
    return "m", {"folder": False, "force": True, "inputs": ["link"]}


def inside_source(root: Path) -> tuple[str, dict[str, object]]:
    (root / "src").mkdir()
    return "src/out", {"folder": True, "inputs": ["src"]}


def inside_source_by_link(root: Path) -> tuple[str, dict[str, object]]:
    (root / "src").mkdir()
    (root / "link").symlink_to("src")
    return "link/out", {"folder": True, "inputs": ["src"]}


def around_source(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").mkdir()
    (root / "out" / "m").write_text("source")
    return "out", {"folder": True, "force": True, "inputs": ["out/m"]}


def around_link_to_source(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").mkdir()
    (root / "m").write_text("source")
    (root / "out" / "link").symlink_to("../m")
    return "out", {"folder": True, "force": True, "inputs": ["out/link"]}


def around_target_of_link(root: Path) -> tuple[str, dict[str, object]]:
    (root / "out").mkdir()
    (root / "out" / "m").write_text("source")
    (root / "link").symlink_to("out/m")
    return "out", {"folder": True, "force": True, "inputs": ["link"]}


def source_itself(root: Path) -> tuple[str, dict[str, object]]:
    (root / "src").mkdir()
    return "src", {"folder": True, "force": True, "inputs": ["src"]}


def no_parent(root: Path) -> tuple[str, dict[str, object]]:
    return "absent/out", {"folder": False}


def parent_is_a_file(root: Path) -> tuple[str, dict[str, object]]:
    (root / "file").write_text("")
    return "file/out", {"folder": False}


def no_path(root: Path) -> tuple[str, dict[str, object]]:
    return "", {"folder": True, "force": True}


def the_root(root: Path) -> tuple[str, dict[str, object]]:
    return "/", {"folder": True, "force": True}


REFUSED: list[tuple[Prepare, type[ArtifactkitError], str]] = [
    (existing_file, DestinationExists, "exists"),
    (existing_folder, DestinationExists, "exists"),
    (dangling_link, DestinationExists, "exists"),
    (file_for_folder, UsageError, "is a file, the output a folder"),
    (folder_for_file, UsageError, "is a folder, the output one file"),
    (link_for_folder, UsageError, "is a link, the output a folder"),
    (fifo, UsageError, "no regular file"),
    (subfolder, UsageError, "photos"),
    (repository, UsageError, r"\.git"),
    (strange_file, UsageError, "thesis.docx"),
    (current_folder, UsageError, "current folder"),
    (same_file, UsageError, "the source itself"),
    (same_by_hard_link, UsageError, "the source itself"),
    (same_by_link, UsageError, "the source itself"),
    (same_the_other_way, UsageError, "the source itself"),
    (inside_source, UsageError, "inside the source"),
    (inside_source_by_link, UsageError, "inside the source"),
    (around_source, UsageError, "inside the destination"),
    (around_link_to_source, UsageError, "inside the destination"),
    (around_target_of_link, UsageError, "inside the destination"),
    (source_itself, UsageError, "the source itself"),
    (no_parent, OutputError, "folder is not there"),
    (parent_is_a_file, OutputError, "folder is not there"),
    (the_root, UsageError, "no name"),
    (no_path, UsageError, "no name"),
]


def tree(root: Path) -> dict[str, object]:
    """Everything under ``root``: links as they are, files with contents and inode."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (path.read_text(), path.stat().st_ino)
        else:
            found[name] = path.stat().st_ino
    return found


@pytest.mark.parametrize(("prepare", "kind", "words"), REFUSED, ids=lambda v: getattr(v, "__name__", ""))
def test_refused_and_untouched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Prepare,
    kind: type[ArtifactkitError],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    destination, kwargs = prepare(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(kind, match=words) as caught:
        Stage(destination, **({"force": False} | kwargs))  # type: ignore[arg-type]
    assert type(caught.value) is kind
    assert tree(tmp_path) == before


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("destination", "code", "words"),
    [
        ("absent/out.safetensors", 5, "folder is not there"),
        ("m.pt", 2, "the source itself"),
        ("..", 2, "inside the destination"),
        ("", 2, "no name"),
        ("fifo", 2, "no regular file"),
        ("folder", 2, "thesis.docx"),
        ("out", 0, ""),
    ],
)
def test_a_dry_run_refuses_the_destination_that_a_run_would(
    akit: Akit, fixtures: Path, tmp_path: Path, dry_run: bool, destination: str, code: int, words: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    shutil.copy(fixtures / "plain.pt", here / "m.pt")
    strange_file(here)
    (here / "out").rename(here / "folder")
    os.mkfifo(here / "fifo")
    leftover = here / ".out.artifactkit-new-0123abcd.tmp"
    leftover.write_text("of a killed run")
    options = ["--dry-run"] if dry_run else []
    done = akit("convert", "m.pt", destination, "-t", "safetensors", "--force", *options, cwd=here)
    assert done.returncode == code and words in done.stderr, done.stderr
    assert (here / "out").exists() == (code == 0 and not dry_run)
    assert leftover.exists() == (code != 0 or dry_run)


def test_the_hint_makes_the_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        Stage(os.fspath(tmp_path / "a b" / "c" / "out"), folder=False, force=False)
    assert subprocess.run(caught.value.hint or "", shell=True).returncode == 0
    with Stage(os.fspath(tmp_path / "a b" / "c" / "out"), folder=False, force=False):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        Stage(os.fspath(tmp_path / "file" / "c" / "out"), folder=False, force=False)
    assert caught.value.hint == f"{os.path.realpath(tmp_path)}/file is no folder"


def test_the_twins_of_the_refusals_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").write_text("source")
    (tmp_path / "src").mkdir()
    put(Path("src/out"), inputs=["src", "m"])  # one file beside the shards that it is made from
    (tmp_path / "out").symlink_to("elsewhere")
    put(Path("out"), force=True, inputs=["m"])
    assert not (tmp_path / "out").is_symlink()
    put_folder(Path("models"), {"a.safetensors": "1"}, inputs=["src", "m"])
    familiar = {"familiar": lambda name: name.endswith(".safetensors")}
    put_folder(Path("models/"), {"a.safetensors": "2"}, force=True, inputs=["src", "m"], **familiar)
    assert contents(tmp_path / "models") == {"a.safetensors": "2"}
    assert (tmp_path / "m").read_text() == "source"


def test_a_link_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("theirs")
    out = tmp_path / "out"
    for aim in ("target", "nowhere"):
        out.unlink(missing_ok=True)
        out.symlink_to(aim)
        put(out, force=True)
        assert out.read_text() == "new"
        assert not out.is_symlink()
        assert (tmp_path / "target").read_text() == "theirs"
        assert not (tmp_path / "nowhere").exists()


def test_the_folder_of_the_destination_is_where_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``link/..`` is the parent of what the link leads to, not the folder that the link is in."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    monkeypatch.chdir(tmp_path)
    put(Path("link/../out"))
    put(Path(os.path.join("link", os.pardir, "two")))
    with Stage("link/../three", folder=False, force=False) as stage:
        write(stage, {"": "new"})
        stage.commit()
    assert (tmp_path / "a" / "three").read_text() == "new"


# As somebody without rights. Root may write anywhere, so a child gives its rights up.

CHILD = """
import ctypes, os, sys
from artifactkit.errors import ArtifactkitError
from artifactkit.staging import Stage
os.setgid(65534); os.setuid(65534)
try:
    with Stage(sys.argv[1], folder=sys.argv[2] == "folder", force=True) as stage:
        open(stage.path("x"), "w").write("new")
        stage.commit()
except ArtifactkitError as error:
    print(type(error).__name__, error.exit_code, error.what)
"""


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder that everybody may reach; pytest's own are for its user alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def as_nobody() -> Callable[[Path, str], str]:
    if os.geteuid() != 0:
        pytest.skip("only root can give up its rights")

    def run(destination: Path, kind: str) -> str:
        command = [sys.executable, "-c", CHILD, str(destination), kind]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr == ""
        return done.stdout.strip()

    return run


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_folder_that_may_not_be_written_to(common: Path, as_nobody: Callable[[Path, str], str], kind: str) -> None:
    closed, opened, dropbox = (common / n for n in ("closed", "open", "dropbox"))
    for folder, mode in ((closed, 0o755), (opened, 0o777), (dropbox, 0o733)):
        folder.mkdir()
        folder.chmod(mode)
    assert as_nobody(closed / "out", kind) == "OutputError 5 cannot write: Permission denied"
    assert listing(closed) == []
    assert as_nobody(opened / "out", kind) == ""
    assert as_nobody(dropbox / "out", kind) == ""  # it may be written to, though not listed
    assert listing(opened) == listing(dropbox) == ["out"]
