"""A source on the hub: its commit in the statement and in the artifact, and the way back to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub.conftest import Run
from hub.files import sharded
from hub.server import Hub
from in_toto_messages import as_message

CARD = b"---\nlicense: apache-2.0\nbase_model: someone/base\n---\n# A model\n"


@pytest.mark.parametrize("out", ["out", "out.safetensors"])
def test_the_way_back_to_a_commit(hub: Hub, call: Run, tmp_path: Path, out: str) -> None:
    repo = hub.repo("o/n")
    commit = repo.commit(sharded() | {"README.md": CARD})
    done = call("convert", "hf://o/n@main", out, "--dtype", "bf16")
    assert done.returncode == 0, done.stderr
    [line] = (tmp_path / f"{out}.intoto.jsonl").read_text().splitlines()
    statement = json.loads(line)
    as_message(statement)
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["source"] == {
        "name": f"n@{commit}", "kind": "folder", "given": "hf://o/n@main", "uri": f"hf://o/n@{commit}",
        "commit": commit,
    }  # fmt: skip
    revision, *files = definition["resolvedDependencies"]
    assert revision == {"uri": f"hf://o/n@{commit}", "digest": {"gitCommit": commit}}
    names = {d["name"] for d in files}
    assert {"README.md", "model.safetensors.index.json", "model-00001-of-00003.safetensors"} <= names
    for file in files:
        assert file["uri"] == f"hf://o/n@{commit}/{file['name']}"
        assert file["annotations"] == {"commit": commit}
        assert file["digest"]["sha256"] == repo.commits[commit][file["name"]].sha256
    document = json.loads(call("inspect", out, "--json").stdout)
    assert document["origin"] == {
        "source": f"hf://o/n@{commit}", "commit": commit, "license": "apache-2.0", "base_model": "someone/base",
        "version": document["origin"]["version"],
    }  # fmt: skip
    shown = call("provenance", "show", out)
    assert f"| from hf://o/n@{commit}, commit {commit}\n" in shown.stdout
    checked = call("provenance", "check", out, "--source", f"hf://o/n@{commit}")
    assert checked.returncode == 0, checked.stdout
    # The branch moves on, and is another source by then.
    repo.commit(sharded(9) | {"README.md": CARD})
    moved = call("provenance", "check", out, "--source", "hf://o/n@main")
    assert moved.returncode == 1
    assert "another source" in moved.stdout
    assert "an input is not what went in" in moved.stdout


def test_a_verdict_against_the_hub(hub: Hub, call: Run, tmp_path: Path) -> None:
    commit = hub.repo("o/n").commit(sharded())
    assert call("convert", f"hf://o/n@{commit}", "out").returncode == 0
    assert call("verify", "out", "--against", f"hf://o/n@{commit}").returncode == 0
    _, line = (tmp_path / "out.intoto.jsonl").read_text().splitlines()
    verdict = json.loads(line)
    as_message(verdict)
    against = verdict["predicate"]["configuration"][1:]
    assert all(d["uri"].startswith(f"hf://o/n@{commit}/") and d["annotations"] == {"commit": commit} for d in against)
    assert call("provenance", "check", "out").returncode == 0


def test_the_same_source_given_twice_is_the_same_statement_but_for_how(hub: Hub, call: Run, tmp_path: Path) -> None:
    commit = hub.repo("o/n").commit(sharded())
    for name, source in (("a", "hf://o/n@main"), ("b", f"hf://o/n@{commit}")):
        (tmp_path / name).mkdir()
        assert call("convert", source, f"{name}/out").returncode == 0
    one, two = (json.loads((tmp_path / name / "out.intoto.jsonl").read_text()) for name in "ab")
    assert one["subject"] == two["subject"]
    for statement in (one, two):
        definition = statement["predicate"]["buildDefinition"]
        definition["externalParameters"]["source"].pop("given")
        definition["internalParameters"].pop("checksum")
    assert one == two
