"""The commands against the hub: exit codes, words, documents. Where the process matters, in one of its own."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from hub.conftest import Run, hub_environment
from hub.files import enormous, of_folder, safetensors, sharded
from hub.server import Hub

TOKEN = "hf_" + "s3cr3t" * 6


def document(text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_inspect_reads_headers_only(hub: Hub, run: Run, tmp_path: Path) -> None:
    commit = hub.repo("o/n").commit(enormous(shards=8, gigabytes=5))
    done = run("inspect", "hf://o/n@main", "--json")
    assert done.returncode == 0, done.stderr
    found = document(done.stdout)
    assert found["nbytes"] > 39 * 10**9
    assert found["source"] == found["uri"] == f"hf://o/n@{commit}"
    assert (found["commit"], found["moved_from"]) == (commit, "main")
    assert found["scan"]["verdict"] == "clean"
    assert f"note: main is hf://o/n@{commit}" in done.stderr
    assert hub.sent() < 3_000_000
    assert not (tmp_path / "home" / "hub").exists()


def test_convert_fetches_what_the_route_needs_from_one_commit(hub: Hub, run: Run, tmp_path: Path) -> None:
    files = sharded(1, rows=4000)
    repo = hub.repo("o/n")
    commit = repo.commit(files | {"pytorch_model.bin": b"not needed", "onnx/model.onnx": b"not needed"})
    hub.fault(f"/api/models/o/n/tree/{commit}", then=lambda: repo.commit(sharded(50)) and None)
    done = run("convert", "hf://o/n@main", "out", "--json")
    assert done.returncode == 0, done.stderr
    found = document(done.stdout)
    assert found["ok"] and (found["uri"], found["commit"], found["moved_from"]) == (
        f"hf://o/n@{commit}",
        commit,
        "main",
    )
    content = [r for r in hub.requests if r.name]
    assert {r.commit for r in content} == {commit}
    assert not {"pytorch_model.bin", "onnx/model.onnx", "modeling_own.py"} & {
        r.name for r in content if r.method == "HEAD"
    }
    out = tmp_path / "out"
    assert (out / "config.json").read_bytes() == files["config.json"]
    assert not (out / "modeling_own.py").exists()
    inputs = {Path(entry["name"]).name: entry["sha256"] for entry in found["inputs"]}
    assert inputs["model-00001-of-00003.safetensors"] == repo.commits[commit]["model-00001-of-00003.safetensors"].sha256
    # Again, offline, as the printed command says: the same bytes.
    again = run("convert", f"hf://o/n@{commit}", "again", "--json", "--require-pinned", HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stderr
    assert of_folder(tmp_path / "again") == of_folder(out) or _but_statement(tmp_path / "again", out)
    assert document(again.stdout)["moved_from"] is None


def _but_statement(left: Path, right: Path) -> bool:
    """Whether two folders hold the same, statements about them apart."""
    one, other = of_folder(left), of_folder(right)
    return one.keys() == other.keys() and all(one[n] == other[n] for n in one if not n.endswith(".intoto.jsonl"))


def test_the_printed_command_is_the_one_that_ran(hub: Hub, call: Run) -> None:
    commit = hub.repo("o/n").commit({"model.safetensors": safetensors(1)})
    done = call("convert", "--dtype", "f16", "hf://o/n", "a b.npz", "--require-pinned")
    assert done.returncode == 2
    pinned = f"artifactkit convert --dtype f16 hf://o/n@{commit} 'a b.npz' --require-pinned"
    assert f"hint: {pinned}" in done.stderr
    assert "not pinned" in done.stderr and f"main, which is at {commit} now" in done.stderr
    done = call("convert", "--dtype", "f16", "hf://o/n", "a b.npz")
    assert done.returncode == 0, done.stderr
    assert f"to repeat: artifactkit convert --dtype f16 hf://o/n@{commit} 'a b.npz'" in done.stdout
    assert f"--against hf://o/n@{commit}" in done.stdout  # the command that verifies is pinned as well


@pytest.mark.parametrize(
    "command",
    [
        ["inspect"],
        ["scan"],
        ["route"],
        ["diff", "x"],
        ["verify", "x", "--against"],
        ["convert", "--dry-run", "-t", "npz"],
    ],
    ids=lambda c: c[0],
)
def test_require_pinned_everywhere(hub: Hub, call: Run, command: list[str]) -> None:
    commit = hub.repo("o/n").commit({"model.safetensors": safetensors(1)})
    rest = ["out.npz"] if command[0] == "convert" else []
    done = call(*command, "hf://o/n@main", *rest, "--require-pinned")
    assert done.returncode == 2, done.stderr
    assert f"hf://o/n@{commit}" in done.stderr.split("hint: ")[1]


def test_a_dry_run_fetches_nothing(hub: Hub, call: Run, tmp_path: Path) -> None:
    hub.repo("o/n").commit(enormous(shards=3, gigabytes=5))
    done = call("convert", "hf://o/n", "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "output: 15 GB" in done.stdout
    assert hub.sent() < 2_000_000
    assert [p.name for p in tmp_path.iterdir()] in ([], ["cache"])


def test_verify_and_diff_against_the_hub(hub: Hub, call: Run, tmp_path: Path) -> None:
    repo = hub.repo("o/n")
    first = repo.commit(sharded(1))
    second = repo.commit(sharded(1) | {"model-00002-of-00003.safetensors": safetensors(9, ("layers.1.weight",))})
    assert call("convert", f"hf://o/n@{first}", "out.safetensors").returncode == 0
    done = call("verify", "out.safetensors", "--against", f"hf://o/n@{first}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"verified: out.safetensors against hf://o/n@{first}" in done.stdout
    done = call("verify", "out.safetensors", "--against", "hf://o/n", "--json")
    assert done.returncode == 1
    assert document(done.stdout)["source"]["commit"] == second
    done = call("diff", f"hf://o/n@{first}", "hf://o/n@main")
    assert done.returncode == 1, done.stderr
    assert "layers.1.weight" in done.stdout and "layers.0.weight" not in done.stdout
    fetched = {r.name for r in hub.requests if r.method == "HEAD"}
    assert not {"README.md", "config.json", "tokenizer.json"} & fetched


def test_route_from_headers(hub: Hub, call: Run) -> None:
    hub.repo("o/n").commit(enormous(shards=2))
    done = call("route", "hf://o/n", "-t", "npz")
    assert done.returncode == 0, done.stderr
    assert "safetensors -> npz" in done.stdout
    assert hub.sent() < 1_000_000


MALICIOUS = b"cos\nsystem\n(S'true'\ntR."
# {"weight": a tensor of 12,500,000 floats, "x": os.system("true")}, as torch.save writes it.
EVIL = (
    b"\x80\x02}(X\x06\x00\x00\x00weightctorch._utils\n_rebuild_tensor_v2\n("
    b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ \xbc\xbe\x00tQ"
    b"K\x00J \xbc\xbe\x00\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
    b"X\x01\x00\x00\x00x" + MALICIOUS[:-1] + b"u."
)


def test_malice_is_judged_before_the_whole_is_fetched(hub: Hub, call: Run, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("archive/data.pkl", EVIL)
        out.writestr("archive/data/0", bytes(50_000_000))
        out.writestr("archive/version", b"3\n")
    hub.repo("o/n").commit({"pytorch_model.bin": archive.getvalue()})
    for command in (["convert", "hf://o/n", "out.safetensors"], ["convert", "hf://o/n/pytorch_model.bin", "out.npz"]):
        done = call(*command)
        assert done.returncode == 1, done.stderr
        assert "malicious" in done.stderr
    assert hub.sent() < 2_000_000
    assert not (tmp_path / "cache").exists()


def test_scan_of_files_and_folders(hub: Hub, call: Run, tmp_path: Path) -> None:
    commit = hub.repo("o/n").commit({"good/model.safetensors": safetensors(1), "bad/model.pkl": MALICIOUS})
    done = call("scan", "hf://o/n", "--json")
    assert done.returncode == 1
    paths = {report["path"]: report["verdict"] for report in document(done.stdout)["files"]}
    assert paths[f"hf://o/n@{commit}/bad/model.pkl"] == "malicious"
    assert call("scan", f"hf://o/n@{commit}/good").returncode == 0
    assert call("scan", f"hf://o/n@{commit}/good/model.safetensors").returncode == 0
    (tmp_path / "here.safetensors").write_bytes(safetensors(2))
    done = call("scan", "here.safetensors", "hf://o/absent", f"hf://o/n@{commit}/good", "--json")
    assert done.returncode == 3
    found = document(done.stdout)
    assert len(found["files"]) == 2 and found["errors"][0]["message"] == "no such model, or a private one"
    for form in ("sarif", "github"):
        done = call("scan", "hf://o/n/bad", "--output-format", form)
        assert done.returncode == 1
        assert f"hf://o/n@{commit}/bad/model.pkl" in done.stdout.replace("%3A", ":")
    done = call("scan", "hf://o/n", "--write-baseline", "known.json")
    assert call("scan", "hf://o/n", "--baseline", "known.json").returncode == 0
    assert f"hf://o/n@{commit}/bad/model.pkl" in (tmp_path / "known.json").read_text()


def test_a_name_of_the_hub_gets_the_whole_command(call: Run, hub: Hub) -> None:
    for command in (["inspect", "o/n"], ["convert", "o/n", "x.npz"], ["scan", "o/n"], ["inspect", "o/n@v1"]):
        done = call(*command)
        assert done.returncode == 3, done.stderr
        expected = " ".join(["artifactkit", *command]).replace("o/n", "hf://o/n")
        assert f"hint: for the model on the hub: {expected}" in done.stderr
    done = call("inspect", "o/model.safetensors")
    assert done.returncode == 3 and "on the hub" not in done.stderr
    assert not hub.requests


@pytest.mark.parametrize(("where", "taken"), [("environment", True), ("file", False)])
def test_a_token_is_in_no_output(hub: Hub, run: Run, tmp_path: Path, where: str, taken: bool) -> None:
    repo = hub.repo("o/private")
    repo.commit({"model.safetensors": safetensors(1, rows=4000), "config.json": b"{}"})
    repo.private = True
    hub.token = TOKEN if taken else "another"
    environment = {"HF_TOKEN": TOKEN} if where == "environment" else {}
    home = tmp_path / "home"
    home.mkdir()
    if where == "file":
        (home / "token").write_text(TOKEN)
    for command in (
        ["inspect", "hf://o/private", "--json"],
        ["convert", "hf://o/private", "out", "--force"],
        ["convert", "hf://o/private@dev", "out2", "--json"],
    ):
        done = run(*command, ARTIFACTKIT_DEBUG="1", **environment)
        assert done.returncode == (0 if taken and "@dev" not in command[1] else 3), done.stderr
        assert TOKEN not in done.stdout + done.stderr
    assert any(r.headers.get("authorization") == f"Bearer {TOKEN}" for r in hub.requests)
    assert not any("authorization" in r.headers for r in hub.requests if r.host == "cdn")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != home / "token":
            assert TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("token", ["hf_s\x01cret", "hf_s→cret"])
def test_a_token_that_hardly_a_request_can_carry(hub: Hub, run: Run, token: str) -> None:
    hub.repo("o/n").commit({"model.safetensors": safetensors(1)})
    hub.token = "another"
    done = run("inspect", "hf://o/n", HF_TOKEN=token)
    assert done.returncode == 3, done.stderr
    assert "cret" not in done.stdout + done.stderr
    assert "the token" in done.stderr


def test_a_cut_and_a_busy_hub(hub: Hub, run: Run) -> None:
    hub.repo("o/n").commit({"model.safetensors": safetensors(1, rows=4000)})
    hub.fault("GET hub /api/models/o/n/revision", status=503)
    hub.fault("GET hub /api/models/o/n/tree", status=429, headers={"Retry-After": "0"})
    hub.fault("GET cdn", times=2, cut=100)
    done = run("inspect", "hf://o/n")
    assert done.returncode == 0, done.stderr
    assert "Retry" not in done.stderr and hub.cdn not in done.stderr  # the library's own log stays quiet


def test_wrong_bytes_end_a_conversion(hub: Hub, call: Run, tmp_path: Path) -> None:
    data = safetensors(1, rows=4000)
    hub.repo("o/n").commit({"model.safetensors": data})
    hub.fault(r"GET cdn", times=2)  # the ranges are right
    hub.fault(r"GET cdn", times=9, content=data[:-1] + bytes([data[-1] ^ 1]))
    done = call("convert", "hf://o/n", "out.npz")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "is not what the hub states" in done.stderr
    assert re.search(r"expected: sha256 [0-9a-f]{64}\n  found: sha256 [0-9a-f]{64}\nhint: .*: rm /", done.stderr)
    assert not (tmp_path / "out.npz").exists()


def test_the_hub_is_not_asked_for_local_files(hub: Hub, call: Run, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors(1))
    done = call("convert", "model.safetensors", "out.npz", "--require-pinned", "--json")
    assert done.returncode == 0, done.stderr
    assert "commit" not in document(done.stdout)
    assert not hub.requests


def test_a_destination_is_on_this_machine(hub: Hub, call: Run) -> None:
    hub.repo("o/n").commit({"model.safetensors": safetensors(1)})
    done = call("convert", "hf://o/n", "hf://o/other", "-t", "safetensors")
    assert done.returncode == 2
    assert "no path of this machine" in done.stderr
    assert not hub.requests


def test_stopped_while_fetching(hub: Hub, run: Run, tmp_path: Path) -> None:
    """Ctrl-C while a shard is on its way: exit 130, no output, no piece of a file in the cache; then it goes on."""
    data = safetensors(1, rows=4000)
    commit = hub.repo("o/n").commit({"model.safetensors": data, "config.json": b"{}"})
    asked, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        go_on.wait(30)

    hub.fault("HEAD hub .*model.safetensors", then=hold)
    there = hub_environment(hub, tmp_path / "home")
    command = [sys.executable, "-m", "artifactkit", "convert", "hf://o/n", "out"]
    with subprocess.Popen(command, cwd=tmp_path, env=there, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    go_on.set()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.rglob("*.incomplete"))
    done = run("convert", f"hf://o/n@{commit}", "out")
    assert done.returncode == 0, done.stderr


def test_an_artifact_that_is_not_there_is_told_before_the_source_is_fetched(hub: Hub, call: Run) -> None:
    hub.repo("o/n").commit({"model.safetensors": safetensors(1, rows=40_000)})
    done = call("verify", "absent.npz", "--against", "hf://o/n")
    assert done.returncode == 3, done.stderr
    assert hub.sent() < 1_000_000
