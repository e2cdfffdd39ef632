"""Level 2 on real artifacts: what is compared how, and that any wrong value is found and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.errors import VerificationFailed
from artifactkit.files import File
from artifactkit.passes.cast import cast
from artifactkit.placing import Progress, SameBytes, place
from artifactkit.source import FileSpan, Inline, Mapped, Source
from artifactkit.strided import Strided
from artifactkit.types import OutputFile, Part
from artifactkit.verify.values import WithinHalfUlp, bound_text, cast_of, checker

VALUES = np.linspace(-4, 4, 70_001, dtype=np.float32)


def tensor(values: np.ndarray, dtype: str = "f32", name: str = "w") -> TensorView:
    return TensorView(name, BY_NAME[dtype], values.shape, Inline(values.tobytes()))


def cast_one(view: TensorView, dtype: str) -> TensorView:
    weights = cast(Weights({view.name: view}, "npz"), BY_NAME[dtype])
    return weights.tensors[view.name]


def fed(source: Source, data: bytes, cuts: int = 1000) -> None:
    """Feed the checker of ``source`` with ``data`` as the output, in blocks of ``cuts`` bytes."""
    check = checker(Part(24, source, "w"), "out")
    for at in range(0, len(data), cuts):
        check.feed(at, memoryview(data)[at : at + cuts])
    check.finish()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8_e4m3", "f8_e5m2", "f64"])
@pytest.mark.parametrize("cuts", [1, 999, 1 << 16])
def test_a_cast_is_judged_by_half_an_ulp(dtype: str, cuts: int) -> None:
    view = cast_one(tensor(VALUES[: 5000 if cuts == 1 else None]), dtype)
    out = bytearray(view.nbytes)
    view.source.read_into(0, memoryview(out))
    fed(view.source, bytes(out), cuts)
    assert isinstance(checker(Part(0, view.source, "w"), "out"), WithinHalfUlp)
    size = BY_NAME[dtype].itemsize
    for element in (0, 1, 2499, view.numel - 1):
        bad = bytearray(out)
        bad[element * size] ^= 2
        with pytest.raises(VerificationFailed) as caught:
            fed(view.source, bytes(bad), cuts)
        assert caught.value.tensor == "w"
        assert f"element {element} within" in (caught.value.expected or "")


def test_a_cast_of_a_view_that_is_not_contiguous() -> None:
    base = Inline(VALUES[:70_000].tobytes())
    view = TensorView("w", BY_NAME["f32"], (700, 100), Strided(base, 4, 0, (700, 100), (1, 700)))
    view = cast_one(view, "bf16")
    out = bytearray(view.nbytes)
    view.source.read_into(0, memoryview(out))
    fed(view.source, bytes(out), 777)
    out[-1] ^= 1
    with pytest.raises(VerificationFailed):
        fed(view.source, bytes(out), 777)


def test_powers_of_two_are_cast_and_judged() -> None:
    view = cast_one(TensorView("w", BY_NAME["f8_e8m0"], (256,), Inline(bytes(range(256)))), "f32")
    out = bytearray(view.nbytes)
    view.source.read_into(0, memoryview(out))
    fed(view.source, bytes(out))
    assert isinstance(checker(Part(0, view.source, "w"), "out"), WithinHalfUlp)


def test_what_is_not_cast_must_be_equal(tmp_path: Path) -> None:
    for source in (Inline(b"abcdef"), Strided(Inline(b"fedcba"), 1, 5, (6,), (-1,))):
        assert cast_of(source) is None
        assert isinstance(checker(Part(0, source), "out"), SameBytes)
        fed(source, b"abcdef", 4)
        with pytest.raises(VerificationFailed, match="differs") as caught:
            fed(source, b"abcdeF", 4)
        assert (caught.value.offset, caught.value.found) == (24 + 5, "byte 0x46")


def test_how_it_is_said() -> None:
    assert bound_text(tensor(VALUES)) == "bit for bit"
    assert bound_text(cast_one(tensor(VALUES), "bf16")) == "within half an ulp of bf16"


def test_a_wrong_cast_never_reaches_the_disk_unseen(tmp_path: Path) -> None:
    """A kernel that is wrong for one value in 70,001, in a whole placing."""
    view = cast_one(tensor(VALUES), "f16")
    cast_rows = view.source
    assert isinstance(cast_rows, Mapped)
    right = cast_rows.fn

    def wrong(rows: memoryview, out: memoryview) -> None:
        right(rows, out)
        values, sources = np.frombuffer(out, np.uint16), np.frombuffer(rows, np.float32)
        values[sources == VALUES[54_321]] += 1

    for fn, good in ((right, True), (wrong, False)):
        source = Mapped(cast_rows.base, cast_rows.rows, 4, 2, fn, cast_rows.label)
        output = OutputFile("out", source.nbytes, (Part(0, source, "w"),))
        try:
            place(output, str(tmp_path / "out"), Progress(), lambda part: checker(part, "out"))
            assert good
        except VerificationFailed as error:
            assert not good
            assert "element 54321" in (error.expected or "")


def test_a_span_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"--" + VALUES.tobytes())
    view = TensorView("w", BY_NAME["f32"], VALUES.shape, FileSpan(File(tmp_path / "f"), 2, VALUES.nbytes))
    out = VALUES.astype(np.float16)
    fed(cast_one(view, "f16").source, out.tobytes(), 4096)
