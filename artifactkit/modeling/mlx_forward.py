"""Between checkpoints of transformers and folders that mlx-lm loads: tensors and config.json, by a family's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ..artifact import Dropped, Step, TensorView, Weights
from ..errors import Corrupt, RouteRefused
from ..source import CHUNK, Source
from .architecture import Architecture, Row
from .config import Config, check_understood, check_values
from .forward import Run
from .mlx import Mlx
from .ops import Op, Piece, Transpose
from .parts import Halves, Stack

# What a family's rules call the parts of an expert in GGUF, and mlx-lm in its stacks.
PARTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}


def to_mlx(
    arch: Architecture, raw: dict[str, object], weights: Weights, file: str = "config.json"
) -> tuple[dict[str, object], Weights]:
    """(config.json, ``weights`` under mlx-lm's names): lazily, but for an output matrix that is to be tied.

    Raises RouteRefused for a family that mlx-lm does not have, a config key or a tensor that no rule explains, and for
    what mlx-lm does not compute; Corrupt for a missing tensor and for an output matrix that contradicts the config.
    """
    rules = arch.mlx
    if rules is None:
        raise RouteRefused(
            f"mlx-lm has no models of the family {arch.name}", file=file, member="architectures",
            found=arch.classes[0], hint="-t safetensors or -t gguf",
        )  # fmt: skip
    config = arch.config(raw, file)
    check_understood(config, arch.known_keys() | rules.known(), arch.name)
    check_values(config, rules.fixed, arch.name, "mlx-lm")
    for check in rules.checks:
        check(config)
    entries = {**raw, **rules.entries(config), "model_type": raw.get("model_type") or arch.model_type}
    run = _Run(arch, rules, config, weights)
    run.all_rows()
    run.leftovers()
    losses = [*weights.losses, *rules.losses(config), *run.losses]
    return entries, replace(
        weights, tensors=run.tensors, aliases=weights.aliases | run.aliases, naming="mlx",
        dropped=[*weights.dropped, *run.dropped], losses=losses, notes=list(weights.notes),
    )  # fmt: skip


def from_mlx(arch: Architecture, raw: dict[str, object], weights: Weights, file: str = "config.json") -> Weights:
    """``weights`` of an MLX folder under transformers' names, what mlx-lm stacks or turns undone.

    Matrices are floats already. Raises Corrupt for a missing tensor; RouteRefused for a tensor that no rule explains.
    """
    rules = arch.mlx
    if rules is None:
        raise RouteRefused(f"mlx-lm has no models of the family {arch.name}", file=file, member="architectures")
    run = _Back(arch, rules, arch.config(raw, file), weights)
    run.all_rows()
    run.leftovers()
    return replace(weights, tensors=run.tensors, naming="source", dropped=[*weights.dropped, *run.dropped])


def is_quantizable(arch: Architecture, tensor: TensorView) -> bool:
    """Whether mlx-lm may take this tensor of a family in groups: the matrices of linear layers and embeddings."""
    rules = arch.mlx
    return (
        rules is not None
        and len(tensor.shape) >= 2
        and tensor.name.endswith(".weight")
        and not (rules.plain and re.fullmatch(rules.plain, tensor.name))
    )


class _Run(Run):
    """The rows of a family, but for what they do to tensors: mlx-lm takes nearly all as transformers has them."""

    def __init__(self, arch: Architecture, rules: Mlx, config: Config, weights: Weights) -> None:
        super().__init__(arch, config, weights)
        self.rules = rules
        self.embedding: TensorView | None = None  # as it was read, and as it is called now
        self.embedding_name = ""

    def all_rows(self) -> None:
        for row in self.arch.rows:
            for b in range(self.layers) if row.layered else (0,):
                self.one_row(row, b)

    def make(self, row: Row, views: list[TensorView], targets: list[str]) -> None:
        layer = re.match(r"blk\.(\d+)\.", targets[0])
        named = [PARTS.get(target.split(".")[-2], "") for target in targets]
        if self.rules.experts and all(named):
            names = [self.rules.experts.replace("{b}", layer[1] if layer else "").replace("{part}", n) for n in named]
            ops: tuple[Op, ...] = tuple(op for op in row.ops if isinstance(op, Stack | Halves))
            self._put(views, names, ops)
            return
        for view in views:
            name = self._name(view.name)
            turned = bool(self.rules.turned) and re.fullmatch(self.rules.turned, name) is not None
            self._put([view], [name], (Transpose(),) if turned else ())
            if targets == [self.arch.embedding]:
                self.embedding, self.embedding_name = view, name

    def _name(self, spelled: str) -> str:
        """mlx-lm's name of a tensor, from the checkpoint's."""
        name = spelled
        if self.prefix.startswith("-"):
            name = name.removeprefix(self.prefix[1:])
        elif self.prefix:
            name = self.prefix + name
        for pattern, by in self.rules.names:
            name = re.sub(pattern, by, name)
        return name

    def _put(self, views: list[TensorView], names: list[str], ops: Iterable[Op]) -> None:
        pieces = [Piece(v.dtype, v.shape, v.source) for v in views]
        steps: list[Step] = []
        for op in ops:
            pieces = op.forward(pieces, self.config)
            steps.append(Step(op.outcome, op.text))
        origins = tuple(origin for v in views for origin in v.came_from())
        before = views[0].steps if len(views) == 1 else ()
        for name, piece in zip(names, pieces, strict=True):
            renamed = () if [name] == [v.name for v in views] else (Step("renamed", "mlx-lm's name"),)
            self.tensors[name] = TensorView(
                name, piece.dtype, piece.shape, piece.source, origins, (*before, *renamed, *steps)
            )

    def _tied(self, view: TensorView | None, target: str) -> bool:
        """Whether the output matrix is the embedding, so that none of its own is written."""
        tied = self.config.flag("tie_word_embeddings")
        embedding = self.embedding
        if embedding is None:
            return False
        if view is None:
            if not tied:
                return False  # which is told as a missing tensor
            if not self.rules.ties:
                self._write_twice(embedding)
            return True
        if not tied and not self.rules.always_ties:
            return False
        if not (view.same_bytes(embedding) or same_values(view, embedding)):
            says = "the config says that" if tied else "in mlx-lm"
            raise RouteRefused(
                f"{says} the output matrix is the embedding, and this checkpoint holds another", file=self.config.file,
                tensor=view.name, expected=f"the bytes of {embedding.name}, or none", found="other bytes",
                hint="tie_word_embeddings false in config.json, if that is what the model computes" if tied
                     else "mlx-lm has no output matrix of its own for this family: -t safetensors or -t gguf",
            )  # fmt: skip
        del self.left[view.name]
        if not self.rules.ties:
            self._write_twice(embedding)
            return True
        why = f"equal to {embedding.name}, to which it is tied: mlx-lm takes one alone"
        self.dropped += [Dropped(origin, why, view.nbytes, asked=True) for origin in view.came_from()]
        return True

    def _write_twice(self, embedding: TensorView) -> None:
        row = next(r for r in self.arch.rows if r.targets == (self.arch.head,))
        name = row.sources[0]
        for pattern, by in self.rules.names:
            name = re.sub(pattern, by, name)
        step = Step("copied", "the embedding, which is the output matrix too: mlx-lm asks for both")
        self.tensors[name] = replace(
            embedding, name=name, origins=embedding.came_from(), steps=(*embedding.steps, step)
        )


class _Back(_Run):
    """The same rows read from right to left: from mlx-lm's names to transformers'."""

    def one_row(self, row: Row, b: int) -> None:
        if row.when is not None and not row.when(self.config, b) or row.present:
            return
        names = list(self._names(row, b))
        stacked = self._stacked(row, b)
        if stacked is not None and stacked in self.left:
            self._back([stacked], names, tuple(op for op in row.ops if isinstance(op, Stack)))
            return
        for name in names:
            called = self._called(name)
            if called not in self.left:
                if row.targets == (self.arch.head,):
                    if self.config.flag("tie_word_embeddings") or self.rules.always_ties:
                        return
                raise Corrupt(
                    "the folder lacks a tensor that its config asks for", tensor=called, expected=f"for {name}",
                    found="none",
                )  # fmt: skip
            if row.targets == (self.arch.head,) and self._written_twice(called):
                continue
            turned = bool(self.rules.turned) and re.fullmatch(self.rules.turned, called) is not None
            self._back([called], [name], (Transpose(),) if turned else ())
            if row.targets == (self.arch.embedding,):
                self.embedding = self.tensors[name]

    def _written_twice(self, called: str) -> bool:
        """Whether the output matrix is there since mlx-lm asks for it, and is the embedding."""
        view, tied = self.left[called], self.config.flag("tie_word_embeddings")
        if not tied or self.embedding is None or not same_values(view, self.embedding):
            return False
        why = "the embedding, to which it is tied"
        self.dropped += [Dropped(origin, why, view.nbytes, asked=True) for origin in self.left.pop(called).came_from()]
        return True

    def _called(self, name: str) -> str:
        for pattern, by in self.rules.names:
            name = re.sub(pattern, by, name)
        return name

    def _stacked(self, row: Row, b: int) -> str | None:
        parts = [PARTS.get(target.split(".")[-2], "") for target in row.targets]
        if not self.rules.experts or not all(parts):
            return None
        return self.rules.experts.replace("{b}", str(b)).replace("{part}", parts[0])

    def _back(self, called: list[str], names: list[str], ops: Iterable[Op]) -> None:
        views = [self.left.pop(name) for name in called]
        pieces = [Piece(v.dtype, v.shape, v.source) for v in views]
        steps: list[Step] = []
        for op in ops:
            pieces = op.inverse(pieces, self.config)
            steps.append(Step("split" if isinstance(op, Stack) else op.outcome, op.text))
        if len(pieces) != len(names):
            raise Corrupt(
                "the stack holds another number of experts than the config says", tensor=called[0],
                expected=len(names), found=len(pieces),
            )  # fmt: skip
        origins = tuple(origin for v in views for origin in v.came_from())
        for name, piece in zip(names, pieces, strict=True):
            renamed = () if [name] == called else (Step("renamed", "transformers' name"),)
            self.tensors[name] = TensorView(
                name, piece.dtype, piece.shape, piece.source, origins, (*views[0].steps, *renamed, *steps)
            )


def same_values(one: TensorView, other: TensorView) -> bool:
    """Whether two tensors hold the same bytes, in whatever place. Reads both, a few megabytes at a time."""
    if (one.dtype, one.shape, one.nbytes) != (other.dtype, other.shape, other.nbytes):
        return False
    first, second = bytearray(min(CHUNK, one.nbytes)), bytearray(min(CHUNK, one.nbytes))
    return all(_alike(one.source, other.source, at, first, second) for at in range(0, one.nbytes, CHUNK))


def _alike(one: Source, other: Source, at: int, first: bytearray, second: bytearray) -> bool:
    size = min(CHUNK, one.nbytes - at)
    one.read_into(at, memoryview(first)[:size])
    other.read_into(at, memoryview(second)[:size])
    return first[:size] == second[:size]
