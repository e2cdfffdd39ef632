"""pickle: a bare pickle of any protocol that holds NumPy arrays or torch tensors."""

from __future__ import annotations

from ..artifact import Weights
from ..checkpoint import collect
from ..torch_files import Loader
from ..types import Format, Head, ReadOptions


def sniff(head: Head) -> bool:
    return head.kind == "pickle"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    machine = loader.machine(head.file)
    value = machine.load()
    if machine.position < head.size:
        loader.note(f"{head.size - machine.position} bytes follow the first pickle and were left alone")
    weights = collect(
        value, format="pickle", file=head.path, options=options, machines=loader.machines, file_size=head.size
    )
    loader.note(f"pickle protocol {machine.proto}")
    weights.notes[:0] = loader.notes
    return weights


FORMAT = Format(
    name="pickle",
    kind="weights",
    title="Python pickle",
    suffixes=(".pkl", ".pickle", ".p"),
    sniff=sniff,
    read=read,
    family="pickle",
)
