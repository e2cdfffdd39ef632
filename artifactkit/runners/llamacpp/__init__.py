"""llama.cpp, as xllamacpp brings it: a GGUF file run in a child process, all outputs at all positions.

By default the key-value cache is f32 and flash attention is off, so that only rounding stands between its outputs and
the reference's: this is how the structure of a file is proved. ``llamacpp/defaults@cpu`` runs what users run, with
llama.cpp's own choices: an f16 cache and flash attention where it sees fit.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...children.client import Child
from ...errors import DeviceAbsent, MissingExtra, Unreadable, UsageError
from ...types import Device, Loadable, Runner, RunOptions
from .session import LlamaSession, Vocabulary

VERSION = "2026.10.11549"  # of xllamacpp: the build whose struct layouts are in abi.py
EXACT, DEFAULTS = "exact", "defaults"
# Tasks, by optimum's names, that want the last hidden state; the others want logits. An encoder has no logits.
EMBEDDING_TASKS = frozenset({"feature-extraction", "sentence-similarity"})


def library() -> str:
    """The path of xllamacpp's library. It is not imported: native code runs in a child only. MissingExtra without."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        spec = find_spec("xllamacpp")
        found = version("xllamacpp")
    except (ImportError, ValueError, PackageNotFoundError):
        spec, found = None, None
    places = (spec.submodule_search_locations if spec else None) or []
    files = [p for place in places for s in EXTENSION_SUFFIXES for p in sorted(Path(place).glob(f"xllamacpp*{s}"))]
    if not files or found != VERSION:
        raise MissingExtra(
            "running a GGUF file needs the package xllamacpp, in the version that its structs are known of",
            expected=f"the extra `gguf`: xllamacpp {VERSION}", found=f"xllamacpp {found}" if found else None,
            hint="pip install 'artifactkit[gguf]'",
        )  # fmt: skip
    return os.path.abspath(files[0])


def load(what: Loadable, device: Device, options: RunOptions) -> LlamaSession:
    """Loads the file in a child process. Raises MissingExtra, DeviceAbsent, UsageError, Unreadable, RunFailed."""
    path = library()
    provider = device.provider or EXACT
    if provider not in (EXACT, DEFAULTS):
        raise DeviceAbsent(
            f"llama.cpp has no `{provider}` here", expected=f"{EXACT} or {DEFAULTS}", found=str(device),
            hint=f"--device llamacpp/{DEFAULTS}@{device.name}",
        )  # fmt: skip
    if options.precision != "float32":
        raise UsageError(f"llama.cpp computes in float32, not in {options.precision}")
    child = _start(what.path)
    try:
        return LlamaSession(
            child, path, VERSION, what.path, device.name, provider == EXACT, what.task in EMBEDDING_TASKS, options
        )
    except BaseException:
        child.close()
        raise


def vocabulary(path: str, seconds: float = 600.0) -> Vocabulary:
    """The file's tokenizer alone, without its weights. Raises MissingExtra, Unreadable and RunFailed."""
    found = library()
    child = _start(path)
    try:
        return Vocabulary(child, found, path, seconds)
    except BaseException:
        child.close()
        raise


def _start(path: str) -> Child:
    if not os.path.isfile(path):
        raise Unreadable("no such file", file=path)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
    # What the environment says to llama.cpp would change what is computed, unseen.
    return Child(script, "llama.cpp", path, unset=("GGML_", "LLAMA_"))


RUNNER = Runner(
    name="llamacpp",
    title="llama.cpp",
    formats=frozenset({"gguf"}),
    extra="gguf",
    modules=("xllamacpp",),
    load=load,
    exact=EXACT,
)
