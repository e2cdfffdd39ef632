"""Whatever config.json, key-values and shapes say: one of our errors, or a plan. And every operation is undone."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import weights_of

from artifactkit.artifact import KeyValue
from artifactkit.dtypes import BY_NAME
from artifactkit.errors import ArtifactkitError
from artifactkit.modeling.config import Config
from artifactkit.modeling.ops import Apply, Op, Piece, Regroup, Transpose, rotary
from artifactkit.modeling.parts import Grouped, Halves, HeadSplit, Split, Stack
from artifactkit.source import Inline, read_all
from artifactkit.translate import from_gguf, plan

MODELS = sorted(tiny.MODELS.keys() - {"deepseek_v2_lite", "gemma3", "gemma3_linear"})  # those of many layers
SOURCES = {model: weights_of(tiny.tensors(model)) for model in MODELS}
MADE = {model: plan(tiny.config(model), SOURCES[model])[1] for model in MODELS}

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from([0, -1, 1, 2**31, 2**63, 1e308, "silu", "default", 10**30])
)  # fmt: skip
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3))


@settings(max_examples=150)
@given(model=st.sampled_from(MODELS), data=st.data())
def test_any_config_is_planned_or_refused(model: str, data: Any) -> None:
    config = tiny.config(model)
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=2)):
        held = config[key]
        if isinstance(held, dict) and held and data.draw(st.booleans()):
            inner = data.draw(st.sampled_from(sorted(held)))
            config[key] = {**held, inner: data.draw(values)}
        else:
            config[key] = data.draw(values)
    with contextlib.suppress(ArtifactkitError):
        plan(config, SOURCES[model])


@settings(max_examples=150)
@given(model=st.sampled_from(MODELS), data=st.data())
def test_any_file_is_planned_or_refused(model: str, data: Any) -> None:
    made = MADE[model]
    pairs = {pair.key: pair for pair in made.keyvalues}
    kinds = st.sampled_from(["u32", "f32", "string", "bool", "arr[f32]", "i64"])
    plain = st.integers(-(2**40), 2**40) | st.floats(width=32) | st.text(max_size=4) | st.booleans()
    for key in data.draw(st.lists(st.sampled_from(sorted(pairs)), min_size=1, max_size=2)):
        value = data.draw(plain | st.lists(plain, max_size=3).map(tuple))
        pairs[key] = KeyValue(key, data.draw(kinds), value)
    tensors = dict(made.tensors)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(tensors)))
        shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=3)))
        source = Inline(bytes(4 * int(np.prod(shape, dtype=int))), ("x", 0))
        tensors[name] = replace(tensors[name], shape=shape, source=source)
    with contextlib.suppress(ArtifactkitError):
        from_gguf(replace(made, tensors=tensors, keyvalues=tuple(pairs.values())))


OPS: list[tuple[Op, int, tuple[int, ...]]] = [
    (rotary("a"), 1, (24, 3)),
    (rotary("a"), 1, (24,)),
    (Regroup(("a", 3, -1), (1, 0, 2), "x"), 1, (24, 5)),
    (Transpose(), 1, (6, 7)),
    (Transpose(), 1, (2, 6, 7)),
    (Stack(), 3, (4, 5)),
    (Stack(), 2, (4,)),
    (Split(("a", "b")), 1, (10, 3)),
    (Halves(0), 1, (8, 3)),
    (Halves(1), 1, (3, 8, 5)),
    (Grouped(lambda config: config.count("b"), "c"), 1, (48, 5)),
    (HeadSplit("a", "b", 3), 1, (4 * 9, 5)),
]


@pytest.mark.parametrize(("op", "count", "shape"), OPS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_every_operation_is_undone(op: Op, count: int, shape: tuple[int, ...], dtype: str) -> None:
    config = Config({"a": 4, "b": 6, "c": 12}, {})
    kind = BY_NAME[dtype]
    rng = np.random.default_rng(3)
    pieces = [
        Piece(kind, shape, Inline(rng.integers(0, 256, kind.nbytes(shape), np.uint8).tobytes())) for _ in range(count)
    ]
    made = op.forward(pieces, config)
    back = op.inverse(made, config)
    assert [(p.dtype, p.shape, read_all(p.source)) for p in back] == [
        (p.dtype, p.shape, read_all(p.source)) for p in pieces
    ]
    for piece in made:
        assert piece.source.nbytes == piece.dtype.nbytes(piece.shape)


def test_orders_against_numpy() -> None:
    """What each order is, written with reshapes, for two operations whose inverse alone would not show a mistake."""
    config = Config({"heads": 4, "groups": 2, "first": 2, "second": 3}, {})
    array = np.arange(24 * 5, dtype="<f4").reshape(24, 5)
    piece = Piece(BY_NAME["f32"], (24, 5), Inline(array.tobytes()))
    grouped = array[:16].reshape(2, 4, 2, 5)  # two groups of two queries, a key and a value of two rows each
    wanted = [grouped[:, :2].reshape(-1, 5), grouped[:, 2].reshape(-1, 5), grouped[:, 3].reshape(-1, 5)]
    part = Piece(BY_NAME["f32"], (16, 5), Inline(array[:16].tobytes()))
    [made] = Grouped(lambda c: c.count("groups"), "heads").forward([part], config)
    assert np.array_equal(np.frombuffer(read_all(made.source), "<f4").reshape(16, 5), np.concatenate(wanted))
    twenty = Piece(BY_NAME["f32"], (20, 5), Inline(array[:20].tobytes()))
    heads = array[:20].reshape(4, 5, 5)
    keys, rest = Apply(0, Transpose()).forward(HeadSplit("heads", "first", "second").forward([twenty], config), config)
    assert np.array_equal(
        np.frombuffer(read_all(keys.source), "<f4").reshape(keys.shape), heads[:, :2].transpose(0, 2, 1)
    )
    assert np.array_equal(np.frombuffer(read_all(rest.source), "<f4").reshape(rest.shape), heads[:, 2:])
    [pairs] = rotary("heads").forward([piece], config)
    assert np.array_equal(
        np.frombuffer(read_all(pairs.source), "<f4").reshape(24, 5),
        array.reshape(4, 2, 3, 5).swapaxes(1, 2).reshape(24, 5),
    )
