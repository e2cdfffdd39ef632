"""Which attributes of a TorchScript object are parameters, buffers and submodules: what its state dict holds.

The pickle of a script module holds all its attributes alike. Its class, serialised as text under ``code/``, says which
are which (``torch/csrc/jit/serialization/python_print.cpp``: ``__parameters__`` and ``__buffers__``). The text is
searched for these two lines; it is never run.
"""

from __future__ import annotations

import re

from .errors import ArtifactkitError
from .pickles import Opaque
from .torch_files import TorchArchive

MAX_SOURCE = 16 << 20  # bytes of one source file
_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
_LIST = re.compile(r"^  __(parameters|buffers)__ = \[([^\]\n]*)\]$", re.MULTILINE)
_ITEM = re.compile(r'"([^"\\]*)"')


class ScriptClasses:
    """Looks classes up in the text of an archive, each file once. ``folder`` is where the text lies."""

    def __init__(self, archive: TorchArchive, folder: str = "code/") -> None:
        self._archive, self._folder = archive, folder
        self._files: dict[str, dict[str, frozenset[str]]] = {}

    def saved(self, module: str, name: str) -> frozenset[str] | None:
        """Names of the parameters and buffers of a class; None when the text does not have it."""
        if module not in self._files:
            self._files[module] = self._read(module)
        return self._files[module].get(name)

    def _read(self, module: str) -> dict[str, frozenset[str]]:
        record = self._folder + module.replace(".", "/") + ".py"
        if record not in self._archive:
            return {}
        try:
            text = self._archive.zip.read_small(self._archive.name(record), MAX_SOURCE).decode("utf-8", "replace")
        except ArtifactkitError:
            return {}  # the weights are whole without it; members() then takes all attributes
        starts = list(_CLASS.finditer(text))
        out: dict[str, frozenset[str]] = {}
        for match, after in zip(starts, [*starts[1:], None], strict=True):
            body = text[match.end() : after.start() if after else len(text)]
            names = [item for _, items in _LIST.findall(body) for item in _ITEM.findall(items)]
            if "__parameters__" in body:
                out[match.group(1)] = frozenset(names)
        return out

    def members(self, value: Opaque) -> frozenset[str] | None:
        """The attributes of a script object that belong to its state dict; None for objects of other classes."""
        if value.module != "__torch__" and not value.module.startswith("__torch__."):
            return None
        saved = self.saved(value.module, value.name)
        if saved is None:
            return None
        submodules = {
            key for key, item in value.attrs.items()
            if isinstance(key, str) and isinstance(item, Opaque) and item.module.startswith("__torch__")
            and self.saved(item.module, item.name) is not None
        }  # fmt: skip
        return saved | submodules
