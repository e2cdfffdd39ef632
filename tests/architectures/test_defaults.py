"""Defaults of each family against transformers' own config class, and the recorded models against what it saves now."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_models as tiny

from artifactkit import registry
from artifactkit.modeling.architecture import Architecture
from artifactkit.translate import architecture_of

pytestmark = pytest.mark.slow
FAMILIES = list(registry.architectures().values())

# What a config class forgets where another key says that it is not used.
UNUSED = {"sliding_window": "use_sliding_window"}
# Keys of other versions than the class's, kept for files that have them.
OLDER = {"n_positions", "global_attn_every_n_layers"}


# (family, key) for which the config class or the model's code has no use for null: no such model can be loaded.
NO_NULL = {
    *((name, "num_key_value_heads") for name in ("mistral", "mixtral", "qwen3_moe", "stablelm", "starcoder2")),
    *((name, key) for name in ("gemma", "gemma2", "gemma3") for key in ("num_key_value_heads", "head_dim")),
    ("qwen3", "head_dim"), ("qwen3_moe", "head_dim"), ("qwen2_moe", "num_key_value_heads"),
}  # fmt: skip


def config_class(arch: Architecture) -> Any:
    import transformers  # here, so that the quick tier does not wait for it

    return getattr(transformers, arch.classes[0]).config_class


def model_of(arch: Architecture, config: Any) -> Any:
    """The family's model, without weights."""
    import torch
    import transformers

    with torch.device("meta"):
        return getattr(transformers, arch.classes[0])(config)


@pytest.mark.parametrize("arch", FAMILIES, ids=lambda a: a.name)
@pytest.mark.parametrize("given", [{}, {"num_hidden_layers": 4, "num_layers": 4, "n_layer": 4, "hidden_size": 64}])
def test_defaults_are_the_config_classes(arch: Architecture, given: dict[str, Any]) -> None:
    raw = {k: v for k, v in given.items() if k in arch.defaults}
    if "hidden_size" in raw and "num_attention_heads" in arch.defaults:
        raw["num_attention_heads"] = 4
    theirs = config_class(arch)(**raw).to_dict()
    mine = arch.config(raw)
    for key in arch.defaults:
        if key in OLDER or (key in UNUSED and not mine[UNUSED[key]] if UNUSED.get(key) in arch.defaults else False):
            continue
        if key not in theirs:  # read by the model's code alone, when it is there
            assert key in arch.when_null, key
        elif theirs[key] is not None or key not in arch.when_null:  # else the model's code fills it in
            assert mine[key] == theirs[key], key


@pytest.mark.parametrize(
    ("arch", "key"),
    [(a, k) for a in FAMILIES for k in ("num_key_value_heads", "head_dim", "layer_types") if k in a.defaults],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_null_means_what_the_config_class_makes_of_it(arch: Architecture, key: str) -> None:
    from huggingface_hub.errors import StrictDataclassFieldValidationError

    raw: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, key: None}
    if (arch.name, key) in NO_NULL:
        with pytest.raises((StrictDataclassFieldValidationError, TypeError)):
            model_of(arch, config_class(arch)(**raw))
        return
    theirs = config_class(arch)(**raw)
    filled, mine = theirs.to_dict()[key], arch.config(raw)[key]
    if filled is None and mine is not None:  # what the class leaves to the model's code, and the rules do not
        filled = next(getattr(m, key) for m in model_of(arch, theirs).modules() if hasattr(m, key))
    assert mine == filled


@pytest.mark.parametrize("model", tiny.MODELS)
def test_the_recorded_config_is_what_transformers_saves(model: str) -> None:
    import transformers

    cls, arguments = tiny.MODELS[model]
    made = getattr(transformers, cls).config_class(**arguments).to_dict()
    recorded = tiny.config(model)
    arch = architecture_of(recorded)
    for key in arch.defaults.keys() & made.keys():
        if made[key] is not None:  # else the model's code has filled it in
            assert made[key] == recorded.get(key, made[key]), key
