"""The JSON schema for editors says what the check says; both are made of the same tables, and so is the page."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import Any

import jsonschema
import pytest
from conftest import ROOT, environment
from hypothesis import given
from hypothesis import strategies as st
from recipe.test_errors import CASES, GOOD

from artifactkit.recipe.keys import json_schema, recipe
from artifactkit.recipe.problems import Problems
from artifactkit.recipe.tools import EXTRAS

VALIDATOR = jsonschema.Draft7Validator(json_schema())
# What only the document as a whole shows is beyond a schema: references, formats of URLs, the matrix.
SHAPES = ("has no key", "has a wrong value", "needs the key 'source'", "needs the key 'max'", "is not a name")


def told(document: dict[str, Any]) -> bool:
    """Whether our own check finds nothing wrong with the shapes of a document."""
    problems = Problems("x", "")
    recipe().check({key: value for key, value in document.items() if key != "scan"}, (), problems)
    return not problems.found


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(json_schema())


def test_the_published_files_are_what_the_tables_say() -> None:
    command = [sys.executable, str(ROOT / "docs" / "make_recipe.py"), "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "docs are out of date: make docs\n" + done.stderr


REFUSED = [case for case in CASES if any(s in case.what for s in SHAPES) and case.found != "nan"]  # no number in JSON


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
def test_what_the_check_refuses_the_schema_refuses(case: Any) -> None:
    document = tomllib.loads(case.text)
    assert not told(document)
    assert not VALIDATOR.is_valid(document)
    if case.good:
        mended = tomllib.loads(case.text.replace(*case.good, 1))
        assert told(mended)
        assert VALIDATOR.is_valid(mended), list(VALIDATOR.iter_errors(mended))


def test_a_policy_may_be_there() -> None:
    document = tomllib.loads('[scan]\npolicies = ["sklearn"]\n[[scan.allow]]\nname = "x"\n' + GOOD)
    VALIDATOR.validate(document)


def test_what_is_shown_in_the_documentation_is_valid() -> None:
    from sessions import blocks

    shown = [block for block in blocks((ROOT / "docs" / "recipe.md").read_text("utf-8")) if block.language == "toml"]
    assert shown
    for block in shown:
        VALIDATOR.validate(tomllib.loads("\n".join(block.lines)))


KEYS = [
    "model",
    "format",
    "dtype",
    "quantize",
    "opset",
    "chip",
    "strict",
    "verify",
    "max-shard-size",
    "rename",
    "shapes",
    "nokey",
]
item = st.sampled_from(
    ["m", "npz", "NPZ", "bf16", "Float", "q8_0", "sm_89+sm_90", "5GB", "a=b", "", "x y", 0, 17, -1, 2.5, True, False]
)
anything = st.one_of(
    item, st.lists(item, max_size=3), st.dictionaries(st.sampled_from(["device", "atol", "min", "x"]), item, max_size=2)
)


@given(st.dictionaries(st.sampled_from(KEYS), anything, max_size=4))
def test_schema_and_check_agree(target: dict[str, Any]) -> None:
    document = {"models": {"m": {"source": "m"}}, "targets": {"t": target}}
    assert told(document) == VALIDATOR.is_valid(document)


def test_the_tools_of_each_extra_are_those_of_the_project() -> None:
    import re

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, names in EXTRAS.items():
        wanted = dict.fromkeys(re.split(r"[<>=!~;\[ ]", requirement)[0] for requirement in extras[extra])
        assert tuple(wanted) == names


def test_the_schema_is_json() -> None:
    assert json.loads((ROOT / "docs" / "artifactkit.schema.json").read_text("utf-8")) == json_schema()


# Options of `convert` that are no keys: what is converted and where to, what belongs to one run, and what has a key of
# another form.
NOT_KEYS = {
    "src": "source, of a model",
    "dest": "output",
    "to": "format",
    "everything": "all",
    "no-verify": "verify = false",
    "no-summary": "summary = false",
    "allow-unsafe-source": "a decision for one run",
    "require-pinned": "the lock pins",
    "via": "a build runs no command that a file names",
    **dict.fromkeys(("dry-run", "no-statement", "timestamps", "builder-id", "ledger", "locked", "force", "json"), ""),
}


def test_an_option_of_convert_is_a_key() -> None:
    """A new option that changes what is written needs a row in recipe/keys.py; one that does not, a row above."""
    import inspect

    from artifactkit.cli import convert
    from artifactkit.recipe.keys import MODEL, OF_TARGET

    names = {name.strip("_").replace("_", "-") for name in inspect.signature(convert.command).parameters}
    assert names - NOT_KEYS.keys() <= OF_TARGET.keys() | set(MODEL.keys)
    assert NOT_KEYS.keys() <= names
    assert not NOT_KEYS.keys() & (OF_TARGET.keys() | set(MODEL.keys))
