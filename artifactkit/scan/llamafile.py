"""llamafile and its kin: a program for several systems with a zip archive behind it that holds a model."""

from __future__ import annotations

from .model import Rule
from .piece import Piece

EXECUTABLE = Rule(
    "llamafile-executable", "suspicious", "a program with a model inside",
    "to use the model is to run the program, with all that a program can do",
    "take the GGUF file out of it, and run it with an engine of your own",
)  # fmt: skip
RULES = (EXECUTABLE,)

APE = (b"MZqFpD='", b"jartsr='", b"APEDBG='")  # Actually Portable Executables (cosmopolitan, ape.S)


def scan(piece: Piece, kind: str) -> None:
    what = "an executable of cosmopolitan libc" if piece.first.startswith(APE) else "an executable"
    if kind == "llamafile-name" and not piece.first.startswith((*APE, b"\x7fELF", b"MZ", b"#!")):
        return
    piece.find(EXECUTABLE, f"{what} with a model inside", name=piece.name[:200])
    piece.runs(what, "whoever starts it", "take the GGUF file out of it")
