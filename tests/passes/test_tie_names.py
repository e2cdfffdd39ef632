"""Which of the names of one tensor is kept: the one that loaders of tied models look for."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.files import File
from artifactkit.passes.tie import merge_aliases
from artifactkit.source import FileSpan


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("embed.weight", "lm_head.weight"), "embed.weight"),
        (("model.embed_tokens.weight", "lm_head.weight"), "model.embed_tokens.weight"),
        (("transformer.wte.weight", "lm_head.weight"), "transformer.wte.weight"),
        (("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "h.weight"), "shared.weight"),
        (("bert.embeddings.word.weight", "cls.predictions.decoder.weight"), "bert.embeddings.word.weight"),
        (("b.weight", "a.weight"), "a.weight"),
    ],
)  # fmt: skip
def test_the_embeddings_name_is_kept_in_any_order(tmp_path: Path, names: tuple[str, ...], kept: str) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(16))
    span = FileSpan(File(path), 0, 16)
    for order in permutations(names):
        weights = Weights({name: TensorView(name, BY_NAME["f32"], (4,), span) for name in order}, "test")
        merged = merge_aliases(weights)
        assert list(merged.tensors) == [kept]
        assert {name: alias.target for name, alias in merged.aliases.items()} == {
            name: kept for name in names if name != kept
        }
