"""HDF5 files, as Keras and PyTables write them: what they take from other files, and the models in their attributes."""

from __future__ import annotations

import json

from .. import outside
from ..containers import hdf5
from ..errors import ArtifactkitError, Truncated
from ..files import Memory
from . import keras_config, library
from .model import Rule, Severity
from .piece import Piece

EXTERNAL = Rule(
    "hdf5-external", "suspicious", "an HDF5 file takes data from another file",
    "external links, external storage and virtual datasets make the library open the file that is named, and read it "
    "as if it were this one", "do not load it; copy the data into one file",
)  # fmt: skip
PICKLED = Rule(
    "hdf5-pickled-rows", "suspicious", "an HDF5 file holds pickled objects in an array",
    "PyTables unpickles the rows of such an array when they are read", "do not read that array with PyTables",
)  # fmt: skip
RULES = (EXTERNAL, PICKLED)

SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".keras", ".weights", ".h5py", ".hdf5.part")
BINARY_FIRST = b"\x80"
SWEEP = 64 << 20
MARKS = (b'"__lambda__"', b'"function_type": "lambda"', b'"function_type":"lambda"')


def scan(piece: Piece, kind: str) -> None:
    base = hdf5.superblock_at(piece.data, piece.first, piece.name.lower().endswith(SUFFIXES))
    if base is None:
        if kind == "hdf5-name" and piece.size and not piece.first.startswith(b"PK") and _binary(piece.first):
            raise Truncated("no HDF5 file, though its name says so", expected="a superblock")
        return
    if piece.depth == 0 and "hdf5" not in piece.report.formats:
        piece.report.formats.append("hdf5")
    try:
        for found in hdf5.walk(piece.data, base):
            _say(piece, found)
    except hdf5.NotCovered as error:
        _by_library(piece, error)
    except ArtifactkitError:
        _sweep(piece)
        raise


def _binary(first: bytes) -> bool:
    return b"\0" in first[:512] and not first.startswith((b"version https://", b"\x80"))


def _by_library(piece: Piece, error: ArtifactkitError) -> None:
    """Ask the HDF5 library itself; without it nothing more can be said, findings apart."""
    _sweep(piece)
    for entry in library.hdf5(piece, error):
        kind, path, files, text = entry["kind"], str(entry["path"]), entry["files"], str(entry["text"])
        raw = text.encode("utf-8", "surrogateescape")
        names = tuple(str(f) for f in files) if isinstance(files, list) else ()
        if kind == "attribute":
            _say(piece, hdf5.Attribute(path, str(entry["name"]), raw, 0))
        elif kind in ("external", "virtual"):
            _say(piece, hdf5.Storage(str(kind), path, names, 0))
        else:
            _say(piece, hdf5.Link("external", path, names[0] if names else "", text, 0))


def _say(piece: Piece, found: hdf5.Found) -> None:
    if isinstance(found, hdf5.Link):
        if found.kind == "external":
            _external(piece, f"the link {found.path}", found.file, found.offset)
        elif found.kind == "user-defined":
            piece.find(EXTERNAL, f"the link {found.path} is of a kind that a library defines", offset=found.offset)
    elif isinstance(found, hdf5.Storage):
        what = "the virtual dataset" if found.kind == "virtual" else "the dataset"
        for name in found.files:
            if name != "." or found.kind != "virtual":
                _external(piece, f"{what} {found.path}", name, found.offset)
        if not found.files:
            piece.find(EXTERNAL, f"{what} {found.path} has its data in several places", offset=found.offset or None)
    else:
        _attribute(piece, found)


def _external(piece: Piece, what: str, file: str, offset: int) -> None:
    problem = outside.by_name(file).problem
    severity: Severity = "malicious" if problem and file else "suspicious"
    text = f"{what} leads to {file[:200]!r}" + (f": {problem}" if problem else "")
    piece.find(EXTERNAL, text, offset=offset or None, name=file[:200], severity=severity)


def _attribute(piece: Piece, found: hdf5.Attribute) -> None:
    value = found.value
    if found.name == "PSEUDOATOM" and value in (b"object", b"Vobject"):
        piece.find(PICKLED, f"the array {found.path} is one of objects", offset=found.offset)
    start = value.lstrip()[:1]
    if start in (b"{", b"["):
        keras_config.judge(piece, value)
    elif value[:1] == BINARY_FIRST or (value[-1:] == b"." and len(value) > 1):
        # PyTables unpickles attributes that look like it.
        name = f"(attribute){found.path}@{found.name}"
        piece.look(piece.inner(Memory(value), name, "hdf5"))


def _sweep(piece: Piece) -> None:
    """What cannot be walked may still hold a model as text: the words that only a marshalled function needs."""
    at, size = 0, min(piece.size, SWEEP)
    while at < size:
        data = piece.data.read(at, min((1 << 20) + 64, size - at))
        for mark in MARKS:
            place = data.find(mark)
            if place >= 0:
                shown = json.loads(mark) if mark.startswith(b'"__') else "lambda"
                piece.find(keras_config.LAMBDA, "a Lambda layer with the bytes of a Python code object",
                           offset=at + place, name=str(shown))  # fmt: skip
                return
        at += 1 << 20
