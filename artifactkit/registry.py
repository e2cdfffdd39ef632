"""Finds what can be plugged in: the folder is the table, entry points are asked only for names it does not hold."""

from __future__ import annotations

import importlib
import os
import pkgutil
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from . import known
from .errors import Unreadable, UsageError
from .types import Format, Head, Lowering, Runner

if TYPE_CHECKING:
    from .modeling.architecture import Architecture

# A family is a name for several formats told apart by content: `-f pickle`.
FAMILIES = ("pickle",)


def _modules(folder: str) -> list[ModuleType]:
    """The modules of ``artifactkit/<folder>``, by name; hyphens in format names are underscores in module names."""
    package = importlib.import_module(f"artifactkit.{folder}")
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))
    return [importlib.import_module(f"artifactkit.{folder}.{name}") for name in names]


@cache
def formats() -> dict[str, Format]:
    """The built-in formats by name, in order of name."""
    found: dict[str, Format] = {}
    for module in _modules("formats"):
        fmt = getattr(module, "FORMAT", None)
        if not isinstance(fmt, Format):
            raise TypeError(f"{module.__name__} has no FORMAT")
        if fmt.name in found:
            raise TypeError(f"two formats are called {fmt.name}")
        found[fmt.name] = fmt
    return dict(sorted(found.items()))


@cache
def plugins() -> dict[str, Format]:
    """Formats of other distributions (entry-point group ``artifactkit.formats``); a built-in name cannot be taken."""
    from importlib.metadata import entry_points

    found: dict[str, Format] = {}
    for point in sorted(entry_points(group="artifactkit.formats"), key=lambda p: (p.name, p.value)):
        if point.name in formats() or point.name in found:
            continue
        fmt = point.load()
        if isinstance(fmt, Format):
            found[point.name] = fmt
    return found


@cache
def architectures() -> dict[str, Architecture]:
    """The model families by name, in order of name; a built-in name cannot be taken by a plug-in."""
    from importlib.metadata import entry_points

    from .modeling.architecture import Architecture  # a hundred plain conversions need none of it

    found: dict[str, Architecture] = {}
    for module in _modules("architectures"):
        held = getattr(module, "ARCHITECTURE", None)
        for arch in held if isinstance(held, tuple) else (held,):
            if not isinstance(arch, Architecture):
                raise TypeError(f"{module.__name__} has no ARCHITECTURE")
            if arch.name in found:
                raise TypeError(f"two architectures are called {arch.name}")
            found[arch.name] = arch
    for point in sorted(entry_points(group="artifactkit.architectures"), key=lambda p: (p.name, p.value)):
        held = point.load()
        for arch in held if isinstance(held, tuple) else (held,):
            if isinstance(arch, Architecture):
                found.setdefault(arch.name, arch)
    return dict(sorted(found.items()))


@cache
def lowerings() -> dict[str, Lowering]:
    """The changes of kind by name, in order of name; a built-in name cannot be taken by a plug-in."""
    from importlib.metadata import entry_points

    found: dict[str, Lowering] = {}
    for module in _modules("lowerings"):
        lowering = getattr(module, "LOWERING", None)
        if not isinstance(lowering, Lowering):
            raise TypeError(f"{module.__name__} has no LOWERING")
        found[lowering.name] = lowering
    for point in sorted(entry_points(group="artifactkit.lowerings"), key=lambda p: (p.name, p.value)):
        held = point.load()
        if isinstance(held, Lowering):
            found.setdefault(held.name, held)
    return dict(sorted(found.items()))


@cache
def runners() -> dict[str, Runner]:
    """The runtimes by name, in order of name; a built-in name cannot be taken by a plug-in."""
    from importlib.metadata import entry_points

    found: dict[str, Runner] = {}
    for module in _modules("runners"):
        runner = getattr(module, "RUNNER", None)
        if not isinstance(runner, Runner):
            raise TypeError(f"{module.__name__} has no RUNNER")
        found[runner.name] = runner
    for point in sorted(entry_points(group="artifactkit.runners"), key=lambda p: (p.name, p.value)):
        held = point.load()
        if isinstance(held, Runner):
            found.setdefault(held.name, held)
    return dict(sorted(found.items()))


def _spelled(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def get(name: str) -> Format:
    """The format called ``name``; UsageError with the nearest names when there is none."""
    wanted = _spelled(name)
    fmt = formats().get(wanted) or plugins().get(wanted)
    if fmt is not None:
        return fmt
    if wanted in known.BY_NAME:
        entry = known.BY_NAME[wanted]
        raise UsageError(f"`{wanted}` ({entry.title}) is neither read nor written", hint=entry.hint)
    raise UsageError(f"unknown format {name!r}", hint=_nearest(wanted))


def _nearest(name: str) -> str:
    import difflib

    names = [*formats(), *plugins(), *FAMILIES]
    near = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else "artifactkit formats lists them"


def sniff(path: str, given: str | None = None) -> tuple[Format, Head]:
    """The format of the file at ``path``, by content, and its head. ``given`` is ``-f``: a format or a family.

    Raises Unreadable when nothing fits, and UsageError when two do or when ``given`` contradicts the content.
    """
    head = Head(path)
    if head.size == 0:
        raise Unreadable("the file is empty", file=path)
    fitting = [fmt for fmt in formats().values() if fmt.sniff(head)]
    if not fitting:
        fitting = [fmt for fmt in plugins().values() if fmt.sniff(head)]
    if given is not None:
        return _given(given, fitting, head), head
    if len(fitting) == 1:
        return fitting[0], head
    if fitting:
        names = ", ".join(fmt.name for fmt in fitting)
        raise UsageError("the file reads as more than one format", file=path, found=names, hint="say which with --from")
    raise unknown(head)


def _given(given: str, fitting: list[Format], head: Head) -> Format:
    wanted = _spelled(given)
    if wanted in FAMILIES:
        chosen = [fmt for fmt in fitting if fmt.family == wanted]
        if len(chosen) == 1:
            return chosen[0]
        if wanted not in formats():
            raise UsageError(f"the file is no {wanted} file", file=head.path, found=", ".join(f.name for f in fitting))
    fmt = get(wanted)
    if fitting and fmt not in fitting:
        found = ", ".join(f.name for f in fitting)
        raise UsageError(
            f"the file is not {fmt.name}",
            file=head.path,
            expected=fmt.name,
            found=found,
            hint=f"leave --from out, or give --from {fitting[0].name}",
        )
    return fmt


def unknown(head: Head) -> Unreadable:
    """The answer for a file that no format recognises: what it is, if it is known by its first bytes."""
    for entry in known.KNOWN:
        if entry.matches(head.first):
            return Unreadable(
                f"this is {entry.title}; it is not read here", file=head.path, found=entry.name, hint=entry.hint
            )
    begin = head.first[:16]
    shown = begin.hex(" ") + (f" ({begin.decode('latin-1')!a})" if begin.isascii() else "")
    text = " (text)" if head.first.isascii() and head.first[:1] in b"{[<#" else ""
    return Unreadable(
        "unknown format",
        file=head.path,
        found=f"begins with {shown}{text}",
        hint="artifactkit formats lists what is read; a damaged file can be forced with --from",
    )


def by_suffix(path: str) -> Format | None:
    """The writable format that ``path``'s suffix names, or None."""
    name = os.path.basename(path).lower()
    best: Format | None = None
    length = 0
    for fmt in [*formats().values()]:
        for suffix in fmt.suffixes:
            if fmt.write is not None and name.endswith(suffix) and len(suffix) > length:
                best, length = fmt, len(suffix)
    return best
