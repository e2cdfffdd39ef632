"""Writing .npy and .npz: numpy's own bytes, archives that any reader agrees on, and names that cannot do harm."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as s

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import ALL, BY_NAME
from artifactkit.errors import RouteRefused
from artifactkit.formats.npy import FORMAT as NPY_FORMAT
from artifactkit.formats.npz import FORMAT as NPZ_FORMAT
from artifactkit.npwrite import DTYPES, crc32_combine, npy_header, write_npy, write_npz
from artifactkit.source import Inline
from artifactkit.types import WriteOptions
from tests.formats.writer_contract import Untouchable, WriterContract, contents, put, view, weights

NPY, NPZ = WriteOptions("w.npy"), WriteOptions("w.npz")


class TestNpy(WriterContract):
    fmt = NPY_FORMAT
    suffix = ".npy"
    single = True


class TestNpz(WriterContract):
    fmt = NPZ_FORMAT
    suffix = ".npz"
    names = WriterContract.names.filter(bool)  # an archive has no member without a name


SHAPES = [(), (0,), (1,), (5,), (2, 3), (0, 4), (4, 0, 2), (1, 1, 1), (10**6, 0), (3, 2, 1, 2)]


def loaded(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def same(arrays: dict[str, np.ndarray], w: Weights) -> bool:
    got = {n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()}
    return got == {n: (np.dtype(d.numpy), shape, raw) for n, (d, shape, raw) in contents(w).items()}


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_numpys_own_bytes(dtype: str, tmp_path: Path) -> None:
    for shape in SHAPES:
        tensor = view("w", dtype, shape)
        (path,) = put(write_npy(weights(tensor), NPY), tmp_path)
        array = np.frombuffer(contents(weights(tensor))["w"][2], BY_NAME[dtype].numpy).reshape(shape)
        theirs = io.BytesIO()
        np.save(theirs, array)
        assert Path(path).read_bytes() == theirs.getvalue()
        assert same({"w": np.load(path, allow_pickle=False)}, weights(tensor))


@given(s.lists(s.integers(0, 2**40), max_size=6), s.sampled_from(sorted(DTYPES)))
def test_numpys_own_header(shape: list[int], dtype: str) -> None:
    from numpy.lib import format as npy

    kind = BY_NAME[dtype]
    theirs = io.BytesIO()
    npy.write_array_header_1_0(
        theirs, {"descr": npy.dtype_to_descr(np.dtype(kind.numpy)), "fortran_order": False, "shape": tuple(shape)}
    )
    assert npy_header(TensorView("w", kind, tuple(shape), Inline(b""))) == theirs.getvalue()


def test_npy_holds_one_tensor() -> None:
    with pytest.raises(RouteRefused, match="holds one tensor") as caught:
        write_npy(weights(*(view(f"t{i}", "u8", (1,)) for i in range(7))), NPY)
    assert caught.value.found == "7: t0, t1, t2, t3, t4, ..." and "npz" in (caught.value.hint or "")
    with pytest.raises(RouteRefused) as caught:
        write_npy(weights(), NPY)
    assert caught.value.found == "none"
    assert write_npy(weights(view("w", "u8", (1,))), NPY)


HINTS = {
    "bf16": "f32", "f8_e8m0": "f32", "f8_e4m3": "f16", "f8_e5m2": "f16", "f8_e4m3fnuz": "f16", "f8_e5m2fnuz": "f16",
    "f4": None, "f6_e2m3": None, "f6_e3m2": None, "c32": None, "i4": None, "u4": None, "i2": None, "u2": None,
}  # fmt: skip


def test_types_that_numpy_lacks() -> None:
    """The hint names the type that holds every value of what is refused."""
    from artifactkit.floats import is_lossless

    assert HINTS.keys() == {d.name for d in ALL if d.block == 1} - DTYPES
    for name, exact in HINTS.items():
        for write in (write_npy, write_npz):
            with pytest.raises(RouteRefused, match=f"numpy has no {name}") as caught:
                write(weights(view("layer.w", name, (8,))), NPZ)
            assert caught.value.tensor == "layer.w"
            assert (f"--dtype {exact} holds it exactly" if exact else "--exclude") in (caught.value.hint or "")
        if exact:
            assert is_lossless(BY_NAME[name], BY_NAME[exact])


def test_more_dimensions_than_numpy_has() -> None:
    write_npy(weights(view("w", "u8", (1,) * 64)), NPY)
    with pytest.raises(RouteRefused, match="so many dimensions"):
        write_npy(weights(view("w", "u8", (1,) * 65)), NPY)


def odd() -> Weights:
    views = [view(f"t.{d}", d, (3, 2)) for d in sorted(DTYPES)]
    views += [view(f"shape{i}", "i16", shape) for i, shape in enumerate(SHAPES)]
    names = [
        "a/b",
        "é",
        "😀",
        "e\u0301",
        "Z",
        "z",
        "with space",
        "x.npy",
        ".",
        "...",
        "a..b",
        "tab\t",
        "con",
        "-",
        "a/",
        "n" * 1000,
    ]
    return weights(*views, *(view(n, "f32", (2,)) for n in names))


def test_npz(tmp_path: Path) -> None:
    w = odd()
    (path,) = put(write_npz(w, NPZ), tmp_path)
    assert same(loaded(Path(path)), w)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"{n}.npy" for n in w.tensors]
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
        assert {i.date_time for i in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_npz_of_nothing(tmp_path: Path) -> None:
    (path,) = put(write_npz(weights(), NPZ), tmp_path)
    assert loaded(Path(path)) == {}


def test_npz_in_any_process(tmp_path: Path) -> None:
    (path,) = put(write_npz(odd(), NPZ), tmp_path)
    folder = Path(__file__).parent
    code = (
        f"import sys; sys.path[:0] = {[str(folder.parent), str(folder), str(folder / 'formats')]!r}\n"
        "import pathlib; from test_npwrite import *\n"
        "print(zlib.crc32(pathlib.Path(put(write_npz(odd(), NPZ), pathlib.Path(sys.argv[1]))[0]).read_bytes()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "b")],
        env={"PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) == zlib.crc32(Path(path).read_bytes())


@given(
    s.dictionaries(
        s.text(s.characters(exclude_categories=["Cs"], exclude_characters="\0/\\:"), min_size=1, max_size=10),
        s.tuples(s.sampled_from(sorted(DTYPES - {"bool"})), s.lists(s.integers(0, 3), max_size=3)),
        max_size=5,
    )
)
def test_any_npz(tmp_path_factory: pytest.TempPathFactory, spec: dict[str, tuple[str, list[int]]]) -> None:
    if ".." in spec or any(f"{n}.npy" in spec for n in spec):
        return
    w = weights(*(view(n, dtype, tuple(shape)) for n, (dtype, shape) in spec.items()))
    (path,) = put(write_npz(w, NPZ), tmp_path_factory.mktemp("npz"))
    assert same(loaded(Path(path)), w)


BAD_NAMES = {
    "": "the name is empty",
    "../x": "outside the archive's folder", "a/../../x": "outside the archive's folder", "..": "outside",
    "/etc/passwd": "outside", "..\\x": "outside", "\\\\server\\share": "outside", "C:\\x": "outside", "C:/x": "outside",
    "a\0b": "holds a NUL", "n" * 65_532: "too long", "\ud800": "no Unicode text",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda n: ascii(n)[:20])
def test_names_that_an_archive_cannot_hold(name: str) -> None:
    with pytest.raises(RouteRefused, match=BAD_NAMES[name]) as caught:
        write_npz(weights(view("good", "u8", (1,)), view(name, "u8", (1,))), NPZ)
    assert "--rename" in (caught.value.hint or "")


def test_names_that_numpy_confuses(tmp_path: Path) -> None:
    with pytest.raises(RouteRefused, match=r"cannot tell the name from 'w\.npy'"):
        write_npz(weights(view("w", "u8", (1,)), view("w.npy", "u8", (1,))), NPZ)
    w = weights(view("w.npy", "u8", (1,)), view("v", "u8", (1,)))
    assert same(loaded(Path(put(write_npz(w, NPZ), tmp_path)[0])), w)


@given(s.binary(max_size=200), s.binary(max_size=200))
def test_crc_of_two_runs(a: bytes, b: bytes) -> None:
    assert crc32_combine(zlib.crc32(a), zlib.crc32(b), len(b)) == zlib.crc32(a + b)


def test_crc_of_a_long_run() -> None:
    b = bytes(3_000_000)
    assert crc32_combine(zlib.crc32(b"head"), zlib.crc32(b), len(b)) == zlib.crc32(b"head" + b)


def test_zip64(tmp_path: Path) -> None:
    """A member of 4 GiB, one that begins after it, in a sparse file: directory and headers as zipfile reads them."""
    size = 2**32
    big = TensorView("big", BY_NAME["u8"], (size,), Untouchable(size))
    w = Weights({"first": view("first", "u8", (3,)), "big": big, "last": view("last", "f32", (2,))}, "npz")
    (output,) = write_npz(w, NPZ)
    assert output.finish is not None
    path = tmp_path / "big.npz"
    crcs = {"first": zlib.crc32(bytes(3)), "big": 0, "last": zlib.crc32(bytes(8))}
    with path.open("wb") as out:
        out.truncate(output.size)
        for part in (*output.parts, *output.finish(crcs)):
            if part.tensor != "big":
                out.seek(part.offset)
                out.write(bytes(part.source.nbytes) if part.tensor else part.source.data)  # type: ignore[attr-defined]
    with zipfile.ZipFile(path) as archive:
        infos = {i.filename: i for i in archive.infolist()}
        assert infos["big.npy"].file_size == infos["big.npy"].compress_size == size + len(npy_header(big))
        assert infos["last.npy"].header_offset > size
        with archive.open("last.npy") as member:
            assert member.read() == npy_header(w.tensors["last"]) + bytes(8)
        with archive.open("big.npy") as member:
            assert member.read(6) == b"\x93NUMPY"
    path.unlink()


@pytest.mark.slow
def test_more_members_than_16_bits_count(tmp_path: Path) -> None:
    w = weights(*(view(str(i), "u8", (0,)) for i in range(65_536)))
    (output,) = write_npz(w, NPZ)
    assert output.finish is not None
    path = tmp_path / "many.npz"
    parts = sorted((*output.parts, *output.finish({})), key=lambda p: (p.offset, p.source.nbytes))
    path.write_bytes(b"".join(p.source.data for p in parts))  # type: ignore[attr-defined]
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 65_536
    assert path.stat().st_size == output.size
