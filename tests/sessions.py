"""Terminal sessions in Markdown that are run: tests/commands/*.md, and the examples of README.md and docs/.

A fenced block with the word ``console`` holds commands and what they print:

    $ artifactkit inspect missing.pt        a command, run by bash; a backslash at the end goes on in the next line
    < some text                             a line of its standard input
    2> error: cannot open                   a line of standard error (in tests/commands only)
    what it prints                          a line of standard output
    [exit 3]                                its exit code, when that is not 0

The blocks of one file share a folder, which holds a copy of the fixtures. A line ``...`` stands for any lines. In
tests/commands ``{n}`` stands for a number, ``{hex}`` for hexadecimal digits, ``{any}`` for anything within a line;
there standard output and standard error are compared apart. In the documentation both are one stream, as a terminal
shows them, and times are taken as equal. ``python tests/sessions.py FILE...`` writes what is really printed into files
of the documentation.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^```(\S*)[ \t]*(.*)$")
TIME = re.compile(r"\b\d+(?:\.\d+)? (?:ms|s|[KMG]B/s)(?!\w)")
WILD = {"{n}": r"[\d.,]+", "{hex}": r"[0-9a-f]+", "{any}": r".*"}


@dataclass
class Command:
    """One command of a session and what is expected of it."""

    line: int
    text: str
    stdin: str = ""
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    code: int = 0


@dataclass
class Block:
    """One fenced block: its language, the words after it, and its lines. ``line`` is that of the fence."""

    line: int
    language: str
    words: str
    lines: list[str]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, in order."""
    out: list[Block] = []
    current: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if current is not None:
            if fence and not fence[1]:
                out.append(current)
                current = None
            else:
                current.lines.append(line)
        elif fence:
            current = Block(number, fence[1], fence[2], [])
    assert current is None, f"the block that begins in line {current.line} does not end"
    return out


def commands(block: Block) -> list[Command]:
    """The commands of a ``console`` block."""
    out: list[Command] = []
    going_on = False
    for number, line in enumerate(block.lines, block.line + 1):
        if going_on:
            out[-1].text += "\n" + line
        elif line.startswith("$ "):
            out.append(Command(number, line[2:]))
        elif not out:
            raise AssertionError(f"line {number} stands before any command")
        elif line.startswith("< "):
            out[-1].stdin += line[2:] + "\n"
        elif line == "2>" or line.startswith("2> "):
            out[-1].stderr.append(line[3:])
        elif match := re.fullmatch(r"\[exit (\d+)\]", line):
            out[-1].code = int(match[1])
        else:
            out[-1].stdout.append(line)
        going_on = bool(out) and (line.startswith("$ ") or going_on) and line.endswith("\\")
    return out


def pattern(expected: list[str]) -> re.Pattern[str]:
    """What output has to match, as a whole."""
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        pieces = re.split(r"(\{n\}|\{hex\}|\{any\})", line)
        parts.append("".join(WILD.get(piece) or re.escape(piece) for piece in pieces) + r"\n")
    return re.compile("".join(parts))


class Shell:
    """A folder with the fixtures, and the program on the PATH under its two names."""

    def __init__(self, folder: Path, fixtures: Path, environment: dict[str, str]) -> None:
        self.folder = folder / "work"
        shutil.copytree(fixtures, self.folder)
        programs = folder / "bin"
        programs.mkdir()
        for name, options in (("artifactkit", " -m artifactkit"), ("akit", " -m artifactkit"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{options} "$@"\n')
            program.chmod(0o755)
        self.environment = environment | {"PATH": f"{programs}:{environment['PATH']}"}
        self.code = 0

    def run(self, command: Command, merged: bool) -> subprocess.CompletedProcess[str]:
        """Run one command; ``merged`` puts standard error into standard output."""
        # The exit code of the command before is there as $?, as in a terminal.
        script = f"(exit {self.code})\n{command.text}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", script], input=command.stdin, cwd=self.folder, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            text=True, timeout=300, check=False,
        )  # fmt: skip
        self.code = done.returncode
        return done


def without_times(text: str) -> str:
    """The text with every time replaced by one and the same."""
    return TIME.sub("0.0 s", text)


def check(path: Path, shell: Shell, documentation: bool) -> list[str]:
    """Run the sessions of a file; returns what differs, as text for a person."""
    wrong = []
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language != "console":
            continue
        for command in commands(block):
            done = shell.run(command, merged=documentation)
            parts = [("stdout", command.stdout, done.stdout)]
            if documentation:
                expected = [without_times(line) for line in command.stdout]
                parts = [("output", expected, without_times(done.stdout))]
            else:
                parts.append(("stderr", command.stderr, done.stderr))
            for stream, expected, found in parts:
                if not pattern(expected).fullmatch(found):
                    wrong.append(
                        f"{path.name}:{command.line}: $ {command.text}\n--- {stream} expected\n"
                        + "\n".join(expected)
                        + f"\n--- {stream} found\n{found}"
                    )
            # A page of documentation shows the code with `echo $?` where it matters.
            if done.returncode != command.code and not (documentation and command.code == 0):
                wrong.append(
                    f"{path.name}:{command.line}: $ {command.text}\nexit code {done.returncode}, not {command.code}\n"
                    f"{done.stdout}{done.stderr or ''}"
                )
    return wrong


def update(path: Path, shell: Shell) -> bool:
    """Write what the commands of a page of documentation really print into it; whether that changed anything."""
    before = path.read_text(encoding="utf-8")
    lines = before.splitlines()
    for block in reversed(blocks(before)):
        if block.language != "console":
            continue
        lines[block.line : block.line + len(block.lines)] = ["\0" + str(block.line)]
    fresh: dict[str, list[str]] = {}
    for block in blocks(before):
        if block.language == "console":
            out = fresh.setdefault("\0" + str(block.line), [])
            for command in commands(block):
                done = shell.run(command, merged=True)
                same = pattern([without_times(line) for line in command.stdout]).fullmatch(without_times(done.stdout))
                out += ["$ " + command.text, *(command.stdout if same else done.stdout.splitlines())]
    after = "".join("\n".join(fresh.get(line, [line])) + "\n" for line in lines)
    path.write_text(after, encoding="utf-8")
    return after != before


def titled(text: str) -> dict[str, str]:
    """The blocks of a page that are whole files, by path: ``title=artifactkit/formats/x.py`` follows the fence."""
    return {
        match[1]: "\n".join(block.lines) + "\n"
        for block in blocks(text)
        if (match := re.search(r"title=(\S+)", block.words))
    }


def package_with(text: str, package: Path, folder: Path) -> Path:
    """A copy of ``package`` in ``folder`` with the files of a page put into it; returns the copy."""
    copy = folder / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in titled(text).items():
        (folder / name).write_text(content, encoding="utf-8")
    return copy


def main() -> int:
    from conftest import ROOT, environment
    from make import make

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            make(folder / "fixtures")
            (folder / "shell").mkdir()
            (folder / "copy").mkdir()
            package_with(Path(name).read_text(encoding="utf-8"), ROOT / "artifactkit", folder / "copy")
            there = environment() | {"PYTHONPATH": str(folder / "copy")}
            changed = update(Path(name), Shell(folder / "shell", folder / "fixtures", there))
            print(f"{name}: {'changed' if changed else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
