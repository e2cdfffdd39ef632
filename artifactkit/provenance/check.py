"""Whether an artifact is the one that its statements are about, byte for byte.

Nothing here is signed. A statement shows that an artifact was changed after it; whoever can change both can make them
agree, but for what can be computed again from the source (``retrace``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from .. import trees
from ..errors import Unreadable, UsageError
from ..files import File
from ..placing import Digest, sha256_file
from . import bundle, shape
from . import statement as st
from .bundle import Bundle, Line
from .statement import Object

Status = Literal["passed", "failed", "noted", "not-run"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was looked at. ``subject`` is what it is about: statement, artifact, verdict, source, ledger.

    ``noted`` is what is neither right nor wrong: a verdict that somebody gave, a statement that is not known here.
    """

    subject: str
    status: Status
    detail: str
    file: str | None = None
    expected: str | None = None
    found: str | None = None

    def to_json(self) -> dict[str, object]:
        fields = {
            "subject": self.subject, "status": self.status, "detail": self.detail, "file": self.file,
            "expected": self.expected, "found": self.found,
        }  # fmt: skip
        return {key: value for key, value in fields.items() if value is not None}


def artifact_files(artifact: str) -> dict[str, str]:
    """The files of an artifact, by the names that its statement has for them: {name: path}. Unreadable if none is."""
    if not os.path.lexists(artifact):
        raise Unreadable(
            "the artifact is not here, only what is stated of it", file=artifact,
            expected=f"{artifact}, as {bundle.beside(artifact)} states",
            hint="put it back beside its statements; artifactkit provenance show says what it was",
        )  # fmt: skip
    if not os.path.isdir(artifact):
        return {os.path.basename(artifact): artifact}
    found = {}
    for root, folders, names in os.walk(artifact):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]  # not walked into
        for name in sorted([*names, *links]):
            path = os.path.join(root, name)
            found[os.path.relpath(path, artifact).replace(os.sep, "/")] = path
    if not found:
        raise Unreadable("the folder is empty", file=artifact, hint="give the folder that was made, with its files")
    return found


def nbytes(files: dict[str, str]) -> int:
    """How many bytes there are to be hashed, for a bar; what is absent counts as none, and is told by ``digests``."""
    total = 0
    for path in files.values():
        with contextlib.suppress(OSError):
            total += os.path.getsize(path)
    return total


def digests(files: dict[str, str], advance: Callable[[int], None] | None = None) -> dict[str, Digest]:
    """The sha256 of each file, by name."""
    found = {}
    for name, path in files.items():
        try:
            found[name] = sha256_file(File(path))
        except Unreadable as error:
            raise error.located(hint="an artifact is made of regular files; convert writes it anew") from error
        if advance is not None:
            advance(found[name].size)
    return found


def subjects(statement: Object) -> dict[str, str]:
    """{name: sha256} of what a statement is about. What has no name or another digest only is left out."""
    return _named(statement.get("subject"))


def dependencies(statement: Object) -> dict[str, str]:
    """{name: sha256} of the files that a provenance statement says went in."""
    return _named(statement["predicate"]["buildDefinition"].get("resolvedDependencies"))


def _named(descriptors: object) -> dict[str, str]:
    found = {}
    for item in descriptors if isinstance(descriptors, list) else []:
        if isinstance(item, dict) and isinstance(item.get("digest"), dict):
            name, digest = item.get("name"), item["digest"].get("sha256")
            if isinstance(name, str) and isinstance(digest, str):
                found[name] = digest
    return found


def check_shapes(found: Bundle) -> list[Item]:
    """One item for each line; a line that is not as specified is Corrupt."""
    items = []
    for line in found.lines:
        shape.check(found.path, line)
        where = f"line {line.number}: "
        if line.kind == "provenance":
            text = f"{where}provenance, by {line.value['predicate']['runDetails']['builder']['id']}"
            items.append(Item("statement", "passed", text))
        elif line.kind == "verdict":
            items.append(Item("statement", "passed", f"{where}test result"))
        else:
            items.append(Item("statement", "noted", f"{where}{line.about}: not known here, left alone"))
    return items


def check_artifact(found: Bundle, here: dict[str, Digest], single: bool) -> tuple[list[Item], Line | None]:
    """The artifact's files against the statements: what was found, and the statement that is about it.

    The statement is the one of which every subject is here; if there is none, the one that comes nearest is compared,
    so that what differs can be named.
    """
    lines = found.of("provenance")
    if not lines:
        return [Item("artifact", "failed", "no statement says how it was made", file=found.path)], None
    now = {name: digest.sha256 for name, digest in here.items()}
    best = min(
        lines,
        key=lambda line: (not _is_about(line, now, single), not st.is_ours(line.value), -_alike(line, here)),
    )
    differences = _differences(best, here, single)
    if differences:
        return differences, best
    return [Item("artifact", "passed", _intact(here, best), file=None)], best


def _is_about(line: Line, now: dict[str, str], single: bool) -> bool:
    """Whether ``_differences`` would find none, told without a list of them: there may be ten thousand lines."""
    stated = subjects(line.value)
    if single and len(stated) == len(now) == 1:
        return [*stated.values()] == [*now.values()]
    return stated == now


def _alike(line: Line, here: dict[str, Digest]) -> int:
    return sum(name in here for name in subjects(line.value))


def _intact(here: dict[str, Digest], line: Line) -> str:
    if len(here) == 1:
        [(name, digest)] = here.items()
        stated = subjects(line.value)
        was = "" if name in stated else f" (stated as {next(iter(stated))})"
        return f"{name}{was}: sha256 {digest.sha256}"
    return f"{len(here)} files, each with the sha256 that line {line.number} states"


def _differences(line: Line, here: dict[str, Digest], single: bool) -> list[Item]:
    stated = subjects(line.value)
    items = []
    if single and len(stated) == 1 and len(here) == 1:  # it may have another name by now
        stated = dict(zip(here, stated.values(), strict=True))
    for name, digest in sorted(stated.items()):
        if name not in here:
            items.append(Item("artifact", "failed", "a file is missing", name, f"sha256 {digest}", "no such file"))
        elif here[name].sha256 != digest:
            found = f"sha256 {here[name].sha256}"
            items.append(Item("artifact", "failed", "a file is not what was written", name, f"sha256 {digest}", found))
    for name in sorted(here.keys() - stated.keys()):
        found = f"sha256 {here[name].sha256}"
        items.append(Item("artifact", "failed", "a file that no statement names", name, "no such file", found))
    return items


def check_verdicts(found: Bundle, here: dict[str, Digest]) -> list[Item]:
    """Each verdict that is about these files, as it was given; one about other bytes says nothing about these."""
    now = {digest.sha256 for digest in here.values()}
    items = []
    for line in found.of("verdict"):
        stated = set(subjects(line.value).values())
        text = f"line {line.number}: {verdict_text(line.value)}"
        if stated <= now:
            items.append(Item("verdict", "noted", f"{text}, about this artifact"))
        elif st.is_ours(line.value):
            missing = sorted(stated - now)[0]
            items.append(
                Item("verdict", "failed", f"{text}, about another artifact", found.path, f"sha256 {missing}", "others")
            )
        else:
            items.append(Item("verdict", "noted", f"{text}, about something else"))
    return items


def verdict_text(statement: Object) -> str:
    """``PASSED on cpu``; of a verdict of ours that ran nothing, ``PASSED, accounting and values``."""
    predicate = statement["predicate"]
    result = predicate["result"]
    first = predicate["configuration"][0] if predicate["configuration"] else {}
    if not st.is_ours(statement):
        return f"{result} by {first.get('uri') or first.get('name') or 'somebody'}"
    notes = first["annotations"]
    device, levels = notes.get("device"), notes.get("levels")
    text = ", ".join(str(level) for level in levels) if isinstance(levels, list) else ""
    return f"{result} ({text})" if device == "none" else f"{result} on {device} ({text})"


def read_for(artifact: str) -> Bundle:
    """The statements about ``artifact``, or those in it when it is a file of them. Unreadable when there is none."""
    if trees.is_url(artifact):
        raise UsageError(
            "statements are read from this machine", file=artifact, hint="fetch the artifact and what stands beside it"
        )
    if artifact.endswith(st.SUFFIX) and os.path.isfile(artifact):
        return bundle.read(artifact)
    path = bundle.beside(artifact)
    if not os.path.lexists(artifact) and not os.path.lexists(path):
        raise Unreadable(
            "no such file or folder",
            file=artifact,
            hint=f"give an artifact that was made, or its file of statements (*{st.SUFFIX})",
        )
    if not os.path.lexists(path):
        raise Unreadable("no statement stands beside it", file=artifact, expected=path, hint=_why_none(artifact))
    return bundle.read(path)


def _why_none(artifact: str) -> str:
    from ..staging import unfinished

    left = unfinished(artifact)
    if left is None:
        return "convert writes one, unless --no-statement or --no-verify is given"
    return f"a conversion was killed before it could name it: rename {left} to {bundle.beside(artifact)}"


def failures(items: Iterable[Item]) -> list[Item]:
    """Those that failed."""
    return [item for item in items if item.status == "failed"]
