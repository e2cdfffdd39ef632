"""Seeded mutations of every sample, given to the scanner in memory: each must end in a verdict, in time and in bounds.

``python tests/scan/fuzz.py --count 1000000 --jobs 2`` runs many; test_fuzz.py a few thousand. Each case is found again
by its number alone: ``--only N`` scans it again, and ``--write FILE`` keeps its bytes.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "fixtures")]

SECONDS = 2.0
MEGABYTES = 300
LARGEST = 1 << 16  # bytes of a seed; larger samples are bombs, and slow to copy
NUMBERS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)


class TooLong(Exception):
    """Raised by the alarm: a case that goes on and on."""


@dataclass
class Result:
    """What became of the cases ``[first, first + count)``."""

    verdicts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)


def seeds() -> list[tuple[str, bytes]]:
    """(name, bytes) of every sample that is small, the files of trees included; in a stable order."""
    import hostile

    found: list[tuple[str, object]] = []
    for sample in hostile.samples():
        content = sample.content if isinstance(sample.content, dict) else {sample.name: sample.content}
        found += [(path.rpartition("/")[2], data) for path, data in sorted(content.items()) if path[-1] != "/"]
    return [(name, data) for name, data in found if isinstance(data, bytes) and 0 < len(data) <= LARGEST]


def case(number: int, pool: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    """The name and the bytes of one case: a seed with one to four small mutations."""
    chance = random.Random(number)
    name, data = pool[chance.randrange(len(pool))]
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4))):
        _mutate(out, chance, pool)
    if chance.random() < 0.02:
        name = pool[chance.randrange(len(pool))][0]  # a name with rules of its own, on other content
    return name, bytes(out)


def _mutate(out: bytearray, chance: random.Random, pool: list[tuple[str, bytes]]) -> None:
    # Headers stand at the ends, so half of all places are near one.
    size = len(out)
    at = chance.choice(
        (chance.randrange(size + 1), min(chance.randrange(64), size), max(0, size - chance.randrange(64)))
    )
    match chance.randrange(9):
        case 0 if at < size:
            out[at] ^= 1 << chance.randrange(8)
        case 1 if at < size:
            out[at] = chance.randrange(256)
        case 2:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice(NUMBERS) & ((1 << 8 * width) - 1)
            out[at : at + width] = number.to_bytes(width, chance.choice(("little", "big")))
        case 3:
            del out[at : at + chance.choice((1, 2, 4, 16, 256))]
        case 4:
            del out[at:]
        case 5:
            out[at:at] = chance.randbytes(chance.choice((1, 2, 4, 16, 64)))
        case 6:
            length = chance.choice((1, 4, 16, 64, 1024))
            out[at:at] = bytes(out[at : at + length]) * chance.choice((1, 2, 8))
        case 7:
            other = pool[chance.randrange(len(pool))][1]
            start = chance.randrange(len(other))
            out[at:at] = other[start : start + chance.choice((8, 64, 4096))]
        case _:
            if size > 8:
                other_at = chance.randrange(size)
                length = chance.choice((1, 4, 16))
                out[at : at + length], out[other_at : other_at + length] = (
                    out[other_at : other_at + length], out[at : at + length],
                )  # fmt: skip


def scan(name: str, data: bytes) -> str:
    """The verdict on bytes that are in memory; whatever the scanner raises passes through."""
    from artifactkit.files import Memory
    from artifactkit.scan.model import FileReport
    from artifactkit.scan.piece import Budget, Piece
    from artifactkit.scan.scanner import look

    report = FileReport(name, size=len(data))
    look(Piece(Memory(data, name), name, name, report, Budget(), look))
    return report.verdict


def run(first: int, count: int, pool: list[tuple[str, bytes]]) -> Result:
    """Scan the cases; faults, and cases that take too long, are told with their number."""

    def alarm(number: int, frame: FrameType | None) -> None:
        raise TooLong

    signal.signal(signal.SIGVTALRM, alarm)
    result = Result()
    for number in range(first, first + count):
        name, data = case(number, pool)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, 5 * SECONDS)
        try:
            result.verdicts[scan(name, data)] += 1
        except Exception:  # noqa: BLE001  whatever it is, it is what is looked for
            result.wrong.append(f"case {number} ({name}, {len(data)} bytes):\n{traceback.format_exc(limit=-4)}")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        took = time.process_time() - began
        result.slowest = max(result.slowest, (took, number))
        if took > SECONDS:
            result.wrong.append(f"case {number} ({name}, {len(data)} bytes): {took:.1f} s")
    return result


def confine() -> int:
    """Hold this process to its memory now and MEGABYTES more; the kilobytes that it has at most until now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _worker(task: tuple[int, int]) -> tuple[Result, int]:
    pool = seeds()
    before = confine()
    result = run(*task, pool)
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    if args.only is not None:
        name, data = case(args.only, seeds())
        if args.write:
            args.write.write_bytes(data)
        print(name, len(data), scan(name, data))
        return 0
    from multiprocessing import get_context

    step = 10_000
    tasks = [(at, min(step, args.first + args.count - at)) for at in range(args.first, args.first + args.count, step)]
    whole, memory = Result(), 0
    began = time.monotonic()
    # A fresh process for each task, so that what one case leaves behind is not counted with the next.
    with get_context("fork").Pool(args.jobs, maxtasksperchild=1) as processes:
        for result, more in processes.imap(_worker, tasks):
            whole.verdicts += result.verdicts
            whole.wrong += result.wrong
            whole.slowest = max(whole.slowest, result.slowest)
            memory = max(memory, more)
            for text in result.wrong:
                print(text, file=sys.stderr)
    seconds = time.monotonic() - began
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(whole.verdicts.items()))
    print(f"{args.count:,} mutations of {len(seeds())} seeds in {seconds:.0f} s: {verdicts}")
    print(
        f"slowest {whole.slowest[0]:.2f} s (case {whole.slowest[1]}), at most {memory / 1024:.0f} MB more than at start"
    )
    print(f"{len(whole.wrong)} ended in anything else")
    return 1 if whole.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
