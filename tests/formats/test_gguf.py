"""Reading GGUF as llama.cpp's own library writes it: byte orders, split files, types."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import gguf
import libgguf
import ml_dtypes
import numpy as np
import pytest
from contract import Expected, ReaderContract, contents, read
from gguf_cases import EVERY, HELD, split_of, write, write_with_library
from hostile.gguf import ARCHITECTURE, ARRAY, STRING, TWO, TWO_DATA, U32, array, built, pair, string, tensor, text
from writer_contract import contents as held
from writer_contract import put, view, weights

from artifactkit import dtypes
from artifactkit.artifact import KeyValue
from artifactkit.containers.gguf_types import GGML_TYPES
from artifactkit.dtypes import BLOCKS, BY_GGML
from artifactkit.errors import ArtifactkitError, Corrupt, Refused, Truncated, Unreadable
from artifactkit.formats.gguf.writer import split
from artifactkit.source import read_all

KINDS = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "int16": "i16", "int32": "i32",
         "int64": "i64", "bfloat16": "bf16"}  # fmt: skip


class TestReads(ReaderContract):
    format = "gguf"
    suffix = ".gguf"
    arrays = HELD

    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        write_with_library(path, arrays)

    def expected(self, arrays: dict[str, np.ndarray]) -> Expected:
        return {n: (KINDS[a.dtype.name], a.shape, np.ascontiguousarray(a).tobytes()) for n, a in arrays.items()}


class TestReadsBigEndian(TestReads):
    def write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        write_with_library(path, arrays, endianess=gguf.GGUFEndian.BIG)


# -- types


def test_ggmls_types_are_those_of_the_header_reader_and_of_the_library() -> None:
    repacked = {31, 32, 33, 36, 37, 38}
    assert BY_GGML.keys() == GGML_TYPES.keys() - repacked
    for number, dtype in BY_GGML.items():
        name, block, nbytes = GGML_TYPES[number]
        assert (dtype.name, dtype.block, dtype.bits) == (name.lower(), block, 8 * nbytes)
        kind = gguf.GGMLQuantizationType(number)
        assert kind.name.lower() == dtype.name
        assert gguf.GGML_QUANT_SIZES[kind] == (block, 40 if dtype.name == "q8_1" else nbytes)  # q8_1's scales are f16
        assert libgguf.GGML_QUANT_SIZES[kind] == (block, nbytes)


@pytest.mark.parametrize("dtype", BLOCKS, ids=str)
def test_sizes_of_blocks(dtype: dtypes.DType) -> None:
    row = dtype.row_bytes((dtype.block * 3,))
    assert dtype.nbytes((5, 2, dtype.block * 3)) == 10 * row == 30 * dtype.bits // 8
    with pytest.raises(ValueError, match="no whole blocks"):
        dtype.nbytes((dtype.block, dtype.block + 1))  # whole in number, not row by row
    with pytest.raises(ValueError, match="no size for one element"):
        _ = dtype.itemsize
    with pytest.raises(ArtifactkitError) as caught:
        dtypes.parse(dtype.name.upper())
    assert caught.value.hint == f"--quantize {dtype}"


@pytest.mark.parametrize("number", [31, 38])
def test_repacked_types_are_refused_by_tensor(tmp_path: Path, number: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(built([ARCHITECTURE], [tensor("a", [8]), tensor("b", [32, 2], number, 32)], TWO_DATA))
    found = read(path)
    assert set(found.tensors) == {"a"}
    assert isinstance(found.refused["b"], Refused) and "repacked" in found.refused["b"].what


def test_blocks_of_a_big_endian_file_are_refused_by_tensor_and_its_twin_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    two = [tensor("a", [8], 0, 0, ">"), tensor("b", [32, 2], 8, 32, ">")]
    values = struct.pack(">8f", *range(8))
    path.write_bytes(built([string("general.architecture", "llama", ">")], two, values + bytes(96), order=">"))
    found = read(path)
    assert np.frombuffer(read_all(found.tensors["a"].source), "<f4").tolist() == list(range(8))
    assert "big-endian" in found.refused["b"].what and found.refused["b"].tensor == "b"
    path.write_bytes(built([ARCHITECTURE], TWO, TWO_DATA))
    assert not read(path).refused


def test_long_arrays_of_big_endian_files_are_turned(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    numbers = [struct.pack(">I", i) for i in range(10_000)]
    path.write_bytes(
        built(
            [string("general.architecture", "llama", ">"), array("n", U32, numbers, ">")],
            [tensor("t", [2], 0, 0, ">")], bytes(32), order=">",
        )
    )  # fmt: skip
    [copy] = put(write(read(path)), tmp_path / "little")
    assert read(copy).keyvalues[1].elements() == tuple(range(10_000))


def test_arrays_of_mixed_arrays_are_refused(tmp_path: Path) -> None:
    def nested(*kinds: int) -> bytes:
        return built([ARCHITECTURE, array("k", ARRAY, [struct.pack("<IQ", kind, 0) for kind in kinds])])

    path = tmp_path / "m.gguf"
    path.write_bytes(nested(U32, STRING))
    with pytest.raises(Corrupt, match="different types"):
        read(path)
    path.write_bytes(nested(U32, U32))
    assert read(path).keyvalues[1] == KeyValue("k", "arr[arr[u32]]", ((), ()))


def test_trailing_bytes_and_disorder_are_said(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(built([ARCHITECTURE], TWO, TWO_DATA) + b"x" * 5)
    assert any("belong to none" in note for note in read(path).notes)


# -- split files


def test_any_part_of_a_split_file_stands_for_all(tmp_path: Path) -> None:
    w, paths = split_of(tmp_path)
    assert [path.name for path in paths] == [f"model-0000{i}-of-00005.gguf" for i in range(1, 6)]
    for path in paths:
        found = read(path)
        assert held(found) == held(w) and found.keyvalues == EVERY
        assert found.files == tuple(map(str, paths))


def test_splits_have_the_keys_of_llama_gguf_split(tmp_path: Path) -> None:
    _, paths = split_of(tmp_path)
    for i, path in enumerate(paths):
        fields = {k: v for k, v in gguf.GGUFReader(str(path)).fields.items() if not k.startswith("GGUF.")}
        assert list(fields)[-3:] == ["split.no", "split.tensors.count", "split.count"]
        assert [fields[k].contents() for k in list(fields)[-3:]] == [i, 5, 5]
        kinds = [fields[k].types[0].name for k in list(fields)[-3:]]
        assert kinds == ["UINT16", "INT32", "UINT16"]
        assert len(fields) == 3 or i == 0


def test_a_split_of_the_library_is_joined(tmp_path: Path) -> None:
    arrays = {f"t{i}": np.full((10, 10), i, np.float32) for i in range(6)}
    write_with_library(tmp_path / "lib.gguf", arrays, split_max_tensors=2)
    paths = sorted(tmp_path.glob("lib-*.gguf"))
    assert len(paths) == 3
    assert contents(read(paths[1])) == {n: ("f32", (10, 10), a.tobytes()) for n, a in arrays.items()}


def test_which_tensors_go_together() -> None:
    views = [view(f"t{i}", "f32", (n,)) for i, n in enumerate([8, 8, 100, 8, 8, 8])]
    names = [[t.name for t in shard] for shard in split(views, 64)]
    assert names == [["t0", "t1"], ["t2"], ["t3", "t4"], ["t5"]]
    assert [len(shard) for shard in split(views, None)] == [6]


def rewritten(path: Path, key: str, kind: str, value: int) -> None:
    """The same part with one of its split keys changed."""
    raw = path.read_bytes()
    at = raw.index(text(key)) + len(text(key)) + 4
    size = struct.calcsize("<" + kind)
    path.write_bytes(raw[:at] + struct.pack("<" + kind, value) + raw[at + size :])


@pytest.mark.parametrize(
    ("part", "key", "kind", "value", "words"),
    [
        (1, "split.no", "H", 3, "split.no does not fit"),
        (2, "split.count", "H", 4, "split.count does not fit"),
        (3, "split.tensors.count", "i", 6, "split.tensors.count does not fit"),
        (3, "split.tensors.count", "i", -6, "split.tensors.count is no count"),
        (0, "split.count", "H", 9, "disagree in how many parts"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, part: int, key: str, kind: str, value: int, words: str) -> None:
    _, paths = split_of(tmp_path)
    rewritten(paths[part], key, kind, value)
    with pytest.raises(Corrupt, match=words):
        read(paths[0])


def test_missing_parts_are_named(tmp_path: Path) -> None:
    _, paths = split_of(tmp_path)
    paths[1].unlink()
    paths[3].unlink()
    with pytest.raises(Unreadable, match="2 of 5 parts") as caught:
        read(paths[4])
    assert caught.value.found == f"no {paths[1].name}, {paths[3].name}"


def test_a_part_under_another_name(tmp_path: Path) -> None:
    _, paths = split_of(tmp_path)
    with pytest.raises(Unreadable, match="name does not say which"):
        read(paths[0].rename(tmp_path / "other.gguf"))


def test_a_tensor_in_two_parts_and_a_wrong_sum(tmp_path: Path) -> None:
    _, paths = split_of(tmp_path)
    raw = paths[2].read_bytes()
    paths[2].write_bytes(raw.replace(text("t2"), text("t1")))
    with pytest.raises(Corrupt, match="in two shards"):
        read(paths[0])
    paths[2].write_bytes(raw)
    for path in paths:
        rewritten(path, "split.tensors.count", "i", 7)
    with pytest.raises(Corrupt, match="another number of tensors"):
        read(paths[0])


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    _, paths = split_of(tmp_path)
    paths[3].write_bytes(paths[3].read_bytes()[:-200])
    with pytest.raises(Truncated) as caught:
        read(paths[0])
    assert caught.value.file == str(paths[3])


def test_split_and_joined_again_it_is_the_same_file(tmp_path: Path) -> None:
    w = weights(*(view(f"t{i}", "f32", (40 + i, 3)) for i in range(5)), keyvalues=EVERY)
    [whole] = put(write(w), tmp_path / "whole")
    _, paths = split_of(tmp_path / "split")
    [joined] = put(write(read(paths[2])), tmp_path / "joined")
    assert hashlib.sha256(Path(joined).read_bytes()).digest() == hashlib.sha256(Path(whole).read_bytes()).digest()


def test_bf16_as_the_library_reads_it(tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.float32).astype(ml_dtypes.bfloat16)
    w = weights(view("t", "bf16", (2, 32), values.tobytes()))
    [path] = put(write(w), tmp_path)
    [theirs] = gguf.GGUFReader(path).tensors
    assert gguf.quants.dequantize(theirs.data, theirs.tensor_type).tolist() == [list(range(32)), list(range(32, 64))]


def test_pairs_of_later_parts_are_said(tmp_path: Path) -> None:
    _, paths = split_of(tmp_path)
    w = weights(view("t1", "f32", (41, 3)))
    w.keyvalues = (
        KeyValue("extra", "u32", 1), KeyValue("split.no", "u16", 1), KeyValue("split.count", "u16", 5),
        KeyValue("split.tensors.count", "i32", 5),
    )  # fmt: skip
    own = pair("extra", U32, struct.pack("<I", 1)) + pair("split.no", 2, struct.pack("<H", 1))
    own += pair("split.count", 2, struct.pack("<H", 5)) + pair("split.tensors.count", 5, struct.pack("<i", 5))
    paths[1].write_bytes(built([own], [tensor("t1", [3, 41])], bytes(512), n_pairs=4))
    assert any("extra" in note for note in read(paths[0]).notes)
