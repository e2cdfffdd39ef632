"""torch-tar: what ``torch.save`` wrote in 2016, a tar archive of pickle, tensors and storages."""

from __future__ import annotations

from ..artifact import Weights
from ..checkpoint import collect
from ..containers.tar import Tar
from ..torch_files import Loader
from ..types import Format, Head, ReadOptions


def sniff(head: Head) -> bool:
    return head.kind == "torch-tar"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    archive = Tar(head.file)
    weights = collect(
        loader.tar(archive), format="torch-tar", file=head.path, options=options, machines=loader.machines,
        file_size=head.size,
    )  # fmt: skip
    if archive.trailing:
        loader.note(f"{archive.trailing} bytes follow the end of the tar archive")
    weights.notes[:0] = loader.notes
    return weights


FORMAT = Format(
    name="torch-tar",
    kind="weights",
    title="PyTorch checkpoint (legacy tar archive)",
    suffixes=(".tar", ".pt", ".pth"),
    sniff=sniff,
    read=read,
    family="pickle",
)
