"""Core ML models (.mlmodel, also in an .mlpackage): layers and models in classes of the application; files by name.

Source: Model.proto, NeuralNetwork.proto, CustomModel.proto, LinkedModel.proto, MIL.proto of coremltools. A pipeline
holds models; an ML program holds operations whose weights lie in files named from ``@model_path``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .. import outside
from ..containers.protobuf import LENGTH, MAX_DEPTH, VARINT, Wire
from ..errors import ArtifactkitError, Corrupt, LimitExceeded
from .model import Rule
from .piece import Piece
from .pointers import is_pointer

CUSTOM = Rule(
    "coreml-custom-class", "suspicious", "a Core ML model needs a class of the application",
    "a custom layer or model runs the application's class of that name, with parameters from the file",
    "find out what the class does with them",
)  # fmt: skip
OUTSIDE = Rule(
    "coreml-outside", "malicious", "a Core ML model takes a file from outside of its folder",
    "the runtime reads that file as weights, or as another model", "do not load it",
)  # fmt: skip
RULES = (CUSTOM, OUTSIDE)

# Model: description is 2; the model itself is one of these.
PIPELINES = {200: 1, 201: 1, 202: None}  # PipelineClassifier and PipelineRegressor hold a Pipeline
NETWORKS = (303, 403, 500)
CUSTOM_MODEL, LINKED_MODEL, PROGRAM = 555, 556, 502
CUSTOM_LAYER, CLASS_NAME = 500, 10
PLACE = "@model_path/"
PATH = re.compile(r"[\w./\\~@:+ -]{4,}")
MAX_LEVELS = 24
MAX_MODELS = 1000
MAX_FILES = 100_000
MAX_MANIFEST = 4 << 20


def scan(piece: Piece, kind: str) -> None:
    if not piece.size or is_pointer(piece.first):
        return
    if kind == "coreml-manifest":
        _manifest(piece)
        return
    _Walk(piece).model(0, piece.size)
    if piece.depth == 0 and "coreml" not in piece.report.formats:
        piece.report.formats.append("coreml")


def _manifest(piece: Piece) -> None:
    """The list of what an .mlpackage holds: paths below its folder ``Data``. Other manifests are none of ours."""
    if piece.size > MAX_MANIFEST:
        return
    raw = piece.data.read(0, piece.size)
    if b"itemInfoEntries" not in raw:
        return
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not a manifest: {error or 'nested too deeply'}") from None
    entries = document.get("itemInfoEntries") if isinstance(document, dict) else None
    for entry in entries.values() if isinstance(entries, dict) else ():
        path = entry.get("path") if isinstance(entry, dict) else None
        if isinstance(path, str) and (problem := outside.by_name(path).problem):
            piece.find(OUTSIDE, f"the manifest: {problem}: {path[:200]!r}", name=path[:200])


class _Walk:
    def __init__(self, piece: Piece) -> None:
        self.piece, self.wire = piece, Wire(piece.data)
        self.depth = self.models = 0
        self.files: set[str] = set()

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitExceeded("messages nested too deeply", offset=start)
        for number, kind, a, b in self.wire.fields(start, end):
            if kind == LENGTH:
                yield number, a, b
        self.depth -= 1

    def model(self, start: int, end: int) -> None:
        self.models += 1
        if self.models > MAX_MODELS:
            raise LimitExceeded("a pipeline of too many models", offset=start)
        if self.models == 1:
            first = next(self.wire.fields(start, end), None)
            if first is None or first[0] not in (1, 2, 10) or (first[0] == 1 and first[1] != VARINT):
                raise Corrupt("no Core ML model", offset=start)
        for number, a, b in self.parts(start, end):
            if number in PIPELINES:
                self.pipeline(a, b, PIPELINES[number])
            elif number in NETWORKS:
                self.network(a, b)
            elif number == CUSTOM_MODEL:
                self.custom("model", a, b)
            elif number == LINKED_MODEL:
                self.linked(a, b)
            elif number == PROGRAM:
                self.program(a, b)

    def pipeline(self, start: int, end: int, inner: int | None) -> None:
        for number, a, b in self.parts(start, end):
            if number == 1:
                if inner is not None:
                    self.pipeline(a, b, None)
                else:
                    self.model(a, b)

    def network(self, start: int, end: int) -> None:
        for number, a, b in self.parts(start, end):
            if number == 1:
                for inner, x, y in self.parts(a, b):
                    if inner == CUSTOM_LAYER:
                        self.custom("layer", x, y)

    def custom(self, what: str, start: int, end: int) -> None:
        name = ""
        for number, a, b in self.parts(start, end):
            if number == CLASS_NAME:
                name = self.wire.text(a, b)
        self.piece.find(CUSTOM, f"the custom {what} {name[:200]}", offset=start, name=name[:200])
        runs = "Core ML, in the application that registers it"
        self.piece.runs(f"the class {name[:200]}", runs, "register no such class")

    def linked(self, start: int, end: int) -> None:
        for number, a, b in self.parts(start, end):
            if number == 1:
                for inner, x, y in self.parts(a, b):
                    if inner in (1, 2):
                        self.file("".join(self.wire.text(p, q) for n, p, q in self.parts(x, y) if n == 1))

    def program(self, start: int, end: int) -> None:
        """A BlobFileValue lies deep in values of values: field 5 of a Value, with a file name and an offset."""
        waiting = [(start, end, 0)]
        while waiting:
            a, b, depth = waiting.pop()
            try:
                found = list(self.wire.fields(a, b))
            except LimitExceeded:
                raise
            except ArtifactkitError:
                continue  # a string, or numbers: no message
            if any(number > 100 for number, *_ in found):
                continue
            for number, kind, x, y in found:
                if kind != LENGTH or y - x <= 2:
                    continue
                if number == 5:
                    self.blob(x, y)
                if depth < MAX_LEVELS:
                    waiting.append((x, y, depth + 1))

    def blob(self, start: int, end: int) -> None:
        try:
            found = list(self.wire.fields(start, end))
        except ArtifactkitError:
            return
        if [part[:2] for part in found] not in ([(1, LENGTH), (2, VARINT)], [(2, VARINT), (1, LENGTH)], [(1, LENGTH)]):
            return
        a, b = next(part[2:] for part in found if part[0] == 1)
        text = self.piece.data.read(a, min(b - a, 4096)).decode("utf-8", "replace")
        # A list of numbers alone has the same form.
        if text.startswith(PLACE) or (len(found) == 2 or "/" in text) and PATH.fullmatch(text):
            self.file(text.removeprefix(PLACE))

    def file(self, name: str) -> None:
        if not name or name in self.files or len(self.files) >= MAX_FILES:
            return
        self.files.add(name)
        problem = outside.by_name(name).problem
        if problem:
            self.piece.find(OUTSIDE, f"{problem}: {name[:200]!r}", name=name[:200])
