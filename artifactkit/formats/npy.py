"""npy: one NumPy array. Object arrays are pickles, and are read as such, without running anything."""

from __future__ import annotations

from dataclasses import replace

from .. import npwrite
from ..artifact import Weights
from ..checkpoint import collect
from ..numpy_files import numpy_places, read_array
from ..torch_files import Loader
from ..types import Format, Head, Placed, ReadOptions


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


def reopen(files: list[str]) -> dict[str, Placed]:
    """Where NumPy's own header parser finds the array. A .npy file has no names: the key is empty."""
    with open(files[0], "rb") as raw:
        return {"": Placed(files[0], *numpy_places(files[0], raw))}


FORMAT = Format(
    named=False,
    name="npy",
    kind="weights",
    title="NumPy array",
    suffixes=(".npy",),
    sniff=sniff,
    read=read,
    write=npwrite.write_npy,
    dtypes=npwrite.DTYPES,
    keeps_metadata=False,
    reopen=reopen,
    reopened_by="NumPy's reader",
)
