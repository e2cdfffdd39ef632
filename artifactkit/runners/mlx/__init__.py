"""mlx-lm: an MLX folder run in a child process, on the CPU or on an Apple GPU."""

from __future__ import annotations

import os
from importlib.util import find_spec

from ...errors import DeviceAbsent, MissingExtra, Unreadable, UsageError
from ...types import Device, Loadable, Runner, RunOptions
from .session import MlxSession

MODULES = ("mlx", "mlx_lm")
DEVICES = {"cpu": "cpu", "metal": "gpu"}  # and what mlx calls them


def load(what: Loadable, device: Device, options: RunOptions) -> MlxSession:
    """Loads the folder in a child process. Raises MissingExtra, DeviceAbsent, UsageError, Unreadable, RunFailed."""
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"running an MLX folder needs the package {missing[0].replace('_', '-')}", expected="the extra `mlx`",
            hint="pip install 'artifactkit[mlx]'",
        )  # fmt: skip
    if device.name not in DEVICES or device.provider is not None:
        raise DeviceAbsent("mlx has no such device", expected="cpu or metal", found=str(device))
    if options.precision != "float32":
        raise UsageError(f"an MLX folder says itself what it computes in: it is not run in {options.precision}")
    folder = what.path if os.path.isdir(what.path) else os.path.dirname(what.path)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise Unreadable("no config.json: no folder that mlx-lm loads", file=what.path)
    return MlxSession(folder, str(device), DEVICES[device.name], options)


RUNNER = Runner(name="mlx", title="mlx-lm", formats=frozenset({"mlx"}), extra="mlx", modules=MODULES, load=load)
