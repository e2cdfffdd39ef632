"""Writes docs/reference.md from what the program says of itself: commands, exit codes, element types.

``--check`` compares instead, and exits with 1 when the page is out of date.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from artifactkit import dtypes, errors
from artifactkit.cli import COMMANDS, SUBCOMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"

HEAD = """<!-- Made by docs/make_reference.py (`make docs`); a test compares. -->

# Reference
"""

CODES_HEAD = """
## Exit codes

| code | when |
|---|---|
| 0 | done, clean, passed |
| 1 | a negative verdict: `verify` did not pass, `diff` found a difference |
"""

JSON = """
## The document of `--json`

Every command takes `--json` and then prints one JSON document on standard output, whatever happens. Messages still go
to standard error, and the exit code is the same.

| key | what |
|---|---|
| `schema` | `artifactkit/COMMAND/1`; the number grows when a key changes its meaning |
| `command` | the command's name |
| `ok` | whether the exit code is 0 |
| `errors` | a list of errors, as below |

An error has `code` (from the table above) and `message`, and where they are known `file`, `member`, `tensor`, `offset`
(in bytes, within the member if one is named), `expected`, `found` and `hint`.

The other keys are the command's own, and stay as they are within one schema number.
"""


def help_of(*args: str) -> str:
    """What ``artifactkit ARGS --help`` prints."""
    environment = os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "artifactkit", *args, "--help"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip("\n")


def exit_codes() -> list[str]:
    """One row for each class of error, by exit code, with the first words of its docstring."""
    rows = []
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.ArtifactkitError)]
    for cls in sorted(classes[1:], key=lambda c: c.exit_code):  # the first is the root of the tree
        doc = " ".join((cls.__doc__ or "").split()).rsplit(" Exit ", 1)[0].rstrip(".")
        doc = doc[:1].lower() + doc[1:].replace("``", "`")
        rows.append(f"| {cls.exit_code} | `{cls.code}`: {doc} |")
    rows.append("| 70 | a fault of artifactkit itself, or not enough memory |")
    rows.append("| 141 | whoever read the output stopped reading |")
    return rows


def element_types() -> list[str]:
    """One row for each element type."""
    synonyms: dict[str, list[str]] = {}
    for other, name in dtypes.SYNONYMS.items():
        synonyms.setdefault(name, []).append(other)
    rows = ["", "## Element types", "", "In any case, and with or without `torch.` before them.", ""]
    rows += ["| name | bits | torch | safetensors | also called |", "|---|---|---|---|---|"]
    for d in dtypes.ALL:
        cells = (d.name, str(d.bits), d.torch or "", d.safetensors or "", ", ".join(sorted(synonyms.get(d.name, []))))
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def reference() -> str:
    """The whole page."""
    parts = [HEAD, "```text", help_of(), "```"]
    for name in COMMANDS:
        parts += [f"\n## artifactkit {name}\n", "```text", help_of(name), "```"]
        for sub in SUBCOMMANDS.get(name, {}):
            parts += [f"\n### artifactkit {name} {sub}\n", "```text", help_of(name, sub), "```"]
    return "\n".join([*parts, CODES_HEAD.rstrip(), *exit_codes(), JSON.rstrip(), *element_types()]) + "\n"


def main() -> int:
    page = reference()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
