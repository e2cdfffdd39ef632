"""Tied weights: names that are one tensor in storage are stored once, for formats that can record it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..artifact import Alias, Step, TensorView, Weights
from ..report import Loss
from ..source import Concat, FileSpan, Inline, Mapped, Read, Slice, Source, roots
from ..strided import Strided

# A metadata key that names a framework. A tensor of this name is stored a second time, since its tie would be misread.
RESERVED = ("format",)


def merge_aliases(weights: Weights) -> Weights:
    """Move all but one name of each group of tied tensors from ``tensors`` to ``aliases``.

    Tied are tensors of equal span, type and shape. Which name is kept (``_rank``) does not depend on their order. Views
    that overlap without being equal become independent copies; they say so in a step ``copied`` and in the notes. Reads
    no tensor byte.
    """
    groups: dict[tuple[object, ...], list[TensorView]] = {}
    for tensor in weights:
        if tensor.nbytes and not _placeless(tensor.source):
            groups.setdefault((tensor.dtype.name, tensor.shape, tensor.source), []).append(tensor)
    tensors = dict(weights.tensors)
    aliases = dict(weights.aliases)
    for group in groups.values():
        kept, *others = sorted(group, key=lambda t: (_rank(t.name), t.name))
        for tensor in others:
            if tensor.name in RESERVED or tensor.name in weights.metadata:
                step = Step("copied", f"stored beside {kept.name}: a metadata key has its name, where ties go")
                tensors[tensor.name] = replace(tensor, origins=tensor.came_from(), steps=(*tensor.steps, step))
            else:
                aliases[tensor.name] = Alias(tensor, kept.name)
                del tensors[tensor.name]
    merged = replace(weights, tensors=tensors, aliases=aliases, losses=list(weights.losses), notes=list(weights.notes))
    _note_copies(merged)
    _drop_lookalikes(merged)
    return merged


def _rank(name: str) -> int:
    """Which of the names of one tensor is kept: the embedding's before the output head's, then in alphabetical order.

    As transformers saves them (``_tied_weights_keys``): it, vLLM and mlx-lm make the head from the embedding when the
    config ties them, and some of them skip a stored ``lm_head.weight``. Alphabetical order alone, the rule of
    huggingface_hub, which knows nothing of the model, would keep ``lm_head.weight``.
    """
    parts = name.split(".")
    if "shared" in parts:  # T5's one embedding for encoder, decoder and head
        return 0
    return 1 if any("embed" in part or part == "wte" for part in parts) else 2


def _placeless(source: Source) -> bool:
    """Bytes without a place in a file: two equal constants are equal values, but nobody tied them."""
    return any(isinstance(root, Inline) and not root.place[0] for root in roots(source))


def _drop_lookalikes(weights: Weights) -> None:
    """Metadata that a reader would take for a tie (its value names a tensor, its key none) does not travel."""
    metadata = dict(weights.metadata)
    for key in sorted(weights.metadata):
        value = metadata[key]
        if key not in RESERVED and key not in weights.tensors and value in weights.tensors:
            del metadata[key]
            text = f"metadata {key!r}: {value!r} would be read as a tied tensor"
            weights.losses.append(Loss("metadata-dropped", text))
    weights.metadata = metadata


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where elements lie: bytes ``low`` to ``high`` of a storage, each of ``width``, ``period`` or a multiple apart."""

    storage: object
    low: int
    high: int
    period: int
    width: int

    def shares(self, other: _Extent) -> bool:
        """Whether the two have a byte in common; where steps differ it may say so although they have none."""
        if self.storage != other.storage or self.high <= other.low or other.high <= self.low:
            return False
        # Positions are low + k * period: two combs that never meet are real and imaginary parts, even and odd columns.
        step = math.gcd(self.period, other.period)
        if step == 0 or self.width != other.width:
            return True
        distance = (self.low - other.low) % step
        return distance < other.width or distance > step - self.width


def _base(source: Source) -> _Extent:
    """Where the bytes lie that a slice or a strided view counts in: what was mapped has places of its own."""
    if isinstance(source, Mapped | Concat):
        return _Extent(source, 0, source.nbytes, 1, 1)
    return _extent(source)


def _extent(source: Source) -> _Extent:
    if isinstance(source, Mapped):
        return _extent(source.base)
    if isinstance(source, FileSpan):
        return _Extent(source.file.path, source.offset, source.offset + source.nbytes, 1, 1)
    if isinstance(source, Slice):
        base = _base(source.base)
        if base.period == 1:
            low = base.low + source.offset
            return _Extent(base.storage, low, low + source.nbytes, 1, 1)
    if isinstance(source, Strided):
        base = _base(source.base)
        if base.period == 1:
            reach = [(n - 1) * s for n, s in zip(source.shape, source.strides, strict=True)]
            low = source.offset + sum(r for r in reach if r < 0)
            high = source.offset + sum(r for r in reach if r > 0) + 1
            width = source.itemsize
            period = math.gcd(*(s for n, s in zip(source.shape, source.strides, strict=True) if n > 1)) * width
            return _Extent(base.storage, base.low + low * width, base.low + high * width, period, width)
    if isinstance(source, Read):
        return _Extent((id(source.data), source.place), source.offset, source.offset + source.nbytes, 1, 1)
    return _Extent(source, 0, source.nbytes, 1, 1)


def _note_copies(weights: Weights) -> None:
    """Record which tensors share bytes with another without being it: each gets its own copy in the output."""
    spans: dict[object, list[tuple[_Extent, TensorView]]] = {}
    for tensor in weights:
        if tensor.nbytes and not _placeless(tensor.source):
            extent = _extent(tensor.source)
            spans.setdefault(extent.storage, []).append((extent, tensor))
    copied: dict[str, str] = {}
    for members in spans.values():
        members.sort(key=lambda m: (m[0].low, -m[0].high, m[1].name))
        reaching: list[tuple[_Extent, TensorView]] = []  # those that end after the current one begins
        for extent, tensor in members:
            reaching = [(e, t) for e, t in reaching if e.high > extent.low][-64:]
            for earlier, other in reaching:
                if extent.shares(earlier):
                    copied.setdefault(tensor.name, other.name)
                    copied.setdefault(other.name, tensor.name)
                    break
            reaching.append((extent, tensor))
    for name, other_name in copied.items():
        tensor = weights.tensors[name]
        step = Step("copied", f"shares bytes with {other_name} in the source, is an independent copy here")
        weights.tensors[name] = replace(tensor, origins=tensor.came_from(), steps=(*tensor.steps, step))
    if copied:
        names = sorted(copied)
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        weights.notes.append(f"views of shared storage become independent copies: {', '.join(names[:5])}{more}")
