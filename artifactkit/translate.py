"""Which model family a config.json or a GGUF file is of, and its tensors in the other world's names.

``plan`` leads from a checkpoint of transformers to GGUF, ``from_gguf`` back. Both only plan: no tensor byte is read.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import replace

from . import ggml, registry, trees
from .artifact import Companion, Weights
from .containers import strict_json
from .errors import Corrupt, LimitExceeded, RouteRefused
from .modeling.architecture import CLASS_KEY, Architecture, Pairs
from .modeling.backward import from_gguf as _from_gguf
from .modeling.config import FILE, INERT, OFF
from .modeling.forward import to_gguf
from .source import Inline
from .tokens import attach
from .types import OutputFile, Part

CONFIG = FILE
MAX_CONFIG = 16 << 20  # bytes; the longest there is has some hundred kilobytes


def read_config(companions: tuple[Companion, ...]) -> tuple[dict[str, object], str] | None:
    """(config.json parsed, its path) if it is among the files beside the weights; Corrupt when it is no JSON object."""
    path = next((c.path for c in companions if c.name == CONFIG), None)
    if path is None:
        return None
    file = trees.open_file(path)
    if file.size > MAX_CONFIG:
        raise LimitExceeded("config.json is too large to be one", file=path, found=f"{file.size} bytes")
    parsed = strict_json.loads(file.read(0, file.size), what=CONFIG, file=path)
    twice = strict_json.duplicate(parsed)
    if twice is not None:
        raise Corrupt("a key comes twice in config.json", file=path, member=twice)
    if not isinstance(parsed, dict):
        raise Corrupt("config.json is no object", file=path, expected="a JSON object", found=type(parsed).__name__)
    return parsed, path


def config_file(entries: Mapping[str, object]) -> OutputFile:
    """config.json as transformers writes it: indented, keys sorted."""
    data = json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    return OutputFile(CONFIG, len(data), (Part(0, Inline(data)),))


def plan(
    config: Mapping[str, object], weights: Weights, file: str = CONFIG, pre_tokenizer: str | None = None,
    tokenizer: bool = True,
) -> tuple[Architecture, Weights]:  # fmt: skip
    """(the family, ``weights`` under GGUF names with ``keyvalues``): what a GGUF file of this checkpoint holds.

    ``config`` is the parsed config.json, ``file`` its name for messages. The tokenizer is the one beside the weights,
    if it is wanted; ``pre_tokenizer`` names how it cuts text. Raises RouteRefused for an unknown family, a config key
    or a tensor that no rule explains, and as ``tokens.attach.to_gguf``; Corrupt for a missing tensor.
    """
    arch = architecture_of(config, weights, file)
    made = to_gguf(arch, dict(config), weights, file)
    embedding = made.tensors.get(arch.embedding)
    if not tokenizer or embedding is None:
        return arch, made
    return arch, attach.to_gguf(made, config, embedding.shape[0], pre_tokenizer)


def from_gguf(weights: Weights, file: str = "") -> tuple[Architecture, dict[str, object], Weights]:
    """(the family, config.json, tensors under transformers' names) from the tensors and ``keyvalues`` of a GGUF file.

    Tensors must be of plain types. Raises RouteRefused for an unknown family or an unexplained tensor.
    """
    pairs = Pairs("", weights.keyvalues, file)
    gguf = pairs.need("general.architecture")
    if not isinstance(gguf, str):
        raise Corrupt("general.architecture is no text", file=file or None, found=gguf)
    arch = _of_file(gguf, Pairs(gguf, weights.keyvalues, file), file)
    entries, named = _from_gguf(arch, Pairs(gguf, weights.keyvalues, file), weights)
    return arch, entries, named


def in_words_of(weights: Weights, other: Weights) -> Weights:
    """``weights`` under the names, in the row orders and with the facts that ``other``'s format has for their model.

    A checkpoint beside a GGUF file becomes what that file should hold; a GGUF file beside a checkpoint folder, what the
    folder should. Anything else stays as it is. Raises as ``plan`` and ``from_gguf``. No tensor byte is read.
    """
    if "mlx" in (weights.format, other.format):
        return _in_words_of_mlx(weights, other)
    if (weights.format == "gguf") == (other.format == "gguf"):
        return weights
    if other.format == "gguf":
        read = read_config(weights.companions)
        if read is None or not other.keyvalues:
            return weights
        held = {pair.key: pair.value for pair in other.keyvalues if not pair.is_array}
        model, pre = held.get("tokenizer.ggml.model"), held.get("tokenizer.ggml.pre")
        # How text is cut is what the file says: whether that gives the right ids is for llama.cpp to show.
        given = pre if model == "gpt2" and isinstance(pre, str) else None
        return plan(read[0], weights, read[1], given, tokenizer=model is not None)[1]
    if not weights.keyvalues or read_config(other.companions) is None:
        return weights
    plain = {
        name: replace(t, dtype=ggml.F32, source=ggml.dequantized(t.source, t.dtype)) if t.dtype.block > 1 else t
        for name, t in weights.tensors.items()
    }
    named = from_gguf(replace(weights, tensors=plain))[2]
    return replace(named, keyvalues=())


def _in_words_of_mlx(weights: Weights, other: Weights) -> Weights:
    """A checkpoint beside an MLX folder under mlx-lm's names; an MLX folder beside a checkpoint under transformers'."""
    from .modeling.mlx_forward import from_mlx, to_mlx

    read = read_config(weights.companions)
    if weights.format == other.format or read is None or weights.keyvalues or other.keyvalues:
        return weights
    entries = {key: value for key, value in read[0].items() if key not in ("quantization", "quantization_config")}
    arch = architecture_of(entries, None, read[1])
    if other.format == "mlx":
        return to_mlx(arch, entries, weights, read[1])[1]
    return from_mlx(arch, entries, weights, read[1])


def _of_file(gguf: str, pairs: Pairs, file: str) -> Architecture:
    families = [arch for arch in registry.architectures().values() if arch.gguf == gguf]
    given = pairs.get(CLASS_KEY)
    for arch in families:
        if given in arch.classes:
            return arch
    for arch in families:
        if arch.also is None or arch.also(pairs):
            return arch
    known = sorted({arch.gguf for arch in registry.architectures().values()})
    near = difflib.get_close_matches(gguf, known, n=3)
    raise RouteRefused(
        f"no rules for models of the architecture {gguf!r}", file=file or None, member="general.architecture",
        expected=", ".join(near or known), found=gguf,
    )  # fmt: skip


def architecture_of(config: Mapping[str, object], weights: Weights | None = None, file: str = CONFIG) -> Architecture:
    """The family that config.json names by ``architectures``, or, without that, by ``model_type``."""
    classes = config.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else None
    families = registry.architectures().values()
    for arch in families:
        if name in arch.classes:
            return arch
    model_type = config.get("model_type")
    if name is None:
        for arch in families:
            if model_type == arch.model_type:
                return arch
    raise _unknown(name, config, weights, file)


def _unknown(name: object, config: Mapping[str, object], weights: Weights | None, file: str) -> RouteRefused:
    """The refusal of a family without rules: which known ones are nearest, and in what they differ."""
    names = _templates(weights)
    scored = sorted(
        ((_likeness(arch, config, names), arch.name, arch) for arch in registry.architectures().values()),
        key=lambda s: (-s[0], s[1]),
    )
    lines = []
    for score, _, arch in scored[:2]:
        keys = sorted(k for k, v in config.items() if v is not None and k not in {*arch.known_keys(), *INERT, *OFF})
        tensors = sorted(n for n in names if n not in _sources(arch) and not _dropped(arch, n))
        differs = [
            *(["config keys " + ", ".join(keys[:6]) + (" ..." if len(keys) > 6 else "")] if keys else []),
            *(["tensors " + ", ".join(tensors[:4]) + (" ..." if len(tensors) > 4 else "")] if tensors else []),
        ]
        lines.append(f"{arch.name} ({arch.classes[0]}; {round(100 * score)} % alike; differs in "
                     f"{'; '.join(differs) or 'its name alone'})")  # fmt: skip
    return RouteRefused(
        "no rules for models of this class" if name else "config.json names no class of models", file=file,
        member="architectures", expected="the nearest: " + "; ".join(lines),
        found=str(name or config.get("model_type")),
        hint="docs/add-an-architecture.md shows how one is added",
    )  # fmt: skip


def _templates(weights: Weights | None) -> set[str]:
    """Tensor names with numbers of layers and experts taken out."""
    if weights is None:
        return set()
    return {_template(name) for name in list(weights.tensors)[:100_000]}


def _template(name: str) -> str:
    return re.sub(r"\.\d+(?=\.)", ".{n}", name)


def _sources(arch: Architecture) -> set[str]:
    return {_template(re.sub(r"\{[be]\}", "0", source)) for row in arch.rows for source in row.sources}


def _dropped(arch: Architecture, name: str) -> bool:
    return any(re.fullmatch(drop.pattern, name.replace("{n}", "0")) for drop in arch.drops)


def _likeness(arch: Architecture, config: Mapping[str, object], names: set[str]) -> float:
    """Between 0 and 1: shared config keys and shared tensor names, each as a part of all."""
    mine = {k for k in config if k not in INERT and k not in OFF}
    theirs = arch.known_keys() - INERT - OFF.keys()
    keys = len(mine & theirs) / max(1, len(mine | theirs))
    if not names:
        return keys
    sources = _sources(arch)
    return (keys + 2 * len(names & sources) / len(names | sources)) / 3
