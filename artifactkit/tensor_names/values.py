"""Tensors as pickles describe them: a view of a storage, which the format that holds the pickle finds in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..dtypes import DType, numel
from ..errors import ArtifactkitError, Corrupt, LimitExceeded, Refused
from ..pickles import Inert
from ..source import Mapped, Source
from ..strided import view

if TYPE_CHECKING:
    from ..pickles import Machine

BOMB_FLOOR = 64 << 20  # logical bytes that a file of any size may hold
BOMB_RATIO = 16  # and how often a file's size a single tensor may repeat
MAX_DIMS = 64  # numpy's limit
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TorchType:
    """A torch dtype by name (``float32``, ``qint8``). ``dtype`` is None for those that no target of ours can hold.

    ``quantized`` types are integers with a scale; ``dtype`` is then the integer's.
    """

    name: str
    dtype: DType | None
    quantized: bool = False


@dataclass(frozen=True, slots=True)
class StorageType:
    """A class of storages (``FloatStorage``). ``type`` is None for untyped storages, which count bytes."""

    name: str
    type: TorchType | None


@dataclass(eq=False, slots=True)
class Storage:
    """A run of elements that tensors are views of.

    ``numel`` counts elements of ``dtype``, or bytes when it is None. ``source`` may be set later: in legacy files the
    bytes follow the pickle. ``byteorder`` is that of the bytes in ``source``. ``type`` keeps the torch name.
    """

    key: str
    dtype: DType | None
    source: Source | None = None
    numel: int = 0
    location: str = "cpu"
    byteorder: Literal["little", "big"] = "little"
    type: TorchType | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of one element as ``numel`` counts them."""
        return 1 if self.dtype is None else element_bytes(self.dtype)

    @property
    def nbytes(self) -> int:
        return self.numel * self.itemsize


def element_bytes(dtype: DType) -> int:
    """Bytes that torch strides over: ``float4_e2m1fn_x2`` holds two elements in one byte."""
    return 1 if dtype.bits < 8 else dtype.itemsize


@dataclass(frozen=True, slots=True)
class Quant:
    """How a quantised tensor's integers stand for numbers: ``(q - zero_point) * scale``, per tensor or along ``axis``.

    Scales and zero points of a per-channel scheme are lists of numbers or TensorValues, as the file has them.
    """

    scheme: str
    scale: object
    zero_point: object
    axis: int | None = None


@dataclass(eq=False, slots=True)
class TensorValue(Inert):
    """A tensor: a strided view of ``storage``; offset and strides in elements, as torch counts them.

    ``conj`` and ``neg`` are torch's lazy bits: the bytes in the file are those before conjugation and negation.
    ``attrs`` is what the file sets on the Python object.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: Storage
    kind: Literal["tensor", "parameter", "buffer", "array"] = "tensor"
    quant: Quant | None = None
    conj: bool = False
    neg: bool = False
    requires_grad: bool = False
    attrs: dict[object, object] = field(default_factory=dict, repr=False)  # may contain the tensor itself

    def build(self, state: object, machine: Machine) -> object:
        for half in state if isinstance(state, tuple) else (state,):
            if isinstance(half, dict):
                machine.charge(len(half))
                self.attrs.update(half)
        return self

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape in elements of ``dtype``: packed types have two in each of torch's."""
        per = 8 // self.dtype.bits if self.dtype.bits < 8 else 1
        if per == 1 or not self.shape:
            return self.shape
        return (*self.shape[:-1], self.shape[-1] * per)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return numel(self.shape) * element_bytes(self.dtype)

    def to_source(self, file_size: int | None = None, tensor: str | None = None) -> Source:
        """Where the tensor's bytes are, row-major and little-endian.

        Corrupt when the view reaches outside its storage or has none; LimitExceeded when a repeated view (stride 0)
        is out of proportion to a file of ``file_size`` bytes. ``tensor`` names it in errors.
        """
        try:
            return self._source(file_size)
        except ArtifactkitError as error:
            raise error.located(tensor=tensor) from None

    def _source(self, file_size: int | None) -> Source:
        storage, unit = self.storage, element_bytes(self.dtype)
        check_shape(self.shape, self.strides)
        if file_size is not None and self.nbytes > max(BOMB_FLOOR, BOMB_RATIO * file_size):
            raise LimitExceeded(
                "a tensor repeats its storage out of all proportion to the file",
                expected=f"at most {max(BOMB_FLOOR, BOMB_RATIO * file_size)} bytes", found=f"{self.nbytes} bytes",
            )  # fmt: skip
        if self.dtype.bits < 8 and (not self.shape or (self.strides[-1] != 1 and self.shape[-1] > 1)):
            raise Refused(f"a {self.dtype} tensor whose packed elements do not lie side by side is not supported")
        if storage.source is None:
            if self.nbytes:
                raise Corrupt(f"storage {storage.key} of the tensor is not in the file")
            return view(_nothing(), unit, 0, self.shape, self.strides)
        base = storage.source
        swap = (self.dtype.bits // 2 if self.dtype.cls == "complex" else max(self.dtype.bits, 8)) // 8
        if storage.byteorder == "big" and swap > 1:
            base = swapped(base, swap)
        found = view(base, unit, self.offset, self.shape, self.strides)
        if (self.conj or self.neg) and found.nbytes:
            found = _resolved(found, self.dtype, self.conj, self.neg)
        return found


@dataclass(eq=False, slots=True)
class Unsupported(Inert):
    """A tensor whose description we read and cannot pass on: sparse, nested, without data. Using it is refused."""

    what: str
    hint: str | None = None
    nbytes: int = 0

    def build(self, state: object, machine: Machine) -> object:
        return self

    def refusal(self, tensor: str | None = None) -> Refused:
        """The error that using it is, naming ``tensor``."""
        return Refused(
            f"{self.what} is not supported", tensor=tensor,
            hint=self.hint or "leave it out with --exclude, or make it a dense tensor before saving",
        )  # fmt: skip


def _nothing() -> Source:
    from ..source import Inline

    return Inline(b"")


def check_shape(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Raise Corrupt for sizes and strides that no tensor has; keeps the arithmetic that follows small."""
    if len(shape) > MAX_DIMS or len(shape) != len(strides):
        raise Corrupt(
            "a tensor's shape and strides do not fit", expected=f"as many strides as sizes, at most {MAX_DIMS}",
            found=f"{len(shape)} sizes, {len(strides)} strides",
        )  # fmt: skip
    if any(not 0 <= size <= INT64_MAX for size in shape) or any(abs(stride) > INT64_MAX for stride in strides):
        raise Corrupt("a tensor's shape is out of range", found=f"{shape}"[:200])


def swapped(base: Source, unit: int) -> Source:
    """``base`` with each run of ``unit`` bytes reversed: big-endian data as little-endian."""

    def swap(rows_in: memoryview, rows_out: memoryview) -> None:
        for i in range(unit):
            rows_out[i::unit] = rows_in[unit - 1 - i :: unit]

    if base.nbytes % unit:
        raise Corrupt("a big-endian storage does not hold whole elements", expected=f"a multiple of {unit} bytes",
                      found=f"{base.nbytes} bytes")  # fmt: skip
    return Mapped(base, base.nbytes // unit, unit, unit, swap, f"byteswap{unit}")


def _resolved(base: Source, dtype: DType, conj: bool, neg: bool) -> Source:
    """``base`` conjugated and negated: sign bits are flipped, as torch's resolve_conj and resolve_neg do."""
    if dtype.cls not in ("float", "complex") or (conj and dtype.cls != "complex"):
        raise Corrupt(f"a {dtype} tensor carries a {'conjugate' if conj else 'negative'} bit")
    part = dtype.bits // 16 if dtype.cls == "complex" else dtype.itemsize
    unit = dtype.itemsize
    # The last byte of each little-endian part holds its sign. Conjugation flips the imaginary part's.
    signs = [i for i in range(part - 1, unit, part) if neg != (conj and i >= part)]
    flip = bytes(b ^ 0x80 for b in range(256))

    def resolve(rows_in: memoryview, rows_out: memoryview) -> None:
        rows_out[:] = rows_in
        for i in signs:
            rows_out[i::unit] = bytes(rows_in[i::unit]).translate(flip)

    label = "conj" * conj + "neg" * neg + dtype.name
    return Mapped(base, base.nbytes // unit, unit, unit, resolve, label)
