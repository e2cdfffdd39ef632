"""Each way in which a recipe can be wrong: line, column, expected, found, hint. Each has a twin that passes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.errors import ArtifactkitError, UsageError
from artifactkit.recipe.problems import Invalid, Problem
from artifactkit.recipe.read import MAX_SIZE, parse, read

GOOD = """\
[models.m]
source = "m.bin"

[inputs.text]
source = "text.txt"

[targets.t]
model = "m"
format = "gguf"
"""


class Case(NamedTuple):
    """``text`` is wrong at ``place``; ``good`` put in the place of ``bad`` mends it."""

    text: str
    place: tuple[int, int]
    what: str
    expected: str | None = None
    found: str | None = None
    hint: str | None = None
    good: tuple[str, str] | None = None


def target(line: str, good: str | None, place: int, what: str, **words: str) -> Case:
    """A line after those of GOOD, in its target: line 10."""
    return Case(GOOD + line, (10, place), what, good=None if good is None else (line, good), **words)


CASES = [
    # The form of the file.
    Case("a = \n", (1, 5), "not TOML: invalid value", good=("a = \n", "")),
    Case("[models.m\n", (1, 10), "not TOML: expected ']' at the end of a table declaration", good=("[models.m\n", "")),
    Case(
        "<<<<<<< HEAD\n",
        (1, 1),
        "not TOML: invalid statement",
        hint="a merge left its marks here",
        good=("<<<<<<< HEAD\n", ""),
    ),
    Case("x = " + "[" * 2000 + "]" * 2000, (1, 1), "nested too deeply"),
    Case("[" + "a." * 100 + "b]\n", (1, 2), "a key of too many parts", expected="at most 64"),
    Case("x = 1\n" + "a." * 100_000 + "b = 1\n", (2, 1), "a key of too many parts", expected="at most 64"),
    Case("x = { " + "'a' . " * 100 + "b = 1 }\n", (1, 7), "a key of too many parts", expected="at most 64"),
    # Tables.
    Case(
        "[target.t]\n",
        (1, 2),
        "artifactkit.toml has no key 'target'",
        hint="did you mean 'targets'?",
        good=("[target.t]\n", ""),
    ),
    Case(
        "[modles.m]\n",
        (1, 2),
        "artifactkit.toml has no key 'modles'",
        hint="did you mean 'models'?",
        good=("[modles.m]\n", ""),
    ),
    Case(
        "xyzzy = 1\n",
        (1, 1),
        "artifactkit.toml has no key 'xyzzy'",
        hint="its keys: models, inputs, defaults, targets",
        good=("xyzzy = 1\n", ""),
    ),
    Case('models = "m"\n', (1, 10), "`models` has a wrong value", "tables [models.NAME]", '"m"', good=('"m"', "{}")),
    Case(
        "[[targets]]\nmodel = 1\n",
        (1, 3),
        "`targets` has a wrong value",
        "tables [targets.NAME]",
        "a list",
        good=("[[targets]]\nmodel = 1\n", ""),
    ),
    Case(
        '[models."a b"]\nsource = "x"\n',
        (1, 9),
        "'a b' is not a name of letters, digits, `_`, `-` and `.`",
        good=("a b", "a-b"),
    ),
    Case(
        "[models.m]\n",
        (1, 9),
        "a model needs the key 'source'",
        "a path, hf://owner/name, https://...#sha256=... or s3://...",
        good=("[models.m]\n", '[models.m]\nsource="m"'),
    ),
    # Models.
    Case(
        '[models.m]\nsource = ""\n',
        (2, 10),
        "`source` has a wrong value",
        found='""',
        hint="a path is relative to the folder of artifactkit.toml",
        good=('""', '"m"'),
    ),
    Case("[models.m]\nsource = 3\n", (2, 10), "`source` has a wrong value", found="3", good=("3", '"m"')),
    Case(
        '[models.m]\nsource = "m"\nrevision = "main"\n',
        (3, 1),
        "only a hf:// source has revisions",
        hint="leave it out; the lock pins by sha256",
        good=('"m"', '"hf://o/n"'),
    ),
    Case(
        '[models.m]\nsource = "hf://o"\n',
        (2, 10),
        "this is no address of a model on the hub",
        "hf://owner/name[@revision][/path]",
        good=("hf://o", "hf://o/n"),
    ),
    Case(
        '[models.m]\nsource = "hf://o/n@v1"\nrevision = "main"\n',
        (3, 12),
        "the revision is given twice",
        found="v1 and main",
        hint="leave @v1 out of the source",
        good=("@v1", ""),
    ),
    Case(
        '[models.m]\nsource = "https:/x/y"\nrevison = "z"\n',
        (3, 1),
        "a model has no key 'revison'",
        hint="did you mean 'revision'?",
        good=('revison = "z"\n', ""),
    ),
    Case(
        '[models.m]\nsource = "ftp://x/y"\n', (2, 10), "nothing is read from ftp://", good=("ftp://x/y", "https://x/y")
    ),
    Case(
        '[models.m]\nsource = "https://x/y#md5=1"\n',
        (2, 10),
        "what follows # is no digest",
        found="#md5=1",
        good=("#md5=1", ""),
    ),
    Case(
        '[models.m]\nsource = "m"\nfrom = "torchzip"\n',
        (3, 8),
        "`from` has a wrong value",
        "a format",
        '"torchzip"',
        "did you mean 'torch-zip'?",
        good=("torchzip", "torch_zip"),
    ),
    Case(
        '[models.m]\npath = "m"\nsource = "m"\n',
        (2, 1),
        "a model has no key 'path'",
        hint="did you mean 'source'?",
        good=('path = "m"\n', ""),
    ),
    Case('[inputs.m]\nsource = "m"\nall = true\n', (3, 1), "an input has no key 'all'", good=("all = true\n", "")),
    # Keys of targets.
    target(
        'quantise = "q8_0"\n',
        'quantize = "q8_0"\n',
        1,
        "a target has no key 'quantise'",
        hint="did you mean 'quantize'?",
    ),
    target(
        'max_shard_size = "1GB"\n',
        'max-shard-size = "1GB"\n',
        1,
        "a target has no key 'max_shard_size'",
        hint="did you mean 'max-shard-size'?",
    ),
    target('target = "sm_89"\n', 'chip = "sm_89"\n', 1, "a target has no key 'target'", hint="did you mean 'chip'?"),
    target(
        'dtype = "fp15"\n',
        'dtype = "FP16"\n',
        9,
        "`dtype` has a wrong value",
        expected="an element type, or auto",
        found='"fp15"',
        hint="did you mean 'fp16'?",
    ),
    target(
        'dtype = ["f16", "floaty"]\n',
        'dtype = ["f16", "f32"]\n',
        17,
        "`dtype` has a wrong value",
        found='"floaty"',
        hint="did you mean 'float'?",
    ),
    target('dtype = ["f16", "fp16"]\n', 'dtype = ["f16", "bf16"]\n', 17, "'f16' comes twice in the list"),
    target("quantize = []\n", 'quantize = ["q8_0"]\n', 12, "`quantize` has a wrong value", found="an empty list"),
    target("quantize = 8\n", 'quantize = "q8_0"\n', 12, "`quantize` has a wrong value", found="8"),
    target('quantize = ["q8_0", "q8_0"]\n', 'quantize = ["q8_0", "q4_0"]\n', 21, '"q8_0" comes twice in the list'),
    target("opset = 0\n", "opset = 17\n", 9, "`opset` has a wrong value", found="0"),
    target("opset = true\n", "opset = [17]\n", 9, "`opset` has a wrong value", found="true"),
    target(
        'max-shard-size = "5 parsecs"\n',
        'max-shard-size = "5 GB"\n',
        18,
        "`max-shard-size` has a wrong value",
        expected="a size like 5GB, 500MB or 2GiB",
        found='"5 parsecs"',
    ),
    target(
        'strict = "yes"\n', "strict = true\n", 10, "`strict` has a wrong value", expected="true or false", found='"yes"'
    ),
    target(
        'overflow = "clip"\n',
        'overflow = "saturate"\n',
        12,
        "`overflow` has a wrong value",
        found='"clip"',
        hint="one of refuse, saturate, inf",
    ),
    target(
        "verify = true\n",
        "verify = false\n",
        10,
        "`verify` has a wrong value",
        expected="false, or a table",
        found="true",
    ),
    target("verify = { atol = -1 }\n", "verify = { atol = 1e-3 }\n", 19, "`atol` has a wrong value", found="-1"),
    target(
        "verify = { atol = nan }\n", "verify = { atol = { logits = 0 } }\n", 19, "`atol` has a wrong value", found="nan"
    ),
    target(
        'verify = { devices = ["cpu"] }\n',
        'verify = { device = ["cpu"] }\n',
        12,
        "verify has no key 'devices'",
        hint="did you mean 'device'?",
    ),
    target(
        'verify = { device = "cpu" }\n',
        'verify = { device = ["cpu"] }\n',
        21,
        "`device` has a wrong value",
        found='"cpu"',
    ),
    target(
        'verify = { budget = "soon" }\n',
        'verify = { budget = "10m" }\n',
        21,
        "`budget` has a wrong value",
        found='"soon"',
    ),
    target(
        'verify = { inputs = "tex" }\n',
        'verify = { inputs = "text" }\n',
        21,
        "there is no [inputs.tex]",
        hint="did you mean 'text'?",
    ),
    target(
        'calibration = "tex"\n', 'calibration = "text"\n', 15, "there is no [inputs.tex]", hint="did you mean 'text'?"
    ),
    target('imatrix = "xyz"\n', 'imatrix = "text"\n', 11, "there is no [inputs.xyz]", hint="one of text"),
    target(
        'adapters = ["text", "txt"]\n',
        'adapters = ["text"]\n',
        21,
        "there is no [inputs.txt]",
        hint="did you mean 'text'?",
    ),
    target(
        'chip = "sm_89"\ndevice = "cpu"\n', 'chip = "sm_89"\n', 1, "a target has `chip` or `device`, not both"
    )._replace(place=(11, 1)),
    target(
        'rename = ["a"]\n', 'rename = ["a=b"]\n', 11, "`rename` has a wrong value", expected="REGEX=NEW", found='"a"'
    ),
    target(
        'rename = ["(=b"]\n',
        'rename = ["(a)=b"]\n',
        11,
        "the pattern '(' is no regular expression: missing ), unterminated subpattern at position 0",
    ),
    target(
        'exclude = ["re:("]\n',
        'exclude = ["("]\n',
        12,
        "the pattern 're:(' is no regular expression: missing ), unterminated subpattern at position 0",
    ),
    target(
        'tensor-type = { "(" = "q8_0" }\n',
        'tensor-type = { "()" = "q8_0" }\n',
        17,
        "the pattern '(' is no regular expression: missing ), unterminated subpattern at position 0",
    ),
    target(
        "shapes = { x = { min = [1], opt = [1] } }\n",
        "shapes = { x = { min = [1], opt = [1], max = [1] } }\n",
        12,
        "the shape of an input needs the key 'max'",
    ),
    target(
        "shapes = { x = { min = [1], opt = [1], max = [1, 2] } }\n",
        "shapes = { x = { min = [1], opt = [1], max = [1] } }\n",
        12,
        "`min`, `opt` and `max` have as many axes as each other",
    ),
    target(
        "shapes = { x = { min = [2], opt = [1], max = [3] } }\n",
        "shapes = { x = { min = [2], opt = [2], max = [2] } }\n",
        12,
        "sizes must not fall from `min` over `opt` to `max`",
    ),
    target(
        "shapes = { x = { min = [0], opt = [1], max = [3] } }\n",
        "shapes = { x = { min = [1], opt = [1], max = [3] } }\n",
        25,
        "`min` has a wrong value",
        found="0",
    ),
    target(
        'output = "x"\nquantize = ["q8_0", "q4_0"]\n',
        'output = "x"\nquantize = ["q8_0"]\n',
        10,
        "t-q8_0 and t-q4_0 would be written to the same place",
        found="x",
        hint="{name} stands for the target's name",
    ),
    target(
        'quantize = ["q8_0", "q4_0"]\nskip = [{ quantize = "q5_0" }]\n',
        'quantize = ["q8_0", "q4_0"]\nskip = [{ quantize = "Q4_0" }]\n',
        9,
        "no combination of the matrix is like this",
    )._replace(place=(11, 9)),
    target(
        'quantize = "q8_0"\nskip = [{ quantize = "q8_0" }]\n',
        'quantize = ["q8_0", "q4_0"]\nskip = [{ quantize = "q8_0" }]\n',
        11,
        "'quantize' is no list here, so no part of the matrix",
        hint="this target has no matrix",
    )._replace(place=(11, 11)),
    target("skip = [{ strict = true }]\n", None, 11, "a combination to skip has no key 'strict'"),
    # References and formats.
    Case(
        GOOD.replace('model = "m"', 'model = "n"'),
        (8, 9),
        "there is no [models.n]",
        hint="one of m",
        good=('"n"', '"m"'),
    ),
    Case(
        GOOD.replace('model = "m"', 'model = ["m", "mm"]'),
        (8, 15),
        "there is no [models.mm]",
        hint="did you mean 'm'?",
        good=('["m", "mm"]', '"m"'),
    ),
    Case(
        GOOD.replace('format = "gguf"\n', ""),
        (7, 10),
        "a target needs the key 'format'",
        hint="give it here or in [defaults]",
        good=('model = "m"', 'model = "m"\nformat = "gguf"'),
    ),
    Case(
        GOOD.replace("gguf", "safetensor"),
        (9, 10),
        "`format` has a wrong value",
        found='"safetensor"',
        hint="did you mean 'safetensors'?",
        good=("safetensor", "safetensors"),
    ),
    Case(
        GOOD.replace("gguf", "torch-zip"),
        (9, 10),
        "`torch-zip` is read but never written: a pickle can run code when it is opened",
        hint="safetensors",
        good=("torch-zip", "npz"),
    ),
    Case(
        GOOD.replace("gguf", "pickle"),
        (9, 10),
        "`pickle` is read but never written: a pickle can run code when it is opened",
        hint="safetensors",
        good=("pickle", "npz"),
    ),
    # Names of the matrix.
    Case(
        GOOD.replace("gguf", "safetensors") + 'dtype = ["f16"]\n[targets.t-f16]\nmodel = "m"\nformat = "npz"\n',
        (11, 10),
        "two targets would be called 't-f16'",
        found="[targets.t] in line 7",
        hint="name one of them differently",
        good=("t-f16", "t-16"),
    ),
    Case(
        GOOD + f"opset = [{', '.join(map(str, range(1, 257)))}]\ngroup-size = [{', '.join(map(str, range(1, 257)))}]\n",
        (7, 10),
        "the matrix is too large",
        "at most 10000 targets in a file",
        "65536",
    ),
    # Defaults are checked where they are written.
    Case(
        '[defaults]\ndtyp = "f16"\n',
        (2, 1),
        "[defaults] has no key 'dtyp'",
        hint="did you mean 'dtype'?",
        good=("dtyp ", "dtype "),
    ),
    Case('[defaults]\nmodel = "n"\n' + GOOD, (2, 9), "there is no [models.n]", hint="one of m", good=('"n"', '"m"')),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.what[:40]}-{case.place}")
def test_what_is_wrong_is_said_with_its_place(case: Case) -> None:
    with pytest.raises(Invalid) as caught:
        parse(case.text.encode())
    assert caught.value.exit_code == 2
    found = [p for p in caught.value.problems if p.what.startswith(case.what)]
    assert found, caught.value.problems
    problem = found[0]
    assert (problem.line, problem.column) == case.place
    for wanted, said in ((case.expected, problem.expected), (case.found, problem.found), (case.hint, problem.hint)):
        assert wanted is None or said == wanted
    # Nothing else is wrong with the file.
    assert len(caught.value.problems) == 1, caught.value.problems


@pytest.mark.parametrize("case", [c for c in CASES if c.good], ids=lambda case: f"{case.what[:40]}-{case.place}")
def test_the_twin_that_is_right_passes(case: Case) -> None:
    assert case.good is not None
    bad, good = case.good
    assert case.text.count(bad) >= 1
    parse(case.text.replace(bad, good, 1).encode())


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_file() -> None:
    text = """\
[models.m]
sorce = "m"
[targets.t]
model = 1
format = "gguf"
dtyp = "f16"
strict = 1
"""
    with pytest.raises(Invalid) as caught:
        parse(text.encode(), "here.toml")
    assert [(p.line, p.column) for p in caught.value.problems] == [(1, 9), (2, 1), (4, 9), (6, 1), (7, 10)]
    assert caught.value.lines() == [
        "the file cannot be understood: 5 errors in it",
        "  here.toml:1:9: a model needs the key 'source'",
        "    expected: a path, hf://owner/name, https://...#sha256=... or s3://...",
        "  here.toml:2:1: a model has no key 'sorce'",
        "    hint: did you mean 'source'?",
        "  here.toml:4:9: `model` has a wrong value",
        "    expected: the name of a table, or a list of such for a matrix",
        "    found: 1",
        "  here.toml:6:1: a target has no key 'dtyp'",
        "    hint: did you mean 'dtype'?",
        "  here.toml:7:10: `strict` has a wrong value",
        "    expected: true or false",
        "    found: 1",
    ]


def test_a_long_list_of_errors_is_cut_and_a_document_has_all() -> None:
    text = "".join(f"wrong{n} = 1\n" for n in range(200))
    with pytest.raises(Invalid) as caught:
        parse(text.encode())
    assert caught.value.lines()[-1] == "  ... and 150 more"
    problems = caught.value.to_json()["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 200
    assert problems[0]["line"] == 1


@pytest.mark.parametrize(
    ("data", "place", "what"),
    [
        (b"a = 1\nb = \xff\n", (2, 5), "not UTF-8"),
        (b"x = 2023-02-30\n", (1, 15), "not TOML: invalid date or datetime"),
        (b"x = " + b"9" * 5000 + b"\n", (1, 1), "not TOML: Exceeds the limit"),
        (b"a = 1\r\nb = \r\n", (2, 5), "not TOML: invalid value"),
        (b"a = '\n", (2, 1), 'not TOML: expected "\'"'),
        (b"x = [\n", (2, 1), "not TOML: invalid value"),
    ],
)
def test_bytes_that_are_no_recipe(data: bytes, place: tuple[int, int], what: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(data)
    (problem,) = caught.value.problems
    assert problem.what.startswith(what[:20])
    assert problem.line == place[0]


def test_a_file_that_is_no_recipe(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArtifactkitError) as caught:
        read(str(tmp_path / "absent.toml"))
    assert caught.value.exit_code == 3
    assert caught.value.hint == "artifactkit init --source SRC --to FORMAT writes an artifactkit.toml"
    big = tmp_path / "big.toml"
    with big.open("wb") as file:
        file.truncate(MAX_SIZE + 1)
    with pytest.raises(UsageError, match="too large"):
        read(str(big))


def test_control_characters_do_not_reach_the_terminal() -> None:
    with pytest.raises(Invalid) as caught:
        parse(b'"\\u001b[2J" = 1\n', "a\x1bb.toml")
    assert "\x1b" not in "\n".join(caught.value.lines())


def test_the_policy_of_scan_is_left_to_scan() -> None:
    parse(b'[scan]\npolicies = ["sklearn"]\n[[scan.allow]]\nanything = "goes"\n' + GOOD.encode())


def test_a_problem_as_json_leaves_out_what_is_not_known() -> None:
    assert Problem(1, 2, "x", hint="y").to_json() == {"line": 1, "column": 2, "message": "x", "hint": "y"}


WHOLE = """\
[models.m] # a comment
source = "hf://o/n"
revision = "main"
[models.n]
source = "n.bin"
[inputs]
text = { source = 'text.txt' }
[defaults]
dtype = ["f16", "bf16"]
verify = { device = ["cpu"], atol = { logits = 1e-3 } }
[targets.t]
model = ["m", "n"]
format = "gguf"
quantize = "q8_0"
skip = [{ model = "n", dtype = "f16" }]
shapes.x = { min = [1], opt = [1], max = [2] }
calibration = "text"
output = "out/{name}"
[[scan.allow]]
name = "x"
"""
PIECES = [*"[]=\"'.\n{},#\\", '"""', "[x]\n", "x = 1\n", "true", "[[", "]]", "{name}"]


@settings(max_examples=300)
@given(st.integers(0, len(WHOLE)), st.integers(0, 30), st.one_of(st.text(max_size=8), st.sampled_from(PIECES)))
def test_a_recipe_that_is_cut_and_patched_is_understood_or_refused(at: int, length: int, piece: str) -> None:
    text = WHOLE[:at] + piece + WHOLE[at + length :]
    data = text.encode("utf-8", "surrogatepass")
    try:
        recipe = parse(data)
    except Invalid as error:
        lines = text.count("\n") + 1
        assert all(1 <= p.line <= lines and p.column >= 1 for p in error.problems)
        assert error.problems
        return
    assert len(recipe.targets) == len({target.name for target in recipe.targets.values()})


@pytest.mark.parametrize(
    "text",
    ["a" * MAX_SIZE,
     '"' * MAX_SIZE, "a = '" + "x." * (MAX_SIZE // 2 - 4) + "'", "[" * MAX_SIZE, "a.'" * (MAX_SIZE // 3),
     "x = [" + "1," * (MAX_SIZE // 2 - 4) + "]", "".join(f"a{n} = 1\n" for n in range(20_000)),
     "".join(f"[targets.a{n}]\n" for n in range(10_000))],
    ids=range(8),
)  # fmt: skip
def test_the_largest_files_take_no_time_to_speak_of(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text.encode())
