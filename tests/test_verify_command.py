"""The command that a conversion names at its end does what it says: it verifies that conversion."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from conftest import Akit


@pytest.mark.parametrize(
    ("source", "destination", "options"),
    [
        ("plain.pt", "out.safetensors", []),
        ("plain.pt", "out file.safetensors", ["--dtype", "f16"]),
        ("plain.pt", "-out.safetensors", []),
        ("plain.pt", "one.npy", ["--include", "encoder.weight"]),
        ("plain.pt", "two.npz", ["--exclude", "norm.*", "--rename", "encoder=enc"]),
        ("trainer.ckpt", "all.safetensors", ["--all", "--keep-prefix"]),
        ("trainer.ckpt", "part.safetensors", ["--state-dict-key", "optimizer_states"]),
        ("sharded", "folder", []),
        ("tiny-llama", "one.safetensors", ["--dtype", "bf16"]),
    ],
)
def test_the_named_command_verifies(
    akit: Akit, fixtures: Path, source: str, destination: str, options: list[str]
) -> None:
    done = akit("convert", *options, "--", fixtures / source, destination)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("function: not verified (run: artifactkit ")]
    words = shlex.split(line.removeprefix("function: not verified (run: artifactkit ").removesuffix(")"))
    verified = akit(*words)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "verified: " in verified.stdout


def test_a_format_without_names_is_matched_by_its_one_tensor(akit: Akit, fixtures: Path) -> None:
    assert akit("convert", fixtures / "array.npy", "a.safetensors", "--rename", ".*=renamed").returncode == 0
    assert akit("convert", "a.safetensors", "b.npy").returncode == 0
    assert akit("verify", "b.npy", "--against", "a.safetensors").returncode == 0
    assert akit("diff", "b.npy", "a.safetensors").returncode == 0
    assert akit("diff", "a.safetensors", "b.npy").returncode == 0
    other = akit("verify", "b.npy", "--against", fixtures / "plain.safetensors")
    assert other.returncode == 1
    assert "NOT VERIFIED" in other.stdout
