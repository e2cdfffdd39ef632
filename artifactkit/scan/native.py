"""Native code: shared libraries and programs, told by their first bytes, whatever they are called."""

from __future__ import annotations

import re

from .model import Rule
from .piece import Piece

LIBRARY = Rule(
    "native-code",
    "suspicious",
    "native code lies among the files of a model",
    "what loads it (torch.ops.load_library, ctypes, a runtime's custom operators, an import) runs it, unseen",
    "find out what it is for, and build it from its source",
)
DISGUISED = Rule(
    "native-code-disguised",
    "malicious",
    "native code under the name of a file that holds data",
    "a file that pretends to be weights and is a program has no honest purpose",
    "do not run or load it",
)
RULES = (LIBRARY, DISGUISED)

# Names under which nobody expects a program.
DATA_SUFFIXES = (
    ".safetensors", ".gguf", ".onnx", ".pt", ".pth", ".ckpt", ".pkl", ".npy", ".npz", ".h5", ".keras", ".json", ".txt",
    ".md", ".yaml", ".yml", ".model", ".joblib", ".msgpack", ".tflite", ".pb", ".png", ".jpg", ".jpeg", ".csv",
    ".jinja",
)  # fmt: skip
# .bin alone may be anything, a program too.
WEIGHTS = re.compile(r"(?:.*model.*|.*weights.*|optimizer|scheduler|training_args|consolidated.*|ggml.*)\.bin")
NAMES = {"elf": "ELF", "pe": "Windows", "macho": "Mach-O"}


def scan(piece: Piece, kind: str) -> None:
    name = piece.name.lower()
    what = NAMES.get(kind, kind)
    if name.endswith(DATA_SUFFIXES) or WEIGHTS.fullmatch(name):
        piece.find(DISGUISED, f"a {what} program or library named {piece.name!r}")
    else:
        piece.find(LIBRARY, f"a {what} program or library")
    piece.runs(f"native code ({what})", _loader(name), "do not load it; build it from its source")


def _loader(name: str) -> str:
    if name.endswith((".pyd", ".so")) or ".cpython-" in name or ".abi3." in name:
        return "import of a module of that name; torch.ops.load_library, ctypes, custom operators of a runtime"
    if name.endswith((".dll", ".dylib")) or ".so." in name:
        return "torch.ops.load_library, ctypes, a runtime's custom operators, or a library that links to it"
    return "whoever starts it, or loads it as a library"
