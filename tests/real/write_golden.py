"""Writes inspect.json anew: ``python -m tests.real.write_golden``; the difference is then read like any change."""

from __future__ import annotations

import json
import subprocess
import sys

from .packages import package
from .test_real_tensors import GOLDEN, INSPECTED, summary

if __name__ == "__main__":
    golden = {}
    for requirement, name in INSPECTED:
        command = [sys.executable, "-m", "artifactkit", "inspect", str(package(requirement) / name), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        golden[f"{requirement}/{name}"] = summary(json.loads(done.stdout))
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n", encoding="utf-8")
