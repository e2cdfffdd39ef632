"""A first recipe: what it says, that it is one, and that it says the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub.server import Hub

from artifactkit.errors import UsageError
from artifactkit.recipe import start
from artifactkit.recipe.read import parse


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.bin").write_bytes(b"x")
    (tmp_path / "a folder").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("to", "targets"),
    [
        (["npz"], {"npz": {}}),
        (["safetensors:BF16"], {"safetensors": {"dtype": "bf16"}}),
        (["gguf:Q8_0"], {"gguf": {"quantize": "q8_0"}}),
        (["gguf:q8_0", "gguf:q8_0"], {"gguf": {"quantize": "q8_0"}}),
        (["gguf:q8_0", "gguf:q4_k_m"], {"gguf-q8_0": {"quantize": "q8_0"}, "gguf-q4_k_m": {"quantize": "q4_k_m"}}),
        (
            ["gguf", "gguf:f16", "gguf:q8_0"],
            {"gguf": {}, "gguf-as": {"dtype": "f16"}, "gguf-quantized": {"quantize": "q8_0"}},
        ),
        (["mlx:q4", "onnx:int8"], {"mlx": {"quantize": "q4"}, "onnx": {"quantize": "int8"}}),
        (["tensorrt_rtx"], {"tensorrt-rtx": {}}),
    ],
)
def test_what_is_made(to: list[str], targets: dict[str, dict[str, str]]) -> None:
    text = start.recipe_text("m.bin", to)
    found = parse(text.encode()).targets
    wanted = {name: {"model": "m", "format": name.split("-")[0]} | more for name, more in targets.items()}
    if "tensorrt-rtx" in wanted:
        wanted["tensorrt-rtx"]["format"] = "tensorrt-rtx"
    assert {name: dict(target.options) for name, target in found.items()} == wanted
    assert start.recipe_text("m.bin", to) == text


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("m.bin", "m"), ("./m.bin", "m"), ("a folder", "a-folder"), ("a folder/", "a-folder"), (".", None),
        ("hf://o/Some.Model-1B@v1", "Some-Model-1B"),
        ("https://h/x/y.bin?a=1#sha256=" + "0" * 64, "y"), ("---", "model"),
    ],
)  # fmt: skip
def test_the_name_of_the_model(source: str, name: str | None, tmp_path: Path) -> None:
    wanted = name or tmp_path.name.replace("[", "-").replace("]", "-").strip("-_")[:60]
    assert start.model_name(source) == wanted


@pytest.mark.parametrize("to", ["", ":q8_0", "gguf:", "gguf:q8 0", "nothing", "pickle", "torch-zip:f16", "joblib"])
def test_what_is_no_target(to: str) -> None:
    with pytest.raises(UsageError):
        start.recipe_text("m.bin", [to])


def test_a_source_on_the_hub_is_pinned(hub: Hub, here: Path) -> None:
    commit = hub.repo("o/n").commit({"model.safetensors": b"x"}, tag="v1")
    for given, was in (("hf://o/n", "main"), ("hf://o/n@v1", "v1")):
        text = start.recipe_text(given, ["gguf"])
        assert f"# That is where {was} was when this was written." in text
        pinned = parse(text.encode()).models["n"]
        assert (pinned.source, pinned.revision) == ("hf://o/n", commit)
    text = start.recipe_text(f"hf://o/n@{commit}/model.safetensors", ["gguf"])
    assert "when this was written" not in text
    assert parse(text.encode()).models["n"].source == "hf://o/n/model.safetensors"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ('[models.m]\nsource = "m"\n', ""),
        ("this is not TOML", ""),
        ('[scan]\npolicies = ["sklearn"]\n', '[scan]\npolicies = ["sklearn"]\n'),
        (
            'a = 1\n[scan] # why\n# because\npolicies = ["x"]\n\n'
            '[models.m]\nsource = "[scan]"\n[[scan.allow]]\nname = "b"\n',
            '[scan] # why\n# because\npolicies = ["x"]\n\n[[scan.allow]]\nname = "b"\n',
        ),
    ],
)
def test_a_policy_is_carried_over_word_for_word(text: str, kept: str) -> None:
    assert start.policy_of(text.encode()) == kept


@pytest.mark.parametrize("text", ['scan.policies = ["sklearn"]\n', 'scan = { policies = ["x"] }\n', "[scan\n"])
def test_a_policy_that_cannot_be_carried_over_is_not_lost(text: str) -> None:
    with pytest.raises(UsageError):
        start.policy_of(text.encode())
