"""The ledger: what became of each source tensor, and where each target tensor came from (DESIGN section 5)."""

from __future__ import annotations

from ..artifact import TensorView, Weights
from ..errors import VerificationFailed
from ..report import Entry, Outcome


def _entry(source: str, tensor: TensorView, target: str, alias_of: str | None = None) -> Entry:
    outcomes: list[Outcome] = []
    for step in tensor.steps:
        if step.outcome not in outcomes:
            outcomes.append(step.outcome)
    details = [step.detail for step in tensor.steps if step.detail]
    if alias_of is not None:
        outcomes.append("aliased")
        details.append(f"stored once as {alias_of}")
    return Entry(source, target, tuple(outcomes) or ("kept",), "; ".join(details))


def ledger(initial: Weights, final: Weights) -> list[Entry]:
    """One entry for each source tensor, in the order in which they were read, then those dropped while reading.

    Raises VerificationFailed when a source tensor is unexplained, or a target tensor names a source that is not there.
    """
    by_source: dict[str, list[Entry]] = {}
    made: dict[str, list[Entry]] = {}
    for tensor in final:
        if any(step.outcome == "made" for step in tensor.steps):  # from a file beside, not from a tensor
            made.setdefault(tensor.came_from()[0], []).append(_entry(tensor.came_from()[0], tensor, tensor.name))
            continue
        for origin in tensor.came_from():
            by_source.setdefault(origin, []).append(_entry(origin, tensor, tensor.name))
    for alias in final.aliases.values():
        for origin in alias.view.came_from():
            by_source.setdefault(origin, []).append(_entry(origin, alias.view, alias.view.name, alias.target))
    for dropped in final.dropped:
        by_source.setdefault(dropped.name, []).append(Entry(dropped.name, None, ("dropped",), dropped.why))
    order = [origin for tensor in initial for origin in tensor.came_from()]
    order += [alias.view.name for alias in initial.aliases.values()]
    order += [*initial.refused, *(dropped.name for dropped in initial.dropped)]
    known = set(order)
    for name in order:
        if name not in by_source:
            raise VerificationFailed(
                "a source tensor is unexplained",
                tensor=name,
                expected="kept, renamed, cast, merged or dropped for a reason",
                found="nothing",
                hint="this is a fault of artifactkit: please report it",
            )
    for name, entries in by_source.items():
        if name not in known:
            raise VerificationFailed(
                "a target tensor names a source that was not read",
                tensor=entries[0].target or name,
                found=name,
                hint="this is a fault of artifactkit: please report it",
            )
    entries = [entry for name in dict.fromkeys(order) for entry in by_source[name]]
    return entries + [entry for name in sorted(made) for entry in made[name]]
