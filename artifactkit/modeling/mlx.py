"""What mlx-lm computes of a model family, and where it looks for what config.json says (mlx-lm 0.32, ``models/``).

mlx-lm reads keys at the top of config.json, as transformers 4 wrote them, and puts defaults of its own where it finds
none; transformers 5 writes ``rope_parameters`` and leaves out what is a default. So every key that mlx-lm reads is
written, with the value that transformers computes with; what it does not look at has to be what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..errors import RouteRefused
from ..report import Loss
from .config import Config, number, shown
from .rope import Rope, yarn_attention

# Config keys that mlx-lm reads in nearly every family.
WIDTHS = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "num_key_value_heads",
          "vocab_size")  # fmt: skip
CONTEXT, TIED = "max_position_embeddings", "tie_word_embeddings"
LLAMA = (*WIDTHS, "rms_norm_eps", CONTEXT, TIED)

Check = Callable[[Config], None]
Entries = Callable[[Config], Mapping[str, object]]


def _none(config: Config) -> Mapping[str, object]:
    return {}


def _no_losses(config: Config) -> list[Loss]:
    return []


@dataclass(frozen=True, slots=True)
class Mlx:
    """One family in mlx-lm.

    ``reads`` are config keys that it takes under their own names; ``also`` gives entries under other names, made of the
    keys in ``uses``. ``fixed`` are keys that it does not look at, with the values for which it computes the same;
    ``told`` those whose other values are a loss that is told, in words. ``rope`` has the scaling types that it
    computes; ``partial`` says whether it reads ``partial_rotary_factor``. ``ties`` is whether it takes the embedding
    for the output matrix where the config says so, ``always_ties`` whether it knows no other. ``experts`` is the name
    of stacked experts, with ``{part}`` for gate_proj, up_proj and down_proj. ``names`` are (regular expression,
    replacement) for names, ``turned`` matches matrices that transformers keeps as input x output. ``plain`` matches
    matrices that are never quantised, ``eight`` those that mlx-lm keeps at 8 bits when it quantises.
    """

    reads: tuple[str, ...]
    rope: Rope | None = None
    partial: bool = False
    also: Entries = _none
    uses: tuple[str, ...] = ()
    fixed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    losses: Callable[[Config], list[Loss]] = _no_losses
    ties: bool = True
    always_ties: bool = False
    experts: str = ""
    names: tuple[tuple[str, str], ...] = ()
    turned: str = ""
    plain: str = ""
    eight: str = ""
    gelu: bool = False  # agrees less closely: another form of GELU than transformers computes

    def entries(self, config: Config) -> dict[str, object]:
        """The entries of config.json that mlx-lm reads, complete. Raises RouteRefused for what it does not compute."""
        out: dict[str, object] = {key: config[key] for key in self.reads}
        if self.rope is not None:
            out |= self._rope(self.rope, config)
        return {**out, **self.also(config)}

    def _rope(self, rope: Rope, config: Config) -> dict[str, object]:
        parameters = rope.parameters(config)
        partial = parameters.get("partial_rotary_factor")
        out: dict[str, object] = {"rope_theta": parameters["rope_theta"], "rope_scaling": scaling(parameters, config)}
        if self.partial:
            out["partial_rotary_factor"] = 1.0 if partial is None else partial
        elif partial not in (None, 1, 1.0):
            raise RouteRefused(
                "mlx-lm turns whole heads in this family, this model a part of each", file=config.file,
                member="partial_rotary_factor", expected="1.0", found=shown(partial),
            )  # fmt: skip
        return out

    def known(self) -> set[str]:
        """Config keys that are read, used or fixed."""
        return {*self.reads, *self.uses, *self.fixed}


def scaling(parameters: Mapping[str, object], config: Config) -> dict[str, object] | None:
    """``rope_scaling`` as mlx-lm reads it; None where there is none. Numbers that it has defaults for are written."""
    kind = parameters["rope_type"]
    if kind == "default":
        return None
    out = {"type": kind, "rope_type": kind, "factor": parameters.get("factor")}
    if kind == "linear":
        return out
    out["original_max_position_embeddings"] = parameters["original_max_position_embeddings"]
    if kind == "llama3":
        return {**out, **{key: parameters.get(key) for key in ("low_freq_factor", "high_freq_factor")}}
    if kind == "yarn":
        return {**out, **_yarn(parameters, config)}
    raise RouteRefused(
        f"mlx-lm computes {kind} with the factors for long inputs at every length, transformers only beyond "
        "`original_max_position_embeddings`", file=config.file, member="rope_parameters",
        expected="default, linear, llama3 or yarn", found=kind,
    )  # fmt: skip


def _yarn(parameters: Mapping[str, object], config: Config) -> dict[str, object]:
    if parameters.get("truncate") is False:
        raise RouteRefused(
            "yarn without truncation is not computed by mlx-lm", file=config.file, member="rope_parameters",
            expected="truncate true", found="false",
        )  # fmt: skip
    factor = number(parameters.get("factor"), "factor", config.file)
    attention = yarn_attention(parameters, factor)
    out: dict[str, object] = {
        key: value if parameters.get(key) is None else parameters[key]
        for key, value in (("beta_fast", 32), ("beta_slow", 1))
    }
    out["attention_factor"] = attention  # which transformers reads, should it load the folder
    # mlx-lm has no attention_factor, but computes one: 0.1 mscale ln(factor) + 1, divided by that of mscale_all_dim.
    if factor > 1:
        return {**out, "mscale": (attention - 1.0) / (0.1 * math.log(factor)), "mscale_all_dim": 0}
    if attention != 1.0:
        raise RouteRefused(
            "an attention factor without a scaling factor is not computed by mlx-lm", file=config.file,
            member="rope_parameters", expected="attention_factor 1.0", found=shown(attention),
        )  # fmt: skip
    return {**out, "mscale": 1, "mscale_all_dim": 0}


def whole_heads(config: Config) -> None:
    """A check that a head is the width divided by the heads: the family has no other in mlx-lm."""
    wanted = config.count("hidden_size") // config.count("num_attention_heads")
    if config.opt_count("head_dim") not in (None, wanted):
        raise RouteRefused(
            "mlx-lm divides the width by the heads in this family", file=config.file, member="head_dim",
            expected=wanted, found=config["head_dim"],
        )  # fmt: skip


def gelu_loss(key: str, computed: str) -> Callable[[Config], list[Loss]]:
    """Where mlx-lm computes GELU ("gelu": exactly, "gelu_new": by tanh) and the model the other form."""
    exact = computed == "gelu"

    def losses(config: Config) -> list[Loss]:
        if (config[key] == "gelu") == exact:
            return []
        text = f"{key} {config[key]}: mlx-lm computes GELU {'exactly' if exact else 'by tanh'} in this family"
        return [Loss("function-differs", f"{text}, values differ by up to 5e-4")]

    return losses


def embedding_scale_loss(config: Config) -> list[Loss]:
    """mlx-lm scales Gemma 3's embedding by a bf16 number in every type, transformers by one of the weights' type."""
    exact = math.sqrt(config.count("hidden_size"))
    mantissa, exponent = math.frexp(exact)
    rounded = math.ldexp(round(mantissa * 256), exponent - 8)
    if rounded == exact:
        return []
    text = f"mlx-lm scales the embedding by {rounded:g}, transformers by {exact:.6g} unless the weights are bf16"
    return [Loss("function-differs", text)]


def no_window(used: Callable[[Config], bool] | None = None) -> Check:
    """A check that ``sliding_window``, which mlx-lm does not compute for the family, is never reached."""

    def check(config: Config) -> None:
        size = config.opt_count("sliding_window")
        if size is None or (used is not None and not used(config)):
            return
        if size < config.count("max_position_embeddings"):
            raise RouteRefused(
                "mlx-lm attends to everything in this family, the model to a window", file=config.file,
                member="sliding_window", expected=f"at least {config['max_position_embeddings']}", found=size,
                hint=f"where no input is longer than {size} tokens the two are one: say so with "
                     f"max_position_embeddings {size} in config.json",
            )  # fmt: skip

    return check
