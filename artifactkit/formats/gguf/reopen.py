"""Reading a written output back with libgguf's header reader: the second opinion on what our writer wrote."""

from __future__ import annotations

from ...dtypes import BY_GGML
from ...errors import VerificationFailed
from ...types import Placed


def reopen(files: list[str]) -> dict[str, Placed]:
    """Where libgguf finds each tensor, by name. Raises VerificationFailed when it refuses a file."""
    from libgguf.inspect import GGUFFormatError, open_gguf

    found: dict[str, Placed] = {}
    for path in files:
        try:
            opened = open_gguf(path, max_array_values=0)
        except (GGUFFormatError, ValueError, EOFError) as error:
            raise VerificationFailed("libgguf refuses the file", file=path, found=str(error)) from error
        for tensor in opened.tensors:
            if tensor.name in found:
                raise VerificationFailed("a tensor is in two files", file=path, tensor=tensor.name)
            dtype = BY_GGML.get(tensor.qtype_value)
            if dtype is None or tensor.nbytes is None:
                raise VerificationFailed(
                    "libgguf finds an unknown type", file=path, tensor=tensor.name, found=tensor.qtype
                )
            shape = tuple(reversed(tensor.shape))
            found[tensor.name] = Placed(path, tensor.data_offset, tensor.nbytes, dtype.name, shape)
    return found
