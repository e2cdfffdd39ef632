"""One file in, one report out: tells by content every format that a piece has, and hands it to their rules.

A file can be several things at once (a picture with an archive behind it), and readers pick different ones; so every
format whose mark is present is looked into. A rule module is imported only when a file needs it.
"""

from __future__ import annotations

import importlib
import os
import stat

from .. import trees
from ..errors import ArtifactkitError, LimitExceeded, Unreadable
from . import detect
from .model import FileReport, Finding
from .piece import Budget, Piece
from .rules import LIMIT, UNREADABLE


def scan_file(path: str, shown: str | None = None, budget: Budget | None = None) -> FileReport:
    """Scan one file. Never raises for what the file holds: what cannot be read is a finding."""
    report = FileReport(shown or path)
    piece_budget = budget or Budget()
    try:
        if trees.find(path) is None and not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable("not a regular file", file=path)
        file = trees.open_file(path)
    except (ArtifactkitError, OSError) as error:
        text = error.what if isinstance(error, ArtifactkitError) else str(error.strerror or error)
        _add_unreadable(report, text, error.hint if isinstance(error, ArtifactkitError) else None)
        return report
    try:
        report.size = file.size
        piece_budget.grow(file.size)
        look(Piece(file, path, os.path.basename(path), report, piece_budget, look))
    finally:
        file.close()
    return report


def _add_unreadable(report: FileReport, what: str, hint: str | None) -> None:
    report.findings.append(Finding(UNREADABLE.id, "unreadable", what, hint=hint or UNREADABLE.hint))


def look(piece: Piece) -> None:
    """Look into one piece: every format that it has, then its name. Errors become findings of the piece."""
    budget = piece.budget
    if len(piece.report.findings) >= 2 * budget.findings:
        return  # malicious by so many findings that no more are kept
    budget.pieces -= 1
    if budget.pieces < 0:
        piece.find(LIMIT, "too many nested parts to look into all of them")
        return
    if piece.depth > budget.depth:
        piece.find(LIMIT, f"nested deeper than {budget.depth} levels")
        return
    try:
        kinds = detect.formats(piece)
    except ArtifactkitError as error:
        piece.unreadable(error)
        return
    if piece.depth == 0:
        piece.report.formats.extend(kinds)
    if piece.first[:1] == b"\x80" and "pickle" in kinds:  # which knows whether an archive is but a value in it
        kinds = ["pickle", *(kind for kind in kinds if kind != "pickle")]
    for kind in dict.fromkeys([*kinds, *detect.by_name(piece)]):
        _apply(kind, piece)
    for kind in dict.fromkeys(piece.also):
        if kind in detect.MODULES and kind not in kinds:
            _apply(kind, piece)


def _apply(kind: str, piece: Piece) -> None:
    module = importlib.import_module(f"{__package__}.{detect.MODULES[kind]}")
    try:
        module.scan(piece, kind)
    except LimitExceeded as error:
        piece.unreadable(error, LIMIT)
    except ArtifactkitError as error:
        piece.unreadable(error)
