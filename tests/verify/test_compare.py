"""Two artifacts side by side, as `diff` and `verify` do: real files, one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.opening import open_source
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.source import Inline
from artifactkit.strided import Strided
from artifactkit.verify import compare as module
from artifactkit.verify.compare import compare, diff, first_difference, largest_difference

Arrays = dict[str, np.ndarray[Any, Any]]
BASE: Arrays = {
    "bias": np.array([0.5, -0.0, 3.0], np.float32),
    "ids": np.arange(12, dtype=np.int64).reshape(3, 4),
    "w": np.linspace(-2, 2, 300_000, dtype=np.float32).reshape(300, 1000),
}


def save(path: Path, arrays: Arrays) -> Weights:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return open_source(str(path)).weights


def changed(**arrays: Any) -> Arrays:
    """``BASE`` with some arrays replaced, or left out when None is given."""
    return {k: v for k, v in (BASE | arrays).items() if v is not None}


def at(name: str, index: tuple[int, ...], value: float) -> np.ndarray[Any, Any]:
    array = BASE[name].copy()
    array[index] = value
    return array


# What is changed, and what is said: (what, name, left, right, detail)
CHANGES: list[tuple[Arrays, list[tuple[str, ...]]]] = [
    (changed(), []),
    (changed(bias=None), [("only-left", "bias", "f32 [3]", "", "")]),
    (changed(extra=np.zeros(1)), [("only-right", "extra", "", "f64 [1]", "")]),
    (changed(ids=BASE["ids"].reshape(4, 3)), [("shape", "ids", "[3, 4]", "[4, 3]", "")]),
    (changed(ids=BASE["ids"].astype(np.int32)), [("dtype", "ids", "i64", "i32", "0 of 12 elements, max abs 0")]),
    (changed(ids=at("ids", (2, 3), 100)), [("values", "ids", "i64", "i64", "1 of 12 elements, max abs 89")]),
    (changed(w=at("w", (299, 999), 2.5)), [("values", "w", "f32", "f32", "1 of 300000 elements, max abs 0.5")]),
    (changed(bias=at("bias", (1,), 0.0)), [("values", "bias", "f32", "f32", "1 of 3 elements, max abs 0")]),
    (
        changed(bias=at("bias", (1,), np.nan)),
        [("values", "bias", "f32", "f32", "1 of 3 elements, max abs 0, 1 with NaN on one side or infinities")],
    ),
]


@pytest.mark.parametrize(("arrays", "said"), CHANGES, ids=range(len(CHANGES)))
def test_each_difference_is_named(tmp_path: Path, arrays: Arrays, said: list[tuple[str, ...]]) -> None:
    left, right = save(tmp_path / "a.npz", BASE), save(tmp_path / "b.npz", arrays)
    found = diff(left, right)
    assert [(d.what, d.name, d.left, d.right, d.detail) for d in found] == said
    assert bool(compare(right, left)) == (not said)


def test_metadata_differs(fixtures: Path) -> None:
    a = open_source(str(fixtures / "plain.safetensors")).weights
    b = open_source(str(fixtures / "plain.safetensors")).weights
    assert diff(a, b) == []
    b.metadata = {"format": "np", "long": "x" * 100}  # `format` names a framework, which a pickle could not
    assert [(d.what, d.name, d.left, d.right) for d in diff(a, b)] == [
        ("metadata", "long", "absent", "x" * 57 + "..."),
    ]


def converted(source: Path, out: Path, **options: Any) -> Weights:
    chosen = ConvertOptions(**options)
    execute(plan(str(source), str(out), chosen), chosen)
    return open_source(str(out)).weights


@pytest.mark.parametrize("dtype", [None, "f16", "bf16", "f8_e5m2", "f64"])
def test_a_conversion_verifies_and_a_damaged_one_does_not(tmp_path: Path, dtype: str | None) -> None:
    source = save(tmp_path / "a.npz", BASE)
    out = tmp_path / "out.safetensors"
    chosen = None if dtype is None else BY_NAME[dtype]
    report = compare(converted(tmp_path / "a.npz", out, dtype=chosen), source)
    assert report
    said = [c.name for c in report.checks]
    assert said[:2] == ["names, shapes, dtypes", "bit for bit"]
    assert said[2:] == ([] if dtype is None else [f"within half an ulp of {dtype}"])
    data = bytearray(out.read_bytes())
    data[-9] ^= 8  # within the last tensor
    out.write_bytes(data)
    report = compare(open_source(str(out)).weights, source)
    assert not report
    [failed] = report.failed
    assert failed.level == "values"


FAULTS: list[tuple[Callable[[Weights], None], str, str | None]] = [
    (lambda w: w.tensors.pop("bias") and None, "tensor missing", "bias"),
    (lambda w: w.tensors.update(x=w.tensors["w"]), "tensor unexplained", "x"),
    (lambda w: w.tensors.update(w=TensorView("w", BY_NAME["f32"], (1000, 300), w.tensors["w"].source)), "shape", "w"),
    (
        lambda w: w.tensors.update(ids=TensorView("ids", BY_NAME["f64"], (3, 4), w.tensors["ids"].source)),
        "dtype",
        "ids",
    ),
]


@pytest.mark.parametrize(("fault", "name", "tensor"), FAULTS, ids=[f[1] for f in FAULTS])
def test_accounting_fails(tmp_path: Path, fault: Callable[[Weights], None], name: str, tensor: str | None) -> None:
    source, artifact = save(tmp_path / "a.npz", BASE), save(tmp_path / "b.npz", BASE)
    fault(artifact)
    report = compare(artifact, source)
    assert not report
    assert (name, tensor) in [(c.name, c.tensor) for c in report.failed]


def test_nothing_compared_is_not_verified() -> None:
    empty = Weights({}, "npz")
    assert compare(empty, empty).checks
    assert [c.status for c in compare(empty, empty).checks] == ["passed"]


def test_the_first_byte_that_differs_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 8
    for block in (1, 7, 256, 4096):
        monkeypatch.setattr(module, "BLOCK", block)
        for index in (0, 1, 255, 256, 2047):
            other = bytearray(data)
            other[index] ^= 1
            assert first_difference(Inline(data), Inline(bytes(other))) == index
        backwards = Strided(Inline(data[::-1]), 1, 2047, (2048,), (-1,))
        assert first_difference(Inline(data), backwards) == -1
    assert first_difference(Inline(b""), Inline(b"")) == -1


def test_types_without_a_distance() -> None:
    packed = TensorView("w", BY_NAME["f4"], (2,), Inline(b"\x12"))
    assert largest_difference(packed, packed) == "not compared element by element"
    a = TensorView("w", BY_NAME["c64"], (1,), Inline(np.complex64(1 + 1j).tobytes()))
    b = TensorView("w", BY_NAME["c64"], (1,), Inline(np.complex64(1 - 2j).tobytes()))
    assert largest_difference(a, b) == "1 of 1 elements, max abs 3"
