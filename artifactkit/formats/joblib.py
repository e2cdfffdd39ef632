"""joblib: a pickle whose arrays lie between its opcodes, plain or compressed as a whole.

Source: ``joblib/numpy_pickle.py``, ``numpy_pickle_compat.py`` and ``compressor.py`` of joblib 1.5.
"""

from __future__ import annotations

import os

from .. import trees
from ..artifact import Weights
from ..checkpoint import collect
from ..containers import compressed
from ..containers.pickle_family import ZFILE, begins_as_pickle
from ..errors import Corrupt, Unreadable
from ..files import Bytes
from ..numpy_files import read_array
from ..torch_files import Loader
from ..types import Format, Head, ReadOptions

ZFILE_HEADER = 2 + 19  # the prefix ZF, and the length in hex, padded to the width of 2**64


def sniff(head: Head) -> bool:
    return head.kind == "joblib"


def read(head: Head, options: ReadOptions) -> Weights:
    data, how = _unpacked(head)
    files = [head.path]

    def beside(name: str) -> object:
        """One array of a dump by joblib before 0.10. The name is the pickle's, so it may not lead elsewhere."""
        path = os.path.join(os.path.dirname(head.path), name)
        if not name or name != os.path.basename(name) or name in (".", "..") or "\\" in name or "\0" in name:
            raise Corrupt("an array is kept outside the folder", file=head.path, found=name[:80])
        if not trees.exists(path):
            raise Unreadable("an array is kept in a file that is not there", file=head.path, expected=name[:80])
        if path not in files:
            files.append(path)
        return read_array(loader, trees.open_file(path), name)

    loader = Loader(data, joblib=True, beside=beside)
    machine = loader.machine(data)
    value = machine.load()
    if machine.position < data.size:
        loader.note(f"{data.size - machine.position} bytes follow the pickle and were left alone")
    weights = collect(
        value, format="joblib", file=head.path, options=options, machines=loader.machines,
        file_size=data.size + sum(trees.size(path) for path in files[1:]), files=tuple(files),
    )  # fmt: skip
    weights.notes[:0] = [*how, *loader.notes]
    return weights


def _unpacked(head: Head) -> tuple[Bytes, list[str]]:
    """The pickle's bytes, and how they were got."""
    foreign = compressed.foreign(head.first)
    if foreign is not None:
        raise Unreadable(
            f"a joblib file compressed with {foreign}, which is not read", file=head.path,
            hint="load it with joblib and dump it again with compress='zlib'",
        )  # fmt: skip
    if head.first.startswith(ZFILE):
        return _zfile(head)
    codec = compressed.detect(head.first)
    if codec is None:
        return head.file, []
    data, trailing = compressed.unpack(head.file, codec)
    notes = [f"{codec}: {head.size} bytes unpacked to {data.size}"]
    return data, notes + ([f"{trailing} bytes follow the {codec} stream"] if trailing else [])


def _zfile(head: Head) -> tuple[Bytes, list[str]]:
    """joblib before 0.10: ``ZF``, the unpacked length in hex, zlib."""
    digits = head.first[2:ZFILE_HEADER].strip()
    try:
        length = int(digits, 16)
    except ValueError:
        raise Corrupt("the length in a joblib z-file is no number", file=head.path, offset=2, found=digits) from None
    # Python 2 wrote the length one character wider.
    start = ZFILE_HEADER + (head.first[ZFILE_HEADER : ZFILE_HEADER + 1] == b" ")
    data, _ = compressed.unpack(head.file, "zlib", start=start, limit=compressed.DEFLATE_RATIO * head.size)
    if data.size != length:
        raise Corrupt("a joblib z-file unpacks to another length", file=head.path, expected=length, found=data.size)
    if not begins_as_pickle(data):
        raise Unreadable(
            "the array of another joblib file, without its type and shape", file=head.path,
            hint="load the file that it belongs to with the joblib that wrote it and dump it again",
        )  # fmt: skip
    return data, [f"zlib (joblib z-file): {head.size} bytes unpacked to {data.size}"]


FORMAT = Format(
    name="joblib",
    kind="weights",
    title="joblib dump",
    suffixes=(".joblib", ".pkl", ".pkl.gz", ".pkl.z"),
    sniff=sniff,
    read=read,
    family="pickle",
)
