"""The contract of ``architectures/``: one module is one model family and holds one ``ARCHITECTURE`` (or a tuple)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..artifact import KeyValue, TensorView
from ..errors import Corrupt
from ..report import Loss
from .config import MISSING, Config
from .ops import Op

if TYPE_CHECKING:
    from .mlx import Mlx

# Written beside the model's own facts, so that a GGUF file says which of two alike families it was made from.
CLASS_KEY = "artifactkit.model_class"
# True where the output matrix is the embedding, stored a second time since llama.cpp asks for it.
TIED_KEY = "artifactkit.tied_output"


@dataclass(frozen=True, slots=True)
class Row:
    """Tensors of a checkpoint and what they are called, and become, in a GGUF file.

    In names ``{b}`` is the layer and ``{e}`` the expert; a source with ``{e}`` stands for all experts in order. ``ops``
    lead from left to right and are undone from right to left. ``when`` says for which configs and layers there are such
    tensors at all. A row with ``present`` holds only where that tensor is in the checkpoint, a row with ``absent`` only
    where it is not: two ways in which one family is saved.
    """

    source: str | tuple[str, ...]
    target: str | tuple[str, ...]
    ops: tuple[Op, ...] = ()
    when: Callable[[Config, int], bool] | None = None
    present: str = ""
    absent: str = ""
    count: str = ""  # the config key that counts {e}, where it is not the family's ``experts``

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def layered(self) -> bool:
        return "{b}" in self.targets[0]


@dataclass(frozen=True, slots=True)
class Drop:
    """Tensors (a regular expression for the whole name) that are left out. ``loss`` when something is lost by it."""

    pattern: str
    why: str
    loss: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A config key that is a key-value of the file as it stands; ``kv`` without the architecture's name before it.

    ``absent`` is what the config says when the file lacks the pair; without it the pair must be there.
    """

    config: str
    kv: str
    kind: str = "u32"
    absent: object = MISSING


class Pairs:
    """The key-values of a file, asked for by name without the architecture's prefix."""

    def __init__(self, arch: str, pairs: Iterable[KeyValue], file: str = "") -> None:
        self.arch, self.file = arch, file
        self.all = {pair.key: pair for pair in pairs}

    def name(self, kv: str) -> str:
        return kv if kv.startswith(("general.", "tokenizer.", "artifactkit.")) else f"{self.arch}.{kv}"

    def get(self, kv: str) -> object:
        pair = self.all.get(self.name(kv))
        return None if pair is None else _plain(pair)

    def need(self, kv: str) -> object:
        value = self.get(kv)
        if value is None:
            raise Corrupt("the file lacks a key that its model needs", file=self.file or None, member=self.name(kv))
        return value

    def real(self, kv: str) -> float:
        """A number above 0 that must be there."""
        value = self.need(kv)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 3.5e38:
            raise Corrupt("a number above 0 is none", file=self.file or None, member=self.name(kv), found=value)
        return float(value)

    def count(self, kv: str) -> int:
        """A whole number above 0 that must be there."""
        value = self.need(kv)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise Corrupt("a count is none", file=self.file or None, member=self.name(kv), found=value)
        return value


def _plain(pair: KeyValue) -> object:
    """f32 as the shortest decimal that is that f32 (1e-06, not 9.999999974752427e-07); arrays as lists."""
    if pair.kind in ("f32", "arr[f32]"):
        import numpy as np

        def short(value: object) -> object:
            return float(str(np.float32(value))) if isinstance(value, int | float) else value

        return [short(v) for v in pair.value] if isinstance(pair.value, tuple) else short(pair.value)
    return list(pair.value) if isinstance(pair.value, tuple) else pair.value


@dataclass(frozen=True, slots=True)
class Facts:
    """Key-values that are more than one config key each: ``reads`` are the config keys that they are made from.

    ``forward`` gives (key without prefix, kind, value) triples; a value of None is not written. ``inverse`` gives back
    config entries. ``made`` gives tensors that are computed from the config, ``makes`` their names.
    """

    reads: tuple[str, ...]
    forward: Callable[[Config], Iterable[tuple[str, str, object]]]
    inverse: Callable[[Pairs, Mapping[str, TensorView]], Mapping[str, object]]
    made: Callable[[Config], Iterable[TensorView]] | None = None
    makes: tuple[str, ...] = ()


def _nothing(config: Config) -> list[Loss]:
    return []


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model family: what transformers calls it, what llama.cpp calls it, and everything between the two.

    ``classes`` are names for config.json's ``architectures``, the one to write first; ``gguf`` is
    ``general.architecture``. ``defaults`` and ``when_null`` are the config class's. ``fixed`` are keys whose other
    values llama.cpp does not compute, ``inert`` keys that change nothing, ``aliases`` older spellings. ``base_prefix``
    is what a checkpoint of the bare model leaves out of its names, ``outer_prefix`` what one with a head has before
    them. ``head`` is the GGUF name of the output matrix that may be tied to ``embedding``; ``may_untie`` whether
    llama.cpp reads a separate one, ``must_have_head`` whether it needs one even where it is the embedding, which is
    then stored twice. ``checks`` raise for what no key alone shows; ``losses`` are told for what the target computes
    otherwise. ``gelu`` families agree less closely: ggml looks GELU up in a table of f16.
    """

    name: str
    gguf: str
    model_type: str
    classes: tuple[str, ...]
    rows: tuple[Row, ...]
    keys: tuple[Key | Facts, ...]
    defaults: Mapping[str, object]
    when_null: Mapping[str, Callable[[Config], object]] = field(default_factory=dict)
    fixed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    inert: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    drops: tuple[Drop, ...] = ()
    checks: tuple[Callable[[Config], None], ...] = ()
    losses: Callable[[Config], list[Loss]] = _nothing
    base_prefix: str = ""
    outer_prefix: str = ""
    head: str = ""
    embedding: str = "token_embd.weight"
    may_untie: bool = True
    must_have_head: bool = False
    layers: str = "num_hidden_layers"
    experts: str = ""
    writes: Mapping[str, object] = field(default_factory=dict)  # config entries that every such model has
    also: Callable[[Pairs], bool] | None = None  # which files of one ``gguf`` name are of this family
    gelu: bool = False
    encoder: bool = False
    mlx: Mlx | None = None  # None: mlx-lm has no such family
    notes: str = ""  # for the docs: what holds only in part, and why

    def config(self, raw: Mapping[str, object], file: str = "config.json") -> Config:
        """``raw`` with this family's defaults, older spellings replaced."""
        entries = {self.aliases.get(k, k): v for k, v in raw.items() if k in self.aliases}
        entries |= {k: v for k, v in raw.items() if k not in self.aliases}
        return Config(entries, self.defaults, self.when_null, file)

    def known_keys(self) -> set[str]:
        """Every config key that the family's rules read, check or know to be inert."""
        known = {*self.defaults, *self.fixed, *self.inert, *self.aliases, self.layers}
        for key in self.keys:
            known |= {key.config} if isinstance(key, Key) else set(key.reads)
        return known
