"""GGUF: a header that lies, bytes that belong to nothing, and chat templates."""

from __future__ import annotations

from ..containers import gguf_header
from ..containers.gguf_header import STRING, Array, Text
from ..errors import Corrupt, LimitExceeded, Truncated
from . import templates
from .model import Rule
from .piece import Piece
from .pointers import is_pointer

HEADER = Rule(
    "gguf-header",
    "suspicious",
    "the header of a GGUF file contradicts the format, or itself",
    "readers written in C have been made to write outside of their memory by such headers",
    "get the file again from its producer, or convert the model yourself",
)
TRAILING = Rule(
    "gguf-trailing",
    "suspicious",
    "a GGUF file holds bytes that belong to no tensor",
    "what follows the last tensor is read by no runtime, and may be another file for another program",
    "convert the model yourself; look at what the bytes are",
)
RULES = (HEADER, TRAILING, *templates.RULES)

TEMPLATE_KEY = "chat_template"
MAX_TEMPLATES = 64


def scan(piece: Piece, kind: str) -> None:
    data = piece.data
    if is_pointer(piece.first) or (kind == "gguf-name" and piece.first.startswith(gguf_header.MAGIC)):
        return  # said by the rule for pointers; told by content already
    try:
        header = gguf_header.read_header(data)
    except Truncated:
        raise
    except (Corrupt, LimitExceeded) as error:
        expected = f" (expected {error.expected}, found {error.found})" if error.found else ""
        tensor = f" in tensor {error.tensor!r}" if error.tensor else ""
        piece.find(HEADER, f"{error.what}{tensor}{expected}", offset=error.offset)
        return
    for anomaly in header.anomalies:
        piece.find(HEADER, anomaly)
    _trailing(piece, header)
    found = 0
    for key, pair in header.pairs.items():
        if TEMPLATE_KEY not in key:
            continue
        found += 1
        if found > MAX_TEMPLATES:
            piece.find(templates.BOMB, f"more than {MAX_TEMPLATES} chat templates")
            return
        if isinstance(pair.value, str | Text):
            _template(piece, key, pair.value)
        elif isinstance(pair.value, Array) and pair.value.kind == STRING:
            if pair.value.nbytes > templates.MAX_TEMPLATE:
                piece.find(templates.BOMB, f"{key}: {pair.value.nbytes} bytes of templates")
                continue
            for text in gguf_header.read_array(data, header, pair.value):
                templates.judge(piece, str(text), key)


def _template(piece: Piece, key: str, value: str | Text) -> None:
    if isinstance(value, Text) and value.nbytes > templates.MAX_TEMPLATE:
        piece.find(templates.BOMB, f"{key}: a template of {value.nbytes} bytes", offset=value.offset)
        return
    templates.judge(piece, gguf_header.read_text(piece.data, value), key)


def _trailing(piece: Piece, header: gguf_header.Header) -> None:
    """Writers pad the last tensor as well; what is longer, or is not zeros, is something else."""
    padded = -(-header.data_end // header.alignment) * header.alignment
    rest = piece.size - header.data_end
    if piece.size > padded:
        piece.find(TRAILING, f"{piece.size - padded} bytes after the last tensor", offset=padded)
    elif rest > 0 and piece.data.read(header.data_end, rest).strip(b"\0"):
        piece.find(TRAILING, "the padding after the last tensor is not zeros", offset=header.data_end)
