"""torch.package: Python modules in the archive, which the importer runs; and those that it takes from outside."""

from __future__ import annotations

from ..containers.zip import Zip
from ..errors import ArtifactkitError
from . import python_names
from .model import Rule
from .piece import Piece
from .python_calls import Danger, at_import

_AVOID = "do not load it; get the weights as safetensors"
CODE = Rule(
    "torch-package-code", "suspicious", "a torch.package archive brings Python code",
    "PackageImporter runs these modules as soon as an object needs them, with all that Python can do",
    "read the code; " + _AVOID,
)  # fmt: skip
RUNS = Rule(
    "torch-package-runs-command", "malicious", "a module of a torch.package archive runs a command when it is imported",
    "PackageImporter imports it to rebuild the object, and the command runs", _AVOID,
)  # fmt: skip
EXTERN = Rule(
    "torch-package-extern", "suspicious", "a torch.package archive asks for a module of the system",
    "an extern module is imported from the loading process: with this one the archive reaches programs or files",
    "read the code; " + _AVOID,
)  # fmt: skip
RULES = (CODE, RUNS, EXTERN)

MAX_SOURCE = 4 << 20
LISTED = 20
# Of the modules that code may need from outside, those that start programs or reach other machines.
EXTERNS = frozenset({
    "subprocess", "pty", "socket", "ctypes", "_ctypes", "pickle", "marshal", "multiprocessing", "ftplib", "smtplib",
    "telnetlib", "http", "urllib", "requests", "webbrowser", "code", "runpy", "posix", "nt", "_posixsubprocess",
    "commands",
})  # fmt: skip


def scan(piece: Piece, kind: str) -> None:
    try:
        archive = Zip(piece.data)
    except ArtifactkitError:
        return  # said by the rule for zip archives
    modules: list[str] = []
    for member in archive.members:
        _, _, inner = member.name.partition("/")
        if inner == ".data/extern_modules":
            _externs(piece, archive, member.name)
        elif inner.endswith(".py") and not inner.startswith(".data/"):
            modules.append(inner)
            _module(piece, archive, member.name)
    if not modules:
        return
    names = sorted(_dotted(name) for name in modules)
    shown = ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
    piece.find(CODE, f"{len(names)} Python modules: {shown[:1000]}", name=names[0][:200] if len(names) == 1 else None)
    piece.runs(f"{len(names)} Python modules", "torch.package.PackageImporter, when it rebuilds the object", _AVOID)


def _dotted(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _externs(piece: Piece, archive: Zip, name: str) -> None:
    try:
        lines = archive.read_small(name).decode("utf-8", "replace").split("\n")
    except ArtifactkitError:
        return
    modules = sorted({line.strip() for line in lines if line.strip()})
    for module in modules:
        if module.partition(".")[0] in EXTERNS or (python_names.is_dangerous(module) and "." in module):
            piece.find(EXTERN, f"the extern module {module[:200]}", name=module[:200])
    if modules:
        shown = ", ".join(modules[:LISTED])[:1000]
        piece.runs(f"modules from outside of the archive: {shown}", "torch.package.PackageImporter", _AVOID)


def _module(piece: Piece, archive: Zip, name: str) -> None:
    try:
        source = archive.read_small(name)
    except ArtifactkitError:
        return
    if len(source) > MAX_SOURCE:
        return
    for call in at_import(source) or ():
        if call.danger in (Danger.COMMAND, Danger.HIDDEN):
            piece.find(RUNS, f"line {call.line}: {call.what}", member=name, name=call.name)
