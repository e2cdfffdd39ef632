"""The form of a policy: a TOML file, read strictly. Whatever is not understood is an error with line and column."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError

SCAN_KEYS = ("policies", "allow")
ENTRY_KEYS = ("name", "names", "sha256", "rule", "reason", "expires")
HEX = re.compile(r"[0-9a-f]{64}")
# A dotted name with an attribute in it; other handles (a custom operator, "ai.custom::Op") have no spaces either.
NAME = re.compile(r"[^\s*?\[\]]+")
PLACE = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)
HEADER = re.compile(r"^\s*\[\[\s*scan\s*\.\s*allow\s*\]\]")
TABLE = re.compile(r"^\s*\[")


@dataclass(frozen=True, slots=True)
class Entry:
    """One table of ``scan.allow``, checked. ``line`` is where it begins."""

    names: tuple[str, ...]
    sha256: str | None
    rule: str | None
    reason: str
    expires: datetime.date | None
    line: int


@dataclass(slots=True)
class Document:
    """A policy as it was written. ``version`` is that of a shipped one."""

    policies: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    version: str = ""


def parse(data: bytes, file: str, shipped: bool = False) -> Document:
    """Read a policy; UsageError names ``file``, line and column. A shipped one has a version and needs no dates."""
    import tomllib

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _error("the policy is not UTF-8", file, line, error.start - data.rfind(b"\n", 0, error.start)) from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = PLACE.match(str(error))
        what = (match[1] if match else str(error)).rstrip(".")
        lines = text.split("\n")
        line, column = (int(match[2]), int(match[3])) if match and match[2] else (len(lines), len(lines[-1]) + 1)
        raise _error(f"the policy is not TOML: {what[:1].lower()}{what[1:]}", file, line, column) from error
    except RecursionError as error:
        raise _error("the policy is nested too deeply", file, 1, 1) from error
    return _Reader(text.split("\n"), file, shipped).document(table)


def _error(what: str, file: str, line: int, column: int, hint: str | None = None) -> UsageError:
    return UsageError(f"{what} (line {line}, column {column})", file=file, hint=hint)


class _Reader:
    """Checks the tables of one file. TOML's parser keeps no places, so they are looked up in the lines again."""

    def __init__(self, lines: list[str], file: str, shipped: bool) -> None:
        self.lines, self.file, self.shipped = lines, file, shipped
        self.headers = [number for number, line in enumerate(lines, 1) if HEADER.match(line)]

    def document(self, table: dict[str, Any]) -> Document:
        scan = table.get("scan", {})
        if not isinstance(scan, dict):
            raise self.error("`scan` is a table", 1, "scan")
        for key in scan:
            if key not in SCAN_KEYS:
                raise self.error(f"`scan` has no key {key!r}", 1, key, f"one of {', '.join(SCAN_KEYS)}")
        out = Document(policies=self.strings(scan.get("policies", []), "policies", 1))
        entries = scan.get("allow", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.error("`scan.allow` is a list of tables", 1, "allow", "begin each with [[scan.allow]]")
        for number, entry in enumerate(entries):
            out.entries.append(self.entry(entry, self.start(number)))
        if self.shipped:
            out.version = str(table["policy"]["version"])
        return out

    def start(self, number: int) -> int:
        """The line of the header of entry ``number``; of the key ``allow`` when the list is written in one piece."""
        if number < len(self.headers):
            return self.headers[number]
        return self.place(1, "allow")[0]

    def entry(self, entry: dict[str, Any], line: int) -> Entry:
        for key in entry:
            if key not in ENTRY_KEYS:
                raise self.error(f"an entry has no key {key!r}", line, key, f"one of {', '.join(ENTRY_KEYS)}")
        given = [key for key in ("name", "names", "sha256") if key in entry]
        if len(given) != 1:
            raise self.error("an entry has one of `name`, `names` and `sha256`", line, given[-1] if given else "")
        names = self.strings([entry["name"]] if given == ["name"] else entry.get("names", []), given[0], line)
        for name in names:
            if not NAME.fullmatch(name):
                hint = "one entry for each full name, as the scan prints it"
                raise self.error(f"not an exact name: {name!r}", line, given[0], hint)
        if given == ["names"] and not names:
            raise self.error("`names` is empty", line, "names")
        sha256 = entry.get("sha256")
        if sha256 is not None and not (isinstance(sha256, str) and HEX.fullmatch(sha256)):
            raise self.error(
                "`sha256` is 64 hexadecimal digits in lower case", line, "sha256", "sha256sum FILE prints it"
            )
        rule = entry.get("rule")
        if rule is not None and (not isinstance(rule, str) or sha256 is not None):
            raise self.error("`rule` is the id of a rule, and goes with a name only", line, "rule")
        reason = entry.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            hint = 'reason = "who looked at it, and why it is all right"'
            raise self.error("an entry needs a reason", line, "reason", hint)
        return Entry(tuple(names), sha256, rule, reason.strip(), self.date(entry.get("expires"), line), line)

    def date(self, value: object, line: int) -> datetime.date | None:
        if value is None and self.shipped:
            return None
        if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
            what = "an entry needs a date on which it expires" if value is None else "`expires` is a date"
            raise self.error(what, line, "expires", "expires = 2027-06-30, without quotes")
        return value

    def strings(self, value: object, key: str, line: int) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            kind = "is a string" if key == "name" else "is a list of strings"
            raise self.error(f"`{key}` {kind}", line, key)
        return value

    def error(self, what: str, line: int, key: str, hint: str | None = None) -> UsageError:
        return _error(what, self.file, *self.place(line, key), hint)

    def place(self, line: int, key: str) -> tuple[int, int]:
        """Line and column of ``key`` at or after ``line``, within the table that begins there; else of that line."""
        if key:
            pattern = re.compile(rf"(?:^\s*|[{{,]\s*|\.\s*)[\"']?({re.escape(key)})[\"']?\s*(?:=|\.|\])")
            for number in range(line, len(self.lines) + 1):
                text = self.lines[number - 1]
                if number > line and TABLE.match(text) and line > 1:
                    break
                match = pattern.search(text)
                if match:
                    return number, match.start(1) + 1
        return line, 1
