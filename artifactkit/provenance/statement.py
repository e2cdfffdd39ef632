"""in-toto statements: how an artifact was made (SLSA build provenance), and what ``verify`` found.

Specifications: in-toto attestation framework v1 (spec/v1/statement.md, resource_descriptor.md, digest_set.md), SLSA
provenance v1 (https://slsa.dev/spec/v1.0/provenance), test-result v0.1 (spec/predicates/test-result.md). What the
fields of ours mean is in docs/provenance.md.

A statement is one line of canonical JSON: keys sorted, no spaces, UTF-8. The same conversion gives the same line: no
clock, no host name, no path of this machine is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .. import __version__
from ..errors import UsageError
from ..report import Check, Entry, Loss

SUFFIX = ".intoto.jsonl"  # spec/v1/bundle.md, "File naming convention"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
VERDICT_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
# Package URLs (purl, ECMA-427): URIs that name the package and no host. The types are told apart by their subpath.
PACKAGE = "pkg:pypi/artifactkit"
BUILD_TYPE = PACKAGE + "#convert-v1"
VERIFY_TYPE = PACKAGE + "#verify-v1"
BUILDER_VARIABLE = "ARTIFACTKIT_BUILDER_ID"
LIBRARIES = ("ml-dtypes", "numpy", "safetensors")  # those of the core that have a part in what is written
FAILED_SHOWN = 100  # names of failed tests; a broken artifact can have as many as it has tensors
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x20<>\"{}|\\^`]+")

Object = dict[str, Any]  # a JSON object


def canonical(value: object) -> bytes:
    """The one way in which we write a JSON value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("utf-8")


def line(statement: Object) -> bytes:
    """A statement as a line of a bundle."""
    return canonical(statement) + b"\n"


def builder_id(given: str | None = None) -> str:
    """Who vouches for the build: ``given``, else ``$ARTIFACTKIT_BUILDER_ID``, else this version of artifactkit."""
    found = given or os.environ.get(BUILDER_VARIABLE) or f"{PACKAGE}@{__version__}"
    if not _URI.fullmatch(found):
        raise UsageError(
            "the builder's id is no URI", expected="a URI, as https://ci.example.com/workflows/build", found=found,
            hint=f"--builder-id or ${BUILDER_VARIABLE} says it",
        )  # fmt: skip
    return found


def versions(more: Iterable[str] = ()) -> dict[str, str]:
    """artifactkit and the libraries that have a part in what is written; ``more`` are those of a format."""
    from importlib import metadata

    found = {"artifactkit": __version__}
    for name in sorted({*LIBRARIES, *more}):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def public(url: str) -> str:
    """A URL without what may be secret: user, password and query. (A digest in the fragment stays.)"""
    if "://" not in url:
        return url
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", parts.fragment))


def ledger_digest(entries: Sequence[Entry]) -> str:
    """The sha256 of the canonical ledger: its entries in order, one line of canonical JSON each."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(canonical(entry.to_json()) + b"\n")
    return digest.hexdigest()


def ledger_json(entries: Sequence[Entry]) -> Object:
    """The ledger's digest, how many entries it has, and how many tensors came to which outcome."""
    outcomes: dict[str, int] = {}
    for entry in entries:
        name = " + ".join(entry.outcomes)
        outcomes[name] = outcomes.get(name, 0) + 1
    return {"sha256": ledger_digest(entries), "entries": len(entries), "outcomes": outcomes}


def descriptor(name: str, sha256: str, uri: str | None = None, commit: str | None = None) -> Object:
    """A file as a ResourceDescriptor. The commit is an annotation: as a digest it would name every file of it."""
    found: Object = {"name": name, "digest": {"sha256": sha256}}
    if uri is not None:
        found["uri"] = uri
    if commit is not None:
        found["annotations"] = {"commit": commit}
    return found


def revision(uri: str, commit: str) -> Object:
    """The revision that input files are from, as a ResourceDescriptor of its own."""
    return {"uri": uri, "digest": {"gitCommit": commit}}


def build_provenance(
    subject: Iterable[Object],
    dependencies: Iterable[Object],
    external: Object,
    entries: Sequence[Entry],
    checks: Iterable[Check],
    losses: Iterable[Loss],
    builder: str,
    libraries: dict[str, str],
    times: tuple[str, str] | None = None,
) -> Object:
    """The statement of a conversion. ``times`` are when it started and finished, only if they are wanted."""
    lost: dict[str, int] = {}
    for loss in losses:
        lost[loss.kind] = lost.get(loss.kind, 0) + 1
    run: Object = {"builder": {"id": builder, "version": libraries}}
    if times is not None:
        run["metadata"] = {"startedOn": times[0], "finishedOn": times[1]}
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": external,
        "internalParameters": {
            "ledger": ledger_json(entries),
            "checks": [
                {"name": f"{c.level}: {c.name}", "status": c.status, "detail": c.detail}
                for c in checks
                if c.status != "not-run"
            ],
            "losses": lost,
        },
        "resolvedDependencies": _sorted(dependencies),
    }
    return sealed(_statement(subject, PROVENANCE_TYPE, {"buildDefinition": definition, "runDetails": run}))


def build_verdict(
    subject: Iterable[Object], against: Iterable[Object], checks: Sequence[Check], device: str, options: Object
) -> Object:
    """The statement of what ``verify`` found on ``device``, with ``against`` as the files that were compared with.

    ``device`` is "none" when the artifact was compared and not run. Tests are named ``level: name``, failed ones with
    their tensor. A check that was asked for and could not be made has failed: PASSED says that all were made.
    """
    passed = [f"{c.level}: {c.name}" for c in checks if c.status == "passed"]
    bad = [c for c in checks if c.status in ("failed", "not-verified")]
    failed = [f"{c.level}: {c.name}" + (f": {c.tensor}" if c.tensor else "") for c in bad]
    failed = list(dict.fromkeys(failed))
    if len(failed) > FAILED_SHOWN:
        failed[FAILED_SHOWN:] = [f"and {len(failed) - FAILED_SHOWN} more"]
    harness: Object = {
        "name": "artifactkit verify",
        "uri": VERIFY_TYPE,
        "annotations": {
            "device": device,
            "levels": sorted({c.level for c in checks if c.status != "not-run"}),
            "options": options,
            "version": versions(),
        },
    }
    predicate: Object = {
        "result": "FAILED" if failed or not passed else "PASSED",
        "configuration": [harness, *_sorted(against)],
        "passedTests": list(dict.fromkeys(passed)),
        "warnedTests": [],
        "failedTests": failed,
    }
    return sealed(_statement(subject, VERDICT_TYPE, predicate))


def _statement(subject: Iterable[Object], kind: str, predicate: Object) -> Object:
    return {"_type": STATEMENT_TYPE, "subject": _sorted(subject), "predicateType": kind, "predicate": predicate}


def _sorted(descriptors: Iterable[Object]) -> list[Object]:
    return sorted(descriptors, key=lambda d: (d.get("name", ""), d.get("uri", "")))


def verdict_key(statement: Object) -> bytes | None:
    """What a verdict of ours is about, its findings apart: a later one with the same key takes its place."""
    harness = _harness(statement)
    if harness is None:
        return None
    notes = harness.get("annotations")
    if not isinstance(notes, dict):
        return None
    rest = statement["predicate"]["configuration"][1:]
    names = [d.get("uri") or d.get("name") for d in rest if isinstance(d, dict)]
    return canonical([notes.get("device"), notes.get("options"), names])


def _harness(statement: Object) -> Object | None:
    """The descriptor by which a verdict says that it is ours."""
    predicate = statement.get("predicate")
    if statement.get("predicateType") != VERDICT_TYPE or not isinstance(predicate, dict):
        return None
    configuration = predicate.get("configuration")
    if not isinstance(configuration, list) or not configuration or not isinstance(configuration[0], dict):
        return None
    first: Object = configuration[0]
    return first if first.get("uri") == VERIFY_TYPE else None


def _slot(statement: Object) -> Object | None:
    """Where a statement of ours keeps its checksum, told by its form: a changed byte may be one of its types."""
    predicate = statement.get("predicate")
    if not isinstance(predicate, dict):
        return None
    definition, configuration = predicate.get("buildDefinition"), predicate.get("configuration")
    found: object = None
    if isinstance(definition, dict):
        found = definition.get("internalParameters")
    elif isinstance(configuration, list) and configuration and isinstance(configuration[0], dict):
        found = configuration[0].get("annotations")
    return found if isinstance(found, dict) else None


def is_ours(statement: Object) -> bool:
    """Whether artifactkit wrote it, by its own word."""
    if statement.get("predicateType") != PROVENANCE_TYPE:
        return _harness(statement) is not None
    predicate = statement.get("predicate")
    definition = predicate.get("buildDefinition") if isinstance(predicate, dict) else None
    return isinstance(definition, dict) and definition.get("buildType") == BUILD_TYPE


def looks_ours(statement: Object) -> bool:
    """Whether it has what no other's has: a checksum beside a ledger, or beside a device and levels."""
    slot = _slot(statement) or {}
    return "checksum" in slot and ("ledger" in slot or {"device", "levels"} <= slot.keys())


def checksum(statement: Object) -> str:
    """The sha256 of the canonical statement without its checksum. It finds accidents; who means harm writes another."""
    copy: Object = json.loads(canonical(statement))
    slot = _slot(copy)
    if slot is not None:
        slot.pop("checksum", None)
    return hashlib.sha256(canonical(copy)).hexdigest()


def sealed(statement: Object) -> Object:
    """The statement with its checksum."""
    slot = _slot(statement)
    assert slot is not None
    slot["checksum"] = checksum(statement)
    return statement


def stated_checksum(statement: Object) -> object:
    """The checksum that a statement of ours holds, whatever that is."""
    slot = _slot(statement)
    return None if slot is None else slot.get("checksum")
