"""Small models for the hub of the tests, from seeds, and the header of one that is far too large to be there."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from hub.server import Content


def header(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """The header of a safetensors file: name -> (dtype, shape, bytes), one behind the other."""
    at, entries = 0, {}
    for name, (dtype, shape, nbytes) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def safetensors(seed: int, names: tuple[str, ...] = ("a.weight", "b.weight"), rows: int = 64) -> bytes:
    """A small file: matrices of f32, ``rows`` x 32."""
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal((rows, 32), dtype=np.float32) for _ in names]
    head = header({name: ("F32", [rows, 32], a.nbytes) for name, a in zip(names, arrays, strict=True)})
    return head + b"".join(a.tobytes() for a in arrays)


def sharded(seed: int = 0, shards: int = 3, rows: int = 64) -> dict[str, bytes]:
    """A checkpoint of several shards with its index, configuration, tokenizer and code."""
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    files = {name: safetensors(seed + i, (f"layers.{i}.weight",), rows) for i, name in enumerate(names)}
    index = {"metadata": {}, "weight_map": {f"layers.{i}.weight": name for i, name in enumerate(names)}}
    return files | {
        "model.safetensors.index.json": json.dumps(index).encode(),
        "config.json": json.dumps({"model_type": "llama", "seed": seed}).encode(),
        "tokenizer.json": json.dumps({"version": "1.0", "seed": seed}).encode(),
        "modeling_own.py": b"X = %d\n" % seed,
        "README.md": b"# A model\n",
    }


def enormous(shards: int = 20, gigabytes: int = 5) -> dict[str, bytes | Content]:
    """A model of many gigabytes whose headers are real and whose tensors are zeros."""
    files: dict[str, bytes | Content] = {}
    weight_map = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        count = 40
        each = gigabytes * 10**9 // count // 2048 * 2048
        tensors = {f"layers.{i}.{j}.weight": ("F16", [each // 2048, 1024], each) for j in range(count)}
        head = header(tensors)
        files[name] = Content.sparse(head, len(head) + each * count, f"{i:064x}")
        weight_map |= dict.fromkeys(tensors, name)
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    files["config.json"] = b'{"model_type": "llama"}'
    return files


def of_folder(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by their relative names."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
