"""Conversion of large checkpoints beside ``cp`` and beside torch: time as ratios in one run, memory at the peak.

``--sizes 2GB,8GB`` chooses the sizes; the first is measured in ``--runs`` alternated rounds, the others in one; a round
before them only warms the caches. Room for three times the size is needed in ``--folder``. torch is left out where
memory would not hold its copy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import COLUMNS, OURS, ROOT, Cost, Table, alternated, median_ratio, once, seconds

FIXTURES = ROOT / "fixtures" / "make.py"
# The program without its fsync, which waits for the disk and has no counterpart in cp.
WITHOUT_FSYNC = "import os, sys; os.fsync = lambda fd: None; from artifactkit.cli.main import main; sys.exit(main())"
TORCH = """
import sys, torch
from safetensors.torch import save_file
save_file(torch.load(sys.argv[1], weights_only=True), sys.argv[2])
"""

# What hashlib takes alone, its start included.
DIGEST = """
import hashlib, sys
with open(sys.argv[1], "rb", buffering=0) as file:
    hashlib.file_digest(file, "sha256")
"""

# The plainest program that copies and takes the sha256 of both files, on two threads.
PLAIN = """
import hashlib, subprocess, sys, threading
def digest(path):
    found, buffer = hashlib.sha256(), memoryview(bytearray(1 << 18))
    with open(path, "rb", buffering=0) as file:
        while n := file.readinto(buffer):
            found.update(buffer[:n])
beside = threading.Thread(target=digest, args=(sys.argv[1],))
beside.start()
subprocess.run(["cp", sys.argv[1], sys.argv[2]], check=True)
digest(sys.argv[2])
beside.join()
"""


def convert(source: Path, out: Path, *options: str, fsync: bool = False) -> list[str]:
    program = OURS if fsync else [sys.executable, "-c", WITHOUT_FSYNC]
    return [*program, "convert", str(source), str(out), *options]


def make(work: Path, size: str) -> Path:
    path = work / f"{size}.pt"
    subprocess.run([sys.executable, FIXTURES, path, "--big", size], check=True, stdout=subprocess.DEVNULL)
    room = shutil.disk_usage(work).free
    if room < 2 * path.stat().st_size:
        sys.exit(f"{work}: {room} bytes free, {2 * path.stat().st_size} needed")
    warm(path)
    return path


def warm(path: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 24)
        while file.readinto(buffer):
            pass


def available() -> int:
    """Bytes of memory that can be had without swapping."""
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sizes", default="2GB,8GB")
    parser.add_argument("--folder", type=Path, help="where to work (default: the temporary folder)")
    parser.add_argument("--write", action="store_true", help="write the figures to RESULTS.md")
    args = parser.parse_args()
    table = Table("Converting", COLUMNS)
    peaks: dict[str, float] = {}
    sizes = args.sizes.split(",")
    with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
        work = Path(temporary)
        small = make(work, "0.2GB")
        peaks["0.2GB"] = once(convert(small, work / "out.safetensors")).memory
        small.unlink()
        for path in work.glob("out.safetensors*"):
            path.unlink()
        for number, size in enumerate(sizes):
            measure(table, work, size, args.runs if number == 0 else 1, number == 0, peaks)
    spread = max(peaks.values()) - min(peaks.values())
    shown = ", ".join(f"{name}: {peak:.0f} MB" for name, peak in peaks.items())
    table.row("peak memory whatever the size", shown, "", spread, 10, "MB between them")
    if args.write:
        table.write()
    return 1 if table.missed else 0


def least_of(cp: Cost, sha256: Cost) -> Cost:
    """What no program that copies and takes two digests can do better, whatever it leaves out besides."""
    cpu = cp.cpu + 2 * sha256.cpu
    return Cost(cpu, cpu / (os.cpu_count() or 1), 0)


def measure(table: Table, work: Path, size: str, runs: int, whole: bool, peaks: dict[str, float]) -> None:
    source, out, copy = make(work, size), work / "out.safetensors", work / "copy"

    def clean() -> None:
        out.unlink(missing_ok=True)
        out.with_name(out.name + ".intoto.jsonl").unlink(missing_ok=True)
        copy.unlink(missing_ok=True)

    commands = {
        "cp": ["cp", str(source), str(copy)],
        "checked": convert(source, out),
        "--no-verify": convert(source, out, "--no-verify"),
        "plain": [sys.executable, "-c", PLAIN, str(source), str(copy)],
        "sha256": [sys.executable, "-c", DIGEST, str(source)],
    }
    if whole:
        commands |= {
            "bf16": convert(source, out, "--dtype", "bf16"),
            "f16": convert(source, out, "--dtype", "f16"),
            "cp and sync": ["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", str(source), str(copy)],
            "checked, with fsync": convert(source, out, fsync=True),
        }
    if available() > 2 * source.stat().st_size:
        commands["torch"] = [sys.executable, "-c", TORCH, str(source), str(out)]
    found = alternated(commands, runs, clean)
    peaks[size] = max(c.memory for c in found["checked"])
    cp, name = found["cp"], f"{size} of float32"

    def row(what: str, costs: list[Cost], limit: float | None, beside: list[Cost] = cp, peer: str = "cp") -> None:
        table.row(
            f"{name}, {what}", seconds(costs), f"{peer} {seconds(beside)}",
            median_ratio(costs, beside), limit, f"x {peer}",
        )  # fmt: skip

    def memory(what: str, costs: list[Cost], limit: float | None) -> None:
        table.row(f"{name}, {what}, peak memory", "", "", max(c.memory for c in costs), limit, "MB")

    row("pickle to safetensors, checked", found["checked"], 3)
    row("the same", found["checked"], None, found["plain"], "cp and both sha256")
    least = [least_of(a, b) for a, b in zip(cp, found["sha256"], strict=True)]
    row("cp and both sha256 spread evenly over the cores, from each alone", least, None)
    memory("pickle to safetensors, checked", found["checked"], 100)
    row("the same with --no-verify", found["--no-verify"], 1.2)
    if whole:
        row("the same with fsync", found["checked, with fsync"], None, found["cp and sync"], "cp and sync")
        for dtype in ("bf16", "f16"):
            row(f"cast to {dtype}, checked", found[dtype], 4)
            memory(f"cast to {dtype}, checked", found[dtype], 200)
    if "torch" in found:
        row("torch.load and save_file, without digest or comparison", found["torch"], None)
        memory("torch.load and save_file", found["torch"], None)
    else:
        table.row(f"{name}, torch", "not measured: it needs twice the size in memory", "", None, None, "")
    source.unlink()


if __name__ == "__main__":
    sys.exit(main())
