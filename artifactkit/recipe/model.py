"""What a recipe says, once it has been understood."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FILE = "artifactkit.toml"
LOCK = "artifactkit.lock"

Options = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Pinned:
    """A model or an input: what is to be pinned. ``options`` are further keys of a model (``from``, ...)."""

    kind: Literal["models", "inputs"]
    name: str
    source: str
    revision: str | None = None
    options: Options = field(default_factory=dict)
    line: int = 0

    @property
    def what(self) -> str:
        """``models.NAME``, as in the file."""
        return f"{self.kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """One artifact to make: a ``[targets.NAME]`` with one combination of its matrix.

    ``options`` are the target's own keys and those of ``[defaults]``, names in the form that the project uses, in the
    order of keys.OF_TARGET. ``axes`` are the keys that came as lists, with the value of each.
    """

    name: str
    declared: str
    options: Options
    axes: tuple[tuple[str, object], ...] = ()
    line: int = 0

    @property
    def model(self) -> str:
        return str(self.options["model"])

    @property
    def format(self) -> str:
        return str(self.options["format"])

    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that go in, in order of name."""
        found = {str(self.options[key]) for key in ("calibration", "imatrix") if key in self.options}
        adapters = self.options.get("adapters")
        found |= {str(name) for name in adapters} if isinstance(adapters, list) else set()
        verify = self.options.get("verify")
        if isinstance(verify, dict) and "inputs" in verify:
            found.add(str(verify["inputs"]))
        return tuple(sorted(found))

    def digest(self) -> str:
        """sha256 of what is asked for, but for what changes no byte of it: its place, and how it is compared."""
        asked = {key: value for key, value in self.options.items() if key not in ("verify", "output")}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole artifactkit.toml, but for ``[scan]``. ``file`` is its path; sources are relative to its folder."""

    file: str
    models: Mapping[str, Pinned]
    inputs: Mapping[str, Pinned]
    targets: Mapping[str, Target]

    @property
    def pinned(self) -> list[Pinned]:
        """All that is to be pinned: models, then inputs, each in order of name."""
        return [self.models[name] for name in sorted(self.models)] + [self.inputs[name] for name in sorted(self.inputs)]
