"""Staging by itself: what a commit does, what an end without one leaves, what the next run makes of leftovers."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from artifactkit import filesystem
from artifactkit.errors import ArtifactkitError, DestinationExists, OutputError, UsageError
from artifactkit.staging import LEFTOVER, Stage


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def write(stage: Stage, files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(stage.path(name)).write_text(text)


def put(destination: Path, text: str = "new", *, force: bool = False, **kwargs: object) -> None:
    with Stage(str(destination), folder=False, force=force, **kwargs) as stage:  # type: ignore[arg-type]
        write(stage, {"": text})
        stage.commit()


def put_folder(destination: Path, files: dict[str, str], *, force: bool = False, **kwargs: object) -> None:
    with Stage(str(destination), folder=True, force=force, **kwargs) as stage:  # type: ignore[arg-type]
        write(stage, files)
        stage.commit()


def contents(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(params=["renameat2", "without"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With and without renameat2: what NFS, macOS and old kernels lack."""
    if request.param == "without":
        monkeypatch.setattr(filesystem, "rename2", lambda old, new, flags: False)
    return str(request.param)


# What a commit does.


def test_a_file_appears_whole_and_alone(tmp_path: Path, system: str) -> None:
    out = tmp_path / "m.safetensors"
    with Stage(str(out), folder=False, force=False) as stage:
        write(stage, {"": "half"})
        assert not out.exists()
        [staged] = listing(tmp_path)
        assert staged.startswith(".m.safetensors.artifactkit-new-")
        assert LEFTOVER.search(staged)
        write(stage, {"": "whole"})
        stage.commit()
    assert out.read_text() == "whole"
    assert listing(tmp_path) == ["m.safetensors"]


def test_a_folder_appears_whole_and_alone(tmp_path: Path, system: str) -> None:
    put_folder(tmp_path / "out", {"a": "1", "sub/b": "2"})
    assert listing(tmp_path) == ["out"]
    assert contents(tmp_path / "out") == {"a": "1", "sub/b": "2"}


def test_without_commit_nothing_is_left(tmp_path: Path) -> None:
    for folder in (False, True):
        with Stage(str(tmp_path / "out"), folder=folder, force=False) as stage:
            write(stage, {"x" if folder else "": "half"})
        assert listing(tmp_path) == []
        with pytest.raises(KeyboardInterrupt), Stage(str(tmp_path / "out"), folder=folder, force=False) as stage:
            write(stage, {"x" if folder else "": "half"})
            raise KeyboardInterrupt
        assert listing(tmp_path) == []


def test_force_replaces_a_file(tmp_path: Path, system: str) -> None:
    out = tmp_path / "out.npz"
    out.write_text("old")
    put(out, force=True)
    assert out.read_text() == "new"
    assert listing(tmp_path) == ["out.npz"]


def test_force_replaces_a_folder_wholly(tmp_path: Path, system: str) -> None:
    put_folder(tmp_path / "out", {"old-only": "1", "both": "1"})
    put_folder(tmp_path / "out", {"new-only": "2", "both": "2"}, force=True)
    assert contents(tmp_path / "out") == {"new-only": "2", "both": "2"}
    assert listing(tmp_path) == ["out"]


def test_force_where_nothing_is_and_where_an_empty_folder_is(tmp_path: Path, system: str) -> None:
    put_folder(tmp_path / "a", {"x": "1"}, force=True)
    (tmp_path / "b").mkdir()
    put_folder(tmp_path / "b", {"x": "1"}, force=True)
    assert contents(tmp_path) == {"a/x": "1", "b/x": "1"}


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("there", ["file", "folder", "link"])
def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path, system: str, folder: bool, there: str) -> None:
    out = tmp_path / "out"
    with pytest.raises(DestinationExists), Stage(str(out), folder=folder, force=False) as stage:
        write(stage, {"x" if folder else "": "mine"})
        if there == "file":
            out.write_text("theirs")
        elif there == "link":
            out.symlink_to("nowhere")
        else:
            out.mkdir()
            (out / "y").write_text("theirs")
        stage.commit()
    assert listing(tmp_path) == ["out"]
    if there == "link":
        assert os.readlink(out) == "nowhere"
    else:
        assert (out if there == "file" else out / "y").read_text() == "theirs"


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*args: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(filesystem, "rename2", lambda old, new, flags: False)
    monkeypatch.setattr(os, "link", no_link)
    put(tmp_path / "out")
    assert contents(tmp_path) == {"out": "new"}
    with pytest.raises(DestinationExists), Stage(str(tmp_path / "two"), folder=False, force=False) as stage:
        (tmp_path / "two").write_text("theirs")
        stage.commit()
    assert contents(tmp_path) == {"out": "new", "two": "theirs"}


def test_modes_respect_the_umask(tmp_path: Path) -> None:
    for mask in (0o022, 0o077, 0o002):
        before = os.umask(mask)
        try:
            put(tmp_path / f"{mask:o}")
            put_folder(tmp_path / f"{mask:o}d", {"x": "1"})
        finally:
            os.umask(before)
        assert (tmp_path / f"{mask:o}").stat().st_mode & 0o777 == 0o666 & ~mask
        assert (tmp_path / f"{mask:o}d").stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    for name in ("n" * 255, "ö" * 127, "n" * 250 + ".safe"):
        stage = Stage(str(tmp_path / name), folder=False, force=False)
        with stage:
            write(stage, {"": "x"})
            [staged] = listing(tmp_path)
            assert len(os.fsencode(staged)) <= 255
            stage.commit()
        (tmp_path / name).unlink()
    with pytest.raises(OutputError, match="too long"):
        put(tmp_path / ("n" * 256))


# Leftovers.


def leftover(root: Path, name: str, kind: str, folder: bool, text: str = "left", token: str = "0123abcd") -> Path:
    path = root / f".{name}.artifactkit-{kind}-{token}.tmp"
    if folder:
        path.mkdir()
        (path / "x").write_text(text)
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("folder", [False, True])
def test_leftovers_are_cleaned_by_the_next_run(tmp_path: Path, folder: bool) -> None:
    leftover(tmp_path, "out", "new", folder)
    leftover(tmp_path, "out", "new", not folder, token="ffffffff")
    others = [
        leftover(tmp_path, "other", "new", folder),
        leftover(tmp_path, "out.safetensors", "new", folder),
        tmp_path / ".out.artifactkit-new-0123abcd.tmp.txt",
        tmp_path / ".out.artifactkit-new-0123ABCD.tmp",
        tmp_path / ".out.artifactkit-notes.tmp",
    ]
    for path in others[2:]:
        path.write_text("not ours")
    (put_folder if folder else put)(tmp_path / "out", {"x": "new"} if folder else "new")  # type: ignore[operator]
    assert listing(tmp_path) == sorted(["out", *(p.name for p in others)])


def test_leftovers_are_cleaned_by_a_run_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")
    leftover(tmp_path, "out", "new", False)
    with pytest.raises(DestinationExists):
        put(tmp_path / "out")
    assert contents(tmp_path) == {"out": "old"}


def test_a_folder_that_was_moved_aside_is_put_back(tmp_path: Path) -> None:
    leftover(tmp_path, "out", "old", True, "precious")
    leftover(tmp_path, "out", "new", True, "half")
    with pytest.raises(DestinationExists):
        put_folder(tmp_path / "out", {"x": "new"})
    assert contents(tmp_path) == {"out/x": "precious"}
    assert listing(tmp_path) == ["out"]


def test_an_old_folder_whose_successor_is_there_is_removed(tmp_path: Path) -> None:
    leftover(tmp_path, "out", "old", True)
    put_folder(tmp_path / "o", {"x": "1"})
    os.rename(tmp_path / "o", tmp_path / "out")
    with pytest.raises(DestinationExists):
        put_folder(tmp_path / "out", {"x": "2"})
    assert contents(tmp_path) == {"out/x": "1"}


def test_a_leftover_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("theirs")
    link = tmp_path / ".out.artifactkit-new-0123abcd.tmp"
    link.symlink_to("target")
    put(tmp_path / "out")
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "theirs"


@pytest.mark.parametrize("kind", ["new", "old"])
@pytest.mark.parametrize("folder", [False, True])
def test_what_a_living_process_holds_is_left_alone(tmp_path: Path, folder: bool, kind: str) -> None:
    path = leftover(tmp_path, "out", kind, folder)
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    put(tmp_path / "out")
    assert path.exists()
    os.close(fd)
    put(tmp_path / "out", force=True)
    assert listing(tmp_path) == ["out"]


def test_a_leftover_within_a_folder_does_not_stop_force(tmp_path: Path) -> None:
    familiar = {"familiar": lambda name: name == "x"}
    put_folder(tmp_path / "out", {"x": "1"})
    held = leftover(tmp_path / "out", "model.safetensors", "new", False)
    fd = os.open(held, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="other things"):
        put_folder(tmp_path / "out", {"x": "2"}, force=True, **familiar)
    os.close(fd)
    put_folder(tmp_path / "out", {"x": "2"}, force=True, **familiar)
    assert contents(tmp_path) == {"out/x": "2"}


# Errors and interruptions at the worst moments.


def interrupt(patched: pytest.MonkeyPatch, name: str, error: BaseException, after: int) -> None:
    """Let call number ``after`` of the function ``os.name`` do its work and then be interrupted, as by a signal."""
    real = getattr(os, name)
    calls = iter(range(1000))

    def once(*args: object, **kwargs: object) -> object:
        out = real(*args, **kwargs)
        if next(calls) == after:
            raise error
        return out

    patched.setattr(os, name, once)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_interrupted_between_the_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, after: int
) -> None:
    """The folder is whole old or whole new, and nothing else is left, wherever between the steps it ends."""
    put_folder(tmp_path / "out", {"x": "old"})
    with monkeypatch.context() as patched:
        patched.setattr(filesystem, "rename2", lambda old, new, flags: False)
        interrupt(patched, "rename", error, after)
        with pytest.raises((KeyboardInterrupt, OutputError)):
            put_folder(tmp_path / "out", {"x": "new"}, force=True)
    assert contents(tmp_path) == {"out/x": "old" if after == 0 else "new"}
    assert listing(tmp_path) == ["out"]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("name", ["open", "mkdir", "fstat"])
def test_interrupted_while_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool, name: str) -> None:
    for after in range(3):
        with monkeypatch.context() as patched:
            interrupt(patched, name, KeyboardInterrupt(), after)
            try:
                with Stage(str(tmp_path / "out"), folder=folder, force=False):
                    pass
            except KeyboardInterrupt:
                pass
        assert listing(tmp_path) == []


def test_an_error_of_fsync_is_an_output_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("old")
    with monkeypatch.context() as patched:
        interrupt(patched, "fsync", OSError(errno.EIO, "Input/output error"), 0)
        with pytest.raises(OutputError, match="Input/output"):
            put(tmp_path / "out", force=True)
    assert contents(tmp_path) == {"out": "old"}
    assert listing(tmp_path) == ["out"]


# Many at once.


def test_of_many_at_once_one_wins_and_no_output_is_mixed(tmp_path: Path, system: str) -> None:
    results: list[str] = []
    barrier = threading.Barrier(6)

    def one(i: int) -> None:
        barrier.wait()
        try:
            put_folder(tmp_path / "out", {"a": str(i), "b": str(i)})
            results.append("won")
        except DestinationExists:
            results.append("lost")

    run_all(one, 6)
    assert sorted(results) == ["lost"] * 5 + ["won"]
    found = contents(tmp_path / "out")
    assert len(set(found.values())) == 1
    assert set(found) == {"a", "b"}
    assert listing(tmp_path) == ["out"]


def run_all(work: Callable[[int], None], n: int) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("folder", [False, True])
def test_of_many_at_once_by_force_the_last_stays_whole(tmp_path: Path, folder: bool) -> None:
    failures: list[BaseException] = []

    def one(i: int) -> None:
        for _ in range(10):
            try:
                if folder:
                    put_folder(tmp_path / "out", {"a": str(i), "b": str(i)}, force=True)
                else:
                    put(tmp_path / "out", str(i), force=True)
            except ArtifactkitError as error:
                failures.append(error)

    run_all(one, 4)
    assert failures == []
    found = contents(tmp_path)
    assert len(set(found.values())) == 1
    assert listing(tmp_path) == ["out"]


def test_by_force_without_exchange_the_loser_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "rename2", lambda old, new, flags: False)
    put_folder(tmp_path / "out", {"x": "old"})
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(OutputError, match="another process"):
        put_folder(tmp_path / "out", {"x": "new"}, force=True)
    os.close(fd)
    assert contents(tmp_path) == {"out/x": "old"}
    put_folder(tmp_path / "out", {"x": "new"}, force=True)
    assert contents(tmp_path) == {"out/x": "new"}


# What stands beside.


def put_beside(out: Path, text: str, about: str | None, *, folder: bool = False, force: bool = False) -> None:
    with Stage(str(out), folder=folder, force=force, suffix=".about") as stage:
        write(stage, {"x" if folder else "": text})
        stage.commit(None if about is None else about.encode())


@pytest.mark.parametrize("folder", [False, True])
def test_what_is_about_it_comes_and_goes_with_it(tmp_path: Path, system: str, folder: bool) -> None:
    out = tmp_path / "out"
    held = "out/x" if folder else "out"
    put_beside(out, "1", "one", folder=folder)
    assert contents(tmp_path) == {held: "1", "out.about": "one"}
    with pytest.raises(DestinationExists):
        put_beside(out, "2", "two", folder=folder)
    put_beside(out, "2", "two", folder=folder, force=True)
    assert contents(tmp_path) == {held: "2", "out.about": "two"}
    put_beside(out, "3", None, folder=folder, force=True)
    assert contents(tmp_path) == {held: "3"}
    put_beside(out, "4", "four", folder=folder, force=True)
    assert contents(tmp_path) == {held: "4", "out.about": "four"}


@pytest.mark.parametrize("force", [False, True])
def test_what_appears_beside_meanwhile(tmp_path: Path, force: bool) -> None:
    out = tmp_path / "out"
    expected = contextlib.nullcontext() if force else pytest.raises(DestinationExists)
    with expected, Stage(str(out), folder=False, force=force, suffix=".about") as stage:
        write(stage, {"": "mine"})
        (tmp_path / "out.about").write_text("theirs")
        stage.commit(b"mine")
    assert contents(tmp_path) == ({"out": "mine", "out.about": "mine"} if force else {"out.about": "theirs"})


@pytest.mark.parametrize("call", ["rename", "replace"])
def test_a_disk_that_fails_between_the_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whatever fails, an artifact never stands beside what is about another."""
    from artifactkit import beside

    out = tmp_path / "out"
    put_beside(out, "old", "about old")
    real = getattr(os, call)
    calls = 0

    def failing(*args: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(errno.EIO, "Input/output error")
        real(*args)

    monkeypatch.setattr(beside.os, call, failing)
    with pytest.raises(OutputError):
        put_beside(out, "new", "about new", force=True)
    monkeypatch.undo()
    assert contents(tmp_path) == {"out": "old", "out.about": "about old"}
    put_beside(out, "new", "about new", force=True)
    assert contents(tmp_path) == {"out": "new", "out.about": "about new"}


@pytest.mark.parametrize("folder", [False, True])
def test_of_many_at_once_each_has_what_is_about_it(tmp_path: Path, folder: bool) -> None:
    failures: list[BaseException] = []

    def one(i: int) -> None:
        for n in range(10):
            text = f"{i}, {n}"
            try:
                put_beside(tmp_path / "out", text, None if i == 3 else text, folder=folder, force=True)
            except ArtifactkitError as error:
                failures.append(error)

    run_all(one, 4)
    assert failures == []
    found = contents(tmp_path)
    held = found.pop("out/x" if folder else "out")
    assert found == ({} if held.startswith("3") else {"out.about": held})
    assert set(listing(tmp_path)) <= {"out", "out.about"}


def test_a_leftover_whose_artifact_is_another_by_now(tmp_path: Path) -> None:
    """The identity tells: what a killed run was about to put there is about a file that is gone."""
    from artifactkit.beside import identity

    out = tmp_path / "out"
    put(out, "first")
    left = tmp_path / f".out.artifactkit-due-01234567-{identity(str(out))}.tmp"
    left.write_text("about first")
    for text, after in (("second", {"out": "second"}), (None, {"out": "first", "out.about": "about first"})):
        if text is not None:
            out.write_text(text)
        else:
            put(out, "first", force=True)
            left = tmp_path / f".out.artifactkit-due-01234567-{identity(str(out))}.tmp"
            left.write_text("about first")
        with pytest.raises(DestinationExists):
            put_beside(out, "third", "about third")
        assert contents(tmp_path) == after
