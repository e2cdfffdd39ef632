"""onnx: operations with their weights (https://github.com/onnx/onnx, docs/IR.md), data inside or beside.

The graph is passed on as it is; its tensors are read and written like those of any other format.
"""

from __future__ import annotations

from ...artifact import Weights
from ...containers.onnx_wire import looks_like_model
from ...onnx_files.elements import NUMBERS
from ...onnx_files.reader import read as read_model
from ...onnx_files.writer import write
from ...types import Format, Head, ReadOptions
from .reopen import reopen


def sniff(head: Head) -> bool:
    """A model's outermost message. With the suffix, one that begins like it is ours too, so that it is refused with
    the reason and not as unknown."""
    if looks_like_model(head.file, head.first):
        return True
    return head.suffix == ".onnx" and head.first[:1] == b"\x08"


def read(head: Head, options: ReadOptions) -> Weights:
    return read_model(head.file, head.path)


FORMAT = Format(
    name="onnx",
    kind="graph",
    title="ONNX, one file or a model with data beside it",
    suffixes=(".onnx",),
    sniff=sniff,
    read=read,
    write=write,
    dtypes=frozenset(NUMBERS),
    extra="onnx",
    modules=("onnx",),
    folder=True,
    splits_folders=False,
    keeps_aliases=True,
    keeps_summary=True,
    reopen=reopen,
    reopened_by="onnx's own checker",
)
