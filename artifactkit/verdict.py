"""What ``verify`` found, as statements on the digests of what it looked at, beside the artifact's provenance.

The digests are taken through the descriptors that the tensors are compared through, beside the comparison: a verdict is
about the bytes that were looked at, whatever the paths lead to by then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event

from . import trees
from .attest import input_name, root_of
from .files import File
from .opening import Opened
from .placing import Digest, Worker, sha256_file
from .provenance import bundle, check, shape
from .provenance import statement as st
from .provenance.bundle import Bundle
from .provenance.statement import Object
from .report import Check, Report
from .types import Origin

NO_DEVICE = "none"


def bundle_of(artifact: str) -> Bundle | None:
    """The statements beside an artifact of this machine, their shape checked; None where there are none."""
    if trees.find(artifact) is not None:
        return None
    path = bundle.beside(artifact)
    if not os.path.lexists(path):
        return None
    found = bundle.read(path)
    for line in found.lines:
        shape.check(found.path, line)
    return found


@dataclass(slots=True)
class Verdicts:
    """Takes the digests while the comparison runs, then says what was found. Made before, written after it."""

    bundle: Bundle
    artifact: Opened
    source: Opened
    origin: Origin
    options: Object  # those of verify that chose or named tensors
    here: dict[str, Digest] = field(default_factory=dict)
    against: list[Object] = field(default_factory=list)
    stop: Event = field(default_factory=Event)
    _worker: Worker | None = None

    def start(self) -> None:
        """Begin to take the digests in a thread of its own."""
        self._worker = Worker(self._hash)
        self._worker.start()

    def _hash(self) -> None:
        opened = {file.path: file for file in reversed(self.artifact.weights.open_files())}
        for name, path in check.artifact_files(self.artifact.given).items():
            self.here[name] = sha256_file(opened.get(path) or File(path), self.stop)
        source = self.source.given
        opened = {file.path: file for file in reversed(self.source.weights.open_files())}
        for path in self.source.weights.files:
            digest = sha256_file(opened.get(path) or trees.open_file(path), self.stop)
            uri = st.public(path) if trees.find(path) is not None else None
            name = input_name(path, root_of(source))
            self.against.append(st.descriptor(name, digest.sha256, uri, self.origin.commit))

    def cancel(self) -> None:
        """The comparison did not come to its end."""
        self.stop.set()
        if self._worker is not None:
            self._worker.join()

    def judge(self, report: Report) -> None:
        """Add to the report whether the artifact is the one that was stated. Raises what reading the files raised."""
        assert self._worker is not None
        self._worker.result()
        if not any(st.is_ours(line.value) for line in self.bundle.of("provenance")):
            return
        single = not os.path.isdir(self.artifact.given)
        items, _ = check.check_artifact(self.bundle, self.here, single)
        for item in items:
            if item.status == "failed":
                where = f"{item.file}: " if item.file else ""
                detail = f"{where}{item.detail}; stated {item.expected}, found {item.found}"
                report.add(Check("accounting", "as stated", "failed", detail))
        if not check.failures(items):
            report.add(Check("accounting", "as stated", "passed", f"the digests are those in {self.bundle.path}"))

    def write(self, report: Report, devices: Sequence[str]) -> list[Object]:
        """Write one statement for each device, or one for none, and return them. OutputError when that fails."""
        subject = [st.descriptor(name, digest.sha256) for name, digest in self.here.items()]
        verdicts = [
            st.build_verdict(subject, self.against, list(_of(report.checks, device)), device, self.options)
            for device in devices or (NO_DEVICE,)
        ]
        bundle.add_verdicts(self.bundle.path, verdicts)
        return verdicts


def _of(checks: Sequence[Check], device: str) -> Iterator[Check]:
    """The checks that a verdict on ``device`` is made of: those of the files, and those that ran there."""
    for found in checks:
        if found.level != "function" or found.device == device:
            yield found
