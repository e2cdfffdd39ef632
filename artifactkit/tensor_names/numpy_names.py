"""What the names in numpy's and joblib's pickles mean.

Source: numpy ``_core/src/multiarray/methods.c`` (array_setstate), ``descriptor.c`` (arraydescr_setstate),
``_core/numeric.py`` (_frombuffer); joblib ``numpy_pickle.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from .. import dtypes
from ..dtypes import DType
from ..pickles import Call, Global, Handler, Inert, Machine, Payload, Table, constant, function
from .arguments import arity, integers, raw_source
from .values import Storage, TensorValue, Unsupported

BY_CODE = {
    "b1": "bool", "?": "bool", "i1": "i8", "u1": "u8", "i2": "i16", "u2": "u16", "i4": "i32", "u4": "u32", "i8": "i64",
    "u8": "u64", "f2": "f16", "f4": "f32", "f8": "f64", "c8": "c64", "c16": "c128",
}  # fmt: skip
BY_LONG_NAME: dict[str, str] = {d.numpy: d.name for d in dtypes.ALL if d.numpy}
ML_TYPES: dict[str, str] = {d.numpy: d.name for d in dtypes.ALL if d.numpy and d.ml}
PLATFORM = {"intc": "i32", "uintc": "u32", "int_": "i64", "uint": "u64", "longlong": "i64", "ulonglong": "u64",
            "byte": "i8", "ubyte": "u8", "short": "i16", "ushort": "u16", "half": "f16", "single": "f32",
            "double": "f64", "bool_": "bool", "csingle": "c64", "cdouble": "c128", "long": "i64",
            "ulong": "u64"}  # fmt: skip
OTHER_SCALARS = ("object_", "str_", "bytes_", "void", "datetime64", "timedelta64", "longdouble", "clongdouble",
                 "float128", "complex256", "unicode_", "string_")  # fmt: skip
UNPACK = {"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
          "f16": "e", "f32": "f", "f64": "d"}  # fmt: skip


class NumpyType(Inert):
    """A numpy dtype. ``dtype`` is None for what is no number: objects (``O``), text, records, dates, long doubles."""

    __slots__ = ("big", "code", "dtype", "itemsize", "names")

    def __init__(self, code: str, dtype: DType | None = None, big: bool = False, itemsize: int = 0) -> None:
        self.code = code
        self.dtype = dtype
        self.big = big
        self.itemsize = dtype.itemsize if dtype is not None else itemsize
        self.names: tuple[str, ...] = ()

    @property
    def is_object(self) -> bool:
        return self.code in ("O", "O8", "O4")

    @property
    def label(self) -> str:
        """The type as a person knows it: ``float64``, ``<U5``, ``record of a, b``."""
        if self.names:
            return "record of " + ", ".join(self.names[:8])
        return self.dtype.numpy or self.code if self.dtype is not None else self.code

    def build(self, state: object, machine: Machine) -> object:
        """(version, byte order, subdtype, names, fields, itemsize, alignment, flags[, metadata])."""
        if not isinstance(state, tuple) or len(state) < 5 or not isinstance(state[0], int):
            raise machine.corrupt("the state of a numpy.dtype is malformed", found=type(state).__name__)
        order, subdtype, names = state[1:4]
        if isinstance(order, bytes):
            order = order.decode("latin-1")
        if order not in ("<", ">", "=", "|"):
            raise machine.corrupt("a numpy.dtype has no such byte order", expected="<, >, = or |")
        self.big = order == ">"
        if subdtype is not None:
            self.dtype = None
        if names is not None:
            if not isinstance(names, tuple) or not all(isinstance(name, str | bytes) for name in names):
                raise machine.corrupt("the field names of a numpy.dtype are no tuple of names")
            self.names = tuple(n if isinstance(n, str) else n.decode("latin-1") for n in names[:64])
            self.dtype = None
        if self.dtype is None and len(state) > 5 and type(state[5]) is int and 0 <= state[5] < 1 << 31:
            self.itemsize = state[5]
        return self


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A class of numpy scalars, or the class of a dtype (``numpy.float64``, ``numpy.dtypes.Float64DType``)."""

    name: str
    dtype: DType | None


def parse_dtype(name: str) -> NumpyType:
    """``f4``, ``<f4``, ``float32``, ``|O``, ``V8`` as a NumpyType."""
    code = name.lstrip("<>=|")
    big = name.startswith(">")
    found = BY_CODE.get(code) or BY_LONG_NAME.get(code) or PLATFORM.get(code)
    if found:
        return NumpyType(code, dtypes.BY_NAME[found], big)
    kind, digits = code[:1], code[1:]
    itemsize = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
    if kind == "U":
        itemsize *= 4
    return NumpyType("O" if kind == "O" or code == "object" else code[:64], None, big, itemsize)


class ArrayValue(Inert):
    """A numpy array: shape, type, order, and its data in memory or in the file (a list for object arrays)."""

    __slots__ = ("attrs", "data", "dtype", "fortran", "place", "shape")

    def __init__(self, place: tuple[str, int] = ("", 0)) -> None:
        self.shape: tuple[int, ...] = (0,)
        self.dtype = NumpyType("b1", dtypes.BY_NAME["bool"])
        self.fortran = False
        self.data: bytes | Payload | list[object] = b""
        self.place = place
        self.attrs: object = None  # the state of a subclass that is not numpy's own

    def build(self, state: object, machine: Machine) -> object:
        """(version, shape, dtype, is Fortran-ordered, data); without the version in files older than 2003."""
        self.place = (machine.file or "", machine.at)
        parts = state if isinstance(state, tuple) else ()
        if len(parts) == 4 and isinstance(parts[0], tuple):
            parts = (0, *parts)
        if len(parts) != 5 or not isinstance(parts[2], NumpyType):
            if isinstance(state, dict):  # a subclass with attributes of its own
                self.attrs = state
                return self
            raise machine.corrupt("the state of a numpy array is malformed", found=type(state).__name__)
        call = Call(machine, Global("numpy", "ndarray"), parts, {}, "REDUCE", machine.at)
        self.fill(call, parts[1], parts[2], parts[3], parts[4])
        return self

    def fill(self, call: Call, shape: object, dtype: NumpyType, fortran: object, data: object) -> None:
        """Take what describes the array; Corrupt when the data are not as long as it says."""
        self.shape = integers(call, shape, "the shape")
        self.dtype = dtype
        self.fortran = bool(fortran) if isinstance(fortran, int) else False
        if any(size < 0 for size in self.shape):
            raise call.corrupt("an array has a negative size", found=self.shape)
        count = dtypes.numel(self.shape)
        if dtype.is_object:
            if not isinstance(data, list) or len(data) != count:
                raise call.corrupt("an object array does not hold as many objects as it says", expected=count,
                                   found=len(data) if isinstance(data, list) else type(data).__name__)  # fmt: skip
            self.data = data
            return
        if isinstance(data, str):
            data = data.encode("latin-1", "replace")  # a Python 2 string of ASCII bytes
        if isinstance(data, bytearray):
            data = bytes(data)
        if isinstance(data, Payload) and data.kind == "str" or not isinstance(data, bytes | Payload):
            raise call.corrupt("the data of an array are no bytes", found=type(data).__name__)
        have = data.nbytes if isinstance(data, Payload) else len(data)
        if dtype.itemsize and have != count * dtype.itemsize:
            raise call.corrupt("an array is not as long as it says", expected=f"{count * dtype.itemsize} bytes",
                               found=f"{have} bytes")  # fmt: skip
        self.data = data if isinstance(data, Payload) else bytes(data)

    def tensor(self) -> TensorValue | Unsupported:
        """The array as a tensor; Unsupported for types that are no numbers."""
        dtype = self.dtype.dtype
        if dtype is None or isinstance(self.data, list):
            return Unsupported(f"an array of {self.dtype.label}")
        source = raw_source(self.data, self.place)
        storage = Storage("", dtype, source, dtypes.numel(self.shape), byteorder="big" if self.dtype.big else "little")
        strides: list[int] = []
        step = 1
        for size in self.shape if self.fortran else reversed(self.shape):
            strides.append(step)
            step *= max(size, 1)
        if not self.fortran:
            strides.reverse()
        return TensorValue(dtype, self.shape, tuple(strides), 0, storage, kind="array")


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A numpy scalar: its type's name and its value as a Python number, or raw bytes for what is no number."""

    type: str
    value: object


def _reconstruct(call: Call) -> object:
    arity(call, 3, 3)
    return ArrayValue((call.machine.file or "", call.offset))


def _frombuffer(call: Call) -> object:
    """(buffer, dtype, shape, order[, axis order]): protocol 5."""
    arity(call, 4, 5)
    data, dtype, shape, order = call.args[:4]
    if not isinstance(dtype, NumpyType):
        raise call.corrupt("the type of an array is no numpy.dtype", found=type(dtype).__name__)
    if order not in ("C", "F", "A", "K"):
        raise call.corrupt("an array has no such order", expected="C or F")
    axes = call.args[4] if len(call.args) > 4 else None
    made = ArrayValue((call.machine.file or "", call.offset))
    if order == "K" and axes is not None:
        # The buffer holds the array with its axes in this order: only C and F order come back to what we describe.
        order_of = integers(call, axes, "the axis order")
        if order_of == tuple(reversed(range(len(order_of)))):
            order = "F"
        elif order_of != tuple(range(len(order_of))):
            return Unsupported("an array whose axes are neither in C nor in Fortran order")
    made.fill(call, shape, dtype, order == "F", data)
    return made


def _dtype(call: Call) -> object:
    if not 1 <= len(call.args) <= 3:
        raise call.corrupt("wrong number of arguments", expected="1 to 3", found=len(call.args))
    what = call.args[0]
    if isinstance(what, NumpyType):
        return NumpyType(what.code, what.dtype, what.big, what.itemsize)
    if isinstance(what, ScalarType):
        # a new one each time: BUILD changes it
        return NumpyType("O" if what.name == "object_" else what.name, what.dtype)
    if isinstance(what, bytes):
        what = what.decode("latin-1")
    if not isinstance(what, str):
        return call.opaque()
    return parse_dtype(what)


def _scalar(call: Call) -> object:
    arity(call, 1, 2)
    dtype = call.args[0]
    if not isinstance(dtype, NumpyType):
        raise call.corrupt("the type of a scalar is no numpy.dtype", found=type(dtype).__name__)
    data = call.args[1] if len(call.args) > 1 else bytes(dtype.itemsize)
    if isinstance(data, str):
        data = data.encode("latin-1", "replace")
    if dtype.dtype is None:
        return Scalar(dtype.label, data)
    if not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise call.corrupt("a scalar is not as long as its type", expected=f"{dtype.itemsize} bytes")
    order = ">" if dtype.big else "<"
    value: object = bytes(data)
    name = dtype.dtype.name
    if name in UNPACK:
        (value,) = struct.unpack(order + UNPACK[name], data)
    elif dtype.dtype.cls == "complex":
        real, imag = struct.unpack(order + ("ff" if name == "c64" else "dd"), data)
        value = complex(real, imag)
    return Scalar(dtype.label, value)


class JoblibArray(Inert):
    """joblib's NumpyArrayWrapper: the array's bytes follow in the stream, right after BUILD."""

    __slots__ = ("inner",)

    def __init__(self, inner: Table) -> None:
        self.inner = inner

    def build(self, state: object, machine: Machine) -> object:
        if not isinstance(state, dict):
            raise machine.corrupt("the state of a joblib array is no dict", found=type(state).__name__)
        dtype, order = state.get("dtype"), state.get("order")
        if not isinstance(dtype, NumpyType) or order not in ("C", "F"):
            raise machine.corrupt("a joblib array lacks its type or order")
        call = Call(machine, Global("joblib.numpy_pickle", "NumpyArrayWrapper"), (), {}, "NEWOBJ", machine.at)
        shape = integers(call, state.get("shape"), "the shape")
        if any(size < 0 for size in shape):
            raise call.corrupt("an array has a negative size", found=shape)
        if dtype.is_object:
            return machine.nested(self.inner)
        if not dtype.itemsize and dtypes.numel(shape):
            raise call.corrupt("the size of an array's elements is not known", found=dtype.label)
        if state.get("numpy_array_alignment_bytes") is not None:
            machine.take(machine.take_uint(1))
        made = ArrayValue((machine.file or "", machine.at))
        made.fill(call, shape, dtype, order == "F", machine.take(dtypes.numel(shape) * dtype.itemsize))
        return made


class JoblibFile(Inert):
    """joblib before 0.10: the array is in a file of its own beside this one."""

    __slots__ = ("beside",)

    def __init__(self, beside: Callable[[str], object] | None) -> None:
        self.beside = beside

    def build(self, state: object, machine: Machine) -> object:
        name = state.get("filename") if isinstance(state, dict) else None
        if self.beside is not None and isinstance(name, str):
            return self.beside(name)
        return Unsupported(
            f"an array kept in a file of its own ({str(name)[:80] if isinstance(name, str) else 'unnamed'})",
            hint="load it with the joblib that wrote it and dump it again",
        )


def _entries() -> dict[tuple[str, str], Handler]:
    out: dict[tuple[str, str], Handler] = {}
    for core in ("numpy.core", "numpy._core"):
        out[(f"{core}.multiarray", "_reconstruct")] = function(_reconstruct)
        out[(f"{core}.multiarray", "scalar")] = function(_scalar)
        out[(f"{core}.numeric", "_frombuffer")] = function(_frombuffer)
    out[("numpy", "dtype")] = function(_dtype)
    for module, name in (("numpy", "ndarray"), ("numpy", "matrix"), ("numpy", "memmap"), ("numpy", "recarray"),
                         ("numpy.matrixlib.defmatrix", "matrix"), ("numpy.core.memmap", "memmap"),
                         ("numpy._core.memmap", "memmap"), ("numpy.rec", "recarray")):  # fmt: skip
        out[(module, name)] = function(Call.opaque)  # as a class only; arrays are made by _reconstruct
    for name, known in (BY_LONG_NAME | PLATFORM).items():
        if name not in ML_TYPES:
            out[("numpy", name)] = constant(ScalarType(name, dtypes.BY_NAME[known]))
    for name in BY_LONG_NAME.keys() - ML_TYPES.keys():
        title = "UInt" + name[4:] if name.startswith("uint") else name.capitalize()
        out[("numpy.dtypes", title + "DType")] = constant(ScalarType(name, dtypes.BY_NAME[BY_LONG_NAME[name]]))
    for name, known in ML_TYPES.items():
        out[("ml_dtypes", name)] = constant(ScalarType(name, dtypes.BY_NAME[known]))
    for name in OTHER_SCALARS:
        out[("numpy", name)] = constant(ScalarType(name, None))
    return out


NUMPY: dict[tuple[str, str], Handler] = _entries()


def joblib_names(inner: Table, beside: Callable[[str], object] | None = None) -> dict[tuple[str, str], Handler]:
    """joblib's wrappers; ``inner`` is the table for pickles within the stream (object arrays)."""
    out = {
        ("joblib.numpy_pickle", "NumpyArrayWrapper"): function(lambda call: JoblibArray(inner)),
    }
    for module in ("joblib.numpy_pickle", "joblib.numpy_pickle_compat"):
        out[(module, "NDArrayWrapper")] = function(lambda call: JoblibFile(beside))
        # Its file is compressed and has no header: what joblib 0.10 and later cannot write, and seldom reads.
        out[(module, "ZNDArrayWrapper")] = function(lambda call: JoblibFile(None))
    return out | {
        (module.replace("joblib", "sklearn.externals.joblib"), name): handler for (module, name), handler in out.items()
    }
