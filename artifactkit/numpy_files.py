"""The array in a .npy file or member: its place in the file, or for objects the value of the pickle that it holds."""

from __future__ import annotations

from typing import IO

from . import dtypes
from .containers.npy import NpyHeader, parse_descr, read_header
from .errors import Corrupt, Truncated, VerificationFailed
from .files import Bytes, label
from .pickles import Payload
from .tensor_names import ArrayValue, NumpyType, parse_dtype
from .torch_files import Loader

# ml_dtypes' types have no code of their own in a header. These two are told by their size all the same; one raw byte
# (V1) may be any of several float8 types and stays unread.
BY_RAW_CODE = {"<V2": "bf16", "|V2": "bf16", "<f1": "f8_e5m2"}


def read_array(loader: Loader, data: Bytes, name: str, member: str | None = None, place: int = 0) -> object:
    """The array in ``data``: an ArrayValue, or whatever the pickle of an object array holds.

    ``name`` is for notes. ``place`` is where the data lies in the file, and tells equal arrays of two members apart.
    Raises Corrupt, Truncated, LimitExceeded or Unreadable.
    """
    header = read_header(data, member=member)
    made = ArrayValue((label(data) or "", place))
    made.shape, made.fortran, made.dtype = header.shape, header.fortran_order, _type(header, data, member)
    if made.dtype.is_object:
        return _objects(loader, data, header, member)
    raw = header.descr if isinstance(header.descr, str) else ""
    if raw in BY_RAW_CODE:
        found = BY_RAW_CODE[raw]
        made.dtype = NumpyType(raw, dtypes.BY_NAME[found])
        loader.note(f"{name}: NumPy's type is {raw}, in which {dtypes.BY_NAME[found].numpy} is saved; taken as {found}")
    nbytes = header.count * made.dtype.itemsize
    have = data.size - header.data_offset
    if nbytes > have:
        raise Truncated(
            "the array ends too early", file=label(data), member=member, offset=header.data_offset,
            expected=f"{nbytes} bytes for shape {header.shape} of {made.dtype.label}", found=f"{have} bytes",
        )  # fmt: skip
    if nbytes < have and made.dtype.itemsize:
        loader.note(f"{name}: {have - nbytes} bytes follow the array and were left alone")
    made.data = Payload(data, header.data_offset, nbytes, "bytes")
    return made


def _type(header: NpyHeader, data: Bytes, member: str | None) -> NumpyType:
    """The element type; records and subarrays become a type without numbers."""
    if isinstance(header.descr, str):
        if parse_descr(header.descr) is None:
            raise Corrupt("the .npy header names no type", file=label(data), member=member, found=header.descr[:40])
        return parse_dtype(header.descr)
    record = NumpyType("V")
    if isinstance(header.descr, list):
        firsts = [field[0] for field in header.descr if isinstance(field, tuple) and field]
        record.names = tuple(n if isinstance(n, str) else "?" for n in firsts[:64])
    return record


def _objects(loader: Loader, data: Bytes, header: NpyHeader, member: str | None) -> object:
    machine = loader.machine(data, member=member, start=header.data_offset)
    value = machine.load()
    if isinstance(value, ArrayValue) and isinstance(value.data, list):
        if len(value.data) != header.count:
            raise Corrupt(
                "the pickled array is not of the shape in the header", file=label(data), member=member,
                offset=header.data_offset, expected=f"{header.count} objects", found=f"{len(value.data)}",
            )  # fmt: skip
        value.shape = header.shape
    return value


def numpy_places(path: str, raw: IO[bytes]) -> tuple[int, int, str, tuple[int, ...]]:
    """(offset, bytes, dtype, shape) of the array whose .npy begins where ``raw`` stands, as NumPy parses the header.

    For checking what was written: no code of ours is in it. VerificationFailed when the array is none of ours.
    """
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(raw)
        shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(raw)
    except ValueError as error:
        raise VerificationFailed("numpy refuses the array", file=path, found=str(error)) from error
    name = next((d.name for d in dtypes.ALL if d.numpy == dtype.name and dtype.isnative), None)
    if name is None or fortran:
        raise VerificationFailed("the array is not of our types, in C order", file=path, found=dtype.str)
    nbytes = int(dtype.itemsize)
    for size in shape:
        nbytes *= int(size)
    return raw.tell(), nbytes, name, tuple(int(size) for size in shape)
