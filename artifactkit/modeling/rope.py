"""Rotary positions: transformers' ``rope_parameters`` (5) and ``rope_theta``, ``rope_scaling`` (4), and GGUF's keys.

Frequencies follow ``modeling_rope_utils.py``; what llama.cpp wants is a scaling type with its numbers (linear, yarn),
or a tensor of factors by which frequencies are divided: ``rope_freqs`` (llama3), ``rope_factors_*`` (longrope).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..artifact import Step, TensorView
from ..dtypes import BY_NAME
from ..errors import Corrupt, RouteRefused
from ..source import Inline, read_all
from .architecture import Facts, Pairs
from .config import FILE, MISSING, Config, number, shown

READS = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"

_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}
_OF_TYPE: dict[str, set[str]] = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    "longrope": {"factor", "attention_factor", "short_factor", "long_factor", "short_mscale", "long_mscale"},
}
_ALL = set.union(_COMMON, *_OF_TYPE.values())


@dataclass(frozen=True, slots=True)
class Rope:
    """How one family's positions turn. ``theta`` and ``partial`` are the config class's defaults.

    ``types`` are the scaling types that llama.cpp computes for the family. ``dims`` names the config key of the size
    that is turned when it is not the head's. ``su`` are older names of longrope.
    """

    theta: float = 10000.0
    partial: float | None = None
    types: tuple[str, ...] = ("default", "linear", "yarn")
    dims: str = ""
    write_dims: bool = True
    write_none: bool = False
    su: tuple[str, ...] = ()
    runtime: str = "llama.cpp"  # whose types these are
    original: bool = False  # whether the config class has ``original_max_position_embeddings`` of its own

    def parameters(self, config: Config) -> dict[str, object]:
        """The parameters as transformers 5 standardises them, complete; raises for what is not understood."""
        given: object = config["rope_scaling"] or config["rope_parameters"] or {}
        where = "rope_scaling" if config["rope_scaling"] else "rope_parameters"
        if not isinstance(given, dict):
            raise config.wrong(where, "an object")
        return self.standard(dict(given), config, where)

    def standard(self, out: dict[str, object], config: Config, where: str) -> dict[str, object]:
        """``out`` completed with the config's other keys and the family's defaults, and checked."""
        theta = config["rope_theta"] if config.given("rope_theta") else self.theta
        if out.get("rope_theta") is None:
            out["rope_theta"] = theta
        partial = config["partial_rotary_factor"] if config.given("partial_rotary_factor") else self.partial
        if out.get("partial_rotary_factor") is None and partial is not None:
            out["partial_rotary_factor"] = partial
        kind = str(out.get("rope_type") or out.get("type") or "default")
        kind = "longrope" if kind in self.su else kind
        out["rope_type"] = kind
        out.pop("type", None)
        if kind not in self.types:
            raise RouteRefused(
                f"rope type {kind!r} is not computed by {self.runtime} for this family", file=config.file, member=where,
                expected=" or ".join(self.types), found=kind,
            )  # fmt: skip
        for key, value in out.items():
            if key not in _ALL and value is not None:
                raise RouteRefused(
                    f"{where}.{key} is not understood, and may change what the model computes", file=config.file,
                    member=where, expected=", ".join(sorted(_COMMON | _OF_TYPE[kind])), found=shown(value),
                )  # fmt: skip
        if kind in ("llama3", "yarn", "longrope"):
            if config["original_max_position_embeddings"] is not None:  # it goes before what the object says
                out["original_max_position_embeddings"] = config["original_max_position_embeddings"]
            elif out.get("original_max_position_embeddings") is None:
                out["original_max_position_embeddings"] = config["max_position_embeddings"]
        for key in _COMMON | _OF_TYPE[kind]:
            if key in out and key not in ("rope_type", "type", "short_factor", "long_factor", "truncate"):
                if out[key] is not None:
                    number(out[key], f"{where}.{key}", config.file)
        return out

    def head(self, config: Config) -> int:
        if self.dims:
            return config.count(self.dims)
        return config.opt_count("head_dim") or config.count("hidden_size") // config.count("num_attention_heads")

    def rotated(self, config: Config, rope: Mapping[str, object]) -> int:
        """How many of a head's dimensions are turned."""
        partial = rope.get("partial_rotary_factor")
        return int(
            self.head(config) * (1.0 if partial is None else number(partial, "partial_rotary_factor", config.file))
        )

    def facts(self) -> Facts:
        return Facts(READS, self._forward, self._inverse, self._made, (FREQS, LONG, SHORT))

    def _forward(self, config: Config) -> Iterable[tuple[str, str, object]]:
        rope = self.parameters(config)
        dims = self.rotated(config, rope)
        if self.write_dims:
            yield "rope.dimension_count", "u32", dims
        yield "rope.freq_base", "f32", rope["rope_theta"]
        yield from self.scaling(config, rope)

    def scaling(self, config: Config, rope: Mapping[str, object]) -> Iterable[tuple[str, str, object]]:
        """The pairs under ``rope.scaling``."""
        kind = rope["rope_type"]
        if kind == "default":
            if self.original:
                yield "rope.scaling.original_context_length", "u32", config.count("original_max_position_embeddings")
            if self.write_none:
                yield "rope.scaling.type", "string", "none"
            return
        if kind in ("linear", "yarn"):
            yield "rope.scaling.type", "string", kind
            yield "rope.scaling.factor", "f32", _need(rope, "factor", config)
        if kind == "yarn":
            yield from self._yarn(config, rope)
        if kind == "longrope":
            yield "rope.scaling.type", "string", kind
            yield "rope.scaling.original_context_length", "u32", rope["original_max_position_embeddings"]
            yield "rope.scaling.attn_factor", "f32", longrope_attention(config, rope)

    def _yarn(self, config: Config, rope: Mapping[str, object]) -> Iterable[tuple[str, str, object]]:
        yield "rope.scaling.original_context_length", "u32", rope["original_max_position_embeddings"]
        if rope.get("truncate") is False:
            raise RouteRefused(
                "yarn without truncation is not computed by llama.cpp", file=config.file, member="rope_parameters",
                expected="truncate true", found="false",
            )  # fmt: skip
        factor = _need(rope, "factor", config)
        attention = yarn_attention(rope, factor)
        usual = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
        if not math.isclose(attention, usual, rel_tol=1e-7):
            yield "rope.scaling.attn_factor", "f32", attention / usual
        for key, value in (("beta_fast", 32.0), ("beta_slow", 1.0)):  # llama.cpp's own, which the file cannot change
            if rope.get(key) not in (None, value):
                raise RouteRefused(
                    f"yarn with another {key} is not computed by llama.cpp for this family", file=config.file,
                    member="rope_parameters", expected=f"{key} {value:g}", found=shown(rope[key]),
                )  # fmt: skip

    def _made(self, config: Config) -> Iterable[TensorView]:
        rope = self.parameters(config)
        half = self.rotated(config, rope) // 2
        if rope["rope_type"] == "llama3":
            yield made(FREQS, llama3_factors(config, rope, half * 2))
        if rope["rope_type"] == "longrope":
            for name, key in ((LONG, "long_factor"), (SHORT, "short_factor")):
                values = rope.get(key)
                if not isinstance(values, list) or len(values) != half:
                    found = len(values) if isinstance(values, list) else shown(values)
                    raise Corrupt(
                        f"{key} has no meaning", file=config.file, member="rope_parameters",
                        expected=f"a list of {half} numbers", found=found,
                    )  # fmt: skip
                yield made(name, [number(v, key, config.file) for v in values])

    def _inverse(self, pairs: Pairs, tensors: Mapping[str, TensorView]) -> Mapping[str, object]:
        theta = 10000.0 if pairs.get("rope.freq_base") is None else pairs.real("rope.freq_base")
        rope: dict[str, object] = {"rope_theta": theta, "rope_type": "default"}
        kind = pairs.get("rope.scaling.type")
        out: dict[str, object] = {}
        if kind in ("linear", "yarn"):
            factor = pairs.real("rope.scaling.factor")
            rope |= {"rope_type": kind, "factor": factor}
            if kind == "yarn":
                rope["original_max_position_embeddings"] = pairs.count("rope.scaling.original_context_length")
                if pairs.get("rope.scaling.attn_factor") is not None:
                    usual = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
                    rope["attention_factor"] = float(f"{pairs.real('rope.scaling.attn_factor') * usual:.7g}")
        if LONG in tensors and SHORT in tensors:
            rope["rope_type"] = "longrope"
            rope["long_factor"], rope["short_factor"] = floats(tensors[LONG]), floats(tensors[SHORT])
            original = pairs.count("rope.scaling.original_context_length")
            (out if self.original else rope)["original_max_position_embeddings"] = original
            given = pairs.real("rope.scaling.attn_factor")
            if not math.isclose(
                given, _longrope_usual(pairs.count("context_length") / original, original), rel_tol=1e-6
            ):
                rope["attention_factor"] = given
        elif FREQS in tensors:
            rope |= {"rope_type": "llama3", **fit_llama3(tensors[FREQS], theta, pairs)}
        if self.original and pairs.get("rope.scaling.original_context_length") is not None:
            out["original_max_position_embeddings"] = pairs.count("rope.scaling.original_context_length")
        dims = pairs.get("rope.dimension_count")
        if self.partial is not None and isinstance(dims, int):
            rope["partial_rotary_factor"] = dims / self._head_of(pairs)
        return {"rope_parameters": rope, **out}

    def _head_of(self, pairs: Pairs) -> int:
        key = pairs.get("attention.key_length")
        if isinstance(key, int) and key > 0:
            return key
        return max(1, pairs.count("embedding_length") // pairs.count("attention.head_count"))


def _need(rope: Mapping[str, object], key: str, config: Config) -> float:
    if rope.get(key) is None:
        raise Corrupt(
            f"rope type {rope['rope_type']} needs {key}", file=config.file, member="rope_parameters",
            expected=f"a number {key}", found="none",
        )  # fmt: skip
    return number(rope[key], key, config.file)


def yarn_attention(rope: Mapping[str, object], factor: float) -> float:
    """What transformers multiplies cosine and sine with (``_compute_yarn_parameters``)."""

    def mscale(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    given = rope.get("attention_factor")
    if given is not None:
        return number(given, "attention_factor")
    top, bottom = rope.get("mscale"), rope.get("mscale_all_dim")
    if top and bottom:
        return mscale(number(top, "mscale")) / mscale(number(bottom, "mscale_all_dim"))
    return mscale(1.0)


def longrope_attention(config: Config, rope: Mapping[str, object]) -> float:
    """What transformers multiplies cosine and sine with (``_compute_longrope_parameters``)."""
    given = rope.get("attention_factor")
    if given is not None:
        return number(given, "attention_factor", config.file)
    original = number(rope["original_max_position_embeddings"], "original_max_position_embeddings", config.file)
    if original < 1:
        raise config.wrong("original_max_position_embeddings", "a whole number above 0")
    factor = rope.get("factor")
    if factor:
        scale = number(factor, "factor", config.file)
    else:
        scale = config.count("max_position_embeddings") / original
    return _longrope_usual(scale, original)


def _longrope_usual(scale: float, original: float) -> float:
    return math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1.0 and original > 1 else 1.0


def llama3_factors(config: Config | None, rope: Mapping[str, object], dims: int) -> list[float]:
    """By what each frequency is divided (``_compute_llama3_parameters``), in f32 steps as torch takes them."""
    import numpy as np

    theta, factor, low, high, original = (
        number(rope.get(key), f"rope_parameters.{key}")
        for key in ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    f32 = np.float32
    exponents = np.arange(0, dims, 2, dtype=f32) / f32(dims)
    frequencies = f32(1.0) / np.power(f32(theta), exponents, dtype=f32)
    if high == low or min(theta, factor, low, high, original) <= 0:
        raise Corrupt(
            "llama3's factors have no meaning", file=FILE, member="rope_parameters",
            expected="numbers above 0, low_freq_factor unlike high_freq_factor",
            found=shown([theta, factor, low, high, original]),
        )  # fmt: skip
    out = []
    for frequency in frequencies:
        wave = f32(2 * math.pi) / frequency
        if wave < original / high:
            out.append(1.0)
        elif wave > original / low:
            out.append(factor)
        else:
            smooth = (f32(original) / wave - f32(low)) / f32(high - low)
            out.append(float(f32(1.0) / ((f32(1.0) - smooth) / f32(factor) + smooth)))
    return out


def fit_llama3(view: TensorView, theta: float, pairs: Pairs) -> dict[str, object]:
    """The parameters that give these factors. A common multiple of the three lengths changes nothing: low is 1 here."""
    wanted = floats(view)
    factor = max(wanted, default=0.0)
    context = pairs.get("context_length")
    lengths = [8192, *(1 << n for n in range(5, 21)), *([context] if isinstance(context, int) else [])]
    for original in lengths:
        for high in (4.0, 2.0, 8.0, 16.0, 32.0):
            rope: dict[str, object] = {
                "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }  # fmt: skip
            found = llama3_factors(None, {**rope, "rope_theta": theta}, 2 * len(wanted))
            if all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(found, wanted, strict=True)):
                return rope
    raise RouteRefused(
        "the factors of rope_freqs are not llama3's of any usual length", tensor=FREQS, found=shown(wanted),
        hint="transformers has no other way to hold them",
    )  # fmt: skip


def made(name: str, values: list[float]) -> TensorView:
    """A small f32 tensor computed from config.json."""
    data = struct.pack(f"<{len(values)}f", *values)
    step = Step("made", "from rope_parameters")
    return TensorView(name, BY_NAME["f32"], (len(values),), Inline(data, ("", 0)), (FILE,), (step,))


def floats(view: TensorView) -> list[float]:
    """The values of a small f32 tensor, each as the shortest decimal that is that f32."""
    import numpy as np

    if view.dtype.name != "f32" or view.nbytes > 1 << 20:
        raise Corrupt("rotary factors are a short list of f32", tensor=view.name, found=f"{view.dtype}")
    return [float(str(v)) for v in np.frombuffer(read_all(view.source), "<f4")]


__all__ = ["MISSING", "READS", "Rope", "floats", "made"]
