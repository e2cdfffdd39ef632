"""What the benchmarks share: the cost of a process, medians of alternated runs, the page that results go to."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("RESULTS.md")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": ""}
OURS = [sys.executable, "-m", "artifactkit"]


@dataclass(frozen=True)
class Cost:
    """Seconds of processor time and on the clock, and the peak of resident memory in MB (10^6 bytes)."""

    cpu: float
    wall: float
    memory: float


def once(command: list[str]) -> Cost:
    """Run a command to its end and take what ``wait4`` says of it; a command that fails ends the benchmark."""
    began = time.perf_counter()
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=null, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}\n{said.decode(errors='replace')}")
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024 / 1e6)


def alternated(
    commands: dict[str, list[str]], runs: int, after: Callable[[], None] = lambda: None
) -> dict[str, list[Cost]]:
    """The costs of each command over ``runs`` rounds; a first round only warms the caches. ``after`` cleans up."""
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            cost = once(command)
            after()
            if number:
                found[name].append(cost)
    return found


def median_ratio(ours: list[Cost], theirs: list[Cost]) -> float:
    """The median of the ratios within each round: what slows the machine for a while slows both."""
    return statistics.median(a.wall / b.wall for a, b in zip(ours, theirs, strict=True))


def seconds(costs: list[Cost]) -> str:
    """The medians of both times, for people."""
    wall, cpu = (statistics.median(getattr(c, name) for c in costs) for name in ("wall", "cpu"))
    return f"{wall:.2f} s ({cpu:.2f} s CPU)"


@dataclass
class Table:
    """Rows of a benchmark: printed as they come, written to RESULTS.md when asked. Remembers missed budgets."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def row(self, what: str, measured: str, beside: str, value: float | None, limit: float | None, unit: str) -> None:
        """One row. ``value`` is judged against ``limit``; without a limit it is only shown."""
        verdict = ""
        if value is not None and limit is not None:
            met = value <= limit
            verdict = "met" if met else "MISSED"
            if not met:
                self.missed.append(what)
        shown = "" if value is None else f"{value:.3g} {unit}".strip()
        budget = "" if limit is None else f"{limit:g} {unit}".strip()
        self.rows.append((what, measured, beside, shown, budget, verdict))
        said = "; ".join(part for part in (measured, beside, shown) if part)
        print(f"{what}: {said}" + (f" (at most {budget}: {verdict})" if budget else ""), flush=True)

    def text(self) -> str:
        lines = [f"## {self.name}", "", "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in self.rows]) + "\n"

    def write(self) -> None:
        """Replace this table's section of RESULTS.md, or append it."""
        sections = {}
        if RESULTS.exists():
            for part in RESULTS.read_text(encoding="utf-8").split("\n## ")[1:]:
                sections[part.split("\n", 1)[0]] = "## " + part.rstrip() + "\n"
        sections[self.name] = self.text() + "\n" + machine() + "\n"
        RESULTS.write_text("\n".join([HEAD, *sections.values()]), encoding="utf-8")


HEAD = """# Measurements

Written by the scripts beside this page (`--write`), and only by them. Every figure is of a whole process. A ratio is
the median, over alternated runs with warm caches, of the quotient within one round, so that whatever else the machine
does weighs on both sides. It weighs more on a program with three threads than on `cp` with one: the processor times
beside the ratios say what was really done. MB are 10^6 bytes. A budget that is missed is said to be.
Figures of scanning are the least of the alternated runs, and their ratios those of processor times.
"""


def machine() -> str:
    """What it was measured on."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    load = os.getloadavg()[1]
    parts = [
        f"{model}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}, numpy {version('numpy')}, typer {version('typer')}",
        f"load average over the last five minutes: {load:.1f}",
    ]
    return "Measured on: " + "; ".join(parts) + "."


COLUMNS = ("what", "measured", "beside", "value", "budget", "verdict")
