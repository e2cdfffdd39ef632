"""Writes the sections of docs/safety.md that come from the rules of the scan, one for each; a test compares.

``--check`` compares instead, and exits with 1 when the page is out of date.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from artifactkit.scan.model import Rule
from artifactkit.scan.rules import all_rules

PAGE = Path(__file__).resolve().parent / "safety.md"
BEGIN = "<!-- Made by docs/make_safety.py (`make docs`) from here on; a test compares. -->"
HEAD = """
## The rules of the scan

`artifactkit scan --explain RULE` prints the same. *Malicious* is what asks for code to run, or is shaped so that
readers disagree; *suspicious* is what no table knows to be data, or what is malformed; *unreadable* is what could not
be scanned to its end, and never counts as clean.
"""


def section(rule: Rule) -> list[str]:
    """The section of one rule."""
    return [
        f"#### {rule.id}", "", f"*{rule.severity}*: {escaped(rule.title)}.", "", f"- Why: {escaped(rule.why)}.",
        f"- What to do: {escaped(rule.hint)}.", "",
    ]  # fmt: skip


def escaped(text: str) -> str:
    """The text with what Markdown would take for markup made plain."""
    for sign in ("\\", "_", "*", "<", "`", "["):
        text = text.replace(sign, "\\" + sign)
    return text


def part() -> str:
    """Everything after the mark."""
    lines = [HEAD]
    for prefix, rules in groupby(all_rules().values(), key=lambda rule: rule.id.partition("-")[0]):
        lines += [f"### {prefix}", ""]
        for rule in rules:
            lines += section(rule)
    return "\n".join(lines).rstrip("\n") + "\n"


def page() -> str:
    """The whole page: what is written by hand, the mark, what is made."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[0].rstrip("\n") + f"\n\n{BEGIN}\n{part()}"


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
