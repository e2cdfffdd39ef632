"""A malicious source is converted only when that is asked for; what was in it is said all the same."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from conftest import Akit

# {"w": a float32 tensor of two elements, "x": os.system("echo marker")}: only ever parsed.
TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpuK\2tQ"
    b"K\0K\2\x85K\1\x85\x89ccollections\nOrderedDict\n)RtR"
)
CALL = b"X\1\0\0\0xcos\nsystem\nX\x0b\0\0\0echo marker\x85R"


def checkpoint(path: Path, call: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}(X\1\0\0\0w" + TENSOR + call + b"u.")
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", b"\0\0\x80?\0\0\0@")
        archive.writestr("archive/version", b"3\n")
    return path


def test_it_is_refused_and_nothing_is_written(akit: Akit, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "evil.pt", CALL)
    done = akit("convert", source, "out.safetensors", "--json")
    assert done.returncode == 1
    [error] = json.loads(done.stdout)["errors"]
    assert error["message"] == "the source is malicious"
    assert "os.system" in error["found"]
    assert "--allow-unsafe-source" in error["hint"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evil.pt"]


def test_allowed_its_tensors_are_data_all_the_same(akit: Akit, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    source = checkpoint(tmp_path / "evil.pt", CALL)
    done = akit("convert", source, "out.safetensors", "--allow-unsafe-source")
    assert done.returncode == 0, done.stderr
    assert "malicious, and converted all the same" in done.stderr
    assert "os.system" in done.stderr
    assert load_file(tmp_path / "out.safetensors")["w"].tolist() == [1.0, 2.0]
    assert "marker" not in done.stdout


def test_the_twin_without_the_call_needs_no_leave(akit: Akit, tmp_path: Path) -> None:
    done = akit("convert", checkpoint(tmp_path / "fine.pt", b""), "out.safetensors")
    assert (done.returncode, "malicious" in done.stderr) == (0, False)


def test_in_a_folder_what_is_read_or_copied_counts(akit: Akit, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    checkpoint(model / "pytorch_model.bin", CALL)
    assert akit("convert", model, "out").returncode == 1
    checkpoint(model / "pytorch_model.bin", b"")
    checkpoint(model / "unrelated.pt", CALL)  # neither read nor copied
    assert akit("convert", model, "out").returncode == 0


@pytest.mark.parametrize(("call", "verdict"), [(CALL, "malicious"), (b"", "clean")])
def test_inspect_says_the_verdict(akit: Akit, tmp_path: Path, call: bytes, verdict: str) -> None:
    done = akit("inspect", checkpoint(tmp_path / "it.pt", call), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["scan"]["verdict"] == verdict


def test_shards_that_are_links_to_another_disk_are_converted(akit: Akit, tmp_path: Path, fixtures: Path) -> None:
    """Whoever lays the links chooses where they lead; the index names plain files beside it."""
    model = tmp_path / "model"
    model.mkdir()
    for path in (fixtures / "sharded").iterdir():
        (model / path.name).symlink_to(path)
    done = akit("convert", model, "out")
    assert done.returncode == 0, done.stderr
    assert akit("scan", model).returncode == 1  # a tree with links that leave it is said to be one
