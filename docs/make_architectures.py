"""Writes the table of docs/architectures.md: the model families that are known.

``--check`` compares instead, and exits with 1 when the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from artifactkit import registry
from artifactkit.modeling.architecture import Architecture

PAGE = Path(__file__).resolve().parent / "architectures.md"
BEGIN = "<!-- families: made by docs/make_architectures.py (`make docs`); a test compares -->"
END = "<!-- end of families -->"


def row(arch: Architecture) -> str:
    """The family as a row of the table."""
    classes = ", ".join(f"`{name}`" for name in arch.classes)
    gives = "embeddings" if arch.encoder else "logits"
    return f"| {arch.name} | {classes} | `{arch.gguf}` | {gives} | {arch.notes} |"


def table() -> str:
    """The part of the page that lists the families."""
    titles = ("family", "classes in transformers", "`general.architecture`", "gives", "what holds in part")
    head = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([BEGIN, *head, *(row(arch) for arch in registry.architectures().values()), END])


def page() -> str:
    """The page with its table as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + table() + rest.partition(END)[2]


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
