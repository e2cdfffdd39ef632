"""llama.cpp's ids against those of `tokenizers`, on files that artifactkit writes, and the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import made_tokenizers as made
import pytest

from artifactkit.runners.llamacpp import vocabulary as native
from artifactkit.tokens import compare, huggingface, keyvalues
from artifactkit.tokens import pretokenizers as pt

pytest.importorskip("tokenizers")
pytest.importorskip("xllamacpp")


pytestmark = pytest.mark.slow


def pre_of(kind: str) -> str | None:
    return kind if kind in made.BYTE_LEVEL else None


@pytest.mark.parametrize("kind", made.KINDS)
def test_llama_cpp_gives_the_ids_of_the_library_there_and_back(kind: str, tmp_path: Path) -> None:
    files, vocabulary = made.vocabulary(made.folder(kind, tmp_path / "m"), pre_of(kind), more=5)
    path = made.gguf(vocabulary, tmp_path / "m.gguf")
    read = keyvalues.read(made.pairs(path), str(path))
    assert read is not None and read.tokens == vocabulary.tokens and read.padding == 5
    with native(str(path)) as llama:
        for tokenizer in filter(None, (files.json, huggingface.tokenizer(read))):
            checks = list(compare.ids(read, tokenizer, str(path), llama))
            assert [c.name for c in checks] == ["token ids", "tokens decoded"]
            assert [c.status for c in checks] == ["passed"] * 2, checks
        [template] = compare.templates(files.templates, llama) if files.templates else [None]
        assert template is None or template.status == "passed"


def test_another_cut_and_another_template_are_found(tmp_path: Path) -> None:
    files, vocabulary = made.vocabulary(made.folder("qwen2", tmp_path / "m"), "gpt-2")
    assert [loss.kind for loss in vocabulary.losses] == ["function-differs"]
    path = made.gguf(vocabulary, tmp_path / "m.gguf")
    with native(str(path)) as llama:
        assert files.json is not None
        checks = list(compare.ids(vocabulary, files.json, str(path), llama))
        assert checks[0].status == "failed" and "from token" in checks[0].detail
        [check] = compare.templates({"default": made.TEMPLATE + " "}, llama)
        assert check.status == "failed"
        [check] = compare.templates({"default": made.TEMPLATE, "tools": "x"}, llama)
        assert check.status == "failed" and "tools" in check.detail


def test_wrong_scores_are_found(tmp_path: Path) -> None:
    """What llama.cpp's converter writes for such a tokenizer.json: one score for all tokens."""
    files, vocabulary = made.vocabulary(made.folder("llama-json", tmp_path / "m"))
    wrong = replace(vocabulary, scores=(-1000.0,) * len(vocabulary.tokens))
    path = made.gguf(wrong, tmp_path / "m.gguf")
    with native(str(path)) as llama:
        assert files.json is not None
        assert next(compare.ids(wrong, files.json, str(path), llama)).status == "failed"


@pytest.mark.parametrize("name", sorted(pt.KNOWN))
def test_llama_cpp_knows_every_name(name: str, tmp_path: Path) -> None:
    _, vocabulary = made.vocabulary(made.folder("gpt-2", tmp_path / "m"), "gpt-2")
    with native(str(made.gguf(replace(vocabulary, pre=name), tmp_path / "m.gguf"))) as llama:
        assert llama.facts["tokens"] == len(vocabulary.tokens)


@pytest.mark.parametrize("group", sorted(pt.GROUPS))
def test_the_table_cuts_as_llama_cpp_does(group: str, tmp_path: Path) -> None:
    """tokenizer.json that is made for each name gives llama.cpp's ids: the table of expressions holds."""
    _, vocabulary = made.vocabulary(made.folder("gpt-2", tmp_path / "m"), "gpt-2")
    vocabulary = replace(vocabulary, pre=group)
    path = made.gguf(vocabulary, tmp_path / "m.gguf")
    with native(str(path)) as llama:
        [ids, _] = compare.ids(vocabulary, json.loads(json.dumps(huggingface.tokenizer(vocabulary))), str(path), llama)
        assert ids.status == "passed", ids.detail
