"""Tables of targets -> targets: defaults filled in, each combination of a matrix with a name of its own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from ..errors import UsageError
from ..patterns import Pattern
from .keys import DTYPE, FORMAT, OF_TARGET, OVERFLOW
from .model import Target
from .positions import Path
from .problems import Problems, near

MAX_TARGETS = 10_000
MERGED = ("verify", "shapes", "tensor-type")  # tables that a target adds to, rather than replaces
REFERRED = ("calibration", "imatrix")
Combination = tuple[tuple[str, object], ...]


class Expansion:
    """The targets of one checked document; what does not go together is told to ``problems``."""

    def __init__(self, document: dict[str, Any], problems: Problems) -> None:
        self.document, self.problems = document, problems
        self.defaults: dict[str, Any] = document.get("defaults", {})
        self.out: dict[str, Target] = {}
        self.outputs: dict[str, str] = {}
        self.merged: dict[str, Any] = {}
        self.declared = ""

    def targets(self) -> dict[str, Target]:
        """All targets, by name, in the order of the file."""
        self.references(self.defaults, ("defaults",))
        for declared, table in self.document.get("targets", {}).items():
            self.declared, self.merged = declared, self.merge(table)
            self.references(table, ("targets", declared))
            if self.complete():
                self.expand()
        return self.out

    def merge(self, table: dict[str, Any]) -> dict[str, Any]:
        """The table with the defaults that it leaves open, canonical, in the order of OF_TARGET."""
        both = self.defaults | table
        for key in MERGED:
            ours, theirs = table.get(key), self.defaults.get(key)
            if isinstance(ours, dict) and isinstance(theirs, dict):
                both[key] = theirs | ours
        for mine, other in (("chip", "device"), ("device", "chip")):
            if mine in table and other not in table:
                both.pop(other, None)  # what a target says of where it runs replaces what the defaults say
        return {key: canonical(key, both[key]) for key in [*OF_TARGET, "skip"] if key in both}

    def origin(self, key: str) -> Path:
        """Where a key of the merged table is written."""
        here = self.document["targets"][self.declared]
        return ("targets", self.declared, key) if key in here else ("defaults", key)

    def complete(self) -> bool:
        """Whether what every target needs is there, and no two keys exclude each other."""
        path = ("targets", self.declared)
        missing = [key for key, spec in OF_TARGET.items() if spec.required and key not in self.merged]
        for key in missing:
            self.problems.at_key(
                path, f"a target needs the key {key!r}", expected=OF_TARGET[key].shape.words,
                hint="give it here or in [defaults]",
            )  # fmt: skip
        if "chip" in self.merged and "device" in self.merged:
            self.problems.at_key(
                self.origin("device"), "a target has `chip` or `device`, not both",
                hint="a chip is compiled for without having one; verify.device says where the artifact is compared",
            )  # fmt: skip
            return False
        return not missing

    def references(self, table: dict[str, Any], path: Path) -> None:
        """Names of models and inputs must be those of tables; shapes must fit each other."""
        for where, name in _named(table.get("model"), (*path, "model")):
            self.refer("models", name, where)
        for key in REFERRED:
            for where, name in _named(table.get(key), (*path, key)):
                self.refer("inputs", name, where)
        for where, name in _named(table.get("adapters"), (*path, "adapters")):
            self.refer("inputs", name, where)
        verify = table.get("verify")
        if isinstance(verify, dict):
            for where, name in _named(verify.get("inputs"), (*path, "verify", "inputs")):
                self.refer("inputs", name, where)
        for name, shape in table.get("shapes", {}).items():
            self.check_shape(shape, (*path, "shapes", name))
        for key in ("include", "exclude", "rename"):
            for number, text in enumerate(table.get(key, [])):
                self.check_pattern(text.rpartition("=")[0] if key == "rename" else text, key, (*path, key, number))
        for pattern in table.get("tensor-type", {}):
            self.check_pattern(pattern, "tensor-type", (*path, "tensor-type", pattern))

    def refer(self, kind: str, name: str, where: Path) -> None:
        tables = self.document.get(kind, {})
        if name not in tables:
            hint = near(name, tables)
            if hint is None:
                hint = f"one of {', '.join(sorted(tables))}" if tables else f"[{kind}.{name}] would name it"
            self.problems.at_value(where, f"there is no [{kind}.{name}]", hint=hint)

    def check_pattern(self, text: str, key: str, where: Path) -> None:
        try:
            Pattern(text, regex=None if key in ("include", "exclude") else True)
        except UsageError as error:
            tell = self.problems.at_key if key == "tensor-type" else self.problems.at_value
            tell(where, error.what, expected=error.expected, found=error.found, hint=error.hint)

    def check_shape(self, shape: dict[str, list[int]], path: Path) -> None:
        sizes = [shape["min"], shape["opt"], shape["max"]]
        if len({len(size) for size in sizes}) > 1:
            self.problems.at_key(path, "`min`, `opt` and `max` have as many axes as each other")
        elif any(not low <= best <= high for low, best, high in zip(*sizes, strict=True)):
            self.problems.at_key(path, "sizes must not fall from `min` over `opt` to `max`")

    # -- the matrix

    def expand(self) -> None:
        axes = list(self.axes())
        count = 1
        for _, values in axes:
            count *= len(values)
        if len(self.out) + count > MAX_TARGETS:
            self.problems.at_key(
                ("targets", self.declared), "the matrix is too large",
                expected=f"at most {MAX_TARGETS} targets in a file", found=str(len(self.out) + count),
            )  # fmt: skip
            return
        skips = [Skip(table, number) for number, table in enumerate(self.merged.get("skip", []))]
        self.check_skips(skips, dict(axes))
        for picked in itertools.product(*(values for _, values in axes)):
            combination = tuple(zip((key for key, _ in axes), picked, strict=True))
            chosen = dict(combination)
            matching = [skip for skip in skips if skip.matches(chosen)]
            for skip in matching:
                skip.used = True
            if not matching:
                self.add(combination)
        for skip in skips:
            if not skip.used and not skip.wrong:
                self.problems.at_value((*self.origin("skip"), skip.number), "no combination of the matrix is like this")

    def axes(self) -> Iterator[tuple[str, list[object]]]:
        """The keys that are lists where one value would do, with their values."""
        for key, spec in OF_TARGET.items():
            values = self.merged.get(key)
            if spec.matrix and isinstance(values, list):
                again = [n for n, value in enumerate(values) if value in values[:n]]
                for number in again:
                    self.problems.at_value((*self.origin(key), number), f"{values[number]!r} comes twice in the list")
                yield key, [value for n, value in enumerate(values) if n not in again]

    def check_skips(self, skips: list[Skip], axes: dict[str, list[object]]) -> None:
        for skip in skips:
            for key in skip.wanted:
                if key not in axes:
                    skip.wrong = True
                    self.problems.at_key(
                        (*self.origin("skip"), skip.number, key), f"{key!r} is no list here, so no part of the matrix",
                        hint=f"the matrix has {', '.join(axes)}" if axes else "this target has no matrix",
                    )  # fmt: skip

    def add(self, combination: Combination) -> None:
        path: Path = ("targets", self.declared)
        name = "-".join([self.declared, *(_in_name(value) for _, value in combination)])
        options = {key: value for key, value in self.merged.items() if key != "skip"} | dict(combination)
        if name in self.out:
            other = self.out[name]
            self.problems.at_key(
                path, f"two targets would be called {name!r}", found=f"[targets.{other.declared}] in line {other.line}",
                hint="name one of them differently",
            )  # fmt: skip
            return
        if "output" in options:
            options["output"] = str(options["output"]).replace("{name}", name)
            taken = self.outputs.setdefault(str(options["output"]), name)
            if taken != name:
                self.problems.at_value(
                    self.origin("output"), f"{taken} and {name} would be written to the same place",
                    found=str(options["output"]), hint="{name} stands for the target's name",
                )  # fmt: skip
        self.out[name] = Target(name, self.declared, options, combination, self.problems.positions.key(path)[0])


class Skip:
    """One table of ``skip``: the combinations that it leaves out."""

    def __init__(self, table: dict[str, object], number: int) -> None:
        self.wanted = {key: canonical(key, value) for key, value in table.items()}
        self.number, self.used, self.wrong = number, False, False

    def matches(self, combination: dict[str, object]) -> bool:
        return all(key in combination and combination[key] == value for key, value in self.wanted.items())


def canonical(key: str, value: Any) -> Any:
    """The value with names in the form that the project uses: ``fp16`` is ``f16``, ``Q8_0`` is ``q8_0``."""
    if isinstance(value, list) and OF_TARGET.get(key) is not None and OF_TARGET[key].matrix:
        return [canonical(key, item) for item in value]
    if not isinstance(value, str):
        return value
    for name, choice in (("format", FORMAT), ("dtype", DTYPE), ("overflow", OVERFLOW)):
        if key == name:
            return choice.canonical(value) or value
    return value.lower() if key in ("quantize", "chip") else value


def _named(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """A name, or each of a list of names, with its place."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        yield from (((*path, number), name) for number, name in enumerate(value))


def _in_name(value: object) -> str:
    """A value of the matrix as a part of a name, which is also part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", str(value)).strip("-") or "x"
