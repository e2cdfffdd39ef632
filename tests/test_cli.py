"""How a command line ends, whatever happens in it: words, streams, exit codes. And the small parts that render."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment

from artifactkit.cli import options, render
from artifactkit.errors import Corrupt, UsageError

# A program with one more command, whose body is given. It says "ready" on stderr when the body is about to run.
PROGRAM = """
import sys, types
import artifactkit.cli as cli
from artifactkit import errors
from artifactkit.cli.main import main
from artifactkit.cli.render import out

module = types.ModuleType("artifactkit.cli.probe", "Try something out")
def command(json: bool = False) -> int:
{body}
module.command = command
sys.modules[module.__name__] = module
cli.COMMANDS["probe"] = "Try something out"
code = main(["probe", *sys.argv[1:]])
{after}
sys.exit(code)
"""


def program(body: str, after: str = "") -> list[str]:
    indented = "\n".join("    " + line for line in body.splitlines())
    # `-c` would leave no name for the traceback, and none is needed.
    return [sys.executable, "-c", PROGRAM.format(body=indented, after=after)]


def probe(body: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = environment() | environ
    # `--json` is an option that typer makes of the parameter; it is `--json / --no-json` here, which is no matter.
    return subprocess.run([*program(body), *args], env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("body", "code", "stderr"),
    [
        ("return 0", 0, ""),
        ("return None", 0, ""),
        ("return 1", 1, ""),
        ("out.say('a message')", 0, "a message\n"),
        ("out.warn('a', '  b')", 0, "warning: a\n  b\n"),
        ("raise errors.Refused('no')", 1, "error: no\n"),
        ("raise errors.UsageError('no', hint='yes')", 2, "error: no\nhint: yes\n"),
        (
            "raise errors.Corrupt('no', file='a.pt', member='m', tensor='t', offset=7, expected=1, found=2, hint='h')",
            3,
            "error: no\n  in: file a.pt, member m, tensor t, offset 7\n  expected: 1\n  found: 2\nhint: h\n",
        ),
        ("raise errors.MissingExtra('no')", 4, "error: no\n"),
        ("raise errors.OutputError('no')", 5, "error: no\n"),
        (
            "raise errors.Truncated('a\\x1b[31mb', tensor='t\\n')",
            3,
            "error: a\\x1b[31mb\n  in: tensor t\\n\nhint: the file is not whole: fetch or copy it again\n",
        ),
        ("raise KeyboardInterrupt", 130, "error: interrupted\n"),
        ("raise MemoryError", 70, "error: not enough memory\nhint: free some, or convert on a larger machine\n"),
        (
            "raise KeyError('x')",
            70,
            "error: a fault in artifactkit itself: KeyError: 'x'\n"
            "hint: run again with ARTIFACTKIT_DEBUG=1 for the traceback, and report it together with the command\n",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM); out.say('late')", 130, "error: interrupted\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGHUP); out.say('late')", 130, "error: interrupted\n"),
    ],
)
def test_endings(body: str, code: int, stderr: str) -> None:
    done = probe(body)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", stderr)


def test_the_traceback_is_there_when_asked_for() -> None:
    done = probe("raise KeyError('x')", ARTIFACTKIT_DEBUG="1")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("KeyError: 'x'\n")


@pytest.mark.parametrize(
    ("body", "code", "document"),
    [
        (
            "out.data('not this'); out.document(ok=True, n=1)",
            0,
            {"schema": "artifactkit/probe/1", "command": "probe", "ok": True, "errors": [], "n": 1},
        ),
        (
            "out.keep(source='a'); raise errors.Corrupt('no', file='a', offset=0)",
            3,
            {
                "schema": "artifactkit/probe/1", "command": "probe", "ok": False, "source": "a",
                "errors": [
                    {"code": "corrupt", "message": "no", "file": "a", "offset": 0, "hint": Corrupt.advice},
                ],
            },
        ),
        # What ends a command after its document has been printed does not print a second one.
        (
            "out.document(ok=True); raise errors.OutputError('no')",
            5,
            {"schema": "artifactkit/probe/1", "command": "probe", "ok": True, "errors": []},
        ),
        (
            "raise KeyboardInterrupt",
            130,
            {
                "schema": "artifactkit/probe/1", "command": "probe", "ok": False,
                "errors": [{"code": "interrupted", "message": "interrupted"}],
            },
        ),
    ],
)  # fmt: skip
def test_json_is_one_document(body: str, code: int, document: dict[str, object]) -> None:
    done = probe(body, "--json")
    assert done.returncode == code
    assert json.loads(done.stdout) == document


def test_a_usage_error_is_a_document_too() -> None:
    done = probe("return 0", "--json", "--nope")
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert found["errors"] == [
        {"code": "usage", "message": "no such option: --nope", "hint": "run: artifactkit probe --help"}
    ] or found["errors"][0]["hint"].startswith("did you mean")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_with_its_cleanup(tmp_path: Path, number: signal.Signals) -> None:
    body = """
import pathlib, time
staged = pathlib.Path("staged")
staged.touch()
try:
    out.say("ready")
    time.sleep(60)
finally:
    staged.unlink()
"""
    run = subprocess.Popen(program(body), env=environment(), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    assert run.stderr.readline() == "ready\n"
    run.send_signal(number)
    assert run.communicate(timeout=30)[1] == "error: interrupted\n"
    assert run.returncode == 130
    assert not (tmp_path / "staged").exists()


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    body = "import os, signal; os.kill(os.getpid(), signal.SIGHUP); out.say('goes on')"
    run = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *program(body)]
    done = subprocess.run(run, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "goes on\n")


@pytest.mark.parametrize("body", ["out.data(*['x' * 100] * 5000)", "out.document(ok=True, x='x' * 500000)"])
def test_a_closed_pipe_is_quiet(body: str) -> None:
    args = ["--json"] if "document" in body else []
    run = subprocess.Popen([*program(body), *args], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None and run.stderr is not None
    run.stdout.close()
    assert run.stderr.read() == b""
    assert run.wait(30) == 141
    run.stderr.close()


def test_a_full_disk_under_stdout_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            program("out.data('x')"), env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 5
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "< /dev/null >&- 2>&-"])
def test_closed_streams_do_no_harm(redirection: str) -> None:
    run = ["sh", "-c", f'"$@" {redirection}', "sh", *program("out.data('x'); out.say('y'); return 1")]
    assert subprocess.run(run, env=environment(), capture_output=True, check=False).returncode == 1


def test_a_name_that_the_encoding_lacks_is_escaped() -> None:
    done = probe("out.data('\\u6f22'); out.say('\\xe9')", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\u6f22\n", "\\xe9\n")


BAR = """
import time
from artifactkit.cli import render
render.BAR_AFTER = render.BAR_EVERY = 0
with out.progress("writing x.safetensors", 2_000_000, 3) as advance:
    advance(1_000_000, 1)
    out.say("in between")
    advance(1_000_000, 2)
out.data("done")
"""


def on_a_terminal(command: list[str], **environ: str) -> str:
    """What a terminal gets to see, escape sequences and all."""
    main, side = pty.openpty()
    env = {k: v for k, v in environment().items() if k != "NO_COLOR"} | {"TERM": "xterm", **environ}
    run = subprocess.Popen(command, env=env, stdin=side, stdout=side, stderr=side, close_fds=True)
    os.close(side)
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([main], [], [], 0.1)[0]:
            try:
                seen += os.read(main, 65536)
            except OSError:  # the other side is closed
                break
    os.close(main)
    assert run.wait(30) == 0, seen
    return seen.decode()


def test_a_bar_on_a_terminal() -> None:
    seen = on_a_terminal(program(BAR))
    assert "1.0/2.0 MB" in seen
    assert "2.0/2.0 MB" in seen
    assert "1/3 tensors" in seen
    assert "3/3 tensors" in seen
    assert "in between\r\n" in seen
    assert seen.endswith("done\r\n")


def test_no_colour_where_it_is_not_wanted() -> None:
    colour = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")
    assert colour.search(on_a_terminal(program(BAR)))
    assert not colour.search(on_a_terminal(program(BAR), NO_COLOR="1"))


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"args": "--json"}])
def test_no_bar_where_it_is_not_wanted(environ: dict[str, str]) -> None:
    args = [environ.pop("args")] if "args" in environ else []
    assert "MB" not in on_a_terminal([*program(BAR), *args], **environ)


def test_no_bar_and_no_rich_without_a_terminal() -> None:
    done = subprocess.run(
        program(BAR, "print('rich' in sys.modules)"), env=environment(), capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("done\nFalse\n", "in between\n")


def test_no_rich_for_a_short_job_on_a_terminal() -> None:
    body = BAR.replace("render.BAR_AFTER = render.BAR_EVERY = 0", "")
    assert on_a_terminal(program(body, "print('rich' in sys.modules)")).endswith("False\r\n")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1 KB"), (1234, "1.23 KB"), (999_499, "999 KB"),
        (999_500, "1 MB"), (2_147_483_648, "2.15 GB"), (10**15, "1 PB"), (10**18, "1 EB"),
    ],
)  # fmt: skip
def test_sizes(nbytes: int, text: str) -> None:
    assert render.size(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (7260, "2 h 01 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert render.duration(seconds) == text


def test_counts() -> None:
    assert [render.count(n, "tensor") for n in (0, 1, 12288)] == ["0 tensors", "1 tensor", "12,288 tensors"]
    assert render.count(2, "entry", "entries") == "2 entries"


def test_tables() -> None:
    assert render.table([]) == []
    assert render.table([("a", 1), ("bcd", 100)], head=("x", "n"), right=(1,)) == ["x      n", "a      1", "bcd  100"]
    assert render.table([("a\n", ""), ("b", "c")]) == ["a\\n", "b    c"]
    assert render.table([("a",), ("b", "c")]) == ["a", "b  c"]


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1", 1), ("123", 123), ("5GB", 5 * 10**9), ("5gb", 5 * 10**9), ("5 GB", 5 * 10**9), ("5G", 5 * 10**9),
        ("2GiB", 2 << 30), ("1.5KiB", 1536), ("500MB", 500 * 10**6), ("10B", 10), (" 1kb ", 1000), ("1TB", 10**12),
    ],
)  # fmt: skip
def test_sizes_are_parsed(text: str, nbytes: int) -> None:
    assert options.parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "GB", "0", "0GB", "-1", "1iB", "5 GB 3", "1e9", "5XB", "0.1", "five", "١", "9" * 400]
)
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        options.parse_size(text)
