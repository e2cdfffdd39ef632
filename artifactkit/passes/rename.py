"""Other names for tensors: ``--rename PATTERN=REPLACEMENT``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..artifact import TensorView, Weights
from ..errors import UsageError
from ..patterns import Pattern


def rename(weights: Weights, rules: Sequence[str]) -> Weights:
    """Apply ``rules`` to every name, in order, each to what the one before it made.

    A rule is a regular expression, ``=``, and what replaces every match, with groups as ``\\1`` or ``\\g<name>``. The
    last ``=`` divides, so a pattern may hold others. Raises UsageError for a rule that matches nothing or does not
    compile, for an empty name, and for two tensors that would get one name.
    """
    parsed = [_parse(rule) for rule in rules]
    used = [False] * len(parsed)
    out: dict[str, TensorView] = {}
    was: dict[str, str] = {}
    for name, tensor in weights.tensors.items():
        renamed = tensor
        for i, (pattern, replacement) in enumerate(parsed):
            pattern.check_name(renamed.name)
            try:
                new, hits = pattern.compiled.subn(replacement, renamed.name)
            except (re.error, IndexError) as error:
                raise UsageError(f"--rename {rules[i]!r}: {error}", hint="groups are \\1 or \\g<name>") from None
            if hits:
                used[i] = True
                renamed = renamed.renamed(new, f"--rename {rules[i]}")
        if not renamed.name:
            raise UsageError("--rename leaves an empty name", tensor=name)
        if renamed.name in out:
            raise UsageError(
                f"--rename gives two tensors the name {renamed.name!r}", tensor=name,
                found=f"{was[renamed.name]} and {name}",
            )  # fmt: skip
        was[renamed.name] = name
        out[renamed.name] = renamed
    for rule, hit in zip(rules, used, strict=True):
        if not hit:
            raise UsageError(f"--rename {rule!r} matches no tensor", hint="artifactkit inspect lists the names")
    return replace(weights, tensors=out, notes=list(weights.notes), losses=list(weights.losses))


def _parse(rule: str) -> tuple[Pattern, str]:
    pattern, divider, replacement = rule.rpartition("=")
    if not divider or not pattern:
        raise UsageError(f"--rename {rule!r} is no rule", expected="PATTERN=REPLACEMENT")
    return Pattern(pattern, regex=True), replacement
