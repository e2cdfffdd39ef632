"""Speed and memory of ``artifactkit scan``, beside picklescan 1.0.5 and modelscan 0.8.8, as ratios in one run.

The peers are installed into environments of their own, made when they are not there. Each figure is the least of
several alternated runs of the whole process: processor time, which a loaded machine changes least, and time on the
clock beside it. Exit 1 when a budget is not met. Then a million mutations of tests/scan/fuzz.py are scanned
(``--fuzz 0``: none).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = {"picklescan": "picklescan==1.0.5", "modelscan": "modelscan==0.8.8"}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": ""}


@dataclass(frozen=True)
class Cost:
    """The least of several runs: seconds of processor time and on the clock, and the peak of memory in MB."""

    cpu: float
    wall: float
    memory: float


def once(command: list[str], codes: tuple[int, ...]) -> Cost:
    """Run a command in a process that waits for it alone, so that its peak of memory is its own."""
    code = (
        "import json, resource, subprocess, sys, time; t = time.perf_counter();"
        "c = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode;"
        "w = time.perf_counter() - t; r = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(json.dumps([c, r.ru_utime + r.ru_stime, w, r.ru_maxrss / 1024]))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *command], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    ended, cpu, wall, memory = json.loads(done.stdout)
    if ended not in codes:
        raise SystemExit(f"{' '.join(command)} ended with {ended}, not with {codes}")
    return Cost(cpu, wall, memory)


def compare(commands: dict[str, list[str]], runs: int, codes: tuple[int, ...] = (0,)) -> dict[str, Cost]:
    """The least cost of each command over ``runs`` alternated runs, the first of which only warms the caches."""
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            cost = once(command, codes)
            if number:
                found[name].append(cost)
    return {
        name: Cost(min(c.cpu for c in costs), min(c.wall for c in costs), max(c.memory for c in costs))
        for name, costs in found.items()
    }


def peers(folder: Path) -> dict[str, Path]:
    """The programs of the peers; those that cannot be installed are left out, and said."""
    out = {}
    for name, requirement in PEERS.items():
        program = folder / name / "bin" / name
        if not program.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
            pip = [str(folder / name / "bin" / "python"), "-m", "pip", "install", "-q", requirement]
            if subprocess.run(pip, check=False).returncode:
                print(f"{requirement} cannot be installed: left out", file=sys.stderr)
                continue
        out[name] = program
    return out


# -- what is scanned: made by hand, since torch is not needed for it


def tensor(key: int, count: int) -> bytes:
    """Opcodes of one float32 tensor of ``count`` elements whose storage is member ``key``."""

    def text(value: str) -> bytes:
        raw = value.encode()
        return b"X" + len(raw).to_bytes(4, "little") + raw

    number = count.to_bytes(5, "little", signed=True)
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + b"ctorch\nFloatStorage\n" + text(str(key))
        + text("cpu") + b"\x8a\x05" + number + b"tQK\0\x8a\x05" + number
        + b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


def checkpoint(path: Path, tensors: int, count: int) -> None:
    """A checkpoint as ``torch.save`` writes it: a zip archive, nothing compressed."""
    pickled = io.BytesIO()
    pickled.write(b"\x80\x02}(")
    for key in range(tensors):
        name = f"layers.{key}.weight".encode()
        pickled.write(b"X" + len(name).to_bytes(4, "little") + name + tensor(key, count))
    pickled.write(b"u.")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        archive.writestr("archive/byteorder", "little")
        chunk = bytes(4 * count)
        for key in range(tensors):
            archive.writestr(f"archive/data/{key}", chunk)
        archive.writestr("archive/version", "3\n")


def mixed(folder: Path, count: int) -> None:
    """A repository of ``count`` files: code, configurations, text, pictures' bytes, pickles, arrays, checkpoints."""
    chance = random.Random(0)
    small = folder.parent / "one.pt"
    checkpoint(small, 4, 16)
    archive, npy = (
        small.read_bytes(),
        b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }",
    )
    npy = npy.ljust(127) + b"\n" + bytes(16)
    header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    kinds = [
        (".py", b"import os\n\n\ndef f(x):\n    return os.path.join('a', x)\n" * 20), (".json", b'{"a": [1, 2, 3]}\n'),
        (".md", b"# Title\n\nSome text.\n" * 50), (".bin", chance.randbytes(4096)),
        (".pkl", b"\x80\x02}q\0X\1\0\0\0aK\1s."), (".yaml", b"a: 1\nb: [2, 3]\n"),
        (".npy", npy), (".pt", archive), (".safetensors", len(header).to_bytes(8, "little") + header + bytes(16)),
        (".txt", b"one\ntwo\n" * 100), (".jpg", b"\xff\xd8\xff\xe0" + chance.randbytes(8000)),
    ]  # fmt: skip
    for number in range(count):
        suffix, data = kinds[number % len(kinds)]
        place = folder / f"d{number % 97}" / f"e{number % 7}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number}{suffix}").write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "artifactkit-bench-peers")
    parser.add_argument("--fuzz", type=int, default=1_000_000)
    args = parser.parse_args()
    programs = peers(args.peers)
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        checkpoint(work / "small.pt", 8, 64)
        checkpoint(work / "large.pt", 30, 2_625_000)
        (work / "many").mkdir()
        for number in range(1000):
            checkpoint(work / "many" / f"{number:04}.pt", 8, 64)
        (work / "mixed").mkdir()
        mixed(work / "mixed", 10_000)
        ours = [sys.executable, "-m", "artifactkit", "scan"]

        def commands(name: str) -> dict[str, list[str]]:
            path = str(work / name)
            given = {"picklescan": ["-p", path], "modelscan": ["-p", path]}
            return {"artifactkit": [*ours, path]} | {k: [str(v), *given[k]] for k, v in programs.items()}

        def show(title: str, found: dict[str, Cost]) -> None:
            mine = found["artifactkit"]
            print(title)
            for name, cost in found.items():
                ratio = "" if name == "artifactkit" else f"  ours is {mine.cpu / cost.cpu:.2f} x its CPU"
                print(f"  {name:12} {cost.cpu:7.3f} s CPU  {cost.wall:7.3f} s  {cost.memory:6.0f} MB{ratio}")

        def budget(what: str, value: float, limit: float, unit: str) -> None:
            met = value <= limit
            print(f"  {'met ' if met else 'MISSED'} {what}: {value:.3g} {unit}, at most {limit:.3g} {unit}")
            if not met:
                missed.append(what)

        small = compare(commands("small.pt"), args.runs)
        show("a small checkpoint, whole process", small)
        budget("processor time", small["artifactkit"].cpu * 1000, 150, "ms")
        if "picklescan" in small:
            budget("against picklescan", small["artifactkit"].cpu / small["picklescan"].cpu, 1.5, "x")
        large = compare(commands("large.pt"), args.runs)
        show("a checkpoint of 315 MB", large)
        budget("against the small one", large["artifactkit"].cpu / small["artifactkit"].cpu, 1.15, "x")
        many = compare(commands("many"), 1)
        show("1,000 small checkpoints", many)
        if "picklescan" in many:
            budget("against picklescan", many["artifactkit"].cpu / many["picklescan"].cpu, 2.0, "x")
        tree = compare({"artifactkit": [*ours, str(work / "mixed")]}, 1)
        show("a repository of 10,000 mixed files", tree)
        budget("time", tree["artifactkit"].cpu, 10, "s")
        budget("memory", max(c["artifactkit"].memory for c in (small, large, many, tree)), 60, "MB")
    if args.fuzz:
        began = time.monotonic()
        fuzz = [sys.executable, str(ROOT / "tests" / "scan" / "fuzz.py"), "--count", str(args.fuzz)]
        if subprocess.run(fuzz, check=False).returncode:
            missed.append("mutations")
        print(f"  {time.monotonic() - began:.0f} s")
    print("every budget is met" if not missed else f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
