"""safetensors: the header read strictly. Whatever it says that is not so is a finding; its metadata is data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..containers import safetensors_header
from ..errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated
from ..files import Bytes, part
from .model import Rule
from .piece import Piece
from .pointers import is_pointer

HEADER = Rule(
    "safetensors-header",
    "suspicious",
    "the header of a safetensors file contradicts the format, or itself",
    "readers may see different tensors, and bytes that belong to none may be another file for another program",
    "get the file again from its producer, or write it again with the safetensors library",
)
RULES = (HEADER,)

SANE_HEADER = 32 << 20  # bytes; the largest known have a few million
CUT_SHORT = re.compile(rb'\{\s*(?:"|$)')


@dataclass(slots=True)
class _Named:
    """The piece's bytes under the file's path, as the header reader wants them."""

    data: Bytes
    path: str
    size: int

    def read(self, offset: int, n: int) -> bytes:
        return self.data.read(offset, n)


def scan(piece: Piece, kind: str) -> None:
    length = safetensors_header.announced_length(piece.first)
    told = piece.first[8:9] == b"{" and 2 <= length <= safetensors_header.MAX_HEADER
    if is_pointer(piece.first) or (kind == "safetensors-name" and told):
        return  # said by the rule for pointers; told by content already
    if SANE_HEADER < length <= min(safetensors_header.MAX_HEADER, piece.size):
        raise LimitExceeded(
            "a header out of proportion", offset=0, expected=f"at most {SANE_HEADER} bytes", found=length
        )
    try:
        safetensors_header.read_header(_Named(piece.data, piece.path, piece.size))
    except Truncated as error:
        # A download that was cut short still begins as JSON does; a lie about the length has no need to.
        if error.tensor is None and piece.size > 8 and not CUT_SHORT.match(piece.first[8:]):
            _lie(piece, error)
            return
        raise
    except (Corrupt, LimitExceeded) as error:
        _lie(piece, error)
        if isinstance(error, Corrupt) and error.what.startswith("bytes after the last tensor") and error.offset:
            tail = part(piece.data, error.offset, piece.size - error.offset)
            piece.look(piece.inner(tail, "(after the tensors)", "safetensors"))


def _lie(piece: Piece, error: ArtifactkitError) -> None:
    tensor = f" in tensor {error.tensor!r}" if error.tensor else ""
    numbers = f" (expected {error.expected}, found {error.found})" if error.found else ""
    piece.find(HEADER, f"{error.what}{tensor}{numbers}", offset=error.offset)
