"""What is asked of an ONNX file in ONNX Runtime: outputs by name for inputs by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from ...children import Json
from ...children.client import Child
from ...errors import RunFailed, UsageError
from ...types import RunOptions

if TYPE_CHECKING:
    import numpy as np

RANK_LIMIT = 16
CACHE = ("past_key_values.", "past.", "past_")
SEQUENCES = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


class OnnxSession:
    """A Session (types.py) on ONNX Runtime. ``inputs`` and ``outputs`` are the graph's: name -> (type, shape).

    Inputs are given by transformers' names. A key-value cache starts empty, is carried from piece to piece within one
    ``run``, and is no output. Inputs that the graph does not have are left out, and ``facts`` says which; of those that
    it has beyond the given, ``position_ids`` are counted from 0 and ``token_type_ids`` are zeros.
    """

    def __init__(
        self, path: str, device: str, short: str, provider: str, given: Mapping[str, str], brought_by: str,
        options: RunOptions,
    ) -> None:  # fmt: skip
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
        self._child = Child(script, "ONNX Runtime", path, unset=("ORT_",))
        self._seconds = options.seconds
        request: Json = {
            "op": "load", "path": os.fsencode(os.path.abspath(path)).decode("latin-1"), "provider": provider,
            "options": dict(given), "brought_by": brought_by, "threads": options.threads,
        }  # fmt: skip
        try:
            loaded, _ = self._child.ask(request, options.seconds)
        except BaseException:
            self._child.close()
            raise
        self.inputs: dict[str, tuple[str, list[Any]]] = {name: (kind, shape) for name, kind, shape in loaded["inputs"]}
        self.outputs: dict[str, tuple[str, list[Any]]] = {n: (kind, shape) for n, kind, shape in loaded["outputs"]}
        self._cache = [name for name in self.inputs if name.startswith(CACHE)]
        placed: dict[str, dict[str, int]] = loaded["placed"]
        self.facts: dict[str, object] = {
            "runtime": "ONNX Runtime", "version": f"onnxruntime {loaded['version']}", "build": loaded["build"],
            "device": device, "provider": provider, "providers": ", ".join(loaded["providers"]),
            "placed": ", ".join(f"{name}: {sum(ops.values())} nodes" for name, ops in placed.items()) or "no nodes",
            "fallback": _fallback(provider, placed), "graph_optimization": loaded["optimization"],
            "threads": options.threads, "output_types": ", ".join(sorted({k for k, _ in self._given_back().values()})),
            "cache": f"{counted(len(self._cache))}" if self._cache else "no cache",
        }  # fmt: skip
        if short in ("cuda", "tensorrt"):
            self.facts["tf32"] = "off" if given.get("use_tf32") == "0" else "as the provider does"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the child process."""
        return self._child.pid

    def close(self) -> None:
        """Ends the child process; twice does no harm."""
        self._child.close()

    def run(self, inputs: Mapping[str, np.ndarray], pieces: Sequence[int] = ()) -> dict[str, np.ndarray]:
        """Session.run. Floating outputs are float32, or float64 where the graph's are; others as the graph has them."""
        import numpy as np

        length = _length(inputs)
        if pieces and (length is None or any(p < 1 for p in pieces) or sum(pieces) != length):
            raise UsageError("the pieces are no cut of the inputs", expected=length, found=list(pieces))
        if len(pieces) > 1 and not self._cache:
            raise UsageError(
                "the graph has no key-value cache: it has to see its inputs whole", file=self._child.file,
                hint="export it for text-generation-with-past",
            )  # fmt: skip
        feeds = self._feeds(inputs)
        heads = [{"name": name, "dtype": str(a.dtype), "shape": list(a.shape)} for name, a in feeds.items()]
        payload = b"".join(np.ascontiguousarray(a).tobytes() for a in feeds.values())
        found: dict[str, np.ndarray] = {}

        def place(head: Json, nbytes: int) -> memoryview:
            name, shape = str(head["name"]), [int(n) for n in head["shape"]]
            known = (
                name in self.outputs and name not in found and len(shape) <= RANK_LIMIT and min(shape, default=1) > 0
            )
            if known:
                dtype = np.dtype(str(head["dtype"]))
                known = dtype.kind in "fiub" and nbytes == dtype.itemsize * int(np.prod(shape, dtype=object))
            if not known:
                raise RunFailed("the child answers what was not asked", file=self._child.file, found=str(head)[:200])
            found[name] = np.empty(shape, dtype)
            return found[name].reshape(-1).view(np.uint8).data

        request = {"op": "run", "inputs": heads, "pieces": list(pieces) or ([length or 1] if self._cache else [])}
        done, _ = self._child.ask(request, self._seconds, payload, place)
        for name, dtype, shape in done["empty"]:
            found[name] = np.empty(shape, dtype)
        if found.keys() != self._given_back().keys():
            raise RunFailed("the child left outputs out", file=self._child.file, found=", ".join(found))
        return found

    def _given_back(self) -> dict[str, tuple[str, list[Any]]]:
        cache = ("present.", "present_") if self._cache else ()
        return {name: what for name, what in self.outputs.items() if not name.startswith(cache or ("\0",))}

    def _feeds(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the graph is fed with, by its names and types, the cache apart."""
        import numpy as np

        wanted = [name for name in self.inputs if name not in self._cache]
        shape = next((np.shape(inputs[name]) for name in SEQUENCES if name in inputs), None)
        feeds: dict[str, np.ndarray] = {}
        made = []
        for name in wanted:
            kind = self.inputs[name][0]
            if name in inputs:
                value = np.asarray(inputs[name])
            elif name == "position_ids" and shape:
                value = np.broadcast_to(np.arange(shape[-1]), shape)
                made.append(name)
            elif name in ("token_type_ids", "attention_mask") and shape:
                value = np.full(shape, int(name == "attention_mask"))
                made.append(name)
            else:
                raise UsageError(
                    f"the graph has an input that was not given: {name}", file=self._child.file,
                    expected=", ".join(wanted), found=", ".join(inputs),
                )  # fmt: skip
            feeds[name] = _typed(name, value, kind)
        self.facts["inputs_made"] = ", ".join(made) or "none"
        self.facts["inputs_left_out"] = ", ".join(sorted(inputs.keys() - feeds.keys())) or "none"
        return feeds


def counted(tensors: int) -> str:
    return f"{tensors} tensors"


# What the graph calls a type, and what NumPy calls it. f16 and bf16 are made of float32 where ml_dtypes is at hand.
WHOLE = {
    "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8", "uint64": "uint64", "uint32": "uint32",
    "uint16": "uint16", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
FLOATING = {"float": "float32", "double": "float64", "float16": "float32", "bfloat16": "float32"}


def _typed(name: str, value: np.ndarray, kind: str) -> np.ndarray:
    """``value`` in the graph's type. UsageError when it does not hold the value or is none that is fed."""
    import numpy as np

    short = kind.removeprefix("tensor(").removesuffix(")")
    if short in FLOATING and value.dtype.kind in "fiu":
        return value.astype(FLOATING[short])
    if short in WHOLE and value.dtype.kind in "iub":
        whole: np.ndarray = value.astype(WHOLE[short])
        if np.array_equal(whole, value):
            return whole
    raise UsageError(f"the input {name} cannot be given as the graph wants it", expected=kind, found=str(value.dtype))


def _length(inputs: Mapping[str, Any]) -> int | None:
    ids = inputs.get("input_ids")
    return None if ids is None or ids.ndim != 2 else int(ids.shape[1])


def _fallback(provider: str, placed: Mapping[str, Mapping[str, int]]) -> str:
    """What of the graph runs elsewhere: nothing, or the operators that only handle shapes and indices."""
    elsewhere: Counter[str] = Counter()
    for name, ops in placed.items():
        if name != provider:
            elsewhere.update(ops)
    if provider == "CPUExecutionProvider":
        return "none: the CPU is what was asked for"
    if not elsewhere:
        return "disabled"
    return "of shapes and indices only: " + ", ".join(f"{op} {n}" for op, n in sorted(elsewhere.items()))
