"""What a model is asked: legal, seeded, within its positions; beyond its window where it has one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from safetensors.numpy import save_file

from artifactkit.errors import Corrupt, Unreadable, UsageError
from artifactkit.samples import given
from artifactkit.verify.inputs import made


@pytest.mark.parametrize("name", tiny.MODELS)
def test_inputs_are_legal_for_every_family(name: str) -> None:
    config = tiny.config(name)
    for case in made(config, causal=True):
        ids = case.inputs["input_ids"]
        assert ids.dtype == np.int64
        assert int(ids.min()) >= 0
        assert int(ids.max()) < config["vocab_size"]
        room = config.get("max_position_embeddings") or config.get("n_positions") or 512
        assert ids.shape[1] <= room
        assert sum(case.pieces) in (0, ids.shape[1])
        assert case.mask.shape == ids.shape
        assert case.mask[:, 0].all()


def test_they_are_the_same_each_time_and_of_several_lengths() -> None:
    first, second = (made(tiny.config("llama"), causal=True) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.inputs["input_ids"], b.inputs["input_ids"])
    lengths = {case.inputs["input_ids"].shape for case in first}
    assert {(1, 1), (1, 7), (2, 33), (1, 150)} <= lengths
    assert any(case.pieces for case in first)
    assert any(not case.mask.all() for case in first)


def test_a_window_is_passed_and_few_positions_are_kept() -> None:
    assert max(c.inputs["input_ids"].shape[1] for c in made({"vocab_size": 99, "sliding_window": 200}, True)) == 240
    assert max(c.inputs["input_ids"].shape[1] for c in made({"vocab_size": 9, "max_position_embeddings": 5}, True)) == 5


def test_without_a_number_of_tokens_nothing_is_made() -> None:
    with pytest.raises(UsageError, match="how many tokens"):
        made({}, causal=True)


def test_samples_of_the_user(tmp_path: Path) -> None:
    ids = np.array([[1, 2, 3]], np.int32)
    save_file({"input_ids": ids, "attention_mask": np.ones((1, 3), np.uint8)}, tmp_path / "a.safetensors")
    [case] = given(str(tmp_path / "a.safetensors"), str(tmp_path))
    assert case.inputs["input_ids"].tolist() == [[1, 2, 3]]
    np.savez(tmp_path / "a.npz", input_ids=ids)
    assert given(str(tmp_path / "a.npz"), str(tmp_path))[0].inputs["input_ids"].dtype == np.int64
    lines = [json.dumps({"input_ids": [4, 5]}), "", json.dumps({"input_ids": [6]})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert [c.name for c in given(str(tmp_path / "a.jsonl"), str(tmp_path))] == ["line 1", "line 3"]


@pytest.mark.parametrize(
    ("text", "error"),
    [("{", Corrupt), ('{"input_ids": "x"}', Corrupt), ('{"other": 1}', Corrupt), ("", UsageError),
     ('{"text": "hello"}', UsageError), ('{"input_ids": [1.5]}', Corrupt)],
)  # fmt: skip
def test_samples_that_are_none(text: str, error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(error):
        given(str(tmp_path / "a.jsonl"), str(tmp_path))
    with pytest.raises(Unreadable):
        given(str(tmp_path / "none.jsonl"), str(tmp_path))
