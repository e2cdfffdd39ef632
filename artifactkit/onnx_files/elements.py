"""TensorProto.DataType: its numbers, and which field holds typed data of each (onnx.proto, "TensorProto")."""

from __future__ import annotations

from ..dtypes import BY_NAME, DType

STRING = 8
_NAMES = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64", 12: "u32",
    13: "u64", 14: "c64", 15: "c128", 16: "bf16", 17: "f8_e4m3", 18: "f8_e4m3fnuz", 19: "f8_e5m2", 20: "f8_e5m2fnuz",
    21: "u4", 22: "i4", 23: "f4", 24: "f8_e8m0", 25: "u2", 26: "i2",
}  # fmt: skip
TYPES: dict[int, DType] = {number: BY_NAME[name] for number, name in _NAMES.items()}
NUMBERS: dict[str, int] = {name: number for number, name in _NAMES.items()}
FLOAT_DATA, INT32_DATA, INT64_DATA, DOUBLE_DATA, UINT64_DATA = 4, 5, 7, 10, 11
FIELD_NAMES = {4: "float_data", 5: "int32_data", 7: "int64_data", 10: "double_data", 11: "uint64_data"}
# Types that are not in int32_data when they are typed.
_FIELDS = {
    1: FLOAT_DATA, 14: FLOAT_DATA, 11: DOUBLE_DATA, 15: DOUBLE_DATA, 7: INT64_DATA, 13: UINT64_DATA, 12: UINT64_DATA,
}  # fmt: skip


def field_of(data_type: int) -> int:
    """The field of TensorProto that typed data of this type is in."""
    return _FIELDS.get(data_type, INT32_DATA)


def size(dtype: DType, dims: tuple[int, ...]) -> int:
    """Bytes of a tensor: elements of fewer than eight bits are packed, the last byte filled up with zeros."""
    count = 1
    for n in dims:
        count *= n
    return -(-count * dtype.bits // 8)
