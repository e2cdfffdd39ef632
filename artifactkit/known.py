"""Formats that are known by name and by their first bytes, and are not read or written here.

Knowing them turns "unknown format" into an answer: what the file is, which kind, and what to do with it.
Magic numbers: HDF5 file format spec 3.0 (superblock), TFLite schema identifier, 7-Zip format description,
Git LFS pointer spec v1.
"""

from __future__ import annotations

from dataclasses import dataclass

from .artifact import Kind


@dataclass(frozen=True, slots=True)
class Known:
    """A format by name: its kind (None when it is no model artifact), how it begins, and the way on."""

    name: str
    title: str
    kind: Kind | None
    hint: str
    magic: tuple[tuple[int, bytes], ...] = ()
    suffixes: tuple[str, ...] = ()

    def matches(self, first: bytes) -> bool:
        return any(first[at : at + len(magic)] == magic for at, magic in self.magic)


KNOWN: tuple[Known, ...] = (
    Known(
        "tensorrt",
        "TensorRT plan",
        "plan",
        "a plan runs on one device family with one TensorRT version: go back to its source",
        ((0, b"ftrt"), (0, b"ptrt")),
        (".plan", ".engine", ".trt"),
    ),
    Known(
        "tensorrt-rtx",
        "TensorRT-RTX engine",
        "plan",
        "an engine runs on one device family: go back to its source",
        ((0, b"vtrt"),),
    ),
    Known(
        "hdf5",
        "HDF5 (Keras .h5 and others)",
        "weights",
        "export it from Keras as safetensors or npz first",
        ((0, b"\x89HDF\r\n\x1a\n"), (512, b"\x89HDF\r\n\x1a\n")),
        (".h5", ".hdf5", ".keras"),
    ),
    Known(
        "tflite",
        "TensorFlow Lite flatbuffer",
        "graph",
        "convert from the model it was made from",
        ((4, b"TFL3"),),
        (".tflite",),
    ),
    Known("7z", "7-Zip archive", None, "unpack it first", ((0, b"7z\xbc\xaf\x27\x1c"),), (".7z",)),
    Known(
        "elf",
        "ELF executable or shared library",
        None,
        "this is native code, not a model artifact",
        ((0, b"\x7fELF"),),
        (".so",),
    ),
    Known(
        "pe",
        "Windows executable or DLL",
        None,
        "this is native code, not a model artifact",
        ((0, b"MZ"),),
        (".dll", ".exe"),
    ),
    Known(
        "git-lfs-pointer",
        "Git LFS pointer: the content is not here",
        None,
        "fetch the content: git lfs pull",
        ((0, b"version https://git-lfs.github.com/spec/v1"),),
    ),
    Known("rar", "RAR archive", None, "unpack it first", ((0, b"Rar!\x1a\x07"),), (".rar",)),
    Known("zstd", "zstd stream", None, "decompress it first: zstd -d", ((0, b"\x28\xb5\x2f\xfd"),), (".zst",)),
)

BY_NAME = {k.name: k for k in KNOWN}
