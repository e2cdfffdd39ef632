"""Tensors of every kind that torch saves, and torch's own loader as the oracle for what was saved here."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import torch
from contract import Expected

from artifactkit.dtypes import BY_TORCH

EPOCH = (1980, 1, 1, 0, 0, 0)


def raw(tensor: torch.Tensor) -> bytes:
    """Row-major bytes of a tensor, lazy bits resolved."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.contiguous()
    if tensor.numel() == 0:
        return b""
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def dtype_name(tensor: torch.Tensor) -> str:
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return BY_TORCH[str(tensor.dtype).removeprefix("torch.")].name


def expected_of(state: dict[str, torch.Tensor]) -> Expected:
    return {name: (dtype_name(t), tuple(t.shape), raw(t)) for name, t in state.items()}


def torch_dict(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def oracle(path: Path) -> Expected:
    """What torch itself, in its restricted mode, loads from a file that this test wrote."""
    return expected_of(torch.load(path, weights_only=True))


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


def every_dtype() -> dict[str, torch.Tensor]:
    """One tensor of each dtype that torch can fill: random bits, so NaN payloads and subnormals too."""
    out: dict[str, torch.Tensor] = {}
    bits = torch.randint(0, 256, (96,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
                 "float8_e5m2fnuz", "float8_e8m0fnu", "complex32", "complex64", "complex128", "uint8", "int8", "uint16",
                 "int16", "uint32", "int32", "uint64", "int64"):  # fmt: skip
        out[name] = bits.clone().view(getattr(torch, name)).reshape(2, -1)
    out["bool"] = bits > 100
    return out


def every_shape() -> dict[str, torch.Tensor]:
    """Views, strides, offsets, shared storages, no dimension, no element."""
    base = seeded(6, 5, 4)
    flat = torch.arange(40, dtype=torch.int32)
    # torch saves a storage under one dtype only, so these three do not share.
    complex_, conjugated, negated = (torch.view_as_complex(seeded(3, n, 2)) for n in (4, 5, 6))
    return {
        "scalar": torch.tensor(2.5),
        "scalar.of.view": flat[7],
        "empty": torch.empty(0),
        "empty.2d": torch.empty(3, 0),
        "empty.of.view": flat[5:5],
        "transposed": base.permute(2, 0, 1),
        "strided": base[::2, 1:4, ::3],
        "offset": flat[7:17],
        "every.third": flat[1::3],
        "expanded": torch.ones(3, 1).expand(3, 4),
        "expanded.all": torch.tensor(3.0).expand(2, 3),
        "channels_last": seeded(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "tied.a": base,
        "tied.b": base,
        "reshaped": base.view(30, 4),
        "real": complex_.real,
        "imag": complex_.imag,
        "conj": conjugated.conj(),
        "neg": negated.conj().imag,
        "parameter": torch.nn.Parameter(seeded(3)),
    }


def quantised() -> dict[str, torch.Tensor]:
    x = seeded(4, 6)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 1, 2, 3])
    return {
        "qint8": torch.quantize_per_tensor(x, 0.05, 0, torch.qint8),
        "quint8": torch.quantize_per_tensor(x, 0.05, 10, torch.quint8),
        "qint32": torch.quantize_per_tensor(x, 0.001, 0, torch.qint32),
        "per_channel": torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
    }


def repacked(
    raw_zip: bytes,
    *,
    method: int = zipfile.ZIP_STORED,
    root: str | None = None,
    drop: tuple[str, ...] = (),
    change: dict[str, bytes] | None = None,
) -> bytes:
    """A torch archive written again by ``zipfile``: other method, other root folder, records dropped or changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw_zip)) as source, zipfile.ZipFile(out, "w", method) as target:
        for info in source.infolist():
            old, _, record = info.filename.partition("/")
            if record in drop:
                continue
            data = (change or {}).get(record, source.read(info))
            target.writestr(zipfile.ZipInfo(f"{root or old}/{record}", EPOCH), data, compress_type=method)
    return out.getvalue()


def saved(obj: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(obj, buffer, **options)
    return buffer.getvalue()


def int64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)
