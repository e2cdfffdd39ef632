"""What the names in torch's pickles mean.

Argument orders: ``_utils.py``, ``_tensor.py``, ``serialization.py`` and ``jit/_pickle.py`` of torch 2.13, and of older
ones where they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .. import dtypes
from ..errors import Corrupt
from ..pickles import Call, Global, Handler, Inert, Machine, Opaque, Payload, Persistent, constant, function
from .arguments import arity, integer, integers
from .values import Quant, Storage, StorageType, TensorValue, TorchType, Unsupported

U8 = dtypes.BY_NAME["u8"]

# torch.<name> -> dtype. qint types are stored as plain integers.
QUANTIZED = {"qint8": "i8", "quint8": "u8", "qint32": "i32"}
SYNONYMS = {"half": "float16", "float": "float32", "double": "float64", "cfloat": "complex64", "cdouble": "complex128",
            "chalf": "complex32", "short": "int16", "int": "int32", "long": "int64"}  # fmt: skip
NOT_HELD = ("quint4x2", "quint2x4", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2",
            *(f"{sign}int{n}" for sign in ("", "u") for n in range(1, 8)))  # fmt: skip

TYPES: dict[str, TorchType] = {name: TorchType(name, dtype) for name, dtype in dtypes.BY_TORCH.items()}
TYPES |= {name: TorchType(name, dtypes.BY_NAME[stored], quantized=True) for name, stored in QUANTIZED.items()}
TYPES |= {name: TorchType(name, None) for name in NOT_HELD}
TYPES |= {short: TYPES[name] for short, name in SYNONYMS.items()}

STORAGES: dict[str, str | None] = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "LongStorage": "int64",
    "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "BFloat16Storage": "bfloat16", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "QUInt8Storage": "quint8", "QInt8Storage": "qint8", "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4", "UntypedStorage": None, "TypedStorage": None,
    "_UntypedStorage": None, "_TypedStorage": None,
}  # fmt: skip
TENSORS: dict[str, str] = {
    f"{name.removesuffix('Storage')}Tensor": of for name, of in STORAGES.items() if of and not of.startswith("q")
}

QSCHEMES = ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
            "per_channel_affine_float_qparams")  # fmt: skip
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "jagged")
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


@dataclass(frozen=True, slots=True)
class Named:
    """A constant of torch that means nothing to tensor bytes: a layout, a memory format, a quantisation scheme."""

    name: str


@dataclass(frozen=True, slots=True)
class StorageId:
    """A persistent id of torch's, taken apart. ``numel`` counts elements of ``type``, bytes when it is untyped.

    ``view`` is (key, offset, numel) of the legacy format: this storage is a part of another one.
    """

    type: StorageType
    key: str
    location: str
    numel: int
    view: tuple[str, int, int] | None = None

    def storage(self) -> Storage:
        """A storage of this type and size, whose ``source`` is still to be set."""
        known = self.type.type
        dtype = None if known is None else known.dtype
        return Storage(self.key, dtype, numel=self.numel, location=self.location, type=known)


def storage_id(pid: object) -> StorageId:
    """Take ``('storage', type, key, location, numel[, view])`` apart; Corrupt when ``pid`` is anything else."""
    if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] not in ("storage", b"storage"):
        raise Corrupt("a persistent id does not describe a storage", expected="('storage', type, key, location, numel)",
                      found=type(pid).__name__ if not isinstance(pid, tuple) else f"a tuple of {len(pid)}")  # fmt: skip
    _, kind, key, location, numel = pid[:5]
    if not isinstance(kind, StorageType):
        found = kind.full if isinstance(kind, Global | Opaque) else type(kind).__name__
        raise Corrupt("a persistent id names no storage class", expected="such as torch.FloatStorage", found=found)
    view = pid[5] if len(pid) == 6 else None
    if not _is_key(key) or not isinstance(location, str) or not _is_size(numel):
        raise Corrupt("a persistent id is malformed", expected="key, location and number of elements")
    if view is None:
        return StorageId(kind, str(key), location, numel)
    if not (isinstance(view, tuple) and len(view) == 3 and _is_key(view[0]) and all(map(_is_size, view[1:]))):
        raise Corrupt("a storage's view is malformed", expected="(key, offset, number of elements)")
    return StorageId(kind, str(key), location, numel, (str(view[0]), view[1], view[2]))


def _is_key(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and 0 <= value < 1 << 63)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


# -- tensors


def _view(call: Call, kind: TorchType | None = None, quant: Quant | None = None) -> object:
    """A tensor from the first four arguments: storage, offset, size, stride. ``kind`` overrides the storage's dtype."""
    storage = call.args[0]
    offset = integer(call, call.args[1], "the storage offset")
    shape = integers(call, call.args[2], "the size")
    strides = integers(call, call.args[3], "the stride")
    if isinstance(storage, Unsupported):
        return storage
    if isinstance(storage, Opaque | Persistent):
        return call.opaque()
    if not isinstance(storage, Storage):
        raise call.corrupt("the first argument is no storage", found=type(storage).__name__)
    kind = kind or storage.type
    if kind is not None and kind.dtype is None:
        return Unsupported(f"a tensor of dtype {kind.name}")
    dtype = (storage.dtype if kind is None else kind.dtype) or U8
    if len(shape) != len(strides):
        raise call.corrupt("size and stride differ in length", expected=len(shape), found=len(strides))
    return TensorValue(dtype, shape, strides, offset, storage, quant=quant)


def _with_metadata(call: Call, tensor: object, requires_grad: object, metadata: object) -> object:
    if not isinstance(tensor, TensorValue):
        return tensor
    tensor.requires_grad = requires_grad is True
    if metadata:
        if not isinstance(metadata, dict):
            raise call.corrupt("the metadata is no dict", found=type(metadata).__name__)
        tensor.conj = metadata.get("conj", False) is True
        tensor.neg = metadata.get("neg", False) is True
    return tensor


def _rebuild_tensor(call: Call) -> object:
    arity(call, 4, 4)
    return _view(call)


def _rebuild_tensor_v2(call: Call) -> object:
    arity(call, 6, 7)
    return _with_metadata(call, _view(call), call.args[4], call.args[6] if len(call.args) > 6 else None)


def _rebuild_tensor_v3(call: Call) -> object:
    arity(call, 7, 8)
    kind = _dtype(call, call.args[6])
    return _with_metadata(call, _view(call, kind), call.args[4], call.args[7] if len(call.args) > 7 else None)


def _dtype(call: Call, value: object) -> TorchType:
    if not isinstance(value, TorchType):
        raise call.corrupt("an argument is no dtype", found=type(value).__name__)
    return value


def _rebuild_qtensor(call: Call) -> object:
    arity(call, 7, 7)
    given = call.args[4]
    params: tuple[object, ...] = given if isinstance(given, tuple) else ()
    scheme = params[0].name if params and isinstance(params[0], Named) else ""
    if scheme.startswith("per_tensor") and len(params) == 3:
        _, scale, zero = params
        if not isinstance(scale, int | float) or not isinstance(zero, int):
            raise call.corrupt("scale or zero point is no number")
        quant = Quant(scheme, float(scale), zero)
    elif scheme.startswith("per_channel") and len(params) == 4:
        _, scales, zeros, along = params
        shape = integers(call, call.args[2], "the size")
        axis = integer(call, along, "the axis")
        if not 0 <= axis < len(shape):
            raise call.corrupt("the axis is out of range", expected=f"0..{len(shape) - 1}", found=axis)
        for what, values in (("scales", scales), ("zero points", zeros)):
            if not isinstance(values, list | TensorValue):
                raise call.corrupt(f"the {what} are no list and no tensor", found=type(values).__name__)
            count = len(values) if isinstance(values, list) else dtypes.numel(values.shape)
            if count != shape[axis]:
                raise call.corrupt(f"wrong number of {what}", expected=shape[axis], found=count)
        quant = Quant(scheme, scales, zeros, axis)
    else:
        raise call.corrupt("unknown quantisation parameters", found=scheme or type(given).__name__)
    return _with_metadata(call, _view(call, quant=quant), call.args[5], None)


def _parameter(call: Call, data: object, requires_grad: object, state: object = None) -> object:
    if isinstance(data, Unsupported):
        return data
    if not isinstance(data, TensorValue):
        return call.opaque()
    made = replace(data, kind="parameter", requires_grad=requires_grad is True, attrs={})
    if state is not None:
        made.build(state, call.machine)
    return made


def _rebuild_parameter(call: Call) -> object:
    arity(call, 3, 3)
    return _parameter(call, call.args[0], call.args[1])


def _rebuild_parameter_with_state(call: Call) -> object:
    arity(call, 4, 4)
    return _parameter(call, call.args[0], call.args[1], call.args[3])


def _rebuild_from_type_v2(call: Call) -> object:
    arity(call, 4, 4)
    rebuild, kind, args, state = call.args
    # Only the rebuild functions themselves: one that called this again would nest as deep as the file likes.
    if not isinstance(rebuild, Global) or (rebuild.module, rebuild.name) not in REBUILD or not isinstance(args, tuple):
        return call.opaque()
    made = REBUILD[(rebuild.module, rebuild.name)](call._replace(callee=rebuild, args=args, kwargs={}))
    if isinstance(made, TensorValue):
        if isinstance(kind, Global) and kind.name in ("Parameter", "Buffer"):
            made.kind = "parameter" if kind.name == "Parameter" else "buffer"
        made.build(state, call.machine)
    return made


def _unsupported(what: str) -> Callable[[Call], object]:
    return lambda call: Unsupported(what)


def _rebuild_sparse(call: Call) -> object:
    layout = call.args[0] if call.args else ""
    name = layout.name if isinstance(layout, Named) else layout if isinstance(layout, str) else "unknown layout"
    return Unsupported(f"a sparse tensor ({name[:40].removeprefix('torch.')})")


def _rebuild_device_tensor(call: Call) -> object:
    """(data, dtype, device, requires_grad): how XLA, HPU and other tensors without a storage of their own are saved."""
    arity(call, 4, 4)
    data, dtype, _, requires_grad = call.args
    kind = _dtype(call, dtype)
    from .numpy_names import ArrayValue

    made = data.tensor() if isinstance(data, ArrayValue) else data
    if not isinstance(made, TensorValue):
        return made if isinstance(made, Unsupported) else call.opaque()
    if made.dtype != kind.dtype:
        return Unsupported(f"a device tensor saved as {made.dtype} to be loaded as {kind.name}")
    return replace(made, requires_grad=requires_grad is True, kind="tensor")


def _tensor_class(kind: str) -> Callable[[Call], object]:
    """A tensor class constructed as such: legacy pickles give storage, offset, size and stride as BUILD's state."""

    def construct(call: Call) -> object:
        if call.args and isinstance(call.args[0], TensorValue | Unsupported) and kind == "Parameter":
            return _parameter(call, call.args[0], call.args[1] if len(call.args) > 1 else True)
        if call.args:
            return call.opaque()
        return LegacyTensor(call.callee)

    return construct


class LegacyTensor(Inert):
    """A tensor that has been constructed and not yet been given its state."""

    __slots__ = ("cls", "made")

    def __init__(self, cls: Global) -> None:
        self.cls = cls
        self.made: object = None

    def build(self, state: object, machine: Machine) -> object:
        call = Call(machine, self.cls, state if isinstance(state, tuple) else (), {}, "NEWOBJ", machine.at)
        if len(call.args) == 4 and isinstance(call.args[0], Storage | Unsupported):
            self.made = _view(call)
        elif len(call.args) == 5 and isinstance(call.args[0], TensorValue):  # Variable: data, grad, hooks, ...
            self.made = replace(call.args[0], attrs={})
        else:
            raise call.corrupt("the state is no storage, offset, size and stride")
        if isinstance(self.made, TensorValue) and self.cls.name == "Parameter":
            self.made.kind = "parameter"
        return self.made


# -- the rest


def _size(call: Call) -> object:
    arity(call, 0, 1)
    return integers(call, call.args[0] if call.args else (), "the size")


def _device(call: Call) -> object:
    parts = [str(part) for part in call.args if isinstance(part, str | int) and len(str(part)) < 64]
    return Named("device " + ":".join(parts))


def _get_layout(call: Call) -> object:
    arity(call, 1, 1)
    name = call.args[0]
    if not isinstance(name, str):
        raise call.corrupt("the layout is no name", found=type(name).__name__)
    return Named(name[:64])


def _first(call: Call) -> object:
    """TorchScript's list builders and type tags: the value is the first argument."""
    if not call.args:
        raise call.corrupt("wrong number of arguments", expected="at least 1", found=0)
    return call.args[0]


REBUILD: dict[tuple[str, str], Callable[[Call], object]] = {
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
    ("torch._utils", "_rebuild_qtensor"): _rebuild_qtensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter_with_state,
    ("torch._utils", "_rebuild_sparse_tensor"): _rebuild_sparse,
    ("torch._utils", "_rebuild_sparse_csr_tensor"): _rebuild_sparse,
    ("torch._utils", "_rebuild_nested_tensor"): _unsupported("a nested tensor"),
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): _rebuild_device_tensor,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _rebuild_device_tensor,
    ("torch._utils", "_rebuild_xla_tensor"): _rebuild_device_tensor,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _unsupported("a meta tensor, which has no data"),
    ("torch._utils", "_rebuild_wrapper_subclass"): _unsupported("a tensor subclass that keeps its data elsewhere"),
}


def _entries() -> dict[tuple[str, str], Handler]:
    out: dict[tuple[str, str], Handler] = {key: function(fn) for key, fn in REBUILD.items()}
    out[("torch._tensor", "_rebuild_from_type_v2")] = function(_rebuild_from_type_v2)
    for name, kind in TYPES.items():
        out[("torch", name)] = constant(kind)
    for name, of in STORAGES.items():
        cls = constant(StorageType(name, TYPES[of] if of else None))
        for module in ("torch", "torch.cuda", "torch.storage"):
            out[(module, name)] = cls
    for name in (*QSCHEMES, *LAYOUTS, *MEMORY_FORMATS):
        out[("torch", name)] = constant(Named(name))
    for name in TENSORS:
        for module in ("torch", "torch.cuda"):
            out[(module, name)] = function(_tensor_class(name))
        for module in ("torch.sparse", "torch.cuda.sparse"):
            out[(module, name)] = function(_unsupported("a sparse tensor"))
    for module, name in (("torch", "Tensor"), ("torch._tensor", "Tensor"), ("torch.tensor", "Tensor"),
                         ("torch.autograd.variable", "Variable")):  # fmt: skip
        out[(module, name)] = function(_tensor_class("Tensor"))
    for name in ("Parameter", "Buffer"):
        out[("torch.nn.parameter", name)] = function(_tensor_class(name))
    for name in ("UninitializedParameter", "UninitializedBuffer"):
        out[("torch.nn.parameter", name)] = function(_unsupported("an uninitialised parameter, which has no data"))
    out[("torch", "Size")] = function(_size)
    out[("torch", "device")] = function(_device)
    out[("torch.serialization", "_get_layout")] = function(_get_layout)
    for name in ("restore_type_tag", "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist"):
        out[("torch.jit._pickle", name)] = function(_first)
    return out


TORCH: dict[tuple[str, str], Handler] = _entries()


def nested_loader(load: Callable[[bytes | Payload], object] | None) -> Handler:
    """``torch.storage._load_from_bytes``, whose argument is a whole torch file. ``load`` reads it; without, Opaque."""

    def answer(call: Call) -> object:
        arity(call, 1, 1)
        data = call.args[0]
        if load is None or not isinstance(data, bytes | Payload):
            return call.opaque()
        return load(data)

    return function(answer)


def tensor_by_id(lookup: Callable[[int], object] | None) -> Handler:
    """``torch.jit._pickle.build_tensor_from_id``: a tensor of a table that the archive keeps elsewhere."""

    def answer(call: Call) -> object:
        arity(call, 1, 1)
        index = integer(call, call.args[0], "the tensor's index")
        return call.opaque() if lookup is None else lookup(index)

    return function(answer)
