"""Arrays of key-value pairs that stay in their file: a vocabulary of 262,144 tokens is copied and not decoded."""

from __future__ import annotations

from dataclasses import dataclass

from .containers import gguf_header
from .files import Bytes
from .source import Source, span

MAX_BYTES = 1 << 28  # of one array that is decoded; the longest vocabularies take a few MB


@dataclass(frozen=True, slots=True)
class StoredArray:
    """``count`` elements of type ``kind`` (``string``, ``f32``, ``arr[i32]``) as GGUF encodes them, in a file."""

    kind: str
    count: int
    data: Bytes
    header: gguf_header.Header
    array: gguf_header.Array

    def __len__(self) -> int:
        return self.count

    @property
    def little_endian(self) -> bool:
        return not self.header.big_endian

    @property
    def source(self) -> Source:
        """The encoded elements, without type and count; in the byte order of the file."""
        return span(self.data, self.array.offset, self.array.nbytes)

    def elements(self) -> tuple[object, ...]:
        """Decoded: numbers, bools, texts (what is no UTF-8 as surrogates), tuples. LimitExceeded above 256 MB."""
        return _frozen(gguf_header.read_array(self.data, self.header, self.array, MAX_BYTES))

    def __str__(self) -> str:
        return f"{self.count} x {self.kind}"


def _frozen(values: list[object]) -> tuple[object, ...]:
    return tuple(_frozen(item) if isinstance(item, list) else item for item in values)
