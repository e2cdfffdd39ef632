"""Headers of TensorRT and TensorRT-RTX engines: what they were built with and for. The body is opaque.

By experiment, on engines of TensorRT-RTX 1.6.1 and 1.7.1 (little-endian): magic ``vtrt`` at 0; u64 header revision at
8, file size at 16, four bytes of version at 24, u64 mask of targets at 32, u64 bytes of weights at 56; sections from 64
on, 24 bytes each (tag, u32 zero, u64 offset, u64 size). The engine section begins with ``ptrt`` and a u32 version of
the serialization. Classic plans
(from the source of trtexec, not run here) begin with ``ftrt``, older ones with ``ptrt``; version at 24.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import Corrupt, Truncated
from ..files import Bytes, label

MAGICS = (b"vtrt", b"ftrt", b"ptrt")
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
SECTION = 24
MAX_SECTIONS = 64
CUDA = 190  # e_machine of device code
WINDOW = 1 << 20


@dataclass(frozen=True, slots=True)
class Section:
    """A section of an RTX engine: ``tag`` is reversed as it stands in the file (``NGNE``, ``THGW``)."""

    tag: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """``magic`` is vtrt, ftrt or ptrt; ``version`` what built it; ``size`` what it says of itself, None if nothing.

    ``targets`` are the chips of an RTX engine; the highest bit of the mask has no known meaning.
    """

    magic: str
    version: tuple[int, ...]
    size: int | None
    targets: tuple[str, ...]
    sections: tuple[Section, ...]
    serialization: int | None


@dataclass(frozen=True, slots=True)
class Library:
    """A program or library within the plan. ``kind`` is ELF, Windows, or device: GPU code, which is ordinary."""

    kind: str
    offset: int


def read_header(data: Bytes) -> PlanHeader:
    """The header. Corrupt when it is none, Truncated when the file is shorter than it says."""
    if data.size < 28:
        raise Truncated("the file ends within the header of a plan", file=label(data), offset=data.size)
    head = data.read(0, min(data.size, 64 + MAX_SECTIONS * SECTION))
    magic = head[:4]
    if magic not in MAGICS:
        raise Corrupt("no plan of TensorRT", file=label(data), offset=0, expected="vtrt, ftrt, ptrt", found=magic.hex())
    version = tuple(head[24:28])
    if magic != b"vtrt":
        number = int.from_bytes(head[4:8], "little")
        return PlanHeader(magic.decode(), version, None, (), (), number)
    if len(head) < 64:
        raise Truncated("the file ends within the header of an engine", file=label(data), offset=data.size)
    size = int.from_bytes(head[16:24], "little")
    if size > data.size:
        raise Truncated("an engine is cut short", file=label(data), offset=data.size, expected=f"{size} bytes",
                        found=f"{data.size} bytes")  # fmt: skip
    mask = int.from_bytes(head[32:40], "little")
    targets = tuple(name for bit, name in enumerate(TARGETS) if mask >> bit & 1)
    sections = tuple(_sections(data, head))
    serialization = None
    for section in sections:
        if section.tag == "NGNE" and section.size >= 8 and data.read(section.offset, 4) == b"ptrt":
            serialization = int.from_bytes(data.read(section.offset + 4, 4), "little")
    return PlanHeader("vtrt", version, size, targets, sections, serialization)


def _sections(data: Bytes, head: bytes) -> Iterator[Section]:
    """The table has no count: it ends where the first section begins."""
    at, end = 64, len(head)
    while at + SECTION <= end:
        tag = head[at : at + 4]
        offset, size = (int.from_bytes(head[i : i + 8], "little") for i in (at + 8, at + 16))
        if not (tag.isalpha() and tag.isupper()):
            return
        if offset + size > data.size or offset < at + SECTION:
            raise Corrupt("a section of an engine lies outside of it", file=label(data), offset=at,
                          expected=f"at most {data.size}", found=offset + size)  # fmt: skip
        yield Section(tag.decode(), offset, size)
        end = min(end, offset)
        at += SECTION


def libraries(data: Bytes) -> Iterator[Library]:
    """Every program and library that begins anywhere in the file, in the order of their places. One pass."""
    at = 0
    while at < data.size:
        chunk = data.read(at, min(WINDOW + 64, data.size - at))
        for place in _places(chunk, min(WINDOW, len(chunk))):
            kind = _kind(data, at + place)
            if kind is not None:
                yield Library(kind, at + place)
        at += WINDOW


def _places(chunk: bytes, end: int) -> list[int]:
    out = []
    for mark in (b"\x7fELF", b"MZ"):
        place = chunk.find(mark)
        while 0 <= place < end:
            out.append(place)
            place = chunk.find(mark, place + 1)
    return sorted(out)


def _kind(data: Bytes, at: int) -> str | None:
    head = data.read(at, min(64, data.size - at))
    if len(head) < 64:
        return None
    if head[:4] == b"\x7fELF":
        # Class, byte order and version of the identification; then the type: an executable or a library.
        if head[4] not in (1, 2) or head[5] not in (1, 2) or head[6] != 1:
            return None
        order = "little" if head[5] == 1 else "big"
        if int.from_bytes(head[18:20], order) == CUDA:  # type: ignore[arg-type]
            return "device"
        return "ELF" if int.from_bytes(head[16:18], order) in (1, 2, 3) else None  # type: ignore[arg-type]
    signature = at + int.from_bytes(head[60:64], "little")
    return "Windows" if signature + 4 <= data.size and data.read(signature, 4) == b"PE\0\0" else None
