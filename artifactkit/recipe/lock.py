"""The lock of a recipe: what it should be, how it differs from what there is, and what ``--locked`` goes by."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..errors import UsageError
from ..filesystem import failed
from ..staging import Stage
from . import lockfile, text, tools
from .lockfile import Lock, LockedFile, LockedSource
from .model import LOCK, Pinned, Recipe
from .problems import near
from .resolve import Hashing, Say, is_local, nobody, resolve, silent


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that is another, or is there on one side only. Sizes in bytes, None where it is not there."""

    name: str
    before: LockedFile | None
    after: LockedFile | None

    @property
    def sign(self) -> str:
        """``+`` added, ``-`` removed, ``~`` changed."""
        return "+" if self.before is None else "-" if self.after is None else "~"

    def to_json(self) -> dict[str, object]:
        def one(file: LockedFile | None) -> dict[str, object] | None:
            return None if file is None else {"size": file.size, "sha256": file.sha256}

        return {"name": self.name, "before": one(self.before), "after": one(self.after)}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing in which two locks differ: ``what`` it is (``models.NAME``), in words how, and which files."""

    what: str
    detail: str
    files: tuple[FileChange, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {"what": self.what, "detail": self.detail, "files": [file.to_json() for file in self.files]}


@dataclass(frozen=True, slots=True)
class State:
    """A lock as it should be now. ``open`` are the sources that nobody has locked yet, and only resolving would tell;
    ``absent`` the tools that are locked and not installed here."""

    lock: Lock
    open: tuple[Pinned, ...] = ()
    absent: tuple[str, ...] = ()


def lock_path(recipe_file: str) -> str:
    """The lock of a recipe lies beside it."""
    return os.path.join(os.path.dirname(recipe_file), LOCK)


def existing(recipe_file: str) -> Lock | None:
    """The lock beside the recipe, or None. Raises for one that cannot be understood."""
    path = lock_path(recipe_file)
    return lockfile.read(path) if os.path.lexists(path) else None


def make(
    recipe: Recipe, old: Lock | None, upgrade: Collection[str] = (), hashing: Hashing = nobody, say: Say = silent
) -> State:
    """The lock of ``recipe``. What is locked already stays, but for files of this machine and the names in ``upgrade``.

    ``upgrade`` are names of models and inputs (``NAME`` or ``models.NAME``) that are looked up anew.
    """
    wanted = _upgraded(recipe, upgrade)
    found = {}
    for pinned in recipe.pinned:
        kept = _kept(pinned, old) if pinned.what not in wanted else None
        source = kept or resolve(pinned, recipe, hashing, say)
        found[source.what] = source
    return _state(recipe, old, found, ())


def check(recipe: Recipe, old: Lock | None, hashing: Hashing = nobody) -> State:
    """As :func:`make`, and nothing but this machine is asked: a source elsewhere stays as it is locked."""
    found, unlocked = {}, []
    for pinned in recipe.pinned:
        source = _kept(pinned, old)
        if source is None and is_local(pinned.source):
            source = resolve(pinned, recipe, hashing)
        if source is None:
            unlocked.append(pinned)
        else:
            found[source.what] = source
    return _state(recipe, old, found, tuple(unlocked))


def _kept(pinned: Pinned, old: Lock | None) -> LockedSource | None:
    """What is locked of a source elsewhere, if that is what the recipe still asks for."""
    locked = None if old is None else old.sources.get(pinned.what)
    if locked is None or is_local(pinned.source) or not locked.is_of(pinned):
        return None
    return locked


def _state(recipe: Recipe, old: Lock | None, found: Mapping[str, LockedSource], unlocked: tuple[Pinned, ...]) -> State:
    targets = recipe.targets.values()
    versions = tools.installed(targets)
    # A machine that only checks need not have what builds; what it has must be of the version.
    kept = {} if old is None else {name: old.tools[name] for name in tools.needed(targets) if name in old.tools}
    absent = tuple(sorted(kept.keys() - versions.keys()))
    versions |= {name: kept[name] for name in absent}
    lock = Lock(versions, found, {target.name: dict(target.options) for target in targets})
    return State(lock, unlocked, absent)


def _upgraded(recipe: Recipe, names: Collection[str]) -> set[str]:
    """The full names that ``names`` mean. UsageError for one that is none."""
    known = {pinned.what: pinned.what for pinned in recipe.pinned}
    for pinned in reversed(recipe.pinned):  # of one name a model goes before an input
        known[pinned.name] = pinned.what
    for name in names:
        if name not in known:
            hint = near(name, known) or f"one of {', '.join(p.name for p in recipe.pinned)}"
            raise UsageError(f"no model or input is called {name!r}", file=recipe.file, hint=hint)
    return {known[name] for name in names}


def text_of(state: State) -> str:
    """The text of the lock file."""
    return lockfile.dump(state.lock)


def is_written(recipe_file: str, text: str) -> bool:
    """Whether the lock beside the recipe is this text, to the byte."""
    try:
        with open(lock_path(recipe_file), "rb") as file:
            return file.read() == text.encode("utf-8")
    except OSError:
        return False


def write(recipe_file: str, text: str) -> None:
    """Put the lock beside the recipe, as a whole or not at all. Raises OutputError."""
    write_text(lock_path(recipe_file), text, force=True)


def write_text(path: str, text: str, force: bool) -> None:
    """A small file, as a whole or not at all. Raises DestinationExists or OutputError."""
    with Stage(path, folder=False, force=force) as stage:
        try:
            with open(stage.path(), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        except OSError as error:
            raise failed(error, path) from error
        stage.commit()


# -- differences


def changes(old: Lock | None, state: State) -> list[Change]:
    """In what the lock that should be differs from the one that is, in the order of the file."""
    new = state.lock
    out: list[Change] = []
    before = Lock({}, {}, {}) if old is None else old
    if old is None:
        out.append(Change("tools", ", ".join(f"{name} {new.tools[name]}" for name in sorted(new.tools))))
    for name in sorted(before.tools.keys() | new.tools.keys()) if old is not None else ():
        out += _version(f"tools.{name}", before.tools.get(name), new.tools.get(name))
    unlocked = {pinned.what: pinned for pinned in state.open}
    names = before.sources.keys() | new.sources.keys() | unlocked.keys()
    for what in sorted(names, key=lambda what: (not what.startswith("models."), what)):
        if what in unlocked:
            out.append(_unlocked(unlocked[what], before.sources.get(what)))
        else:
            out += _source(what, before.sources.get(what), new.sources.get(what))
    for name in sorted(before.targets.keys() | new.targets.keys()):
        out += _target(f"targets.{name}", before.targets.get(name), new.targets.get(name))
    return out


def _version(what: str, old: str | None, new: str | None) -> list[Change]:
    if old == new:
        return []
    if old is None:
        return [Change(what, f"added: {new}")]
    return [Change(what, f"{old} -> {new}" if new else f"removed: {old}, which no target needs")]


def _unlocked(pinned: Pinned, old: LockedSource | None) -> Change:
    if old is None:
        return Change(pinned.what, f"not locked: {_asked(pinned)}")
    return Change(pinned.what, "; ".join(_asked_otherwise(old, pinned)))


def _asked(source: Pinned | LockedSource) -> str:
    return source.source + (f" at {source.revision}" if source.revision else "")


def _asked_otherwise(old: LockedSource, new: Pinned | LockedSource) -> list[str]:
    """What the recipe asks for that it did not ask for before."""
    out = []
    if (old.source, old.revision) != (new.source, new.revision):
        out.append(f"{_asked(old)} -> {_asked(new)}")
    for key in sorted(old.options.keys() | new.options.keys()):
        out += _key(key, old.options.get(key), new.options.get(key))
    return out


def _key(key: str, old: object, new: object) -> list[str]:
    if old == new and type(old) is type(new):
        return []
    if old is None:
        return [f"{key} = {text.value(new)} added"]
    return [f"{key} = {text.value(old)} removed" if new is None else f"{key}: {text.value(old)} -> {text.value(new)}"]


def _source(what: str, old: LockedSource | None, new: LockedSource | None) -> list[Change]:
    if new is None:
        return [Change(what, "removed: the recipe does not name it")]
    if old is None:
        at = f" at commit {new.commit}" if new.commit else ""
        return [Change(what, f"added: {_asked(new)}{at}", file_changes((), new.files))]
    words = _asked_otherwise(old, new)
    if old.commit != new.commit:
        words.append(f"commit {old.commit or 'none'} -> {new.commit or 'none'}")
    files = file_changes(old.files, new.files)
    if not words and not files:
        return []
    return [Change(what, "; ".join(words) or f"{_asked(new)}: files changed", files)]


def _target(what: str, old: Mapping[str, object] | None, new: Mapping[str, object] | None) -> list[Change]:
    if new is None:
        return [Change(what, "removed: the recipe does not name it")]
    if old is None:
        return [Change(what, "added")]
    words = [
        word for key in [*new, *(k for k in old if k not in new)] for word in _key(key, old.get(key), new.get(key))
    ]
    return [Change(what, "; ".join(words))] if words else []


def file_changes(old: Collection[LockedFile], new: Collection[LockedFile]) -> tuple[FileChange, ...]:
    """The files in which two lists differ, in order of name."""
    before, after = {file.name: file for file in old}, {file.name: file for file in new}
    return tuple(
        FileChange(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )
