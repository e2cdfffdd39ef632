"""What can be said of a tree only as a whole: links that leave it, content that is elsewhere, folders with code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from .. import outside
from . import pointers
from .model import Executable, FileReport, Finding, Rule
from .rules import CONTENT_ABSENT

LINK = Rule(
    "link-outside",
    "suspicious",
    "a link leads out of the folder",
    "who loads or packs the folder reads, or publishes, a file that is none of its own",
    "replace the link by a copy, or remove it",
)
RULES = (LINK,)


def scan_tree(root: str, paths: Iterable[str]) -> Iterator[FileReport]:
    """What there is to say about ``paths``, relative to the folder ``root``: one report each, ``path`` relative too."""
    for relative in paths:
        path = os.path.join(root, relative)
        if os.path.islink(path):
            report = _link(root, path, relative)
            if report is not None:
                yield report
        elif "/" in relative:
            report = _in_folder(relative)
            if report is not None:
                yield report


def _link(root: str, path: str, relative: str) -> FileReport | None:
    target = os.readlink(path)
    report = FileReport(relative)
    found = pointers.ANNEX_TARGET.search(target)
    if found and not os.path.exists(path):
        size = pointers.annex_size(found[2]) or "unknown"
        what = f"git-annex link to {found[1]}:{found[3]}, {size} bytes: the content is not here"
        report.findings.append(Finding(CONTENT_ABSENT.id, "unreadable", what, hint=CONTENT_ABSENT.hint))
        return report
    if outside.is_inside(path, root) or outside.is_inside(path, os.path.dirname(path)):
        return None
    report.findings.append(Finding(LINK.id, LINK.severity, f"a link to {target}", name=target, hint=LINK.hint))
    return report


def _in_folder(relative: str) -> FileReport | None:
    """``custom_generate/`` is run by transformers' generate; tracked hooks by those who install them."""
    parts = PurePosixPath(relative).parts
    if parts[-2] == "custom_generate" and parts[-1] == "generate.py":
        report = FileReport(relative)
        report.inventory.append(
            Executable(
                "custom_generate/generate.py: a generation loop of this repository",
                "transformers, generate(custom_generate=...) with trust_remote_code=True",
                "do not pass custom_generate",
            )
        )
        return report
    return None


def scan(piece: object, kind: str) -> None:
    """A tree has no bytes: see ``scan_tree``."""
