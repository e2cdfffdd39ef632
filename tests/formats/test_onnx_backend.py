"""onnx's own models for back ends, with their expected outputs: read, extracted, copied, another opset, float16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from contract import contents, read
from onnx import TensorProto, numpy_helper

from artifactkit import dtypes
from artifactkit.errors import RouteRefused
from artifactkit.opening import open_source
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute

pytestmark = pytest.mark.slow
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
MODELS = sorted(DATA.glob("*/*/model.onnx")) + sorted((DATA / "light").glob("*.onnx"))
MODELS = [path for path in MODELS if path.parent.parent.name not in ("node", "real")]
FAILS = [getattr(onnxruntime.capi.onnxruntime_pybind11_state, name) for name in ("Fail", "NotImplemented")]
# onnx's converter keeps the slope as it is, which means another dimension from opset 7 on.
REFUSED = {"test_PReLU_1d_multiparam", "test_PReLU_2d_multiparam", "test_PReLU_3d_multiparam"}
OPSET = 21
RUNS = {"": 1e-5, "copy": 1e-5, "opset": 1e-5, "f16": 0.02}  # how far from what is expected, of its greatest value


def test_they_are_all_there() -> None:
    assert len(MODELS) == 149


def convert(source: Path, destination: Path, to: str = "onnx", **options: object) -> Path:
    chosen = ConvertOptions(target_format=to, **options)  # type: ignore[arg-type]
    conversion = execute(plan(str(source), str(destination), chosen), chosen)
    assert conversion.report
    return destination


def array(path: Path) -> np.ndarray:
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def numbered(folder: Path, what: str) -> list[np.ndarray]:
    files = sorted(folder.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.rsplit("_", 1)[1]))
    return [array(path) for path in files]


def differs(path: Path, folder: Path, limit: float) -> str:
    """What is wrong with the model's outputs; empty where they are as expected."""
    model = onnx.load(str(path), load_external_data=False)
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except tuple(FAILS) as error:
        return f"not run: {type(error).__name__}"  # operators older than its oldest; a locale that is not here
    given = zip((value.name for value in model.graph.input), numbered(folder, "input"), strict=False)
    for got, want in zip(session.run(None, dict(given)), numbered(folder, "output"), strict=True):
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"{got.dtype} {got.shape}, not {want.dtype} {want.shape}"
        if want.dtype.kind != "f":
            if not np.array_equal(got, want):
                return "other values"
        elif want.size and np.abs(got - want).max() > limit * max(1e-3, float(np.abs(want).max())) + 1e-6:
            return f"off by {np.abs(got - want).max():g}"
    return ""


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_model(path: Path, tmp_path: Path) -> None:
    weights = read(path)
    model = onnx.load(str(path))
    assert weights.graph is not None
    assert sum(weights.graph.operators.values()) >= len(model.graph.node)
    held = {name: (shape, data) for name, (_, shape, data) in contents(weights).items()}
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.STRING:
            made = numpy_helper.to_array(tensor)
            assert held[tensor.name] == (made.shape, made.tobytes())
    if weights.tensors:
        extracted = convert(path, tmp_path / "w.safetensors", "safetensors")
        assert {t.shape for t in open_source(str(extracted)).weights} == {t.shape for t in weights}
    made = {
        "": path, "copy": convert(path, tmp_path / "copy.onnx"),
        "f16": convert(path, tmp_path / "f16.onnx", dtype=dtypes.parse("f16")),
    }  # fmt: skip
    if path.parent.name in REFUSED:
        with pytest.raises(RouteRefused, match="PRelu"):
            convert(path, tmp_path / "opset.onnx", opset=OPSET)
    else:
        made["opset"] = convert(path, tmp_path / "opset.onnx", opset=OPSET)
        opset = read(made["opset"]).graph
        assert opset is not None and opset.opsets["ai.onnx"] == OPSET
    assert "f32" not in {t.dtype.name for t in read(made["f16"]) if t.numel > 16}
    folder = path.parent / "test_data_set_0"
    if not folder.is_dir() or any(TensorProto.FromString(p.read_bytes()).data_type == 0 for p in folder.glob("*.pb")):
        return  # no data, or sequences
    found = {name: differs(file, folder, RUNS[name]) for name, file in made.items()}
    before = found.pop("")
    if before.startswith("not run"):
        before = ""
        found = {name: "" if wrong.startswith("not run") else wrong for name, wrong in found.items()}
    assert set(found.values()) == {before}, (found, before)
