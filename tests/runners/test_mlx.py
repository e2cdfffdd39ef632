"""mlx-lm in a child process: what it answers, and what becomes of it when anything goes wrong."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from conftest import Akit
from gguf_models import ids

from artifactkit.errors import DeviceAbsent, RunFailed, Unreadable, UsageError
from artifactkit.registry import runners
from artifactkit.types import Device, Loadable, RunOptions

pytest.importorskip("mlx_lm")
pytestmark = pytest.mark.slow  # importing mlx-lm takes seconds
CPU = Device("cpu")


@pytest.fixture
def folder(tmp_path: Path, akit: Akit) -> Path:
    done = akit("convert", tiny.write("llama", tmp_path / "model"), tmp_path / "mlx", "-t", "mlx", "--no-statement")
    assert done.returncode == 0, done.stderr
    return tmp_path / "mlx"


def load(path: Path, device: Device = CPU, **options: object) -> object:
    return runners()["mlx"].load(Loadable(str(path)), device, RunOptions(**options))  # type: ignore[arg-type]


def test_logits_whole_and_in_pieces_and_masked(folder: Path) -> None:
    session = runners()["mlx"].load(Loadable(str(folder)), CPU, RunOptions())
    given = ids(60, 2)
    mask = np.ones_like(given)
    mask[1, 40:] = 0
    whole = session.run({"input_ids": given, "attention_mask": mask})["logits"]
    cut = session.run({"input_ids": given, "attention_mask": mask}, [30, 29, 1])["logits"]
    session.close()
    assert whole.shape == (2, 60, 261)
    assert np.isnan(whole[1, 40:]).all()
    assert float(np.nanmax(np.abs(whole - cut))) <= 1e-5
    assert session.facts["quantization"] == "none"
    assert session.facts["types"] == "float32"


def test_a_folder_that_it_does_not_load(folder: Path) -> None:
    path = folder / "config.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**entries, "num_hidden_layers": 2}), encoding="utf-8")
    with pytest.raises(RunFailed, match="does not load the folder: Received 9 parameters not in model"):
        load(folder)
    path.write_text(json.dumps({**entries, "model_file": "evil.py"}), encoding="utf-8")
    (folder / "evil.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    with pytest.raises(RunFailed, match="disabled by default"):
        load(folder)
    path.unlink()
    with pytest.raises(Unreadable, match=r"no config\.json"):
        load(folder)


def test_devices_that_are_not_there(folder: Path) -> None:
    with pytest.raises(DeviceAbsent, match="no such device"):
        load(folder, Device("cuda:0"))
    with pytest.raises(DeviceAbsent, match="no Metal device"):
        load(folder, Device("metal"))


def test_a_child_that_is_killed(folder: Path) -> None:
    session = runners()["mlx"].load(Loadable(str(folder)), CPU, RunOptions())
    with pytest.raises(UsageError, match="no such token"):
        session.run({"input_ids": np.array([[1, 261]])})
    os.kill(session.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(RunFailed, match="mlx-lm died"):
        session.run({"input_ids": ids(3)})
