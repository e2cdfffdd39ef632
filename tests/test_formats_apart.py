"""Every file is of one format: exactly one sniff holds for each fixture, whatever its name."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import pytest

from artifactkit import registry
from artifactkit.errors import Unreadable
from artifactkit.types import Head

FORMAT_OF = {
    "trainer.ckpt": "torch-zip",
    "plain.pt": "torch-zip",
    "legacy.pt": "torch-legacy",
    "old.tar": "torch-tar",
    "numpy-scalar.pt": "torch-zip",
    "whole-module.pt": "torch-zip",
    "array.npy": "npy",
    "arrays.npz": "npz",
    "plain.safetensors": "safetensors",
    "sharded/model-00001-of-00002.safetensors": "safetensors",
    "sharded/model.safetensors.index.json": "safetensors",
    "tiny-llama/pytorch_model.bin": "torch-zip",
}


def fitting(path: Path) -> list[str]:
    head = Head(str(path))
    return [name for name, fmt in registry.formats().items() if fmt.sniff(head)]


@pytest.mark.parametrize(("name", "format_"), FORMAT_OF.items())
def test_each_fixture_is_of_one_format(fixtures: Path, tmp_path: Path, name: str, format_: str) -> None:
    assert fitting(fixtures / name) == [format_]
    # An index names files beside it, so only files that stand alone are tried under another name.
    if not name.endswith(".json"):
        copy = tmp_path / "file.dat"
        shutil.copy(fixtures / name, copy)
        assert fitting(copy) == [format_]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "README.md", "modeling_tiny.py"])
def test_what_is_no_artifact_is_of_none(fixtures: Path, name: str) -> None:
    assert fitting(fixtures / "tiny-llama" / name) == []
    with pytest.raises(Unreadable):
        registry.sniff(str(fixtures / "tiny-llama" / name))


@pytest.mark.parametrize("length", [0x80 + 256 * protocol for protocol in range(6)])
def test_a_header_that_begins_like_a_pickle(tmp_path: Path, length: int) -> None:
    """A header of 0x480 bytes has the length 80 04 00 ...: PROTO 4 to an unpickler."""
    text = json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode().ljust(length)
    path = tmp_path / "model.dat"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\x01")
    assert fitting(path) == ["safetensors"]


@pytest.mark.parametrize("protocol", [0, 4])
def test_a_pickle_that_begins_like_a_header(tmp_path: Path, protocol: int) -> None:
    """The twin: a float whose bytes are those of a header's length and brace is still a pickle."""
    path = tmp_path / "model.dat"
    path.write_bytes(bytes([0x80, protocol]) + b"G\x05\0\0\0\0{\0\0" + b"0].")
    os.truncate(path, 0x05470088 + protocol * 256)  # as long as the "header" announces
    assert "pickle" in fitting(path)
