"""From the tensors and key-values of a GGUF file to a checkpoint that transformers loads, by one family's rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..artifact import Dropped, Step, TensorView, Weights
from ..errors import ArtifactkitError, Corrupt, RouteRefused
from .architecture import CLASS_KEY, TIED_KEY, Architecture, Facts, Key, Pairs, Row
from .config import MISSING, Config
from .ops import Piece


def from_gguf(arch: Architecture, pairs: Pairs, weights: Weights) -> tuple[dict[str, object], Weights]:
    """(config.json, the tensors under transformers' names). Tensors must be of plain types, dequantised before.

    Raises RouteRefused for a tensor that no rule explains, Corrupt for a missing tensor or key. No tensor byte is read,
    but for the few that are config entries (rotary factors).
    """
    entries = config_entries(arch, pairs, weights)
    config = arch.config(entries)
    run = _Run(arch, config, weights, pairs)
    run.all_rows()
    run.leftovers()
    dropped = [*weights.dropped, *run.dropped]
    named = replace(weights, tensors=run.tensors, aliases={}, dropped=dropped, keyvalues=(), naming="transformers")
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
