"""The stream that ``torch.save`` wrote before torch 1.6: five pickles, then the storages one after another.

Source: ``torch/serialization.py``, ``_legacy_save`` and ``_legacy_load``: magic number, protocol version, system
information, the object, the list of storage keys; then for each key an int64 count of elements and the raw elements.
Counts and elements are little-endian on every machine (``torch/csrc/serialization.cpp``, ``THPStorage_writeFileRaw``
swaps them on a big-endian one), whatever the system information says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import Corrupt, Truncated
from ..files import Bytes, label

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
_RAW = MAGIC_NUMBER.to_bytes(10, "little")
# The first pickle in each protocol: PROTO and FRAME where there are any, the number, STOP.
_HEAD = re.compile(
    rb"(?:\x80[\x02-\x05](?:\x95.{8})?\x8a\x0a" + re.escape(_RAW) + rb"|L" + str(MAGIC_NUMBER).encode() + rb"L?\n)\.",
    re.DOTALL,
)


def is_legacy(head: bytes) -> bool:
    """Whether a file begins with the pickled magic number."""
    return _HEAD.match(head) is not None


class StoragePlace(NamedTuple):
    """Where a storage's elements lie: bytes from the start of the file."""

    offset: int
    nbytes: int


def storage_layout(
    data: Bytes, start: int, keys: Sequence[str], itemsizes: Mapping[str, int]
) -> tuple[dict[str, StoragePlace], int]:
    """Where each storage lies, found by stepping from count to count, and the offset after the last.

    ``start`` is the offset after the pickled list ``keys``; ``itemsizes`` are bytes an element, from the persistent ids
    of the object. Raises Truncated or Corrupt.
    """
    at = start
    places: dict[str, StoragePlace] = {}
    for key in keys:
        if key in places:
            raise Corrupt("a storage key stands twice", file=label(data), member=f"storage {key}", offset=at)
        itemsize = itemsizes.get(key)
        if itemsize is None:
            raise Corrupt(
                "a storage that no tensor refers to", file=label(data), member=f"storage {key}", offset=at,
                hint="the file is damaged: its list of storages does not fit its tensors",
            )  # fmt: skip
        if at + 8 > data.size:
            raise Truncated(
                "the file ends before a storage", file=label(data), member=f"storage {key}", offset=at,
                expected="8 bytes", found=f"{max(data.size - at, 0)} bytes",
            )  # fmt: skip
        count = int.from_bytes(data.read(at, 8), "little", signed=True)
        at += 8
        if count < 0 or count * itemsize > data.size - at:
            kind = Corrupt if count < 0 else Truncated
            raise kind(
                "the file ends within a storage" if count >= 0 else "a storage has a negative size",
                file=label(data), member=f"storage {key}", offset=at, expected=f"{count} elements of {itemsize} bytes",
                found=f"{data.size - at} bytes",
            )  # fmt: skip
        places[key] = StoragePlace(at, count * itemsize)
        at += count * itemsize
    return places, at
