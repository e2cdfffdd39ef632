"""--via: an external converter's output is kept when it is what the source asks for, and only then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tiny_models as tiny

from artifactkit.errors import DestinationExists, Refused, UsageError, VerificationFailed
from artifactkit.opening import Opened, open_source
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.types import ReadOptions
from artifactkit.via import convert_via, words_of

# A converter as somebody else may write one: it copies a file that lies ready.
COPY = "import shutil, sys; assert sys.argv[1].endswith('model'); shutil.copy({ready!r}, sys.argv[2])"


@pytest.fixture
def source(tmp_path: Path) -> Opened:
    return open_source(str(tiny.write("llama", tmp_path / "model")), None, ReadOptions())


def ready(name: str, tmp_path: Path) -> Path:
    """A GGUF file of a tiny model."""
    made = tmp_path / "ready" / f"{name}.gguf"
    made.parent.mkdir(exist_ok=True)
    options = ConvertOptions(statement=False)
    execute(plan(str(tiny.write(name, tmp_path / "ready" / name)), str(made), options), options)
    return made


def copier(path: Path) -> str:
    return f'{sys.executable} -c "{COPY.format(ready=str(path))}" {{src}} {{dest}}'


def test_what_is_right_is_kept(source: Opened, tmp_path: Path) -> None:
    made = ready("llama", tmp_path)
    judged = convert_via(copier(made), source, source.weights, str(tmp_path / "out.gguf"), force=False)
    assert (tmp_path / "out.gguf").read_bytes() == made.read_bytes()
    assert judged.report
    assert {entry.source for entry in judged.ledger} == source.weights.tensors.keys()
    assert [digest.name for digest in judged.outputs] == ["out.gguf"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "out.gguf", "ready"]


def test_what_is_wrong_is_not_kept_and_harms_nothing(source: Opened, tmp_path: Path) -> None:
    """A file of another model: same names and shapes, other values."""
    made = ready("llama_linear", tmp_path)
    there = tmp_path / "out.gguf"
    there.write_bytes(b"before")
    with pytest.raises(VerificationFailed, match="not what the source asks for"):
        convert_via(copier(made), source, source.weights, str(there), force=True)
    assert there.read_bytes() == b"before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "out.gguf", "ready"]


def test_the_destination_is_looked_at_first(source: Opened, tmp_path: Path) -> None:
    (tmp_path / "out.gguf").write_bytes(b"before")
    with pytest.raises(DestinationExists):
        convert_via("touch {src} {dest}", source, source.weights, str(tmp_path / "out.gguf"), force=False)


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        ("false {src} {dest}", Refused, "exit 1"),
        ("sh -c 'echo sorry; exit 3' {src} {dest}", Refused, "sorry"),
        ("no-such-program {src} {dest}", UsageError, "no-such-program"),
        ("cp {src}", UsageError, "{dest}"),
        ("cp {dest}", UsageError, "{src}"),
        ("cp 'open {src} {dest}", UsageError, "quotation"),
    ],
)
def test_commands_that_do_nothing(
    command: str, error: type[Exception], words: str, source: Opened, tmp_path: Path
) -> None:
    with pytest.raises(error) as caught:
        convert_via(command, source, source.weights, str(tmp_path / "out.gguf"), force=False)
    assert words in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_command_that_writes_nothing(source: Opened, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no such file"):
        convert_via("true {src} {dest}", source, source.weights, str(tmp_path / "out.gguf"), force=False)


def test_no_shell_reads_the_command() -> None:
    assert words_of("x {src} --out={dest} ';' $HOME", "/a b", "c;d") == ["x", "/a b", "--out=c;d", ";", "$HOME"]
