"""The tiny models of ``tiny_models`` as mlx-lm knows them: windows out of reach, blocks as wide as it has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tiny_models import MODELS, saved, values

Kwargs = dict[str, Any]
WIDE: Kwargs = {"hidden_size": 64, "intermediate_size": 128}

# What is changed of a model's config before it is built; None: mlx-lm does not compute it as it is, and it is refused.
CHANGED: dict[str, Kwargs] = {
    "gemma2": {"sliding_window": 512},
    "gemma3": WIDE,  # 8.0 is a bf16 number: see Mlx.losses
    "gpt2": {"n_inner": None},
    "gpt_neox": {"intermediate_size": 192},
    "gpt_neox_serial": {"intermediate_size": 192},
}
# model -> what the refusal says
REFUSED: dict[str, str] = {
    "llama_longrope": "rope type 'longrope' is not computed by mlx-lm",
    "phi3_longrope": "rope type 'longrope' is not computed by mlx-lm",
    "gemma2": "mlx-lm attends to everything in this family",
    "gemma3_linear": "final_logit_softcapping has a value that mlx-lm's gemma3 does not compute",
    "gpt2": "mlx-lm's gpt2 has a feed-forward block four times as wide",
    "gpt_neox": "mlx-lm's gpt_neox has a feed-forward block four times as wide",
    "gpt_neox_serial": "mlx-lm's gpt_neox has a feed-forward block four times as wide",
    "falcon_7b": "mlx-lm has no models of the family falcon",
    "falcon_11b": "mlx-lm has no models of the family falcon",
    "falcon_40b": "mlx-lm has no models of the family falcon",
}
DECODERS = [name for name, (cls, _) in MODELS.items() if "CausalLM" in cls or "LMHead" in cls]
RUN = [name for name in DECODERS if name not in REFUSED or name in CHANGED]


def build(name: str, folder: Path, **more: object) -> Path:
    """The model as transformers saves it, with the changes that it needs and ``more``; seeded values."""
    import transformers
    from safetensors.numpy import save_file

    cls, kwargs = MODELS[name]
    given = {**kwargs, **CHANGED.get(name, {}), **more}
    model_class = getattr(transformers, cls)
    model = model_class(model_class.config_class(**given))
    model.save_pretrained(folder)
    from safetensors import safe_open

    arrays: dict[str, np.ndarray] = {}
    with safe_open(folder / "model.safetensors", framework="numpy") as held:
        for tensor in held.keys():  # noqa: SIM118  # it is no dict
            arrays[tensor] = values(name, tensor, list(held.get_slice(tensor).get_shape()))
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder


def config(folder: Path) -> Kwargs:
    loaded: Kwargs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return loaded


def small(tmp_path: Path, width: int = 64, hurt: float | None = None) -> Path:
    """A Llama of the given width."""
    sizes = {"hidden_size": width, "head_dim": 16, "intermediate_size": 96, "vocab_size": 70, "num_hidden_layers": 2}
    entries = {**saved()["llama"]["config"], **sizes}
    shapes = {"model.embed_tokens.weight": [70, width], "model.norm.weight": [width], "lm_head.weight": [70, width]}
    for b in range(2):
        at = f"model.layers.{b}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": [64, width], f"{at}self_attn.k_proj.weight": [32, width],
            f"{at}self_attn.v_proj.weight": [32, width], f"{at}self_attn.o_proj.weight": [width, 64],
            f"{at}mlp.gate_proj.weight": [96, width], f"{at}mlp.up_proj.weight": [96, width],
            f"{at}mlp.down_proj.weight": [width, 96], f"{at}input_layernorm.weight": [width],
            f"{at}post_attention_layernorm.weight": [width],
        }  # fmt: skip
    arrays = {name: values("mlx", name, shape) for name, shape in shapes.items()}
    if hurt is not None:
        arrays["model.layers.1.mlp.up_proj.weight"][5, 7] = hurt
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(entries), encoding="utf-8")
    from safetensors.numpy import save_file

    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder
