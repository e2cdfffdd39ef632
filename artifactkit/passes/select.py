"""Which tensors to take along: ``--include`` and ``--exclude``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..artifact import Dropped, TensorView, Weights
from ..errors import ArtifactkitError, UsageError
from ..patterns import Pattern
from ..report import Loss


def select(weights: Weights, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Weights:
    """The tensors that match one of ``include`` (all, when empty) and none of ``exclude``.

    Patterns are globs over the whole name (``*.bias``), or regular expressions with ``re:`` before them. What is left
    out is recorded as dropped, asked for. Raises UsageError when a pattern matches nothing, or nothing is left.
    """
    wanted, unwanted = [Pattern(p) for p in include], [Pattern(p) for p in exclude]
    used: set[str] = set()
    kept: dict[str, TensorView] = {}
    dropped: list[Dropped] = []
    for name, tensor in weights.tensors.items():
        hits_in = [p.text for p in wanted if p.matches(name)]
        hits_out = [p.text for p in unwanted if p.matches(name)]
        used.update(hits_in, hits_out)
        if hits_out:
            why = f"--exclude {hits_out[0]}"
        elif wanted and not hits_in:
            why = "not in --include"
        else:
            kept[name] = tensor
            continue
        dropped += [Dropped(origin, why, tensor.nbytes, asked=True) for origin in tensor.came_from()]
    refused: dict[str, ArtifactkitError] = {}
    for name, error in weights.refused.items():
        hits_in = [p.text for p in wanted if p.matches(name)]
        hits_out = [p.text for p in unwanted if p.matches(name)]
        used.update(hits_in, hits_out)
        if hits_out or (wanted and not hits_in):
            dropped.append(Dropped(name, f"--exclude {hits_out[0]}" if hits_out else "not in --include", asked=True))
        else:
            refused[name] = error
    for option, given in (("--include", include), ("--exclude", exclude)):
        for text in given:
            if text not in used:
                raise UsageError(f"{option} {text!r} matches no tensor", hint=_nearest(text, weights))
    if weights.tensors and not kept:
        raise UsageError("--include and --exclude leave no tensor", hint="artifactkit inspect lists the names")
    losses = [Loss("tensor-dropped", d.why, tensor=d.name, asked=True) for d in dropped]
    return replace(
        weights, tensors=kept, refused=refused, dropped=[*weights.dropped, *dropped], losses=[*weights.losses, *losses],
        notes=list(weights.notes),
    )  # fmt: skip


def _nearest(text: str, weights: Weights) -> str:
    import difflib

    names = list(weights.tensors)[:10_000]
    near = difflib.get_close_matches(text.strip("*").removeprefix("re:"), names, n=3, cutoff=0.4)
    return f"names here: {', '.join(near or names[:3])}"
