"""Distances between outputs, against scipy-free arithmetic written out; what is missing on one side is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifactkit.verify.metrics import Figures, log_softmax


def figures(x: object, y: object, logits: bool = True) -> dict[str, float]:
    found = Figures()
    found.add(np.array(x, np.float64), np.array(y, np.float64), logits)
    return found.to_json()


def test_equal_outputs_are_no_distance_apart() -> None:
    found = figures([[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]])
    assert (found["max_abs"], found["nmse"], found["kl_mean"], found["top1"], found["top5"]) == (0, 0, 0, 1, 1)
    assert found["cosine"] == pytest.approx(1)
    assert found["psnr"] is None


def test_each_figure_by_hand() -> None:
    found = figures([[0.0, math.log(3)], [2.0, 0.0]], [[math.log(3), 0.0], [2.0, 0.0]])
    # 1/4, 3/4 against 3/4, 1/4
    assert found["kl_max"] == pytest.approx(0.25 * math.log(1 / 3) + 0.75 * math.log(3))
    assert found["kl_mean"] == pytest.approx(found["kl_max"] / 2)
    assert found["top1"] == 0.5
    assert found["max_abs"] == pytest.approx(math.log(3))
    assert found["max_rel"] == pytest.approx(math.log(3) / 2)
    assert found["nmse"] == pytest.approx(2 * math.log(3) ** 2 / (math.log(3) ** 2 + 4))


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_on_one_side_only_is_missing(odd: float) -> None:
    assert figures([[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0], [1.0, odd]])["missing"] == 1
    assert figures([[1.0, odd]], [[1.0, 2.0]])["missing"] == 1
    assert figures([[1.0, 5.0]], [[1.0, 5.0]])["missing"] == 0


def test_infinities_that_are_alike_are_no_distance() -> None:
    found = figures([[1.0, -math.inf]], [[1.0, -math.inf]])
    assert (found["max_abs"], found["missing"], found["kl_mean"]) == (0, 0, 0)


def test_the_99th_percentile_is_one_of_the_values() -> None:
    x = np.zeros((200, 2))
    y = np.array([[0.0, i / 100] for i in range(200)])
    found = figures(x, y)
    assert found["kl_mean"] < found["kl_p99"] < found["kl_max"]


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=9), st.floats(-100, 100))
def test_probabilities_add_up_whatever_is_added_to_the_logits(values: list[float], shift: float) -> None:
    logits = np.array([values])
    assert np.exp(log_softmax(logits + shift)).sum() == pytest.approx(1)
    assert np.allclose(log_softmax(logits + shift), log_softmax(logits), atol=1e-9)


@given(st.integers(1, 700))
def test_how_positions_are_cut_changes_nothing(count: int) -> None:
    rng = np.random.default_rng(count)
    x, y = rng.standard_normal((count, 4)), rng.standard_normal((count, 4))
    whole, cut = Figures(), Figures()
    whole.add(x, y, True)
    for row in range(count):
        cut.add(x[row : row + 1], y[row : row + 1], True)
    one, two = whole.to_json(), cut.to_json()
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert two[name] == pytest.approx(value), name
