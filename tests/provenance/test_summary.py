"""What goes into the artifact's own metadata, and what a model card may say without harm."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import Akit
from hypothesis import given
from hypothesis import strategies as some

from artifactkit import __version__
from artifactkit.provenance import card
from artifactkit.provenance.card import Card
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.types import Origin

COMMIT = "0123456789" * 4
PINNED = Origin("hf://o/m", f"hf://o/m@{COMMIT}", COMMIT)


def metadata(source: Path, out: Path, origin: Origin | None = None, **options: Any) -> dict[str, str]:
    """The ``__metadata__`` of what a conversion wrote."""
    chosen = ConvertOptions(**options)
    execute(plan(str(source), str(out), chosen, origin), chosen)
    file = next(out.glob("*.safetensors")) if out.is_dir() else out
    data = file.read_bytes()
    [size] = struct.unpack("<Q", data[:8])
    found: dict[str, str] = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    return found


def ours(found: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix("artifactkit."): value for key, value in found.items() if key.startswith("artifactkit.")}


@pytest.fixture
def model(tmp_path: Path, fixtures: Path) -> Path:
    """A folder with weights, and no card yet."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes((fixtures / "plain.safetensors").read_bytes())
    return folder


# What is written.


def test_a_local_file_gets_none(tmp_path: Path, fixtures: Path) -> None:
    assert ours(metadata(fixtures / "plain.pt", tmp_path / "o.safetensors")) == {}


def test_the_same_bytes_as_the_library_writes(tmp_path: Path, fixtures: Path) -> None:
    from safetensors.numpy import load_file, save_file

    source = fixtures / "array.npy"
    metadata(source, tmp_path / "a.safetensors")
    save_file(load_file(tmp_path / "a.safetensors"), tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_a_pinned_source(tmp_path: Path, fixtures: Path) -> None:
    found = metadata(fixtures / "plain.pt", tmp_path / "o.safetensors", PINNED, recipe="ab" * 32)
    assert ours(found) == {"source": PINNED.uri, "commit": COMMIT, "recipe": "ab" * 32, "version": __version__}
    assert found["format"] == "pt"
    assert ours(metadata(fixtures / "plain.pt", tmp_path / "p.safetensors", PINNED, summary=False)) == {}


def test_a_card(tmp_path: Path, model: Path) -> None:
    (model / "README.md").write_text("---\nlicense: mit\nbase_model:\n- a/b\n- c/d\n---\n# Hello\n")
    found = ours(metadata(model, tmp_path / "o.safetensors"))
    assert found == {"license": "mit", "base_model": "a/b, c/d", "version": __version__}
    assert ours(metadata(model, tmp_path / "folder")) == found
    # What was taken from the card makes it an input, also where it is not copied along.
    statement = json.loads((tmp_path / "o.safetensors.intoto.jsonl").read_text())
    names = [d["name"] for d in statement["predicate"]["buildDefinition"]["resolvedDependencies"]]
    assert names == ["README.md", "model.safetensors"]
    # A file beside a card may be anything's.
    assert ours(metadata(model / "model.safetensors", tmp_path / "p.safetensors")) == {}


def test_metadata_is_kept_and_an_older_summary_replaced(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    old = {"mine": "1", "artifactkit.source": "hf://x/y@0", "artifactkit.commit": "0"}
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "old.safetensors", old)
    assert metadata(tmp_path / "old.safetensors", tmp_path / "a.safetensors") == old
    origin = Origin("https://h/x", "https://h/x#sha256=1")
    new = metadata(tmp_path / "old.safetensors", tmp_path / "b.safetensors", origin)
    assert new == {"mine": "1", "artifactkit.source": "https://h/x#sha256=1", "artifactkit.version": __version__}


def test_no_entry_that_would_read_as_a_tied_tensor(tmp_path: Path, model: Path, akit: Akit) -> None:
    (model / "README.md").write_text("---\nlicense: norm.weight\nbase_model: a/b\n---\n")
    out = tmp_path / "o.safetensors"
    assert ours(metadata(model, out)) == {"base_model": "a/b", "version": __version__}
    assert akit("verify", out, "--against", model).returncode == 0


def test_a_format_without_room_loses_nothing(tmp_path: Path, fixtures: Path) -> None:
    chosen = ConvertOptions(strict=True)
    route = plan(str(fixtures / "array.npy"), str(tmp_path / "o.npz"), chosen, PINNED)
    assert route.losses == []
    execute(route, chosen)


def test_shards_and_their_index(tmp_path: Path, fixtures: Path) -> None:
    chosen = ConvertOptions(max_shard_size=40_000)
    execute(plan(str(fixtures / "tiny-llama"), str(tmp_path / "out"), chosen, PINNED), chosen)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert ours(index["metadata"])["commit"] == COMMIT


def test_inspect_shows_it(tmp_path: Path, fixtures: Path, akit: Akit) -> None:
    metadata(fixtures / "plain.pt", tmp_path / "o.safetensors", PINNED)
    text = akit("inspect", "o.safetensors").stdout
    assert f"  commit   {COMMIT}\n" in text
    assert "statement: o.safetensors.intoto.jsonl (artifactkit provenance show o.safetensors)\n" in text
    document = json.loads(akit("inspect", "o.safetensors", "--json").stdout)
    assert document["origin"] == {"source": PINNED.uri, "commit": COMMIT, "version": __version__}


# Cards.


@pytest.mark.parametrize(
    ("text", "card_"),
    [
        ("---\nlicense: mit\n---\n", Card("mit")),
        ("\ufeff---\r\nlicense: mit\r\n---\r\n", Card("mit")),
        ("---\nlicense: 'apache-2.0'  # as the base\ntags:\n- x\n---\ntext", Card("apache-2.0")),
        ("---\nlicense: other\nlicense_name: some-license\nlicense_link: LICENSE\n---\n", Card("some-license")),
        ("---\nlicense: other\n---\n", Card("other")),
        ("---\nlicense:\n- mit\n- bsd\n---\n", Card("mit")),
        ("---\nlicense:\n  - mit\n---\n", Card("mit")),
        ("---\nbase_model: a/b\n---\n", Card(None, ("a/b",))),
        ("---\nbase_model: [a/b, c/d]\n---\n", Card(None, ("a/b", "c/d"))),
        ("---\nbase_model:\n- a/b\n# why\n\n- c/d\nlicense: mit\n---\n", Card("mit", ("a/b", "c/d"))),
        ("---\nbase_model: >-\n  a/b\n---\n", Card(None, ("a/b",))),
        ("---\n" + "model-index:\n" + "- x: 1\n" * 100_000 + "license: mit\n---\n", Card("mit")),
        # Nothing, rather than something wrong.
        ("", Card()),
        ("# no front matter\nlicense: mit\n", Card()),
        ("---\nlicense: mit\n", Card()),
        ("---\n{license: mit}\n---\n", Card()),
        ("---\nlicense: mit\nlicense: bsd\n---\n", Card()),
        ("---\nlicense: {a: b}\n---\n", Card()),
        ("---\nlicense: null\n---\n", Card()),
        ("---\nlicense: 5\n---\n", Card()),
        ("---\nlicense: [\n---\n", Card()),
        ("---\nlicense: !!python/object/apply:os.system [id]\n---\n", Card()),
        ("---\nlicense: !!python/name:os.system ''\n---\n", Card()),
        ("---\nlicense: &a mit\nbase_model: *a\n---\n", Card("mit")),
        ("---\nlicense: " + "x" * 300 + "\n---\n", Card()),
        ("---\nlicense: " + "[" * 4000 + "\n---\n", Card()),
        ('---\nlicense: "mit\\e[31m"\n---\n', Card()),
        ("---\n  license: mit\n---\n", Card()),
        ("---\nlicense: " + "x" * card.MAX_FRONT + "\n---\n", Card()),
    ],
)
def test_cards(tmp_path: Path, text: str, card_: Card) -> None:
    (tmp_path / "README.md").write_text(text, newline="")
    assert card.read(str(tmp_path)) == card_


@pytest.mark.parametrize("there", ["nothing", "folder", "broken link"])
def test_no_card(tmp_path: Path, there: str) -> None:
    if there == "folder":
        (tmp_path / "README.md").mkdir()
    elif there == "broken link":
        (tmp_path / "README.md").symlink_to("nowhere")
    assert card.read(str(tmp_path)) == Card()


@given(some.binary(max_size=200))
def test_any_bytes_are_a_card(data: bytes) -> None:
    for text in (data, b"---\nlicense: " + data + b"\n---\n", b"---\nbase_model:\n" + data + b"\n---\n"):
        found = card.parse(text)
        assert all(value.isprintable() for value in (found.license or "", *found.base_model))


@given(some.text(some.characters(categories=["L", "N"]), min_size=1, max_size=20))
def test_what_the_library_writes_is_read(name: str) -> None:
    import yaml

    text = yaml.safe_dump({"license": f"x-{name}", "base_model": [f"o/{name}"]}, allow_unicode=True)
    assert card.parse(f"---\n{text}---\n".encode()) == Card(f"x-{name}", (f"o/{name}",))
