"""npy: one NumPy array. Object arrays are pickles, and are read as such, without running anything."""

from __future__ import annotations

from dataclasses import replace

from ..artifact import Weights
from ..checkpoint import collect
from ..numpy_files import read_array
from ..torch_files import Loader
from ..types import Format, Head, ReadOptions


def sniff(head: Head) -> bool:
    return head.kind == "npy"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    value = read_array(loader, head.file, "the array")
    # Names here are the user's own, not those that a wrapper of torch's made.
    weights = collect(
        value, format="npy", file=head.path, options=replace(options, keep_prefix=True), machines=loader.machines,
        file_size=head.size,
    )  # fmt: skip
    weights.notes[:0] = loader.notes
    return weights


FORMAT = Format(
    name="npy",
    kind="weights",
    title="NumPy array",
    suffixes=(".npy",),
    sniff=sniff,
    read=read,
)
