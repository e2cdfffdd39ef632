"""Each file of tests/commands is a pasted terminal session: what goes in, what comes out, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, environment
from sessions import Command, Shell, blocks, check, commands, pattern

FILES = sorted((ROOT / "tests" / "commands").glob("*.md"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_session(path: Path, tmp_path: Path, fixtures: Path) -> None:
    wrong = check(path, Shell(tmp_path, fixtures, environment()), documentation=False)
    assert not wrong, "\n\n".join(wrong)


# The harness itself: a session that is wrong is found to be.

SESSION = """
```console
$ cat; echo two >&2; exit 3
< one
one
2> two
[exit 3]
```
"""


def test_a_session_is_read_as_it_is_meant() -> None:
    (block,) = blocks(SESSION)
    assert commands(block) == [Command(3, "cat; echo two >&2; exit 3", "one\n", ["one"], ["two"], 3)]


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("", "", []),
        ("2> two", "2> {any}", []),
        ("\none\n2>", "\n...\n2>", []),
        ("\none\n2>", "\n2>", ["stdout"]),
        ("2> two\n", "", ["stderr"]),
        ("2> two", "2> three", ["stderr"]),
        ("[exit 3]\n", "", ["exit code 3, not 0"]),
        ("[exit 3]", "[exit 4]", ["exit code 3, not 4"]),
    ],
)
def test_a_wrong_session_is_found(tmp_path: Path, old: str, new: str, wrong: list[str]) -> None:
    path = tmp_path / "session.md"
    path.write_text(SESSION.replace(old, new, 1) if old else SESSION)
    (tmp_path / "none").mkdir()
    found = check(path, Shell(tmp_path / "shell", tmp_path / "none", environment()), documentation=False)
    assert len(found) == len(wrong)
    assert all(part in text for part, text in zip(wrong, found, strict=True))


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        (["a {n} b"], "a 1,234.5 b\n", True),
        (["a {n} b"], "a x b\n", False),
        (["{hex}"], "0af\n", True),
        (["..."], "", True),
        (["a", "...", "z"], "a\nb\nc\nz\n", True),
        (["a", "...", "z"], "a\nb\nc\n", False),
        (["[2, 3]  (x)"], "[2, 3]  (x)\n", True),
        ([], "", True),
        ([], "x\n", False),
    ],
)
def test_what_matches(expected: list[str], output: str, same: bool) -> None:
    assert bool(pattern(expected).fullmatch(output)) is same
