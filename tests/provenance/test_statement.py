"""The statement of a conversion: as in-toto's protobufs and SLSA's list of fields have it, and the same every time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from in_toto_messages import as_message

from artifactkit import __version__, attest, dtypes
from artifactkit.errors import ArtifactkitError, Corrupt, DestinationExists, OutputError, UsageError
from artifactkit.provenance import bundle, check, shape
from artifactkit.provenance import statement as st
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.types import Origin, ReadOptions


def convert(source: Path, out: Path, origin: Origin | None = None, **options: Any) -> dict[str, Any]:
    """The statement of a conversion that was made."""
    chosen = ConvertOptions(**options)
    done = execute(plan(str(source), str(out), chosen, origin), chosen)
    assert done.statement == str(out).rstrip("/") + ".intoto.jsonl"
    [line] = Path(done.statement).read_text(encoding="utf-8").splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# Against in-toto's own definitions.


@pytest.mark.parametrize(
    ("source", "out", "options"),
    [
        ("trainer.ckpt", "o.safetensors", {}),
        ("trainer.ckpt", "o.npz", {"dtype": dtypes.parse("f32"), "overflow": "inf"}),
        ("tiny-llama", "out", {"with_code": True, "max_shard_size": 40_000}),
        ("sharded", "one.safetensors", {"timestamps": True, "builder": "https://ci.example.com/x"}),
        ("plain.pt", "p.safetensors", {"include": ("enc*",), "rename": ("encoder=e",), "recipe": "ab" * 32}),
    ],
)
def test_in_totos_protobufs_accept_it(
    tmp_path: Path, fixtures: Path, source: str, out: str, options: dict[str, Any]
) -> None:
    message = as_message(convert(fixtures / source, tmp_path / out, **options))
    assert message.build_definition.build_type == st.BUILD_TYPE
    assert message.run_details.builder.id == options.get("builder", st.builder_id())
    assert message.run_details.HasField("metadata") == bool(options.get("timestamps"))
    with pytest.raises(Exception, match="no field named"):  # the rule can fail
        broken = convert(fixtures / "plain.pt", tmp_path / "broken.safetensors")
        broken["predicate"]["runDetails"]["builder"]["name"] = "x"
        as_message(broken)


# https://slsa.dev/spec/v1.0/provenance, "Fields": where they may stand, and which have to be there.
SLSA: dict[str, set[str]] = {
    "": {"buildDefinition", "runDetails"},
    "buildDefinition": {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"},
    "runDetails": {"builder", "metadata", "byproducts"},
    "runDetails.builder": {"id", "version", "builderDependencies"},
    "runDetails.metadata": {"invocationId", "startedOn", "finishedOn"},
}
DESCRIPTOR = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}


@pytest.mark.parametrize("timestamps", [False, True])
def test_slsas_list_of_fields(tmp_path: Path, fixtures: Path, timestamps: bool) -> None:
    statement = convert(fixtures / "tiny-llama", tmp_path / "out", timestamps=timestamps)
    assert statement.keys() == {"_type", "subject", "predicateType", "predicate"}
    assert (statement["_type"], statement["predicateType"]) == (st.STATEMENT_TYPE, "https://slsa.dev/provenance/v1")
    for where, allowed in SLSA.items():
        found = statement["predicate"]
        for key in filter(None, where.split(".")):
            found = found.get(key, {})
        assert found.keys() <= allowed
    definition, run = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert definition["buildType"] == "pkg:pypi/artifactkit#convert-v1"
    assert run["builder"]["id"] == f"pkg:pypi/artifactkit@{__version__}"
    assert isinstance(definition["externalParameters"], dict)
    assert all(d.keys() <= DESCRIPTOR and "digest" in d for d in definition["resolvedDependencies"])
    for key, text in run.get("metadata", {}).items():
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text), key


# What it says is so.


def test_every_file_is_in_it(tmp_path: Path, fixtures: Path) -> None:
    statement = convert(fixtures / "tiny-llama", tmp_path / "out", max_shard_size=40_000)
    out = tmp_path / "out"
    assert check.subjects(statement) == {p.name: sha256(p) for p in out.iterdir()}
    went_in = check.dependencies(statement)
    assert went_in == {name: sha256(fixtures / "tiny-llama" / name) for name in went_in}
    assert {"config.json", "tokenizer.json"} < went_in.keys()
    assert not any(name.endswith(".py") for name in went_in)


def test_names_are_those_within_the_source(tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fixtures / "sharded")
    names = [
        set(check.dependencies(convert(Path(source), tmp_path / f"{i}.safetensors")))
        for i, source in enumerate((".", "../sharded", str(fixtures / "sharded")))
    ]
    assert names[0] == names[1] == names[2]
    assert not any("/" in name for name in names[0])


def test_a_pinned_source(tmp_path: Path, fixtures: Path) -> None:
    commit = "c0ffee" * 6 + "c0de"
    origin = Origin("hf://o/m@main", f"hf://o/m@{commit}/plain.pt", commit)
    statement = convert(fixtures / "plain.pt", tmp_path / "o.safetensors", origin)
    as_message(statement)
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["source"] == {
        "name": "plain.pt", "kind": "file", "given": "hf://o/m@main", "uri": origin.uri, "commit": commit,
    }  # fmt: skip
    file, revision = sorted(definition["resolvedDependencies"], key=lambda d: "name" not in d)
    assert file["uri"] == origin.uri
    assert file["annotations"] == {"commit": commit}
    assert file["digest"] == {"sha256": sha256(fixtures / "plain.pt")}
    assert revision == {"uri": origin.uri, "digest": {"gitCommit": commit}}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("hf://owner/name@main", "hf://owner/name@main"),
        ("https://me:secret@example.com/m.pt?X-Signature=secret#sha256=ab", "https://example.com/m.pt#sha256=ab"),
        ("s3://bucket/m.pt", "s3://bucket/m.pt"),
        ("../local@home/m.pt", "../local@home/m.pt"),
    ],
)
def test_no_secret_of_a_url(url: str, shown: str) -> None:
    assert st.public(url) == shown


def test_the_same_again_is_the_same_bytes(tmp_path: Path, fixtures: Path) -> None:
    texts = []
    for i, seed in enumerate(("0", "1")):
        folder = tmp_path / f"place{i}"
        folder.mkdir()
        os.symlink(fixtures / "tiny-llama", folder / "model") if i else os.mkdir(folder / "x")
        source = folder / "model" if i else fixtures / "tiny-llama"
        command = [sys.executable, "-m", "artifactkit", "convert", str(source), str(folder / "out"), "--dtype", "bf16"]
        here = environment() | {"PYTHONHASHSEED": seed, "HOSTNAME": f"host{i}", "TZ": f"UTC-{i}"}
        subprocess.run(command, env=here, cwd=folder, capture_output=True, check=True)
        texts.append((folder / "out.intoto.jsonl").read_text())
    one, two = (json.loads(text) for text in texts)
    for statement in (one, two):
        source = statement["predicate"]["buildDefinition"]["externalParameters"]["source"]
        assert source.pop("name") == source.pop("given")
        statement["predicate"]["buildDefinition"]["internalParameters"].pop("checksum")
    assert one == two
    assert str(tmp_path) not in texts[0] + texts[1]


# Options.


def test_every_option_is_recorded_or_known_not_to_matter() -> None:
    """An option that comes later is recorded by itself; one that is not to be has to be named."""
    recorded = attest.parameters(ConvertOptions(dtype=dtypes.parse("f16"), max_shard_size=1, recipe="x"))
    fields = {f.name for of in (ConvertOptions, ReadOptions) for f in dataclasses.fields(of)}
    assert fields >= attest.NOT_RECORDED
    assert attest.parameters(ConvertOptions(imatrix="/home/me/x.gguf"))["imatrix"] == "x.gguf"
    assert {"dtype", "overflow", "include", "repair", "everything", "max_shard_size"} <= recorded.keys()
    assert recorded.keys() | attest.NOT_RECORDED <= fields


@pytest.mark.parametrize(
    "options",
    [
        ConvertOptions(),
        ConvertOptions(dtype=dtypes.parse("bf16"), overflow="saturate", include=("a", "b"), rename=("x=y",)),
        ConvertOptions(max_shard_size=5, with_code=True, summary=False, recipe="ab" * 32),
        ConvertOptions(read=ReadOptions("model.ema", everything=True, keep_prefix=True, repair=True)),
    ],
)
def test_options_come_back(options: ConvertOptions) -> None:
    external = {"from": "npz", "to": "npy", "options": json.loads(json.dumps(attest.parameters(options)))}
    statement = {"predicate": {"buildDefinition": {"externalParameters": external}}}
    back = attest.options_of(statement, "x")
    assert back == dataclasses.replace(options, source_format="npz", target_format="npy")


@pytest.mark.parametrize("options", [{"later": True}, {"dtype": 5}, {"include": "a"}, {"include": [1]}, {"repair": 1}])
def test_options_that_are_not_ours(options: dict[str, object]) -> None:
    statement = {"predicate": {"buildDefinition": {"externalParameters": {"from": "a", "to": "b", "options": options}}}}
    with pytest.raises(Corrupt):
        attest.options_of(statement, "x")


@pytest.mark.parametrize("given", ["", "no colon", "a:", "https://x y", "https://x\ny", ":x", "1:x"])
def test_a_builder_that_is_no_uri(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(st.BUILDER_VARIABLE, given or "x")
    with pytest.raises(UsageError):
        st.builder_id()
    assert st.builder_id("urn:example:ci") == "urn:example:ci"


# Where it may stand.


@pytest.mark.parametrize("given", ["out", "out/", "out/.", "x/../out"])
def test_it_is_found_however_the_folder_is_called(
    tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    chosen = ConvertOptions(target_format="safetensors")
    done = execute(plan(str(fixtures / "tiny-llama"), given, chosen), chosen)
    assert done.statement is not None
    beside = str(tmp_path / "out.intoto.jsonl")
    assert os.path.realpath(done.statement) == check.read_for(given).real == beside
    for folder, inside in (("out", "."), ("out", "./"), ("out", "../out/."), ("x", "../out")):
        monkeypatch.chdir(tmp_path / folder)
        assert check.read_for(inside).real == beside


def test_a_name_that_leaves_no_room_for_the_statements(tmp_path: Path, fixtures: Path) -> None:
    name = "n" * (255 - len(".safetensors")) + ".safetensors"
    with pytest.raises(OutputError, match="too long"):
        convert(fixtures / "plain.pt", tmp_path / name)
    assert os.listdir(tmp_path) == []
    convert(fixtures / "plain.pt", tmp_path / name[13:])


@pytest.mark.parametrize("there", ["folder", "fifo"])
def test_what_is_no_file_in_its_place(tmp_path: Path, fixtures: Path, there: str) -> None:
    place = tmp_path / "o.npy.intoto.jsonl"
    place.mkdir() if there == "folder" else os.mkfifo(place)
    with pytest.raises(UsageError, match="no regular file"):
        convert(fixtures / "array.npy", tmp_path / "o.npy", force=True)
    assert os.listdir(tmp_path) == [place.name]


@pytest.mark.parametrize("artifact", [True, False])
def test_one_that_is_there(tmp_path: Path, fixtures: Path, artifact: bool) -> None:
    out = tmp_path / "o.npy"
    convert(fixtures / "array.npy", out)
    before = (tmp_path / "o.npy.intoto.jsonl").read_bytes()
    if not artifact:
        out.unlink()
    with pytest.raises(DestinationExists) as caught:
        convert(fixtures / "array.npy", out)
    assert str(caught.value.file).endswith("o.npy" if artifact else "o.npy.intoto.jsonl")
    assert (tmp_path / "o.npy.intoto.jsonl").read_bytes() == before
    for verify, left in ((True, True), (False, False)):
        chosen = ConvertOptions(force=True, verify=verify)
        execute(plan(str(fixtures / "array.npy"), str(out), chosen), chosen)
        assert (tmp_path / "o.npy.intoto.jsonl").exists() is left


def test_a_conversion_that_fails_leaves_the_pair_alone(tmp_path: Path, fixtures: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "big.npz", w=np.array([1, 70000], np.float32))
    out = tmp_path / "o.safetensors"
    convert(tmp_path / "big.npz", out)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(ArtifactkitError):
        convert(tmp_path / "big.npz", out, dtype=dtypes.parse("f16"), force=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_it_has_the_shape_that_is_checked(tmp_path: Path, fixtures: Path) -> None:
    convert(fixtures / "plain.pt", tmp_path / "o.safetensors")
    [line] = bundle.read(str(tmp_path / "o.safetensors.intoto.jsonl")).lines
    shape.check("x", line)
    assert st.is_ours(line.value)
    assert st.line(line.value) == line.raw + b"\n"
