"""Killed, stopped, starved of space or of its source: what was there stays, and nothing half-written gets the name.

Everything here happens to real conversions: of the program in a process of its own where signals and limits are
concerned, of the library where the moment must be exact.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import forms
import make
import pytest
from conftest import environment
from test_staging import contents

from artifactkit.errors import ArtifactkitError, Corrupt, OutputError, Truncated
from artifactkit.placing import Progress
from artifactkit.provenance import check
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.staging import LEFTOVER, Stage

BIG = 24 << 20
SUFFIX = ".intoto.jsonl"


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "big.pt"
    make.big(path, BIG)
    return path


@pytest.fixture(scope="module")
def whole(big: Path) -> bytes:
    """What a conversion of ``big`` that nobody disturbs writes."""
    out = big.with_name("whole.safetensors")
    convert(big, out)
    return out.read_bytes()


def convert(source: Path, out: Path, *, force: bool = False, progress: Progress | None = None, **options: Any) -> None:
    chosen = ConvertOptions(force=force, **options)
    execute(plan(str(source), str(out), chosen), chosen, progress)


def start(*args: str | Path, code: str = "", **kwargs: Any) -> subprocess.Popen[str]:
    """The program as a user runs it, or with ``code`` run in its process first."""
    if code:
        code += "\nimport sys\nfrom artifactkit.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    program = ["-c", code] if code else ["-m", "artifactkit"]
    return subprocess.Popen(
        [sys.executable, *program, "convert", *map(str, args)],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def leftovers(folder: Path) -> list[str]:
    return sorted(n for n in os.listdir(folder) if LEFTOVER.search(n))


def names_of(out: Path) -> list[str]:
    """What a conversion leaves: the artifact, and its statement."""
    return [out.name, out.name + SUFFIX]


def is_stated(out: Path) -> bool:
    """Whether a statement stands beside ``out``. If so, it is about ``out``: at no moment is one of another there."""
    if not out.with_name(out.name + SUFFIX).exists():
        return False
    here = check.digests(check.artifact_files(str(out)))
    items, _ = check.check_artifact(check.read_for(str(out)), here, out.is_file())
    assert not check.failures(items), items
    return True


def recovered(out: Path) -> None:
    """What the next run does before anything else."""
    Stage(str(out), folder=not out.suffix, force=True, suffix=SUFFIX)


def wait_for_staging(process: subprocess.Popen[str], folder: Path) -> bool:
    """Until something is staged in ``folder``; False when the process ended without our seeing it."""
    while process.poll() is None:
        if leftovers(folder):
            return True
    return False


# Killed.


@pytest.mark.parametrize("kind", ["new", "force", "folder"])
def test_killed_at_any_moment(tmp_path: Path, fixtures: Path, big: Path, whole: bytes, kind: str) -> None:
    out = tmp_path / ("out" if kind == "folder" else "out.safetensors")
    held = out / "model.safetensors" if kind == "folder" else out
    old = b""
    if kind != "new":
        convert(fixtures / "plain.pt", out)
        old = held.read_bytes()
    moments = random.Random(kind)
    survived = 0
    for _ in range(5):
        process = start(big, out, *(["--force"] if kind != "new" else []))
        if wait_for_staging(process, tmp_path):
            time.sleep(moments.choice([0, 0.005, 0.02, 0.05, 0.1, 0.15, 0.2]))
        process.kill()
        ended(process)
        survived += process.returncode == 0
        assert set(os.listdir(tmp_path)) - set(leftovers(tmp_path)) <= set(names_of(out))
        is_stated(out)
        recovered(out)
        assert is_stated(out) == held.exists()
        if held.exists():
            assert held.read_bytes() in ([whole] if kind == "new" else [old, whole])
            if kind == "new":
                out.unlink()
                out.with_name(out.name + SUFFIX).unlink()
        else:
            assert kind == "new"
        if kind == "folder":
            assert os.listdir(out) == ["model.safetensors"]
    convert(big, out, force=True)
    assert held.read_bytes() == whole
    assert is_stated(out)
    assert sorted(os.listdir(tmp_path)) == names_of(out)


# The program kills itself right after call number N of a function; nothing of Python gets to clean up.
KILLED_AFTER = """
import os, signal, {module} as module
real, calls = module.{name}, iter(range(1, 100))
def killing(*args, **kwargs):
    out = real(*args, **kwargs)
    if next(calls) == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return out
module.{name} = killing
"""
WITHOUT_RENAMEAT2 = "from artifactkit import filesystem\nfilesystem.rename2 = lambda old, new, flags: False\n"
# function, number of the call, what the destination then is, and whether its statement is there.
FOLDER_STEPS = [
    ("os", "mkdir", 1, "old", True),
    ("os", "ftruncate", 1, "old", True),
    ("os", "fsync", 1, "old", True),
    ("os", "fsync", 3, "old", True),  # the new statement, under its staged name
    ("os", "rename", 1, "old", False),  # the old statement is aside
    ("os", "rename", 2, "absent", False),  # the old folder too: only where the system cannot exchange two names
    ("os", "rename", 3, "new", False),
    ("os", "rename", 4, "new", False),
    ("os", "replace", 1, "new", True),  # the new statement has its name
    ("os", "fsync", 4, "new", True),
]
FILE_STEPS = [
    ("os", "open", 4, "old", True),
    ("os", "fsync", 1, "old", True),
    ("os", "fsync", 2, "old", True),
    ("os", "rename", 1, "old", False),
    ("os", "replace", 1, "new", False),
    ("os", "replace", 2, "new", True),
    ("os", "fsync", 3, "new", True),
]
NEW_STEPS = [
    ("os", "fsync", 2, "absent", False),
    ("artifactkit.filesystem", "rename2", 1, "new", False),
    ("os", "replace", 1, "new", True),
    ("os", "fsync", 3, "new", True),
]


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        *(("folder", step) for step in FOLDER_STEPS),
        *(("file", step) for step in FILE_STEPS),
        *(("new", step) for step in NEW_STEPS),
    ],
    ids=str,
)
def test_killed_between_two_steps(
    tmp_path: Path, fixtures: Path, kind: str, step: tuple[str, str, int, str, bool]
) -> None:
    module, name, number, state, stated = step
    out = tmp_path / ("out" if kind == "folder" else "out.safetensors")
    held = out / "model.safetensors" if kind == "folder" else out
    convert(fixtures / "plain.pt", out)
    new = held.read_bytes()
    if kind == "new":
        out.unlink()
        out.with_name(out.name + SUFFIX).unlink()
    else:
        convert(fixtures / "trainer.ckpt", out, force=True)
    old = held.read_bytes() if kind != "new" else None
    code = WITHOUT_RENAMEAT2 if kind == "folder" else ""
    code += KILLED_AFTER.format(module=module, name=name, number=number)
    options = ["--force"] if kind != "new" else []
    process = start(fixtures / "plain.pt", out, *options, code=code)
    assert ended(process)[0] == -signal.SIGKILL
    found = held.read_bytes() if held.exists() else None
    assert found == {"absent": None, "old": old, "new": new}[state]
    assert is_stated(out) is stated
    assert set(os.listdir(tmp_path)) - set(leftovers(tmp_path)) <= set(names_of(out))
    # The next run, though refused, has put back what was aside, or has done what was left to do.
    if state != "absent" or kind == "folder":
        assert ended(start(fixtures / "plain.pt", out))[0] == 2
        assert held.read_bytes() == (new if state == "new" else old)
        assert is_stated(out)
        assert sorted(os.listdir(tmp_path)) == names_of(out)
    convert(fixtures / "plain.pt", out, force=True)
    assert held.read_bytes() == new
    assert is_stated(out)
    assert sorted(os.listdir(tmp_path)) == names_of(out)


def contents_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


# Stopped.


@pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGTERM, "file"), (signal.SIGINT, "file"), (signal.SIGTERM, "folder"), (signal.SIGHUP, "folder")],
)
def test_stopped_by_a_signal(tmp_path: Path, big: Path, whole: bytes, number: signal.Signals, kind: str) -> None:
    out = tmp_path / ("out" if kind == "folder" else "out.safetensors")
    for delay in (0, 0.03):
        process = start(big, out)
        seen = wait_for_staging(process, tmp_path)
        time.sleep(delay)
        process.send_signal(number)
        code, err = ended(process)
        if code == 130:
            assert "interrupted" in err
            assert os.listdir(tmp_path) == []
        else:  # it was quicker than the signal
            assert code == 0 or not seen
            held = out / "model.safetensors" if kind == "folder" else out
            assert held.read_bytes() == whole
            assert is_stated(out)
            shutil.rmtree(out) if kind == "folder" else out.unlink()
            out.with_name(out.name + SUFFIX).unlink()


TRACED = ("artifactkit/beside.py", "artifactkit/staging.py", "artifactkit/placing.py", "artifactkit/run.py")


CLEANING = ("__exit__", "_abandon", "_take_away", "settle", "_settle")


@contextlib.contextmanager
def interrupted_at_line(number: int) -> Iterator[list[str]]:
    """KeyboardInterrupt before the ``number``-th line that this thread executes in staging, placing and run."""
    where: list[str] = []
    left = number
    entered: set[tuple[int, int]] = set()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        name = frame.f_code.co_filename
        if not name.endswith(TRACED):
            return None
        if event == "line":
            text = linecache.getline(name, frame.f_lineno).strip()
            if text == "try:":  # no instruction, and none that the handlers around it cover
                return trace
            if text.startswith("with "):
                # The line comes a second time when its block is left. No signal is handled there before __exit__ is
                # called, but an exception raised by us would come between, and a lock would never be released.
                place = (id(frame), frame.f_lineno)
                if place in entered:
                    return trace
                entered.add(place)
            left -= 1
            if left == 0:
                where.append(frame.f_code.co_name)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("kind", ["new", "force", "folder"])
def test_interrupted_before_every_line(tmp_path: Path, fixtures: Path, kind: str) -> None:
    """One after the other. Only within the cleaning up itself may a leftover stay, for the next run."""
    out = tmp_path / ("out" if kind == "folder" else "out.safetensors")
    held = out / "model.safetensors" if kind == "folder" else out
    convert(fixtures / "plain.pt", out)
    new = held.read_bytes()
    aside = tmp_path.with_name(tmp_path.name + "-old")
    aside.mkdir()
    convert(fixtures / "trainer.ckpt", aside / out.name)
    old = (aside / held.relative_to(tmp_path)).read_bytes()
    chosen = ConvertOptions(force=kind != "new")
    number, step = 0, 2 if kind == "folder" else 4
    while True:
        number += step
        for name in names_of(out):
            shutil.rmtree(tmp_path / name) if (tmp_path / name).is_dir() else (tmp_path / name).unlink(missing_ok=True)
            if kind != "new":
                copy = shutil.copytree if (aside / name).is_dir() else shutil.copy2
                copy(aside / name, tmp_path / name)
        route = plan(str(fixtures / "plain.pt"), str(out), chosen)
        try:
            with interrupted_at_line(number) as where:
                execute(route, chosen)
            break
        except KeyboardInterrupt:
            pass
        if held.exists():
            assert held.read_bytes() in ([new] if kind == "new" else [old, new]), where
        else:
            assert kind == "new", where
        stated = is_stated(out)
        for name in leftovers(tmp_path):
            assert where[0] in CLEANING, where
            (tmp_path / name).rename(tmp_path / ".left")  # this process lives, so it still holds the lock
            shutil.rmtree(tmp_path / ".left") if (tmp_path / ".left").is_dir() else (tmp_path / ".left").unlink()
        assert stated == held.exists() or where[0] in CLEANING, where
        assert set(os.listdir(tmp_path)) <= set(names_of(out))
    assert number > 100
    assert held.read_bytes() == new
    assert is_stated(out)
    assert sorted(os.listdir(tmp_path)) == names_of(out)


def test_a_stopped_process_keeps_its_work_and_loses_the_race(tmp_path: Path, big: Path, whole: bytes) -> None:
    out = tmp_path / "out.safetensors"
    while True:
        first = start(big, out)
        if not wait_for_staging(first, tmp_path):
            pytest.fail("the first run ended too early")
        first.send_signal(signal.SIGSTOP)
        if not out.exists():
            break
        first.send_signal(signal.SIGCONT)  # it was quicker
        ended(first)
        out.unlink()
    [staged] = leftovers(tmp_path)
    convert(big, out)
    assert leftovers(tmp_path) == [staged]
    first.send_signal(signal.SIGCONT)
    code, err = ended(first)
    assert (code, "appeared while" in err) == (2, True), err
    assert out.read_bytes() == whole
    assert is_stated(out)
    assert sorted(os.listdir(tmp_path)) == names_of(out)


@pytest.mark.parametrize("force", [False, True])
def test_two_at_once(tmp_path: Path, fixtures: Path, force: bool) -> None:
    out = tmp_path / "out"
    both = [start(fixtures / name, out, *(["--force"] if force else [])) for name in ("plain.pt", "tiny-llama")]
    codes = sorted(ended(p)[0] for p in both)
    assert codes == ([0, 0] if force else [0, 2])
    assert sorted(os.listdir(tmp_path)) == names_of(out)
    assert is_stated(out)
    assert ended(start(fixtures / "plain.pt", tmp_path / "a"))[0] == 0
    assert ended(start(fixtures / "tiny-llama", tmp_path / "b"))[0] == 0
    assert contents_of(out) in [contents_of(tmp_path / "a"), contents_of(tmp_path / "b")]


# Starved.


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("name", ["out", "out.safetensors"])
def test_a_disk_that_is_full_from_the_start(tiny_disk: Path, big: Path, name: str) -> None:
    (tiny_disk / "other").write_bytes(bytes(16 << 20))
    code, err = ended(start(big, tiny_disk / name))
    assert code == 5
    assert "not enough space" in err
    assert os.listdir(tiny_disk) == ["other"]
    (tiny_disk / "other").unlink()
    assert ended(start(big, tiny_disk / name))[0] == 0


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ["out", "out.safetensors", "out.npz"])
def test_a_disk_that_fills_up_half_way(tiny_disk: Path, big: Path, name: str, verify: bool) -> None:
    out = tiny_disk / name

    def fill(progress: Progress) -> None:
        if not (tiny_disk / "other").exists():
            with contextlib.suppress(OSError), (tiny_disk / "other").open("wb", buffering=0) as other:
                while True:
                    other.write(bytes(1 << 16))

    with pytest.raises(OutputError, match="No space left") as caught:
        convert(big, out, progress=Progress(on_change=fill), verify=verify)
    assert caught.value.exit_code == 5
    assert os.listdir(tiny_disk) == ["other"]
    (tiny_disk / "other").unlink()
    convert(big, out, verify=verify)
    assert sorted(os.listdir(tiny_disk)) == (names_of(out) if verify else [name])


def test_what_was_there_survives_a_full_disk(tiny_disk: Path, big: Path) -> None:
    out = tiny_disk / "out.safetensors"
    convert(big, out)
    before = out.read_bytes()
    with pytest.raises(OutputError, match="not enough space"):
        convert(big, out, force=True)
    assert out.read_bytes() == before
    assert is_stated(out)
    assert sorted(os.listdir(tiny_disk)) == names_of(out)


def test_a_limit_of_file_size(tmp_path: Path, big: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    code, err = ended(start(big, tmp_path / "out.safetensors", preexec_fn=limit))
    assert code == 5
    assert "ulimit -f" in err
    assert os.listdir(tmp_path) == []


def test_a_read_only_file_system(tiny_disk: Path, fixtures: Path) -> None:
    old = tiny_disk / "old.safetensors"
    old.write_text("old")
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    for out, flags in ((tiny_disk / "new.safetensors", []), (tiny_disk / "new", []), (old, ["--force"])):
        code, err = ended(start(fixtures / "plain.pt", out, *flags))
        assert (code, "the file system is read-only" in err) == (5, True), err
    assert contents(tiny_disk) == {"old.safetensors": "old"}


# The source.


def deflated(source: Path, out: Path) -> Path:
    import zipfile

    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return out


def strided(out: Path) -> Path:
    values = forms.Storage("f32", bytes(range(256)) * 1024)
    forms.torch_zip(out, {"w": forms.Tensor(values, (256, 256), 0, (1, 256))})
    return out


KINDS = ["plain", "deflated", "strided", "cast", "npy"]


def source_of(kind: str, folder: Path, fixtures: Path) -> tuple[Path, dict[str, Any]]:
    if kind == "deflated":
        return deflated(fixtures / "plain.pt", folder / "source.pt"), {}
    if kind == "strided":
        return strided(folder / "source.pt"), {}
    if kind == "npy":
        return Path(shutil.copy(fixtures / "array.npy", folder / "source.npy")), {}
    from artifactkit.dtypes import parse

    options = {"dtype": parse("bf16")} if kind == "cast" else {}
    return Path(shutil.copy(fixtures / "plain.pt", folder / "source.pt")), options


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_changes_meanwhile(tmp_path: Path, fixtures: Path, kind: str, verify: bool) -> None:
    source, options = source_of(kind, tmp_path, fixtures)
    (tmp_path / "to").mkdir()
    out = tmp_path / "to" / "out.safetensors"
    out.write_text("old")

    def touch(progress: Progress) -> None:
        with source.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\0")
        os.utime(source, ns=(1, 1))  # whatever the resolution of the clock

    with pytest.raises(Corrupt, match="changed while") as caught:
        convert(source, out, force=True, progress=Progress(on_change=touch), verify=verify, **options)
    assert caught.value.exit_code == 3
    assert contents(tmp_path / "to") == {"out.safetensors": "old"}


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_its_twin_that_does_not(tmp_path: Path, fixtures: Path, kind: str, verify: bool) -> None:
    source, options = source_of(kind, tmp_path, fixtures)
    convert(source, tmp_path / "out.safetensors", verify=verify, **options)
    assert (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("verify", [True, False])
def test_a_source_that_is_cut_short_meanwhile(tmp_path: Path, big: Path, verify: bool) -> None:
    source = Path(shutil.copy(big, tmp_path / "source.pt"))
    (tmp_path / "to").mkdir()

    def cut(progress: Progress) -> None:
        os.truncate(source, BIG // 2)

    with pytest.raises((Truncated, Corrupt)) as caught:
        convert(source, tmp_path / "to" / "out.safetensors", progress=Progress(on_change=cut), verify=verify)
    assert caught.value.exit_code == 3
    assert os.listdir(tmp_path / "to") == []


def test_a_source_that_is_replaced_by_another_is_read_on(tmp_path: Path, big: Path, whole: bytes) -> None:
    """A rename over the path leaves the open file as it is: content and digest are of the file that was opened."""
    import hashlib

    source = Path(shutil.copy(big, tmp_path / "source.pt"))
    want = hashlib.sha256(big.read_bytes()).hexdigest()

    def replace(progress: Progress) -> None:
        (tmp_path / "other").write_bytes(b"another file")
        os.replace(tmp_path / "other", source)

    chosen = ConvertOptions()
    route = plan(str(source), str(tmp_path / "out.safetensors"), chosen)
    conversion = execute(route, chosen, Progress(on_change=replace))
    assert (tmp_path / "out.safetensors").read_bytes() == whole
    assert [d.sha256 for d in conversion.inputs] == [want]


# What the command line answers. The full table is in test_destinations.py.


def test_exit_codes_of_refused_destinations(tmp_path: Path, fixtures: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(fixtures / "tiny-llama", source)
    single = next(source.glob("*.bin"))
    (tmp_path / "there.safetensors").write_text("old")
    before = contents_bytes(tmp_path)
    cases: list[tuple[Path, dict[str, Any], int, str]] = [
        (tmp_path / "there.safetensors", {}, 2, "exists"),
        (source / "out", {}, 2, "inside the source"),
        (source, {"force": True}, 2, "source itself"),
        (single, {"force": True, "target_format": "npz"}, 2, "source itself"),
        (tmp_path / "absent" / "out", {}, 5, "folder is not there"),
        (tmp_path, {"force": True}, 2, "inside the destination"),
    ]
    for dest, flags, code, words in cases:
        with pytest.raises(ArtifactkitError, match=words) as caught:
            convert(source, dest, **flags)
        assert caught.value.exit_code == code
        assert contents_bytes(tmp_path) == before


def contents_bytes(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_force_replaces_a_folder_of_ours_and_no_other(tmp_path: Path, fixtures: Path) -> None:
    out = tmp_path / "out"
    convert(fixtures / "tiny-llama", out)
    (out / "old-notes.md").write_text("notes")
    convert(fixtures / "tiny-llama", out, force=True)
    assert "old-notes.md" not in os.listdir(out)
    (out / "diary.txt").write_text("notes")
    before = contents_bytes(out)
    with pytest.raises(ArtifactkitError, match=r"diary\.txt"):
        convert(fixtures / "tiny-llama", out, force=True)
    assert contents_bytes(out) == before
