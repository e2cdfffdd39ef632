"""Route -> files: stage, place, digest, open again, compare, account, rename."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from . import trees
from .attest import statement_of
from .errors import OutputError, Refused, VerificationFailed
from .files import File
from .opening import is_model_file, read_file
from .placing import Digest, Progress, SameBytes, Worker, place, sha256_file
from .provenance.bundle import beside
from .provenance.statement import SUFFIX, builder_id, line
from .report import Check, Entry, Loss, Report, counted
from .route import ConvertOptions, Route, refuse_losses
from .source import FileSpan
from .staging import Stage
from .types import OutputFile, Part, Placed, ReadOptions
from .verify.accounting import ledger
from .verify.values import BIT_FOR_BIT, bound_text, checker


@dataclass(slots=True)
class Conversion:
    """What was done: digests of what was read and written, the ledger, the checks, the losses."""

    route: Route
    ledger: list[Entry]
    report: Report
    losses: list[Loss]
    inputs: list[Digest] = field(default_factory=list)
    outputs: list[Digest] = field(default_factory=list)
    statement: str | None = None  # the file that it was written to

    def outcomes(self) -> dict[str, int]:
        """How many source tensors came to which outcome, in order of name. One that became several counts once."""
        counts: Counter[str] = Counter()
        for _, outcomes in {(entry.source, entry.outcomes): None for entry in self.ledger}:
            counts[" + ".join(outcomes)] += 1
        return dict(sorted(counts.items()))

    @property
    def sources(self) -> int:
        """How many source tensors the ledger explains."""
        return len({entry.source for entry in self.ledger})


def check_destination(route: Route, options: ConvertOptions, *, look_only: bool = True) -> None:
    """Raise what :func:`execute` would about the destination. With ``look_only`` leftovers of killed runs stay."""
    _stage(route, options, look_only=look_only)


def _stage(route: Route, options: ConvertOptions, *, look_only: bool = False) -> Stage:
    given = [route.opened.given] if route.opened.folder else []
    return Stage(
        route.destination,
        folder=route.folder,
        force=options.force,
        inputs=[*given, *input_files(route)],
        familiar=is_model_file,
        look_only=look_only,
        suffix=SUFFIX,
    )


def input_files(route: Route) -> list[str]:
    """Every file that the output is made from, in order of name."""
    return sorted({*route.initial.files, *(c.path for c in route.companions), *route.read_too})


def execute(route: Route, options: ConvertOptions, progress: Progress | None = None) -> Conversion:
    """Carry a route out. Either the whole output stands under its name at the end, or nothing has changed.

    Raises DestinationExists, OutputError, Refused (a value or loss that is not allowed), VerificationFailed,
    Interrupted, or what reading the source raises.
    """
    began = _now()
    builder_id(options.builder)  # raises, before any work
    progress = progress or Progress()
    progress.total = sum(f.size for f in route.files)
    entries = ledger(route.initial, route.final)
    pins = route.initial.open_files()
    stage = _stage(route, options)
    _check_space(route, stage)
    conversion = Conversion(route, entries, Report(), list(route.losses))
    hashing = Worker(lambda: conversion.inputs.extend(_digests(route, pins, progress)))
    with stage:
        try:
            if options.verify or options.expected is not None:
                progress.watched.append(hashing)
                hashing.start()
            _write(route, options, stage, progress, conversion)
            if options.verify or options.expected is not None:
                hashing.result()
        except BaseException as error:
            progress.stop.set()
            if hashing.ident is not None:
                hashing.join()
            if isinstance(error, VerificationFailed):  # perhaps since the source is no longer what it was
                _check_unchanged(pins)
            raise
        _check_unchanged(pins)
        if options.expected is not None:
            _check_expected(options.expected, conversion.inputs)
        _judge_values(route, options, conversion)
        progress.check()
        about = _statement(conversion, options, began)
        stage.commit(about)
        conversion.statement = None if about is None else beside(route.destination)
    return conversion


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _statement(conversion: Conversion, options: ConvertOptions, began: str) -> bytes | None:
    """What is to stand beside the output. Without digests there is nothing to state."""
    if not (options.statement and options.verify):
        return None
    times = (began, _now()) if options.timestamps else None
    return line(
        statement_of(
            conversion.route, options, conversion.ledger, conversion.report.checks, conversion.losses,
            conversion.inputs, conversion.outputs, times,
        )
    )  # fmt: skip


def _check_unchanged(pins: list[File]) -> None:
    """The files that tensors were read from must still be what they were when their headers were read."""
    for file in pins:
        file.check_unchanged()


def _check_expected(expected: Mapping[str, str], found: list[Digest]) -> None:
    """Refused (exit 1) for the first file, in order of name, that is not what the lock says."""
    for digest in sorted(found, key=lambda digest: digest.name):
        if digest.sha256 != expected.get(digest.name):
            raise Refused(
                "--locked: a file is not what it was when it was locked", file=digest.name,
                expected=f"sha256 {expected.get(digest.name)}", found=f"sha256 {digest.sha256}",
                hint="artifactkit lock --check says what drifted; artifactkit lock takes it as it is now",
            )  # fmt: skip


def _digests(route: Route, pins: list[File], progress: Progress) -> Iterator[Digest]:
    """The sha256 of each input file, taken through the descriptor that its tensors are read from, if there is one.

    The path may lead to another file by now.
    """
    opened = {file.path: file for file in reversed(pins)}
    for path in input_files(route):
        yield sha256_file(opened.get(path) or trees.open_file(path), progress.stop)


def _check_space(route: Route, stage: Stage) -> None:
    """Find out about a full disk before an hour of writing, where the file system tells."""
    try:
        info = os.statvfs(stage.parent)
    except OSError:
        return
    free = info.f_bavail * info.f_frsize
    if info.f_blocks and route.nbytes > free:
        raise OutputError(
            "not enough space for the output",
            file=route.destination,
            expected=f"{route.nbytes} bytes",
            found=f"{free} bytes free",
            hint="free some space, or write to another file system",
        )


def _write(route: Route, options: ConvertOptions, stage: Stage, progress: Progress, conversion: Conversion) -> None:
    paths = []
    for output in route.files:
        path = stage.path(output.name)
        shown = stage.final(output.name)
        check = (lambda part, shown=shown: checker(part, shown)) if options.verify else None
        digest = place(output, path, progress, check, shown)
        if digest is not None:
            conversion.outputs.append(
                digest if route.folder else Digest(os.path.basename(shown), digest.size, digest.sha256)
            )
        paths.append(path)
    for companion in route.companions:
        conversion.outputs += _copy(companion.path, companion.name, stage, progress, options.verify)
    if options.verify:
        _reopen(route, paths, stage, conversion)


def _copy(source: str, name: str, stage: Stage, progress: Progress, verify: bool) -> list[Digest]:
    """Copy one companion and, when verifying, compare."""
    path = stage.path(name)
    file = trees.open_file(source)
    shown = stage.final(name)
    output = OutputFile(name, file.size, (Part(0, FileSpan(file, 0, file.size)),))
    digest = place(output, path, progress, (lambda part: SameBytes(part, shown)) if verify else None, shown)
    file.check_unchanged()
    return [] if digest is None else [digest]


def _reopen(route: Route, paths: list[str], stage: Stage, conversion: Conversion) -> None:
    """Open the output with a reader that shares no code with the writer, and compare names, types, shapes, places."""
    library, found = _placed(route, paths)
    wanted = _laid_out(route.files, paths)
    for name, tensor in route.final.tensors.items():
        placed = found.pop(name, None)
        if placed is None and len(route.final.tensors) == 1:
            placed = found.pop("", None)  # a format for one array without a name: npy
        if placed is None:
            raise VerificationFailed("the written output lacks a tensor", file=stage.given, tensor=name)
        checks: tuple[tuple[str, object, object], ...] = (
            ("dtype", tensor.dtype.name, placed.dtype),
            ("shape", tensor.shape, placed.shape),
        )
        if placed.offset >= 0 and tensor.nbytes:
            checks += (("place", wanted.get(name), (placed.file, placed.offset, placed.nbytes)),)
        for what, expected, got in checks:
            if expected != got:
                raise VerificationFailed(
                    f"the written output has another {what}",
                    file=stage.given,
                    tensor=name,
                    expected=expected,
                    found=got,
                )
    extra = set(found) - set(route.final.aliases)
    if extra:
        raise VerificationFailed("the written output has a tensor too many", file=stage.given, tensor=min(extra))
    _add_checks(route, conversion, library)


def _placed(route: Route, paths: list[str]) -> tuple[str, dict[str, Placed]]:
    """(who opened it, where each tensor stands). Without a library our own reader opens it, and this is said."""
    target = route.target
    if target.reopen is not None:
        return target.reopened_by, dict(target.reopen(paths))
    found: dict[str, Placed] = {}
    for path in paths:
        _, weights = read_file(path, target.name, ReadOptions(everything=True, keep_prefix=True))
        for tensor in weights:
            found[tensor.name] = Placed(path, -1, tensor.nbytes, tensor.dtype.name, tensor.shape)
    return "artifactkit's own reader", found


def _laid_out(files: list[OutputFile], paths: list[str]) -> dict[str, tuple[str, int, int]]:
    out: dict[str, tuple[str, int, int]] = {}
    for output, path in zip(files, paths, strict=True):
        for part in output.parts:
            if part.tensor is not None:
                out[part.tensor] = (path, part.offset, part.source.nbytes)
    return out


def _add_checks(route: Route, conversion: Conversion, library: str) -> None:
    report = conversion.report
    kept = len(route.final.tensors)
    explained = conversion.sources
    report.add(
        Check("accounting", "ledger", "passed", f"{counted(explained, 'source tensor')} explained, {kept} written")
    )
    report.add(Check("accounting", "names, shapes, dtypes", "passed", f"the output was opened again by {library}"))
    ways = Counter(bound_text(t) for t in route.final)
    for way in sorted(ways, key=lambda way: (way != BIT_FOR_BIT, way)):
        detail = f"{ways[way]} of {counted(kept, 'tensor')} compared with the source"
        report.add(Check("values", way, "passed", detail))
    report.add(Check("function", "function", "not-run", "run: artifactkit verify ARTIFACT --against SRC --device D"))


def _judge_values(route: Route, options: ConvertOptions, conversion: Conversion) -> None:
    """What only the values could tell: overflow and underflow of casts. Judged before the output gets its name."""
    losses = route.values.losses()
    conversion.losses += losses
    if options.strict:
        refuse_losses(losses)
