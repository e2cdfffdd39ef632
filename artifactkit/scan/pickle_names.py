"""The closed table of names that are data: exact (module, name) pairs, after Python 2's names have been mapped.

A name here may be imported and called with data, and nothing else happens but that a value is made. Never a prefix:
``torch.load`` is as much ``torch.*`` as ``torch.float32``. Sources: the reduce functions of CPython 3.11 to 3.14, numpy
1.x and 2.x, torch 0.1 to 2.13 (``_utils.py``, ``_weights_only_unpickler.py``), joblib.
"""

from __future__ import annotations

DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128 "
    "complex32 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 qint8 quint8 "
    "qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 bits4x2 half float double cfloat cdouble chalf short int "
    "long " + " ".join(f"{sign}int{n}" for sign in ("", "u") for n in range(1, 8))
)
QUALITIES = (
    "strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc _mkldnn jagged per_tensor_affine "
    "per_tensor_symmetric per_channel_affine per_channel_symmetric per_channel_affine_float_qparams contiguous_format "
    "preserve_format channels_last channels_last_3d"
)
# Storage class -> bytes an element; None where the persistent id counts bytes.
STORAGES: dict[str, int] = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "LongStorage": 8, "IntStorage": 4, "ShortStorage": 2,
    "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1, "BFloat16Storage": 2, "ComplexDoubleStorage": 16,
    "ComplexFloatStorage": 8, "QUInt8Storage": 1, "QInt8Storage": 1, "QInt32Storage": 4, "QUInt4x2Storage": 1,
    "QUInt2x4Storage": 1, "UntypedStorage": 1, "TypedStorage": 1, "_UntypedStorage": 1, "_TypedStorage": 1,
}  # fmt: skip
STORAGE_MODULES = ("torch", "torch.cuda", "torch.storage")
TENSORS = (
    "DoubleTensor FloatTensor HalfTensor LongTensor IntTensor ShortTensor CharTensor ByteTensor BoolTensor "
    "BFloat16Tensor ComplexDoubleTensor ComplexFloatTensor"
)
NUMPY_SCALARS = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 intc uintc "
    "int_ uint longlong ulonglong byte ubyte short ushort half single double bool_ csingle cdouble long ulong object_ "
    "str_ bytes_ void datetime64 timedelta64 longdouble clongdouble float128 complex256 unicode_ string_ float_ "
    "complex_ float96 complex192 record"
)
NUMPY_DTYPES = (
    "Bool Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Byte UByte Short UShort Int UInt Long ULong LongLong "
    "ULongLong Float16 Float32 Float64 LongDouble Complex64 Complex128 CLongDouble Object Bytes Str String Void "
    "DateTime64 TimeDelta64"
)
PATHS = "PosixPath WindowsPath PurePosixPath PureWindowsPath Path PurePath"

_TABLE: dict[str, str] = {
    "builtins": "object int float bool str bytes bytearray list tuple dict set frozenset slice range complex Ellipsis "
    "NotImplemented",
    "collections": "OrderedDict defaultdict Counter deque",
    "copyreg": "_reconstructor __newobj__ __newobj_ex__",
    "_codecs": "encode",
    "argparse": "Namespace",
    "types": "SimpleNamespace NoneType EllipsisType",
    "pathlib": PATHS,
    "pathlib._local": PATHS,
    "datetime": "datetime date time timedelta timezone",
    "_datetime": "datetime date time timedelta timezone",
    "decimal": "Decimal",
    "_decimal": "Decimal",
    "fractions": "Fraction",
    "uuid": "UUID SafeUUID",
    "zoneinfo": "ZoneInfo ZoneInfo._unpickle",
    "ipaddress": "IPv4Address IPv6Address IPv4Network IPv6Network IPv4Interface IPv6Interface",
    "array": "array _array_reconstructor",
    "torch": f"{DTYPES} {QUALITIES} {TENSORS} Tensor Size device",
    "torch.cuda": TENSORS,
    "torch.sparse": TENSORS,
    "torch.cuda.sparse": TENSORS,
    "torch._tensor": "Tensor _rebuild_from_type_v2",
    "torch.tensor": "Tensor",
    "torch.autograd.variable": "Variable",
    "torch.nn.parameter": "Parameter Buffer UninitializedParameter UninitializedBuffer",
    "torch._utils": "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_qtensor _rebuild_parameter "
    "_rebuild_parameter_with_state _rebuild_sparse_tensor _rebuild_sparse_csr_tensor _rebuild_nested_tensor "
    "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor _rebuild_xla_tensor "
    "_rebuild_meta_tensor_no_storage _rebuild_wrapper_subclass",
    "torch.storage": "_load_from_bytes",
    "torch.serialization": "_get_layout",
    "torch.jit._pickle": "restore_type_tag build_intlist build_tensorlist build_doublelist build_boollist "
    "build_tensor_from_id",
    "numpy": f"{NUMPY_SCALARS} dtype ndarray matrix memmap recarray",
    "numpy.core.multiarray": "_reconstruct scalar ndarray",
    "numpy._core.multiarray": "_reconstruct scalar ndarray",
    "numpy.core._internal": "_reconstruct",  # of arrays pickled before numpy 1.0
    "numpy._core._internal": "_reconstruct",
    "numpy.core.numeric": "_frombuffer",
    "numpy._core.numeric": "_frombuffer",
    "numpy.core.records": "record recarray",
    "numpy._core.records": "record recarray",
    "numpy.rec": "recarray record",
    "numpy.matrixlib.defmatrix": "matrix",
    "numpy.core.memmap": "memmap",
    "numpy._core.memmap": "memmap",
    "numpy.ma.core": "_mareconstruct MaskedArray MaskedConstant",
    "numpy.ma": "MaskedArray",
    "numpy.dtypes": " ".join(f"{name}DType" for name in NUMPY_DTYPES.split()),
    "numpy.random._pickle": "__randomstate_ctor __generator_ctor __bit_generator_ctor",
    "numpy.random._mt19937": "MT19937",
    "numpy.random._pcg64": "PCG64 PCG64DXSM",
    "numpy.random._philox": "Philox",
    "numpy.random._sfc64": "SFC64",
    "numpy.random.bit_generator": "SeedSequence __pyx_unpickle_SeedSequence",
    "ml_dtypes": "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e4m3 float8_e3m4 float8_e5m2 "
    "float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn int4 uint4 int2 uint2 int1 uint1",
    "joblib.numpy_pickle": "NumpyArrayWrapper NDArrayWrapper ZNDArrayWrapper",
    "joblib.numpy_pickle_compat": "NDArrayWrapper ZNDArrayWrapper",
    "sklearn.externals.joblib.numpy_pickle": "NumpyArrayWrapper NDArrayWrapper ZNDArrayWrapper",
    "sklearn.externals.joblib.numpy_pickle_compat": "NDArrayWrapper ZNDArrayWrapper",
}

SAFE: frozenset[tuple[str, str]] = frozenset(
    [(module, name) for module, names in _TABLE.items() for name in names.split()]
    + [(module, name) for module in STORAGE_MODULES for name in STORAGES]
)
# Modules that have a name in the table: a dotted name that walks on from one of them is no class of theirs.
TRUSTED: frozenset[str] = frozenset(module for module, _ in SAFE)

# Where the class alone is data and a call of it is not: memmap opens and truncates files.
NOT_CALLED = frozenset(
    {("numpy", "memmap"), ("numpy.core.memmap", "memmap"), ("numpy._core.memmap", "memmap")}
)  # fmt: skip
# Text encodings that people pickle bytes with: others (zip, rot13, a module of the user's) have no place there.
_TEXT_ENCODINGS = (
    "latin1 latin-1 latin_1 iso-8859-1 iso8859-1 8859 utf-8 utf8 utf_8 ascii us-ascii utf-16 utf-32 utf-16-le "
    "utf-16-be utf-32-le utf-32-be raw_unicode_escape raw-unicode-escape unicode_escape unicode-escape"
)
ENCODINGS = frozenset(_TEXT_ENCODINGS.split())
JOBLIB_MODULES = frozenset(module for module in TRUSTED if module.rpartition(".")[2].startswith("numpy_pickle"))
