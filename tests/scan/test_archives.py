"""Archives: no mutation of one ends in anything but a verdict, and tensor bytes are not read."""

from __future__ import annotations

import io
import random
import struct
import zipfile

import pytest
import torch
from hostile import Sample, archives, pickle_shapes

from artifactkit.files import Memory
from artifactkit.scan.model import FileReport
from artifactkit.scan.paths import unsafe_path
from artifactkit.scan.piece import Budget, Piece
from artifactkit.scan.scanner import look

SMALL = 30_000
SEEDS = [s for area in (archives, pickle_shapes) for s in area.samples() if len(s.content) < SMALL]
SIZES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)


class Counting(Memory):
    """Bytes that know how many of them were read, and the largest read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.count = 0

    def read(self, offset: int, n: int) -> bytes:
        self.count += n
        return super().read(offset, n)


def judged(data: Memory, name: str) -> FileReport:
    report = FileReport(name)
    look(Piece(data, name, name.rpartition("/")[2], report, Budget(), look))
    return report


def mutated(rng: random.Random, sample: Sample) -> bytes:
    assert isinstance(sample.content, bytes)
    data = bytearray(sample.content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not data:
            break
        at, kind = rng.randrange(len(data)), rng.random()
        if kind < 0.5:
            data[at] = rng.randrange(256)
        elif kind < 0.65:
            del data[at : at + rng.choice((1, 2, 4, 16, 64))]
        elif kind < 0.75:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8)))
        elif kind < 0.9:
            data[at : at + 4] = struct.pack("<L", rng.choice((*SIZES, len(data), rng.randrange(1 << 32))))
        else:
            other = rng.choice(SEEDS).content
            assert isinstance(other, bytes)
            begin = rng.randrange(len(other) + 1)
            data[at:at] = other[begin : begin + rng.choice((4, 16, 64, 256))]
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_a_mutation_ends_in_a_verdict(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1000):
        sample = rng.choice(SEEDS)
        data = mutated(rng, sample)
        report = judged(Memory(data), sample.name)
        assert report.verdict in ("clean", "suspicious", "malicious", "unreadable")


@pytest.mark.parametrize("legacy", [False, True])
def test_tensor_bytes_are_not_read(legacy: bool) -> None:
    out = io.BytesIO()
    state = {f"layer.{i}.weight": torch.zeros(64, 1024) for i in range(8)}
    torch.save(state, out, _use_new_zipfile_serialization=not legacy)
    data = Counting(out.getvalue())
    assert data.size > 2_000_000
    report = judged(data, "model.pt")
    assert report.verdict == "clean"
    assert data.count < 400_000  # a head, a tail of 64 KB for each mark at the end, the pickle, the local headers


def test_a_storage_that_no_tensor_refers_to_is_read() -> None:
    out = io.BytesIO()
    torch.save({"a": torch.zeros(4)}, out)
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("archive/data/7", b"cos\nsystem\n(S'x'\ntR.")
    assert judged(Memory(out.getvalue()), "model.pt").verdict == "malicious"


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
@pytest.mark.parametrize("legacy", [False, True])
def test_indices_of_sparse_tensors(layout: str, legacy: bool) -> None:
    dense = torch.tensor([[0.0, 5.0, 0.0, 0.0], [0.0, 0.0, 0.0, 6.0]])
    made = {
        "coo": lambda: dense.to_sparse(), "csr": lambda: dense.to_sparse_csr(), "csc": lambda: dense.to_sparse_csc(),
        "bsr": lambda: dense.to_sparse_bsr((1, 2)),
    }[layout]()  # fmt: skip
    out = io.BytesIO()
    torch.save({"a": made}, out, _use_new_zipfile_serialization=not legacy)
    good = out.getvalue()
    assert judged(Memory(good), "a.pt").verdict == "clean"
    index = {"coo": (0, 1), "csr": (0, 1, 2), "csc": (0, 0, 1, 1, 2), "bsr": (0, 1, 2)}[layout]
    raw = struct.pack(f"<{len(index)}q", *index)
    assert good.count(raw) == 1
    report = judged(Memory(good.replace(raw, raw[:-8] + struct.pack("<q", 77))), "a.pt")
    assert report.verdict == "suspicious"
    assert {"pickle-malformed-tensor"} <= {f.rule for f in report.findings}


def test_a_stream_of_archives_costs_what_it_weighs() -> None:
    """Nested and repeated archives are bounded by count, depth and bytes, whatever they claim."""
    data = archives.zipped({f"{i}.bin": b"x" for i in range(200)})
    for _ in range(12):
        data = archives.zipped({"a.zip": data, "b.zip": data}, 8)
    report = judged(Memory(data), "nest.zip")
    assert report.verdict in ("unreadable", "suspicious")


@pytest.mark.parametrize(
    ("name", "unsafe"),
    [
        ("a/b", False),
        ("a/../b", False),
        ("../b", True),
        ("a/../../b", True),
        ("/a", True),
        ("\\a", True),
        ("..\\a", True),
        ("C:/a", True),
        ("~/a", True),
        ("a..b/..c", False),
        ("..\0x", True),
    ],
)
def test_paths(name: str, unsafe: bool) -> None:
    assert unsafe_path(name) == unsafe
