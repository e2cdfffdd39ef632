"""Reading a written model back with the onnx library: the second opinion on what our writer wrote."""

from __future__ import annotations

import os

from ...errors import RunFailed, VerificationFailed
from ...onnx_files.elements import STRING, TYPES
from ...onnx_files.library import check
from ...types import Placed


def reopen(files: list[str]) -> dict[str, Placed]:
    """Where the library finds each tensor, by name; its checker must pass. Raises VerificationFailed."""
    models = [path for path in files if path.endswith(".onnx")] or files[:1]
    found: dict[str, Placed] = {}
    for path in models:
        try:
            tensors = check(path)
        except RunFailed as error:
            raise VerificationFailed(
                "the onnx library refuses what was written", file=path, found=error.found or error.what,
                hint="it may refuse the source just so: onnx.checker.check_model tells",
            ) from error  # fmt: skip
        for name, data_type, dims, nbytes, location, offset in tensors:
            if data_type == STRING:
                continue
            free, n = name, 1
            while free in found:
                n += 1
                free = f"{name}@{n}"
            file = path if location is None else os.path.join(os.path.dirname(path), location)
            place = -1 if location is None else offset
            found[free] = Placed(file, place, nbytes, TYPES[data_type].name, tuple(dims))
    return found
