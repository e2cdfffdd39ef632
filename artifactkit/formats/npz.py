"""npz: NumPy arrays in a zip archive, stored or deflated, each a .npy of its own."""

from __future__ import annotations

from dataclasses import replace

from .. import npwrite
from ..artifact import Weights
from ..checkpoint import collect
from ..containers.zip_records import DEFLATED
from ..errors import Corrupt, VerificationFailed
from ..numpy_files import numpy_places, read_array
from ..torch_files import Loader
from ..types import Format, Head, Placed, ReadOptions


def sniff(head: Head) -> bool:
    return head.kind == "npz"


def read(head: Head, options: ReadOptions) -> Weights:
    loader = Loader(head.file)
    archive = head.open_zip()
    archive.strict()
    arrays: dict[str, object] = {}
    deflated = size = 0
    for member in archive.members:
        if member.is_folder:
            continue
        name = member.name.removesuffix(".npy")
        if name in arrays:
            raise Corrupt("two arrays have one name", file=head.path, member=member.name, tensor=name)
        data = archive.member_bytes(member.name)
        arrays[name] = read_array(loader, data, name, member.name, member.header_offset)
        deflated += member.method == DEFLATED
        size += member.size
    # Names here are the user's own, not those that a wrapper of torch's made.
    weights = collect(
        arrays, format="npz", file=head.path, options=replace(options, keep_prefix=True), machines=loader.machines,
        file_size=size,
    )  # fmt: skip
    if deflated:
        loader.note(f"{deflated} arrays are deflated: unpacked as they are read")
    weights.notes[:0] = [*loader.notes, *(f"zip archive: {odd.kind}: {odd.detail}" for odd in archive.oddities)]
    return weights


def reopen(files: list[str]) -> dict[str, Placed]:
    """Where ``zipfile`` and NumPy's own header parser find each array; CRC-32s are checked on the way."""
    import zipfile

    found: dict[str, Placed] = {}
    with zipfile.ZipFile(files[0]) as archive, open(files[0], "rb") as raw:
        for info in archive.infolist():
            raw.seek(info.header_offset + 26)
            skip = int.from_bytes(raw.read(2), "little") + int.from_bytes(raw.read(2), "little")
            raw.seek(info.header_offset + 30 + skip)
            found[info.filename.removesuffix(".npy")] = Placed(files[0], *numpy_places(files[0], raw))
        bad = archive.testzip()
    if bad is not None:
        raise VerificationFailed("a member's CRC-32 is wrong", file=files[0], tensor=bad.removesuffix(".npy"))
    return found


FORMAT = Format(
    name="npz",
    kind="weights",
    title="NumPy arrays in a zip archive",
    suffixes=(".npz",),
    sniff=sniff,
    read=read,
    write=npwrite.write_npz,
    dtypes=npwrite.DTYPES,
    keeps_metadata=False,
    reopen=reopen,
    reopened_by="NumPy's reader",
)
