"""Writing .npy and .npz without pickle, from names, types and shapes alone.

``.npy`` version 1.0 as numpy writes it (numpy.lib.format), ``.npz`` a zip archive of stored members (PKWARE APPNOTE
6.3) with a fixed date, zip64 records where sizes need them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .artifact import TensorView, Weights
from .dtypes import ALL, DType
from .errors import RouteRefused
from .source import Inline
from .types import OutputFile, Part, WriteOptions

MAX_DIMENSIONS = 64  # numpy's NPY_MAXDIMS
_ALIGN = 64
_GROWTH_DIGITS = 21  # numpy leaves room for the first size to grow to this many digits

# What numpy calls the types it has by itself: byte order, kind, bytes.
_KINDS = {"bool": "b", "u": "u", "i": "i", "f": "f", "c": "c"}
# The nearest of them that holds every value of a type that numpy lacks.
_EXACT = {
    "bf16": "f32", "f8_e8m0": "f32",
    "f8_e4m3": "f16", "f8_e5m2": "f16", "f8_e4m3fnuz": "f16", "f8_e5m2fnuz": "f16",
}  # fmt: skip
DTYPES: frozenset[str] = frozenset(d.name for d in ALL if d.numpy and not d.ml)


def write_npy(weights: Weights, options: WriteOptions) -> list[OutputFile]:
    """Lay out the one tensor of ``weights`` as ``.npy``; reads no tensor byte. RouteRefused when there are more."""
    tensors = list(weights)
    if len(tensors) != 1:
        names = ", ".join(t.name for t in tensors[:5]) + (", ..." if len(tensors) > 5 else "")
        raise RouteRefused(
            "an .npy file holds one tensor", expected="1 tensor",
            found=f"{len(tensors)}: {names}" if tensors else "none",
            hint="-t npz holds them all, or choose one with --include",
        )  # fmt: skip
    tensor = tensors[0]
    header = npy_header(tensor)
    parts = (Part(0, Inline(header)), Part(len(header), tensor.source, tensor.name))
    return [OutputFile(options.name, len(header) + tensor.nbytes, parts)]


def npy_header(tensor: TensorView) -> bytes:
    """Magic, version and header of a C-ordered little-endian array, as ``numpy.save`` has it; whole 64 bytes."""
    shape = tensor.shape
    if len(shape) > MAX_DIMENSIONS:
        raise RouteRefused(
            "numpy has no array of so many dimensions", tensor=tensor.name,
            expected=f"at most {MAX_DIMENSIONS}", found=len(shape),
        )  # fmt: skip
    text = f"{{'descr': '{_descr(tensor)}', 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(repr(shape[0])))
    fixed = 10 + 1  # magic, version and length before the text, a line feed after it
    text += " " * (_ALIGN - (len(text) + fixed) % _ALIGN) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii")


def _descr(tensor: TensorView) -> str:
    dtype: DType = tensor.dtype
    if dtype.name not in DTYPES:
        exact = _EXACT.get(dtype.name)
        raise RouteRefused(
            f"numpy has no {dtype}", tensor=tensor.name, expected=", ".join(d.name for d in ALL if d.name in DTYPES),
            found=dtype.name,
            hint=f"--dtype {exact} holds it exactly" if exact else "-t safetensors, or leave it out with --exclude",
        )  # fmt: skip
    order = "|" if dtype.itemsize == 1 else "<"
    return f"{order}{_KINDS[dtype.name if dtype.name == 'bool' else dtype.name[0]]}{dtype.itemsize}"


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of the archive: where its local header begins, its name in bytes, its .npy header, its tensor."""

    at: int
    name: bytes
    header: bytes
    tensor: TensorView

    @property
    def size(self) -> int:
        return len(self.header) + self.tensor.nbytes

    @property
    def big(self) -> bool:
        return self.size >= _MAX32

    @property
    def data_at(self) -> int:
        return self.at + _LOCAL.size + len(self.name) + (20 if self.big else 0)


_MAX32, _MAX16 = 0xFFFFFFFF, 0xFFFF
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_DATE = 0x21  # 1 January 1980, the first day that a zip archive knows
_UTF8 = 0x800


def write_npz(weights: Weights, options: WriteOptions) -> list[OutputFile]:
    """Lay out every tensor as a stored member ``NAME.npy``; reads no tensor byte.

    The zip headers hold checksums of the bytes, so they are the parts that ``finish`` gives. Raises RouteRefused for a
    type that numpy lacks, and for names that an archive cannot hold or that would unpack outside its folder.
    """
    _check_names(weights)
    members: list[_Member] = []
    parts: list[Part] = []
    at = 0
    for tensor in weights:
        member = _Member(at, (tensor.name + ".npy").encode("utf-8"), npy_header(tensor), tensor)
        members.append(member)
        parts.append(Part(member.data_at, Inline(member.header)))
        parts.append(Part(member.data_at + len(member.header), tensor.source, tensor.name))
        at = member.data_at + member.size
    directory_at = at
    size = directory_at + len(_directory(members, directory_at, [0] * len(members)))

    def finish(crcs: Mapping[str, int]) -> Sequence[Part]:
        sums = [
            crc32_combine(zlib.crc32(m.header), crcs[m.tensor.name], m.tensor.nbytes) if m.tensor.nbytes
            else zlib.crc32(m.header)
            for m in members
        ]  # fmt: skip
        heads = [Part(m.at, Inline(_local(m, crc))) for m, crc in zip(members, sums, strict=True)]
        return [*heads, Part(directory_at, Inline(_directory(members, directory_at, sums)))]

    return [OutputFile(options.name, size, tuple(parts), finish)]


def _check_names(weights: Weights) -> None:
    for name in weights.tensors:
        pieces = name.replace("\\", "/").split("/")
        try:
            length = len(name.encode("utf-8"))
        except UnicodeEncodeError:
            raise RouteRefused(
                "the name is no Unicode text", tensor=ascii(name), hint="--rename gives it another"
            ) from None
        problem = None
        if not name:
            problem = "the name is empty, and its file would be hidden"
        elif ".." in pieces or not pieces[0] and len(pieces) > 1 or pieces[0].endswith(":"):
            problem = "the name would unpack outside the archive's folder"
        elif "\0" in name:
            problem = "the name holds a NUL, where archives end a name"
        elif length > _MAX16 - 4:
            problem = "the name is too long for an archive"
        elif f"{name}.npy" in weights.tensors:
            problem = f"numpy cannot tell the name from {name + '.npy'!r}"
        if problem:
            raise RouteRefused(problem, tensor=name[:200], hint="--rename gives it another")


def _flags(name: bytes) -> int:
    return 0 if name.isascii() else _UTF8


def _local(m: _Member, crc: int) -> bytes:
    size, extra, version = m.size, b"", 20
    if m.big:
        extra, version, size = struct.pack("<HHQQ", 1, 16, m.size, m.size), 45, _MAX32
    fixed = _LOCAL.pack(b"PK\3\4", version, _flags(m.name), 0, 0, _DATE, crc, size, size, len(m.name), len(extra))
    return fixed + m.name + extra


def _directory(members: list[_Member], at: int, sums: list[int]) -> bytes:
    """The central directory and its end records; its length does not depend on the checksums."""
    out = bytearray()
    for m, crc in zip(members, sums, strict=True):
        size, where, wide = m.size, m.at, b""
        if m.big:
            wide, size = struct.pack("<QQ", m.size, m.size), _MAX32
        if m.at >= _MAX32:
            wide, where = wide + struct.pack("<Q", m.at), _MAX32
        extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
        version = 45 if wide else 20
        out += _CENTRAL.pack(
            b"PK\1\2", 3 << 8 | version, version, _flags(m.name), 0, 0, _DATE, crc, size, size, len(m.name), len(extra),
            0, 0, 0, 0o644 << 16, where,
        )  # fmt: skip
        out += m.name + extra
    count, length = len(members), len(out)
    if count >= _MAX16 or at >= _MAX32 or length >= _MAX32:
        end64 = at + length
        out += _END64.pack(b"PK\6\6", _END64.size - 12, 3 << 8 | 45, 45, 0, 0, count, count, length, at)
        out += _LOCATOR.pack(b"PK\6\7", 0, end64, 1)
    short = min(count, _MAX16)
    out += _END.pack(b"PK\5\6", 0, 0, short, short, min(length, _MAX32), min(at, _MAX32), 0)
    return bytes(out)


def crc32_combine(first: int, second: int, length: int) -> int:
    """The CRC-32 of two runs of bytes from the CRC-32 of each; ``length`` is that of the second in bytes.

    Appending n bytes multiplies the first's remainder by x^(8n) modulo the polynomial (zlib, ``crc32_combine``).
    """
    power, factor, n = 1 << 31, 1 << 30, 8 * length  # x^0 and x^1: bits run from the highest power down
    while n:
        if n & 1:
            power = _multiply(factor, power)
        factor = _multiply(factor, factor)
        n >>= 1
    return _multiply(power, first) ^ second


def _multiply(a: int, b: int) -> int:
    """a * b modulo the polynomial of CRC-32, reflected."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (0xEDB88320 if b & 1 else 0)
    return product
