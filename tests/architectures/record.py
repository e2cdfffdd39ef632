"""Makes ``saved.json`` and ``converter.json``: what transformers and llama.cpp's converter say of the tiny models.

``python record.py saved`` needs torch and transformers 5; ``python record.py converter`` needs llama.cpp's own
converter (the package convert-hf-to-gguf 0.1.1, in an environment of its own, as it replaces ``gguf``) and reads
``saved.json``. ``tests`` must be on the path.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import tiny_models as tiny

HERE = Path(__file__).parent


def saved() -> None:
    import torch
    import transformers
    from safetensors import safe_open

    out: dict[str, Any] = {}
    for name, (cls, arguments) in tiny.MODELS.items():
        model_class = getattr(transformers, cls)
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**json.loads(json.dumps(arguments))))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
            with safe_open(Path(folder) / "model.safetensors", "np") as file:
                shapes = {key: list(file.get_slice(key).get_shape()) for key in sorted(file.keys())}
        out[name] = {"config": config, "tensors": shapes}
    write("saved.json", out)


def converter() -> None:
    import importlib.util

    import gguf
    import torch
    from conversion import ModelBase, get_model_class  # type: ignore[import-not-found]

    assert importlib.util.find_spec("convert_hf_to_gguf"), "llama.cpp's converter is not here"
    torch.set_num_threads(1)
    out: dict[str, Any] = {}
    for name, (cls, _) in tiny.MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            model_dir, target = tiny.write(name, Path(folder) / "model"), Path(folder) / "out.gguf"
            entries = {f"<{i}>": i for i in range(tiny.saved()[name]["config"]["vocab_size"])}
            vocabulary = {"model": {"vocab": entries}, "added_tokens": []}  # Gemma 3's converter counts it
            (model_dir / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
            try:
                hparams = ModelBase.load_hparams(model_dir, False)
                chosen = get_model_class(cls, mmproj=False)
                chosen.set_vocab = lambda self: None
                if hasattr(chosen, "_is_tokenizer_xlmroberta"):
                    chosen._is_tokenizer_xlmroberta = lambda self: False
                with torch.inference_mode():
                    made = chosen(model_dir, gguf.LlamaFileType.ALL_F32, target, hparams=hparams)
                    made.write()
            except Exception as error:  # noqa: BLE001 - the reason is what is recorded
                out[name] = {"refused": f"{type(error).__name__}: {error}"[:120]}
                continue
            reader = gguf.GGUFReader(target)
            pairs = {
                key: field.contents() for key, field in reader.fields.items()
                if not key.startswith(("GGUF.", "general.", "tokenizer."))
            }  # fmt: skip
            digests = {
                t.name: [[int(n) for n in reversed(t.shape)], hashlib.sha256(t.data.tobytes()).hexdigest()[:16]]
                for t in sorted(reader.tensors, key=lambda t: t.name)
            }
            out[name] = {"keyvalues": pairs, "tensors": digests}
    write("converter.json", out)


def write(file: str, table: dict[str, Any]) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in table.items())
    (HERE / file).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    {"saved": saved, "converter": converter}[sys.argv[1]]()
