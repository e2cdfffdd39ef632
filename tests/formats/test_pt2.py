"""pt2: the weights of exported programs, plain records and older forms."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path

import pytest
import torch
from contract import contents, mutated, read, read_it_all, sniffed
from torch_cases import expected_of, repacked, saved, seeded

from artifactkit.errors import Corrupt, Unreadable


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.tied = self.linear.weight
        self.turned = torch.nn.Parameter(seeded(3, 4).t())
        self.small = torch.nn.Parameter(seeded(3).to(torch.bfloat16))
        self.register_buffer("mean", torch.tensor(2.0))
        self.register_buffer("passing", seeded(2), persistent=False)
        self.constant = seeded(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.mean + self.passing.sum() + self.constant.sum() + self.small.float()
        return y + torch.nn.functional.linear(x, self.tied) + x @ self.turned


def exported() -> tuple[Net, bytes]:
    torch.manual_seed(0)
    net = Net()
    out = io.BytesIO()
    torch.export.save(torch.export.export(net, (torch.ones(2, 4),)), out)
    return net, out.getvalue()


@pytest.fixture(scope="module")
def program() -> tuple[Net, bytes]:
    return exported()


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "made.pt2"
    path.write_bytes(data)
    return path


def test_the_state_dict(program: tuple[Net, bytes], tmp_path: Path) -> None:
    net, data = program
    path = written(tmp_path, data)
    assert sniffed(path) == ["pt2"]
    weights = read(path)
    assert contents(weights) == expected_of(net.state_dict())
    assert weights.tensors["tied"].source == weights.tensors["linear.weight"].source


def test_all_takes_constants_too(program: tuple[Net, bytes], tmp_path: Path) -> None:
    net, data = program
    got = contents(read(written(tmp_path, data), everything=True))
    assert got == expected_of({**net.state_dict(), "passing": net.passing, "constant": net.constant})


def test_big_endian(program: tuple[Net, bytes], tmp_path: Path) -> None:
    got = contents(read(written(tmp_path, repacked(program[1], change={"byteorder": b"big"}))))
    assert got["linear.bias"][2] != contents(read(written(tmp_path, program[1])))["linear.bias"][2]


CONFIG = "data/weights/model_weights_config.json"


def changed_config(data: bytes, name: str, **fields: object) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = next(n for n in archive.namelist() if n.endswith(CONFIG))
        document = json.loads(archive.read(found))
    entry = document["config"][name]
    for key, value in fields.items():
        if key in entry:
            entry[key] = value
        else:
            entry["tensor_meta"][key] = value
    return repacked(data, change={CONFIG: json.dumps(document).encode()})


@pytest.mark.parametrize(
    "fields",
    [{"dtype": 99}, {"dtype": "x"}, {"path_name": 3}, {"path_name": "weight_99"}, {"sizes": [{"as_int": 1 << 40}]},
     {"sizes": [{"as_expr": "s0"}]}, {"strides": []}, {"storage_offset": {"as_int": 9}},
     {"storage_offset": {"as_int": -1}}, {"tensor_meta": None}, {"sizes": {"a": 1}}],
    ids=str,
)  # fmt: skip
def test_descriptions_that_lie(fields: dict[str, object], program: tuple[Net, bytes], tmp_path: Path) -> None:
    with pytest.raises(Corrupt):
        read(written(tmp_path, changed_config(program[1], "linear.bias", **fields)))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"config": 3}', b'{"config": {"a": 1, "a": 2}}', b"[" * 100_000])
def test_a_description_that_is_none(text: bytes, program: tuple[Net, bytes], tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        read(written(tmp_path, repacked(program[1], change={CONFIG: text})))


def test_a_tensor_that_is_a_torch_file(program: tuple[Net, bytes], tmp_path: Path) -> None:
    data = changed_config(program[1], "linear.bias", use_pickle=True, path_name="weight_9")
    path = written(tmp_path, data)
    with zipfile.ZipFile(path, "a") as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/data/weights/weight_9", saved(seeded(3)))
    assert contents(read(path))["linear.bias"] == expected_of({"w": seeded(3)})["w"]


def test_the_form_of_torch_2_6(tmp_path: Path) -> None:
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "5.3")
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("serialized_state_dict.pt", saved({"w": seeded(3)}))
        archive.writestr("serialized_constants.pt", saved({"c": seeded(2)}))
    assert sniffed(path) == ["pt2"]
    assert contents(read(path)) == expected_of({"w": seeded(3)})
    assert contents(read(path, everything=True)) == expected_of({"w": seeded(3), "c": seeded(2)})


def test_the_form_with_one_torch_file(tmp_path: Path) -> None:
    path = tmp_path / "older.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/archive_format", "pt2")
        archive.writestr("a/data/weights/model.pt", saved({"w": seeded(3)}))
    assert contents(read(path)) == expected_of({"w": seeded(3)})


def test_whatever_is_changed_only_our_errors_come_out(program: tuple[Net, bytes], tmp_path: Path) -> None:
    rng = random.Random(9)
    plain = repacked(program[1], drop=("models/model.json",))
    for i in range(400):
        data = mutated(plain, rng) if i % 4 else plain[: rng.randrange(len(plain))]
        read_it_all(written(tmp_path, data))


def test_compiled_code_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "aoti.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/archive_format", "pt2")
        archive.writestr("a/data/aotinductor/model/x.so", b"\x7fELF")
    with pytest.raises(Unreadable, match="no plain weights") as caught:
        read(path)
    assert "AOTInductor" in str(caught.value)
