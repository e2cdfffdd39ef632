"""``--via COMMAND``: an external converter in a process of its own, whose output is judged before it gets its name.

The command is the user's, and runs with the user's rights. What it writes is opened by our own reader and compared with
the source, tensor by tensor and fact by fact, in the words of its format; only what passes is put under the name asked
for, and nothing that was there before is harmed by what does not.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass

from .artifact import Weights
from .errors import OutputError, Refused, UsageError, VerificationFailed
from .files import File
from .opening import Opened, is_model_file, open_source
from .placing import Digest, Progress, SameBytes, place
from .report import Entry, Report
from .source import FileSpan
from .staging import Stage
from .translate import in_words_of
from .types import OutputFile, Part, ReadOptions
from .verify.accounting import ledger
from .verify.compare import compare

SAID = 2000  # characters of what a failed command said, from the end
EXAMPLE = "--via 'python convert_hf_to_gguf.py {src} --outfile {dest} --outtype f32'"


@dataclass(slots=True)
class Judged:
    """What the command wrote, what was found of it, and where each source tensor went by our own rules."""

    made: Weights
    report: Report
    ledger: list[Entry]
    outputs: list[Digest]


def words_of(command: str, src: str, dest: str) -> list[str]:
    """The command as a list of words, ``{src}`` and ``{dest}`` replaced. No shell reads it. UsageError without both."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--via: {error}", found=command) from error
    for mark in ("{src}", "{dest}"):
        if not any(mark in word for word in words):
            raise UsageError(f"--via needs {mark} where the path goes", found=command, hint=EXAMPLE)
    return [word.replace("{src}", src).replace("{dest}", dest) for word in words]


def convert_via(command: str, source: Opened, chosen: Weights, destination: str, force: bool) -> Judged:
    """Run the command on the source and keep what it wrote as ``destination``, if it is what the source asks for.

    ``chosen`` are the source's tensors after the user's choice. Raises DestinationExists and UsageError before anything
    runs, Refused when the command fails, VerificationFailed when its output is not the source's, OutputError.
    """
    stage = Stage(destination, folder=False, force=force, inputs=[source.given], familiar=is_model_file)
    name = os.path.basename(os.path.abspath(destination))
    words_of(command, "", "")
    with stage:
        try:
            folder = tempfile.TemporaryDirectory(prefix=".artifactkit-via-", dir=stage.parent)
        except OSError as error:
            raise OutputError(f"cannot make a folder to work in: {error.strerror}", file=stage.parent) from error
        with folder as work:
            written = os.path.join(work, name)
            _run(words_of(command, os.path.abspath(source.given), written))
            made = open_source(written, None, ReadOptions(everything=True, keep_prefix=True)).weights
            wanted = in_words_of(chosen, made)
            report = compare(made, wanted)
            if not report:
                first = report.failed[0] if report.failed else None
                raise VerificationFailed(
                    "what the command wrote is not what the source asks for", file=destination,
                    tensor=None if first is None else first.tensor,
                    found="nothing to compare" if first is None else f"{first.name}: {first.detail}",
                    hint=f"{len(report.failed)} checks failed; nothing was kept",
                )  # fmt: skip
            file = File(written)
            part = Part(0, FileSpan(file, 0, file.size))
            shown = stage.final()
            output = OutputFile(name, file.size, (part,))
            digest = place(output, stage.path(), Progress(), lambda p: SameBytes(p, shown), shown)
            file.check_unchanged()
        stage.commit()
    return Judged(made, report, ledger(source.weights, wanted), [] if digest is None else [digest])


def _run(words: list[str]) -> None:
    """The command, to its end. Its output is kept for the case that it fails. Interrupted, it is ended too."""
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False)
        except OSError as error:
            raise UsageError(f"--via: cannot run it: {error.strerror}", found=words[0]) from error
        if done.returncode:
            said.seek(max(0, said.seek(0, os.SEEK_END) - SAID))
            lines = said.read().decode("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
            raise Refused("the external converter failed", found=f"exit {done.returncode}", hint=f"it said: {last}")


__all__ = ["Judged", "convert_via", "words_of"]
