"""Writes what docs say of artifactkit.toml from the tables that check it: its JSON schema, and the keys in recipe.md.

``--check`` compares instead, and exits with 1 when one of them is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from artifactkit.recipe.keys import INPUT, MODEL, OF_TARGET, SKIP, TARGET, VERIFY, json_schema
from artifactkit.recipe.shapes import Key

DOCS = Path(__file__).resolve().parent
SCHEMA = DOCS / "artifactkit.schema.json"
PAGE = DOCS / "recipe.md"
BEGIN, END = "<!-- keys: made by docs/make_recipe.py (`make docs`); a test compares -->", "<!-- end of keys -->"


def rows(keys: Mapping[str, Key]) -> list[str]:
    """One row of a table of Markdown for each key."""
    out = ["| key | value | what it means |", "|---|---|---|"]
    for name, key in keys.items():
        words = key.shape.words.replace("|", "\\|")
        many = "; a list of such makes a matrix" if key.matrix else ""
        needed = " Required." if key.required else ""
        out.append(f"| `{name}` | {words}{many} | {key.says}{needed} |")
    return out


def keys() -> str:
    """The part of the page that lists the keys."""
    parts = [BEGIN]
    for title, table in (
        ("`[models.NAME]`", MODEL.keys),
        ("`[inputs.NAME]`", INPUT.keys),
        ("`[targets.NAME]` and `[defaults]`", OF_TARGET),
        ("`[targets.NAME]` only", {key: TARGET.keys[key] for key in TARGET.keys.keys() - OF_TARGET.keys()}),
        ("`verify`", VERIFY.keys),
    ):
        parts += ["", f"### {title}", "", *rows(table)]
    return "\n".join([*parts, "", f"A `skip` has the keys {', '.join(f'`{key}`' for key in SKIP.keys)}.", END])


def page() -> str:
    """The page with its keys as they are now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + keys() + after


def main() -> int:
    made = {SCHEMA: json.dumps(json_schema(), indent=2) + "\n", PAGE: page()}
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
