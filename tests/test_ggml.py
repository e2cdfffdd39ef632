"""Quantising and dequantising: ggml's own bytes, whatever the cut; what it would stumble over refused before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import libgguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as s

from artifactkit import ggml
from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BLOCKS, BY_NAME, DType
from artifactkit.errors import MissingExtra, Refused, UsageError, VerificationFailed
from artifactkit.ggml import NEEDS_IMATRIX, TYPES, Quantization
from artifactkit.passes.dequantize import dequantize
from artifactkit.passes.quantize import one_type, quantize
from artifactkit.source import Inline, read_all
from artifactkit.types import Part
from artifactkit.verify.blocks import Errors, limit_of
from artifactkit.verify.compare import compare
from artifactkit.verify.values import WithinBlockError, checker

FEW = {"iq1_m", "iq1_s", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_s"}  # quantised at some rows a second
# ggml makes tables of lattice points when the first block of these is quantised, and takes seconds for it.
QUANTISED = [
    pytest.param(d, marks=pytest.mark.slow if d.name in FEW - {"iq3_s"} else (), id=d.name) for d in TYPES.values()
]


def normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("<f4")


def tensor(values: np.ndarray, name: str = "w.weight", dtype: str = "f32") -> TensorView:
    return TensorView(name, BY_NAME[dtype], values.shape, Inline(values.tobytes(), ("f", 0)))


def weights(*tensors: TensorView) -> Weights:
    return Weights({t.name: t for t in tensors}, "gguf")


def ones(dtype: DType, row: int) -> np.ndarray | None:
    return np.ones(row, "<f4") if dtype.name in NEEDS_IMATRIX else None


def source_of(values: np.ndarray, dtype: DType, imatrix: np.ndarray | None = None, **more: Any) -> ggml.Quantized:
    raw, matrices = (None, 1) if imatrix is None else ggml.imatrix_for(imatrix, values.shape)
    work = Quantization(
        "w", more.pop("source", ggml.F32), dtype, values.shape[-1], raw, matrices, more.pop("threads", 1)
    )
    return ggml.quantized(Inline(values.tobytes()), values.shape, work)


def library(values: np.ndarray, dtype: DType, imatrix: np.ndarray | None = None) -> bytes:
    return libgguf.quantize_rows(values, dtype.ggml, imatrix).tobytes()


@pytest.mark.parametrize("dtype", QUANTISED)
def test_the_bytes_are_the_librarys(dtype: DType) -> None:
    values = normal((2 if dtype.name in FEW else 64, 512))
    imatrix = ones(dtype, 512)
    want = library(values, dtype, imatrix)
    for threads in (1, 2):
        assert read_all(source_of(values, dtype, imatrix, threads=threads)) == want


@pytest.mark.parametrize("name", ["q4_0", "q8_0", "q4_1", "q5_0", "q5_1", "tq1_0", "tq2_0", "mxfp4"])
def test_the_bytes_are_those_of_ggufs_own_python(name: str) -> None:
    values = normal((8, 512), 3)
    kind = gguf.GGMLQuantizationType(BY_NAME[name].ggml)
    assert read_all(source_of(values, BY_NAME[name])) == gguf.quants.quantize(values, kind).tobytes()


@pytest.mark.parametrize("dtype", [d for d in TYPES.values() if d.name != "q1_0"], ids=str)
def test_dequantised_values_are_those_of_ggufs_own_python(dtype: DType) -> None:
    """Blocks of random bytes, scales and all, so that every code is met; those that are no numbers left out."""
    raw = np.random.default_rng(5).integers(0, 256, (64, dtype.bits // 8), np.uint8)
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(dtype.ggml)).astype("<f4")
    ours = np.frombuffer(read_all(ggml.dequantized(Inline(raw.tobytes()), dtype)), "<f4").reshape(theirs.shape)
    finite = np.isfinite(theirs).all(axis=1)
    assert finite.sum() > 32
    np.testing.assert_allclose(ours[finite], theirs[finite], rtol=1e-6, atol=0)


@settings(max_examples=30, deadline=None)
@given(data=s.data())
def test_however_it_is_read(data: s.DataObject) -> None:
    dtype = BY_NAME[data.draw(s.sampled_from(["q4_0", "q8_0", "q5_1", "q4_k", "nvfp4", "q6_k"]))]
    shape = (data.draw(s.integers(1, 5)), dtype.block * data.draw(s.integers(1, 3)))
    values = normal(shape, data.draw(s.integers(0, 99)))
    source = source_of(values, dtype)
    want = library(values, dtype)
    assert source.nbytes == len(want)
    at = data.draw(s.integers(0, len(want)))
    end = data.draw(s.integers(at, len(want)))
    piece = bytearray(end - at)
    source.read_into(at, memoryview(piece))
    assert piece == want[at:end]
    back = ggml.dequantized(Inline(want), dtype)
    floats = libgguf.dequantize_rows(np.frombuffer(want, "u1"), dtype.ggml).tobytes()
    piece = bytearray(end - at)
    back.read_into(at, memoryview(piece))
    assert piece == floats[at:end]


@pytest.mark.parametrize("held", ["f16", "bf16", "f64"])
def test_sources_of_other_floats(held: str) -> None:
    import ml_dtypes

    kinds = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}
    values = normal((4, 256)).astype(kinds[held])
    work = Quantization("w", BY_NAME[held], BY_NAME["q8_0"], 256)
    source = ggml.quantized(Inline(values.tobytes()), values.shape, work)
    assert read_all(source) == library(values.astype("<f4"), BY_NAME["q8_0"])


def test_rows_as_long_as_a_file_are_cut_into_blocks() -> None:
    values = normal((1, 2 << 20))
    source = source_of(values, BY_NAME["q4_k"])
    assert source.in_row_bytes == 4 * 256
    part = bytearray(144 * 3)
    source.read_into(144 * 1000, memoryview(part))
    assert part == library(values[:, 256_000:256_768], BY_NAME["q4_k"])


def test_an_imatrix_by_expert() -> None:
    values, weight = normal((3, 4, 256)), np.abs(normal((3, 256), 1)) * 10
    got = read_all(source_of(values, BY_NAME["q4_k"], weight, threads=2))
    want = b"".join(library(values[i], BY_NAME["q4_k"], weight[i]) for i in range(3))
    assert got == want != library(values, BY_NAME["q4_k"])


# -- refusals, each with a twin that passes


@pytest.mark.parametrize("name", sorted(NEEDS_IMATRIX))
def test_types_that_need_an_imatrix(name: str) -> None:
    values = normal((1, 256))
    with pytest.raises(Refused, match="without an importance matrix"):
        source_of(values, BY_NAME[name])
    assert source_of(values, BY_NAME[name], np.ones(256, "f4")).nbytes == BY_NAME[name].bits // 8


def test_those_that_ggml_would_abort_on_are_among_them() -> None:
    for dtype in TYPES.values():
        assert not libgguf.quantize_requires_imatrix(dtype.ggml) or dtype.name in NEEDS_IMATRIX


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_rows_of_no_whole_blocks(dtype: DType) -> None:
    with pytest.raises(Refused, match="whole number of blocks") as caught:
        source_of(normal((dtype.block, dtype.block + 8)), dtype, ones(dtype, dtype.block + 8))
    assert caught.value.found == f"{dtype.block + 8} elements in a row"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["q8_0", "q4_k", "iq4_nl", "mxfp4"])
def test_what_is_no_number(name: str, bad: float) -> None:
    values = normal((5, 512))
    values[3, 300] = bad
    with pytest.raises(Refused, match="no finite number") as caught:
        read_all(source_of(values, BY_NAME[name]))
    assert caught.value.tensor == "w"
    block = 300 // BY_NAME[name].block
    assert caught.value.found == f"{bad} in row 3, element 300 (block {block})"


@pytest.mark.parametrize(
    ("name", "most"), [("q8_0", 127 * 65504.0), ("q4_0", 8 * 65504.0), ("q4_1", 65504.0), ("nvfp4", 2688.0)]
)
def test_values_too_large_for_the_scale(name: str, most: float) -> None:
    values = normal((2, 64))
    values[1, 5] = -most * 0.99
    assert np.isfinite(ggml.dequantize(read_all(source_of(values, BY_NAME[name])), BY_NAME[name])).all()
    values[1, 5] = -most * 1.01
    with pytest.raises(Refused, match="too large for the scales") as caught:
        read_all(source_of(values, BY_NAME[name]))
    assert "row 1, element 5" in str(caught.value.found)


@pytest.mark.parametrize(
    ("imatrix", "words"),
    [
        (np.ones(255, "f4"), "another shape"),
        (np.ones(512, "f4"), "another shape"),
        (np.r_[np.ones(255), np.nan], "no importance"),
        (np.r_[np.ones(255), np.inf], "no importance"),
        (np.r_[np.ones(255), -1], "no importance"),
    ],
)
def test_imatrices_that_do_not_fit(imatrix: np.ndarray, words: str) -> None:
    with pytest.raises(Refused, match=words):
        source_of(normal((2, 256)), BY_NAME["q4_k"], imatrix)
    assert source_of(normal((2, 256)), BY_NAME["q4_k"], np.zeros(256, "f4"))


def test_names_of_types() -> None:
    assert ggml.parse("Q4_K") is BY_NAME["q4_k"] and ggml.parse(" iq4-xs ") is BY_NAME["iq4_xs"]
    for wrong in ("q8_1", "q9", "f16", ""):
        with pytest.raises(UsageError) as caught:
            ggml.parse(wrong)
        assert "q4_0" in str(caught.value.hint)


def test_other_importance_makes_another_source() -> None:
    values, dtype = normal((4, 256)), BY_NAME["q4_k"]
    one, other = np.ones(256, "<f4"), np.linspace(1, 9, 256, dtype="<f4")
    assert source_of(values, dtype, one) == source_of(values, dtype, one.copy())
    assert source_of(values, dtype, one) != source_of(values, dtype, other)
    assert source_of(values, dtype, one) != source_of(values, dtype)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "libgguf", None)
    with pytest.raises(MissingExtra) as caught:
        quantize(weights(tensor(normal((2, 256)))), one_type(BY_NAME["q8_0"]))
    assert caught.value.exit_code == 4 and "artifactkit[gguf]" in str(caught.value.hint)


# -- passes


def test_which_tensors_are_quantised() -> None:
    names = {
        "blk.0.attn_q.weight": (2, 256), "blk.0.attn_norm.weight": (1, 256), "blk.0.attn_q.bias": (256,),
        "blk.0.ffn_gate_inp.weight": (2, 256), "blk.0.ffn_up_exps.weight": (2, 2, 256), "odd.weight": (2, 100),
    }  # fmt: skip
    before = weights(*(tensor(normal(shape), name) for name, shape in names.items()))
    after = quantize(before, one_type(BY_NAME["q4_k"]), threads=1)
    assert [n for n, t in after.tensors.items() if t.dtype.name == "q4_k"] == [
        "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight",
    ]  # fmt: skip
    [odd] = [loss for loss in after.losses if not loss.asked]
    assert odd.tensor == "odd.weight" and "asked q4_k, got f32: rows of 100" in odd.detail
    assert after.tensors["blk.0.attn_q.weight"].steps[-1].outcome == "quantised"


def test_quantised_sources() -> None:
    first = quantize(weights(tensor(normal((4, 256)))), one_type(BY_NAME["q8_0"]), threads=1)
    raw = read_all(first.tensors["w.weight"].source)
    held = weights(TensorView("w.weight", BY_NAME["q8_0"], (4, 256), Inline(raw)))
    assert quantize(held, one_type(BY_NAME["q8_0"])).tensors == held.tensors  # as it is
    with pytest.raises(Refused, match="quantised already, as q8_0") as caught:
        quantize(held, one_type(BY_NAME["q4_k"]))
    assert "--allow-requantize" in str(caught.value.hint)
    again = quantize(held, one_type(BY_NAME["q4_k"]), allow_requantize=True, threads=1).tensors["w.weight"]
    floats = libgguf.dequantize_rows(np.frombuffer(raw, "u1").reshape(4, -1), BY_NAME["q8_0"].ggml)
    assert read_all(again.source) == library(floats, BY_NAME["q4_k"])
    assert [step.outcome for step in again.steps] == ["dequantised", "quantised"]


def test_types_of_intermediate_results_are_not_dequantised() -> None:
    held = weights(TensorView("w", BY_NAME["q8_k"], (256,), Inline(bytes(292))))
    with pytest.raises(Refused, match="intermediate results"):
        dequantize(held, lambda t: True)


# -- the judge

DISTRIBUTIONS = {
    "normal": lambda r, n: r.standard_normal(n),
    "heavy tails": lambda r, n: np.clip(r.standard_cauchy(n), -1e4, 1e4),
    "positive": lambda r, n: np.abs(r.standard_normal(n)),
    "far from zero": lambda r, n: r.standard_normal(n) * 0.01 + 1,
    "outliers": lambda r, n: np.where(np.arange(n) % 256 == 0, 1.0, r.standard_normal(n) * 1e-3),
    "constant": lambda r, n: np.ones(n),
    "zero": lambda r, n: np.zeros(n),
    "sparse": lambda r, n: r.standard_normal(n) * (r.random(n) < 0.02),
    "scales": lambda r, n: r.standard_normal(n) * np.exp(r.standard_normal(n // 32) * 3).repeat(32),
    "uniform": lambda r, n: r.random(n) * 2 - 1,
    "signs": lambda r, n: r.choice([-1.0, 1.0], n),
    "tiny": lambda r, n: r.standard_normal(n) * 1e-8,
    "subnormal": lambda r, n: r.standard_normal(n) * 1e-40,
}


def judged(values: np.ndarray, blocks: bytes, dtype: DType, imatrix: bool) -> tuple[int, bool]:
    errors = Errors(dtype, limit_of(dtype, imatrix))
    return errors.add(values.reshape(-1), ggml.dequantize(blocks, dtype)), errors.far


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", QUANTISED)
def test_what_ggml_makes_passes(dtype: DType, kind: str) -> None:
    rng = np.random.default_rng(11)
    rows = 2 if dtype.name in FEW else 32
    values = DISTRIBUTIONS[kind](rng, rows * 256).astype("<f4").reshape(rows, 256)
    if dtype.name == "nvfp4":
        values = values.clip(-2000, 2000)
    for imatrix in (None, np.abs(rng.standard_normal(256)).astype("<f4") * 10 + 0.01):
        if imatrix is None and dtype.name in NEEDS_IMATRIX:
            continue
        blocks = library(values, dtype, imatrix)
        assert judged(values, blocks, dtype, imatrix is not None) == (-1, False)


@pytest.mark.parametrize("dtype", QUANTISED)
def test_rows_in_another_order_do_not_pass(dtype: DType) -> None:
    values = normal((8, 256))
    blocks = library(values, dtype, ones(dtype, 256))
    at, far = judged(values[::-1], blocks, dtype, False)
    assert at >= 0 or far


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q5_1", "q4_k", "q6_k", "iq4_xs"])
def test_a_scale_twice_as_large_does_not_pass(name: str) -> None:
    values, dtype = normal((4, 256)), BY_NAME[name]
    blocks = bytearray(library(values, dtype))
    at = 208 if name == "q6_k" else 0
    blocks[at : at + 2] = (np.frombuffer(blocks[at : at + 2], "<f2") * np.float16(2)).tobytes()
    assert judged(values, bytes(blocks), dtype, False)[0] >= 0


def fed(source: ggml.Quantized, data: bytes, step: int) -> None:
    found = checker(Part(0, source, "w"), "out.gguf")
    assert isinstance(found, WithinBlockError)
    for at in range(0, len(data), step):
        found.feed(at, memoryview(data)[at : at + step])
    found.finish()


@pytest.mark.parametrize("step", [1, 7, 144, 1000, 1 << 20])
def test_the_checker_takes_blocks_of_any_size_and_finds_one_bit(step: int) -> None:
    source = source_of(normal((6, 512)), BY_NAME["q4_k"])
    data = read_all(source)
    fed(source, data, step)
    for at in (0, len(data) // 2, len(data) - 1):
        wrong = bytearray(data)
        wrong[at] ^= 1
        with pytest.raises(VerificationFailed) as caught:
            fed(source, bytes(wrong), step)
        assert caught.value.found == f"row {at // (len(data) // 6)}"


def test_what_was_never_summed_is_held_against_the_source() -> None:
    values = normal((6, 512))
    data = read_all(source_of(values, BY_NAME["q8_0"]))
    fed(source_of(values, BY_NAME["q8_0"]), data, 100)
    with pytest.raises(VerificationFailed, match="not near its source"):
        fed(source_of(values[::-1].copy(), BY_NAME["q8_0"]), data, 100)


def test_two_artifacts_side_by_side() -> None:
    values = normal((8, 256))
    floats = weights(tensor(values))

    def held(name: str, data: bytes) -> Weights:
        return weights(TensorView("w.weight", BY_NAME[name], (8, 256), Inline(data)))

    rng = np.random.default_rng(2)
    flat, weight = rng.random((8, 256), "f4") * 2 - 1, np.abs(rng.standard_normal(256)).astype("f4") * 10
    q4 = library(values, BY_NAME["q4_0"])
    back = weights(tensor(libgguf.dequantize_rows(np.frombuffer(q4, "u1").reshape(8, -1), 2)))
    for artifact, source, words in (
        (held("q4_0", q4), floats, "within the bound of q4_0"),
        (held("q4_k", library(values, BY_NAME["q4_k"])), floats, "within the ceiling of q4_k"),
        (held("q4_0", library(flat, BY_NAME["q4_0"], weight)), weights(tensor(flat)), "within the ceiling of q4_0"),
        (held("q4_0", q4), held("q4_0", q4), "bit for bit"),
        (back, held("q4_0", q4), "half an ulp of f32"),
    ):
        report = compare(artifact, source)
        assert report and any(words in check.name for check in report.checks), words
    for artifact, source in (
        (held("q4_0", q4), weights(tensor(values[::-1].copy()))),
        (weights(tensor(values)), held("q4_0", q4)),
    ):
        assert not compare(artifact, source)


def test_blocks_of_every_type_are_in_the_table() -> None:
    assert {d.name for d in BLOCKS} == TYPES.keys() | ggml.INTERNAL
    for dtype in TYPES.values():
        assert limit_of(dtype, True) and limit_of(dtype, False)


def test_imatrix_files(tmp_path: Path) -> None:
    from artifactkit.imatrix import read_imatrix

    sums, counts = np.abs(normal((2, 4))), np.array([[2.0], [0.0]], "f4")
    writer = gguf.GGUFWriter(str(tmp_path / "i.gguf"), "llama")
    writer.add_tensor("w.weight.in_sum2", sums)
    writer.add_tensor("w.weight.counts", counts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_imatrix(str(tmp_path / "i.gguf"))
    theirs = libgguf.load_imatrix(tmp_path / "i.gguf")
    assert found.keys() == theirs.keys() == {"w.weight"}
    np.testing.assert_array_equal(found["w.weight"], theirs["w.weight"].reshape(-1))
