"""artifactkit.toml -> Recipe. Everything that is wrong with a file is told at once, with line and column."""

from __future__ import annotations

import re
from typing import Any

from ..errors import Unreadable, UsageError
from ..files import File
from ..hub import address as hub_address
from ..remote import address as remote_address
from ..trees import is_url
from .expand import Expansion
from .keys import recipe
from .model import FILE, Pinned, Recipe
from .problems import Invalid, Problem, Problems, near

MAX_SIZE = 256 << 10  # bytes; a recipe of a thousand targets has half of it
MAX_PARTS = 64  # of one key; the time that the parser takes grows with their square
_LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}""" % MAX_PARTS  # noqa: UP031
)
_PLACE = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)


def read(path: str = FILE) -> Recipe:
    """Read the recipe at ``path``. Unreadable when it is not there, Invalid with all that is wrong in it."""
    return parse(bytes_of(path), path)


def bytes_of(path: str) -> bytes:
    """The content of a recipe. Unreadable when it is not there, UsageError when it is too large to be one."""
    try:
        file = File(path)
    except Unreadable as error:
        error.hint = f"artifactkit init --source SRC --to FORMAT writes an {FILE}"
        raise
    if file.size > MAX_SIZE:
        raise UsageError("too large for a recipe", file=path, expected=f"at most {MAX_SIZE} bytes", found=file.size)
    return file.read(0, file.size)


def parse(data: bytes, file: str = FILE) -> Recipe:
    """The recipe in ``data``. ``file`` names it in messages."""
    document, text = document_of(data, file)
    problems = Problems(file, text)
    document.pop("scan", None)  # scan/policy_toml.py's
    recipe().check(document, (), problems)
    problems.raise_any()  # what follows takes the shapes for granted
    models = {name: _pinned("models", name, table, problems) for name, table in document.get("models", {}).items()}
    inputs = {name: _pinned("inputs", name, table, problems) for name, table in document.get("inputs", {}).items()}
    targets = Expansion(document, problems).targets()
    problems.raise_any()
    return Recipe(file, models, inputs, targets)


def document_of(data: bytes, file: str) -> tuple[dict[str, Any], str]:
    """A TOML document and its text, with plain line ends. Invalid when it is not TOML."""
    import tomllib

    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise Invalid(
            file, [Problem(line, column, "not UTF-8", "text in UTF-8", f"byte {data[error.start]:#04x}")]
        ) from error
    long = _LONG_KEY.search(text)
    if long is not None:
        line = text.count("\n", 0, long.start()) + 1
        column = long.start() - text.rfind("\n", 0, long.start())
        raise Invalid(file, [Problem(line, column, "a key of too many parts", f"at most {MAX_PARTS}")])
    try:
        document = tomllib.loads(text)
        check_depth(document)
        return document, text
    except tomllib.TOMLDecodeError as error:
        match = _PLACE.match(str(error))
        what = (match[1] if match else str(error)).rstrip(".")
        lines = text.split("\n")
        line, column = (int(match[2]), int(match[3])) if match and match[2] else (len(lines), len(lines[-1]) + 1)
        hint = None
        if any(lines[line - 1].startswith(mark) for mark in ("<<<<<<<", "=======", ">>>>>>>")):
            hint = "a merge left its marks here"
        raise Invalid(file, [Problem(line, column, f"not TOML: {what[:1].lower()}{what[1:]}", hint=hint)]) from error
    except ValueError as error:  # an impossible date, an integer of thousands of digits
        raise Invalid(file, [Problem(1, 1, f"not TOML: {str(error)[:100]}")]) from error
    except RecursionError as error:
        raise Invalid(file, [Problem(1, 1, "nested too deeply")]) from error


def check_depth(value: object, left: int = 40) -> None:
    """RecursionError for values nested deeper than any that are meant, long before the stack ends."""
    if left == 0:
        raise RecursionError
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_depth(item, left - 1)


def _pinned(kind: Any, name: str, table: dict[str, Any], problems: Problems) -> Pinned:
    path = (kind, name)
    source, revision = table["source"], table.get("revision")
    given = None
    try:
        if source.startswith(hub_address.SCHEME):
            given = hub_address.parse(source).revision
        elif is_url(source):
            remote_address.parse(source)
    except UsageError as error:
        found = error.found or error.file
        problems.at_value((*path, "source"), error.what, expected=error.expected, found=found, hint=error.hint)
    if source.startswith(hub_address.SCHEME):
        if given is not None and revision is not None:
            problems.at_value(
                (*path, "revision"), "the revision is given twice", found=f"{given} and {revision}",
                hint=f"leave @{given} out of the source",
            )  # fmt: skip
    elif revision is not None:
        problems.at_key(
            (*path, "revision"), "only a hf:// source has revisions", hint="leave it out; the lock pins by sha256"
        )
    options = {key: value for key, value in table.items() if key not in ("source", "revision")}
    return Pinned(kind, name, source, revision, options, problems.positions.key(path)[0])


__all__ = ["Recipe", "document_of", "near", "parse", "read"]
