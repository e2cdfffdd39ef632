"""What every writer of weights must do. A format's tests inherit it: ``class TestFile(WriterContract)``."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as s

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME, DType
from artifactkit.errors import RouteRefused
from artifactkit.passes.tie import merge_aliases
from artifactkit.placing import Progress, check_layout, place
from artifactkit.source import Inline, Source, read_all
from artifactkit.types import Format, Head, OutputFile, ReadOptions, WriteOptions


class Untouchable:
    """A source that knows its size and must not be read: laying out an output is free of tensor bytes."""

    def __init__(self, nbytes: int, name: str = "") -> None:
        self.nbytes, self.position = nbytes, (name, 0)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        raise AssertionError("a tensor byte was read")

    def pour(self, fd: int, at: int) -> None:
        raise AssertionError("a tensor byte was read")


def view(name: str, dtype: str, shape: tuple[int, ...], data: bytes | None = None, place: str = "source") -> TensorView:
    """A tensor whose bytes are given, or derived from its name; ``place`` and name say which storage it is in."""
    kind = BY_NAME[dtype]
    size = kind.nbytes(shape)
    if data is None:
        data = (name.encode("utf-8", "replace") * (size + 1) + b"x" * size)[:size]
    source: Source = Inline(data, (place + name, 0))
    return TensorView(name, kind, shape, source)


def weights(*tensors: TensorView, **more: Any) -> Weights:
    return Weights({t.name: t for t in tensors}, more.pop("format", "npz"), **more)


def put(files: list[OutputFile], folder: Path) -> list[str]:
    """Carry a layout out, as the program does, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for output in files:
        check_layout(output)
        place(output, str(folder / output.name), Progress(), None)
    return [str(folder / output.name) for output in files]


def entry_point(paths: list[str]) -> str:
    """The file that a reader is given: the index when there is one."""
    return next((p for p in paths if p.endswith(".index.json")), paths[0])


def contents(w: Weights) -> dict[str, tuple[DType, tuple[int, ...], bytes]]:
    return {t.name: (t.dtype, t.shape, read_all(t.source)) for t in w}


class WriterContract:
    """Any weights that the format can hold come back equal, whoever writes them and in whatever process."""

    fmt: ClassVar[Format]
    suffix: ClassVar[str]
    folder: ClassVar[bool] = False
    single: ClassVar[bool] = False  # whether the format holds one tensor only
    names: ClassVar[s.SearchStrategy[str]] = s.text(
        s.characters(exclude_categories=["Cs"], exclude_characters="\0/\\"), max_size=12
    ).filter(lambda n: n not in ("..", "__metadata__") and not n.endswith((".npy", ":")))

    def options(self, **more: Any) -> WriteOptions:
        return WriteOptions("out" if self.folder else "out" + self.suffix, folder=self.folder, **more)

    def write(self, w: Weights, **more: Any) -> list[OutputFile]:
        assert self.fmt.write is not None
        if self.fmt.keeps_aliases:
            w = merge_aliases(w)
        return self.fmt.write(w, self.options(**more))

    def read(self, paths: list[str]) -> Weights:
        assert self.fmt.read is not None
        head = Head(entry_point(paths))
        assert self.fmt.sniff(head)
        return self.fmt.read(head, ReadOptions())

    def check_same(self, back: Weights, w: Weights) -> None:
        if self.single:  # a format of one tensor need not keep its name
            assert list(contents(back).values()) == list(contents(w).values())
        else:
            assert contents(back) == contents(w)

    def dtypes(self) -> list[str]:
        return sorted(self.fmt.dtypes)

    def one_of_each(self) -> Weights:
        if self.single:
            return weights(view("w", "f32", (2, 3)))
        views = [view(f"t.{d}", d, (3, 8)) for d in self.dtypes()]
        return weights(*views, view("scalar", "f32", ()), view("empty", "f32", (2, 0, 3)), view("one", "f32", (1, 1)))

    def test_round_trip(self, tmp_path: Path) -> None:
        w = self.one_of_each()
        self.check_same(self.read(put(self.write(w), tmp_path)), w)

    @settings(
        max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
    )
    @given(data=s.data())
    def test_any_weights_come_back(self, tmp_path_factory: pytest.TempPathFactory, data: s.DataObject) -> None:
        names = data.draw(s.lists(self.names, unique=True, min_size=1, max_size=1 if self.single else 5))
        views = []
        for name in names:
            dtype = data.draw(s.sampled_from(self.dtypes()))
            shape = tuple(data.draw(s.lists(s.integers(0, 4), max_size=3)))
            if BY_NAME[dtype].bits % 8:
                shape = (*shape, 4)
            raw = data.draw(s.binary(min_size=BY_NAME[dtype].nbytes(shape), max_size=BY_NAME[dtype].nbytes(shape)))
            if dtype == "bool":
                raw = bytes(b & 1 for b in raw)
            views.append(view(name, dtype, shape, raw))
        w = weights(*views)
        paths = put(self.write(w), tmp_path_factory.mktemp("w"))
        self.check_same(self.read(paths), w)

    def test_reads_no_tensor_byte(self) -> None:
        """A terabyte is laid out at once."""
        count = 1 if self.single else 4
        shape = (2**30, 2**6)
        nbytes = BY_NAME["f32"].nbytes(shape)
        views = [TensorView(f"w{i}", BY_NAME["f32"], shape, Untouchable(nbytes, str(i))) for i in range(count)]
        files = self.write(weights(*views))
        assert sum(f.size for f in files) > count * nbytes
        for output in files:
            check_layout(output)

    def test_parts_cover_the_file(self, tmp_path: Path) -> None:
        for output in self.write(self.one_of_each()):
            parts = list(output.parts)
            if output.finish is not None:
                parts += output.finish({p.tensor: 0 for p in parts if p.tensor is not None})
            at = 0
            for part in sorted(parts, key=lambda p: (p.offset, p.source.nbytes)):
                assert part.offset == at, part
                at += part.source.nbytes
            assert at == output.size

    def test_each_tensor_is_named_in_its_part(self) -> None:
        w = self.one_of_each()
        named = [p.tensor for f in self.write(w) for p in f.parts if p.tensor is not None]
        assert sorted(named) == sorted(w.tensors)

    def test_same_bytes_in_any_process(self, tmp_path: Path) -> None:
        """Whatever the hash seed, the output is the same."""
        code = (
            f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests'), str(ROOT / 'tests' / 'formats')]!r}\n"
            "import hashlib, pathlib\n"
            f"from {type(self).__module__} import {type(self).__name__} as T\n"
            "from writer_contract import put\n"
            "t = T(); paths = put(t.write(t.one_of_each()), pathlib.Path(sys.argv[1]))\n"
            "print([hashlib.sha256(open(p, 'rb').read()).hexdigest() for p in paths])\n"
        )
        here = [hashlib.sha256(Path(p).read_bytes()).hexdigest() for p in put(self.write(self.one_of_each()), tmp_path)]
        env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}  # ours is another
        command = [sys.executable, "-c", code, str(tmp_path / "there")]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert run.stdout == f"{here}\n"

    def test_refuses_types_it_cannot_hold(self) -> None:
        for dtype in sorted(BY_NAME.keys() - self.fmt.dtypes):
            with pytest.raises(RouteRefused) as caught:
                self.write(weights(view("the.tensor", dtype, (max(8, BY_NAME[dtype].block),))))
            assert caught.value.tensor == "the.tensor" and caught.value.found == dtype and caught.value.hint

    def test_an_independent_reader_finds_the_same(self, tmp_path: Path) -> None:
        if self.fmt.reopen is None:
            pytest.skip("the format has no reader of another make")
        w = self.one_of_each()
        files = self.write(w)
        paths = put(files, tmp_path)
        found = self.fmt.reopen(paths)
        if self.single:  # the name is not in the file
            found = dict(zip(w.tensors, found.values(), strict=True))
        laid = {
            p.tensor: (path, p.offset, p.source.nbytes) for path, f in zip(paths, files, strict=True) for p in f.parts
        }
        for tensor in w:
            placed = found.pop(tensor.name)
            assert (placed.dtype, placed.shape, placed.nbytes) == (tensor.dtype.name, tensor.shape, tensor.nbytes)
            if tensor.nbytes:
                assert (placed.file, placed.offset, placed.nbytes) == laid[tensor.name]
        assert not found
