"""The way back: from an artifact through the statements about it, and about what it was made from, to the source.

A statement names its inputs by digest and not by place. The statements about those are looked for beside the artifact,
and in folders that the caller names; what links them is the sha256 alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import ArtifactkitError
from . import bundle, check, shape
from . import statement as st
from .bundle import Bundle, Line
from .statement import Object

MAX_LOOKED_AT = 256  # files of statements in one folder
MAX_SIZE = 4 << 20  # bytes of one that is looked at because it might be about an input
MAX_ALL = 32 << 20  # bytes of all that are looked at
MAX_DEPTH = 64  # conversions after one another


@dataclass(slots=True)
class Node:
    """A file: by name and sha256, where it can be had, and how it was made if a statement says so.

    ``again`` is true where the statement was drawn already (another file of the same conversion).
    """

    name: str
    sha256: str
    uri: str | None = None
    commit: str | None = None
    made: Made | None = None
    again: bool = False

    def to_json(self) -> dict[str, object]:
        out: dict[str, object] = {"name": self.name, "sha256": self.sha256}
        out |= {k: v for k, v in (("uri", self.uri), ("commit", self.commit)) if v is not None}
        if self.made is not None and not self.again:
            out["made"] = self.made.to_json()
        return out


@dataclass(slots=True)
class Made:
    """How files were made: one provenance statement, and what else is said beside it.

    Of several in one file the first has what else is said: each would have it all, and a file has thousands of lines.
    """

    path: str
    line: int
    builder: str
    versions: dict[str, str]
    build_type: str
    subject: list[Node]
    external: Object
    internal: Object
    inputs: list[Node] = field(default_factory=list)
    revisions: list[tuple[str, str]] = field(default_factory=list)  # (uri, git commit)
    verdicts: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    times: Object = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        out: dict[str, object] = {
            "statement": self.path, "line": self.line, "builder": self.builder, "versions": self.versions,
            "build_type": self.build_type, "subject": [{"name": n.name, "sha256": n.sha256} for n in self.subject],
            "external": self.external, "internal": self.internal,
            "revisions": [{"uri": uri, "commit": commit} for uri, commit in self.revisions],
            "verdicts": self.verdicts, "others": self.others, "inputs": [node.to_json() for node in self.inputs],
        }  # fmt: skip
        return out | ({"times": self.times} if self.times else {})


class _Index:
    """The statements of some folders by the sha256 of what they are about. Read when first asked."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = list(dict.fromkeys(folders))
        self.notes: list[str] = []
        self._left = MAX_ALL
        self._found: dict[str, tuple[Bundle, Line]] | None = None

    def get(self, sha256: str) -> tuple[Bundle, Line] | None:
        if self._found is None:
            self._found = {}
            for folder in self.folders:
                self._read(folder, self._found)
        return self._found.get(sha256)

    def _read(self, folder: str, found: dict[str, tuple[Bundle, Line]]) -> None:
        try:
            names = sorted(name for name in os.listdir(folder or os.curdir) if name.endswith(st.SUFFIX))
        except OSError as error:
            self.notes.append(f"{folder}: {error.strerror}")
            return
        if len(names) > MAX_LOOKED_AT:
            self.notes.append(f"{folder or os.curdir}: only the first {MAX_LOOKED_AT} files of statements were read")
        for name in names[:MAX_LOOKED_AT]:
            path = os.path.join(folder, name)
            try:
                size = os.path.getsize(path)
                if size > MAX_SIZE:
                    self.notes.append(f"{path}: larger than {MAX_SIZE} bytes, not read")
                    continue
                if size > self._left:
                    self.notes.append(f"{path}: not read, since {MAX_ALL} bytes of statements were")
                    continue
                self._left -= size
                read = bundle.read(path)
                for line in read.lines:
                    shape.check(path, line)
                for line in read.of("provenance"):
                    for digest in check.subjects(line.value).values():
                        found.setdefault(digest, (read, line))
            except (ArtifactkitError, OSError) as error:
                self.notes.append(f"{path}: {error.what if isinstance(error, ArtifactkitError) else error.strerror}")


@dataclass(slots=True)
class Chain:
    """The chain of one artifact. ``notes`` say which statements could not be read."""

    made: list[Made]
    others: list[str]
    notes: list[str]

    def to_json(self) -> dict[str, object]:
        return {"made": [m.to_json() for m in self.made], "others": self.others, "notes": self.notes}


def follow(found: Bundle, search: Sequence[str] = ()) -> Chain:
    """The chain that begins with the statements of a bundle. Corrupt for one of these that is not as specified."""
    for line in found.lines:
        shape.check(found.path, line)
    index = _Index([os.path.dirname(found.path), *search])
    seen: dict[str, set[int]] = {}
    made = [_made(found, line, index, seen, 0) for line in found.of("provenance")]
    others = [] if made else [*_verdicts(found), *_others(found)]
    return Chain(made, others, index.notes)


def _made(found: Bundle, line: Line, index: _Index, seen: dict[str, set[int]], depth: int) -> Made:
    """``seen`` are the lines that were drawn: {file: numbers}. So each is drawn once, however they are tied."""
    first = found.real not in seen
    seen.setdefault(found.real, set()).add(line.number)
    predicate = line.value["predicate"]
    definition, run = predicate["buildDefinition"], predicate["runDetails"]
    made = Made(
        found.path,
        line.number,
        run["builder"]["id"],
        dict(run["builder"].get("version", {})),
        definition["buildType"],
        [Node(name, sha256) for name, sha256 in check.subjects(line.value).items()],
        definition["externalParameters"],
        definition.get("internalParameters", {}),
        verdicts=_verdicts(found) if first else [],
        others=_others(found) if first else [],
        times=run.get("metadata", {}),
    )
    for item in definition.get("resolvedDependencies", []):
        digests = item.get("digest", {})
        if "gitCommit" in digests:
            made.revisions.append((str(item.get("uri", "")), str(digests["gitCommit"])))
            continue
        notes = item.get("annotations", {})
        commit = notes.get("commit")
        name = item.get("name") or item.get("uri") or "unnamed"
        node = Node(name, digests.get("sha256", ""), item.get("uri"), commit if isinstance(commit, str) else None)
        made.inputs.append(node)
        before = index.get(node.sha256) if node.sha256 and depth < MAX_DEPTH else None
        if before is None:
            continue
        bundle_, its_line = before
        if its_line.number in seen.get(bundle_.real, ()):
            node.again = True
        else:
            node.made = _made(bundle_, its_line, index, seen, depth + 1)
    return made


def _verdicts(found: Bundle) -> list[str]:
    return [check.verdict_text(line.value) for line in found.of("verdict")]


def _others(found: Bundle) -> list[str]:
    return [f"line {line.number}: {line.about}" for line in found.lines if line.kind in ("envelope", "other")]
