"""torchscript: what ``torch.jit.save`` writes, a zip archive of code, constants, attributes and storages.

The weights are the parameters and buffers of the module, by the names of its state dict. Other attributes and the
constants that the code refers to are taken with ``--all``; the code itself is not read.
"""

from __future__ import annotations

from ..artifact import Weights
from ..checkpoint import collect
from ..errors import Unreadable
from ..pickles import Opaque
from ..torch_files import Loader, TorchArchive
from ..torch_script import ScriptClasses
from ..types import Format, Head, ReadOptions


def sniff(head: Head) -> bool:
    return head.kind == "torchscript"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    archive = TorchArchive(head.open_zip(), loader)
    if "data.pkl" not in archive:
        raise Unreadable(
            "a TorchScript archive of PyTorch 1.0 to 1.2", file=head.path, expected="an archive with data.pkl",
            hint="load it with a PyTorch of that time and save it again",
        )  # fmt: skip
    value = archive.pickle("data.pkl")
    if options.everything and isinstance(value, Opaque):
        value = {**value.attrs, "CONSTANTS": _constants(archive)}
    members = None if options.everything else ScriptClasses(archive).members
    weights = collect(
        value, format="torchscript", file=head.path, options=options, machines=loader.machines,
        file_size=archive.unpacked_size, members=members,
    )  # fmt: skip
    archive.say()
    code = sum(m.name.startswith(archive.name("code/")) and m.name.endswith(".py") for m in archive.zip.members)
    if code:
        loader.note(f"TorchScript code ({code} files) is in the archive; weights are taken, code is not")
    weights.notes[:0] = loader.notes
    return weights


def _constants(archive: TorchArchive) -> dict[str, object]:
    """The constants as the code names them: c0, c1, ..."""
    found = archive.pickle("constants.pkl", "constants/") if "constants.pkl" in archive else ()
    return {f"c{i}": item for i, item in enumerate(found)} if isinstance(found, tuple | list) else {}


FORMAT = Format(
    name="torchscript",
    kind="weights",
    title="TorchScript archive",
    suffixes=(".pt", ".pth", ".jit", ".ts"),
    sniff=sniff,
    read=read,
    family="pickle",
)
