"""TensorRT engines: the header, and what lies in the body."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hostile.plans import BODY, classic, elf, rtx, windows
from hypothesis import given, settings
from hypothesis import strategies as st

from artifactkit.containers import plan_header
from artifactkit.errors import ArtifactkitError, Corrupt, Truncated
from artifactkit.files import Memory
from artifactkit.scan.scanner import scan_file


def test_header_of_an_rtx_engine() -> None:
    header = plan_header.read_header(Memory(rtx(targets=0b101001)))
    assert (header.magic, header.version, header.serialization) == ("vtrt", (1, 7, 1, 116), 100)
    assert header.targets == ("sm_75", "sm_89", "sm_121")
    assert [(s.tag, s.offset) for s in header.sections] == [("NGNE", 112), ("THGW", 112 + 16 + len(BODY))]
    assert header.size == len(rtx())


def test_header_of_a_classic_plan() -> None:
    header = plan_header.read_header(Memory(classic()))
    assert (header.magic, header.version, header.sections) == ("ftrt", (11, 4, 0, 1), ())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"vtrt", Truncated),
        (rtx()[:60], Truncated),
        (rtx(size=1 << 40), Truncated),
        (b"none" + bytes(60), Corrupt),
        (rtx()[:72] + struct.pack("<Q", 1 << 62) + rtx()[80:], Corrupt),
    ],
)
def test_what_is_no_header(data: bytes, error: type[ArtifactkitError]) -> None:
    with pytest.raises(error):
        plan_header.read_header(Memory(data))


def test_libraries_with_their_places() -> None:
    body = bytes(100) + elf() + bytes(50) + windows() + bytes(70) + elf(machine=plan_header.CUDA, kind=2) + bytes(64)
    found = [(library.kind, library.offset) for library in plan_header.libraries(Memory(body))]
    first = 100 + len(elf()) + 50
    assert found == [("ELF", 100), ("Windows", first), ("device", first + len(windows()) + 70)]


@pytest.mark.parametrize("noise", [b"\x7fELF" + bytes(60), b"\x7fELF\x02\x01\x01" + b"\xff" * 57, b"MZ" + b"\xff" * 62])
def test_marks_by_chance_are_no_libraries(noise: bytes) -> None:
    assert list(plan_header.libraries(Memory(bytes(30) + noise + bytes(30)))) == []


def test_device_code_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "m.engine"
    path.write_bytes(rtx(BODY + elf(machine=plan_header.CUDA, kind=2)))
    assert [f.rule for f in scan_file(str(path)).findings] == ["plan-opaque"]


def test_library_is_named_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "m.engine"
    data = rtx(BODY + elf())
    path.write_bytes(data)
    found = [(f.rule, f.offset) for f in scan_file(str(path)).findings]
    assert found == [("plan-opaque", None), ("plan-embedded-library", data.index(b"\x7fELF"))]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 130), st.integers(0, 255), st.integers(0, 700))
def test_any_byte_changed_gives_a_header_or_our_error(at: int, value: int, length: int) -> None:
    data = bytearray(rtx())
    data[at] = value
    try:
        plan_header.read_header(Memory(bytes(data[:length])))
    except ArtifactkitError:
        pass
