"""From a checkpoint of transformers to the tensors and key-values of a GGUF file, by one family's rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..artifact import Alias, Dropped, KeyValue, Step, TensorView, Weights
from ..errors import ArtifactkitError, Corrupt, RouteRefused
from ..ggml import float32_name
from ..report import Loss
from .architecture import CLASS_KEY, TIED_KEY, Architecture, Facts, Key, Row
from .config import Config, check_understood, check_values
from .ops import Piece, as_f32


def stays_f32(name: str, dimensions: int) -> bool:
    """Whether the GGUF tensor ``name`` is written in f32 whatever it was: what llama.cpp takes so alone, and biases."""
    return not name.endswith(".weight") or float32_name(name, dimensions)


def to_gguf(arch: Architecture, raw: dict[str, object], weights: Weights, file: str = "config.json") -> Weights:
    """``weights`` under GGUF names, transformed lazily, with the model's key-values. No tensor byte is read.

    Raises RouteRefused for a config key or a tensor that no rule explains, and for what llama.cpp does not compute;
    Corrupt for a missing tensor and for shapes that contradict the config. Each names what it is about.
    """
    config = arch.config(raw, file)
    check_understood(config, arch.known_keys(), arch.name)
    check_values(config, arch.fixed, arch.name)
    run = Run(arch, config, weights)  # which holds the counts against the tensors that are there
    for check in arch.checks:
        check(config)
    run.all_rows()
    run.leftovers()
    pairs = tuple(keyvalues(arch, config, raw))
    if run.stored_twice:
        pairs += (KeyValue(TIED_KEY, "bool", True),)
    losses = [*weights.losses, *arch.losses(config), *run.losses]
    return replace(
        weights, tensors=run.tensors, aliases=weights.aliases | run.aliases, keyvalues=(*weights.keyvalues, *pairs),
        dropped=[*weights.dropped, *run.dropped], losses=losses, notes=list(weights.notes), naming="gguf",
    )  # fmt: skip


def keyvalues(arch: Architecture, config: Config, raw: dict[str, object]) -> Iterator[KeyValue]:
    """The model's facts as GGUF keys them, ``general.architecture`` first."""
    yield KeyValue("general.architecture", "string", arch.gguf)
    for key in arch.keys:
        if isinstance(key, Key):
            value = config[key.config]
            if value is not None:
                yield _pair(arch, key.kv, key.kind, value, config, key.config)
        else:
            for kv, kind, value in key.forward(config):
                if value is not None:
                    yield _pair(arch, kv, kind, value, config, kv)
    classes = raw.get("architectures")
    if isinstance(classes, list) and classes and classes[0] in arch.classes:
        yield KeyValue(CLASS_KEY, "string", str(classes[0]))


def _pair(arch: Architecture, kv: str, kind: str, value: object, config: Config, key: str) -> KeyValue:
    name = kv if kv.startswith(("general.", "tokenizer.")) else f"{arch.gguf}.{kv}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "f32" and isinstance(value, int | float) and number and abs(value) < 3.4e38:
        return KeyValue(name, kind, float(value))
    if kind.startswith("arr[") and isinstance(value, list | tuple):
        return KeyValue(name, kind, tuple(value))
    if kind == "u32" and isinstance(value, int) and number and 0 <= value < 2**32:
        return KeyValue(name, kind, value)
    if (kind == "bool" and isinstance(value, bool)) or (kind == "string" and isinstance(value, str)):
        return KeyValue(name, kind, value)
    wanted = {"u32": "a whole number", "f32": "a number", "bool": "true or false", "string": "text"}
    raise config.wrong(key, wanted.get(kind, "a list"))


class Run:
    """One conversion under way: which tensors are still to be explained, and what has been made."""

    def __init__(self, arch: Architecture, config: Config, weights: Weights) -> None:
        self.arch, self.config, self.weights = arch, config, weights
        self.left = dict(weights.tensors)
        self.prefix = self._prefix()
        classes = config.raw.get("architectures")
        self.bare = isinstance(classes, list) and bool(classes) and str(classes[0]).endswith("Model")
        self.tensors: dict[str, TensorView] = {}
        self.aliases: dict[str, Alias] = {}
        self.dropped: list[Dropped] = []
        self.losses: list[Loss] = []
        self.stored_twice = False
        self.layers = config.count(arch.layers)
        if self.layers > len(weights.tensors):
            raise Corrupt(
                "the config has more layers than the checkpoint has tensors", file=config.file, member=arch.layers,
                expected=f"at most {len(weights.tensors)}", found=self.layers,
            )  # fmt: skip

    def _prefix(self) -> str:
        """What the checkpoint's names lack before them, or (with a minus) have more than the rules' names."""
        base, outer = self.arch.base_prefix, self.arch.outer_prefix
        if base and not any(name.startswith(base) for name in self.left):
            return base
        if outer and any(name.startswith(outer) for name in self.left):
            return "-" + outer
        return ""

    def find(self, name: str) -> TensorView | None:
        """The source tensor of a rule's name, in the checkpoint's own spelling."""
        return self.weights.tensors.get(self.spelled(name))

    def spelled(self, name: str) -> str:
        if self.prefix.startswith("-"):
            return self.prefix[1:] + name
        return name.removeprefix(self.prefix)

    def all_rows(self) -> None:
        for row in self.arch.rows:
            for b in range(self.layers) if row.layered else (0,):
                self.one_row(row, b)
        for facts in self.arch.keys:
            if isinstance(facts, Facts) and facts.made is not None:
                for view in facts.made(self.config):
                    self.tensors[view.name] = view

    def one_row(self, row: Row, b: int) -> None:
        if row.when is not None and not row.when(self.config, b):
            return
        if row.present and self.find(row.present.replace("{b}", str(b))) is None:
            return
        if row.absent and self.find(row.absent.replace("{b}", str(b))) is not None:
            return
        names = list(self._names(row, b))
        views = [self.find(name) for name in names]
        targets = [t.replace("{b}", str(b)) for t in row.targets]
        if targets == [self.arch.head] and self._tied(views[0], targets[0]):
            return
        for name, view in zip(names, views, strict=True):
            if view is None:
                raise self._missing(name, targets)
        present = [v for v in views if v is not None]
        for view in present:
            if self.left.pop(view.name, None) is None:
                raise TypeError(f"two rows of {self.arch.name} take {view.name}")  # a fault in the family's table
        try:
            self.make(row, present, targets)
        except ArtifactkitError as error:
            raise error.located(tensor=present[0].name) from error.__cause__

    def _names(self, row: Row, b: int) -> Iterator[str]:
        for source in row.sources:
            name = source.replace("{b}", str(b))
            if "{e}" in name:
                key = row.count or self.arch.experts
                count = self.config.count(key)
                if count > len(self.weights.tensors):
                    raise Corrupt(
                        "the config has more experts than the checkpoint has tensors", file=self.config.file,
                        member=key, expected=f"at most {len(self.weights.tensors)}", found=count,
                    )  # fmt: skip
                yield from (name.replace("{e}", str(e)) for e in range(count))
            else:
                yield name

    def _tied(self, view: TensorView | None, target: str) -> bool:
        """Whether the output matrix is the embedding: then it is not stored a second time, unless it must be."""
        embedding = self.tensors.get(self.arch.embedding)
        if embedding is None:
            return False
        if view is None:
            if not self.config.flag("tie_word_embeddings") and not self.bare:
                return False
            if self.arch.must_have_head:
                self._twice(embedding, target)
            return True
        source = next((t for t in self.weights if t.came_from() == embedding.came_from()), None)
        if source is not None and view.same_bytes(source):
            del self.left[view.name]
            step = Step("renamed", f"{self.arch.gguf} in GGUF")
            tied = replace(view, name=target, origins=view.came_from(), steps=(*view.steps, step))
            if self.arch.must_have_head:
                self._twice(tied, target)
            else:
                self.aliases[target] = Alias(tied, self.arch.embedding)
            return True
        if not self.arch.may_untie:
            raise RouteRefused(
                f"llama.cpp's {self.arch.gguf} has no output matrix of its own", tensor=view.name,
                expected=f"the bytes of {source.name if source else 'the embedding'}, or none", found="other bytes",
                hint=f"if the two are equal, leave one out: --exclude {view.name}",
            )  # fmt: skip
        return False

    def _twice(self, view: TensorView, target: str) -> None:
        step = Step("copied", "the embedding, which is the output matrix too: llama.cpp asks for both")
        self.tensors[target] = replace(view, name=target, origins=view.came_from(), steps=(*view.steps, step))
        self.stored_twice = True

    def make(self, row: Row, views: list[TensorView], targets: list[str]) -> None:
        pieces = [Piece(v.dtype, v.shape, v.source) for v in views]
        steps: list[Step] = []
        for op in row.ops:
            pieces = op.forward(pieces, self.config)
            steps.append(Step(op.outcome, op.text))
        if len(pieces) != len(targets):
            raise TypeError(f"a row of {self.arch.name} makes {len(pieces)} tensors of {len(targets)} names")
        origins = tuple(origin for v in views for origin in v.came_from())
        before = views[0].steps if len(views) == 1 else ()
        renamed = Step("renamed", f"{self.arch.gguf} in GGUF")
        for target, piece in zip(targets, pieces, strict=True):
            done = steps
            if stays_f32(target, len(piece.shape)) and piece.dtype.name != "f32":
                done = [*steps, Step("cast", f"{piece.dtype} -> f32: llama.cpp takes it in f32")]
                piece = as_f32(piece)
            elif any(s.outcome == "shifted" for s in steps) and views[0].dtype.name != "f32":
                done = [Step("cast", f"{views[0].dtype} -> f32"), *steps]
            if target in self.tensors:
                raise TypeError(f"two rows of {self.arch.name} make {target}")
            self.tensors[target] = TensorView(
                target, piece.dtype, piece.shape, piece.source, origins, (*before, renamed, *done)
            )
        if any(s.outcome == "cut" for s in steps):
            text = f"{views[0].name}: {steps[-1].detail}"
            self.losses.append(Loss("tensor-dropped", text, tensor=targets[0]))

    def _missing(self, name: str, targets: list[str]) -> Corrupt:
        import difflib

        near = difflib.get_close_matches(self.spelled(name), list(self.left)[:20_000], n=1, cutoff=0.8)
        return Corrupt(
            "the checkpoint lacks a tensor that its config asks for", tensor=self.spelled(name),
            expected=f"a tensor of this name, for {targets[0]}", found="none",
            hint=f"the nearest name is {near[0]}" if near else None,
        )  # fmt: skip

    def leftovers(self) -> None:
        """Every tensor that no rule took is dropped for a reason, or stops the conversion."""
        for name, view in self.left.items():
            drop = next((d for d in self.arch.drops if re.fullmatch(d.pattern, name)), None)
            if drop is None:
                raise RouteRefused(
                    f"no rule of {self.arch.name} explains this tensor", tensor=name,
                    expected="the tensors that config.json announces", found=f"{view.dtype} {list(view.shape)}",
                    hint="if the model computes the same without it, leave it out: --exclude " + name,
                )  # fmt: skip
            self.dropped += [Dropped(o, drop.why, view.nbytes, asked=not drop.loss) for o in view.came_from()]
            if drop.loss:
                self.losses.append(Loss("tensor-dropped", drop.why, tensor=name))
