"""Runs a folder in mlx-lm on the CPU, in a process of its own: ``python mlx_child.py FOLDER IDS.npy OUT.npy``.

With ``convert`` as fourth argument and options after it, FOLDER is converted by mlx-lm to OUT instead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    folder, ids, out = sys.argv[1:4]
    if sys.argv[4:5] == ["convert"]:
        from mlx_lm import utils  # what mlx_lm.convert does, but for the tokenizer

        mode, bits, group = sys.argv[5], int(sys.argv[6]), int(sys.argv[7])
        plain, config = utils.load_model(Path(folder), lazy=True)
        model, config = utils.quantize_model(plain, config, group, bits, mode=mode)
        utils.save_model(out, model)
        utils.save_config(config, config_path=Path(out) / "config.json")
        return
    from mlx_lm.utils import load_model

    model, _ = load_model(Path(folder), strict=True)
    logits = model(mx.array(np.load(ids)))
    np.save(out, np.array(logits.astype(mx.float32)))


if __name__ == "__main__":
    main()
