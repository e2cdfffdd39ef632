"""llama.cpp in a child process: what it answers, and what becomes of it when anything goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from conftest import ROOT, environment
from gguf_models import gguf_of, ids

from artifactkit.errors import DeviceAbsent, MissingExtra, RunFailed, Unreadable, UsageError
from artifactkit.registry import runners
from artifactkit.runners import llamacpp
from artifactkit.types import Device, Loadable, RunOptions

CPU = Device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    gguf_of(tiny.write("llama", folder / "llama"), folder / "x.gguf")
    return folder / "x.gguf"


def load(path: Path, device: Device = CPU, **options: object) -> llamacpp.LlamaSession:
    return llamacpp.load(Loadable(str(path)), device, RunOptions(**options))  # type: ignore[arg-type]


def test_it_is_the_runner_of_gguf() -> None:
    assert runners()["llamacpp"].formats == {"gguf"}


def test_rows_are_as_long_as_their_masks_say(model: Path) -> None:
    given = ids(60, 2)
    mask = np.ones_like(given)
    mask[1, 40:] = 0
    with load(model) as session:
        both = session.run({"input_ids": given, "attention_mask": mask})["logits"]
        alone = session.run({"input_ids": given[1:, :40]})["logits"]
    assert both.shape == (2, 60, 261)
    assert both.dtype == np.float32
    assert np.isnan(both[1, 40:]).all()
    assert not np.isnan(both[0]).any()
    assert np.abs(both[1, :40] - alone[0]).max() <= 1e-5


@pytest.mark.parametrize("pieces", [[60], [59, 1], [1, 59], [20, 20, 20], [1] * 60])
def test_in_pieces_the_cache_is_carried_over(pieces: list[int], model: Path) -> None:
    with load(model) as session:
        whole = session.run({"input_ids": ids(60)})["logits"]
        cut = session.run({"input_ids": ids(60)}, pieces)["logits"]
        assert session.facts["calls"] == len(pieces)
    assert np.abs(whole - cut).max() <= 1e-5


def test_the_facts_say_what_ran(model: Path) -> None:
    with load(model, threads=2) as session:
        session.run({"input_ids": ids(4)})
        facts = session.facts
    assert facts["version"] == f"xllamacpp {llamacpp.VERSION}"
    assert (facts["flash_attention"], facts["kv_types"], facts["threads"]) == ("disabled", "f32, f32", 2)
    assert (facts["architecture"], facts["device"], facts["settings"]) == ("llama", "cpu", "exact")


def test_the_defaults_are_llama_cpps_own(model: Path) -> None:
    with load(model, Device("cpu", "llamacpp", "defaults")) as session:
        session.run({"input_ids": ids(4)})
        assert session.facts["kv_types"] == "f16, f16"
        assert session.facts["settings"] == "defaults"


def test_an_encoder_gives_hidden_states(tmp_path: Path) -> None:
    gguf_of(tiny.write("bert", tmp_path / "bert"), tmp_path / "x.gguf")
    with load(tmp_path / "x.gguf") as session:
        out = session.run({"input_ids": ids(20)})
        assert out["last_hidden_state"].shape == (1, 20, 48)
        with pytest.raises(UsageError, match="whole"):
            session.run({"input_ids": ids(20)}, [10, 10])


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"input_ids": np.array([[1, 2, 261]])}, "no such token"), ({"input_ids": np.array([[-1]])}, "no such token"),
        ({"input_ids": np.array([1, 2])}, "whole numbers of one shape"), ({}, "takes token ids"),
        ({"input_ids": np.array([[1, 2]]), "attention_mask": np.array([[0, 1]])}, "not right-padded"),
        ({"input_ids": np.array([[1.5, 2]])}, "whole numbers"), ({"input_ids": np.zeros((1, 0), int)}, "whole numbers"),
        ({"input_ids": np.array([[1, 2]]), "position_ids": np.array([[1, 2]])}, "from 0 on"),
        ({"input_ids": np.array([[1, 2]]), "pixel_values": np.zeros((1, 2))}, "takes token ids"),
    ],
)  # fmt: skip
def test_inputs_that_it_cannot_be_given(inputs: dict[str, np.ndarray], words: str, model: Path) -> None:
    with load(model) as session:
        with pytest.raises(UsageError, match=words):
            session.run(inputs)
        assert session.run({"input_ids": ids(3)})["logits"].shape == (1, 3, 261)  # and it goes on


def test_a_file_that_it_does_not_load(model: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(model.read_bytes()[:-2000])
    with pytest.raises(RunFailed, match="does not load the file") as caught:
        load(tmp_path / "cut.gguf")
    assert caught.value.hint is not None
    assert "llama.cpp said" in caught.value.hint
    with pytest.raises(Unreadable):
        load(tmp_path / "none.gguf")


@pytest.mark.parametrize("device", [Device("cuda:0"), Device("metal"), Device("cpu", "llamacpp", "vulkan")])
def test_a_device_that_is_not_there(device: Device, model: Path) -> None:
    with pytest.raises(DeviceAbsent):
        load(model, device)


def test_another_version_is_missing_by_name(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(llamacpp, "VERSION", "2027.1.1")
    with pytest.raises(MissingExtra, match="in the version that its structs are known of"):
        load(model)


def test_a_child_that_is_killed(model: Path) -> None:
    session = load(model)
    os.kill(session.pid, signal.SIGSEGV)
    with pytest.raises(RunFailed, match=r"llama\.cpp died") as caught:
        session.run({"input_ids": ids(3)})
    assert caught.value.found == "SIGSEGV"
    with pytest.raises(RunFailed, match="the session has ended"):
        session.run({"input_ids": ids(3)})


def test_a_child_that_hangs_is_ended_in_time(model: Path) -> None:
    session = load(model, seconds=20.0)
    session._seconds = 0.5
    os.kill(session.pid, signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(RunFailed, match=r"did not run the inputs within 0\.5 s"):
        session.run({"input_ids": ids(3)})
    assert time.monotonic() - start < 10
    with pytest.raises(ProcessLookupError):
        os.kill(session.pid, 0)


def test_the_child_is_gone_with_us(model: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from artifactkit.runners import llamacpp\nfrom artifactkit.types import *\n"
        "s = llamacpp.load(Loadable(sys.argv[1]), Device('cpu'), RunOptions())\n"
        "print(s.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    there = environment() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(model)], capture_output=True, text=True, env=there, check=False
    )
    pid = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the child is still there")


def test_the_environment_changes_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_FLASH_ATTN", "1")
    monkeypatch.setenv("GGML_CPU_ALL_VARIANTS", "1")
    with load(model) as session:
        other = session.run({"input_ids": ids(3)})["logits"]
    monkeypatch.undo()
    with load(model) as session:
        assert np.array_equal(session.run({"input_ids": ids(3)})["logits"], other)


def test_a_session_may_be_used_in_a_thread(model: Path) -> None:
    found: list[np.ndarray] = []

    def work() -> None:
        with load(model) as session:
            found.append(session.run({"input_ids": ids(3)})["logits"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].shape == (1, 3, 261)
