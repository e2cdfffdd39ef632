"""Tells the formats of the pickle family, and NumPy's, apart: by content, never by suffix, one answer for each file.

The order of the questions is what makes the answers exclusive: each archive that torch writes is told by the member
that only it has.
"""

from __future__ import annotations

from ..errors import ArtifactkitError, LimitExceeded, Truncated
from ..files import Bytes, Memory
from ..pickles import Global, Limits, Machine, Observer
from . import compressed, npy, tar, torch_legacy
from .zip import Zip
from .zip_records import LOCAL, LOCAL_MAGIC

PICKLE_START = tuple(bytes((0x80, protocol)) for protocol in range(6))
TAR_MEMBERS = {"sys_info", "pickle", "tensors", "storages"}
JOBLIB_MODULES = ("joblib.numpy_pickle", "joblib.numpy_pickle_compat", "sklearn.externals.joblib.numpy_pickle")
ZFILE = b"ZF0x"  # joblib before 0.10: a length in hex, then zlib
ENOUGH = 5_000_000  # opcodes without a joblib array, and the rest is not looked through
CONVINCING = 10  # opcodes of a text pickle that was cut short


def kind_of(data: Bytes, first: bytes, archive: Zip | None = None) -> str | None:
    """The name of the one format of ours that ``data`` is in, or None. Never raises for bad content.

    ``first`` are its first 4096 bytes, or all; ``archive`` is its zip directory when it has one that can be read.
    """
    if first.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return kind_of_zip(archive) if archive is not None else _kind_of_broken_zip(first)
    if torch_legacy.is_legacy(first):
        return "torch-legacy"
    if first.startswith(npy.MAGIC):
        return "npy"
    if tar.is_tar(first[: tar.BLOCK]):
        return _kind_of_tar(data, first)
    if compressed.foreign(first) == "lz4" or first.startswith(ZFILE):
        return "joblib"
    codec = compressed.detect(first)
    if codec is not None:
        return "joblib" if begins_as_pickle(Memory(_first_unpacked(data, codec))) else None
    return _kind_of_pickle(data, first)


def root_of(archive: Zip) -> str:
    """The folder that torch takes as the archive's root: the first part of the first member's name."""
    return archive.members[0].name.partition("/")[0] if archive.members else ""


def kind_of_zip(archive: Zip) -> str | None:
    """The format of a zip archive with a readable directory."""
    root = root_of(archive)
    if f"{root}/archive_format" in archive or "serialized_exported_program.json" in archive:
        return "pt2"
    if f"{root}/.data/extern_modules" in archive:
        return "torch-package"
    if f"{root}/constants.pkl" in archive or (f"{root}/model.json" in archive and f"{root}/version" in archive):
        return "torchscript"
    if f"{root}/data.pkl" in archive:
        return "torch-zip"
    try:
        plain = all(_begins_as_npy(archive, m.name, m.size) for m in archive.members if not m.is_folder)
    except ArtifactkitError:
        plain = all(m.name.endswith(".npy") for m in archive.members)  # damaged: the reader says how
    return "npz" if plain else None


def _begins_as_npy(archive: Zip, name: str, size: int) -> bool:
    return size >= len(npy.MAGIC) and archive.member_bytes(name).read(0, len(npy.MAGIC)) == npy.MAGIC


def _kind_of_broken_zip(first: bytes) -> str | None:
    """A zip archive cut short has lost its directory; the first local header still tells what it was."""
    if not first.startswith(LOCAL_MAGIC) or len(first) < LOCAL.size:
        return None
    length = LOCAL.unpack_from(first)[-2]
    name = first[LOCAL.size : LOCAL.size + length].decode("utf-8", "replace")
    if name.endswith(".npy"):
        return "npz"
    inner = name.partition("/")[2]
    if inner.endswith(".storage") or inner == ".data/extern_modules":
        return "torch-package"
    if inner.startswith(("data/weights/", "archive_format")) or name == "serialized_exported_program.json":
        return "pt2"
    if inner == "constants.pkl" or inner.startswith(("code/", "constants/")):
        return "torchscript"
    # torch.save writes the pickle first, torch.jit.save the storages.
    return "torch-zip" if inner in ("data.pkl", "version") or inner.startswith("data/") else None


def _kind_of_tar(data: Bytes, first: bytes) -> str | None:
    try:
        names = {m.name for m in tar.Tar(data).members}
    except ArtifactkitError:
        names = TAR_MEMBERS if first[:100].rstrip(b"\0").decode("latin-1") in TAR_MEMBERS else set()
    return "torch-tar" if names >= {"pickle", "tensors", "storages"} else None


def _first_unpacked(packed: Bytes, codec: compressed.Codec) -> bytes:
    """The first few thousand bytes of the content, or as many as can be had."""
    out = b""
    try:
        stream = compressed.Stream(packed, codec)
        while len(out) < 4096 and (chunk := stream.next(4096 - len(out))):
            out += chunk
    except ArtifactkitError:
        pass
    return out


class _FoundJoblib(Exception):
    pass


class _Lookout(Observer):
    def resolved(self, name: Global, *, opcode: str, literal: bool, known: bool) -> None:
        if name.module in JOBLIB_MODULES:
            raise _FoundJoblib


def _kind_of_pickle(data: Bytes, first: bytes) -> str | None:
    """``joblib`` when the pickle asks for joblib's wrapper of arrays: raw array bytes follow between its opcodes."""
    binary = first.startswith(PICKLE_START)
    if not binary and (not first or first[0] not in b"(]}c)NIJKLMFGSUXVTBC"):
        return None
    machine = Machine(data, table={}, observer=_Lookout(), limits=Limits(opcodes=ENOUGH, memory=256 << 20))
    try:
        machine.load()
    except _FoundJoblib:
        return "joblib"
    except LimitExceeded:
        return "pickle"
    except Truncated:
        return "pickle" if binary or machine.opcodes >= CONVINCING else None
    except ArtifactkitError:
        # A safetensors file whose header is 0x480 bytes long begins as protocol 4 does. No unpickler gets past its
        # zeros, so nothing that could have run is waved through here.
        header = machine.position <= 9 and first[4:9] == b"\0\0\0\0{"
        return "pickle" if binary and not header else None
    # Text that happens to begin as a pickle does not end as one.
    return "pickle" if binary or machine.position == machine.size else None


def begins_as_pickle(data: Bytes) -> bool:
    """Whether ``data`` is a pickle, or the beginning of one."""
    first = data.read(0, min(data.size, 4096))
    return first.startswith(PICKLE_START) or _kind_of_pickle(data, first) is not None
