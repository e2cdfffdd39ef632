"""Writing safetensors: the reference library's bytes, the Hub's shards, ties."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as s
from writer_contract import Untouchable, WriterContract, contents, put, view, weights

from artifactkit.artifact import Alias, TensorView, Weights
from artifactkit.dtypes import ALL, BY_NAME, BY_TORCH
from artifactkit.errors import Refused, RouteRefused, UsageError, VerificationFailed
from artifactkit.formats.safetensors import FORMAT
from artifactkit.passes.tie import merge_aliases
from artifactkit.safetensors_files.writer import ORDER, split, write
from artifactkit.source import Inline, read_all
from artifactkit.types import Head, OutputFile, ReadOptions, WriteOptions

FILE = WriteOptions("model.safetensors")
FOLDER = WriteOptions("out", folder=True)


class TestFile(WriterContract):
    fmt = FORMAT
    suffix = ".safetensors"


class TestFolder(WriterContract):
    fmt = FORMAT
    suffix = ""
    folder = True


class TestShards(WriterContract):
    """Every tensor of more than ten bytes in a shard of its own."""

    fmt = FORMAT
    suffix = ""
    folder = True

    def options(self, **more: object) -> WriteOptions:
        return WriteOptions("out", folder=True, max_shard_size=10)


def of_torch(tensors: dict[str, object], metadata: dict[str, str] | None = None) -> Weights:
    """Torch tensors as ours, equal storages as equal sources."""
    import torch

    views = {}
    for name, t in tensors.items():
        assert isinstance(t, torch.Tensor)
        dtype = BY_TORCH[str(t.dtype).removeprefix("torch.")]
        shape = tuple(t.shape)
        if dtype.name == "f4":  # torch counts bytes of two elements
            shape = (*shape[:-1], shape[-1] * 2)
        raw = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        views[name] = TensorView(name, dtype, shape, Inline(raw, (f"storage {t.data_ptr()}", 0)))
    return Weights(views, "safetensors", metadata=metadata or {})


def one_file(w: Weights, tmp_path: Path) -> bytes:
    (path,) = put(write(w, FILE), tmp_path)
    return Path(path).read_bytes()


def torch_tensors() -> dict[str, object]:
    """Every type that torch can save, in shapes and under names that a serialiser could get wrong."""
    import torch

    torch.manual_seed(0)
    out: dict[str, object] = {}
    for dtype in ALL:
        kind = getattr(torch, dtype.torch or "", None)
        if kind is None or dtype.safetensors is None:
            continue
        raw = torch.randint(
            0, 2 if dtype.name == "bool" else 256, (2, 3, 8 * max(dtype.bits // 8, 1)), dtype=torch.uint8
        )
        out[f"b.{dtype.name}"] = raw.view(kind)
        out[f"a.{dtype.name}"] = raw[0].clone().view(kind)
    odd = [
        'quote "',
        "back\\slash",
        "tab\t",
        "new\nline",
        "\x01\x1f\x7f",
        "é",
        "e\u0301",
        "\u2028",
        "😀",
        "",
        "/",
        "<&>",
        "Z",
        "z",
    ]
    for i, name in enumerate(odd):
        out[name] = torch.full((i,), float(i))
    out["scalar"] = torch.tensor(1.5)
    out["empty"] = torch.zeros(3, 0, 2, dtype=torch.float64)
    return out


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {'wëird "key"\n': "välue\\\x02"}])
def test_the_librarys_bytes(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    """The whole file is what ``safetensors.torch.save_file`` writes, in whatever order the tensors come."""
    from safetensors.torch import save_file

    tensors = torch_tensors()
    save_file(tensors, tmp_path / "theirs.safetensors", metadata)
    theirs = (tmp_path / "theirs.safetensors").read_bytes()
    assert one_file(of_torch(tensors, metadata), tmp_path) == theirs
    assert one_file(of_torch(dict(reversed(tensors.items())), metadata), tmp_path) == theirs


def test_the_librarys_bytes_for_numpy(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {d.name: np.arange(6).reshape(2, 3).astype(d.numpy) for d in ALL if d.numpy and not d.ml and d.safetensors}
    save_file(arrays, tmp_path / "theirs.safetensors")
    ours = weights(*(view(n, n, a.shape, a.tobytes()) for n, a in arrays.items()))
    assert one_file(ours, tmp_path) == (tmp_path / "theirs.safetensors").read_bytes()


def test_the_librarys_order_of_types(tmp_path: Path) -> None:
    """All 22 types, also those that neither numpy nor torch can make: the order in which the library lays them out."""
    from safetensors import safe_open

    w = weights(*(view(f"x{i:02}", d.name, (8,)) for i, d in enumerate(reversed(ALL)) if d.safetensors))
    (path,) = put(write(w, FILE), tmp_path)
    with safe_open(path, framework="numpy") as opened:
        got = [opened.get_slice(n).get_dtype() for n in opened.offset_keys()]
    assert got == list(reversed(ORDER))
    assert sorted(ORDER) == sorted(d.safetensors for d in ALL if d.safetensors)


_arrays = s.dictionaries(
    s.text(s.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda n: n != "__metadata__"),
    s.tuples(
        s.sampled_from(["float32", "float64", "float16", "int8", "bool", "uint64", "complex64"]),
        s.lists(s.integers(0, 3), max_size=3),
    ),
    max_size=6,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=_arrays, metadata=s.none() | s.tuples(s.text(s.characters(exclude_categories=["Cs"])), s.just("v")))
def test_the_librarys_bytes_for_anything(
    tmp_path: Path, spec: dict[str, tuple[str, list[int]]], metadata: tuple[str, str] | None
) -> None:
    from safetensors.numpy import save

    arrays = {n: np.zeros(shape, dtype) for n, (dtype, shape) in spec.items()}
    about = dict([metadata]) if metadata else None
    if metadata and metadata[1] in arrays:
        return  # looks like a tie
    names = {np.dtype(d.numpy): d.name for d in ALL if d.numpy and not d.ml}
    ours = weights(*(view(n, names[a.dtype], a.shape, a.tobytes()) for n, a in arrays.items()), metadata=about or {})
    assert one_file(ours, tmp_path) == save(arrays, about)


def test_metadata_of_several_keys_is_sorted(tmp_path: Path) -> None:
    one = one_file(weights(metadata={"b": "2", "a": "1", "c": "3"}), tmp_path)
    assert one == one_file(weights(metadata={"c": "3", "a": "1", "b": "2"}), tmp_path)
    assert one[8:].rstrip() == b'{"__metadata__":{"a":"1","b":"2","c":"3"}}'


@pytest.mark.parametrize("kind", ["torch-zip", "torch-legacy", "torch-tar", "torchscript", "torch-package", "pt2"])
def test_torch_checkpoints_say_format_pt(kind: str, tmp_path: Path) -> None:
    """transformers refuses metadata without it. What the source says itself is kept."""
    w = weights(view("w", "f32", (1,)), format=kind)
    (path,) = put(write(w, FILE), tmp_path)
    assert FORMAT.read is not None
    assert FORMAT.read(Head(path), ReadOptions()).metadata == {"format": "pt"}
    assert b'"format":"mlx"' in one_file(weights(format=kind, metadata={"format": "mlx"}), tmp_path)
    assert b"__metadata__" not in one_file(weights(format="npz"), tmp_path)


@pytest.mark.parametrize(
    ("tensor", "words", "hint"),
    [
        (view("w", "c128", (1,)), "no type for c128", "npz"),
        (view("w", "c32", (1,)), "no type for c32", "--exclude"),
        (view("__metadata__", "f32", (1,)), "reserves the name __metadata__", "--rename"),
        (view("\ud800", "f32", (1,)), "no Unicode text", "--rename"),
    ],
)
def test_what_the_format_cannot_hold(tensor: TensorView, words: str, hint: str) -> None:
    with pytest.raises(RouteRefused, match=words) as caught:
        write(weights(tensor), FILE)
    assert hint in (caught.value.hint or "")
    assert caught.value.tensor
    assert str(caught.value).isprintable() or "\n" in str(caught.value)


def test_a_header_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from artifactkit.safetensors_files import writer

    monkeypatch.setattr(writer, "MAX_HEADER", 1000)  # 100 MB are as good, and slow
    write(weights(view("n" * 900, "u8", (0,))), FILE)
    with pytest.raises(Refused, match="header would be larger"):
        write(weights(view("n" * 1000, "u8", (0,))), FILE)


# --- shards ---------------------------------------------------------------------------------------------------------


def layout(files: list[OutputFile]) -> dict[str, list[str]]:
    return {f.name: [p.tensor for p in f.parts if p.tensor] for f in files}


@settings(max_examples=80)
@given(sizes=s.lists(s.integers(1, 30), min_size=1, max_size=12), limit=s.integers(1, 60), order=s.randoms())
def test_shards_are_the_hubs(sizes: list[int], limit: int, order: object) -> None:
    """huggingface_hub's own function, for the same tensors in the same order."""
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards

    state = {f"w{i}": torch.zeros(n, dtype=torch.uint8) for i, n in enumerate(sizes)}
    theirs = split_torch_state_dict_into_shards(state, max_shard_size=limit)
    ours = write(weights(*(view(n, "u8", tuple(t.shape)) for n, t in state.items())), WriteOptions("o", True, limit))
    index = {name: tensors for name, tensors in layout(ours).items() if not name.endswith(".json")}
    assert {n: sorted(t) for n, t in index.items()} == {n: sorted(t) for n, t in theirs.filename_to_tensors.items()}
    if theirs.is_sharded:
        document = json.loads(read_all(ours[-1].parts[0].source))
        assert ours[-1].name == "model.safetensors.index.json"
        assert document == {"metadata": theirs.metadata, "weight_map": theirs.tensor_to_filename}


def test_a_folder_of_one_shard() -> None:
    assert layout(write(weights(view("w", "f32", (1,))), FOLDER)) == {"model.safetensors": ["w"]}
    assert layout(write(weights(), FOLDER)) == {"model.safetensors": []}


def test_a_folder_is_split_at_5_GB() -> None:
    half = TensorView("a", BY_NAME["u8"], (25 * 10**8,), Untouchable(25 * 10**8))
    two = Weights({"a": half, "b": TensorView("b", BY_NAME["u8"], (25 * 10**8,), Untouchable(25 * 10**8, "b"))}, "npz")
    assert list(layout(write(two, FOLDER))) == ["model.safetensors"]
    more = Weights({**two.tensors, "c": view("c", "u8", (1,))}, "npz")
    assert list(layout(write(more, FOLDER))) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    assert list(layout(write(more, FILE))) == ["model.safetensors"]


def test_a_file_is_split_when_asked() -> None:
    w = weights(view("a", "u8", (8,)), view("b", "u8", (8,)))
    assert list(layout(write(w, WriteOptions("net.safetensors", max_shard_size=8)))) == [
        "net-00001-of-00002.safetensors",
        "net-00002-of-00002.safetensors",
        "net.safetensors.index.json",
    ]
    assert list(layout(write(w, WriteOptions("net.safetensors", max_shard_size=16)))) == ["net.safetensors"]
    for size in (0, -1):
        with pytest.raises(UsageError, match="above 0"):
            write(w, WriteOptions("net.safetensors", max_shard_size=size))


def test_a_tensor_above_the_limit_has_a_shard_of_its_own() -> None:
    sizes = {"a": 2, "b": 9, "c": 2, "d": 5}
    shards = split([view(n, "u8", (k,)) for n, k in sizes.items()], 8)
    assert [[t.name for t in shard] for shard in shards] == [["b"], ["a", "c"], ["d"]]


def test_index_is_deterministic_and_about_files_only() -> None:
    w = weights(
        view("b", "u8", (8,)), view("a", "u8", (8,)), format="torch-zip", metadata={"z": "1", "total_size": "mine"}
    )
    files = write(w, WriteOptions("o", True, 8))
    index = read_all(files[-1].parts[0].source)
    assert index == (
        b'{\n  "metadata": {\n    "total_size": 16,\n    "z": "1"\n  },\n  "weight_map": {\n'
        b'    "a": "model-00002-of-00002.safetensors",\n    "b": "model-00001-of-00002.safetensors"\n  }\n}\n'
    )
    heads = [read_all(f.parts[0].source) for f in files[:-1]]
    assert b'"__metadata__":{"format":"pt","total_size":"mine","z":"1"}' in heads[0]
    assert b'"__metadata__":{"format":"pt"}' in heads[1]


# --- ties -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("embed.weight", "lm_head.weight"), ("lm_head.weight", "embed.weight")])
def test_tied_weights(names: tuple[str, str], tmp_path: Path) -> None:
    """Case B03: one copy, the name that huggingface_hub keeps, the other in the metadata; both come back."""
    import torch
    from huggingface_hub import save_torch_state_dict
    from safetensors import safe_open

    w = torch.arange(6.0).reshape(3, 2)
    state = dict.fromkeys(names, w)
    (tmp_path / "theirs").mkdir()
    save_torch_state_dict(dict(state), tmp_path / "theirs")
    with safe_open(tmp_path / "theirs" / "model.safetensors", framework="pt") as theirs:
        kept, recorded = list(theirs.keys()), theirs.metadata()
    assert recorded == {"format": "pt", "lm_head.weight": "embed.weight"}

    merged = merge_aliases(of_torch(state))
    assert list(merged.tensors) == kept == ["embed.weight"]
    assert merged.aliases["lm_head.weight"].target == "embed.weight"
    (path,) = put(write(merged, FILE), tmp_path)
    with safe_open(path, framework="pt") as ours:
        assert (list(ours.keys()), ours.metadata()) == (kept, recorded)
    assert FORMAT.read is not None and FORMAT.reopen is not None
    back = FORMAT.read(Head(path), ReadOptions())
    assert contents(back) == contents(of_torch(state))
    assert back.metadata == {"format": "pt"}
    assert back.tensors["lm_head.weight"].same_bytes(back.tensors["embed.weight"])
    placed = FORMAT.reopen([path])
    assert placed["lm_head.weight"] == placed["embed.weight"]
    # Written again, the same bytes.
    assert one_file(merge_aliases(back), tmp_path / "again") == Path(path).read_bytes()


def test_ties_across_shards(tmp_path: Path) -> None:
    """The record is in the index and in the shard that holds the bytes; a tie may lie anywhere."""
    tied = view("z.head", "u8", (8,), b"12345678", place="")
    w = weights(
        view("m", "u8", (8,)), tied, TensorView("a.embed", tied.dtype, tied.shape, tied.source), view("n", "u8", (8,))
    )
    merged = merge_aliases(w)
    paths = put(write(merged, WriteOptions("o", True, 8)), tmp_path)
    assert len(paths) == 4
    index = json.loads(Path(paths[-1]).read_text())
    assert index["metadata"] == {"total_size": 24, "z.head": "a.embed"}
    holder = tmp_path / index["weight_map"]["a.embed"]
    assert [p for p in paths[:-1] if b'"z.head":"a.embed"' in Path(p).read_bytes()] == [str(holder)]
    assert FORMAT.read is not None and FORMAT.reopen is not None
    back = FORMAT.read(Head(paths[-1]), ReadOptions())
    assert contents(back) == contents(w)
    assert back.tensors["z.head"].same_bytes(back.tensors["a.embed"])
    found = FORMAT.reopen(paths)
    assert sorted(found) == ["a.embed", "m", "n", "z.head"] and found["z.head"] == found["a.embed"]


def test_ties_that_cannot_be_recorded_are_refused() -> None:
    a, b = view("a", "u8", (1,)), view("b", "u8", (1,))
    for aliases, metadata in (
        ({"b": Alias(b, "gone")}, {}),
        ({"a": Alias(a, "a")}, {}),
        ({"b": Alias(b, "a")}, {"b": "text"}),
        ({"format": Alias(view("format", "u8", (1,)), "a")}, {}),
    ):
        with pytest.raises(RouteRefused, match="tie cannot be recorded"):
            write(Weights({"a": a}, "npz", aliases=aliases, metadata=metadata), FILE)
    with pytest.raises(RouteRefused, match="would be read as a tied tensor"):
        write(Weights({"a": a}, "npz", metadata={"author": "a"}), FILE)
    write(Weights({"a": a}, "npz", metadata={"format": "a", "a": "a"}), FILE)


# --- the second opinion ---------------------------------------------------------------------------------------------


def test_reopen_finds_damage(tmp_path: Path) -> None:
    w = weights(view("a", "u8", (8,)), view("b", "u8", (8,)))
    paths = put(write(w, WriteOptions("o", True, 8)), tmp_path)
    assert FORMAT.reopen is not None
    assert set(FORMAT.reopen(paths)) == {"a", "b"}
    index = Path(paths[-1])
    good = index.read_text()
    index.write_text(good.replace("00001-of", "00003-of"))
    with pytest.raises(VerificationFailed, match="index and shards disagree"):
        FORMAT.reopen(paths)
    index.write_text(good)
    shard = Path(paths[0])
    data = shard.read_bytes()
    shard.write_bytes(data + b"x")
    with pytest.raises(VerificationFailed, match="library refuses"):
        FORMAT.reopen(paths)
    shard.write_bytes(data)
    Path(paths[1]).write_bytes(data)
    with pytest.raises(VerificationFailed, match="in two shards"):
        FORMAT.reopen(paths)


# --- views of storages, and types that numpy lacks ------------------------------------------------------------------


def test_views_are_written_in_row_major_order(tmp_path: Path) -> None:
    """Case B01: Fortran order, a step, a transposed and a reversed view read back as what they look like."""
    from safetensors.numpy import load_file

    from artifactkit.strided import view as strided

    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    arrays = {
        "fortran": np.asfortranarray(matrix),
        "step": table[:, ::2],
        "transposed": table.T,
        "reversed": table[::-1, ::-1],
        "row": table[1],
        "repeated": np.broadcast_to(table[0], (3, 4)),
    }
    views = {}
    for name, array in arrays.items():
        base = np.asfortranarray(matrix) if name == "fortran" else table
        first = (
            (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // 4
            if name != "fortran"
            else 0
        )
        raw = base.tobytes("A")
        source = strided(Inline(raw, (name, 0)), 4, first, array.shape, tuple(n // 4 for n in array.strides))
        views[name] = TensorView(name, BY_NAME["f32"], array.shape, source)
    (path,) = put(write(merge_aliases(Weights(views, "npz")), FILE), tmp_path)
    back = load_file(path)
    assert {n: a.tolist() for n, a in back.items()} == {n: a.tolist() for n, a in arrays.items()}


BITS = {
    "bf16": "803f0080807fc17f",  # 1.0, -0.0, infinity, a NaN with a payload
    "f8_e4m3": "38807f01",
    "f8_e5m2": "3c807c7d",
    "f16": "003c0080007c017e",
}


@pytest.mark.parametrize("dtype", BITS)
def test_types_without_torch(tmp_path: Path, dtype: str) -> None:
    """Case B05: written, read and cast up by numpy alone, bit for bit."""
    from artifactkit.passes.cast import cast

    raw = bytes.fromhex(BITS[dtype])
    tensors = (view("w", dtype, (4,), raw), view("scalar", dtype, (), raw[: len(raw) // 4]), view("empty", dtype, (0,)))
    w = weights(*tensors)
    (path,) = put(write(w, FILE), tmp_path)
    assert FORMAT.read is not None
    back = FORMAT.read(Head(path), ReadOptions())
    assert contents(back) == contents(w)
    wide = np.frombuffer(read_all(cast(back, BY_NAME["f32"]).tensors["w"].source), np.float32)
    assert wide[0] == 1.0 and wide[1] == 0 and np.signbit(wide[1])
    assert np.isnan(wide[3]) or wide[3] == 2.0**-9
    if dtype == "bf16":
        assert wide.view(np.uint32).tolist() == [0x3F800000, 0x80000000, 0x7F800000, 0x7FC10000]


def test_no_heavy_library_to_lay_out(tmp_path: Path) -> None:
    """Reading headers, ties and laying out need no numpy."""
    import subprocess
    import sys

    from conftest import environment

    code = (
        "import sys\n"
        "from artifactkit.formats.safetensors import FORMAT\n"
        "from artifactkit.passes import cast, rename, select, tie\n"
        "from artifactkit.dtypes import BY_NAME\n"
        "from artifactkit.types import Head, ReadOptions, WriteOptions\n"
        "w = FORMAT.read(Head(sys.argv[1]), ReadOptions())\n"
        "w = tie.merge_aliases(cast.cast(rename.rename(select.select(w, ['*']), ['w=v']), BY_NAME['bf16']))\n"
        "FORMAT.write(w, WriteOptions('x.safetensors'))\n"
        "print(sorted({'numpy', 'torch', 'safetensors', 'ml_dtypes', 'rich'} & set(sys.modules)))\n"
    )
    (path,) = put(write(weights(view("w", "f32", (2,))), FILE), tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", code, path], env=environment(), capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
