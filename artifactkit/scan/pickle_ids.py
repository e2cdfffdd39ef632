"""Persistent ids: what the file asks its loader for. Torch's describe storages; anything else is odd, or an attack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pickles import Global, Opaque
from . import pickle_rules as rules
from .pickle_names import SAFE, STORAGES
from .pickle_values import Given, Stored

if TYPE_CHECKING:
    from .pickle_judge import Judge


def answer(judge: Judge, pid: object, offset: int) -> object:
    """Judge a persistent id, and answer it: torch's is ('storage', class, key, location, numel[, view])."""
    made = _storage(judge, pid, offset)
    if made is not None:
        return made
    if judge.tar:  # torch 0.1: the key of a tensor, or (class, file, source)
        if isinstance(pid, str | int):
            return Given()
        if isinstance(pid, tuple) and len(pid) == 3 and isinstance(pid[0], Global):
            return pid[0]
    if judge.package and isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "reduce_package":
        judge.called(pid[2], pid[3] if isinstance(pid[3], tuple) else (), {}, opcode="REDUCE", offset=offset)
        return Opaque(pid[2], offset=offset)
    pending, dangerous = [pid], False
    for _ in range(1000):
        if not pending:
            break
        value = pending.pop()
        if isinstance(value, Global):
            dangerous = dangerous or (value.module, value.name) not in SAFE
        elif isinstance(value, Opaque | Given):
            dangerous = True
        elif isinstance(value, tuple | list):
            pending.extend(value)
    shown = f"a tuple of {len(pid)}" if isinstance(pid, tuple) else type(pid).__name__
    legacy = isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module"
    if dangerous and not legacy:
        judge.say(rules.PERSISTENT, "a persistent id carries a callable or an object", offset, None, "malicious")
    elif not legacy:
        judge.say(rules.PERSISTENT, f"a persistent id is no description of a storage: {shown}", offset)
    elif isinstance(pid, tuple) and not isinstance(pid[1], Global):
        judge.say(rules.PERSISTENT, "a persistent id carries a computed class", offset, None, "malicious")
    # The loader answers ('module', class, file, source) with the class.
    return pid[1] if legacy and isinstance(pid, tuple) else Given()


def _storage(judge: Judge, pid: object, offset: int) -> Stored | None:
    """The storage that ``pid`` describes; None when it describes none."""
    if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] not in ("storage", b"storage"):
        return None
    _, cls, key, location, numel = pid[:5]
    if not isinstance(cls, Global) or cls.name not in STORAGES or (cls.module, cls.name) not in SAFE:
        return None
    if not isinstance(key, str | int) or not isinstance(location, str) or type(numel) is not int:
        return None
    if not 0 <= numel < 1 << 62:
        judge.say(rules.MALFORMED, "a storage has no valid number of elements", offset)
        return None
    view = pid[5] if len(pid) == 6 else None
    made = Stored(cls, str(key), numel, view is None)
    if view is not None:
        if not isinstance(view, tuple) or len(view) != 3 or not isinstance(view[0], str | int):
            return None
        judge.views[str(view[0])] = str(key)
    name = str(key)
    judge.storages[name] = max(judge.storages.get(name, 0), numel * made.itemsize if view is None else 0)
    judge.order.append((name, made.itemsize))
    return made
