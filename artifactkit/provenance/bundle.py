"""A bundle: a file of statements, one JSON object a line (in-toto attestation, spec/v1/bundle.md).

Read with bounds, since it comes from wherever the artifact comes from. What is not ours is kept, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..beside import path_of
from ..containers import strict_json
from ..errors import Corrupt, LimitExceeded, OutputError, Unreadable
from ..files import File
from ..filesystem import failed, is_at, locked
from ..staging import Stage
from . import statement as st
from .statement import Object

MAX_BUNDLE = 64 << 20  # bytes; a statement takes some 200 bytes a file
MAX_LINES = 10_000

Kind = Literal["provenance", "verdict", "envelope", "other"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line: where it is, its bytes without the newline, the parsed object and what it is."""

    number: int
    offset: int
    raw: bytes
    value: Object
    kind: Kind

    @property
    def about(self) -> str:
        """What it is, for people."""
        if self.kind == "envelope":
            return f"signed envelope of {self.value.get('payloadType')}"
        return str(self.value.get("predicateType") or self.value.get("_type") or "no statement")


@dataclass(frozen=True, slots=True)
class Bundle:
    """The lines of one file."""

    path: str
    lines: tuple[Line, ...]
    real: str  # the path with links followed: the same for the same file

    def of(self, kind: Kind) -> list[Line]:
        return [line for line in self.lines if line.kind == kind]


def beside(artifact: str) -> str:
    """Where the statements about an artifact are: ``model.safetensors.intoto.jsonl``, ``folder.intoto.jsonl``."""
    return path_of(artifact, st.SUFFIX)


def read(path: str) -> Bundle:
    """Read a bundle. Raises Unreadable, Corrupt with the line, or LimitExceeded; memory stays below some 20 x its size.

    Corrupt for a line that is no JSON object, or one in which a key comes twice: two readers would differ about it.
    """
    file = File(path)
    if file.size > MAX_BUNDLE:
        raise LimitExceeded(
            "too large for a file of statements", file=path, expected=f"at most {MAX_BUNDLE} bytes", found=file.size
        )
    data = file.read(0, file.size)
    lines: list[Line] = []
    offset = 0
    pieces = data.split(b"\n", MAX_LINES + 1)
    if len(pieces) > MAX_LINES + 1:
        raise LimitExceeded("too many lines for a file of statements", file=path, expected=f"at most {MAX_LINES}")
    for number, raw in enumerate(pieces, 1):
        if raw.strip():
            lines.append(_line(path, number, offset, raw))
        offset += len(raw) + 1
    if not lines:
        raise Corrupt("the file holds no statement", file=path)
    if data[-1:] != b"\n":
        raise Corrupt("the last line has no end: the file was cut off", file=path, offset=len(data))
    return Bundle(path, tuple(lines), os.path.realpath(path))


def _line(path: str, number: int, offset: int, raw: bytes) -> Line:
    value = strict_json.loads(raw, what=f"line {number}", file=path, offset=offset)
    if not isinstance(value, dict):
        raise Corrupt(
            f"line {number} is no statement", file=path, offset=offset, expected="an object",
            found=strict_json.type_name(value),
        )  # fmt: skip
    twice = _duplicate(value)
    if twice is not None:
        raise Corrupt(f"line {number} has a key twice", file=path, offset=offset, found=twice)
    try:
        st.canonical(value)
    except ValueError:  # 1e999 is JSON, and infinite here
        raise Corrupt(f"line {number} has a number that no double holds", file=path, offset=offset) from None
    return Line(number, offset, raw, value, _kind(value))


def _duplicate(value: object) -> str | None:
    """The first key that comes twice in any object of a value. The depth is bounded by ``strict_json``."""
    if isinstance(value, dict):
        found = strict_json.duplicate(value)
        if found is not None:
            return found
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((key for key in map(_duplicate, items) if key is not None), None)


def _kind(value: Object) -> Kind:
    if "payloadType" in value and "payload" in value:
        return "envelope"
    if value.get("_type") != st.STATEMENT_TYPE:
        return "other"
    kinds: dict[object, Kind] = {st.PROVENANCE_TYPE: "provenance", st.VERDICT_TYPE: "verdict"}
    kind = value.get("predicateType")
    return kinds.get(kind, "other") if isinstance(kind, str) else "other"


def add_verdicts(path: str, verdicts: Iterable[Object]) -> None:
    """Append verdicts to the bundle at ``path``; earlier ones about the same take their leave. All or nothing.

    Other lines stay as they are. Two runs at once wait for each other. OutputError when it cannot be written.
    """
    fresh = list(verdicts)
    keys = {st.verdict_key(verdict) for verdict in fresh}
    real = os.path.realpath(path)
    try:
        with locked(real) as fd:
            kept = [line.raw for line in read(real).lines if st.verdict_key(line.value) not in keys]
            data = b"".join(raw + b"\n" for raw in kept) + b"".join(map(st.line, fresh))
            if len(data) > MAX_BUNDLE:
                raise LimitExceeded("the file of statements is full", file=path, expected=f"at most {MAX_BUNDLE} bytes")
            with Stage(real, folder=False, force=True) as stage:
                with open(stage.path(), "wb") as file:
                    os.fchmod(file.fileno(), os.fstat(fd).st_mode & 0o777)
                    file.write(data)
                if not is_at(fd, real):
                    raise OutputError(
                        "the file of statements was replaced while the verdict was written", file=path,
                        hint="run verify again: the artifact may be another one by now",
                    )  # fmt: skip
                stage.commit()
    except FileNotFoundError:
        raise Unreadable("no such file", file=path, hint="it was removed meanwhile: convert writes it") from None
    except OSError as error:
        raise failed(error, path) from error
