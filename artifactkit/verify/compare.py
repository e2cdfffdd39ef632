"""Two artifacts side by side: which tensors both have, and whether their values agree."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .. import ggml, mlx
from ..artifact import KeyValue, TensorView, Weights
from ..dtypes import DType
from ..floats import SOURCES
from ..modeling.architecture import Pairs
from ..modeling.backward import may_be_absent
from ..report import Check, Report, counted
from ..source import Forward, Source
from ..tokens.keyvalues import may_be_absent as tokenizer_may_lack
from . import graphs
from .blocks import Errors, Limit, limit_of
from .bounds import GRIDS, as_array, first_outside
from .groups import grouped

if TYPE_CHECKING:
    import numpy as np

BLOCK = 256 << 10  # bytes of each side at a time

Advance = Callable[[int], None]


def _nothing(nbytes: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not alike. ``left`` and ``right`` are short texts."""

    what: Literal["only-left", "only-right", "dtype", "shape", "values", "metadata", "file", "graph"]
    name: str
    left: str
    right: str
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        out: dict[str, object] = {"what": self.what, "name": self.name, "left": self.left, "right": self.right}
        return out | ({"detail": self.detail} if self.detail else {})


def first_difference(a: Source, b: Source, advance: Advance = _nothing) -> int:
    """Offset of the first byte that differs between two sources of one size, or -1. Memory: a few blocks."""
    left, right = Forward(a), Forward(b)
    for at in range(0, a.nbytes, BLOCK):
        size = min(BLOCK, a.nbytes - at)
        mine, other = left.read(at, size), right.read(at, size)
        advance(size)
        if mine != other:
            return at + next(i for i in range(size) if mine[i] != other[i])
    return -1


def _element_blocks(a: TensorView, b: TensorView) -> Iterator[tuple[int, bytearray, bytearray]]:
    """(first element, bytes of a, bytes of b) in blocks of elements, good until the next. Types of whole bytes."""
    step = max(1, BLOCK // max(a.dtype.itemsize, b.dtype.itemsize))
    left, right = Forward(a.source), Forward(b.source)
    for first in range(0, a.numel, step):
        count = min(step, a.numel - first)
        yield (
            first,
            left.read(first * a.dtype.itemsize, count * a.dtype.itemsize),
            right.read(first * b.dtype.itemsize, count * b.dtype.itemsize),
        )


def first_unrounded(a: TensorView, b: TensorView, advance: Advance = _nothing) -> tuple[int, float, float] | None:
    """The first element of ``b`` that is not that of ``a`` rounded to the float type of ``b``; with both values."""
    for first, left, right in _element_blocks(a, b):
        xs, ys = as_array(left, a.dtype), as_array(right, b.dtype)
        bad = first_outside(xs, a.dtype, ys, b.dtype)
        advance(len(right))
        if bad >= 0:
            return first + bad, float(xs[bad]), float(ys[bad])
    return None


def floats(tensor: TensorView) -> TensorView:
    """A quantised tensor as the f32 values that it stands for; others as they are."""
    if tensor.dtype.block == 1 or tensor.dtype.name in ggml.INTERNAL:
        return tensor
    return replace(tensor, dtype=ggml.F32, source=ggml.dequantized(tensor.source, tensor.dtype))


def quantised(a: TensorView, b: TensorView, advance: Advance = _nothing) -> tuple[str, str | None]:
    """(by which limit, what is wrong or None) of the blocks ``b`` that floats ``a`` are said to have become.

    Whether an importance matrix was used is not known, so a proven bound is tried first, and a ceiling said to be one.
    """
    bound = limit_of(b.dtype, imatrix=False)
    wrong = _beyond(a, b, bound, advance)
    ceiling = limit_of(b.dtype, imatrix=True)
    if wrong is not None and ceiling is not bound:
        bound, wrong = ceiling, _beyond(a, b, ceiling, _nothing)
    return f"within the {'bound' if bound.proven else 'ceiling'} of {b.dtype}", wrong


def _beyond(a: TensorView, b: TensorView, limit: Limit, advance: Advance) -> str | None:
    nbytes, block = b.dtype.bits // 8, b.dtype.block
    errors = Errors(b.dtype, limit)
    step = max(1, BLOCK // (block * a.dtype.itemsize))
    left, right = Forward(a.source), Forward(b.source)
    total = b.nbytes // nbytes
    for first in range(0, total, step):
        count = min(step, total - first)
        size = block * a.dtype.itemsize
        values = ggml.as_f32(left.read(first * size, count * size), a.dtype)
        back = ggml.dequantize(bytes(right.read(first * nbytes, count * nbytes)), b.dtype)
        at = errors.add(values, back)
        advance(count * nbytes)
        if at >= 0:
            return f"element {first * block + at}: {back[at]:g} is too far from {values[at]:g}"
    return f"off by {errors.relative:.3g} of its root mean square" if errors.far else None


def largest_difference(a: TensorView, b: TensorView) -> str:
    """How far two tensors of one shape are apart: ``3 of 12 elements, max abs 0.5`` for types that have a distance."""
    import numpy as np

    kinds = (a.dtype, b.dtype)
    if any(kind.block > 1 or kind.bits % 8 or kind.name == "c32" for kind in kinds):
        return "not compared element by element"
    count, most, nans = 0, 0.0, 0
    for _, left, right in _element_blocks(a, b):
        xs, ys = as_array(left, a.dtype), as_array(right, b.dtype)
        if a.dtype == b.dtype:
            size = a.dtype.itemsize
            raw = np.frombuffer(left, np.uint8).reshape(-1, size) != np.frombuffer(right, np.uint8).reshape(-1, size)
            differ = raw.any(axis=1)
        else:
            differ = _wide(xs, a.dtype) != _wide(ys, b.dtype)
        count += int(differ.sum())
        if differ.any():
            with np.errstate(all="ignore"):
                apart = np.abs(_wide(xs[differ], a.dtype) - _wide(ys[differ], b.dtype))
            nans += int(np.isnan(apart).sum())
            finite = apart[~np.isnan(apart)]
            most = max(most, float(finite.max()) if finite.size else 0.0)
    text = f"{count} of {a.numel} elements, max abs {most:g}"
    return text + (f", {nans} with NaN on one side or infinities" if nans else "")


def _wide(values: np.ndarray, dtype: DType) -> np.ndarray:
    import numpy as np

    return values.astype(np.complex128 if dtype.cls == "complex" else np.float64)


def tensor_difference(a: TensorView, b: TensorView, advance: Advance = _nothing) -> Difference | None:
    """The difference between two tensors of one name, exactly: another type is a difference."""
    if a.dtype != b.dtype:
        same_shape = a.shape == b.shape
        detail = largest_difference(a, b) if same_shape and a.numel else ""
        return Difference("dtype", a.name, a.dtype.name, b.dtype.name, detail)
    if a.shape != b.shape:
        return Difference("shape", a.name, str(list(a.shape)), str(list(b.shape)))
    if a.source == b.source or first_difference(a.source, b.source, advance) < 0:
        return None
    return Difference("values", a.name, a.dtype.name, b.dtype.name, largest_difference(a, b))


def diff(a: Weights, b: Weights, advance: Advance = _nothing) -> list[Difference]:
    """Everything in which two artifacts' weights differ, tensors first, in order of name."""
    found: list[Difference] = []
    for name in sorted({*a.tensors, *b.tensors}):
        left, right = a.tensors.get(name), b.tensors.get(name)
        if left is None or right is None:
            present = left or right
            assert present is not None
            text = f"{present.dtype} {list(present.shape)}"
            found.append(
                Difference("only-left", name, text, "") if right is None else Difference("only-right", name, "", text)
            )
        else:
            difference = tensor_difference(left, right, advance)
            if difference is not None:
                found.append(difference)
    # `format` says which framework the file was written for; a pickle has no place to say it.
    for key in sorted({*a.metadata, *b.metadata} - {"format"}):
        mine, other = a.metadata.get(key), b.metadata.get(key)
        if mine != other:
            found.append(Difference("metadata", key, _text(mine), _text(other)))
    if a.graph is not None and b.graph is not None:
        found += [Difference("graph", *texts) for texts in graphs.differences(a.graph, b.graph)]
    if a.keyvalues and b.keyvalues:
        found += _pair_differences(a, b)
    return found


def _pair_differences(a: Weights, b: Weights) -> Iterator[Difference]:
    """Key-values that only one side has, or that differ; long arrays are compared as they are stored."""
    mine, other = ({pair.key: pair for pair in side.keyvalues} for side in (a, b))
    for key in sorted({*mine, *other}):
        left, right = mine.get(key), other.get(key)
        if left is None or right is None or not left.same(right):
            yield Difference("metadata", key, _pair_text(left), _pair_text(right))


def _pair_text(pair: KeyValue | None) -> str:
    if pair is None:
        return "absent"
    return f"{pair.kind} {pair.count} elements" if pair.is_array else _text(f"{pair.kind} {pair.value}")


def _text(value: str | None) -> str:
    return "absent" if value is None else value if len(value) <= 60 else value[:57] + "..."


def matched(nameless: Weights, named: Weights) -> Weights:
    """``nameless``, read from a format without names, under the name that the one tensor of ``named`` has."""
    if len(nameless.tensors) != 1 or len(named.tensors) != 1:
        return nameless
    [tensor], [name] = nameless.tensors.values(), named.tensors
    return replace(nameless, tensors={name: tensor.renamed(name, "the format holds no names")})


def _compare_pairs(report: Report, artifact: Weights, source: Weights) -> None:
    """The typed facts that the source's config.json asks for must be in the artifact, and be those."""
    if artifact.format == source.format or not source.keyvalues:
        return
    held = {pair.key: pair for pair in artifact.keyvalues}
    arch = held.get("general.architecture")
    pairs = Pairs(str(arch.value) if arch is not None else "", artifact.keyvalues)
    wrong = 0
    for pair in source.keyvalues:
        mine = held.get(pair.key)
        if mine is None and may_be_absent(pair.key.removeprefix(f"{pairs.arch}."), pair.value, pairs):
            continue
        if mine is None and tokenizer_may_lack(pair.key, pair.value, artifact.keyvalues):
            continue
        if mine is not None and mine.kind == pair.kind and _same_value(mine, pair):
            continue
        detail = f"{pair.key}: expected {_pair_text(pair)}, found {_pair_text(mine)}"
        report.add(Check("accounting", "key-value", "failed", detail))
        wrong += 1
    if not wrong:
        told = f"{counted(len(source.keyvalues), 'key-value pair')} as config.json asks"
        report.add(Check("accounting", "key-values", "passed", told))


def _same_value(one: KeyValue, two: KeyValue) -> bool:
    if one.kind == "f32" and isinstance(one.value, int | float) and isinstance(two.value, int | float):
        return struct.pack("<f", one.value) == struct.pack("<f", two.value)
    return one.elements() == two.elements()


def compare(artifact: Weights, source: Weights, advance: Advance = _nothing) -> Report:
    """Levels 1 and 2: every source tensor is in the artifact, nothing else is, and every value is right.

    A tensor of another float type must be the source rounded to it (widening is exact); other types must be equal.
    """
    report = Report()
    for found in graphs.check(artifact, source):
        report.add(found)
    _compare_pairs(report, artifact, source)
    for name, error in source.refused.items():
        report.add(Check("values", "not compared", "not-verified", error.what, name))
    missing = [name for name in source.tensors if name not in artifact.tensors]
    extra = [name for name in artifact.tensors if name not in source.tensors]
    for name in missing:
        report.add(Check("accounting", "tensor missing", "failed", "the source has it, the artifact does not", name))
    for name in extra:
        report.add(
            Check("accounting", "tensor unexplained", "failed", "the artifact has it, the source does not", name)
        )
    exact, rounded = 0, 0
    ways: Counter[str] = Counter()
    dtypes: set[str] = set()
    shapes_wrong = 0
    for name, want in source.tensors.items():
        have = artifact.tensors.get(name)
        if have is None:
            continue
        if have.shape != want.shape:
            shapes_wrong += 1
            detail = f"expected {list(want.shape)}, found {list(have.shape)}"
            report.add(Check("accounting", "shape", "failed", detail, name))
        elif isinstance(have.source, mlx.Dequantized) and floats(want).dtype.name in SOURCES:
            way, wrong = grouped(floats(want), have, have.source, advance)
            ways[way] += wrong is None
            if wrong is not None:
                report.add(Check("values", way, "failed", wrong, name))
        elif have.dtype == want.dtype:
            at = -1 if have.source == want.source else first_difference(want.source, have.source, advance)
            if at >= 0:
                detail = f"first difference at byte {at}: {largest_difference(want, have)}"
                report.add(Check("values", "bit for bit", "failed", detail, name))
            exact += at < 0
        elif have.dtype.block > 1 and floats(want).dtype.name in SOURCES:
            way, wrong = quantised(floats(want), have, advance)
            ways[way] += wrong is None
            if wrong is not None:
                report.add(Check("values", way, "failed", wrong, name))
        elif have.dtype.name in GRIDS and floats(want).dtype.name in GRIDS:
            want = floats(want)
            bad = first_unrounded(want, have, advance)
            dtypes.add(have.dtype.name)
            if bad is not None:
                detail = f"element {bad[0]}: {bad[2]!r} is not {bad[1]!r} rounded to {have.dtype}"
                report.add(Check("values", "half an ulp", "failed", detail, name))
            rounded += bad is None
        else:
            shapes_wrong += 1
            report.add(Check("accounting", "dtype", "failed", f"expected {want.dtype}, found {have.dtype}", name))
    if not missing and not extra and not shapes_wrong:
        report.add(
            Check(
                "accounting", "names, shapes, dtypes", "passed", f"{counted(len(source.tensors), 'tensor')} explained"
            )
        )
    if exact:
        report.add(Check("values", "bit for bit", "passed", f"{exact} of {counted(len(source.tensors), 'tensor')}"))
    for way in sorted(way for way, n in ways.items() if n):
        report.add(Check("values", way, "passed", f"{ways[way]} of {counted(len(source.tensors), 'tensor')}"))
    if rounded:
        names = ", ".join(sorted(dtypes))
        report.add(
            Check(
                "values",
                f"within half an ulp of {names}",
                "passed",
                f"{rounded} of {counted(len(source.tensors), 'tensor')}",
            )
        )
    return report
