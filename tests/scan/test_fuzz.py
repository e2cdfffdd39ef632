"""A few thousand of the mutations of fuzz.py; ``make bench`` has a million."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).with_name("fuzz.py")


def test_mutations_end_in_a_verdict_in_time_and_in_bounds() -> None:
    """In a process of its own, whose memory is limited."""
    command = [sys.executable, str(FUZZ), "--count", "4000", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_a_case_is_found_again_by_its_number() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, str(FUZZ), "--only", "77"], capture_output=True, text=True, check=True, timeout=60,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1
