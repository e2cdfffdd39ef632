"""Python that comes with a model: who would run it, and what it does the moment it is imported.

A repository's own code is inventory. A finding is only what runs a command, or hidden code, when it is merely imported,
and what Python runs by itself: sitecustomize, usercustomize, and import lines in .pth files of site-packages.
"""

from __future__ import annotations

import os
import re

from .model import Rule
from .piece import Piece

AT_IMPORT = Rule(
    "python-runs-at-import",
    "suspicious",
    "a Python file runs a command, or code from a string, when it is imported",
    "loading the model with trust_remote_code, or an import by accident, is enough",
    "read the file; load the model without it",
)
HIDDEN = Rule(
    "python-hidden-code",
    "malicious",
    "a Python file decodes hidden code and runs it when it is imported",
    "nobody who has nothing to hide encodes what a file does",
    "do not import it",
)
AUTOMATIC = Rule(
    "python-runs-by-itself",
    "suspicious",
    "a file that Python runs by itself at every start",
    "sitecustomize and usercustomize are imported by every Python that has the folder on its path",
    "delete it, or keep the folder off the path (python -I)",
)
PTH = Rule(
    "pth-import",
    "suspicious",
    "a .pth file with lines of code",
    "in site-packages, every start of Python runs the lines that begin with import",
    "delete it",
)
PTH_UNSAFE = Rule(
    "pth-runs-code",
    "malicious",
    "a .pth file that runs a command or hidden code",
    "in site-packages, every start of Python runs the lines that begin with import",
    "delete it",
)
RULES = (AT_IMPORT, HIDDEN, AUTOMATIC, PTH, PTH_UNSAFE)

MAX_SOURCE = 512 << 10  # a syntax tree takes a hundred times as much
MAX_SEARCHED = 64 << 20  # of larger files the lines at the left margin are looked at
AT_MARGIN = re.compile(
    rb"^(?:[^\s#'\"()][^\n#'\"()]{0,200}[;=:]\s*)?"
    rb"(os\.system|os\.popen|os\.exec[lv]p?e?|subprocess\.\w{3,12}|pty\.spawn|exec|__import__)[ \t]*\(", re.MULTILINE
)  # fmt: skip
MAX_PTH = 4 << 20  # bytes that are looked at: lists of paths are small, checkpoints are not
# Without one of these nothing below is found; and parsing costs a hundred times what the search does.
WORTH_PARSING = re.compile(
    rb"\bos\.(?:system|exec|spawn|posix_spawn|startfile)|\bimport\b[^\n]{0,200}\bsystem\b|[\"']system[\"']|\bpopen|\bPopen"
    rb"|\bsubprocess\b|\b(?:exec|eval|execfile)\s*\(|=\s*(?:exec|eval)\b|\bpty\b|\bmarshal\b|\b(?:pickle|dill)\b[^\n]{0,200}\bloads\b"
    rb"|\)\.system\s*\(|__builtins__|\bbuiltins\b|\brunpy\b|\bpip\b[^\n]{0,200}\bmain\b|\bcommands\b|create_subprocess|import\s*\*|posix\.system|nt\.system"
)
# Who runs a file of this name, when not the one who imports it.
RUNNERS = {
    "setup.py": ("pip install, python -m build: at installation", "install a wheel; pip install --only-binary :all:"),
    "conftest.py": ("pytest, before it collects a test in that folder", "do not run the tests"),
    "handler.py": ("an inference endpoint that takes custom handlers", "deploy without a custom handler"),
    "noxfile.py": ("nox", "do not run it"),
    "fabfile.py": ("fabric", "do not run it"),
    "dodo.py": ("doit", "do not run it"),
    "app.py": ("whoever starts the application", "do not start it"),
    "generate.py": ("transformers' generate(custom_generate=...), with trust_remote_code=True", "do not pass it"),
    "__init__.py": ("import of its folder", "do not import it"),
    "__main__.py": ("python -m, or python on its folder or archive", "do not run it"),
}
ORDINARY = ("import, and loaders that are allowed to (trust_remote_code=True)", "load with trust_remote_code=False")
HIDDEN_EXEC = re.compile(rb"\bexec\s*\(\s*(?:\w{1,40}\.){0,4}(?:b64decode|decompress|loads|fromhex)\b")
# Lines as str.splitlines has them, which is how newer Pythons read the file; older ones know \n, \r and \r\n.
PTH_LINE = re.compile(
    rb"(?:\A(?:\xef\xbb\xbf)?|[\n\r\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9])(import[ \t][^\n\r]*)"
)
# What installers write (setuptools, editable installs, coverage): exact lines.
PTH_ORDINARY = re.compile(
    rb"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os\.environ\.get\(var, '(?:local|stdlib)'\) == 'local'; "
    rb"enabled and __import__\('_distutils_hack'\)(?:\.add_shim\(\))?;?\s*"
    rb"|import (__editable___\w+_finder); \1\.install\(\)\s*"
    rb"|import coverage; coverage\.process_startup\(\)\s*"
)
PTH_DANGER = re.compile(
    rb"\bexec\b|\beval\b|subprocess|os\.system|popen|base64|__import__|socket|urllib|requests|marshal|zlib|compile\("
    rb"|bytes\.fromhex|ctypes"
)


def scan(piece: Piece, kind: str) -> None:
    if kind == "pth":
        _pth(piece)
        return
    if piece.container == "torchscript":
        return  # TorchScript is another language
    name = piece.name.lower()
    runs, avoid = RUNNERS.get(name, ORDINARY)
    if name == "generate.py" and os.path.basename(os.path.dirname(piece.path)) != "custom_generate":
        runs, avoid = ORDINARY
    piece.runs(f"Python code: {piece.name}", runs, avoid)
    if _stem(piece, name) in ("sitecustomize", "usercustomize"):
        piece.find(AUTOMATIC, f"{piece.name}: every Python that has this folder on its path runs it")
    if piece.size > MAX_SOURCE:
        piece.runs(f"{piece.name}: {piece.size} bytes of Python, more than is parsed here", runs, avoid)
        for at in range(0, min(piece.size, MAX_SEARCHED), MAX_SOURCE):
            source = piece.data.read(at, min(MAX_SOURCE + 1024, piece.size - at))
            if HIDDEN_EXEC.search(source):
                piece.find(HIDDEN, "decodes a string and runs it")
            if found := AT_MARGIN.search(source):
                piece.find(AT_IMPORT, f"calls {found[1].decode()} at the left margin", offset=at + found.start())
        return
    source = piece.data.read(0, piece.size)
    if not WORTH_PARSING.search(source):
        return
    from .python_calls import Danger, at_import

    calls = at_import(source)
    if calls is None:
        if HIDDEN_EXEC.search(source):
            piece.find(HIDDEN, "decodes a string and runs it")
        piece.runs(f"{piece.name}: Python that this version cannot parse", runs, avoid)
        return
    for call in calls:
        shown = f"line {call.line}: {call.what}"
        piece.runs(f"{piece.name}, {shown}, at import", runs, avoid)
        if call.danger is Danger.HIDDEN:
            piece.find(HIDDEN, shown, name=call.name)
        elif call.danger is Danger.COMMAND and not (name == "setup.py" and call.builds):
            piece.find(AT_IMPORT, shown, name=call.name)


def _stem(piece: Piece, name: str) -> str:
    """What ``import`` calls the file: its folder, where it is a package."""
    if name != "__init__.py":
        return name.removesuffix(".pyw").removesuffix(".py")
    place = (piece.member or piece.path).replace("\\", "/").rpartition("/")[0]
    return place.rpartition("/")[2].lower()


def _pth(piece: Piece) -> None:
    """``.pth`` is also what people call checkpoints: only text has lines."""
    first = piece.first
    if first.startswith((b"\x80", b"PK\x03\x04", b"\x89HDF")):
        return
    text = piece.data.read(0, min(piece.size, MAX_PTH))
    binary = b"\0" in text
    lines = [found[1] for found in PTH_LINE.finditer(text)]
    for line in dict.fromkeys(lines):
        danger = PTH_DANGER.search(line)
        if not PTH_ORDINARY.fullmatch(line) and (danger or not binary):
            piece.find(PTH_UNSAFE if danger else PTH, line[:120].decode("utf-8", "replace"))
    if lines and not binary:
        piece.runs("lines of a .pth file", "every start of a Python that has it in site-packages", "delete it")
