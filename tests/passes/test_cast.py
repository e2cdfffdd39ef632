"""``--dtype`` as a pass: what is cast, what is said, what is counted, and when it is refused."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest

from artifactkit.artifact import Step, TensorView, Weights
from artifactkit.dtypes import BY_NAME, numel
from artifactkit.errors import Refused, UsageError
from artifactkit.passes.cast import CastStats, cast
from artifactkit.passes.tie import merge_aliases
from artifactkit.report import Loss
from artifactkit.source import Inline, Mapped, read_all

BF16, F16, F32, E4M3 = BY_NAME["bf16"], BY_NAME["f16"], BY_NAME["f32"], BY_NAME["f8_e4m3"]


def f32(name: str, *values: float, place: str | None = None) -> TensorView:
    raw = struct.pack(f"<{len(values)}f", *values)
    return TensorView(name, F32, (len(values),), Inline(raw, (place or name, 0)))


def of(*views: TensorView) -> Weights:
    return Weights({v.name: v for v in views}, "npz")


def raw(name: str, dtype: str, shape: tuple[int, ...]) -> TensorView:
    return TensorView(name, BY_NAME[dtype], shape, Inline(bytes(BY_NAME[dtype].nbytes(shape)), (name, 0)))


def test_floats_are_cast_and_the_rest_is_not() -> None:
    names = [n for n, d in BY_NAME.items() if n != "bf16" and d.block == 1]
    w = cast(of(*(raw(n, n, (2, 4)) for n in names)), BF16)
    changed = {n for n in names if w.tensors[n].dtype == BF16}
    assert changed == {"f16", "f32", "f64", "f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0"}
    assert all(w.tensors[n].shape == (2, 4) and w.tensors[n].nbytes == 16 for n in changed)
    note = "--dtype bf16 casts floats only; left as they are: 1 bool, 1 c128, 1 c32, 1 c64, 1 f4, 1 f6_e2m3"
    (said,) = w.notes
    assert said.startswith(note) and "1 i8" in said
    assert list(w.tensors) == names


def test_steps_and_losses() -> None:
    w = cast(of(f32("a", 1.5), raw("b", "f8_e4m3", (1,)), raw("c", "bf16", (1,))), BF16)
    assert w.tensors["a"].steps == (Step("cast", "f32 -> bf16"),)
    assert w.tensors["b"].steps == (Step("cast", "f8_e4m3 -> bf16"),)
    assert w.tensors["c"].steps == ()
    assert w.tensors["a"].came_from() == ("a",)
    assert w.losses == [Loss("dtype-narrowed", "f32 -> bf16", tensor="a", asked=True)]
    assert read_all(w.tensors["a"].source) == b"\xc0\x3f"


def test_the_source_is_left_as_it_was() -> None:
    before = of(f32("a", 1.5))
    cast(before, BF16)
    assert before.tensors["a"].dtype == F32 and not before.losses and not before.notes


def test_overflow_is_refused_with_the_greatest_value() -> None:
    """Case C07: [70000, 1] does not become [inf, 1]."""
    w = cast(of(f32("layer.weight", 70000.0, 1.0)), F16)
    with pytest.raises(Refused, match="values too large for f16") as caught:
        read_all(w.tensors["layer.weight"].source)
    error = caught.value
    assert error.tensor == "layer.weight" and error.exit_code == 1
    assert error.expected == "at most 65504 in magnitude"
    assert error.found == "70000, and 1 of 2 values beyond the type"
    assert error.hint == "--dtype bf16 has the range, or --overflow saturate|inf"
    assert read_all(cast(of(f32("layer.weight", 65504.0, 1.0)), F16).tensors["layer.weight"].source)


def test_the_greatest_value_is_that_of_the_whole_tensor() -> None:
    values = np.ones(3_000_000, np.float32)
    values[5], values[-1] = 66000, -1e30
    view = TensorView("w", F32, values.shape, Inline(values.tobytes(), ("w", 0)))
    with pytest.raises(Refused) as caught:
        read_all(cast(of(view), F16).tensors["w"].source)
    assert caught.value.found == f"{float(np.float32(1e30))!r}, and 2 of 3000000 values beyond the type"


@pytest.mark.parametrize(
    ("overflow", "dtype", "expected", "kind", "words"),
    [
        ("saturate", F16, "ff7b003c", "value-saturated", "1 of 2 values saturated, the greatest was 70000"),
        ("inf", F16, "007c003c", "value-infinite", "1 of 2 values became infinite or NaN, the greatest was 70000"),
        ("saturate", E4M3, "7e38", "value-saturated", "1 of 2 values saturated, the greatest was 70000"),
        ("inf", E4M3, "7f38", "value-infinite", "1 of 2 values became infinite or NaN, the greatest was 70000"),
    ],
)
def test_overflow_policies(overflow: str, dtype: object, expected: str, kind: str, words: str) -> None:
    stats = CastStats()
    w = cast(of(f32("a", 70000.0, 1.0)), dtype, overflow, stats)  # type: ignore[arg-type]
    assert read_all(w.tensors["a"].source).hex() == expected
    assert stats.losses() == [Loss(kind, words, tensor="a", asked=True)]  # type: ignore[arg-type]


def test_underflow_is_counted_and_not_asked_for() -> None:
    stats = CastStats()
    w = cast(of(f32("a", 1e-9, 1e-5, 0.0, -0.0, -1e-9), f32("b", 1.0)), F16, "refuse", stats)
    for view in w:
        read_all(view.source)
    assert stats.losses() == [Loss("value-underflow", "2 of 5 values became zero", tensor="a", asked=False)]
    assert (stats.counts["a"].subnormal, stats.counts["b"].subnormal) == (1, 0)


def test_nothing_is_counted_before_bytes_flow() -> None:
    stats = CastStats()
    cast(of(f32("a", 1e-9)), F16, "refuse", stats)
    assert stats.losses() == [] and stats.counts == {}


def test_each_element_counts_once_however_often_it_is_read() -> None:
    """One thread writes, another follows and compares; then the output is verified again."""
    values = np.full(300_000, 1e-9, np.float32)
    stats = CastStats()
    view = TensorView("w", F32, values.shape, Inline(values.tobytes(), ("w", 0)))
    source = cast(of(view), F16, "refuse", stats).tensors["w"].source
    written = threading.Barrier(2)

    def follow() -> None:
        for at in range(0, source.nbytes, 60_000):
            if at % 120_000 == 0:
                written.wait()
            source.read_into(at, memoryview(bytearray(60_000)))

    follower = threading.Thread(target=follow)
    follower.start()
    for at in range(0, source.nbytes, 120_000):
        source.read_into(at, memoryview(bytearray(120_000)))
        written.wait()
    follower.join()
    read_all(source)
    counts = stats.counts["w"]
    assert (counts.elements, counts.underflow) == (300_000, 300_000)


def test_any_cut_gives_the_same_bytes() -> None:
    view = f32("w", *range(100))
    source = cast(of(view), BF16).tensors["w"].source
    whole = read_all(source)
    for start, size in ((0, 1), (1, 3), (7, 100), (199, 1), (3, 0)):
        buffer = bytearray(size)
        source.read_into(start, memoryview(buffer))
        assert buffer == whole[start : start + size]


def test_ties_survive_a_cast() -> None:
    shared = f32("head", 1.0, 2.0, place="storage")
    w = cast(of(shared, f32("embed", 1.0, 2.0, place="storage"), f32("other", 1.0, 2.0)), BF16, "refuse", CastStats())
    assert w.tensors["head"].same_bytes(w.tensors["embed"])
    assert not w.tensors["head"].same_bytes(w.tensors["other"])
    merged = merge_aliases(w)
    assert list(merged.aliases) == ["head"] and list(merged.tensors) == ["embed", "other"]


def test_shapes_and_sizes() -> None:
    for shape in ((), (0,), (3, 0), (1, 1), (2, 3)):
        w = cast(of(raw("w", "f32", shape)), F16)
        assert w.tensors["w"].nbytes == 2 * numel(shape) == len(read_all(w.tensors["w"].source))


def test_what_nothing_is_cast_to() -> None:
    for name in ("i8", "bool", "c64", "f4", "f6_e2m3", "f8_e8m0", "u64"):
        with pytest.raises(UsageError, match="only floats are cast"):
            cast(of(f32("a", 1.0)), BY_NAME[name])
    with pytest.raises(UsageError, match="--overflow 'wrap'"):
        cast(of(f32("a", 1.0)), F16, "wrap")


def test_the_label_says_the_cast() -> None:
    source = cast(of(f32("a", 1.0)), BF16).tensors["a"].source
    assert isinstance(source, Mapped) and source.label == "cast f32 -> bf16 refuse"
