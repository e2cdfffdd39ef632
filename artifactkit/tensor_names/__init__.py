"""The closed table of names for *readers*: the names in a pickle that mean tensor data, and what they mean.

``tensor_table()`` is the table for ``pickles.Machine``. What it builds: ``TensorValue`` (a view of a ``Storage``),
``ArrayValue`` and ``Scalar`` (numpy), ``Unsupported``, plain containers; everything else is ``Opaque``. A format
resolves storages in its ``persistent`` callback, with ``storage_id`` to take the persistent id apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ..pickles import Handler, Payload, Table
from .numpy_names import NUMPY, ArrayValue, NumpyType, Scalar, ScalarType, joblib_names, parse_dtype
from .python_names import PYTHON, Latin1Text
from .torch_names import TORCH, LegacyTensor, Named, StorageId, nested_loader, storage_id, tensor_by_id
from .values import Quant, Storage, StorageType, TensorValue, TorchType, Unsupported, swapped

__all__ = [
    "ArrayValue", "Latin1Text", "LegacyTensor", "Named", "NumpyType", "Quant", "Scalar", "ScalarType", "Storage",
    "StorageId", "StorageType", "TensorValue", "TorchType", "Unsupported", "parse_dtype", "storage_id", "swapped",
    "tensor_table",
]  # fmt: skip


@cache
def _fixed() -> dict[tuple[str, str], Handler]:
    return TORCH | NUMPY | PYTHON


def tensor_table(
    *,
    load_bytes: Callable[[bytes | Payload], object] | None = None,
    by_id: Callable[[int], object] | None = None,
    joblib: bool = True,
    beside: Callable[[str], object] | None = None,
) -> Table:
    """The table for one file.

    ``load_bytes`` reads the bytes given to ``torch.storage._load_from_bytes``, a whole torch file, and returns its
    value (a ``Storage`` as a rule); without it such storages stay Opaque. ``by_id`` answers TorchScript's
    ``build_tensor_from_id``. ``joblib`` includes the wrappers whose arrays lie between the opcodes;
    ``beside`` reads the file, of that name and in the same folder, in which joblib before 0.10 kept one array.
    """
    table = dict(_fixed())
    table[("torch.storage", "_load_from_bytes")] = nested_loader(load_bytes)
    table[("torch.jit._pickle", "build_tensor_from_id")] = tensor_by_id(by_id)
    if joblib:
        table.update(joblib_names(dict(table), beside))
    return table
