"""ONNX Runtime in a child process: what it answers, and what becomes of it when anything goes wrong."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifactkit.errors import DeviceAbsent, RunFailed, Unreadable, UsageError
from artifactkit.registry import runners
from artifactkit.types import Device, Loadable, RunOptions

pytest.importorskip("onnxruntime")
CPU = Device("cpu")


def save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: list[Any]) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def value(name: str, kind: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture
def embeds(tmp_path: Path) -> Path:
    """An embedding of 10 tokens, masked."""
    table = np.arange(20, dtype=np.float32).reshape(10, 2)
    return save(
        tmp_path / "embed.onnx",
        [
            helper.make_node("Gather", ["table", "input_ids"], ["e"]),
            helper.make_node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["m", "axes"], ["m2"]),
            helper.make_node("Mul", ["e", "m2"], ["last_hidden_state"]),
        ],
        [value("input_ids", TensorProto.INT64, ["b", "s"]), value("attention_mask", TensorProto.INT64, ["b", "s"])],
        [value("last_hidden_state", TensorProto.FLOAT, ["b", "s", 2])],
        [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(np.array([2]), "axes")],
    )


def load(path: Path, device: Device = CPU, **options: Any) -> Any:
    return runners()["onnxruntime"].load(Loadable(str(path)), device, RunOptions(**options))


def test_outputs_by_name_and_masks_made(embeds: Path) -> None:
    with load(embeds) as session:
        ids = np.array([[1, 2, 3]])
        whole = session.run({"input_ids": ids})
        assert session.facts["inputs_made"] == "attention_mask"
        masked = session.run({"input_ids": ids, "attention_mask": np.array([[1, 1, 0]])})
    assert whole["last_hidden_state"].tolist() == [[[2, 3], [4, 5], [6, 7]]]
    assert masked["last_hidden_state"].tolist() == [[[2, 3], [4, 5], [0, 0]]]


def test_the_facts_say_what_ran_and_where(embeds: Path) -> None:
    with load(embeds, threads=1) as session:
        assert session.facts["provider"] == "CPUExecutionProvider"
        assert session.facts["threads"] == 1
        assert "none" in str(session.facts["fallback"])


@pytest.mark.parametrize(
    "device",
    [
        Device("cuda:0"), Device("cuda:0", "onnxruntime", "tensorrt"), Device("metal"),
        Device("cpu", "onnxruntime", "x"),
    ],
)  # fmt: skip
def test_a_provider_that_is_not_here_is_absent(device: Device, embeds: Path) -> None:
    with pytest.raises(DeviceAbsent):
        load(embeds, device)


def test_inputs_that_are_missing_or_of_another_type(embeds: Path) -> None:
    with load(embeds) as session:
        with pytest.raises(UsageError, match="input_ids"):
            session.run({"pixel_values": np.zeros((1, 3))})
        with pytest.raises(UsageError, match="cannot be given as the graph wants it"):
            session.run({"input_ids": np.array([[1.5]])})
        with pytest.raises(UsageError, match="no key-value cache"):
            session.run({"input_ids": np.array([[1, 2]])}, [1, 1])
        with pytest.raises(RunFailed, match="does not run the model"):
            session.run({"input_ids": np.array([[99]])})
        assert session.run({"input_ids": np.array([[1]])})["last_hidden_state"].shape == (1, 1, 2)


def test_the_cache_is_carried_from_piece_to_piece(tmp_path: Path) -> None:
    """A sum over all that was seen: the past is an input, the present an output."""
    path = save(
        tmp_path / "cached.onnx",
        [
            helper.make_node("Cast", ["input_ids"], ["x"], to=TensorProto.FLOAT),
            helper.make_node("Concat", ["past_key_values.0.key", "x"], ["present.0.key"], axis=1),
            helper.make_node("ReduceSum", ["present.0.key", "axes"], ["sum"], keepdims=1),
            helper.make_node("Add", ["x", "sum"], ["y"]),
            helper.make_node("Unsqueeze", ["y", "last"], ["logits"]),
        ],
        [
            value("input_ids", TensorProto.INT64, ["b", "s"]),
            value("past_key_values.0.key", TensorProto.FLOAT, ["b", "p"]),
        ],
        [value("logits", TensorProto.FLOAT, ["b", "s", 1]), value("present.0.key", TensorProto.FLOAT, ["b", "t"])],
        [onnx.numpy_helper.from_array(np.array([1]), "axes"), onnx.numpy_helper.from_array(np.array([2]), "last")],
    )
    with load(path) as session:
        found = session.run({"input_ids": np.array([[1, 2, 3]])}, [1, 1, 1])
        assert found["logits"][0, :, 0].tolist() == [2, 5, 9]
        assert set(found) == {"logits"}
        assert session.run({"input_ids": np.array([[1, 2, 3]])})["logits"][0, :, 0].tolist() == [7, 8, 9]


def test_half_precision_comes_back_as_float32(tmp_path: Path) -> None:
    for name, kind in (("f16", TensorProto.FLOAT16), ("f64", TensorProto.DOUBLE)):
        path = save(
            tmp_path / f"{name}.onnx", [helper.make_node("Identity", ["x"], ["y"])], [value("x", kind, ["n"])],
            [value("y", kind, ["n"])], [],
        )  # fmt: skip
        with load(path) as session:
            out = session.run({"x": np.array([0.5, 0.1])})["y"]
        assert out.dtype == (np.float32 if name == "f16" else np.float64)
        assert abs(out[1] - 0.1) < 1e-3


def test_files_that_it_does_not_load(embeds: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.onnx").write_bytes(embeds.read_bytes()[:-30])
    with pytest.raises(RunFailed, match="does not load the model"):
        load(tmp_path / "cut.onnx")
    with pytest.raises(Unreadable):
        load(tmp_path / "none.onnx")


def test_a_child_that_is_killed_or_hangs(embeds: Path) -> None:
    session = load(embeds)
    os.kill(session.pid, signal.SIGKILL)
    with pytest.raises(RunFailed, match="ONNX Runtime died"):
        session.run({"input_ids": np.array([[1]])})
    session = load(embeds)
    session._seconds = 0.5
    os.kill(session.pid, signal.SIGSTOP)
    with pytest.raises(RunFailed, match="did not run the inputs within"):
        session.run({"input_ids": np.array([[1]])})
