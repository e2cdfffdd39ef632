"""Writing GGUF: what is written is what the library reads, what cannot be held is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
from contract import LARGE, read
from gguf_cases import EVERY, HELD, LLAMA, write, write_with_library
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as s
from writer_contract import Untouchable, WriterContract, put, view, weights
from writer_contract import contents as held

from artifactkit.artifact import KeyValue, TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.errors import RouteRefused
from artifactkit.formats.gguf import FORMAT
from artifactkit.source import read_all
from artifactkit.stored import StoredArray
from artifactkit.types import OutputFile, Summary, WriteOptions


class TestWrites(WriterContract):
    fmt = FORMAT
    suffix = ".gguf"
    names = s.text(s.characters(exclude_categories=["Cs"]), max_size=12)

    def write(self, w: Weights, **more: Any) -> list[OutputFile]:
        w.keyvalues = w.keyvalues or (LLAMA,)
        return super().write(w, **more)

    def one_of_each(self) -> Weights:
        views = [view(f"t.{d}", d, (3, 2 * BY_NAME[d].block)) for d in self.dtypes()]
        return weights(*views, view("scalar", "f32", ()), view("one", "f32", (1, 1, 1, 1)))

    @settings(
        max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
    )
    @given(data=s.data())
    def test_any_weights_come_back(self, tmp_path_factory: pytest.TempPathFactory, data: s.DataObject) -> None:
        views = []
        for name in data.draw(s.lists(self.names, unique=True, min_size=1, max_size=5)):
            dtype = data.draw(s.sampled_from(self.dtypes()))
            shape = tuple(data.draw(s.lists(s.integers(1, 3), max_size=3)))
            views.append(view(name, dtype, (*shape, BY_NAME[dtype].block)))
        w = weights(*views)
        self.check_same(self.read(put(self.write(w), tmp_path_factory.mktemp("w"))), w)


class TestWritesFolders(TestWrites):
    folder = True


class TestWritesShards(TestWrites):
    """A few tensors in each file."""

    folder = True

    def options(self, **more: Any) -> Any:
        return super().options(**{"max_shard_size": 2000, **more})

    def test_reads_no_tensor_byte(self) -> None:
        big = TensorView("w", BY_NAME["f32"], (2**30,), Untouchable(2**32))
        assert len(self.write(weights(big, view("v", "f32", (2,))))) == 2


# -- key-values


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    w = weights(view("t", "f32", (2,)), keyvalues=EVERY)
    [path] = put(write(w), tmp_path)
    assert read(path).keyvalues == EVERY
    reader = gguf.GGUFReader(path)  # a nested array of nested arrays is more than it knows how to show
    for kv in EVERY:
        if kv.kind.startswith("arr[arr[") or kv.key in ("none", "raw"):
            continue
        found = reader.get_field(kv.key)
        assert found is not None
        value = found.contents()
        assert (tuple(value) if isinstance(value, list) else value) == kv.value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("u8", 256), ("u8", -1), ("u32", 1.5), ("u32", True), ("u32", "1"), ("bool", 1), ("string", 5), ("f32", "x"),
        ("f32", 1e300), ("arr[u8]", (1, 300)), ("arr[string]", ("a", 1)), ("arr[arr[u8]]", (1,)), ("float", 1.0),
        ("array", 1), ("i64", 2**63),
    ],
)  # fmt: skip
def test_values_that_are_not_of_their_kind(kind: str, value: Any) -> None:
    with pytest.raises(RouteRefused) as caught:
        write(weights(view("t", "f32", (2,)), keyvalues=(LLAMA, KeyValue("the.key", kind, value))))
    assert caught.value.member == "the.key"


def test_long_arrays_stay_in_the_file_and_are_copied_as_they_are(tmp_path: Path) -> None:
    words = tuple(f"token {i}" for i in range(20_000))
    w = weights(view("t", "f32", (2,)), keyvalues=(LLAMA, KeyValue("tokens", "arr[string]", words)))
    [path] = put(write(w), tmp_path / "one")
    again = read(path)
    stored = again.keyvalues[1].value
    assert isinstance(stored, StoredArray) and len(stored) == 20_000 and again.keyvalues[1].elements() == words
    [copy] = put(write(again), tmp_path / "two")
    assert Path(copy).read_bytes() == Path(path).read_bytes()


def test_without_an_architecture_nothing_is_written() -> None:
    w = weights(view("t", "f32", (2,)))
    with pytest.raises(RouteRefused) as caught:
        FORMAT.write(w, WriteOptions("out.gguf"))  # type: ignore[misc]
    assert "config.json" in str(caught.value.hint)
    w.format = "gguf"  # an importance matrix, a control vector: GGUF files of no architecture, copied as they are
    assert FORMAT.write(w, WriteOptions("out.gguf"))  # type: ignore[misc]


def test_where_it_is_from_stands_in_the_file_and_is_read_again(tmp_path: Path) -> None:
    summary = Summary("hf://a/b@0123", "0123", "apache-2.0", ("x/y",), None, "1")
    [path] = put(write(weights(view("t", "f32", (2,))), summary=summary), tmp_path)
    found = read(path)
    assert found.metadata == summary.metadata()
    assert {kv.key: kv.value for kv in found.keyvalues}["general.license"] == "apache-2.0"


# -- layout


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_the_alignment_is_kept(tmp_path: Path, alignment: int) -> None:
    pairs = (LLAMA, KeyValue("general.alignment", "u32", alignment))
    w = weights(view("a", "i8", (3,)), view("b", "q8_0", (2, 32)), view("c", "f32", (1,)), keyvalues=pairs)
    [path] = put(write(w), tmp_path)
    assert held(read(path)) == held(w)
    assert Path(path).stat().st_size % alignment == 0
    assert {t.name: bytes(t.data.tobytes()) for t in gguf.GGUFReader(path).tensors} == {
        name: data for name, (_, _, data) in held(w).items()
    }


@pytest.mark.parametrize("alignment", [0, 3, 1 << 21])
def test_impossible_alignments(alignment: int) -> None:
    pairs = (LLAMA, KeyValue("general.alignment", "u32", alignment))
    with pytest.raises(RouteRefused, match="impossible alignment"):
        write(weights(view("t", "f32", (2,)), keyvalues=pairs))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1, 1, 1, 1, 1)])
def test_shapes_it_cannot_hold(shape: tuple[int, ...]) -> None:
    with pytest.raises(RouteRefused, match="of this shape"):
        write(weights(view("t", "f32", shape)))


def test_names_longer_than_llama_cpp_loads() -> None:
    assert write(weights(view("n" * 63, "f32", (2,))))
    with pytest.raises(RouteRefused, match=r"longer than llama\.cpp loads"):
        write(weights(view("ü" * 32, "f32", (2,))))


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    w = TestWrites().one_of_each()
    [path] = put(write(w), tmp_path)
    found = {t.name: t for t in gguf.GGUFReader(path).tensors}
    for tensor_view in w:
        theirs = found.pop(tensor_view.name)
        assert tuple(reversed([int(n) for n in theirs.shape])) == tensor_view.shape
        assert theirs.tensor_type.name.lower() == tensor_view.dtype.name
        if tensor_view.dtype.name != "q8_1":  # the library has another size for it than ggml
            assert theirs.data.tobytes() == read_all(tensor_view.source)
    assert not found


def test_a_file_of_the_library_is_copied_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "made.gguf"
    write_with_library(path, HELD | LARGE)
    [copy] = put(write(read(path)), tmp_path / "copy")
    assert Path(copy).read_bytes() == path.read_bytes()
