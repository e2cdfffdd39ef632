"""ONNX written: data inside or beside, another opset, float16; and weights taken out of graphs."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from contract import contents, mutated, read
from onnx import TensorProto, helper, numpy_helper
from test_onnx import W, model, save, tensor
from writer_contract import Untouchable, put, view

from artifactkit import dtypes
from artifactkit.artifact import TensorView, Weights
from artifactkit.errors import ArtifactkitError, Refused, RouteRefused, UsageError, VerificationFailed
from artifactkit.formats.onnx import FORMAT
from artifactkit.onnx_files.reader import read as read_model
from artifactkit.onnx_files.writer import write
from artifactkit.opening import open_source
from artifactkit.placing import check_layout
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import Conversion, execute
from artifactkit.source import FileSpan
from artifactkit.types import WriteOptions
from artifactkit.verify.graphs import digest

RNG = np.random.default_rng(3)
BIG = RNG.standard_normal((64, 64)).astype(np.float32)
F16 = dtypes.parse("f16")


def convert(source: Path, destination: Path, **options: object) -> Conversion:
    chosen = ConvertOptions(target_format=str(options.pop("to", "onnx")), **options)  # type: ignore[arg-type]
    return execute(plan(str(source), str(destination), chosen), chosen)


def run(path: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)  # type: ignore[no-any-return]


def whole(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def network(folder: Path, constant: float = 2.5, opset: int = 20, ir: int = 10) -> Path:
    """y = (x @ a + c) * mean, with a tied matrix, a Constant node and a weight of an exporter that numbers them."""
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_12"], ["m"], name="/enc/layer.0/query/MatMul"),
        helper.make_node("Constant", [], ["c"], value=tensor("", np.float32([constant]))),
        helper.make_node("Mul", ["m", "c"], ["a"]),
        helper.make_node("MatMul", ["a", "b"], ["n"]),
        helper.make_node("ReduceMean", ["n"], ["y"], axes=[1], keepdims=0)
        if opset < 18 else helper.make_node("ReduceMean", ["n", "axes"], ["y"], keepdims=0),
    ]  # fmt: skip
    tensors = [tensor("onnx::MatMul_12", BIG), tensor("b", BIG.T[:, ::2])]
    tensors += [tensor("axes", np.array([1]))] if opset >= 18 else []
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["batch", 64])],
        [helper.make_tensor_value_info("y", 1, ["batch"])], tensors,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir, producer_name="me")
    helper.set_model_props(made, {"author": "me"})
    return save(folder / "net.onnx", made)


X = RNG.standard_normal((3, 64)).astype(np.float32)


def test_a_copy_is_the_same_bytes(tmp_path: Path) -> None:
    source = network(tmp_path)
    convert(source, tmp_path / "copy.onnx")
    assert (tmp_path / "copy.onnx").read_bytes() == source.read_bytes()


def test_out_and_in_again_is_the_same_bytes(tmp_path: Path) -> None:
    source = network(tmp_path)
    convert(source, tmp_path / "out", external_data=1)
    folder = tmp_path / "out"
    assert {p.name for p in folder.iterdir()} == {"model.onnx", "model.onnx.data"}
    # As long as its tensors: written once, no orphans. Constants in nodes and small integers stay.
    assert (folder / "model.onnx.data").stat().st_size == BIG.nbytes * 3 // 2
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    assert np.array_equal(run(folder / "model.onnx", x=X)[0], run(source, x=X)[0])
    convert(folder, tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == source.read_bytes()


def test_again_into_the_same_folder(tmp_path: Path) -> None:
    source = network(tmp_path)
    for _ in range(2):
        convert(source, tmp_path / "out", external_data=1024, force=True)
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size == BIG.nbytes * 3 // 2


def test_several_data_files(tmp_path: Path) -> None:
    convert(network(tmp_path), tmp_path / "out", external_data=1024, max_shard_size=BIG.nbytes)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "model.onnx", "model-00001-of-00002.onnx.data", "model-00002-of-00002.onnx.data",
    }  # fmt: skip
    assert run(tmp_path / "out" / "model.onnx", x=X)[0].shape == (3,)


def test_one_file_has_its_data_inside(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the destination is one file"):
        convert(network(tmp_path), tmp_path / "x.onnx", external_data=1)


def large(nbytes: int) -> Weights:
    """A model with a tensor that is not there."""
    from artifactkit.files import Memory

    made = model(tensor("w", np.zeros(4, np.float32)))
    weights = read_model(Memory(made.SerializeToString(), "a.onnx"), "a.onnx")
    weights.tensors["w"] = TensorView("w", dtypes.parse("f32"), (nbytes // 4,), Untouchable(nbytes))
    return weights


def test_more_than_two_gigabytes_go_beside() -> None:
    """Laid out without a byte of them: refused in one file, beside the model in a folder."""
    size = 5 << 30
    with pytest.raises(RouteRefused, match="at most 2 GiB"):
        write(large(size), WriteOptions("a.onnx"))
    files = write(large(size), WriteOptions("a", folder=True))
    assert [(f.name, f.size) for f in files][1:] == [("model.onnx.data", size)] and files[0].size < 1000
    for output in files:
        check_layout(output)
    assert len(write(large(1 << 20), WriteOptions("a", folder=True))) == 1


def test_large_tensors_begin_on_a_page(tmp_path: Path) -> None:
    arrays = {"a": np.zeros(3, np.float32), "b": RNG.standard_normal(1 << 18).astype(np.float32)}
    source = save(tmp_path / "a.onnx", model(*(tensor(n, a) for n, a in arrays.items())))
    convert(source, tmp_path / "out", external_data=1)
    placed = read(tmp_path / "out" / "model.onnx").tensors["b"].source
    assert isinstance(placed, FileSpan) and placed.offset == 4096


def test_tied_tensors_are_stored_once_outside(tmp_path: Path) -> None:
    from test_onnx import beside, external

    beside(tmp_path)
    one, two = (TensorProto(name=n, data_type=1, dims=[16]) for n in ("one", "two"))
    source = save(tmp_path / "a.onnx", model(*(external(t, location="w.data", offset=8) for t in (one, two))))
    made = convert(source, tmp_path / "out", external_data=1)
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size == 64
    assert {e.outcomes for e in made.ledger} == {("kept",), ("aliased",)}
    convert(source, tmp_path / "inside.onnx")
    assert contents(read(tmp_path / "inside.onnx")) == contents(read(source))


def test_nothing_of_a_graph_is_left_out(tmp_path: Path) -> None:
    for options in ({"include": ("b",)}, {"exclude": ("b",)}, {"rename": ("b=c",)}):
        with pytest.raises(UsageError, match="the operations of a graph name its tensors"):
            convert(network(tmp_path), tmp_path / "x.onnx", **options)
    for options in ({"external_data": 1}, {"opset": 21}):
        with pytest.raises(UsageError, match="is for graphs"):
            convert(network(tmp_path), tmp_path / "x.safetensors", to="safetensors", **options)


def test_what_is_written_wrongly_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    made = model(W)
    made.graph.node[0].op_type = "NoSuchOperator"
    save(broken, made)
    with pytest.raises(VerificationFailed, match="the onnx library refuses"):
        FORMAT.reopen([str(broken)])  # type: ignore[misc]


def test_the_library_finds_each_tensor_where_it_was_put(tmp_path: Path) -> None:
    convert(network(tmp_path), tmp_path / "out", external_data=1024)
    path = tmp_path / "out" / "model.onnx"
    found = FORMAT.reopen([str(path)])  # type: ignore[misc]
    for name, tensor_view in read(path).tensors.items():
        placed = found[name]
        assert (placed.dtype, placed.shape) == (tensor_view.dtype.name, tensor_view.shape)
        if placed.offset >= 0:
            assert (placed.file, placed.offset) == tensor_view.source.position


def test_the_origin_stands_in_the_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    network(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    convert(folder, tmp_path / "a.onnx")
    metadata = read(tmp_path / "a.onnx").metadata
    assert metadata["author"] == "me" and metadata["artifactkit.license"] == "mit"
    assert {p.key for p in onnx.load(str(tmp_path / "a.onnx")).metadata_props} == set(metadata)
    convert(folder, tmp_path / "b.onnx", summary=False)
    assert read(tmp_path / "b.onnx").metadata == {"author": "me"}


def test_weights_are_taken_out(tmp_path: Path) -> None:
    made = convert(network(tmp_path), tmp_path / "a.safetensors", to="safetensors")
    found = contents(open_source(str(tmp_path / "a.safetensors")).weights)
    assert found["enc.layer.0.query.weight"] == ("f32", (64, 64), BIG.tobytes())
    assert found["b"][2] == np.ascontiguousarray(BIG.T[:, ::2]).tobytes()
    assert found["c"] == ("f32", (1,), np.float32(2.5).tobytes()) and set(found) == {
        "enc.layer.0.query.weight", "b", "c", "axes",
    }  # fmt: skip
    assert {(e.source, e.outcomes) for e in made.ledger if e.source.startswith("onnx::")} == {
        ("onnx::MatMul_12", ("renamed",))
    }


NARROW = {
    "i4": (TensorProto.INT4, ml_dtypes.int4, "i8"), "u4": (TensorProto.UINT4, ml_dtypes.uint4, "u8"),
    "i2": (TensorProto.INT2, ml_dtypes.int2, "i8"), "u2": (TensorProto.UINT2, ml_dtypes.uint2, "u8"),
}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("count", [1, 7, 8, 100_001])
def test_integers_of_few_bits_become_bytes(tmp_path: Path, name: str, count: int) -> None:
    number, kind, wide = NARROW[name]
    bits = int(name[1])
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if name[0] == "i" else (0, 1 << bits)
    values = np.random.default_rng(count).integers(low, high, count).astype(np.int8 if name[0] == "i" else np.uint8)
    made = numpy_helper.from_array(values.astype(kind), "w")
    assert made.data_type == number
    convert(save(tmp_path / "a.onnx", model(made)), tmp_path / "a.safetensors", to="safetensors")
    weights = open_source(str(tmp_path / "a.safetensors")).weights
    assert contents(weights) == {"w": (wide, (count,), values.tobytes())}


def test_what_no_weights_format_holds_is_a_loss(tmp_path: Path) -> None:
    source = save(tmp_path / "a.onnx", model(W, helper.make_tensor("s", TensorProto.STRING, [1], [b"a"])))
    made = convert(source, tmp_path / "a.safetensors", to="safetensors")
    assert [(loss.kind, loss.tensor, loss.asked) for loss in made.losses] == [("tensor-dropped", "s", False)]
    with pytest.raises(Refused):
        convert(source, tmp_path / "b.safetensors", to="safetensors", strict=True)
    convert(source, tmp_path / "c.onnx", strict=True)


@pytest.mark.parametrize("opset", [13, 18, 21, 25])
def test_another_opset(tmp_path: Path, opset: int) -> None:
    source = network(tmp_path, opset=13, ir=8)
    made = convert(source, tmp_path / "b.onnx", opset=opset)
    weights = read(tmp_path / "b.onnx")
    assert weights.graph is not None and weights.graph.opsets == {"ai.onnx": opset}
    assert weights.metadata == {"author": "me"} and weights.graph.facts["producer"] == "me"
    assert np.allclose(run(tmp_path / "b.onnx", x=X)[0], run(source, x=X)[0], atol=1e-6)
    assert contents(read(source)).items() <= contents(weights).items()
    if opset >= 18:
        assert [e.outcomes for e in made.ledger][-1] == ("made",)  # ReduceMean's axes became an input


def test_verify_knows_what_an_opset_brings(tmp_path: Path) -> None:
    from artifactkit.route import in_graph_of
    from artifactkit.verify.compare import compare

    source = network(tmp_path, opset=13, ir=8)
    convert(source, tmp_path / "b.onnx", opset=20)
    made, plain = read(tmp_path / "b.onnx"), read(source)
    assert not compare(made, plain)
    assert compare(made, in_graph_of(plain, made))
    damaged = bytearray((tmp_path / "b.onnx").read_bytes())
    damaged[damaged.index(BIG.tobytes()[:64])] ^= 1
    (tmp_path / "c.onnx").write_bytes(damaged)
    assert not compare(read(tmp_path / "c.onnx"), in_graph_of(plain, made))


MUTANTS: dict[str, Callable[[onnx.GraphProto], object]] = {
    "another operator": lambda g: setattr(g.node[2], "op_type", "Add"),
    "inputs swapped": lambda g: g.node[2].input.reverse(),
    "another attribute": lambda g: setattr(g.node[4].attribute[0], "i", 1),
    "an output more": lambda g: g.output.append(helper.make_tensor_value_info("n", 1, ["batch", 32])),
    "no dimension open": lambda g: g.input[0].type.tensor_type.shape.dim[0].CopyFrom(dim(3)),
    "a node more": lambda g: g.node.append(helper.make_node("Identity", ["x"], ["z"])),
    "a weight in another place": lambda g: g.node[3].input.__setitem__(1, "onnx::MatMul_12"),
}


def dim(value: int) -> onnx.TensorShapeProto.Dimension:
    return onnx.TensorShapeProto.Dimension(dim_value=value)


@pytest.mark.parametrize("asked", [{}, {"opset": 21}, {"dtype": F16}, {"opset": 21, "dtype": F16}], ids=str)
def test_each_change_of_the_graph_is_found(tmp_path: Path, asked: dict[str, object]) -> None:
    """Tensors alike, and the function another: level 1 compares all of the model but the tensors' bytes."""
    from artifactkit.route import in_graph_of
    from artifactkit.verify.compare import compare, diff

    source = network(tmp_path)
    convert(source, tmp_path / "out", external_data=1, **asked)
    plain, made = read(source), read(tmp_path / "out" / "model.onnx")
    assert compare(made, in_graph_of(plain, made))
    assert asked or not diff(made, plain)
    for name, change in MUTANTS.items():
        mutant = onnx.load(str(source))
        change(mutant.graph)
        path = save(tmp_path / "mutant.onnx", mutant)
        convert(path, tmp_path / "m", external_data=1, force=True, verify=False, **asked)
        other = read(tmp_path / "m" / "model.onnx")
        report = compare(other, in_graph_of(plain, other))
        assert not report and "graph" in {c.name for c in report.failed}, name
        assert any(d.what == "graph" for d in diff(other, made)), name


def test_whatever_is_read_is_put_together_again(tmp_path: Path) -> None:
    """Of mutated models, those that are read come back as they are: in one piece, and with their data outside."""
    raw = network(tmp_path, opset=13, ir=8).read_bytes()
    at = raw.index(BIG.tobytes()[:64])
    rng = random.Random(5)
    path, whole = tmp_path / "a.onnx", 0
    for _ in range(400):
        head, tail = raw[:at], raw[-300:]
        which = rng.random() < 0.5
        path.write_bytes(
            (mutated(head, rng) if which else head) + raw[at:-300] + (tail if which else mutated(tail, rng))
        )
        try:
            weights = read(path)
        except ArtifactkitError:
            continue
        for options in (WriteOptions("b.onnx"), WriteOptions("b", folder=True, external_data=1)):
            folder = tmp_path / "b"
            back = read(put(write(weights, options), folder)[0])
            assert contents(back) == contents(weights)
            assert back.graph is not None and weights.graph is not None
            assert digest(back.graph) == digest(weights.graph)
        whole += 1
    assert whole > 20


def test_an_opset_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(RouteRefused, match="does not lead from opset 20 to 11") as caught:
        convert(network(tmp_path), tmp_path / "b.onnx", opset=11)
    assert caught.value.found and caught.value.hint
    with pytest.raises(UsageError, match="there is no opset 1000"):
        convert(network(tmp_path), tmp_path / "b.onnx", opset=1000)
    assert not (tmp_path / "b.onnx").exists()


def test_operations_in_half_precision(tmp_path: Path) -> None:
    source = network(tmp_path)
    convert(source, tmp_path / "h.onnx", dtype=F16)
    weights = read(tmp_path / "h.onnx")
    assert {t.name: t.dtype.name for t in weights} == {"onnx::MatMul_12": "f16", "b": "f16", "axes": "i64", "c": "f16"}
    assert weights.graph is not None
    assert [(v.name, v.type) for v in (*weights.graph.inputs, *weights.graph.outputs)] == [("x", "f32"), ("y", "f32")]
    got, want = run(tmp_path / "h.onnx", x=X)[0], run(source, x=X)[0]
    assert got.dtype == np.float32 and np.abs(got - want).max() < 0.02 * np.abs(want).max()
    assert not np.array_equal(got, want)
    onnx.checker.check_model(str(tmp_path / "h.onnx"), full_check=True)


def test_inputs_and_outputs_in_half_precision_when_asked(tmp_path: Path) -> None:
    from artifactkit.route import in_graph_of
    from artifactkit.verify.compare import compare

    source = network(tmp_path)
    convert(source, tmp_path / "h.onnx", dtype=F16, cast_io=True)
    made = read(tmp_path / "h.onnx")
    assert made.graph is not None and "ai.onnx::Cast" not in made.graph.operators
    assert [(v.name, v.type) for v in (*made.graph.inputs, *made.graph.outputs)] == [("x", "f16"), ("y", "f16")]
    got, want = run(tmp_path / "h.onnx", x=X.astype(np.float16))[0], run(source, x=X)[0]
    assert got.dtype == np.float16 and np.abs(got - want).max() < 0.02 * np.abs(want).max()
    assert compare(made, in_graph_of(read(source), made))
    for options in ({"to": "onnx"}, {"to": "safetensors"}):
        with pytest.raises(UsageError, match="--cast-io is for"):
            convert(source, tmp_path / "x.out", cast_io=True, **options)


@pytest.mark.parametrize("attribute", [False, True], ids=["tensor", "attribute"])
@pytest.mark.parametrize("value", [2e4, 65504.0, 1e6, -7e4, 1e-9])
def test_constants_at_the_edge_of_the_range(tmp_path: Path, value: float, attribute: bool) -> None:
    """None is clamped: it is there as it was, or refused by name, or said to have become zero."""
    given: Mapping[str, object] = (
        {"value_float": value} if attribute else {"value": tensor("", np.array(value, np.float32))}
    )
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["k"], **given), helper.make_node("Mul", ["x", "k"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, [2])], [helper.make_tensor_value_info("y", 1, [2])],
    )  # fmt: skip
    source = save(
        tmp_path / "a.onnx", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    )
    made = tmp_path / "h.onnx"
    if abs(value) > 65504:
        with pytest.raises((Refused, RouteRefused), match="values too large for f16") as caught:
            convert(source, made, dtype=F16)
        assert caught.value.tensor == "k" and str(f"{abs(value):g}") in (caught.value.found or "").replace(
            "1000000", "1e+06"
        )
        assert not made.exists()
        done = convert(source, made, dtype=F16, overflow="saturate")
        assert "value-saturated" in {loss.kind for loss in done.losses}
        wanted = np.copysign(65504.0, value)
    else:
        done = convert(source, made, dtype=F16)
        assert ("value-underflow" in {loss.kind for loss in done.losses}) == (value == 1e-9)
        wanted = float(np.float16(value))
    (constant,) = read(made).tensors.values()
    assert np.frombuffer(contents(read(made))[constant.name][2], "<f2") == [wanted]


def test_operators_that_take_float32_only_get_it(tmp_path: Path) -> None:
    """Resize's scales are float32 whatever it resizes; 1.1 in f16 would give another shape for large inputs."""
    nodes = [
        helper.make_node("Constant", [], ["s"], value_floats=[1.0, 1.0, 2.0, 1.1]),
        helper.make_node("Resize", ["x", "", "s"], ["r"], mode="nearest"),
        helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["picked"]),
    ]
    shapes = {"x": [1, 1, 4, 30], "boxes": [1, 6, 4], "scores": [1, 1, 6]}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, 1, dims) for name, dims in shapes.items()],
        [helper.make_tensor_value_info("r", 1, None), helper.make_tensor_value_info("picked", 7, None)],
    )  # fmt: skip
    source = save(
        tmp_path / "a.onnx", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    )
    convert(source, tmp_path / "h.onnx", dtype=F16)
    inputs = {
        "x": RNG.standard_normal((1, 1, 4, 30)).astype(np.float16).astype(np.float32),
        "boxes": np.sort(RNG.random((1, 6, 4)), axis=2).astype(np.float16).astype(np.float32),
        "scores": RNG.random((1, 1, 6)).astype(np.float16).astype(np.float32),
    }
    for got, want in zip(run(tmp_path / "h.onnx", **inputs), run(source, **inputs), strict=True):
        assert got.dtype == want.dtype and np.array_equal(got, want)


def test_graphs_within_are_changed_too(tmp_path: Path) -> None:
    def branch(name: str, factor: float) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node("Mul", ["x", f"k_{name}"], [f"o_{name}"])], name, [],
            [helper.make_tensor_value_info(f"o_{name}", 1, [4])], [tensor(f"k_{name}", np.array(factor, np.float32))],
        )  # fmt: skip

    graph = helper.make_graph(
        [helper.make_node("If", ["which"], ["y"], then_branch=branch("t", 3), else_branch=branch("e", 5))], "g",
        [helper.make_tensor_value_info("x", 1, [4]), helper.make_tensor_value_info("which", 9, [])],
        [helper.make_tensor_value_info("y", 1, [4])],
    )  # fmt: skip
    source = save(
        tmp_path / "a.onnx", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    )
    convert(source, tmp_path / "h.onnx", dtype=F16)
    assert {t.dtype.name for t in read(tmp_path / "h.onnx")} == {"f16"}
    x = np.arange(4, dtype=np.float32)
    for which, factor in ((True, 3), (False, 5)):
        assert np.array_equal(run(tmp_path / "h.onnx", x=x, which=np.array(which))[0], x * factor)


@pytest.mark.parametrize("asked", [{}, {"opset": 21}, {"dtype": F16}], ids=["copy", "opset", "f16"])
def test_a_version_that_no_library_has(tmp_path: Path, asked: dict[str, object]) -> None:
    source = network(tmp_path)
    raw, version = source.read_bytes(), b"\x42\x04\x0a\x00\x10\x14"
    assert raw.count(version) == 1
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(raw.replace(version, b"\x42\x09\x0a\x00\x10" + b"\xff" * 5 + b"\x7f"))
    with pytest.raises((RouteRefused, VerificationFailed)) as caught:
        convert(broken, tmp_path / "x.onnx", **asked)
    assert caught.value.file and caught.value.found and not (tmp_path / "x.onnx").exists()
    convert(source, tmp_path / "x.onnx", **asked)


def test_types_of_unknown_operators_are_not_guessed(tmp_path: Path) -> None:
    nodes = (helper.make_node("Mystery", ["x"], ["m"], domain="my.own"),)
    source = save(tmp_path / "a.onnx", model(W, nodes=nodes))
    with pytest.raises(RouteRefused, match=r"my\.own::Mystery"):
        convert(source, tmp_path / "h.onnx", dtype=F16)
    with pytest.raises(RouteRefused, match="changed to f16 only"):
        convert(source, tmp_path / "h.onnx", dtype=dtypes.parse("bf16"))


def test_same_bytes_in_any_process(tmp_path: Path) -> None:
    source = network(tmp_path, opset=13, ir=8)
    made = []
    for seed in ("0", "1"):
        out = tmp_path / seed
        words = [
            "convert",
            str(source),
            str(out),
            *["-t", "onnx", "--opset", "20", "--dtype", "f16", "--external-data", "1"],
        ]
        code = f"from artifactkit.cli.main import run; import sys; sys.argv[1:] = {words!r}; run()"
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
        made.append({p.name: p.read_bytes() for p in out.iterdir()})
    assert made[0] == made[1] and len(made[0]) == 2


def test_a_view_that_onnx_has_no_type_for() -> None:
    weights = large(16)
    weights.tensors["w"] = view("w", "q8_0", (32,))
    with pytest.raises(RouteRefused, match="no element type"):
        write(weights, WriteOptions("a.onnx"))
