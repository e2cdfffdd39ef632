"""The layout of the storages behind the pickles of a legacy file."""

from __future__ import annotations

import io
import pickle
import struct

import pytest
import torch

from artifactkit.containers.torch_legacy import MAGIC_NUMBER, StoragePlace, is_legacy, storage_layout
from artifactkit.errors import Corrupt, Truncated
from artifactkit.files import Memory


@pytest.mark.parametrize("protocol", range(6))
def test_the_magic_number_in_every_protocol(protocol: int) -> None:
    raw = pickle.dumps(MAGIC_NUMBER, protocol)
    assert is_legacy(raw)
    assert not is_legacy(raw[:-1])
    assert not is_legacy(pickle.dumps(MAGIC_NUMBER + 1, protocol))


def test_what_torch_writes() -> None:
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(2)}, buffer, _use_new_zipfile_serialization=False)
    assert is_legacy(buffer.getvalue())


def stream(*storages: bytes, itemsize: int = 4) -> bytes:
    return b"head" + b"".join(struct.pack("<q", len(s) // itemsize) + s for s in storages)


def test_layout() -> None:
    raw = stream(b"abcdefgh", b"", b"1234") + b"more"
    places, end = storage_layout(Memory(raw), 4, ["x", "y", "z"], {"x": 4, "y": 4, "z": 4})
    assert places == {"x": StoragePlace(12, 8), "y": StoragePlace(28, 0), "z": StoragePlace(36, 4)}
    assert raw[end:] == b"more"


@pytest.mark.parametrize(
    ("raw", "keys", "error"),
    [(stream(b"abcdefgh")[:-1], ["x"], Truncated), (stream(b"")[:-1], ["x"], Truncated), (b"head", ["x"], Truncated),
     (b"head" + struct.pack("<q", -1) + b"abcd", ["x"], Corrupt),
     (b"head" + struct.pack("<q", 1 << 62) + b"abcd", ["x"], Truncated),
     (stream(b"abcd", b"abcd"), ["x", "x"], Corrupt), (stream(b"abcd"), ["y"], Corrupt)],
)  # fmt: skip
def test_lies(raw: bytes, keys: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        storage_layout(Memory(raw), 4, keys, {"x": 4})
