"""torch-legacy: what ``torch.save`` wrote before 1.6, five pickles and the storages behind them."""

from __future__ import annotations

from ..artifact import Weights
from ..checkpoint import collect
from ..torch_files import Loader
from ..types import Format, Head, ReadOptions


def sniff(head: Head) -> bool:
    return head.kind == "torch-legacy"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    weights = collect(
        loader.legacy(head.file), format="torch-legacy", file=head.path, options=options, machines=loader.machines,
        file_size=head.size,
    )  # fmt: skip
    weights.notes[:0] = loader.notes
    return weights


FORMAT = Format(
    name="torch-legacy",
    kind="weights",
    title="PyTorch checkpoint (legacy stream)",
    suffixes=(".pt", ".pth", ".bin", ".ckpt"),
    sniff=sniff,
    read=read,
    family="pickle",
)
