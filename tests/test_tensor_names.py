"""The closed table of tensor names, against what torch and numpy make of the same bytes."""

from __future__ import annotations

import collections
import io
import pickle
import warnings
import zipfile
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded
from artifactkit.files import Memory
from artifactkit.pickles import Inert, Machine, Opaque, Payload
from artifactkit.source import Inline, read_all
from artifactkit.tensor_names import (
    ArrayValue,
    LegacyTensor,
    NumpyType,
    Scalar,
    Storage,
    TensorValue,
    Unsupported,
    parse_dtype,
    storage_id,
    tensor_table,
)

warnings.filterwarnings("ignore", message=".*[Qq]uantiz.*")


def torch_zip(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def read_zip(data: bytes, **options: Any) -> tuple[Any, Machine]:
    """The value in a file of torch.save, by our machine; storages are read with the standard library's zipfile."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    (main,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    root = main.removesuffix("data.pkl")
    storages: dict[str, Storage] = {}

    def persistent(pid: object) -> object:
        found = storage_id(pid)
        if found.key not in storages:
            storage = found.storage()
            storage.source = Inline(archive.read(f"{root}data/{found.key}"), (found.key, 0))
            storages[found.key] = storage
        return storages[found.key]

    machine = Machine(Memory(archive.read(main)), table=tensor_table(**options), persistent=persistent)
    return machine.load(), machine


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor as it looks: contiguous, conjugation and negation resolved."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if dense.is_quantized:
        dense = dense.int_repr()
    if dense.numel() == 0:
        return b""
    return dense.reshape(-1).view(torch.uint8).numpy().tobytes()


def check(values: dict[str, torch.Tensor]) -> dict[str, TensorValue]:
    """Save, read both ways, compare bytes, shape and type of each."""
    data = torch_zip(values)
    truth = torch.load(io.BytesIO(data), weights_only=True)
    got, machine = read_zip(data)
    assert not machine.unknown
    assert list(got) == list(truth)
    for name, tensor in truth.items():
        value = got[name]
        assert isinstance(value, TensorValue), name
        assert value.shape == tuple(tensor.shape)
        assert read_all(value.to_source(len(data), name)) == raw(tensor), name
        if not tensor.is_quantized:
            assert value.dtype.torch == str(tensor.dtype).removeprefix("torch.")
    return got


REAL = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]  # fmt: skip
WHOLE = [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    size = torch.empty((), dtype=dtype).element_size()
    count = int(np.prod(shape, dtype=int)) * size
    data = np.random.default_rng(count).integers(0, 2 if dtype == torch.bool else 256, count, np.uint8)
    return torch.from_numpy(data).view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [*REAL, *WHOLE, *COMPLEX], ids=str)
def test_every_dtype_with_every_kind_of_view(dtype: torch.dtype) -> None:
    whole = some(dtype, 6, 10)
    check({
        "whole": whole, "row": whole[2], "column": whole[:, 3], "transposed": whole.T, "offset": whole[2:, 5:],
        "stepped": whole[::2, ::3], "scalar": whole[1, 1], "0-d": some(dtype), "empty": some(dtype, 0, 3),
        "empty view": whole[3:3], "expanded": whole[:1].expand(4, 10), "again": whole, "more": whole[None, :, None],
    })  # fmt: skip


def test_shared_storages_are_equal_sources() -> None:
    tied = torch.arange(6.0)
    got = check({"a": tied, "b": tied, "c": tied.clone(), "d": tied[1:]})
    sources = {name: value.to_source() for name, value in got.items()}
    assert sources["a"] == sources["b"]
    assert sources["a"] != sources["c"]
    assert got["a"].storage is got["d"].storage


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_conjugate_negative_real_and_imaginary_views(dtype: torch.dtype) -> None:
    z = some(dtype, 3, 4)
    got = check({"conj": z.conj(), "conj view": z.conj()[1:, ::2], "conj t": z.conj().T})
    assert got["conj"].conj
    check({"real": z.real})
    check({"imag": z.imag})
    negative = check({"imag of conj": z.conj().imag})
    assert negative["imag of conj"].neg
    check({"as real": torch.view_as_real(z)[1]})
    if dtype != torch.complex32:  # torch cannot resolve it
        check({"neg conj": torch._neg_view(z.conj())})


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_quantised_tensors_keep_scale_and_zero_point(dtype: torch.dtype) -> None:
    zero = 0 if dtype == torch.qint32 else 3
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.5]), torch.tensor([0, 1, 2])
    values = {
        "tensor": torch.quantize_per_tensor(x, 0.1, zero, dtype),
        "view": torch.quantize_per_tensor(x, 0.1, zero, dtype)[1:],
    }
    if dtype != torch.qint32:
        values["channel"] = torch.quantize_per_channel(x, scales, zeros, 0, dtype)
    got = check(values)
    quant = got["tensor"].quant
    assert quant is not None
    assert (quant.scale, quant.zero_point) == (0.1, zero)
    if "channel" in got:
        quant = got["channel"].quant
        assert quant is not None
        assert quant.axis == 0
        assert isinstance(quant.scale, TensorValue)
        assert read_all(quant.scale.to_source()) == raw(scales.double())


def test_parameters_buffers_and_subclasses() -> None:
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    stated = torch.nn.Parameter(torch.ones(3))
    stated.note = "kept"  # type: ignore[attr-defined]
    got, machine = read_zip(torch_zip({"p": parameter, "s": stated, "b": torch.nn.Buffer(torch.ones(1))}))
    assert (got["p"].kind, got["p"].requires_grad) == ("parameter", False)
    assert (got["s"].kind, got["s"].requires_grad, got["s"].attrs) == ("parameter", True, {"note": "kept"})
    assert read_all(got["b"].to_source()) == raw(torch.ones(1))
    assert not machine.unknown


def test_other_torch_values() -> None:
    value = {
        "size": torch.Size([2, 3]), "device": torch.device("cuda:1"), "dtype": torch.bfloat16,
        "ordered": collections.OrderedDict(a=1), "q": torch.qint8,
    }  # fmt: skip
    got, machine = read_zip(torch_zip(value))
    assert got["size"] == (2, 3)
    assert got["device"].name == "device cuda:1"
    assert got["dtype"].dtype.name == "bf16"
    assert got["ordered"] == {"a": 1}
    assert got["q"].quantized
    assert not machine.unknown


def sparse() -> torch.Tensor:
    return torch.eye(3).to_sparse()


UNSUPPORTED = {
    "sparse tensor (sparse_coo)": lambda: sparse(),
    "sparse tensor (sparse_csr)": lambda: torch.eye(3).to_sparse_csr(),
    "meta tensor": lambda: torch.empty(3, device="meta"),
    "uninitialised parameter": lambda: torch.nn.UninitializedParameter(),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quint4x2": lambda: torch.quantize_per_channel(
        torch.ones(2, 4), torch.ones(2), torch.zeros(2), 0, torch.quint4x2
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", UNSUPPORTED)
def test_what_no_target_can_hold_is_refused_by_name(words: str) -> None:
    got, _ = read_zip(torch_zip({"emb.weight": UNSUPPORTED[words]()}))
    value = got["emb.weight"]
    assert isinstance(value, Unsupported)
    assert words in value.what
    refusal = value.refusal("emb.weight")
    assert refusal.tensor == "emb.weight"
    assert "not supported" in refusal.what


# -- views that lie


def tensor(shape: object, strides: object, offset: object = 0, numel: int = 4) -> TensorValue:
    storage = Storage("0", parse_dtype("f4").dtype, Inline(bytes(4 * numel)), numel)
    dtype = parse_dtype("f4").dtype
    assert dtype is not None
    return TensorValue(dtype, shape, strides, offset, storage)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((5,), (1,), 0), ((4,), (1,), 1), ((2, 2), (3, 1), 0), ((2,), (4,), 0), ((2,), (-1,), 0), ((1,), (1,), -1),
     ((-1,), (1,), 0), ((2,), (1, 1), 0), ((1 << 62,), (1 << 62,), 0), ((1 << 70,), (1,), 0),
     ((1,) * 65, (1,) * 65, 0)],
)  # fmt: skip
def test_a_view_outside_its_storage_is_corrupt_and_named(shape: Any, strides: Any, offset: int) -> None:
    with pytest.raises(Corrupt) as caught:
        tensor(shape, strides, offset).to_source(100, "layer.weight")
    assert caught.value.tensor == "layer.weight"


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((4,), (1,), 0), ((3,), (1,), 1), ((2, 2), (2, 1), 0), ((1,), (100,), 3), ((0,), (1,), 99), ((2,), (-1,), 1),
     ((4, 1000), (1, 0), 0)],
)  # fmt: skip
def test_a_view_within_its_storage_passes(shape: Any, strides: Any, offset: int) -> None:
    made = tensor(shape, strides, offset)
    assert made.to_source(100, "w").nbytes == made.nbytes


def test_a_storage_that_is_not_there_is_corrupt() -> None:
    made = tensor((4,), (1,))
    made.storage.source = None
    with pytest.raises(Corrupt, match="not in the file"):
        made.to_source(100, "w")
    empty = tensor((0,), (1,))
    empty.storage.source = None
    assert empty.to_source(100, "w").nbytes == 0


def test_an_expanded_bomb_is_refused_and_an_expanded_tensor_is_not() -> None:
    with pytest.raises(LimitExceeded) as caught:
        tensor((1 << 40,), (0,)).to_source(1000, "bomb")
    assert caught.value.tensor == "bomb"
    assert tensor((1 << 20,), (0,)).to_source(1000).nbytes == 1 << 22
    assert tensor((1 << 28,), (0,)).to_source(1 << 30).nbytes == 1 << 30


def test_big_endian_storages_are_swapped_by_element() -> None:
    for dtype in (np.float32, np.int64, np.float16, np.uint8, np.complex64):
        values = np.arange(6).astype(dtype)
        kind = parse_dtype(values.dtype.str)
        big = values.astype(values.dtype.newbyteorder(">"))
        storage = Storage("0", kind.dtype, Inline(big.tobytes()), 6, byteorder="big")
        assert kind.dtype is not None
        made = TensorValue(kind.dtype, (2, 2), (3, 1), 1, storage)
        assert read_all(made.to_source()) == values.reshape(2, 3)[:, 1:].copy().tobytes()


# -- the table itself


def test_the_table_is_closed_and_cannot_be_changed_by_a_file() -> None:
    table = tensor_table()
    assert {module.split(".")[0] for module, _ in table} == {
        "torch", "numpy", "ml_dtypes", "joblib", "sklearn", "collections", "builtins", "copyreg", "_codecs", "argparse",
        "types", "pathlib", "datetime", "uuid", "decimal", "fractions", "ipaddress",
    }  # fmt: skip
    builtins = {name for module, name in table if module == "builtins"}
    assert not builtins & {
        "eval",
        "exec",
        "getattr",
        "setattr",
        "compile",
        "open",
        "__import__",
        "map",
        "filter",
        "type",
    }
    assert not any("." in name for _, name in table)
    for key, handler in table.items():
        assert (handler.function is None) == (handler.kind == "value"), key
        # A constant is shared by all files: BUILD, APPEND and SETITEM must find nothing to change in it.
        assert not isinstance(handler.value, Inert | dict | list | set | bytearray), key
        hash(handler.value)


# -- arguments that lie: any of them is one of our errors

REBUILD = "ctorch._utils\n_rebuild_tensor_v2\n"


def persistent(pid: object) -> object:
    storage = storage_id(pid).storage()
    storage.source = Inline(bytes(storage.nbytes))
    return storage


GOOD_ID = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x04tQ"


ARGUMENTS = b"K\x00K\x02\x85K\x01\x85\x89N"  # offset 0, size (2,), stride (1,), requires_grad, hooks


@pytest.mark.parametrize(
    "args",
    [
        ARGUMENTS,
        b"U\x01aK\x02\x85K\x01\x85\x89N",
        b"K\x00K\x02K\x01\x85\x89N",
        b"K\x00U\x01a\x85K\x01\x85\x89N",
        b"K\x00K\x02\x85)\x89N",
        b"NK\x02\x85K\x01\x85\x89N",
        b"\x88K\x02\x85K\x01\x85\x89N",
        b"K\x00K\x02\x85K\x01\x85",
        b"",
        ARGUMENTS + b"U\x01a",
        b"\x8a\x09" + b"\xff" * 8 + b"\x7fK\x02\x85K\x01\x85\x89N",
        b"K\x00}}}}",
    ],
)
def test_rebuild_arguments_are_checked(args: bytes) -> None:
    data = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + GOOD_ID + args + b"tR."
    machine = Machine(Memory(data), table=tensor_table(), persistent=persistent)
    if args == ARGUMENTS:
        assert isinstance(machine.load(), TensorValue)
    else:
        with pytest.raises(Corrupt) as caught:
            machine.load()
        assert caught.value.offset is not None


@pytest.mark.parametrize(
    "pid",
    [("storage",), ("module", 1, "0", "cpu", 4), ("storage", 1, "0", "cpu", 4), ("storage", "KIND", None, "cpu", 4),
     ("storage", "KIND", "0", 1, 4), ("storage", "KIND", "0", "cpu", -1), ("storage", "KIND", "0", "cpu", "4"), "text",
     5, ("storage", "KIND", "0", "cpu", 4, ("1", 0)), ("storage", "KIND", "0", "cpu", 4, ("1", -1, 2))],
)  # fmt: skip
def test_persistent_ids_are_checked(pid: Any) -> None:
    kind = tensor_table()[("torch", "FloatStorage")].value
    fill = lambda value: (
        tuple(kind if part == "KIND" else part for part in value) if isinstance(value, tuple) else value
    )
    with pytest.raises(Corrupt):
        storage_id(fill(pid))
    good = storage_id(fill(("storage", "KIND", "0", "cuda:0", 4, ("9", 1, 2))))
    assert (good.key, good.location, good.numel, good.view) == ("0", "cuda:0", 4, ("9", 1, 2))


# -- legacy and other pickles of tensors


def test_plain_pickle_keeps_the_storage_as_a_nested_file() -> None:
    data = pickle.dumps({"w": torch.arange(3.0)}, 2)
    seen: list[bytes] = []

    def load_bytes(found: bytes | Payload) -> object:
        seen.append(found if isinstance(found, bytes) else found.read())
        return Storage("x", parse_dtype("f4").dtype, Inline(raw(torch.arange(3.0))), 3)

    got = Machine(Memory(data), table=tensor_table(load_bytes=load_bytes)).load()
    assert isinstance(got, dict)
    assert read_all(got["w"].to_source()) == raw(torch.arange(3.0))
    assert len(seen) == 1
    machine = Machine(Memory(data), table=tensor_table())
    got = machine.load()
    assert isinstance(got, dict)
    assert isinstance(got["w"], Opaque)
    assert not machine.unknown


def test_tensors_from_before_the_rebuild_functions() -> None:
    data = b"\x80\x02ctorch\nFloatTensor\n)\x81q\1(" + GOOD_ID + b"K\1K\2\x85K\1\x85tbh\1\x86."
    got = Machine(Memory(data), table=tensor_table(), persistent=persistent).load()
    assert isinstance(got, tuple)
    assert isinstance(got[0], TensorValue)
    assert (got[0].shape, got[0].offset) == ((2,), 1)
    assert isinstance(got[1], LegacyTensor)
    assert got[1].made is got[0]


def test_torchscript_helpers() -> None:
    data = (
        b"\x80\x02](ctorch.jit._pickle\nbuild_intlist\n](K\1K\2e\x85Rctorch.jit._pickle\nrestore_type_tag\n}U\1x\x86R"
        b"ctorch.jit._pickle\nbuild_tensor_from_id\nK\7\x85Re."
    )
    got = Machine(Memory(data), table=tensor_table(by_id=lambda index: ("tensor", index))).load()
    assert got == [[1, 2], {}, ("tensor", 7)]


# -- numpy

ARRAYS = {
    "f4": np.arange(6, dtype="<f4").reshape(2, 3), "big": np.arange(6, dtype=">i4").reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), "0-d": np.array(1.5), "empty": np.zeros((0, 2)),
    "bool": np.array([True, False]), "c16": np.array([1 + 2j]), "f2": np.array([1.5], "f2"),
    "strided": np.arange(9)[::2],
    "u8": np.array([2**64 - 1], "u8"), "large": np.arange(9_000, dtype="f8"), "large f": np.ones((90, 100)).T,
}  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("spelling", [b"numpy._core", b"numpy.core"])
def test_numpy_arrays(protocol: int, spelling: bytes) -> None:
    data = pickle.dumps(ARRAYS, protocol)
    if protocol < 4:  # above, names carry their length
        data = data.replace(b"numpy._core", spelling)
    machine = Machine(Memory(data), table=tensor_table())
    got = machine.load()
    assert isinstance(got, dict)
    assert not machine.unknown
    for name, array in ARRAYS.items():
        assert isinstance(got[name], ArrayValue)
        value = got[name].tensor()
        assert isinstance(value, TensorValue)
        assert value.shape == array.shape
        assert value.dtype.numpy == array.dtype.newbyteorder("=").name
        assert (
            read_all(value.to_source()) == np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()
        )


@pytest.mark.parametrize("protocol", range(6))
def test_numpy_arrays_that_hold_no_numbers(protocol: int) -> None:
    values = {
        "objects": np.array([None, {"a": np.ones(2)}, "x"], dtype=object), "text": np.array(["a", "bc"]),
        "record": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), "date": np.array(["2020-01-01"], "M8[D]"),
    }  # fmt: skip
    machine = Machine(Memory(pickle.dumps(values, protocol)), table=tensor_table())
    got = machine.load()
    assert isinstance(got, dict)
    assert not machine.unknown
    objects = got["objects"]
    assert isinstance(objects, ArrayValue)
    assert isinstance(objects.data, list)
    assert objects.shape == (3,)
    assert isinstance(objects.data[1]["a"], ArrayValue)  # type: ignore[index]
    for name, label in (("text", "U2"), ("record", "record of a, b"), ("date", "M8")):
        value = got[name].tensor()
        assert isinstance(value, Unsupported)
        assert label in value.what


@pytest.mark.parametrize("protocol", range(6))
def test_numpy_scalars_and_dtypes(protocol: int) -> None:
    scalars = [np.float64(0.5), np.int32(-3), np.bool_(True), np.float16(1.5), np.complex64(1 + 2j), np.uint64(2**63)]
    machine = Machine(Memory(pickle.dumps([*scalars, np.dtype(">f4"), np.float32], protocol)), table=tensor_table())
    got = machine.load()
    assert isinstance(got, list)
    for ours, theirs in zip(got, scalars, strict=False):
        assert isinstance(ours, Scalar)
        assert (ours.type, ours.value) == (theirs.dtype.name, theirs.item())
    assert isinstance(got[6], NumpyType)
    assert got[6].big
    assert not machine.unknown


def test_ml_dtypes_arrays() -> None:
    import ml_dtypes

    values = {
        name: np.arange(4).astype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    }
    machine = Machine(Memory(pickle.dumps(values, 4)), table=tensor_table())
    got = machine.load()
    assert isinstance(got, dict)
    assert not machine.unknown
    for name, array in values.items():
        value = got[name].tensor()
        assert isinstance(value, TensorValue)
        assert value.dtype.numpy == name
        assert read_all(value.to_source()) == array.tobytes()


def test_an_array_that_lies_about_its_length_is_corrupt() -> None:
    data = pickle.dumps(np.arange(6, dtype="f4").reshape(2, 3), 2)
    assert data.count(b"K\x02K\x03\x86") == 1
    with pytest.raises(Corrupt, match="not as long as it says"):
        Machine(Memory(data.replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86")), table=tensor_table()).load()


def test_a_shared_constant_cannot_be_changed_by_a_file() -> None:
    data = b"\x80\x02cnumpy\nfloat32\n(K\x03U\x01>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb."
    with pytest.raises(Corrupt):
        Machine(Memory(data), table=tensor_table()).load()
    one, two = (
        Machine(Memory(pickle.dumps(np.dtype(code), 2)), table=tensor_table()).load() for code in (">f4", "<f4")
    )
    assert isinstance(one, NumpyType)
    assert isinstance(two, NumpyType)
    assert (one.big, two.big) == (True, False)


# -- bytes that are kept as text (protocols 0 to 2), large


@settings(max_examples=30)
@given(st.binary(min_size=1, max_size=300), st.integers(0, 2))
def test_bytes_as_text(data: bytes, protocol: int) -> None:
    assert Machine(Memory(pickle.dumps(data, protocol)), table=tensor_table()).load() == data


def test_large_bytes_as_text_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("artifactkit.tensor_names.python_names.STEP", 1000)
    data = bytes(range(256)) * 300
    for odd in (data, b"a" + data, data[77:]):
        got = Machine(Memory(pickle.dumps(odd, 2)), table=tensor_table()).load()
        assert isinstance(got, Payload)
        assert got.nbytes == len(odd)
        assert got.read() == odd
        for offset, n in ((0, 1), (1, 999), (500, 3000), (len(odd) - 1, 1), (len(odd), 0), (12_345, 12_345)):
            assert got.data.read(offset, n) == odd[offset : offset + n]
    wide = pickle.dumps("x" * 70_000 + "€", 2)
    with pytest.raises(Corrupt, match="beyond Latin-1"):
        Machine(
            Memory(b"\x80\x02c_codecs\nencode\n" + wide[2:-1].rstrip(b".") + b"U\6latin1\x86R."), table=tensor_table()
        ).load()


# -- joblib


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_joblib_arrays_between_opcodes(protocol: int) -> None:
    value = {
        "a": np.arange(1000.0).reshape(10, 100),
        "b": [np.asfortranarray(np.arange(6, dtype="i2").reshape(2, 3)), "text"],
        "objects": np.array([None, 1, "x"], dtype=object), "empty": np.zeros((0,)), "scalar": np.float32(2), "after": 7,
    }  # fmt: skip
    out = io.BytesIO()
    joblib.dump(value, out, protocol=protocol)
    machine = Machine(Memory(out.getvalue()), table=tensor_table())
    got = machine.load()
    assert machine.position == len(out.getvalue())
    assert not machine.unknown
    assert isinstance(got, dict)
    assert got["after"] == 7
    assert got["objects"].data == [None, 1, "x"]
    for ours, theirs in ((got["a"], value["a"]), (got["b"][0], value["b"][0]), (got["empty"], value["empty"])):
        made = ours.tensor()
        assert made.shape == theirs.shape
        assert read_all(made.to_source()) == np.ascontiguousarray(theirs).tobytes()
    for end in range(0, len(out.getvalue()), 37):
        with pytest.raises(Corrupt):
            Machine(Memory(out.getvalue()[:end]), table=tensor_table()).load()


# -- any pickle of a checkpoint, damaged: a value or one of our errors, all the way to the bytes


def test_damaged_checkpoints_end_in_our_errors() -> None:
    value = {"w": torch.arange(6.0).reshape(2, 3).T, "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
             "p": torch.nn.Parameter(torch.ones(2)), "n": np.arange(4), "s": np.float32(1),
             "c": torch.ones(2, dtype=torch.complex64).conj()}  # fmt: skip
    data = torch_zip(value)
    archive = zipfile.ZipFile(io.BytesIO(data))
    (main,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    plain = archive.read(main)
    table = tensor_table()
    rng = np.random.default_rng(0)
    for _ in range(1500):
        broken = bytearray(plain)
        for _ in range(int(rng.integers(1, 4))):
            broken[int(rng.integers(len(broken)))] = int(rng.choice([rng.integers(256), rng.choice(list(plain))]))
        try:
            got = Machine(Memory(bytes(broken)), table=table, persistent=persistent).load()
            for item in got.values() if isinstance(got, dict) else ():
                made = item.tensor() if isinstance(item, ArrayValue) else item
                if isinstance(made, TensorValue):
                    source = made.to_source(1000, "x")
                    if source.nbytes < 1 << 20:
                        read_all(source)
        except ArtifactkitError:
            pass
