"""What a value in a TOML file may be: each shape checks a value, and says the same as JSON schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .positions import Path
from .problems import Problems, near, shown

Schema = dict[str, object]


class Shape(Protocol):
    """What may stand at one place."""

    @property
    def words(self) -> str:
        """What is expected, as a noun: ``a string``."""
        ...

    def check(self, value: object, path: Path, problems: Problems) -> None:
        """Tell ``problems`` what is wrong with ``value``, which stands at ``path``."""
        ...

    def schema(self) -> Schema:
        """The same as JSON schema (draft 7)."""
        ...

    def is_kind(self, value: object) -> bool:
        """Whether ``value`` is of the right TOML type at all, for choosing among several shapes."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """A string. ``pattern`` matches all of it; ``words`` says in a noun what it means."""

    words: str = "a string"
    pattern: str = r"[^\x00-\x1f\x7f]+"
    hint: str | None = None

    def is_kind(self, value: object) -> bool:
        return isinstance(value, str)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            problems.at_value(path, _what(path), expected=self.words, found=shown(value), hint=self.hint)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a closed list of names. Case does not matter, nor ``_`` against ``-``; ``also`` are synonyms.

    ``names`` is called when it is needed, since the registry imports formats.
    """

    words: str
    names: Callable[[], Sequence[str]]
    also: Mapping[str, str] = field(default_factory=dict)
    refused: Callable[[str], tuple[str, str] | None] = lambda name: None

    def is_kind(self, value: object) -> bool:
        return isinstance(value, str)

    def canonical(self, value: str) -> str | None:
        """The name that is meant, as the list has it, or None."""
        key = plain(value)
        for name in self.names():
            if plain(name) == key:
                return name
        return next((name for other, name in self.also.items() if plain(other) == key), None)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if isinstance(value, str) and self.canonical(value) is not None:
            return
        why = self.refused(value) if isinstance(value, str) else None
        if why is not None:
            problems.at_value(path, why[0], hint=why[1])
            return
        known = [*self.names(), *self.also]
        hint = near(value, known) if isinstance(value, str) else None
        problems.at_value(
            path, _what(path), expected=self.words, found=shown(value), hint=hint or f"one of {', '.join(self.names())}"
        )

    def schema(self) -> Schema:
        # Editors complete from the list; the pattern takes the other spellings that are allowed.
        every = sorted({plain(name) for name in [*self.names(), *self.also]})
        return {"anyOf": [{"enum": list(self.names())}, {"type": "string", "pattern": _any_case(every)}]}


@dataclass(frozen=True, slots=True)
class Flag:
    """``true`` or ``false``."""

    words: str = "true or false"

    def is_kind(self, value: object) -> bool:
        return isinstance(value, bool)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if not isinstance(value, bool):
            problems.at_value(path, _what(path), expected=self.words, found=shown(value))

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Constant:
    """One value and no other."""

    value: bool | str

    @property
    def words(self) -> str:
        return shown(self.value)

    def is_kind(self, value: object) -> bool:
        return type(value) is type(self.value)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if type(value) is not type(self.value) or value != self.value:
            problems.at_value(path, _what(path), expected=self.words, found=shown(value))

    def schema(self) -> Schema:
        return {"const": self.value}


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from ``low`` to ``high``."""

    low: int
    high: int = 2**63 - 1

    @property
    def words(self) -> str:
        return f"a whole number from {self.low} to {self.high}" if self.high < 2**63 - 1 else (
            f"a whole number, at least {self.low}"
        )  # fmt: skip

    def is_kind(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            problems.at_value(path, _what(path), expected=self.words, found=shown(value))

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low} | ({"maximum": self.high} if self.high < 2**63 - 1 else {})


@dataclass(frozen=True, slots=True)
class Limit:
    """A number, zero or more, finite."""

    words: str = "a number, zero or more"

    def is_kind(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        fine = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and math.isfinite(value)
        if not fine:
            problems.at_value(path, _what(path), expected=self.words, found=shown(value))

    def schema(self) -> Schema:
        return {"type": "number", "minimum": 0}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list with something in it, each item of one shape, none twice."""

    item: Shape
    most: int = 1000

    @property
    def words(self) -> str:
        return "a list, each item " + self.item.words

    def is_kind(self, value: object) -> bool:
        return isinstance(value, list)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if not isinstance(value, list) or not value or len(value) > self.most:
            found = f"{len(value)} items" if isinstance(value, list) and value else shown(value)
            problems.at_value(path, _what(path), expected=self.words, found=found)
            return
        seen: list[object] = []
        for number, item in enumerate(value):
            self.item.check(item, (*path, number), problems)
            if any(type(item) is type(other) and item == other for other in seen):
                problems.at_value((*path, number), f"{shown(item)} comes twice in the list")
            seen.append(item)

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema(), "minItems": 1, "maxItems": self.most, "uniqueItems": True}


@dataclass(frozen=True, slots=True)
class Numbers:
    """A list of whole numbers, in which one may come twice: the sizes of a tensor's axes."""

    low: int = 1
    words: str = "a list of whole numbers, at least 1"

    def is_kind(self, value: object) -> bool:
        return isinstance(value, list)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if not isinstance(value, list) or not 0 < len(value) <= 8:
            problems.at_value(path, _what(path), expected=self.words + ", one for each axis", found=shown(value))
            return
        for number, item in enumerate(value):
            Integer(self.low, 2**31 - 1).check(item, (*path, number), problems)

    def schema(self) -> Schema:
        return {"type": "array", "items": Integer(self.low, 2**31 - 1).schema(), "minItems": 1, "maxItems": 8}


@dataclass(frozen=True, slots=True)
class Names:
    """A table whose keys the user chooses; each value is of one shape. ``pattern`` is what a key may look like."""

    value: Shape
    words: str = "a table"
    key: str = "a name"
    pattern: str = r"[^\x00-\x1f\x7f]+"

    def is_kind(self, value: object) -> bool:
        return isinstance(value, dict)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.at_value(path, _what(path), expected=self.words, found=shown(value))
            return
        for name, item in value.items():
            if problems.full:
                return
            if not re.fullmatch(self.pattern, name):
                problems.at_key((*path, name), f"{name[:100]!r} is not {self.key}")
            self.value.check(item, (*path, name), problems)

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^(?:{self.pattern})$"},
            "additionalProperties": self.value.schema(),
        }


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table: its shape, and in one sentence what it means. ``matrix``: a list of values is a matrix."""

    shape: Shape
    says: str
    required: bool = False
    matrix: bool = False

    @property
    def whole(self) -> Shape:
        """The shape of all that may stand there."""
        if not self.matrix:
            return self.shape
        return Either((self.shape, ListOf(self.shape, 256)), f"{self.shape.words}, or a list of such for a matrix")


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a closed list of keys. ``meant`` are words from elsewhere for a key of ours."""

    name: str  # with its article: "a target"
    keys: Mapping[str, Key]
    meant: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return "a table"

    def is_kind(self, value: object) -> bool:
        return isinstance(value, dict)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.at_value(path, _what(path), expected=f"a table: {self.name}", found=shown(value))
            return
        for key, item in value.items():
            if problems.full:
                return
            known = self.keys.get(key)
            if known is not None:
                known.whole.check(item, (*path, key), problems)
                continue
            meant = self.meant.get(key.lower().replace("_", "-"))
            hint = f"did you mean {meant!r}?" if meant else near(key, self.keys)
            hint = hint or f"its keys: {', '.join(self.keys)}"
            problems.at_key((*path, key), f"{self.name} has no key {key[:100]!r}", hint=hint)
        for key, known in self.keys.items():
            if known.required and key not in value:
                problems.at_key(path, f"{self.name} needs the key {key!r}", expected=known.shape.words)

    def schema(self) -> Schema:
        out: Schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {key: known.whole.schema() | {"description": known.says} for key, known in self.keys.items()},
        }
        required = [key for key, known in self.keys.items() if known.required]
        return out | ({"required": required} if required else {})


@dataclass(frozen=True, slots=True)
class Either:
    """One of several shapes, told apart by the TOML type of the value."""

    shapes: tuple[Shape, ...]
    named: str = ""

    @property
    def words(self) -> str:
        return self.named or ", or ".join(shape.words for shape in self.shapes)

    def is_kind(self, value: object) -> bool:
        return any(shape.is_kind(value) for shape in self.shapes)

    def check(self, value: object, path: Path, problems: Problems) -> None:
        kin = [shape for shape in self.shapes if shape.is_kind(value)]
        if kin and not isinstance(kin[0], Constant):
            kin[0].check(value, path, problems)
        elif not any(shape.value == value for shape in kin if isinstance(shape, Constant)):
            problems.at_value(path, _what(path), expected=self.words, found=shown(value))

    def schema(self) -> Schema:
        return {"anyOf": [shape.schema() for shape in self.shapes]}


def plain(name: str) -> str:
    """A name as it is compared: lower case, hyphens."""
    return name.strip().lower().replace("_", "-")


def _any_case(names: Iterable[str]) -> str:
    """A pattern for the names in any case, with ``_`` for ``-``. JSON schema's patterns have no flags."""

    def letter(c: str) -> str:
        return "[-_]" if c == "-" else f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c)

    return "^(?:" + "|".join("".join(map(letter, name)) for name in names) + ")$"


def _what(path: Path) -> str:
    """The words for a value that is not what it should be."""
    name = next((part for part in reversed(path) if isinstance(part, str)), "the file")
    return f"`{name[:100]}` has a wrong value"
