"""Compressed streams: unpacked with bounds, and what is in them looked into.

gzip, bz2, xz, lzma and zlib as joblib, pandas and people write them; joblib's own zlib file (ZF); lz4 and zstd are
recognised, and unreadable.
"""

from __future__ import annotations

from ..containers.compressed import Codec, Stream, unpack
from ..errors import ArtifactkitError, Unreadable
from ..files import Bytes, label, part
from . import detect
from .model import Rule
from .piece import Piece

TRAILING = Rule(
    "packed-trailing-data", "suspicious", "bytes follow the compressed stream",
    "one reader stops there, another one reads a second file from them",
    "get the file again from its producer, or compress it again",
)  # fmt: skip
RULES = (TRAILING,)

PLAIN: dict[str, Codec] = {"gzip": "gzip", "bz2": "bz2", "xz": "xz", "lzma": "lzma", "zlib": "zlib"}
# Their marks are short, and text and tensors begin so too: only bytes that do unpack are such a stream.
WEAK = frozenset({"zlib", "lzma", "gzip"})
RATIO = 1100  # deflate's own bound; the others are held to it
FREE = 64 << 20
SUFFIXES = {"zlib": (".z", ".zlib"), "lzma": (".lzma",), "gzip": (".gz", ".gzip", ".tgz")}
SUFFIX_OF_CONTENT = (".gz", ".gzip", ".bz2", ".xz", ".lzma", ".z", ".zlib")


def scan(piece: Piece, kind: str) -> None:
    """Unpack ``piece`` and look into what comes out."""
    if kind in ("lz4", "zstd"):
        hint = "decompress it first"
        raise Unreadable(f"compressed by {kind}, which is not read here", member=piece.member, hint=hint)
    if kind == "zfile":
        _zfile(piece)
        return
    codec = PLAIN[kind]
    if kind in WEAK and not _begins(piece.data, codec) and not piece.name.lower().endswith(SUFFIXES[kind]):
        if piece.depth == 0 and kind in piece.report.formats:
            piece.report.formats.remove(kind)
        return
    _unpacked(piece, piece.data, codec, 0)


def _begins(data: Bytes, codec: Codec) -> bool:
    try:
        return bool(Stream(data, codec).next(64))
    except ArtifactkitError:
        return False


def _unpacked(piece: Piece, data: Bytes, codec: Codec, start: int) -> None:
    limit = min(piece.budget.unpacked, max(FREE, RATIO * (data.size - start)))
    name = piece.name
    for suffix in SUFFIX_OF_CONTENT:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
            break
    try:
        inside, trailing = unpack(data, codec, start=start, limit=limit)
    except ArtifactkitError:
        _look_at_head(piece, data, codec, start, name)
        raise
    piece.spend(inside.size)
    inner = piece.inner(inside, f"({codec})/{name}" if name else f"({codec})", codec)
    piece.look(inner)
    if trailing:
        rest = part(data, data.size - trailing, trailing)
        at = 0
        while at < trailing and not rest.read(at, min(1 << 20, trailing - at)).strip(b"\0"):
            at += 1 << 20
        if at < trailing:
            piece.find(TRAILING, f"{trailing} bytes follow the {codec} stream", offset=data.size - trailing)
            after = piece.inner(rest, "(after the stream)", codec)
            if detect.formats(after):
                piece.look(after)


def _look_at_head(piece: Piece, data: Bytes, codec: Codec, start: int, name: str) -> None:
    """A stream that breaks off, or never ends: what comes before that is read by others."""
    from ..files import Memory

    stream, head = Stream(_Trickle(data), codec, start=start), bytearray()
    try:
        while len(head) < 1 << 20 and (chunk := stream.next(1 << 16)):
            head += chunk
    except ArtifactkitError:
        pass
    if head:
        piece.look(piece.inner(Memory(bytes(head)), f"({codec})/{name}", codec))


class _Trickle:
    """``data`` byte by byte at its start and at its end: what a decompressor gives before it meets the damage is given
    only for the input that it had until then. gzip's sum comes last, and readers have used the content before."""

    def __init__(self, data: Bytes) -> None:
        self.data, self.size, self.label = data, data.size, label(data)

    def read(self, offset: int, n: int) -> bytes:
        small = offset < 1 << 16 or offset + 64 > self.size
        return self.data.read(offset, 1 if small and n else min(n, 1 << 10))


def _zfile(piece: Piece) -> None:
    """joblib before 0.10: ``ZF``, the length in hexadecimal, padded, then a zlib stream."""
    head = piece.first
    width = 2 + 19  # the length as ``hex(2**64)`` is written, padded with blanks
    if len(head) < width or not head[2:width].split(b"\0")[0].strip():
        raise Unreadable("a joblib file that is cut short", member=piece.member)
    _unpacked(piece, piece.data, "zlib", width + (head[width : width + 1] == b" "))
