"""Reading a written output back with the safetensors library: the second opinion on what our writer wrote."""

from __future__ import annotations

import json
import os

from ..dtypes import BY_SAFETENSORS
from ..errors import VerificationFailed
from ..types import Placed


def reopen(files: list[str]) -> dict[str, Placed]:
    """Where the library finds each tensor, by name; tied names point to the tensor that holds their bytes.

    The library's ``offset_keys`` gives the order of the bytes and its ``get_slice`` dtype and shape; offsets follow
    from these, and must end where the file ends. With an index among ``files``, each tensor must be in the shard that
    the index names. Raises VerificationFailed when the library refuses a file or anything does not add up.
    """
    from safetensors import SafetensorError, safe_open

    found: dict[str, Placed] = {}
    ties: dict[str, str] = {}
    for path in files:
        # What stands beside the tensors; a file that is staged by itself has no suffix of its own.
        if path.endswith((".index.json", "config.json", "tokenizer.json", ".jinja")):
            continue
        try:
            with safe_open(path, framework="numpy") as opened:
                with open(path, "rb") as raw:
                    at = 8 + int.from_bytes(raw.read(8), "little")
                for name in opened.offset_keys():
                    piece = opened.get_slice(name)
                    dtype, shape = piece.get_dtype(), tuple(piece.get_shape())
                    bits = BY_SAFETENSORS[dtype].bits
                    for size in shape:
                        bits *= size
                    if name in found:
                        raise VerificationFailed("a tensor is in two shards", file=path, tensor=name)
                    found[name] = Placed(path, at, bits // 8, BY_SAFETENSORS[dtype].name, shape)
                    at += bits // 8
                ties |= opened.metadata() or {}
        except SafetensorError as error:
            raise VerificationFailed("the safetensors library refuses the file", file=path, found=str(error)) from error
        if at != os.path.getsize(path):
            raise VerificationFailed(
                "the tensors do not end with the file", file=path, expected=os.path.getsize(path), found=at
            )
    for path in files:
        if path.endswith(".index.json"):
            _check_index(path, found)
    for name, kept in ties.items():
        if name != "format" and name not in found and kept in found:
            found[name] = found[kept]
    return found


def _check_index(path: str, found: dict[str, Placed]) -> None:
    """Every tensor stored is in the index, under the shard that holds it, and nothing else is."""
    with open(path, encoding="utf-8") as raw:
        weight_map = json.load(raw)["weight_map"]
    for name in sorted(weight_map.keys() | found.keys()):
        here = os.path.basename(found[name].file) if name in found else None
        if weight_map.get(name) != here:
            raise VerificationFailed(
                "index and shards disagree", file=path, tensor=name, expected=weight_map.get(name), found=here
            )
