"""ONNX Runtime behind two pipes. Runs in a process of its own, which ``child.py`` starts."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...children import Json, server
from ...children.server import Failed

CPU = "CPUExecutionProvider"
BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
# Operators with which graphs of dynamic shapes compute shapes and indices. ONNX Runtime puts those on the CPU by
# itself, whatever provider is asked for; nothing else may be there.
SHAPES = frozenset(
    """
    Shape Size Gather GatherND Concat Unsqueeze Squeeze Cast Slice Reshape Range ConstantOfShape Equal Where Expand Not
    And Or Greater GreaterOrEqual Less LessOrEqual Add Sub Mul Div Mod Max Min ReduceProd ReduceSum CumSum Identity
    Constant Transpose
    """.split()  # noqa: SIM905
)
NUMPY = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8",
    "tensor(uint64)": "uint64", "tensor(uint32)": "uint32", "tensor(uint16)": "uint16", "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}  # fmt: skip


class Runtime:
    """One session of ONNX Runtime, and the requests that it answers."""

    def __init__(self) -> None:
        self.session: Any = None

    def answer(self, asked: Json, payload: bytes) -> Iterator[tuple[Json, Any]]:
        if asked["op"] == "load":
            yield self.load(asked), b""
        else:
            yield from self.run(asked, payload)

    def load(self, asked: Json) -> Json:
        import onnxruntime

        # Errors are raised; what else it has to say goes to stderr, and becomes the hint of what fails.
        onnxruntime.set_default_logger_severity(3)
        provider = asked["provider"]
        available = onnxruntime.get_available_providers()
        if provider not in available:
            raise Failed(
                f"this build of ONNX Runtime has no {provider}", "device", found=", ".join(available),
                hint=f"it comes with {asked['brought_by']}",
            )  # fmt: skip
        session = self.start(asked, alone=True)
        placed = placement(session)
        elsewhere = {op for name, ops in placed.items() if name != provider for op in ops} - SHAPES
        if session.get_providers()[0] != provider or elsewhere:
            raise Failed(
                f"{provider} was asked for, and ONNX Runtime runs the model elsewhere", "device", expected=provider,
                found=", ".join(session.get_providers()) + (f": {', '.join(sorted(elsewhere))}" if elsewhere else ""),
                hint="what stands in the log of ONNX Runtime says why: a library of the provider may be missing",
            )  # fmt: skip
        self.session = session
        self.inputs = {i.name: i for i in session.get_inputs()}
        self.outputs = {o.name: o for o in session.get_outputs()}
        return {
            "done": True, "version": onnxruntime.__version__, "build": onnxruntime.get_build_info(),
            "providers": session.get_providers(), "placed": placed, "optimization": "all",
            "inputs": [[i.name, i.type, i.shape] for i in self.inputs.values()],
            "outputs": [[o.name, o.type, o.shape] for o in self.outputs.values()],
        }  # fmt: skip

    def start(self, asked: Json, alone: bool) -> Any:
        """A session with the provider ``alone``, or with the CPU behind it when its shapes and indices need that."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = asked["threads"]
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.load_model_format", "ONNX")  # whatever the file is called
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        provider = asked["provider"]
        alone = alone and provider != CPU
        if alone:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        path = os.fsdecode(asked["path"].encode("latin-1"))
        try:
            return onnxruntime.InferenceSession(
                path, options, providers=[(provider, asked["options"])], enable_fallback=0, read_config_from_model=0
            )
        except raised() as error:
            if alone and "fallback to CPU EP has been explicitly disabled" in str(error):
                return self.start(asked, alone=False)
            raise Failed(f"ONNX Runtime does not load the model: {said(error)}", hint=advice(error)) from error

    def run(self, asked: Json, payload: bytes) -> Iterator[tuple[Json, Any]]:
        import numpy as np

        if self.session is None:
            raise Failed("nothing is loaded")
        feeds: dict[str, Any] = {}
        at = 0
        for head in asked["inputs"]:
            dtype = np.dtype(head["dtype"])
            count = int(np.prod(head["shape"], dtype=np.int64))
            feeds[head["name"]] = np.frombuffer(payload, dtype, count, at).reshape(head["shape"])
            at += count * dtype.itemsize
        pieces = asked["pieces"]
        found = self.cached(feeds, pieces) if pieces else self.call(feeds, {})
        found = {name: as_numpy(value) if not isinstance(value, np.ndarray) else value for name, value in found.items()}
        empty = []
        for name, value in found.items():
            if value.dtype.kind not in "fiub":
                raise Failed(f"the output {name} is of a type that is not compared", found=str(value.dtype))
            if value.size == 0:
                empty.append([name, str(value.dtype), list(value.shape)])
                continue
            head = {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
            yield head, np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        yield {"done": True, "empty": empty}, b""

    def cached(self, feeds: dict[str, Any], pieces: list[int]) -> dict[str, Any]:
        """The outputs of all pieces, each fed with the cache that the one before has left."""
        import numpy as np

        batch = feeds["input_ids"].shape[0]
        cache = {name: self.empty(i, batch) for name, i in self.inputs.items() if name not in feeds}
        found: dict[str, list[Any]] = {}
        start = 0
        for count in pieces:
            end = start + count
            part = {}
            for name, value in feeds.items():
                along = value.ndim == 2 and value.shape[1] == sum(pieces)
                first = 0 if name == "attention_mask" else start  # a mask is of all that was seen
                part[name] = value[:, first:end] if along else value
            out = self.call(part, cache)
            for name, value in out.items():
                past = name.replace("present", "past_key_values", 1)
                for held in (past, name.replace("present", "past", 1)):
                    if held in cache:
                        cache[held] = value
                        break
                else:
                    found.setdefault(name, []).append(as_numpy(value))
            start = end
        if len(pieces) == 1:
            return {name: values[0] for name, values in found.items()}
        for name, values in found.items():
            if [v.shape[1] if v.ndim > 1 else None for v in values] != pieces:
                raise Failed(f"the output {name} cannot be joined from pieces", found=[str(v.shape) for v in values])
        return {name: np.concatenate(values, axis=1) for name, values in found.items()}

    def empty(self, node: Any, batch: int) -> Any:
        """An empty cache for one input: its first dimension is the batch, and what else has no number is the length."""
        import numpy as np

        shape = [n if isinstance(n, int) else (0 if at else batch) for at, n in enumerate(node.shape)]
        return self.value(np.zeros(shape, np.float32), node.type)

    def value(self, array: Any, kind: str) -> Any:
        import ml_dtypes
        import numpy as np
        import onnxruntime

        if kind == "tensor(bfloat16)":
            bits = np.ascontiguousarray(array.astype(ml_dtypes.bfloat16)).view(np.uint16)
            return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BFLOAT16)
        wanted = NUMPY.get(kind)
        if wanted is None:
            raise Failed(f"the graph has an input of a type that is not fed: {kind}")
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array.astype(wanted, copy=False)))

    def call(self, feeds: dict[str, Any], cache: dict[str, Any]) -> dict[str, Any]:
        """One run: outputs by name, as OrtValues."""
        given = {name: self.value(value, self.inputs[name].type) for name, value in feeds.items()}
        names = list(self.outputs)
        try:
            values = self.session.run_with_ort_values(names, {**given, **cache})
        except raised() as error:
            raise Failed(f"ONNX Runtime does not run the model: {said(error)}", hint=advice(error)) from error
        return dict(zip(names, values, strict=True))


def placement(session: Any) -> dict[str, dict[str, int]]:
    """provider -> operator -> how many nodes it was given, after the graph was optimised."""
    found: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        found.setdefault(part.ep_name, Counter()).update(node.op_type for node in part.get_nodes())
    return {name: dict(sorted(ops.items())) for name, ops in sorted(found.items())}


def as_numpy(value: Any) -> Any:
    """An output as an array; f16 and bf16, which are within float32, as that."""
    import numpy as np

    if not value.is_tensor():
        raise Failed("the graph has an output that is no tensor", found=value.data_type())
    if value.data_type() == "tensor(bfloat16)":  # NumPy has no such type: the bits are read where they lie
        shape = value.shape()
        count = int(np.prod(shape, dtype=np.int64))
        if not count:
            return np.zeros(shape, np.float32)
        bits = np.ctypeslib.as_array((ctypes.c_uint16 * count).from_address(value.data_ptr()))
        return (bits.astype(np.uint32) << 16).view(np.float32).reshape(shape)
    array = value.numpy()
    return array.astype(np.float32) if array.dtype == np.float16 else array


def raised() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises: classes without a base of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError)


def said(error: Exception) -> str:
    """The message on one line, without the prefix that all have and without the places in ONNX Runtime's sources."""
    text = " ".join(str(error).split())
    return text.removeprefix("[ONNXRuntimeError] : ")[:1000]


def advice(error: Exception) -> str | None:
    text = str(error)
    if "NOT_IMPLEMENTED" in text and ("bfloat16" in text.lower() or "(16)" in text):
        return "the CPU provider computes next to nothing in bf16: a GPU does, or export with --dtype f32"
    if "Could not find an implementation" in text:
        return "this provider has no such operator for these types: another provider, or another --dtype or --opset"
    if "Protobuf" in text or "INVALID_PROTOBUF" in text:
        return "the file is no whole ONNX file: fetch or make it again"
    return None


def main() -> None:
    server.main(Runtime().answer)
