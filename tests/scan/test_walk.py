"""What a folder holds is found in a stable order, once, and nothing but regular files is opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from artifactkit.scan import walk
from artifactkit.scan.model import FileReport
from artifactkit.scan.walk import Walk, entries

EVIL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R."
GOOD = b"\x80\x02}."


def scanned(*paths: Path | str) -> dict[str, FileReport]:
    return {report.path: report for report in Walk([str(p) for p in paths]).reports()}


def tree(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def test_order_is_that_of_the_names_and_does_not_depend_on_the_listing(tmp_path: Path) -> None:
    names = ["b.txt", "a/z.txt", "a/b/c.txt", "B.txt", "a.txt", ".hidden/x.txt", "ä.txt"]
    tree(tmp_path, dict.fromkeys(names, b"x"))
    found = [entry.relative for entry in entries(str(tmp_path))]
    assert found == [".hidden/x.txt", "B.txt", "a/b/c.txt", "a/z.txt", "a.txt", "b.txt", "ä.txt"]


@pytest.mark.parametrize("name", [".cache/x.pkl", "__pycache__/x.pkl", "node_modules/x.pkl", ".mypy_cache/x.pkl"])
def test_no_name_hides_a_file(tmp_path: Path, name: str) -> None:
    tree(tmp_path, {name: EVIL})
    assert [r.verdict for r in scanned(tmp_path).values()] == ["malicious"]


def test_of_git_only_what_it_runs(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            ".git/HEAD": b"ref: refs/heads/main\n", ".git/config": b"[core]\n", ".git/objects/ab/cd": EVIL,
            ".git/hooks/post-checkout": b"#!/bin/sh\n", ".git/hooks/deep/er": b"x", ".git/index": b"DIRC",
            ".git/modules/sub/hooks/pre-commit": b"#!/bin/sh\n", ".git/modules/sub/objects/x": EVIL,
            ".git/refs/heads/config": b"0", "sub/.git/hooks/x": b"x", "sub/.git/packed-refs": b"x",
            "not.git/objects/x": b"x",
        },
    )  # fmt: skip
    assert [entry.relative for entry in entries(str(tmp_path))] == [
        ".git/config", ".git/hooks/deep/er", ".git/hooks/post-checkout", ".git/modules/sub/hooks/pre-commit",
        "not.git/objects/x", "sub/.git/hooks/x",
    ]  # fmt: skip
    # The same when the folder that is given is the .git folder, or lies in it.
    assert [entry.relative for entry in entries(str(tmp_path / "sub" / ".git"))] == ["hooks/x"]


def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.pkl")  # opening it would wait for ever
    os.symlink("fifo.pkl", tmp_path / "link.pkl")
    os.symlink("/dev/zero", tmp_path / "zero.bin")
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(tmp_path)  # a socket's path has little room
    try:
        server.bind("socket.pkl")
    finally:
        os.chdir(here)
    tree(tmp_path, {"good.pkl": GOOD})
    found = scanned(tmp_path)
    server.close()
    verdicts = {os.path.basename(path): report.verdict for path, report in found.items()}
    assert verdicts["fifo.pkl"] == verdicts["link.pkl"] == verdicts["socket.pkl"] == "unreadable"
    assert {f.rule for f in found[str(tmp_path / "zero.bin")].findings} == {"unreadable", "link-outside"}
    assert verdicts["good.pkl"] == "clean"
    assert "a FIFO" in found[str(tmp_path / "fifo.pkl")].findings[0].what
    assert scanned(tmp_path / "fifo.pkl")[str(tmp_path / "fifo.pkl")].verdict == "unreadable"


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", {"x.pkl": EVIL})
    inside = tree(tmp_path / "inside", {"real/y.pkl": GOOD})
    os.symlink(outside, inside / "away")
    os.symlink("real", inside / "again")
    os.symlink(".", inside / "loop")
    os.symlink("real/y.pkl", inside / "z.pkl")
    kinds = {entry.relative: entry.kind for entry in entries(str(inside))}
    assert kinds == {"again": "folder-link", "away": "folder-link", "loop": "folder-link", "real/y.pkl": "file",
                     "z.pkl": "link"}  # fmt: skip
    # A link that is given by name is what the user means.
    assert [r.verdict for r in scanned(inside / "away").values()] == ["malicious"]


def test_a_file_is_scanned_once_under_one_name(tmp_path: Path) -> None:
    tree(tmp_path, {"a/x.pkl": EVIL})
    (tmp_path / "b").mkdir()
    os.link(tmp_path / "a/x.pkl", tmp_path / "b/x.pkl")
    os.link(tmp_path / "a/x.pkl", tmp_path / "b/sitecustomize.py")  # another name has rules of its own
    run = Walk([str(tmp_path), str(tmp_path / "a/x.pkl")])
    assert [os.path.relpath(r.path, tmp_path) for r in run.reports()] == ["a/x.pkl", "b/sitecustomize.py"]
    assert run.repeated == 2


def test_what_is_absent_is_said_and_ends_nothing(tmp_path: Path) -> None:
    tree(tmp_path, {"a.pkl": EVIL})
    (tmp_path / "empty").mkdir()
    os.symlink("nowhere", tmp_path / "empty" / "dangling.pkl")
    run = Walk([str(tmp_path / "no"), "a\0b", str(tmp_path / "a.pkl"), str(tmp_path / "empty")])
    assert {os.path.basename(r.path): r.verdict for r in run.reports()} == {
        "a.pkl": "malicious", "dangling.pkl": "unreadable",
    }  # fmt: skip
    assert [error.file for error in run.absent] == [str(tmp_path / "no"), "a\0b"]
    (tmp_path / "void").mkdir()
    run = Walk([str(tmp_path / "void")])
    assert not list(run.reports())
    assert run.empty == [str(tmp_path / "void")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_missing_rights_are_findings(tmp_path: Path) -> None:
    tree(tmp_path, {"locked/x.pkl": EVIL, "secret.pkl": EVIL, "good.pkl": GOOD})
    (tmp_path / "locked").chmod(0)
    (tmp_path / "secret.pkl").chmod(0)
    try:
        found = {os.path.basename(p): r.verdict for p, r in scanned(tmp_path).items()}
    finally:
        (tmp_path / "locked").chmod(0o755)
    assert found == {"good.pkl": "clean", "locked": "unreadable", "secret.pkl": "unreadable"}


def test_a_folder_that_vanishes_is_a_finding(tmp_path: Path) -> None:
    tree(tmp_path, {"a/x.pkl": GOOD, "b/y.pkl": GOOD, "c.pkl": GOOD})
    found = entries(str(tmp_path))
    first = next(found)
    for path in (tmp_path / "b/y.pkl", tmp_path / "b"):
        path.unlink() if path.is_file() else path.rmdir()
    assert [(e.relative, e.kind) for e in (first, *found)] == [
        ("a/x.pkl", "file"), ("b", "unreadable"), ("c.pkl", "file"),
    ]  # fmt: skip


def test_names_that_are_no_utf8_and_deep_folders(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/\xff\xfe.pkl"
    with open(raw, "wb") as file:
        file.write(EVIL)
    deep = tmp_path
    for _ in range(60):
        deep /= "d" * 20
    tree(deep, {"x.pkl": EVIL})
    assert [r.verdict for r in scanned(tmp_path).values()] == ["malicious"] * 2


def test_a_fault_of_the_scanner_is_a_finding_and_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str, shown: str | None = None) -> FileReport:
        raise RecursionError("too deep")

    monkeypatch.setattr(walk, "scan_file", broken)
    report = walk.scan_one(str(tmp_path / "x"))
    assert report.verdict == "unreadable"
    assert report.findings[0].rule == "scanner-fault"
    monkeypatch.setenv("ARTIFACTKIT_DEBUG", "1")
    with pytest.raises(RecursionError):
        walk.scan_one(str(tmp_path / "x"))


@pytest.mark.parametrize(
    ("given", "shown"), [("./a", "a"), (".//a", "a"), ("././a", "a"), (".", "."), ("./", "./"), ("a/./b", "a/./b")]
)
def test_how_a_path_is_shown(given: str, shown: str) -> None:
    assert walk._shown(given) == shown
