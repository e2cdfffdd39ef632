"""Reading safetensors: what is recognised, aliases, and indexes read strictly."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from artifactkit.artifact import Weights
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Unreadable
from artifactkit.formats.safetensors import FORMAT
from artifactkit.source import read_all
from artifactkit.types import Head, ReadOptions


def shard(path: Path, metadata: dict[str, str] | None = None, **tensors: list[float]) -> Path:
    """A file of float32 vectors, made without our writer."""
    document: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    at, data = 0, b""
    for name, values in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        document[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [at, at + len(raw)]}
        at, data = at + len(raw), data + raw
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def index(folder: Path, weight_map: object, **more: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": weight_map, **more}))
    return path


def read(path: Path, **options: bool) -> Weights:
    head = Head(str(path))
    assert FORMAT.sniff(head)
    assert FORMAT.read is not None
    return FORMAT.read(head, ReadOptions(**options))


def values(w: Weights, name: str) -> list[float]:
    raw = read_all(w.tensors[name].source)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


# --- recognising ----------------------------------------------------------------------------------------------------

SNIFFED = {
    "plain.bin": (b"\x02\0\0\0\0\0\0\0{}", True),
    "long header.bin": (struct.pack("<Q", 8) + b"{}      ", True),
    "length lies.bin": (struct.pack("<Q", 9) + b"{}      ", False),
    "length lies.safetensors": (struct.pack("<Q", 9) + b"{}      ", True),
    "bomb.safetensors": (b"\xff" * 8 + b"{}", True),
    "bomb.bin": (b"\xff" * 8 + b"{}", False),
    "short.safetensors": (b"abc", True),
    "short.bin": (b"abc", False),
    "empty.safetensors": (b"", True),
    "no brace.safetensors": (struct.pack("<Q", 2) + b"[]", True),
    "no brace.bin": (struct.pack("<Q", 2) + b"[]", False),
    "zip.safetensors": (b"PK\3\4\x14\0\0\0\0\0" + bytes(40), False),
    "pickle.safetensors": (b"\x80\x02}q\0(X\x04\0\0\0{" + bytes(40), False),
    "gguf.safetensors": (b"GGUF\3\0\0\0{" + bytes(40), True),  # a length that lies, and the suffix
    "npy.safetensors": (b"\x93NUMPY\1\0v\0{'descr'" + bytes(40), False),
    "onnx.safetensors": (b"\x08\x08\x12\x07pytorch" + bytes(40), False),
    "a.safetensors.index.json": (b'{"metadata":{}, "weight_map":{}}', True),
    "a.index.json": (b'{"weight_map":{"a":"m.safetensors"}}', True),
    "b.index.json": (b'{"weight_map":{"a":"pytorch_model.bin"}}', False),
    "config.json": (b'{"architectures":["A"]}', False),
}


@pytest.mark.parametrize("name", SNIFFED)
def test_sniff(tmp_path: Path, name: str) -> None:
    data, expected = SNIFFED[name]
    path = tmp_path / name
    path.write_bytes(data)
    assert FORMAT.sniff(Head(str(path))) is expected


def test_a_file_with_the_suffix_is_refused_with_its_reason(tmp_path: Path) -> None:
    for name, words in (
        ("bomb", "larger than the format allows"),
        ("short", "too short"),
        ("no brace", "begin with '{'"),
    ):
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(SNIFFED[path.name][0])
        with pytest.raises(Corrupt, match=words):
            read(path)


# --- one file -------------------------------------------------------------------------------------------------------


def test_a_file(tmp_path: Path) -> None:
    w = read(shard(tmp_path / "m.safetensors", {"by": "me"}, b=[1, 2], a=[3]))
    assert list(w.tensors) == ["b", "a"]  # as the file is
    assert (values(w, "a"), values(w, "b")) == ([3], [1, 2])
    assert w.metadata == {"by": "me"} and w.format == "safetensors"
    assert w.files == (str(tmp_path / "m.safetensors"),)


def test_repair_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    text = b'{"__metadata__":{"n":0}}'
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(Corrupt, match="'n' is not a string"):
        read(path)
    w = read(path, repair=True)
    assert w.metadata == {"n": "0"}
    assert any("repaired" in note and "'n'" in note for note in w.notes)


def test_aliases_come_back(tmp_path: Path) -> None:
    """Only an entry whose value names a tensor and whose key does not; never ``format``."""
    metadata = {"head": "embed", "format": "embed", "embed": "pt", "by": "me", "x": "head"}
    w = read(shard(tmp_path / "m.safetensors", metadata, embed=[1, 2]))
    assert list(w.tensors) == ["embed", "head"]
    assert w.tensors["head"].same_bytes(w.tensors["embed"])
    assert w.metadata == {"format": "embed", "embed": "pt", "by": "me", "x": "head"}
    assert any("head is tied to embed" in note for note in w.notes)


def test_one_shard_of_many_says_so(tmp_path: Path) -> None:
    w = read(shard(tmp_path / "model-00002-of-00003.safetensors", a=[1]))
    assert any("shard 2 of 3" in note for note in w.notes)
    assert not read(shard(tmp_path / "model-00001-of-00001.safetensors", a=[1])).notes


# --- an index -------------------------------------------------------------------------------------------------------


def test_a_tensor_comes_from_the_shard_that_the_index_names(tmp_path: Path) -> None:
    """Case B09: a stale copy in another shard is listed, not loaded."""
    shard(tmp_path / "a.safetensors", w=[1, 1])
    shard(tmp_path / "b.safetensors", w=[9, 9], v=[2], extra=[7])
    w = read(index(tmp_path, {"w": "a.safetensors", "v": "b.safetensors"}))
    assert list(w.tensors) == ["w", "v"]
    assert (values(w, "w"), values(w, "v")) == ([1, 1], [2])
    assert [(d.name, d.why, d.asked) for d in w.dropped] == [
        ("b.safetensors:w", "unindexed: b.safetensors:w", False),
        ("b.safetensors:extra", "unindexed: b.safetensors:extra", False),
    ]
    assert [os.path.basename(f) for f in w.files] == ["model.safetensors.index.json", "a.safetensors", "b.safetensors"]


def test_a_shard_that_the_index_does_not_name_is_said(tmp_path: Path) -> None:
    first, other = "model-00001-of-00001.safetensors", "model-00002-of-00001.safetensors"
    shard(tmp_path / first, w=[1])
    named = index(tmp_path, {"w": first})
    assert not read(named).notes
    shard(tmp_path / "adapter.safetensors", x=[1])
    shard(tmp_path / "consolidated-00001-of-00001.safetensors", y=[1])
    assert not read(named).notes  # no shards of this model
    shard(tmp_path / other, v=[2])
    assert read(named).notes == [f"the index names no tensor of {other}, which lies beside it"]
    assert list(read(named).tensors) == ["w"]


def test_missing_shards_are_named(tmp_path: Path) -> None:
    shard(tmp_path / "a.safetensors", w=[1])
    weight_map = {"w": "a.safetensors", "v": "b.safetensors", "u": "c.safetensors"}
    with pytest.raises(Unreadable, match="2 of 3 shards are missing") as caught:
        read(index(tmp_path, weight_map))
    assert caught.value.found == "no b.safetensors, c.safetensors"
    assert caught.value.exit_code == 3
    shard(tmp_path / "b.safetensors", v=[1])
    shard(tmp_path / "c.safetensors", u=[1])
    assert len(read(index(tmp_path, weight_map)).tensors) == 3


def test_a_tensor_missing_from_its_shard(tmp_path: Path) -> None:
    shard(tmp_path / "a.safetensors", w=[1])
    shard(tmp_path / "b.safetensors", v=[1])
    for weight_map, found in (
        ({"w": "b.safetensors", "v": "b.safetensors"}, "in no shard"),
        ({"w": "b.safetensors", "v": "a.safetensors"}, "in a.safetensors"),
        ({"w": "a.safetensors", "v": "b.safetensors", "x": "a.safetensors"}, "in no shard"),
    ):
        with pytest.raises(Corrupt, match="not in the shard that the index names") as caught:
            read(index(tmp_path, weight_map))
        assert caught.value.found == found and caught.value.tensor
    read(index(tmp_path, {"w": "a.safetensors", "v": "b.safetensors"}))


def test_a_broken_shard_is_named(tmp_path: Path) -> None:
    shard(tmp_path / "a.safetensors", w=[1])
    (tmp_path / "b.safetensors").write_bytes(shard(tmp_path / "c.safetensors", v=[1, 2]).read_bytes()[:-1])
    with pytest.raises(Corrupt) as caught:
        read(index(tmp_path, {"w": "a.safetensors", "v": "b.safetensors"}))
    assert caught.value.file == str(tmp_path / "b.safetensors")


def test_aliases_across_shards(tmp_path: Path) -> None:
    """The record may be in the index or in a shard, and the index may name the tied tensor too."""
    for name, in_index, in_shard, listed in (
        ("index", {"head": "embed"}, None, False),
        ("shard", {}, {"head": "embed"}, False),
        ("both", {"head": "embed"}, {"head": "embed"}, False),
        ("listed", {"head": "embed"}, None, True),
        ("listed in shard", {}, {"head": "embed"}, True),
    ):
        folder = tmp_path / name
        folder.mkdir()
        shard(folder / "a.safetensors", in_shard, embed=[1])
        shard(folder / "b.safetensors", v=[2])
        weight_map = {"embed": "a.safetensors", "v": "b.safetensors"} | ({"head": "b.safetensors"} if listed else {})
        w = read(index(folder, weight_map, metadata={"total_size": 8, **in_index}))
        assert sorted(w.tensors) == ["embed", "head", "v"], name
        assert w.tensors["head"].same_bytes(w.tensors["embed"])
        assert "head" not in w.metadata


def test_metadata_of_index_and_shards(tmp_path: Path) -> None:
    shard(tmp_path / "a.safetensors", {"format": "pt", "a": "1", "c": "x"}, w=[1])
    shard(tmp_path / "b.safetensors", {"format": "pt", "b": "2", "c": "y"}, v=[1])
    w = read(index(tmp_path, {"w": "a.safetensors", "v": "b.safetensors"}, metadata={"total_size": 9, "i": "3"}))
    assert w.metadata == {"format": "pt", "a": "1", "b": "2", "c": "x", "i": "3"}
    assert any("'c' differs between shards" in n for n in w.notes)
    assert any("total_size 9" in n and "8 bytes" in n for n in w.notes)


OUTSIDE = [
    "../a.safetensors", "/etc/passwd", "sub/../../a.safetensors", "..", ".", "", "a\0.safetensors", "./a.safetensors",
    "sub//a.safetensors", "..\\a.safetensors", "C:/a.safetensors", "C:a.safetensors",
]  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_cannot_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for where in (tmp_path, folder, folder / "sub"):
        shard(where / "a.safetensors", w=[1])
    with pytest.raises(Corrupt, match="outside its folder"):
        read(index(folder, {"w": name}))
    assert list(read(index(folder, {"w": "a.safetensors"})).tensors) == ["w"]
    assert list(read(index(folder, {"w": "sub/a.safetensors"})).tensors) == ["w"]


def test_symbolic_links(tmp_path: Path) -> None:
    """The Hub's cache is links to blobs beside; a folder in a name that links elsewhere is an escape."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    shard(blobs / "0123", w=[1])
    (snapshot / "model-00001-of-00001.safetensors").symlink_to("../../blobs/0123")
    (blobs / "4567").write_text(json.dumps({"weight_map": {"w": "model-00001-of-00001.safetensors"}}))
    (snapshot / "model.safetensors.index.json").symlink_to("../../blobs/4567")
    assert values(read(snapshot / "model.safetensors.index.json"), "w") == [1]

    (snapshot / "sub").symlink_to(blobs)
    (snapshot / "inside").mkdir()
    shard(snapshot / "inside" / "a.safetensors", w=[2])
    with pytest.raises(Corrupt, match="links lead out of its folder"):
        read(index(tmp_path / "snapshots" / "c0ffee" / "inside" / "..", {"w": "sub/0123"}))
    with pytest.raises(Corrupt, match="links lead out of its folder"):
        (snapshot / "inside" / "b.safetensors").symlink_to(blobs / "0123")
        read(index(snapshot / "inside" / "..", {"w": "inside/b.safetensors"}))
    assert values(read(index(snapshot / "inside" / "..", {"w": "inside/a.safetensors"})), "w") == [2]


def test_a_shard_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").mkdir()
    with pytest.raises(Unreadable, match="not a regular file"):
        read(index(tmp_path, {"w": "a.safetensors"}))


GOOD_INDEX = b'{"weight_map":{"w":"a.safetensors"}}'
BAD_INDEX: dict[str, tuple[bytes, type[ArtifactkitError], str]] = {
    "not JSON": (b'{"weight_map":', Corrupt, "the index is not JSON"),
    "not UTF-8": (b'{"\xff":1}', Corrupt, "the index is not UTF-8"),
    "no weight_map": (b'{"metadata":{}}', Corrupt, "has no weight_map"),
    "weight_map is a list": (b'{"weight_map":[]}', Corrupt, "has no weight_map"),
    "tensor twice": (b'{"weight_map":{"w":"a.safetensors","w":"b.safetensors"}}', Corrupt, "a tensor comes twice"),
    "key twice": (b'{"weight_map":{},"weight_map":{}}', Corrupt, "'weight_map' comes twice"),
    "metadata key twice": (
        b'{"metadata":{"a":"1","a":"2"},"weight_map":{"w":"a.safetensors"}}', Corrupt, "metadata key 'a' comes twice",
    ),
    "shard is a number": (b'{"weight_map":{"w":1}}', Corrupt, "shard's name is no string"),
    "deep": (b'{"weight_map":' + b"[" * 200 + b"]" * 200 + b"}", LimitExceeded, "nested too deeply"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_INDEX)
def test_bad_index(tmp_path: Path, name: str) -> None:
    data, error, words = BAD_INDEX[name]
    shard(tmp_path / "a.safetensors", w=[1])
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(data)
    with pytest.raises(error, match=words) as caught:
        read(path)
    assert caught.value.file == str(path)
    path.write_bytes(GOOD_INDEX)
    assert list(read(path).tensors) == ["w"]


def test_an_index_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(GOOD_INDEX)
    os.truncate(path, 100_000_001)  # sparse: takes no room
    with pytest.raises(LimitExceeded, match="index is too large"):
        read(path)


def test_a_torch_index_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin.index.json"
    path.write_text('{"weight_map": {"w": "pytorch_model-00001-of-00002.bin"}}')
    assert not FORMAT.sniff(Head(str(path)))


def test_read_what_hugging_face_wrote(tmp_path: Path) -> None:
    """A sharded folder of huggingface_hub, tied weights among them."""
    import torch
    from huggingface_hub import save_torch_state_dict

    torch.manual_seed(1)
    embed = torch.randn(8, 4)
    state = {"embed": embed, "layer": torch.randn(4, 4).to(torch.bfloat16), "norm": torch.ones(4), "head": embed}
    save_torch_state_dict(dict(state), tmp_path, max_shard_size=100)
    w = read(tmp_path / "model.safetensors.index.json")
    assert sorted(w.tensors) == ["embed", "head", "layer", "norm"]
    for name, tensor in state.items():
        assert read_all(w.tensors[name].source) == tensor.view(torch.uint8).numpy().tobytes()
    assert w.tensors["head"].same_bytes(w.tensors["embed"])
