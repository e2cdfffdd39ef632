"""What tests of GGUF share: files that llama.cpp's own library writes, and key-values of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from writer_contract import put, view, weights

from artifactkit.artifact import KeyValue, Weights
from artifactkit.formats.gguf import FORMAT
from artifactkit.types import OutputFile, WriteOptions

HELD: dict[str, np.ndarray] = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4) - 5.5,
    "a.bias": np.array([1.5, -0.0, np.inf, np.nan], dtype=np.float64),
    "b.count": np.array([7], dtype=np.int64),
    "b.half": np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    "b.byte": np.arange(-4, 4, dtype=np.int8).reshape(1, 2, 2, 2),
}
LLAMA = KeyValue("general.architecture", "string", "llama")
EVERY = (
    LLAMA,
    KeyValue("u8", "u8", 255), KeyValue("i8", "i8", -128), KeyValue("u16", "u16", 65535), KeyValue("i16", "i16", -2),
    KeyValue("u32", "u32", 2**32 - 1), KeyValue("i32", "i32", -(2**31)), KeyValue("f32", "f32", 0.5),
    KeyValue("yes", "bool", True), KeyValue("no", "bool", False), KeyValue("text", "string", "größer\n"),
    KeyValue("u64", "u64", 2**64 - 1), KeyValue("i64", "i64", -(2**63)), KeyValue("f64", "f64", 0.1),
    KeyValue("numbers", "arr[f32]", (1.0, -0.5)), KeyValue("words", "arr[string]", ("a", "", "größer")),
    KeyValue("flags", "arr[bool]", (True, False)), KeyValue("none", "arr[i32]", ()),
    KeyValue("nested", "arr[arr[u8]]", ((1, 2), (), (3,))), KeyValue("deep", "arr[arr[arr[string]]]", ((("x",), ()),)),
    KeyValue("raw", "string", "\udcff"),
)  # fmt: skip


def write(w: Weights, **more: Any) -> list[OutputFile]:
    """Laid out as one file, or as a folder's files with ``folder`` and ``max_shard_size``."""
    w.keyvalues = w.keyvalues or (LLAMA,)
    assert FORMAT.write is not None
    return FORMAT.write(w, WriteOptions(more.pop("name", "out.gguf"), **more))


def write_with_library(path: Path, arrays: dict[str, np.ndarray], **more: Any) -> None:
    writer = gguf.GGUFWriter(str(path), "llama", **more)
    writer.add_block_count(2)
    writer.add_token_list(["a", "b", "größer"])
    writer.add_token_scores([0.0, -1.0, -2.5])
    for name, value in arrays.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def split_of(tmp_path: Path, limit: int = 700) -> tuple[Weights, list[Path]]:
    """Five tensors in five parts."""
    w = weights(*(view(f"t{i}", "f32", (40 + i, 3)) for i in range(5)), keyvalues=EVERY)
    paths = put(write(w, folder=True, max_shard_size=limit), tmp_path)
    return w, [Path(path) for path in paths]
