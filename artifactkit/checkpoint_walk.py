"""Walking the inert values of a pickle: what lies in what, under which key, and where the tensors are.

Nothing recurses: nesting, sharing and cycles are the file's choice. The number of steps is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .errors import LimitExceeded, printable
from .pickles import EightBit, Global, Opaque, Payload, Persistent
from .tensor_names import ArrayValue, LegacyTensor, Named, Scalar, Storage, TensorValue, TorchType, Unsupported

# Attributes of an nn.Module instance in the order of Module.state_dict().
MODULE_PARTS = ("_parameters", "_buffers", "_modules")
CONTAINERS = (dict, list, tuple, Opaque)
MAX_DEPTH = 500
MAX_BOXES = 16
Members = Callable[[Opaque], "frozenset[str] | None"]
Child = tuple[object, object]  # key, value


def unwrap(value: object) -> object:
    """A legacy tensor as the tensor that its state made of it; an object array of no dimension as what it boxes."""
    for _ in range(MAX_BOXES):
        if isinstance(value, LegacyTensor):
            return Unsupported("a tensor without data") if value.made is None else value.made
        if not isinstance(value, ArrayValue) or value.shape != () or not isinstance(value.data, list) or not value.data:
            break
        value = value.data[0]
    return value


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a tensor, one that we cannot pass on included; arrays of text and records are none."""
    if isinstance(value, ArrayValue):
        return value.dtype.dtype is not None
    return isinstance(value, TensorValue | Unsupported)


def is_module(value: object) -> bool:
    """Whether ``value`` is an instance of an nn.Module, by the attributes that all of them have."""
    return isinstance(value, Opaque) and all(isinstance(value.attrs.get(part), dict) for part in MODULE_PARTS)


def children(value: object, members: Members | None = None) -> list[Child]:
    """What lies directly in ``value``, in the file's order; empty for leaves.

    An nn.Module shows what its ``state_dict()`` would: parameters, persistent buffers, submodules; with ``everything``
    as ``members`` all tensors that it holds. ``members`` may also name the attributes of a TorchScript object that are
    parameters, buffers and submodules.
    """
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, ArrayValue):
        return list(enumerate(value.data)) if isinstance(value.data, list) else []
    if not isinstance(value, Opaque):
        return []
    if is_module(value):
        return _module_children(value, whole=members is everything)
    chosen = members(value) if members is not None else None
    if chosen is not None:
        return [(key, item) for key, item in value.attrs.items() if key in chosen]
    out: list[Child] = [(f"args.{i}", item) for i, item in enumerate(value.args)]
    out += value.kwargs.items()
    if isinstance(value.state, dict) or value.attrs:
        out += value.attrs.items()
    elif value.state is not None:
        out.append(("state", value.state))
    out += [(f"items.{i}" if value.attrs else i, item) for i, item in enumerate(value.items)]
    out += value.pairs
    return out


def everything(value: Opaque) -> frozenset[str] | None:
    """``members`` for --all: no attribute is left out, and modules show tensors that they would not save, too."""
    return None


def _module_children(module: Opaque, whole: bool) -> list[Child]:
    passing = module.attrs.get("_non_persistent_buffers_set")
    left_out = passing if isinstance(passing, set | frozenset) else frozenset()
    out: list[Child] = []
    for part in MODULE_PARTS:
        held = module.attrs[part]
        if isinstance(held, dict):
            out += [
                (key, item)
                for key, item in held.items()
                if item is not None and (whole or not (part == "_buffers" and key in left_out))
            ]
    if whole:
        plain = ((key, item) for key, item in module.attrs.items() if key not in MODULE_PARTS)
        out += [
            (key, item) for key, item in plain if is_tensor(unwrap(item)) or (item and isinstance(item, CONTAINERS))
        ]
    return out


@dataclass(slots=True)
class Budget:
    """Steps that walking may take: containers can be shared, and then they are walked each time they are named."""

    steps: int
    file: str
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.steps

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise LimitExceeded(
                "the values of this file contain each other too often to be listed", file=self.file,
                expected=f"at most {self.steps} values",
            )  # fmt: skip


def containers_with_tensors(root: object, budget: Budget, members: Members | None = None) -> set[int]:
    """The ids of all containers within ``root`` that hold a tensor, however deep. Each is looked into once."""
    parents: dict[int, list[int]] = {}
    seen: set[int] = set()
    holding: list[int] = []
    pending: list[object] = [root]
    while pending:
        value = pending.pop()
        here = id(value)
        if here in seen:
            continue
        seen.add(here)
        kids = children(value, members)
        budget.spend(1 + len(kids))
        direct = False
        for _, raw in kids:
            kid = unwrap(raw)
            if is_tensor(kid):
                direct = True
            elif isinstance(kid, dict | list | tuple | Opaque | ArrayValue):
                parents.setdefault(id(kid), []).append(here)
                pending.append(kid)
        if direct:
            holding.append(here)
    out: set[int] = set()
    while holding:
        here = holding.pop()
        if here not in out:
            out.add(here)
            holding.extend(parents.get(here, ()))
    return out


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value with the keys that lead to it. ``cycle``: a container that contains itself, not walked again."""

    keys: tuple[object, ...]
    value: object
    cycle: bool = False


def leaves(
    root: object, holding: set[int], budget: Budget, members: Members | None = None, prefix: tuple[object, ...] = ()
) -> Iterator[Leaf]:
    """All leaves of ``root`` in the file's order: tensors, and whatever holds none (a container without tensors whole).

    ``holding`` is what ``containers_with_tensors`` gave. LimitExceeded when nesting exceeds 500 levels.
    """
    root = unwrap(root)
    if id(root) not in holding:
        yield Leaf(prefix, root)
        return
    path: list[object] = list(prefix)
    width = sum(map(_width, prefix))  # characters of the path: names repeat it, and one long key can serve many
    ancestors = {id(root)}
    stack: list[tuple[object, Iterator[Child]]] = [(root, iter(children(root, members)))]
    while stack:
        container, rest = stack[-1]
        step = next(rest, None)
        if step is None:
            stack.pop()
            ancestors.discard(id(container))
            if stack:
                width -= _width(path.pop())
            continue
        key, raw = step
        value = unwrap(raw)
        budget.spend(1 + (width + _width(key) >> 4))
        if id(value) in ancestors:
            yield Leaf((*path, key), value, cycle=True)
        elif id(value) in holding:
            if len(stack) > MAX_DEPTH:
                raise LimitExceeded("values are nested too deep", file=budget.file, expected=f"at most {MAX_DEPTH}")
            kids = children(value, members)
            budget.spend(len(path))
            ancestors.add(id(value))
            path.append(key)
            width += _width(key)
            stack.append((value, iter(kids)))
        else:
            yield Leaf((*path, key), value)


def _width(key: object) -> int:
    return len(key) if isinstance(key, str | bytes) else 8


# -- words for people


def key_text(key: object) -> str | None:
    """A key as a part of a name: text, or a number's digits; None for what cannot be one."""
    if isinstance(key, str):
        return key
    if isinstance(key, EightBit):
        return key.text()
    if isinstance(key, bytes):
        return EightBit(key).text()
    if key is None or isinstance(key, bool | float):
        return repr(key)
    if isinstance(key, int):
        return str(key) if key.bit_length() < 128 else None
    return None


def access(keys: tuple[object, ...]) -> str:
    """``['state_dict']['a.b'][0]``: keys as one would write them, for messages that must tell paths apart."""
    return "".join(f"[{key!r}]" if isinstance(key, str | int) else f"[{key_text(key)}]" for key in keys)[:400]


def describe(value: object) -> tuple[str, str]:
    """Type and short printable text of a value that is no tensor; looks one level deep at most."""
    kind, text = _describe(value)
    if isinstance(value, dict) and 0 < len(value) <= 4:
        text = ", ".join(f"{key_text(k) or '?'}: {_describe(v)[1]}" for k, v in value.items())
    elif isinstance(value, list | tuple) and 0 < len(value) <= 4:
        text = ", ".join(_describe(v)[1] for v in value)
    text = printable(text)
    return kind, text if len(text) <= 80 else text[:77] + "..."


def _describe(value: object) -> tuple[str, str]:
    if isinstance(value, str):
        return "str", value[:100]
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "int", f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float | complex | range):
        return type(value).__name__, str(value)
    if isinstance(value, bytes | bytearray):
        return "str" if isinstance(value, EightBit) else type(value).__name__, f"{len(value)} bytes"
    if isinstance(value, Payload):
        return value.kind, f"{value.nbytes} bytes"
    if isinstance(value, Scalar):
        plain = isinstance(value.value, bool | int | float | complex)
        return value.type, str(value.value) if plain else "no number"
    if isinstance(value, ArrayValue):
        return "array", f"{value.dtype.label}, shape {value.shape}"
    if isinstance(value, dict | list | tuple | set | frozenset):
        return getattr(value, "cls", type(value).__name__), f"{len(value)} items"
    if isinstance(value, Opaque):
        if len(value.args) == 1 and isinstance(value.args[0], str | int | float):
            return value.full, str(value.args[0])[:100]
        return value.full, f"{len(value.attrs) or len(value.args)} values"
    if isinstance(value, Global):
        return "name", value.full
    if isinstance(value, TorchType | Named):
        return "torch", value.name
    if isinstance(value, Storage):
        return "storage", f"{value.numel} elements"
    if isinstance(value, Persistent):
        return "persistent id", _describe(value.pid)[1] if isinstance(value.pid, str | int) else "not text"
    if isinstance(value, slice):
        return "slice", ":".join("" if p is None else _describe(p)[1] for p in (value.start, value.stop, value.step))
    return type(value).__name__, ""
