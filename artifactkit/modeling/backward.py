"""From the tensors and key-values of a GGUF file to a checkpoint that transformers loads, by one family's rules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..artifact import Dropped, KeyValue, Step, TensorView, Weights
from ..errors import ArtifactkitError, Corrupt, RouteRefused
from .architecture import CLASS_KEY, TIED_KEY, Architecture, Facts, Key, Pairs, Row
from .config import MISSING, Config, shown
from .forward import keyvalues
from .ops import Piece


def from_gguf(arch: Architecture, pairs: Pairs, weights: Weights) -> tuple[dict[str, object], Weights]:
    """(config.json, the tensors under transformers' names). Tensors must be of plain types, dequantised before.

    ``keyvalues`` of what is returned are those that config.json does not hold: the tokenizer's, ``general.*``. Raises
    RouteRefused for a tensor or a key of the model that no rule explains, Corrupt for a missing one. No tensor byte is
    read, but for the few that are config entries (rotary factors).
    """
    entries = config_entries(arch, pairs, weights)
    config = arch.config(entries)
    rest = unexplained(arch, config, pairs)
    run = _Run(arch, config, weights, pairs)
    run.all_rows()
    run.leftovers()
    dropped = [*weights.dropped, *run.dropped]
    named = replace(weights, tensors=run.tensors, aliases={}, dropped=dropped, keyvalues=rest, naming="transformers")
    return entries, named


def config_entries(arch: Architecture, pairs: Pairs, weights: Weights) -> dict[str, object]:
    """config.json as transformers reads it."""
    given = pairs.get(CLASS_KEY)
    name = given if isinstance(given, str) and given in arch.classes else arch.classes[0]
    entries: dict[str, object] = {"architectures": [name], "model_type": arch.model_type, **arch.writes}
    for key in arch.keys:
        if isinstance(key, Key):
            value = pairs.get(key.kv)
            if value is None:
                if key.absent is MISSING:
                    pairs.need(key.kv)
                value = key.absent
            entries[key.config] = value
        else:
            entries |= key.inverse(pairs, weights.tensors)
    embedding = weights.tensors.get(arch.embedding)
    if embedding is None or len(embedding.shape) != 2:
        raise Corrupt("the file has no embedding", tensor=arch.embedding, expected="a matrix", found="none")
    entries["vocab_size"] = embedding.shape[0]
    if arch.head:
        entries["tie_word_embeddings"] = arch.head not in weights.tensors or stored_twice(pairs)
    return entries


def stored_twice(pairs: Pairs) -> bool:
    """Whether the output matrix is a second copy of the embedding."""
    return pairs.get(TIED_KEY) is True


# Keys of a model that say nothing about what is computed in families that do not write them.
INERT = frozenset(
    """vocab_size rope.scaling.finetuned pooling_type attention.layer_norm_rms_epsilon attention.layer_norm_epsilon
    context_length rope.scaling.original_context_length tensor_data_layout rope.freq_base""".split()  # noqa: SIM905
)


# Keys about the file alone, which another file has no use for.
OF_THE_FILE = ("general.alignment", "general.file_type", "general.quantization_version", "general.type")


def _usual(key: str, pairs: Pairs) -> object:
    """What llama.cpp takes where a key is absent: a head is the width over the heads, keys have as many heads."""
    if key == "attention.head_count_kv":
        return pairs.get("attention.head_count")
    if key == "rope.dimension_count" and pairs.get("attention.key_length") is not None:
        return pairs.get("attention.key_length")
    if key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        if pairs.get("embedding_length") is None or pairs.get("attention.head_count") is None:
            return None
        return pairs.count("embedding_length") // pairs.count("attention.head_count")
    return {"rope.freq_base": 10000.0, "rope.scaling.type": "none"}.get(key)


def may_be_absent(key: str, value: object, pairs: Pairs) -> bool:
    """Whether a file without this key (its name without the architecture's before it) says the same."""
    return key == "vocab_size" or key.startswith("artifactkit.") or value == _usual(key, pairs)


def unexplained(arch: Architecture, config: Config, pairs: Pairs) -> tuple[KeyValue, ...]:
    """The pairs that config.json does not hold. The model's own must all follow from it: made again, they are compared.

    Raises RouteRefused for a pair that would not be made, or would be another.
    """
    again = {pair.key: pair for pair in keyvalues(arch, config, {})}
    prefix = f"{arch.gguf}."
    for key, pair in pairs.all.items():
        if not key.startswith(prefix):
            continue
        mine = again.get(key)
        value, short = pairs.get(key.removeprefix(prefix)), key.removeprefix(prefix)
        if mine is None:
            if short in INERT or value in (0, False, "none") or value == _usual(short, pairs):
                continue
            raise RouteRefused(
                f"a key of the file is not understood for {arch.name}, and may change what the model computes",
                file=pairs.file or None, member=key, found=shown(value),
            )  # fmt: skip
        if not _alike(mine.value, pair.value):
            raise RouteRefused(
                "a key of the file has a value that transformers would not compute with", file=pairs.file or None,
                member=key, expected=shown(mine.value), found=shown(value),
            )  # fmt: skip
    ours = {CLASS_KEY, TIED_KEY, *OF_THE_FILE, *again}
    return tuple(pair for key, pair in pairs.all.items() if not key.startswith(prefix) and key not in ours)


def _alike(one: object, two: object) -> bool:
    if isinstance(one, float) and isinstance(two, int | float):
        return math.isclose(one, two, rel_tol=1e-5)
    return one == two


class _Run:
    """One conversion under way."""

    def __init__(self, arch: Architecture, config: Config, weights: Weights, pairs: Pairs) -> None:
        self.arch, self.config, self.weights, self.pairs = arch, config, weights, pairs
        self.left = dict(weights.tensors)
        self.tensors: dict[str, TensorView] = {}
        self.dropped: list[Dropped] = []
        self.layers = config.count(arch.layers)
        if self.layers > len(weights.tensors):
            raise Corrupt("the file says more layers than it has tensors", member="block_count", found=self.layers)

    def all_rows(self) -> None:
        for row in self.arch.rows:
            if row.present:
                continue  # the other way of saving; what is written is one way
            for b in range(self.layers) if row.layered else (0,):
                self.one_row(row, b)

    def one_row(self, row: Row, b: int) -> None:
        if row.when is not None and not row.when(self.config, b):
            return
        targets = [t.replace("{b}", str(b)) for t in row.targets]
        if targets == [self.arch.head] and (targets[0] not in self.weights.tensors or stored_twice(self.pairs)):
            return
        views = []
        for name in targets:
            view = self.left.pop(name, None)
            if view is None:
                raise Corrupt("the file lacks a tensor that its key-values ask for", tensor=name, found="none")
            views.append(view)
        try:
            self.make(row, b, views)
        except ArtifactkitError as error:
            raise error.located(tensor=views[0].name) from error.__cause__

    def make(self, row: Row, b: int, views: list[TensorView]) -> None:
        pieces = [Piece(v.dtype, v.shape, v.source) for v in views]
        steps: list[Step] = []
        for op in reversed(row.ops):
            pieces = op.inverse(pieces, self.config)
            steps.append(Step(op.outcome, f"undone: {op.text}"))
        names = list(self._names(row, b, len(pieces)))
        if len(names) != len(pieces):
            raise Corrupt("the tensor is stacked from more than the file says", expected=len(names), found=len(pieces))
        origins = tuple(origin for v in views for origin in v.came_from())
        before = views[0].steps if len(views) == 1 else ()
        renamed = Step("renamed", f"{self.arch.model_type} in transformers")
        for name, piece in zip(names, pieces, strict=True):
            self.tensors[name] = TensorView(
                name, piece.dtype, piece.shape, piece.source, origins, (*before, *steps, renamed)
            )

    def _names(self, row: Row, b: int, count: int) -> Iterator[str]:
        for source in row.sources:
            name = source.replace("{b}", str(b))
            if "{e}" in name:
                experts = min(self.config.count(row.count or self.arch.experts), count)
                yield from (name.replace("{e}", str(e)) for e in range(experts))
            else:
                yield name

    def leftovers(self) -> None:
        made = {n for key in self.arch.keys if isinstance(key, Facts) for n in key.makes}
        for name, view in self.left.items():
            twice = name == self.arch.head and stored_twice(self.pairs)
            if name in made or twice:
                why = "the embedding, stored again" if twice else "config.json holds it, as rope_parameters"
                self.dropped += [Dropped(o, why, view.nbytes, asked=True) for o in view.came_from()]
                continue
            raise RouteRefused(
                f"no rule of {self.arch.name} explains this tensor", tensor=name,
                expected="the tensors that the key-values announce", found=f"{view.dtype} {list(view.shape)}",
            )  # fmt: skip
