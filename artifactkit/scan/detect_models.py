"""The marks and names of what lies in a model's repository beside pickles and archives. Data for ``detect``; no rules.

Formats that end in ``-name`` stand for a suffix that promises the format: then the content has to keep the promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .piece import Piece

MODULES: dict[str, str] = {
    "safetensors": "safetensors_file",
    "safetensors-name": "safetensors_file",
    "gguf": "gguf",
    "gguf-name": "gguf",
    "onnx": "onnx_file",
    "onnx-name": "onnx_file",
    "elf": "native",
    "pe": "native",
    "macho": "native",
    "pointer": "pointers",
    "dvc": "pointers",
    "config": "configs",
    "template": "template_files",
    "yaml": "yaml_tags",
    "python": "python_files",
    "pth": "python_files",
    "requirements": "installs",
    "pyproject": "installs",
    "modelfile": "installs",
    "notebook": "installs",
    "git-hook": "installs",
    "git-config": "installs",
    "tree": "repository",  # of no file: scan_tree
    "keras-json": "keras_config",
    "saved-model": "savedmodel",
    "saved-model-name": "savedmodel",
    "saved-model-text": "savedmodel",
    "meta-graph": "savedmodel",
    "graph-def": "savedmodel",
    "graph-text": "savedmodel",
    "keras-metadata": "savedmodel",
    "tflite": "tflite",
    "torchscript": "torchscript_code",
    "torchscript-code": "torchscript_code",
    "torchscript-bytecode": "torchscript_code",
    "torchscript-flat": "torchscript_code",
    "torch-package": "torch_package_code",
    "pt2": "pt2_graph",
    "pt2-graph": "pt2_graph",
    "plan": "plans",
    "plan-name": "plans",
    "coreml-name": "coreml",
    "coreml-manifest": "coreml",
    "skops-schema": "skops",
    "r": "rdata",
    "7z": "sevenzip",
    "rar": "sevenzip",
    "cab": "sevenzip",
    "compress": "sevenzip",
    "lzip": "sevenzip",
    "llamafile": "llamafile",
    "llamafile-name": "llamafile",
    "hdf5": "hdf5_file",
    "hdf5-name": "hdf5_file",
}

MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"GGUF", "gguf"),
    (0, b"vtrt", "plan"),
    (0, b"ftrt", "plan"),
    (0, b"ptrt", "plan"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "rar"),
    (0, b"MSCF\0\0\0\0", "cab"),
    (0, b"\x1f\x9d", "compress"),
    (0, b"LZIP\x01", "lzip"),
    (0, b"MZqFpD='", "llamafile"),
    (0, b"jartsr='", "llamafile"),
    (4, b"TFL3", "tflite"),
    (4, b"PTMF", "torchscript-flat"),
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (512, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (1024, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (2048, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (0, b"\x7fELF", "elf"),
    (0, b"\xfe\xed\xfa\xce", "macho"),
    (0, b"\xce\xfa\xed\xfe", "macho"),
    (0, b"\xfe\xed\xfa\xcf", "macho"),
    (0, b"\xcf\xfa\xed\xfe", "macho"),
)

MAX_SAFETENSORS_HEADER = 100_000_000
ONNX_FIRST = frozenset(b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca\xd2")  # spares most files the import


def _is_safetensors(piece: Piece) -> bool:
    head = piece.first
    return head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= MAX_SAFETENSORS_HEADER


def _is_onnx(piece: Piece) -> bool:
    if piece.size < 4 or piece.first[0] not in ONNX_FIRST:
        return False
    from ..containers.onnx_wire import looks_like_model

    return looks_like_model(piece.data, piece.first)


def _is_saved_model(piece: Piece) -> bool:
    if not piece.first.startswith(b"\x08\x01\x12"):
        return False
    from .savedmodel import looks_like_saved_model

    return looks_like_saved_model(piece.data, piece.first)


def _is_graph_def(piece: Piece) -> bool:
    """A frozen graph of TensorFlow: its first field is a node, with a name and then an operator."""
    head = piece.first
    if head[:1] != b"\n":
        return False
    at = 2
    while at < 6 and head[at - 1 : at] >= b"\x80":
        at += 1
    name = head[at + 2 : at + 2 + (head[at + 1] if at + 1 < len(head) else 0)]
    rest = head[at + 2 + len(name) :]
    operator = rest[2 : 2 + (rest[1] if len(rest) > 1 else 0)]
    return head[at : at + 1] == b"\n" and rest[:1] == b"\x12" and name.isascii() and operator.isalnum()


def _is_pe(piece: Piece) -> bool:
    head = piece.first
    if not head.startswith(b"MZ") or len(head) < 64:
        return False
    at = int.from_bytes(head[60:64], "little")
    return at + 4 <= piece.size and piece.data.read(at, 4) == b"PE\0\0"


def _is_fat(piece: Piece) -> bool:
    # Java classes have the same four bytes, then a version of 45 or more.
    return piece.first.startswith(b"\xca\xfe\xba\xbe") and 0 < int.from_bytes(piece.first[4:8], "big") < 40


def _is_llamafile(piece: Piece) -> bool:
    """A program with a zip archive behind it whose directory names a model, or the arguments for one."""
    if not piece.first.startswith((b"\x7fELF", b"MZ")) or b"PK\x05\x06" not in piece.last:
        return False
    return b".gguf" in piece.last or b".args" in piece.last


def _is_r(piece: Piece) -> bool:
    if piece.first[:1] not in (b"X", b"A", b"B", b"R"):
        return False
    from .rdata import looks_like

    return looks_like(piece.first)


def _is_pointer(piece: Piece) -> bool:
    head = piece.first
    if head.startswith(b"version https://"):
        return True
    return len(head) < 1024 and b"annex/objects/" in head


TESTS: tuple[tuple[str, Callable[[Piece], bool]], ...] = (
    ("safetensors", _is_safetensors),
    ("onnx", _is_onnx),
    ("saved-model", _is_saved_model),
    ("graph-def", _is_graph_def),
    ("pe", _is_pe),
    ("macho", _is_fat),
    ("r", _is_r),
    ("llamafile", _is_llamafile),
    ("pointer", _is_pointer),
)

NAMES: dict[str, tuple[str, ...]] = {
    "saved_model.pb": ("saved-model-name",),
    "schema.json": ("skops-schema",),
    "keras_metadata.pb": ("keras-metadata",),
    "pyproject.toml": ("pyproject",),
    "modelfile": ("modelfile",),
    "manifest.json": ("coreml-manifest",),
}
SUFFIXES: dict[str, tuple[str, ...]] = {
    ".safetensors": ("safetensors-name",),
    ".gguf": ("gguf-name",),
    ".onnx": ("onnx-name",),
    ".json": ("config", "keras-json"),
    ".engine": ("plan-name",),
    ".plan": ("plan-name",),
    ".trt": ("plan-name",),
    ".mlmodel": ("coreml-name",),
    ".llamafile": ("llamafile-name",),
    ".pb": ("graph-def",),
    ".pbtxt": ("graph-text",),
    ".meta": ("meta-graph",),
    ".h5": ("hdf5-name",),
    ".hdf5": ("hdf5-name",),
    ".keras": ("hdf5-name",),
    ".jinja": ("template",),
    ".jinja2": ("template",),
    ".j2": ("template",),
    ".yaml": ("yaml",),
    ".yml": ("yaml",),
    ".py": ("python",),
    ".pyw": ("python",),
    ".pth": ("pth",),
    ".dvc": ("dvc",),
    ".ipynb": ("notebook",),
    ".modelfile": ("modelfile",),
}


def _in_archive(piece: Piece, name: str, place: str) -> list[str]:
    """Parts of archives whose kind tells what a name in them means."""
    if piece.container in ("torchscript", "torch-zip", "pt2") and "/code/" in f"/{place}" and name.endswith(".py"):
        return ["torchscript-code"]
    if piece.container in ("torchscript", "torch-zip") and name == "bytecode.pkl":
        return ["torchscript-bytecode"]
    if name.endswith(".json") and piece.container in ("pt2", "torch-zip", "torchscript", "zip"):
        if name == "serialized_exported_program.json" or "/models/" in f"/{place}":
            return ["pt2-graph"]
    return []


def by_path(piece: Piece) -> list[str]:
    """Rules that more than the last suffix of a name calls for."""
    name = piece.name.lower()
    found = []
    if name.endswith(".txt") and name.startswith(("requirements", "constraints")):
        found.append("requirements")
    if name.startswith("modelfile."):
        found.append("modelfile")
    place = (piece.member or piece.path).replace("\\", "/")
    if piece.container is not None:
        found += _in_archive(piece, name, place)
    if "/.git/" in f"/{place}":
        if "/hooks/" in place:
            found.append("git-hook")
        elif name in ("config", "config.worktree"):
            found.append("git-config")
    return found
