"""What a source may become, judged by kinds and types alone: the format to write, or the refusal with its words."""

from __future__ import annotations

import os
from importlib.util import find_spec

from . import known, registry
from .artifact import Kind, Weights
from .dtypes import BY_NAME
from .errors import MissingExtra, RouteRefused, UsageError
from .opening import Opened
from .types import Format, Lowering

KIND_TEXT: dict[Kind, str] = {
    "weights": "named tensors but no computation graph",
    "graph": "a computation graph with its weights",
    "plan": "compiled code for one device family",
}


def refusal(source: Format, target: Format) -> RouteRefused | None:
    """Why no route leads from ``source`` to ``target``, judged by the formats alone; None when one does."""
    if source.read is None:
        return RouteRefused(
            f"`{source.name}` is recognised but not read", hint="artifactkit formats lists what is read"
        )
    if target.write is None:
        if target.family == "pickle":
            why, hint = "is read but never written: a pickle can run code when it is opened", "-t safetensors"
        else:
            why, hint = "is read but not written", "artifactkit formats lists what is written"
        return RouteRefused(f"`{target.name}` {why}", hint=hint)
    if lowering(source, target) is not None:
        return None
    return kinds_refusal(
        source.name, source.kind, target.name, target.kind, target.needs[0].flag if target.needs else None
    )


def lowering(source: Format, target: Format) -> Lowering | None:
    """What changes the kind of ``source`` into that of ``target`` and needs nothing but the artifact; None else."""
    if source.kind == target.kind:
        return None
    kinds = (source.kind, target.kind)
    fitting = (low for low in registry.lowerings().values() if (low.source, low.target) == kinds and not low.needs)
    return next(fitting, None)


def kinds_refusal(source: str, held: Kind, target: str, wanted: Kind, flag: str | None) -> RouteRefused | None:
    """The refusal that follows from the kinds (DESIGN section 1), or None."""
    if held == wanted and held != "plan":
        return None
    if held == "plan":
        return RouteRefused(
            f"`{source}` is compiled code for one device family; nothing leads out of a plan",
            hint="go back to the model that it was built from",
        )
    if held == "weights" and wanted == "graph":
        hint = flag or "this version builds no graphs: export it from the model's own code"
        return RouteRefused(f"`{source}` holds {KIND_TEXT[held]}; `{target}` needs the model's code", hint=hint)
    if wanted == "plan" and held == "weights":
        return RouteRefused(
            f"`{source}` holds {KIND_TEXT[held]}; `{target}` is built from a graph",
            hint="export it as onnx from the model's own code, and build from that",
        )
    return RouteRefused(
        f"`{source}` holds {KIND_TEXT[held]}; `{target}` holds {KIND_TEXT[wanted]}",
        hint="no lowering leads from one to the other in this version",
    )


def target_format(name: str | None, destination: str, source: Opened) -> Format:
    """The format to write: ``-t``, else what the destination's suffix says, else safetensors for a folder."""
    if name is not None:
        wanted = name.strip().lower().replace("_", "-")
        if wanted in registry.FAMILIES and wanted not in registry.formats():
            raise RouteRefused(
                f"`{wanted}` is read but never written: a pickle can run code when it is opened", hint="-t safetensors"
            )
        entry = known.BY_NAME.get(wanted)
        if entry is not None and entry.kind is not None:
            refused = kinds_refusal(source.format.name, source.format.kind, wanted, entry.kind, None)
            raise refused or not_written(wanted)
        return registry.get(name)
    guessed = registry.by_suffix(destination)
    if guessed is not None:
        return guessed
    lower = destination.lower()
    for entry in known.KNOWN:
        if entry.suffixes and lower.endswith(entry.suffixes):
            return target_format(entry.name, destination, source)
    for fmt in registry.formats().values():
        if fmt.write is None and lower.endswith(fmt.suffixes):
            suffix = os.path.splitext(lower)[1]
            raise RouteRefused(
                f"`{suffix}` is a pickle's suffix: pickles are read but never written, since opening one can run code",
                file=destination,
                hint="give a name that ends in .safetensors, or -t safetensors",
            )
    if is_folder(destination):
        return registry.get("safetensors")
    raise UsageError(
        "the destination's name does not say which format to write",
        file=destination,
        hint="give -t FORMAT, or a name that ends in .safetensors, .npz ...",
    )


def not_written(name: str) -> RouteRefused:
    """The refusal of a format that is known by name only."""
    written = [fmt.name for fmt in registry.formats().values() if fmt.write is not None]
    return RouteRefused(f"`{name}` is not written by this version", hint=f"it writes {', '.join(written)}")


def is_folder(destination: str) -> bool:
    """Whether the destination is meant as a folder: it is one, ends in a slash, or has no suffix."""
    return destination.endswith(os.sep) or os.path.isdir(destination) or not os.path.splitext(destination)[1]


def check_dtypes(weights: Weights, target: Format) -> None:
    """Refuse element types that the target cannot hold, with the nearest that holds them exactly."""
    if not target.dtypes:
        return
    exact = {"bf16": "f32", "f8_e4m3": "f16", "f8_e5m2": "f16", "f8_e4m3fnuz": "f16", "f8_e5m2fnuz": "f16"}
    for tensor in weights:
        if tensor.dtype.name in target.dtypes:
            continue
        way = exact.get(tensor.dtype.name)
        raise RouteRefused(
            f"`{target.name}` cannot hold {tensor.dtype}",
            tensor=tensor.name,
            expected="one of " + ", ".join(sorted(d for d in target.dtypes if d in BY_NAME)),
            found=tensor.dtype.name,
            hint=f"--dtype {way} holds it exactly, or leave it out with --exclude"
            if way
            else "leave it out with --exclude, or choose another format",
        )


def check_modules(target: Format) -> None:
    """MissingExtra, before any work, for what opening the output again will need."""
    missing = [name for name in target.modules if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"checking what is written as {target.name} needs the package {missing[0]}",
            expected=f"the extra `{target.extra}`",
            hint=f"pip install 'artifactkit[{target.extra}]', or write it unchecked with --no-verify",
        )
