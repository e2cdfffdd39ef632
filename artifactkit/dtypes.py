"""Element types: names, sizes in integers, and what each is called elsewhere.

Sources: safetensors ``tensor.rs`` (enum ``Dtype``), ``torch.dtype``, ml_dtypes' README, OCP MX v1.0 (f4, f6, e8m0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import UsageError

DTypeClass = Literal["bool", "int", "float", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. ``bits`` is the size of one element; sub-byte types are packed, least significant bits first.

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

    @property
    def itemsize(self) -> int:
        """Bytes an element, for types of whole bytes; ValueError for sub-byte types."""
        if self.bits % 8:
            raise ValueError(f"{self.name} has {self.bits} bits an element")
        return self.bits // 8

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a dense tensor of ``shape``; ValueError when they are not whole."""
        count = numel(shape)
        if count * self.bits % 8:
            raise ValueError(f"{count} elements of {self.bits} bits do not fill whole bytes")
        return count * self.bits // 8

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


ALL: tuple[DType, ...] = (
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
    _d("c32", 32, "complex", None, None, "complex32"),
    _d("c64", 64, "complex", "C64", "complex64", "complex64"),
    _d("c128", 128, "complex", None, "complex128", "complex128"),
)

BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
BY_TORCH: dict[str, DType] = {d.torch: d for d in ALL if d.torch}
BY_SAFETENSORS: dict[str, DType] = {d.safetensors: d for d in ALL if d.safetensors}

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
    if found is None:
        names = ", ".join(d.name for d in ALL)
        raise UsageError(f"unknown dtype {text!r}", hint=f"one of {names}")
    return found
