"""The reference: transformers' own model in PyTorch, on the CPU, in float32 or float64, attention computed eagerly.

It is built from config.json and from weights that were read here: no pickle is opened, and no code of a checkpoint is
run. The weights are laid out as a folder of safetensors, as transformers wants them, for as long as the session lasts.
"""

from __future__ import annotations

from importlib.util import find_spec

from ...errors import DeviceAbsent, MissingExtra, RouteRefused
from ...types import Device, Loadable, Runner, RunOptions
from .session import TorchSession

MODULES = ("torch", "transformers")


def load(what: Loadable, device: Device, options: RunOptions) -> TorchSession:
    """Builds the model. Raises MissingExtra, DeviceAbsent, RouteRefused without config or for an unknown class."""
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"running a checkpoint needs the package {missing[0]}", expected="the extra `torch`",
            hint="pip install 'artifactkit[torch]'",
        )  # fmt: skip
    if device.name != "cpu" or device.provider is not None:
        raise DeviceAbsent("the reference runs on the CPU", expected="cpu", found=str(device))
    if what.weights is None or what.config is None:
        raise RouteRefused(
            "the reference is built of a checkpoint folder: its config.json says which model it is", file=what.path,
            expected="config.json beside the weights", found="none",
        )  # fmt: skip
    return TorchSession(what.path, what.weights, what.config, str(device), options)


RUNNER = Runner(
    name="torch", title="transformers in PyTorch", formats=frozenset({"safetensors"}), extra="torch", modules=MODULES,
    load=load,
)  # fmt: skip
