"""ONNX on the wire: everything that a runtime would look at is met, whatever the order of the fields."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hostile import onnx as make
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.containers import onnx_wire as wire
from artifactkit.errors import ArtifactkitError, Corrupt, LimitExceeded, Truncated
from artifactkit.files import Memory


@dataclass
class Met(wire.Visitor):
    nodes: list[wire.Node] = field(default_factory=list)
    tensors: list[wire.Tensor] = field(default_factory=list)
    functions: list[tuple[str, str]] = field(default_factory=list)
    opsets: list[tuple[str, int]] = field(default_factory=list)
    pairs: dict[str, str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)

    def opset(self, domain: str, version: int) -> None:
        self.opsets.append((domain, version))

    def metadata(self, key: str, value: str) -> None:
        self.pairs[key] = value

    def node(self, node: wire.Node) -> None:
        self.nodes.append(node)

    def tensor(self, tensor: wire.Tensor) -> None:
        self.tensors.append(tensor)

    def function(self, function: wire.Function) -> None:
        self.functions.append((function.domain, function.name))

    def twice(self, what: str, offset: int) -> None:
        self.repeated.append(what)


def met(content: bytes) -> Met:
    out = Met()
    wire.walk(Memory(content, "a.onnx"), out)
    return out


def test_a_plain_model() -> None:
    content = make.model(
        make.graph((make.RELU, make.node("Gelu", "com.microsoft")), (make.tensor("w", (2, 3), 1, bytes(24)),)),
        make.pairs(14, author="me"),
        domains=("", "com.microsoft"),
    )
    out = met(content)
    assert [(n.op_type, n.domain) for n in out.nodes] == [("Relu", ""), ("Gelu", "com.microsoft")]
    assert out.opsets == [("", 20), ("com.microsoft", 20)] and out.pairs == {"author": "me"}
    (weights,) = out.tensors
    assert (weights.name, weights.dims, weights.data_type) == ("w", (2, 3), 1)
    assert weights.raw is not None and weights.raw[1] == 24
    assert content[weights.raw[0] : sum(weights.raw)] == bytes(24)


def test_tensors_in_every_place() -> None:
    def named(name: str) -> bytes:
        return make.tensor(name)

    body = make.graph((make.RELU,), (named("in-subgraph"),))
    nodes = (
        make.node("Constant", "", make.attribute("value", 5, named("attribute"))),
        make.node("X", "", make.attribute("values", 10, named("list")), make.attribute("values", 10, named("list-2"))),
        make.node("If", "", make.attribute("then_branch", 6, body)),
        make.node("Y", "", make.attribute("graphs", 11, make.graph((), (named("in-graphs"),)))),
        make.node("Z", "", make.attribute("s", 22, make.part(1, named("sparse-attribute")))),
        make.node("Z", "", make.attribute("s", 23, make.part(2, named("sparse-list")))),
    )
    sparse = make.part(15, make.part(1, named("sparse-values")) + make.part(2, named("sparse-indices")))
    inside = make.node("Constant", "", make.attribute("value", 5, named("in-function")))
    content = make.model(
        make.graph(nodes, (named("initializer"),), sparse),
        make.function("F", "my.local", inside),
        make.part(
            20,
            make.part(1, make.graph((), (named("training-1"),))) + make.part(2, make.graph((), (named("training-2"),))),
        ),
        make.part(25, make.part(1, "G") + make.part(11, make.attribute("a", 5, named("default")))),
    )
    out = met(content)
    assert sorted(t.name for t in out.tensors) == sorted(
        [
            "attribute",
            "list",
            "list-2",
            "in-subgraph",
            "in-graphs",
            "sparse-attribute",
            "sparse-list",
            "sparse-values",
            "sparse-indices",
            "in-function",
            "initializer",
            "training-1",
            "training-2",
            "default",
        ]
    )
    assert out.functions == [("my.local", "F"), ("", "G")]


def test_external_data_keeps_every_pair() -> None:
    body = make.tensor("w", (2,), 1, None, location="a.bin", offset="4") + make.pairs(13, location="b.bin")
    (found,) = met(make.model(make.graph((), (body,)))).tensors
    assert found.location == 1
    assert found.external == [("location", "a.bin"), ("offset", "4"), ("location", "b.bin")]


def test_packed_and_plain_dimensions_and_large_numbers() -> None:
    packed = make.part(1, b"\x02\x80\x01") + make.number(1, 2**63) + make.part(8, "w")
    assert met(make.model(make.graph((), (packed,)))).tensors[0].dims == (2, 128, 2**63)


def test_unknown_fields_and_groups_are_stepped_over() -> None:
    group = make.varint(500 << 3 | 3) + make.part(7, b"inside") + make.varint(500 << 3 | 4)
    fixed = make.varint(600 << 3 | 1) + bytes(8) + make.varint(601 << 3 | 5) + bytes(4)
    content = group + fixed + make.model(make.graph((make.RELU + group,)))
    assert [n.op_type for n in met(content).nodes] == ["Relu"]


def test_last_wins_and_is_told() -> None:
    twice = make.part(4, "A") + make.part(4, "B")
    out = met(make.model(make.graph((twice,)), make.part(7, make.graph((make.RELU,)))))
    assert out.nodes[0].op_type == "B" and out.nodes[0].twice == "op_type"
    assert out.repeated == ["graph"]


def test_a_model_larger_than_the_window() -> None:
    nodes = tuple(make.node(f"Op{i}", "", make.attribute("a", 4, bytes(100))) for i in range(3000))
    out = met(make.model(make.graph(nodes, (make.tensor("w", (1 << 18,), 2, bytes(1 << 18)), make.tensor("v")))))
    assert [n.op_type for n in out.nodes] == [f"Op{i}" for i in range(3000)]
    assert [t.name for t in out.tensors] == ["w", "v"]


GOOD = make.model(make.graph((make.RELU,), (make.tensor(),)))


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (GOOD[:-8], Truncated, "ends within"),
        (make.number(1, 10), Corrupt, "without a graph"),
        (b"\x00\x01", Corrupt, "field number"),
        (make.part(7, b"\x0a\x7f") + make.number(1, 10), Corrupt, "past the end"),
        (make.part(7, b"\x0f"), Corrupt, "wire type"),
        (b"\x08" + b"\xff" * 12, Corrupt, "more than 10 bytes"),
        (make.varint(500 << 3 | 3) * 200, LimitExceeded, "nested too deeply"),
        (make.varint(500 << 3 | 3) + GOOD, Corrupt, "does not end"),
        (make.part(7, make.part(1, make.part(4, "x" * 70_000))), LimitExceeded, "out of proportion"),
    ],
)
def test_refusals(content: bytes, error: type[ArtifactkitError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        met(content)
    assert caught.value.file == "a.onnx"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (GOOD, True),
        (GOOD[:-4], True),
        (b"\n\x05hello", False),
        (b"", False),
        (b"{}", False),
        (b"BBBB" * 100, False),
        (make.number(1, 1) + make.part(2, b"x"), False),  # a SavedModel begins so
        (make.number(1, 10) + make.part(7, b"\xff\xff"), False),
    ],
)
def test_telling_models_by_content(content: bytes, expected: bool) -> None:
    assert wire.looks_like_model(Memory(content), content[:4096]) is expected


@given(st.binary(max_size=60), st.integers(0, 120))
def test_anything_is_walked_or_refused(junk: bytes, at: int) -> None:
    for content in (GOOD[:at] + junk + GOOD[at + len(junk) :], GOOD[:at] + junk, junk):
        wire.looks_like_model(Memory(content), content)
        try:
            met(content)
        except ArtifactkitError:
            pass
