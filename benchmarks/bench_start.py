"""How long commands take to start: processor time of whole processes, the least of 15 alternated runs.

Beside them a bare interpreter, and a typer application without commands of its own, with rich help and without.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import COLUMNS, OURS, ROOT, Table, alternated

EMPTY = """
import typer
app = typer.Typer(rich_markup_mode={mode!r})
@app.command()
def main(): "Nothing."
app()
"""
FIXTURES = ROOT / "fixtures" / "make.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--big", default="2GB", help="size of the large checkpoint")
    parser.add_argument("--folder", type=Path, help="where to make it (default: the temporary folder)")
    parser.add_argument("--write", action="store_true", help="write the figures to RESULTS.md")
    args = parser.parse_args()
    table = Table("Starting", COLUMNS)
    with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
        work = Path(temporary)
        subprocess.run([sys.executable, FIXTURES, work, "--only", "plain.pt"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [sys.executable, FIXTURES, work / "big.pt", "--big", args.big], check=True, stdout=subprocess.DEVNULL
        )
        found = alternated(
            {
                "python -c pass": [sys.executable, "-c", "pass"],
                "an empty typer app, --help with rich": [sys.executable, "-c", EMPTY.format(mode="rich"), "--help"],
                "an empty typer app, --help": [sys.executable, "-c", EMPTY.format(mode=None), "--help"],
                "artifactkit --help": [*OURS, "--help"],
                "artifactkit inspect, a small checkpoint": [*OURS, "inspect", str(work / "plain.pt")],
                f"artifactkit inspect, {args.big} of float32": [*OURS, "inspect", str(work / "big.pt")],
            },
            args.runs,
        )
    empty = min(c.cpu for c in found["an empty typer app, --help"]) * 1000
    limits = {name: 300.0 for name in found if args.big in name}
    for name, costs in found.items():
        cpu = min(c.cpu for c in costs) * 1000
        memory = max(c.memory for c in costs)
        table.row(
            name, f"{memory:.0f} MB at the peak", f"{cpu / empty:.2f} x the empty app", cpu, limits.get(name), "ms CPU"
        )
    if args.write:
        table.write()
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
