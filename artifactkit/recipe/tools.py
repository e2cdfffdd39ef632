"""Which tools take part in making a target, and in which versions they are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from .. import __version__, registry
from .model import Target

# What every conversion goes through: arrays, casts, and the reader that opens the output again.
CORE = ("numpy", "ml-dtypes", "safetensors")
# The distributions of each extra (pyproject.toml; a test compares).
EXTRAS: dict[str, tuple[str, ...]] = {
    "torch": ("torch", "transformers", "accelerate"),
    "onnx": ("onnx", "onnxscript", "onnx-ir", "onnxruntime"),
    "genai": ("onnxruntime-genai",),
    "gguf": ("gguf", "libgguf", "xllamacpp", "tokenizers", "sentencepiece"),
    "mlx": ("mlx", "mlx-lm"),
    "tensorrt-rtx": ("tensorrt-rtx-cu13",),
    "tensorrt": ("tensorrt",),
}
# The extras that a format needs, beside the one that its module names. A graph is traced from the model's own code.
OF_FORMAT: dict[str, tuple[str, ...]] = {
    "onnx": ("torch", "onnx"),
    "onnx-genai": ("torch", "onnx", "genai"),
    "gguf": ("gguf",),
    "mlx": ("mlx",),
    "tensorrt": ("torch", "onnx", "tensorrt"),
    "tensorrt-rtx": ("torch", "onnx", "tensorrt-rtx"),
    "aoti": ("torch",),
}


def needed(targets: Iterable[Target]) -> list[str]:
    """The distributions that make these targets, sorted."""
    found = set(CORE)
    for name in {target.format for target in targets}:
        fmt = registry.formats().get(name)
        extras = {*OF_FORMAT.get(name, ()), *([fmt.extra] if fmt is not None and fmt.extra else [])}
        for extra in extras:
            found.update(EXTRAS.get(extra, ()))
    return sorted(found)


def installed(targets: Iterable[Target]) -> dict[str, str]:
    """Versions of artifactkit, Python (without its last number, which changes no byte) and what is installed of
    ``needed``."""
    from importlib.metadata import PackageNotFoundError, version

    out = {"artifactkit": __version__, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in needed(targets):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out
