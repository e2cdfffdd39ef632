"""From tables of targets to targets: defaults, the matrix and its names."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.recipe import text
from artifactkit.recipe.keys import OF_TARGET
from artifactkit.recipe.model import Recipe
from artifactkit.recipe.read import parse

MODELS = '[models.a]\nsource = "a"\n[models.b]\nsource = "b"\n'


def targets(body: str) -> dict[str, dict[str, object]]:
    return {name: dict(target.options) for name, target in parse((MODELS + body).encode()).targets.items()}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ('[targets.x]\nmodel = "a"\nformat = "npz"\n', ["x"]),
        # A list of one is a list: the name stays when another joins it.
        ('[targets.x]\nmodel = "a"\nformat = "npz"\ndtype = ["f16"]\n', ["x-f16"]),
        ('[targets.x]\nmodel = "a"\nformat = "npz"\ndtype = ["fp16", "BF16"]\n', ["x-f16", "x-bf16"]),
        ('[targets.x]\nmodel = "a"\nformat = "gguf"\nquantize = ["q8_0", "Q4_K_M"]\n', ["x-q8_0", "x-q4_k_m"]),
        # The order is that of the keys' table, whatever the order in the file.
        (
            '[targets.x]\ndtype = ["f16", "f32"]\nmodel = ["a", "b"]\nformat = "npz"\n',
            ["x-a-f16", "x-a-f32", "x-b-f16", "x-b-f32"],
        ),
        (
            '[targets.x]\nmodel = "a"\nformat = "tensorrt_rtx"\nchip = ["sm_89+sm_120", "SM_86"]\n',
            ["x-sm_89-sm_120", "x-sm_86"],
        ),
        (
            '[targets.x]\nmodel = "a"\nformat = "onnx"\ndevice = ["onnxruntime/tensorrt@cuda:0"]\n',
            ["x-onnxruntime-tensorrt-cuda-0"],
        ),
        ('[targets.x]\nmodel = "a"\nformat = ["npz", "safetensors"]\nopset = 17\n', ["x-npz", "x-safetensors"]),
        (
            '[targets.x]\nmodel = ["a", "b"]\nformat = "npz"\ndtype = ["f16", "f32"]\n'
            'skip = [{ model = "a", dtype = "fp32" }]\n',
            ["x-a-f16", "x-b-f16", "x-b-f32"],
        ),
        ('[defaults]\nmodel = "a"\ndtype = ["f16", "f32"]\n[targets.x]\nformat = "npz"\n', ["x-f16", "x-f32"]),
        ('[defaults]\nmodel = "a"\ndtype = ["f16"]\n[targets.x]\nformat = "npz"\ndtype = "f32"\n', ["x"]),
        ('[targets."a.b"]\nmodel = "a"\nformat = "npz"\n', ["a.b"]),
    ],
)
def test_names(body: str, names: list[str]) -> None:
    assert list(targets(body)) == names


def test_a_target_says_more_than_the_defaults() -> None:
    found = targets("""
[defaults]
model = "a"
format = "npz"
dtype = "half"
strict = true
verify = { device = ["cpu"], max-kl = 0.1 }
chip = "sm_86"
[targets.same]
[targets.other]
dtype = "auto"
strict = false
verify.max-kl = 0.2
device = "cpu"
[targets.never]
verify = false
output = "dist/{name}.npz"
""")
    assert found["same"] == {
        "model": "a", "format": "npz", "dtype": "f16", "chip": "sm_86", "strict": True,
        "verify": {"device": ["cpu"], "max-kl": 0.1},
    }  # fmt: skip
    assert found["other"]["verify"] == {"device": ["cpu"], "max-kl": 0.2}
    assert (found["other"]["dtype"], found["other"]["strict"]) == ("auto", False)
    assert (found["other"]["device"], "chip" in found["other"]) == ("cpu", False)
    assert (found["never"]["verify"], found["never"]["output"]) == (False, "dist/never.npz")


def test_what_changes_no_byte_changes_no_digest() -> None:
    def digest(line: str) -> str:
        body = f'{MODELS}[targets.x]\nmodel = "a"\nformat = "npz"\n{line}\n'
        return parse(body.encode()).targets["x"].digest()

    plain = digest("")
    assert digest("verify = false") == digest('output = "elsewhere"') == plain
    assert digest('dtype = "f16"') == digest('dtype = "Float16"') != plain
    assert digest('include = ["a", "b"]') != digest('include = ["b", "a"]')


def test_the_inputs_of_a_target() -> None:
    inputs = "".join(f'[inputs.{name}]\nsource = "{name}"\n' for name in "vwxyz")
    body = (
        '[targets.t]\nmodel = "a"\nformat = "gguf"\ncalibration = "z"\nimatrix = "y"\nadapters = ["x", "w"]\n'
        'verify.inputs = "v"\n'
    )
    recipe = parse((MODELS + inputs + body).encode())
    assert recipe.targets["t"].inputs() == tuple("vwxyz")
    assert [pinned.what for pinned in recipe.pinned] == [
        "models.a", "models.b", *(f"inputs.{name}" for name in "vwxyz")
    ]  # fmt: skip


MATRIX: dict[str, st.SearchStrategy[list[Any]]] = {
    "model": st.lists(st.sampled_from(["a", "b"]), min_size=1, unique=True),
    "format": st.lists(st.sampled_from(["npz", "safetensors", "gguf"]), min_size=1, unique=True),
    "dtype": st.lists(st.sampled_from(["auto", "f16", "bf16", "f32"]), min_size=1, unique=True),
    "quantize": st.lists(st.sampled_from(["q8_0", "q4_k_m", "int8"]), min_size=1, unique=True),
    "opset": st.lists(st.integers(13, 25), min_size=1, max_size=3, unique=True),
    "chip": st.lists(st.sampled_from(["sm_86", "sm_89", "sm_89+sm_120"]), min_size=1, unique=True),
}


@given(st.fixed_dictionaries({}, optional=MATRIX), st.data())
def test_a_matrix_is_the_product_of_its_lists(lists: dict[str, list[Any]], data: st.DataObject) -> None:
    """Names differ, each combination comes once, and the order of keys in the file does not matter."""
    table = {"model": "a", "format": "npz"} | lists
    order = data.draw(st.permutations(sorted(table)))
    body = "[targets.t]\n" + "".join(f"{key} = {text.value(table[key])}\n" for key in order)
    recipe = parse((MODELS + body).encode())
    axes = [key for key in OF_TARGET if key in lists]
    assert len(recipe.targets) == math.prod(len(lists[key]) for key in axes)
    combinations = [tuple(target.options[key] for key in axes) for target in recipe.targets.values()]
    assert combinations == list(itertools.product(*(lists[key] for key in axes)))
    assert all(name == target.name and name.startswith("t") for name, target in recipe.targets.items())
    # Each target is what one would have written out by hand, digest and all.
    single = "".join(
        f"[targets.{text.key(name)}]\n" + "".join(f"{k} = {text.value(v)}\n" for k, v in target.options.items())
        for name, target in recipe.targets.items()
    )
    assert same(recipe) == same(parse((MODELS + single).encode()))


def same(recipe: Recipe) -> list[tuple[str, dict[str, object], str]]:
    return [(name, dict(target.options), target.digest()) for name, target in recipe.targets.items()]


value = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=10,
)


@given(value)
def test_a_value_as_text_reads_as_itself(item: object) -> None:
    import tomllib

    assert tomllib.loads(f"x = {text.value(item)}") == {"x": item}


@given(st.text())
def test_a_key_as_text_reads_as_itself(name: str) -> None:
    import tomllib

    assert tomllib.loads(f"{text.key(name)} = 1") == {name: 1}
