"""From the inert values of a pickle to named tensors: which part of a checkpoint its weights are, and their names.

The rule (``choose``), in this order: ``--all`` takes everything; ``--state-dict-key`` what it names; a module instance
gives its state dict; a dict that torch marked as a state dict (``_metadata``) is one; else the first name of
``CHOICES`` (then of ``EMA``) that holds tensors, and within it again while it has no tensors of its own; else the whole
file but for ``TRAINING`` and, under any name, for what has the form of an optimizer's state. What is left out is listed
with its reason, never silently.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from .artifact import Dropped, NamedCode, Skipped, TensorView, Weights
from .checkpoint_walk import (
    Budget,
    Leaf,
    Members,
    access,
    children,
    containers_with_tensors,
    describe,
    everything,
    is_module,
    is_tensor,
    key_text,
    leaves,
    unwrap,
)
from .errors import ArtifactkitError, LimitExceeded, Refused, UsageError, printable
from .pickles import Dict, Machine, Opaque, Payload
from .report import Loss
from .source import read_all
from .tensor_names import ArrayValue, Quant, TensorValue, TorchType, Unsupported
from .tensor_names.values import BOMB_FLOOR, BOMB_RATIO
from .types import ReadOptions

# Where trainers put weights, the most telling name first; a plain copy comes before its moving average.
CHOICES = (
    "state_dict", "model_state_dict", "model_state", "model_weights", "model_dict", "model", "module", "net_state_dict",
    "net_state", "net", "network_state_dict", "network", "params", "parameters", "weights", "generator_state_dict",
    "generator", "netG", "G",
)  # fmt: skip
EMA = (
    "ema_state_dict", "state_dict_ema", "model_ema_state_dict", "model_ema", "ema_model", "ema", "params_ema",
    "ema_params", "g_ema", "G_ema", "shadow_params",
)  # fmt: skip
TRAINING = frozenset({
    "optimizer", "optimizers", "optimizer_state", "optimizer_states", "optimizer_state_dict", "optimizer_state_dicts",
    "optimizer_dict", "optim", "optim_state", "optim_state_dict", "opt", "opt_state", "opt_state_dict", "optimizer_G",
    "optimizer_D", "lr_scheduler", "lr_schedulers", "lr_scheduler_state_dict", "scheduler", "schedulers",
    "scheduler_state", "scheduler_state_dict", "scaler", "grad_scaler", "scaler_state_dict", "amp", "amp_state_dict",
    "amp_scaling_state", "native_amp_scaling_state", "rng_state", "rng_states", "cuda_rng_state", "torch_rng_state",
    "random_state", "last_optimizer_state", "optimizer_history", "callbacks", "loops", "early_stopping",
})  # fmt: skip
WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
OPTIMIZER_STATE = "optimizer and training state"
MAX_SHOWN = 40  # keys listed in a hint
MAX_VALUES = 1000  # values listed of a file that holds no tensors
MAX_QUANT_NUMBERS = 1 << 16


@dataclass(slots=True)
class _Choice:
    """The part that was chosen: the keys that lead to it, why, and what lies beside it on the way."""

    value: object
    keys: tuple[object, ...] = ()
    why: str = "the whole file"
    beside: list[tuple[tuple[object, ...], object]] = field(default_factory=list)


def collect(
    root: object,
    *,
    format: str,
    file: str,
    options: ReadOptions,
    machines: Sequence[Machine] = (),
    file_size: int,
    members: Members | None = None,
    files: tuple[str, ...] = (),
) -> Weights:
    """The weights within ``root``, the value of the pickle of ``file``, chosen and named by the rule above.

    ``machines`` read the file; the names that they did not know are listed as code. ``members`` tells, for a
    TorchScript object, which attributes are parameters, buffers and submodules (None: all of them).

    Raises Refused when two tensors would get one name or one of the chosen is of a kind that no target can hold,
    UsageError when ``--state-dict-key`` names nothing, Corrupt for views outside their storage, LimitExceeded for
    values out of all proportion to ``file_size`` bytes. A file without any tensor gives Weights without tensors.
    """
    if options.everything and members is None:
        members = everything
    budget = Budget(4 * sum(m.opcodes for m in machines) + (1 << 20), file)
    weights = Weights({}, format, files=files or (file,), code=_code(machines, format))
    try:
        root = unwrap(root)
        holding = containers_with_tensors(root, budget, members)
        choice = choose(root, holding, options, members)
        collector = _Collector(weights, options, file, file_size)
        if holding and choice.value == {}:
            pass  # an optimizer's state, all of it beside
        elif holding:
            for leaf in leaves(choice.value, holding, budget, members):
                collector.take(leaf, choice)
        elif is_tensor(root):
            collector.take(Leaf((), root), choice)
        else:  # no weights, but what it is can be shown
            shown: list[tuple[object, object]] = children(root, members)
            parts = [((key,), item) for key, item in shown] if shown else [((), root)]
            weights.skipped += [_skipped(keys, item) for keys, item in parts[:MAX_VALUES]]
        _leave_out(choice, holding, budget, members, weights)
        _module_leftovers(choice.value, budget, members, weights)
    except ArtifactkitError as error:
        raise error.located(file=file) from None
    weights.chosen = printable(choice.why)
    if not weights.tensors:
        weights.notes.append("no tensors here: this file holds no weights")
    if choice.keys and isinstance(choice.value, dict) and any(key in choice.value for key in CHOICES[:2]):
        inner = next(key for key in CHOICES[:2] if key in choice.value)
        weights.notes.append(f"{_dotted(choice.keys)} holds another {inner}: its tensors are named {inner}.*")
    return weights


def _code(machines: Sequence[Machine], format: str) -> list[NamedCode]:
    counts: dict[tuple[str, str], int] = {}
    for unknown in {id(machine.unknown): machine.unknown for machine in machines}.values():  # machines may share one
        for name, count in unknown.items():
            # The classes of TorchScript are defined in the archive, and name nothing that Python could import.
            if not (format in ("torchscript", "torch-package") and (name[0] + ".").startswith("__torch__.")):
                counts[name] = counts.get(name, 0) + count
    return [NamedCode(module, name, counts[(module, name)]) for module, name in sorted(counts)]


# -- choosing


def choose(root: object, holding: set[int], options: ReadOptions, members: Members | None = None) -> _Choice:
    """The part of ``root`` that holds the weights, by the rule at the top of this module."""
    if options.state_dict_key is not None:
        return _by_key(root, holding, options.state_dict_key, members)
    if options.everything:
        return _Choice(root, why="everything (--all)")
    choice = _Choice(root)
    if is_optimizer_state(root):
        return _Choice({}, why="nothing: the whole file is an optimizer's state", beside=[((), root)])
    while isinstance(choice.value, dict) and not (choice.keys and _has_own_tensors(choice.value)):
        here = choice.value
        if isinstance(here, Dict) and "_metadata" in here.attrs:
            break  # torch itself marked it as a state dict
        found = next((name for name in (*CHOICES, *EMA) if id(unwrap(here.get(name))) in holding), None)
        if found is None:
            break
        choice.beside += [((*choice.keys, key), value) for key, value in here.items() if key != found]
        choice.keys = (*choice.keys, found)
        choice.value = unwrap(here[found])
        choice.why = f"{_dotted(choice.keys)} (the first of the usual names that holds tensors)"
        if len(choice.keys) > 16:
            break
    if isinstance(choice.value, dict) and not (isinstance(choice.value, Dict) and "_metadata" in choice.value.attrs):
        kept: dict[object, object] = {}
        for key, value in choice.value.items():
            named = isinstance(key, str) and key in TRAINING and not is_tensor(unwrap(value))
            if named or is_optimizer_state(unwrap(value)):
                choice.beside.append(((*choice.keys, key), value))
            else:
                kept[key] = value
        if len(kept) < len(choice.value):
            was = choice.value
            choice.value = kept
            if id(was) in holding and any(_holds(value, holding) for value in kept.values()):
                holding.add(id(kept))
    elif is_module(choice.value) and not choice.keys:
        choice.why = "the module's state dict"
    return choice


def is_optimizer_state(value: object) -> bool:
    """Whether this is what ``torch.optim.Optimizer.state_dict`` returns."""
    return (
        isinstance(value, dict)
        and len(value) == 2
        and isinstance(unwrap(value.get("state")), dict)
        and isinstance(unwrap(value.get("param_groups")), list)
    )


def _holds(value: object, holding: set[int]) -> bool:
    value = unwrap(value)
    return is_tensor(value) or id(value) in holding


def _has_own_tensors(value: dict[object, object]) -> bool:
    return any(is_tensor(unwrap(item)) for item in value.values())


def _dotted(keys: tuple[object, ...]) -> str:
    return ".".join(key_text(key) or "?" for key in keys)


def _by_key(root: object, holding: set[int], wanted: str, members: Members | None) -> _Choice:
    """Follow ``a.b``; keys may contain dots themselves, so the longest key that fits is taken at each step."""
    value, rest, keys = root, wanted, ()  # type: tuple[object, str, tuple[object, ...]]
    beside: list[tuple[tuple[object, ...], object]] = []
    while rest and len(keys) < 64:
        fitting = [
            (len(text), key, item)
            for key, item in children(value, members)
            if (text := key_text(key)) is not None and text and (rest == text or rest.startswith(text + "."))
        ]
        if not fitting:
            break
        length, key, item = max(fitting, key=lambda found: found[0])
        beside += [((*keys, k), v) for k, v in children(value, members) if k != key]
        keys, value, rest = (*keys, key), unwrap(item), rest[length + 1 :]
    if rest or not _holds(value, holding):
        known = _keys_with_tensors(root, holding, members)
        raise UsageError(
            f"--state-dict-key {wanted}: " + ("no such key" if rest else "it holds no tensors"),
            hint="the file itself is the state dict: leave --state-dict-key out" if not known and holding
            else "keys that hold tensors: " + (", ".join(known[:MAX_SHOWN]) or "none")
            + (f" and {len(known) - MAX_SHOWN} more" if len(known) > MAX_SHOWN else ""),
        )  # fmt: skip
    return _Choice(value, keys, f"{wanted} (--state-dict-key)", beside)


def _keys_with_tensors(root: object, holding: set[int], members: Members | None) -> list[str]:
    """Dotted keys of the containers with tensors, two levels deep."""
    out: list[str] = []
    for key, raw in children(root, members):
        value, text = unwrap(raw), key_text(key)
        if text is None or id(value) not in holding:
            continue
        out.append(text)
        for inner, item in children(value, members):
            below = key_text(inner)
            if below is not None and id(unwrap(item)) in holding:
                out.append(f"{text}.{below}")
    return out


# -- what is left out


def _leave_out(choice: _Choice, holding: set[int], budget: Budget, members: Members | None, weights: Weights) -> None:
    """List what lies beside the chosen part: training state, moving averages, other tensors, other values."""
    averages: dict[str, int] = {}
    for keys, value in choice.beside:
        last = keys[-1] if keys else None
        if (isinstance(last, str) and last in TRAINING) or is_optimizer_state(unwrap(value)):
            why = OPTIMIZER_STATE
        elif isinstance(last, str) and last in EMA:
            why = f"another set of weights, chosen with --state-dict-key {_dotted(keys)}"
        else:
            why = f"outside {_dotted(choice.keys) or 'the chosen part'}, taken with --all"
        for leaf in leaves(value, holding, budget, members, keys):
            if is_tensor(leaf.value):
                weights.dropped.append(Dropped(_dotted(leaf.keys), why, _nbytes(leaf.value)))
                if isinstance(last, str) and last in EMA:
                    averages[_dotted(keys)] = averages.get(_dotted(keys), 0) + 1
            elif not leaf.cycle and why != OPTIMIZER_STATE:
                weights.skipped.append(_skipped(leaf.keys, leaf.value))
    for name, count in averages.items():
        weights.notes.append(f"{name} holds moving averages of the weights ({count} tensors): --state-dict-key {name}")


def _nbytes(value: object) -> int:
    if isinstance(value, ArrayValue):
        value = value.tensor()
    return value.nbytes if isinstance(value, TensorValue | Unsupported) else 0


def _skipped(keys: tuple[object, ...], value: object) -> Skipped:
    kind, text = describe(value)
    return Skipped(printable(_dotted(keys)), printable(kind), text)


def _module_leftovers(root: object, budget: Budget, members: Members | None, weights: Weights) -> None:
    """Tensors that modules keep as plain attributes, or in buffers that they do not save."""
    pending: list[tuple[tuple[object, ...], object]] = [((), root)]
    seen: set[int] = set()
    why = "not in the module's state dict: a plain attribute, or a buffer that is not saved"
    while pending:
        path, module = pending.pop()
        if not isinstance(module, Opaque) or not is_module(module) or id(module) in seen:
            continue
        seen.add(id(module))
        inner, buffers = module.attrs["_modules"], module.attrs["_buffers"]
        if not isinstance(inner, dict) or not isinstance(buffers, dict):
            continue
        budget.spend(len(module.attrs) + len(inner) + len(buffers) + len(path))
        kept = {id(item) for _, item in children(module, members)}
        for key, item in (*module.attrs.items(), *buffers.items()):
            if is_tensor(unwrap(item)) and id(item) not in kept:
                weights.dropped.append(Dropped(_dotted((*path, key)), why, _nbytes(unwrap(item))))
        pending.extend(((*path, key), item) for key, item in reversed(inner.items()))


# -- naming


@dataclass(slots=True)
class _Collector:
    """Turns leaves into tensors with names of their own."""

    weights: Weights
    options: ReadOptions
    file: str
    file_size: int
    paths: dict[str, str] = field(default_factory=dict)  # name -> where it came from, for messages
    repeated: int = 0  # bytes beyond what storages hold

    def take(self, leaf: Leaf, choice: _Choice) -> None:
        value = leaf.value
        if leaf.cycle:
            return
        if not is_tensor(value):
            self.weights.skipped.append(_skipped((*choice.keys, *leaf.keys), value))
            return
        original = self._name(leaf.keys or choice.keys[-1:])
        name = original if self.options.keep_prefix else strip_wrappers(original)
        if isinstance(value, ArrayValue):
            value = value.tensor()
        if isinstance(value, Unsupported):
            self.weights.refused[name] = value.refusal(name)
            return
        if not isinstance(value, TensorValue):
            return
        where = access((*choice.keys, *leaf.keys))
        if name in self.paths:
            raise Refused(
                f"two tensors would be called {name}", file=self.file, tensor=name, expected="one tensor for each name",
                found=f"{self.paths[name]} and {where}",
                hint="--keep-prefix keeps wrapper prefixes apart; --state-dict-key chooses one part of the file",
            )  # fmt: skip
        self.paths[name] = where
        source = value.to_source(self.file_size, original)
        storage = value.storage.source
        self.repeated += max(0, value.nbytes - (storage.nbytes if storage is not None else 0))
        if self.repeated > max(BOMB_FLOOR, BOMB_RATIO * self.file_size):
            raise LimitExceeded("tensors repeat their storages out of all proportion to the file", tensor=original)
        view = TensorView(original, value.dtype, value.logical_shape, source)
        if name != original:
            view = view.renamed(name, "wrapper prefix")
        self.weights.tensors[name] = view
        self._remember_type(name, value)

    def _name(self, keys: tuple[object, ...]) -> str:
        parts: list[str] = []
        for key in keys:
            text = key_text(key)
            if text is None:
                raise Refused(
                    "a tensor lies under a key that cannot be a name", file=self.file, tensor=_dotted(keys),
                    expected="a short text or a number", found=_kind_of_key(key),
                    hint="--state-dict-key chooses another part",
                )  # fmt: skip
            if text or not isinstance(key, str) or len(keys) == 1:
                parts.append(text)
        return ".".join(parts) or "tensor"  # a file that is one tensor

    def _remember_type(self, name: str, value: TensorValue) -> None:
        """Quantised integers: scale and zero point stay in the metadata, and the change of type is a loss."""
        known: TorchType | None = value.storage.type
        if value.quant is None:
            return
        called = known.name if known is not None else value.dtype.name
        numbers = _quant_numbers(value.quant, name)
        self.weights.metadata[f"quantized.{name}"] = json.dumps({"type": called, **numbers}, sort_keys=True)
        text = f"{called} ({_quant_text(value.quant, numbers)}) as the integers that it stores, {value.dtype}"
        self.weights.losses.append(Loss("type-substituted", text, name))


def _kind_of_key(key: object) -> str:
    return f"a key of {key.nbytes} bytes" if isinstance(key, Payload) else type(key).__name__


def strip_wrappers(name: str) -> str:
    """``name`` without the parts that wrappers add (``module.``, ``_orig_mod.``), at any depth; the last part stays."""
    parts = name.split(".")
    return ".".join([part for part in parts[:-1] if part not in WRAPPERS] + parts[-1:])


def _quant_numbers(quant: Quant, name: str) -> dict[str, object]:
    out: dict[str, object] = {"scheme": quant.scheme, "scale": _numbers(quant.scale, name)}
    out["zero_point"] = _numbers(quant.zero_point, name)
    if quant.axis is not None:
        out["axis"] = quant.axis
    return out


def _numbers(value: object, name: str) -> object:
    """Scales as numbers that JSON can hold; tensors of them are read, being one number for each channel."""
    if isinstance(value, TensorValue):
        import struct

        code = {"f64": "d", "f32": "f", "i64": "q", "i32": "i"}.get(value.dtype.name)
        if code is None or value.nbytes > 8 * MAX_QUANT_NUMBERS:
            raise Refused(f"quantisation parameters of type {value.dtype} are not supported", tensor=name)
        raw = read_all(value.to_source(None, name))
        return list(struct.unpack(f"<{len(raw) // value.dtype.itemsize}{code}", raw))
    if isinstance(value, list):
        return [item if isinstance(item, int | float) else str(type(item).__name__) for item in value]
    return value


def _quant_text(quant: Quant, numbers: dict[str, object]) -> str:
    if quant.axis is not None:
        return f"one scale for each channel of axis {quant.axis}"
    return f"scale {numbers['scale']}, zero point {numbers['zero_point']}"
