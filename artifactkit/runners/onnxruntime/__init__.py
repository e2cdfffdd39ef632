"""ONNX Runtime: an ONNX file run in a child process, on the execution provider that is asked for and on no other.

``onnxruntime/tensorrt@cuda:0`` names a provider; without one the device's own is taken. ONNX Runtime goes on with the
CPU, and says no more than a line, when a provider is not there: here this is DeviceAbsent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec

from ...errors import DeviceAbsent, MissingExtra, Unreadable, UsageError
from ...types import Device, Loadable, Runner, RunOptions
from .session import OnnxSession

MODULES = ("onnxruntime",)


@dataclass(frozen=True, slots=True)
class Provider:
    """An execution provider: its name in ONNX Runtime, the devices that it is for, and what brings it."""

    full: str
    devices: tuple[str, ...]
    brought_by: str
    options: tuple[tuple[str, str], ...] = ()


# TF32 is on by default in the CUDA provider: products of f32 numbers would have 10 bits. It is off in the reference.
PROVIDERS: dict[str, Provider] = {
    "cpu": Provider("CPUExecutionProvider", ("cpu",), "onnxruntime"),
    "cuda": Provider("CUDAExecutionProvider", ("cuda",), "onnxruntime-gpu", (("use_tf32", "0"),)),
    "tensorrt": Provider("TensorrtExecutionProvider", ("cuda",), "onnxruntime-gpu and TensorRT"),
    "openvino": Provider("OpenVINOExecutionProvider", ("cpu", "gpu", "npu"), "onnxruntime-openvino"),
    "coreml": Provider("CoreMLExecutionProvider", ("metal", "cpu"), "onnxruntime on a Mac"),
    "directml": Provider("DmlExecutionProvider", ("gpu",), "onnxruntime-directml on Windows"),
    "qnn": Provider("QNNExecutionProvider", ("npu",), "onnxruntime-qnn on a Snapdragon"),
}
DEFAULTS = {"cpu": "cpu", "cuda": "cuda", "metal": "coreml", "gpu": "directml", "npu": "qnn"}


def load(what: Loadable, device: Device, options: RunOptions) -> OnnxSession:
    """Loads the file in a child process. Raises MissingExtra, DeviceAbsent, UsageError, Unreadable, RunFailed."""
    if find_spec("onnxruntime") is None:
        raise MissingExtra(
            "running an ONNX file needs the package onnxruntime", expected="the extra `onnx`, or `cuda`",
            hint="pip install 'artifactkit[onnx]'",
        )  # fmt: skip
    kind, _, number = device.name.partition(":")
    short = device.provider or DEFAULTS.get(kind, "")
    provider = PROVIDERS.get(short)
    if provider is None or kind not in provider.devices:
        raise DeviceAbsent(
            f"ONNX Runtime has no provider `{short}` for {kind}" if provider else f"ONNX Runtime has no `{device}`",
            expected=", ".join(f"onnxruntime/{name}@{p.devices[0]}" for name, p in PROVIDERS.items()),
            found=str(device), hint="--device cpu runs everywhere",
        )  # fmt: skip
    if options.precision != "float32":
        raise UsageError(f"an ONNX file says itself what it computes in: it is not run in {options.precision}")
    if not os.path.isfile(what.path):
        raise Unreadable("no such file", file=what.path)
    given = dict(provider.options)
    if kind == "cuda":
        given["device_id"] = number or "0"
    return OnnxSession(what.path, str(device), short, provider.full, given, provider.brought_by, options)


RUNNER = Runner(
    name="onnxruntime", title="ONNX Runtime", formats=frozenset({"onnx"}), extra="onnx", modules=MODULES, load=load
)
