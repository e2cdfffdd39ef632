"""Whether a statement has the shape that its specifications give it. What is wrong is named by line and field.

Fields that are not known are left alone, as in-toto's parsing rules ask; in statements of ours every byte counts, since
we know how we write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..containers.strict_json import type_name
from ..errors import Corrupt
from . import statement as st
from .bundle import Line
from .statement import Object

_SHA256 = re.compile(r"[0-9a-f]{64}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
RESULTS = ("PASSED", "WARNED", "FAILED")


class _Fields:
    """Looks up fields of one line; what is not as it should be becomes a Corrupt that names the field."""

    def __init__(self, path: str, line: Line) -> None:
        self.path, self.line = path, line

    def wrong(self, field: str, expected: object, found: object) -> Corrupt:
        return Corrupt(
            f"line {self.line.number} is not a statement as specified: {field}",
            file=self.path, offset=self.line.offset, expected=expected, found=found,
        )  # fmt: skip

    def get(self, value: Object, where: str, key: str, kind: type, required: bool = True) -> object:
        field = f"{where}.{key}" if where else key
        if key not in value:
            if required:
                raise self.wrong(field, _name(kind), "nothing")
            return None
        found = value[key]
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise self.wrong(field, _name(kind), type_name(found))
        return found

    def mapping(self, value: Object, where: str, key: str, required: bool = True) -> Object:
        found = self.get(value, where, key, dict, required)
        return found if isinstance(found, dict) else {}

    def items(self, value: Object, where: str, key: str, required: bool = True) -> list[object]:
        found = self.get(value, where, key, list, required)
        return found if isinstance(found, list) else []

    def uri(self, value: Object, where: str, key: str) -> str:
        found = self.get(value, where, key, str)
        if not isinstance(found, str) or not _URI.fullmatch(found):
            raise self.wrong(f"{where}.{key}", "a URI", repr(found))
        return found

    def strings(self, value: Object, where: str, key: str, required: bool = False) -> list[str]:
        found = self.items(value, where, key, required)
        for i, item in enumerate(found):
            if not isinstance(item, str):
                raise self.wrong(f"{where}.{key}[{i}]", "a string", type_name(item))
        return [item for item in found if isinstance(item, str)]

    def descriptors(self, value: Object, where: str, key: str, required: bool = True, digest: bool = False) -> None:
        """A list of ResourceDescriptors: each has one of uri, digest and content; with ``digest``, that one."""
        field = f"{where}.{key}" if where else key
        for i, item in enumerate(self.items(value, where, key, required)):
            here = f"{field}[{i}]"
            if not isinstance(item, dict):
                raise self.wrong(here, "an object", type_name(item))
            for name in ("name", "uri", "content", "downloadLocation", "mediaType"):
                self.get(item, here, name, str, required=False)
            self.mapping(item, here, "annotations", required=False)
            digests = self.mapping(item, here, "digest", required=digest)
            if not ("uri" in item or "content" in item or digests):
                raise self.wrong(here, "a uri, digest or content", "none of them")
            for algorithm, text in digests.items():
                if not isinstance(text, str) or not text:
                    raise self.wrong(f"{here}.digest.{algorithm}", "a string", type_name(text))
                if algorithm == "sha256" and not _SHA256.fullmatch(text):
                    raise self.wrong(f"{here}.digest.sha256", "64 hexadecimal digits in lower case", text)


def _name(kind: type) -> str:
    return {dict: "an object", list: "an array", str: "a string", int: "an integer"}[kind]


def check(path: str, line: Line) -> None:
    """Raise Corrupt for a statement that is not as specified. Envelopes and unknown types pass: they are left alone.

    What looks like one of ours under another type has to have the right checksum, lest the changed byte be in the type.
    """
    shapes: dict[str, Callable[[_Fields, Object], None]] = {"provenance": _provenance, "verdict": _verdict}
    shape = shapes.get(line.kind)
    fields = _Fields(path, line)
    if shape is None:
        if line.kind == "other" and st.looks_ours(line.value):
            _checksum(fields, line)
        return
    fields.descriptors(line.value, "", "subject", digest=True)
    if not line.value["subject"]:
        raise fields.wrong("subject", "at least one", "none")
    shape(fields, fields.mapping(line.value, "", "predicate"))
    if _says_ours(line):
        _ours(fields, line)
    elif st.looks_ours(line.value):
        _checksum(fields, line)


def _provenance(fields: _Fields, predicate: Object) -> None:
    """SLSA provenance v1, "Schema"."""
    where = "predicate.buildDefinition"
    definition = fields.mapping(predicate, "predicate", "buildDefinition")
    fields.uri(definition, where, "buildType")
    fields.mapping(definition, where, "externalParameters")
    fields.mapping(definition, where, "internalParameters", required=False)
    fields.descriptors(definition, where, "resolvedDependencies", required=False)
    where = "predicate.runDetails"
    run = fields.mapping(predicate, "predicate", "runDetails")
    builder = fields.mapping(run, where, "builder")
    fields.uri(builder, f"{where}.builder", "id")
    for name, version in fields.mapping(builder, f"{where}.builder", "version", required=False).items():
        if not isinstance(version, str):
            raise fields.wrong(f"{where}.builder.version.{name}", "a string", type_name(version))
    fields.descriptors(builder, f"{where}.builder", "builderDependencies", required=False)
    fields.descriptors(run, where, "byproducts", required=False)
    times = fields.mapping(run, where, "metadata", required=False)
    for key in ("startedOn", "finishedOn"):
        found = fields.get(times, f"{where}.metadata", key, str, required=False)
        if isinstance(found, str) and not _TIME.fullmatch(found):
            raise fields.wrong(f"{where}.metadata.{key}", "a time in UTC, as 2026-01-31T12:00:00Z", found)


def _verdict(fields: _Fields, predicate: Object) -> None:
    """test-result v0.1, "Fields"."""
    result = fields.get(predicate, "predicate", "result", str)
    if result not in RESULTS:
        raise fields.wrong("predicate.result", " or ".join(RESULTS), result)
    fields.descriptors(predicate, "predicate", "configuration")
    for key in ("passedTests", "warnedTests", "failedTests"):
        fields.strings(predicate, "predicate", key)


def _says_ours(line: Line) -> bool:
    """Whether the line is one that we would have written, even if its checksum is gone."""
    types = (b'"' + of.encode() + b'"' for of in (st.BUILD_TYPE, st.VERIFY_TYPE))
    return any(of in line.raw for of in types) or st.is_ours(line.value)  # the type may be spelt with escapes


def _ours(fields: _Fields, line: Line) -> None:
    """What only we can promise: the canonical form, what is said twice said alike, and the checksum."""
    statement = line.value
    if line.kind == "provenance":
        _our_provenance(fields, statement["predicate"]["buildDefinition"])
    else:
        predicate = statement["predicate"]
        where = "predicate.configuration[0]"
        harness = predicate["configuration"][0] if predicate["configuration"] else {}
        fields.get(fields.mapping(harness, where, "annotations"), f"{where}.annotations", "device", str)
        passed = bool(predicate.get("passedTests")) and not predicate.get("failedTests")
        wanted = "PASSED" if passed else "FAILED"
        if predicate["result"] != wanted:
            raise fields.wrong("predicate.result", f"{wanted}, as its tests say", predicate["result"])
    for i, subject in enumerate(statement["subject"]):
        if "sha256" not in subject["digest"]:
            raise fields.wrong(f"subject[{i}].digest.sha256", "64 hexadecimal digits", "nothing")
        fields.get(subject, f"subject[{i}]", "name", str)
    _checksum(fields, line)


def _checksum(fields: _Fields, line: Line) -> None:
    """The canonical form, and the checksum over it."""
    found = st.stated_checksum(line.value)
    if found is None:
        raise fields.wrong("the checksum", "a sha256", "nothing")
    if st.canonical(line.value) != line.raw:
        raise fields.wrong("its form", "canonical JSON: keys sorted, no spaces", "another")
    wanted = st.checksum(line.value)
    if found != wanted:
        raise fields.wrong("its checksum: a byte of the line was changed", wanted, found)


def _our_provenance(fields: _Fields, definition: Object) -> None:
    where = "predicate.buildDefinition.internalParameters"
    internal = fields.mapping(definition, "predicate.buildDefinition", "internalParameters")
    ledger = fields.mapping(internal, where, "ledger")
    digest = fields.get(ledger, f"{where}.ledger", "sha256", str)
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise fields.wrong(f"{where}.ledger.sha256", "64 hexadecimal digits in lower case", digest)
    entries = fields.get(ledger, f"{where}.ledger", "entries", int)
    outcomes = fields.mapping(ledger, f"{where}.ledger", "outcomes")
    counts = [n for n in outcomes.values() if isinstance(n, int)]
    if len(counts) != len(outcomes) or sum(counts) != entries:
        raise fields.wrong(f"{where}.ledger.entries", f"{sum(counts)}, the sum of its outcomes", entries)
    where = "predicate.buildDefinition.externalParameters"
    external = definition["externalParameters"]
    for key in ("from", "to"):
        fields.get(external, where, key, str)
    for key in ("source", "options"):
        fields.mapping(external, where, key)
    fields.get(external["source"], f"{where}.source", "name", str)
    fields.items(definition, "predicate.buildDefinition", "resolvedDependencies")
