"""ONNX is read by its headers: every way of holding a tensor, and every way in which a model can lie, with a twin."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from contract import ReaderContract, contents, read
from onnx import TensorProto, helper, numpy_helper

from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Refused, Unreadable

OPSET, IR = 20, 10


def tensor(name: str, array: np.ndarray) -> TensorProto:
    made = numpy_helper.from_array(np.ascontiguousarray(array), name)
    made.dims[:] = array.shape
    return made


def model(*tensors: TensorProto, nodes: tuple[onnx.NodeProto, ...] = (), **more: object) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"]), *nodes], "g",
        [helper.make_tensor_value_info("x", 1, ["batch", 4])], [helper.make_tensor_value_info("y", 1, ["batch", 4])],
        list(tensors),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, **more)


def save(path: Path, made: onnx.ModelProto) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


class TestOnnx(ReaderContract):
    format = "onnx"
    suffix = ".onnx"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        save(path, model(*(tensor(name, array) for name, array in arrays.items())))


class TestTypedOnnx(ReaderContract):
    """The same tensors as typed data: floats one after the other, integers as varints."""

    format = "onnx"
    suffix = ".onnx"

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        made = []
        for name, array in arrays.items():
            number = helper.np_dtype_to_tensor_dtype(array.dtype)
            made.append(helper.make_tensor(name, number, array.shape, array.reshape(-1).tolist()))
        save(path, model(*made))


TYPED: list[tuple[str, str, int, object]] = [
    ("f32", "float_data", TensorProto.FLOAT, np.array([1.5, -0.0, np.inf], "<f4")),
    ("f64", "double_data", TensorProto.DOUBLE, np.array([1.5, -2e300], "<f8")),
    ("i64", "int64_data", TensorProto.INT64, np.array([-1, 2**63 - 1, -(2**63), 0], "<i8")),
    ("i32", "int32_data", TensorProto.INT32, np.array([-1, 2**31 - 1, -(2**31)], "<i4")),
    ("i16", "int32_data", TensorProto.INT16, np.array([-1, 2**15 - 1, -(2**15)], "<i2")),
    ("i8", "int32_data", TensorProto.INT8, np.array([-1, 127, -128], "i1")),
    ("u16", "int32_data", TensorProto.UINT16, np.array([0, 65535], "<u2")),
    ("u8", "int32_data", TensorProto.UINT8, np.array([0, 255], "u1")),
    ("bool", "int32_data", TensorProto.BOOL, np.array([True, False])),
    ("u32", "uint64_data", TensorProto.UINT32, np.array([0, 2**32 - 1], "<u4")),
    ("u64", "uint64_data", TensorProto.UINT64, np.array([0, 2**64 - 1], "<u8")),
    ("f16", "int32_data", TensorProto.FLOAT16, np.array([1.5, -0.0, np.nan], "<f2")),
    ("bf16", "int32_data", TensorProto.BFLOAT16, np.array([1.5, -0.0, np.nan], ml_dtypes.bfloat16)),
    ("f8_e4m3", "int32_data", TensorProto.FLOAT8E4M3FN, np.array([1.5, -0.0, 448], ml_dtypes.float8_e4m3fn)),
    ("f8_e5m2", "int32_data", TensorProto.FLOAT8E5M2, np.array([1.5, np.inf], ml_dtypes.float8_e5m2)),
    ("f8_e8m0", "int32_data", TensorProto.FLOAT8E8M0, np.array([1.0, 2.0], ml_dtypes.float8_e8m0fnu)),
    ("c64", "float_data", TensorProto.COMPLEX64, np.array([1 + 2j, -3j], "<c8")),
    ("c128", "double_data", TensorProto.COMPLEX128, np.array([1 + 2j], "<c16")),
    ("i4", "int32_data", TensorProto.INT4, np.array([-8, 7, 1], ml_dtypes.int4)),
    ("u4", "int32_data", TensorProto.UINT4, np.array([15, 1, 0, 9], ml_dtypes.uint4)),
    ("f4", "int32_data", TensorProto.FLOAT4E2M1, np.array([0.5, -6.0], ml_dtypes.float4_e2m1fn)),
    ("i2", "int32_data", TensorProto.INT2, np.array([-2, 1, 0, 1, -1], ml_dtypes.int2)),
    ("u2", "int32_data", TensorProto.UINT2, np.array([3, 1, 0, 2], ml_dtypes.uint2)),
]  # fmt: skip


def packed(array: np.ndarray) -> bytes:
    """The bytes of ``raw_data``: elements of fewer than eight bits from the lowest bits on."""
    bits = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}.get(array.dtype.name)
    if bits is None:
        return array.tobytes()
    raw = array.view(np.uint8) & ((1 << bits) - 1)
    each = 8 // bits
    raw = np.pad(raw, (0, -len(raw) % each)).reshape(-1, each)
    return bytes(int(sum(int(v) << (bits * i) for i, v in enumerate(row))) for row in raw)


@pytest.mark.parametrize(("dtype", "field", "number", "array"), TYPED, ids=[case[0] for case in TYPED])
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_every_type_either_way(
    tmp_path: Path, dtype: str, field: str, number: int, array: np.ndarray, raw: bool
) -> None:
    data = packed(array)
    made = TensorProto(name="w", data_type=number, dims=array.shape)
    if raw:
        made.raw_data = data
    elif field == "int32_data":
        words = {1: "u1", 2: "<u2"}.get(array.dtype.itemsize, "<i4")
        signed = array.dtype.name in ("int8", "int16", "int32")
        made.int32_data.extend(
            (array if signed else np.frombuffer(data, "u1" if dtype[1:] in "42" else words)).tolist()
        )
    elif array.dtype.kind == "c":
        getattr(made, field).extend(array.view("<f4" if field == "float_data" else "<f8").tolist())
    else:
        getattr(made, field).extend(array.tolist())
    found = contents(read(save(tmp_path / "a.onnx", model(made))))
    assert found == {"w": (dtype, array.shape, data)}


@pytest.mark.parametrize("count", [1, 5000, 200_001])
def test_varints_are_read_in_any_order(tmp_path: Path, count: int) -> None:
    values = np.random.default_rng(count).integers(-(2**31), 2**31, count).astype("<i4")
    made = helper.make_tensor("w", TensorProto.INT32, [count], values.tolist())
    source = read(save(tmp_path / "a.onnx", model(made))).tensors["w"].source
    whole = values.tobytes()
    rng = np.random.default_rng(0)
    for _ in range(20):
        start = int(rng.integers(0, len(whole)))
        size = min(int(rng.integers(0, 4000)), len(whole) - start)
        buffer = bytearray(size)
        source.read_into(start, memoryview(buffer))
        assert buffer == whole[start : start + size]


def external(made: TensorProto, **pairs: object) -> TensorProto:
    out = TensorProto(name=made.name, data_type=made.data_type, dims=made.dims, data_location=TensorProto.EXTERNAL)
    for key, value in pairs.items():
        out.external_data.add(key=key, value=str(value))
    return out


W = tensor("w", np.arange(16, dtype=np.float32))


def beside(folder: Path) -> None:
    (folder / "w.data").write_bytes(bytes(8) + np.arange(16, dtype=np.float32).tobytes())


GOOD_PLACES = [
    {"location": "w.data", "offset": 8, "length": 64}, {"location": "w.data", "offset": 8},
    {"location": "./w.data", "offset": "8"}, {"location": "sub/w.data", "offset": 8, "length": 64},
    {"location": "w.data", "offset": 8, "length": 64, "checksum": "abc"},
]  # fmt: skip


@pytest.mark.parametrize("pairs", GOOD_PLACES, ids=str)
def test_external_data(tmp_path: Path, pairs: dict[str, object]) -> None:
    beside(tmp_path)
    (tmp_path / "sub").mkdir()
    beside(tmp_path / "sub")
    path = save(tmp_path / "a.onnx", model(external(W, **pairs)))
    weights = read(path)
    assert contents(weights) == {"w": ("f32", (16,), np.arange(16, dtype=np.float32).tobytes())}
    assert len(weights.files) == 2 and len(weights.pinned) == 1


def set_up_links(folder: Path) -> None:
    beside(folder)
    os.symlink("w.data", folder / "inside")
    os.symlink("/etc/passwd", folder / "outside")
    os.mkfifo(folder / "fifo")
    (folder / "dir").mkdir()


BAD_PLACES: list[tuple[dict[str, object], type[ArtifactkitError], str]] = [
    ({"location": "../w.data"}, Corrupt, "leads out of the folder"),
    ({"location": "/etc/passwd"}, Corrupt, "an absolute path"),
    ({"location": "C:\\w.data"}, Corrupt, "an absolute path"),
    ({"location": "https://example.com/w"}, Corrupt, "an address"),
    ({"location": "~/w.data"}, Corrupt, "home"),
    ({"location": "outside"}, Corrupt, "a link that leads out"),
    ({"location": "sub/../w.data"}, Corrupt, ".. in it"),
    ({"location": "fifo"}, Corrupt, "not a regular file"),
    ({"location": "dir"}, Corrupt, "not a regular file"),
    ({"location": "absent"}, Unreadable, "is not there"),
    ({"location": "*/_ORT_MEM_ADDR_/*", "offset": 4096}, Unreadable, "is not there"),
    ({"location": ""}, Corrupt, "without a location"),
    ({"offset": 8}, Corrupt, "without a location"),
    ({"location": "w.data", "offset": 9}, Corrupt, "past the end"),
    ({"location": "w.data", "offset": 2**62}, Corrupt, "past the end"),
    ({"location": "w.data", "offset": -8}, Corrupt, "the offset of external data is no number"),
    ({"location": "w.data", "offset": "8.0"}, Corrupt, "the offset of external data is no number"),
    ({"location": "w.data", "length": 60}, Corrupt, "another length"),
    ({"location": "w.data", "length": 68}, Corrupt, "another length"),
    ({"location": "w.data", "length": ""}, Corrupt, "the length of external data is no number"),
]


@pytest.mark.parametrize(("pairs", "kind", "words"), BAD_PLACES, ids=[str(case[0]) for case in BAD_PLACES])
def test_external_data_that_is_refused(
    tmp_path: Path, pairs: dict[str, object], kind: type[ArtifactkitError], words: str
) -> None:
    set_up_links(tmp_path)
    with pytest.raises(kind) as caught:
        read(save(tmp_path / "a.onnx", model(external(W, **pairs))))
    assert words in caught.value.what and caught.value.tensor == "w" and caught.value.file


def test_a_link_inside_is_followed_and_a_hard_link_is_not(tmp_path: Path) -> None:
    set_up_links(tmp_path)
    path = save(tmp_path / "a.onnx", model(external(W, location="inside", offset=8)))
    assert read(path).nbytes == 64
    os.link(tmp_path / "w.data", tmp_path / "another")
    with pytest.raises(Refused, match="several names"):
        read(path)


def test_a_snapshot_of_the_hub_is_read(tmp_path: Path) -> None:
    """All of it is links: snapshots/<commit>/<file> to blobs/."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    beside(blobs)
    save(blobs / "model", model(external(W, location="w.data", offset=8)))
    os.symlink("../../blobs/model", snapshot / "model.onnx")
    os.symlink("../../blobs/w.data", snapshot / "w.data")
    assert read(snapshot / "model.onnx").nbytes == 64


def changed(change: Callable[[TensorProto], object]) -> TensorProto:
    made = TensorProto()
    made.CopyFrom(W)
    change(made)
    return made


def outside(made: TensorProto) -> None:
    made.CopyFrom(external(W, location="w.data"))


def typed(made: TensorProto, data_type: int = TensorProto.INT32) -> None:
    made.ClearField("raw_data")
    made.data_type = data_type
    made.int32_data.extend(range(16))


LIES: list[tuple[str, Callable[[TensorProto], object], str]] = [
    ("no type", lambda t: t.ClearField("data_type"), "unknown element type"),
    ("a type of the future", lambda t: setattr(t, "data_type", 99), "unknown element type"),
    ("too many dimensions", lambda t: t.dims.append(2), "raw_data of another length"),
    ("too few bytes", lambda t: setattr(t, "raw_data", bytes(63)), "raw_data of another length"),
    ("negative", lambda t: t.dims.append(-1), "a negative dimension"),
    ("huge", lambda t: t.dims.extend([2**40, 2**40]), "dimensions that no file has"),
    ("no data", lambda t: t.ClearField("raw_data"), "a tensor without data"),
    ("no name", lambda t: t.ClearField("name"), "an initialiser without a name"),
    ("two kinds of data", lambda t: t.float_data.append(1), "data in more than one field"),
    ("external too", lambda t: t.external_data.add(key="location", value="w.data"), "data in more than one field"),
    ("a key twice", lambda t: (outside(t), t.external_data.add(key="location")), "twice"),
    ("external unsaid", lambda t: (outside(t), t.ClearField("data_location")), "in the model"),
    ("external, no place", lambda t: (t.ClearField("raw_data"), setattr(t, "data_location", 1)), "without a location"),
    ("strings", lambda t: t.string_data.append(b"x"), "strings in a tensor of numbers"),
    ("a segment", lambda t: setattr(t.segment, "begin", 1), "segments"),
    ("the wrong field", lambda t: typed(t, TensorProto.INT64), "int32_data of a tensor of i64"),
    ("too few values", lambda t: (typed(t), t.int32_data.pop()), "cannot hold"),
    ("too many values", lambda t: (typed(t), t.int32_data.append(1)), "too many values"),
    ("too large a value", lambda t: (typed(t, 2), t.int32_data.append(256), t.int32_data.pop(0)), "does not fit"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in LIES], ids=[case[0] for case in LIES])
def test_a_tensor_that_contradicts_itself(tmp_path: Path, change: Callable[[TensorProto], object], words: str) -> None:
    beside(tmp_path)
    with pytest.raises(Corrupt) as caught:
        contents(read(save(tmp_path / "a.onnx", model(changed(change)))))
    assert words in caught.value.what and caught.value.file


def test_their_twins_are_read(tmp_path: Path) -> None:
    found = contents(read(save(tmp_path / "a.onnx", model(W))))
    assert found == contents(read(save(tmp_path / "b.onnx", model(changed(lambda t: None)))))
    assert read(save(tmp_path / "c.onnx", model(changed(typed)))).tensors["w"].dtype.name == "i32"


def again(field: bytes) -> bytes:
    """A model whose one tensor has ``field`` once more."""
    graph = model(W).graph
    inner = W.SerializeToString() + field
    graph.ClearField("initializer")
    body = graph.SerializeToString() + b"\x2a" + length(inner) + inner
    return b"\x08\x0a\x3a" + length(body) + body + b"\x42\x02\x10\x14"


def length(body: bytes) -> bytes:
    n, out = len(body), b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


@pytest.mark.parametrize("field", [b"\x10\x01", b"\x42\x01v", b"\x70\x00\x70\x00", b"\x4a\x40" + bytes(64)])
def test_what_readers_would_see_differently(tmp_path: Path, field: bytes) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(again(field))
    with pytest.raises(Corrupt, match="comes twice"):
        read(path)
    path.write_bytes(again(b""))
    assert list(read(path).tensors) == ["w"]


@pytest.mark.parametrize("text", [b"initialiser", b"some key", b"some value", b"producer", b"a.domain", b"Operator"])
def test_names_that_are_no_text(tmp_path: Path, text: bytes) -> None:
    """Protobuf's strings are UTF-8, and so are ledgers and statements."""
    nodes = (helper.make_node("Operator", ["x"], ["o"], domain="a.domain"),)
    made = model(tensor("initialiser", np.zeros(2, np.float32)), nodes=nodes, producer_name="producer")
    helper.set_model_props(made, {"some key": "some value"})
    path = save(tmp_path / "a.onnx", made)
    raw = path.read_bytes()
    assert text in raw and read(path).tensors
    path.write_bytes(raw.replace(text, text[:-2] + "é".encode()))
    assert read(path).tensors
    path.write_bytes(raw.replace(text, text[:-1] + b"\xff"))
    with pytest.raises(Corrupt, match="is no UTF-8"):
        read(path)


def test_two_initialisers_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="two initialisers have one name"):
        read(save(tmp_path / "a.onnx", model(W, W)))
    metadata = model(W)
    helper.set_model_props(metadata, {"a": "1"})
    metadata.metadata_props.add(key="a", value="2")
    with pytest.raises(Corrupt, match="a key of the metadata comes twice"):
        read(save(tmp_path / "b.onnx", metadata))


def test_tensors_in_nodes_and_in_graphs_within(tmp_path: Path) -> None:
    """Constants are called by their output; a name that is taken gets a number."""
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor("", np.float32(3)))], "branch", [],
        [helper.make_tensor_value_info("c", 1, [])], [tensor("w", np.zeros(2, np.float32))],
    )  # fmt: skip
    nodes = (
        helper.make_node("Constant", [], ["c"], value=tensor("other", np.float32(2))),
        helper.make_node("ConstantOfShape", ["s"], ["z"], name="fill", value=tensor("", np.zeros(1, np.int64))),
        helper.make_node("If", ["b"], ["i"], then_branch=branch, else_branch=branch),
    )
    weights = read(save(tmp_path / "a.onnx", model(W, nodes=nodes)))
    assert list(weights.tensors) == ["w", "c", "fill.value", "c@2", "w@2", "c@3", "w@3"]
    assert weights.graph is not None and weights.graph.operators["ai.onnx::Constant"] == 3


def test_what_a_graph_says(tmp_path: Path) -> None:
    nodes = [helper.make_node(name, ["x"], [name], domain=d) for name, d in (("Mine", "my.own"), ("Its", "its.own"))]
    body, opsets = [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", OPSET)]
    mine = helper.make_function("my.own", "Mine", ["a"], ["b"], body, opsets)
    made = model(W, nodes=tuple(nodes), producer_name="me", producer_version="1", functions=[mine])
    helper.set_model_props(made, {"author": "me"})
    weights = read(save(tmp_path / "a.onnx", made))
    graph = weights.graph
    assert graph is not None and weights.metadata == {"author": "me"}
    assert [(v.name, v.type, v.dims) for v in graph.inputs] == [("x", "f32", ("batch", 4))]
    assert graph.opsets == {"ai.onnx": OPSET} and graph.facts == {
        "ir_version": "10",
        "producer": "me",
        "producer_version": "1",
    }
    assert graph.functions == ("my.own::Mine",) and graph.custom == ("its.own",)
    assert graph.operators["ai.onnx::Relu"] == 1


def test_old_models_list_initialisers_among_the_inputs(tmp_path: Path) -> None:
    made = model(W)
    made.graph.input.append(helper.make_tensor_value_info("w", 1, [16]))
    graph = read(save(tmp_path / "a.onnx", made)).graph
    assert graph is not None and [value.name for value in graph.inputs] == ["x"]


def test_strings_and_sparse_tensors_are_named(tmp_path: Path) -> None:
    made = model(helper.make_tensor("s", TensorProto.STRING, [2], [b"a", b"b"]))
    values = tensor("sparse", np.ones(2, np.float32))
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, tensor("", np.arange(2)), [8]))
    weights = read(save(tmp_path / "a.onnx", made))
    assert not weights.tensors
    assert [(s.path, s.type) for s in weights.skipped] == [("s", "a tensor of strings"), ("sparse", "a sparse tensor")]


def test_more_tensors_than_any_model_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("artifactkit.onnx_files.reader.MAX_TENSORS", 3)
    many = [tensor(str(i), np.zeros(1, np.float32)) for i in range(4)]
    assert len(read(save(tmp_path / "a.onnx", model(*many[:3]))).tensors) == 3
    with pytest.raises(LimitExceeded):
        read(save(tmp_path / "b.onnx", model(*many)))


def test_headers_alone_need_no_library(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = save(tmp_path / "a.onnx", model(W))
    code = (
        "import sys; from artifactkit.cli.main import run\n"
        "sys.argv = ['artifactkit', 'inspect', sys.argv[1]]\n"
        "try: run()\nexcept SystemExit as e: assert not e.code\n"
        "assert not {'onnx', 'numpy', 'torch', 'onnxruntime', 'google'} & {m.split('.')[0] for m in sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
