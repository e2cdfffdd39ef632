"""TensorFlow: the tables of operators, both forms of a graph, flat buffers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile._proto import message, number, tflite
from hostile.savedmodel import function, graph, node, saved
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.containers.flatbuffer import FlatBuffer
from artifactkit.errors import ArtifactkitError
from artifactkit.files import Memory
from artifactkit.scan import savedmodel_ops
from artifactkit.scan.savedmodel import looks_like_saved_model
from artifactkit.scan.scanner import scan_file


def verdict(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return scan_file(str(path)).verdict


def test_tables_do_not_overlap() -> None:
    tables = [savedmodel_ops.PYTHON, savedmodel_ops.FILES, savedmodel_ops.NETWORK, savedmodel_ops.OPAQUE,
              savedmodel_ops.ORDINARY]  # fmt: skip
    assert sum(map(len, tables)) == len(frozenset().union(*tables))
    assert {"SaveV2", "RestoreV2", "MergeV2Checkpoints", "StatefulPartitionedCall"} <= savedmodel_ops.ORDINARY
    assert not any(name.startswith(("Py", "EagerPy")) for name in savedmodel_ops.ORDINARY)


@pytest.mark.parametrize("operator", sorted(savedmodel_ops.PYTHON | savedmodel_ops.FILES | savedmodel_ops.NETWORK))
def test_every_operator_is_found_in_both_forms(operator: str, tmp_path: Path) -> None:
    expected = "malicious" if operator in savedmodel_ops.PYTHON else "suspicious"
    assert verdict(tmp_path / "saved_model.pb", saved(graph(functions=(function("f", operator),)))) == expected
    text = f'meta_graphs {{ graph_def {{ library {{ function {{ node_def {{ op: "{operator}" }} }} }} }} }}'
    assert verdict(tmp_path / "saved_model.pbtxt", text.encode()) == expected


def test_content_tells_a_saved_model() -> None:
    data = saved(graph(node("Const")))
    assert looks_like_saved_model(Memory(data), data)
    other = number(1, 1) + message(2, "a producer's name") + message(7, "")  # ONNX of IR version 1
    assert not looks_like_saved_model(Memory(other), other)


def test_fields_in_any_order(tmp_path: Path) -> None:
    """A message may give its fields in any order, and the graph of a MetaGraphDef before what is about it."""
    first = message(2, message(2, message(1, message(2, "PyFunc"), message(1, "late")))) + number(1, 1)
    assert verdict(tmp_path / "saved_model.pb", first) == "malicious"


def test_text_is_read_in_linear_time(tmp_path: Path) -> None:
    for text in ('op: "' + '\\"' * 200_000, "node" + " " * 400_000, "a" * 400_000, "{" * 90, "'" * 300_001):
        assert verdict(tmp_path / "saved_model.pbtxt", text.encode()) in ("clean", "unreadable")
    assert verdict(tmp_path / "saved_model.pbtxt", b"node {" * 1000) == "unreadable"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 63), st.integers(0, 255), st.integers(4, 80))
def test_flat_buffers_stay_within_the_file(at: int, value: int, length: int) -> None:
    data = bytearray(tflite("FlexErf", "Mine"))
    data[at % len(data)] = value
    buffer = FlatBuffer(Memory(bytes(data[:length])))
    try:
        start, count = buffer.vector(buffer.root(), 1)
        for i in range(count):
            code = buffer.follow(start + 4 * i)
            place = buffer.field(code, 1)
            if place is not None:
                buffer.string(place)
    except ArtifactkitError:
        pass


def test_custom_operators_of_tflite_are_inventory(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite("FlexErf", "Mine"))
    report = scan_file(str(path))
    assert report.verdict == "clean"
    names = [entry.what for entry in report.inventory]
    assert names == ["FlexErf: an operator of TensorFlow", "the custom operator Mine"]
