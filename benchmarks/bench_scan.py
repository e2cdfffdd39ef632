"""Speed and memory of ``artifactkit scan``, beside picklescan 1.0.5 and modelscan 0.8.8, as ratios in one run.

The peers are installed into environments of their own, made when they are not there. Each figure is the least of
several alternated runs of the whole process: processor time, which a loaded machine changes least, and time on the
clock beside it. Exit 1 when a budget is not met. Then a million mutations of tests/scan/fuzz.py are scanned
(``--fuzz 0``: none; ``--fuzz-output FILE``: what a pass that was run by itself has printed is taken instead).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from measuring import COLUMNS, Table

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


def mutations(table: Table, text: str) -> None:
    """The rows of a pass of tests/scan/fuzz.py, from what it printed."""
    print(text)
    head = re.search(r"^([\d,]+) mutations of (\d+) seeds in (\d+) s: (.*)$", text, re.M)
    worst = re.search(r"^slowest ([\d.]+) s \(case \d+\), at most (\d+) MB more than at start$", text, re.M)
    wrong = re.search(r"^(\d+) ended in anything else$", text, re.M)
    if head is None or worst is None or wrong is None:
        raise SystemExit("the pass has not come to its end")
    about = f"{head[2]} seeds; {head[4]}; {head[3]} s on two processes"
    table.row(f"{head[1]} mutations, ended in neither a verdict nor our error", about, "", float(wrong[1]), 0, "cases")
    table.row("the slowest of them", "", "", float(worst[1]), 2, "s CPU")
    table.row("memory beyond that at the start", "", "", float(worst[2]), 300, "MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "artifactkit-bench-peers")
    parser.add_argument("--fuzz", type=int, default=1_000_000)
    parser.add_argument("--fuzz-output", type=Path)
    parser.add_argument("--only-fuzz", action="store_true", help="leave the speed out")
    parser.add_argument("--write", action="store_true", help="write the figures to RESULTS.md")
    args = parser.parse_args()
    tables = []
    if not args.only_fuzz:
        tables.append(Table("Scanning", COLUMNS))
        speed(tables[-1], args.runs, peers(args.peers))
    if args.fuzz or args.fuzz_output:
        tables.append(Table("Scanning mutated files", COLUMNS))
        fuzz = [sys.executable, str(ROOT / "tests" / "scan" / "fuzz.py"), "--count", str(args.fuzz)]
        if args.fuzz_output:
            mutations(tables[-1], args.fuzz_output.read_text(encoding="utf-8"))
        else:
            mutations(tables[-1], subprocess.run(fuzz, check=False, stdout=subprocess.PIPE, text=True).stdout)
    missed = [what for table in tables for what in table.missed]
    for table in tables:
        if args.write:
            table.write()
    print("every budget is met" if not missed else f"missed: {', '.join(missed)}")
    return 1 if missed else 0


def speed(table: Table, runs: int, programs: dict[str, Path]) -> None:
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

        def show(title: str, found: dict[str, Cost], limits: dict[str, float]) -> None:
            """A row of our cost, and one for each peer: the ratio of processor times."""
            mine = found["artifactkit"]
            for name, cost in found.items():
                if name != "artifactkit":
                    table.row(title, shown(mine), f"{name} {shown(cost)}", mine.cpu / cost.cpu, limits.get(name),
                              f"x {name}'s CPU")  # fmt: skip

        small = compare(commands("small.pt"), runs)
        mine = small["artifactkit"]
        table.row("a small checkpoint, whole process", shown(mine), "", mine.cpu * 1000, 150, "ms CPU")
        show("a small checkpoint, whole process", small, {"picklescan": 1.5})
        large = compare(commands("large.pt"), runs)
        table.row("a checkpoint of 315 MB", shown(large["artifactkit"]), f"the small one {shown(mine)}",
                  large["artifactkit"].cpu / mine.cpu, 1.15, "x the small one")  # fmt: skip
        show("a checkpoint of 315 MB", large, {})
        many = compare(commands("many"), 1)
        show("1,000 small checkpoints", many, {"picklescan": 2.0})
        tree = compare({"artifactkit": [*ours, str(work / "mixed")]}, 1)["artifactkit"]
        table.row("a repository of 10,000 mixed files", shown(tree), "", tree.wall, 10, "s")
        most = max(tree.memory, *(found["artifactkit"].memory for found in (small, large, many)))
        table.row("memory at the peak, in all of these", "", "", most, 60, "MB")


def shown(cost: Cost) -> str:
    return f"{cost.cpu:.3f} s CPU, {cost.wall:.3f} s, {cost.memory:.0f} MB"


if __name__ == "__main__":
    sys.exit(main())
