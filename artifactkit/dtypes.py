"""Element types: names, sizes in integers, and what each is called elsewhere.

Sources: safetensors ``tensor.rs`` (enum ``Dtype``), ``torch.dtype``, ml_dtypes' README, OCP MX v1.0 (f4, f6, e8m0),
onnx.proto3 (i4, u4, i2, u2), ggml.h (enum ``ggml_type``) and ggml-common.h (the blocks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .errors import UsageError

DTypeClass = Literal["bool", "int", "float", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. ``bits`` is the size of one element; sub-byte types are packed, least significant bits first.

    ggml's quantised types have no size for one element: ``bits`` is then that of a block of ``block`` elements, which
    lie in one row. ``ggml`` is the type's number in a GGUF file.

    ``numpy`` is the name under which numpy (or ml_dtypes, when ``ml`` is true) knows the type with whole bytes an
    element, else None. ``torch`` is the attribute of the ``torch`` module, ``safetensors`` the name in its header;
    None where that world has no such type.
    """

    name: str
    bits: int
    cls: DTypeClass
    numpy: str | None = None
    ml: bool = False
    torch: str | None = None
    safetensors: str | None = None
    block: int = 1
    ggml: int | None = None

    @property
    def itemsize(self) -> int:
        """Bytes an element, for types of whole bytes; ValueError for sub-byte types and types of blocks."""
        if self.block > 1:
            raise ValueError(f"{self.name} has no size for one element: {self.block} of them are a block")
        if self.bits % 8:
            raise ValueError(f"{self.name} has {self.bits} bits an element")
        return self.bits // 8

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a dense tensor of ``shape``; ValueError when they, or a row's blocks, are not whole."""
        count = numel(shape)
        if self.block > 1:
            if (shape[-1] if shape else 1) % self.block:
                raise ValueError(f"rows of {shape[-1] if shape else 1} elements are no whole blocks of {self.block}")
            return count // self.block * self.bits // 8
        if count * self.bits % 8:
            raise ValueError(f"{count} elements of {self.bits} bits do not fill whole bytes")
        return count * self.bits // 8

    def row_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of one row, the last dimension; ValueError as ``nbytes``."""
        return self.nbytes(shape[-1:])

    def __str__(self) -> str:
        return self.name


def numel(shape: tuple[int, ...]) -> int:
    """Number of elements of ``shape``: 1 for a 0-d tensor."""
    count = 1
    for size in shape:
        count *= size
    return count


def _d(
    name: str, bits: int, cls: DTypeClass, st: str | None, np: str | None, torch: str | None, ml: bool = False
) -> DType:
    return DType(name, bits, cls, numpy=np, ml=ml, torch=torch, safetensors=st)


def _q(name: str, number: int, block: int, nbytes: int) -> DType:
    return DType(name, nbytes * 8, "float", block=block, ggml=number)


# ggml's types of blocks: number, elements a block, bytes a block.
BLOCKS: tuple[DType, ...] = (
    _q("q4_0", 2, 32, 18),
    _q("q4_1", 3, 32, 20),
    _q("q5_0", 6, 32, 22),
    _q("q5_1", 7, 32, 24),
    _q("q8_0", 8, 32, 34),
    _q("q8_1", 9, 32, 36),
    _q("q2_k", 10, 256, 84),
    _q("q3_k", 11, 256, 110),
    _q("q4_k", 12, 256, 144),
    _q("q5_k", 13, 256, 176),
    _q("q6_k", 14, 256, 210),
    _q("q8_k", 15, 256, 292),
    _q("iq2_xxs", 16, 256, 66),
    _q("iq2_xs", 17, 256, 74),
    _q("iq3_xxs", 18, 256, 98),
    _q("iq1_s", 19, 256, 50),
    _q("iq4_nl", 20, 32, 18),
    _q("iq3_s", 21, 256, 110),
    _q("iq2_s", 22, 256, 82),
    _q("iq4_xs", 23, 256, 136),
    _q("iq1_m", 29, 256, 56),
    _q("tq1_0", 34, 256, 54),
    _q("tq2_0", 35, 256, 66),
    _q("mxfp4", 39, 32, 17),
    _q("nvfp4", 40, 64, 36),
    _q("q1_0", 41, 128, 18),
)
# And those of single elements, which GGUF holds as well.
GGML_PLAIN: dict[str, int] = {
    "f32": 0, "f16": 1, "i8": 24, "i16": 25, "i32": 26, "i64": 27, "f64": 28, "bf16": 30,
}  # fmt: skip


_PLAIN: tuple[DType, ...] = (
    _d("bool", 8, "bool", "BOOL", "bool", "bool"),
    _d("u8", 8, "int", "U8", "uint8", "uint8"),
    _d("i8", 8, "int", "I8", "int8", "int8"),
    _d("u16", 16, "int", "U16", "uint16", "uint16"),
    _d("i16", 16, "int", "I16", "int16", "int16"),
    _d("u32", 32, "int", "U32", "uint32", "uint32"),
    _d("i32", 32, "int", "I32", "int32", "int32"),
    _d("u64", 64, "int", "U64", "uint64", "uint64"),
    _d("i64", 64, "int", "I64", "int64", "int64"),
    _d("f16", 16, "float", "F16", "float16", "float16"),
    _d("bf16", 16, "float", "BF16", "bfloat16", "bfloat16", True),
    _d("f32", 32, "float", "F32", "float32", "float32"),
    _d("f64", 64, "float", "F64", "float64", "float64"),
    _d("f8_e4m3", 8, "float", "F8_E4M3", "float8_e4m3fn", "float8_e4m3fn", True),
    _d("f8_e5m2", 8, "float", "F8_E5M2", "float8_e5m2", "float8_e5m2", True),
    _d("f8_e4m3fnuz", 8, "float", "F8_E4M3FNUZ", "float8_e4m3fnuz", "float8_e4m3fnuz", True),
    _d("f8_e5m2fnuz", 8, "float", "F8_E5M2FNUZ", "float8_e5m2fnuz", "float8_e5m2fnuz", True),
    _d("f8_e8m0", 8, "float", "F8_E8M0", "float8_e8m0fnu", "float8_e8m0fnu", True),
    _d("f6_e2m3", 6, "float", "F6_E2M3", None, None),
    _d("f6_e3m2", 6, "float", "F6_E3M2", None, None),
    _d("f4", 4, "float", "F4", None, "float4_e2m1fn_x2"),
    _d("u4", 4, "int", None, None, None),
    _d("i4", 4, "int", None, None, None),
    _d("u2", 2, "int", None, None, None),
    _d("i2", 2, "int", None, None, None),
    _d("c32", 32, "complex", None, None, "complex32"),
    _d("c64", 64, "complex", "C64", "complex64", "complex64"),
    _d("c128", 128, "complex", None, "complex128", "complex128"),
)
ALL: tuple[DType, ...] = (*(replace(d, ggml=GGML_PLAIN.get(d.name)) for d in _PLAIN), *BLOCKS)

BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
BY_TORCH: dict[str, DType] = {d.torch: d for d in ALL if d.torch}
BY_SAFETENSORS: dict[str, DType] = {d.safetensors: d for d in ALL if d.safetensors}
BY_GGML: dict[int, DType] = {d.ggml: d for d in ALL if d.ggml is not None}

# The usual synonyms, in lower case, for names given by people (DESIGN section 8).
SYNONYMS: dict[str, str] = {
    "fp16": "f16", "float16": "f16", "half": "f16",
    "bfloat16": "bf16",
    "fp32": "f32", "float32": "f32", "float": "f32",
    "fp64": "f64", "float64": "f64", "double": "f64",
    "fp8": "f8_e4m3", "f8": "f8_e4m3", "float8": "f8_e4m3", "float8_e4m3fn": "f8_e4m3", "float8_e4m3": "f8_e4m3",
    "fp8_e4m3": "f8_e4m3", "f8_e4m3fn": "f8_e4m3", "e4m3": "f8_e4m3",
    "float8_e5m2": "f8_e5m2", "fp8_e5m2": "f8_e5m2", "e5m2": "f8_e5m2",
    "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz", "float8_e8m0fnu": "f8_e8m0",
    "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def parse(text: str) -> DType:
    """The type that a person means by ``text``, in any case, with the usual synonyms; UsageError if there is none."""
    key = text.strip().lower().removeprefix("torch.")
    found = BY_NAME.get(SYNONYMS.get(key, key))
    if found is not None and found.block > 1:
        raise UsageError(
            f"{found} is a quantised type, and no dtype that values are cast to", hint=f"--quantize {found}"
        )
    if found is None:
        names = ", ".join(d.name for d in ALL if d.block == 1)
        raise UsageError(f"unknown dtype {text!r}", hint=f"one of {names}")
    return found
