"""torch-zip: what ``torch.save`` writes since 1.6, a zip archive of one pickle and its storages."""

from __future__ import annotations

from ..artifact import Weights
from ..checkpoint import collect
from ..torch_files import Loader, TorchArchive
from ..types import Format, Head, ReadOptions


def sniff(head: Head) -> bool:
    return head.kind == "torch-zip"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    archive = TorchArchive(head.open_zip(), loader)
    weights = collect(
        archive.value(), format="torch-zip", file=head.path, options=options, machines=loader.machines,
        file_size=archive.unpacked_size,
    )  # fmt: skip
    archive.say()
    weights.notes[:0] = loader.notes
    return weights


FORMAT = Format(
    name="torch-zip",
    kind="weights",
    title="PyTorch checkpoint (zip archive)",
    suffixes=(".pt", ".pth", ".bin", ".ckpt"),
    sniff=sniff,
    read=read,
    family="pickle",
)
