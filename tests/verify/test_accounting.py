"""Level 1: every source tensor is explained, every target tensor has a source, or the conversion fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from artifactkit.artifact import Alias, Dropped, Step, TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.errors import VerificationFailed
from artifactkit.passes.cast import cast
from artifactkit.passes.rename import rename
from artifactkit.passes.select import select
from artifactkit.passes.tie import merge_aliases
from artifactkit.report import Entry
from artifactkit.source import Inline, Source
from artifactkit.verify.accounting import ledger


def tensor(name: str, source: Source | None = None) -> TensorView:
    return TensorView(name, BY_NAME["f32"], (2,), source or Inline(bytes(8), ("file", 16 * ord(name[0]))))


def weights(*names: str) -> Weights:
    return Weights({n: tensor(n) for n in names}, "torch-zip")


def test_kept_renamed_cast_tied_dropped() -> None:
    initial = weights("a", "b", "c", "d")
    initial.tensors["e"] = tensor("e", initial.tensors["a"].source)
    initial.dropped.append(Dropped("optimizer.step", "optimizer state"))
    final = merge_aliases(cast(rename(select(initial, (), ("d",)), ("b=B",)), BY_NAME["bf16"]))
    found = {entry.source: entry for entry in ledger(initial, final)}
    assert list(found) == ["a", "b", "c", "d", "e", "optimizer.step"]
    assert found["a"].outcomes == ("cast",)
    assert (found["b"].outcomes, found["b"].target) == (("renamed", "cast"), "B")
    assert (found["d"].outcomes, found["d"].target) == (("dropped",), None)
    assert found["e"].outcomes == ("cast", "aliased")
    assert "stored once as a" in found["e"].detail
    assert found["optimizer.step"] == Entry("optimizer.step", None, ("dropped",), "optimizer state")


def test_untouched_is_kept() -> None:
    initial = weights("b", "a")
    assert ledger(initial, initial) == [Entry("b", "b", ("kept",)), Entry("a", "a", ("kept",))]


def lost(final: Weights) -> Weights:
    return replace(final, tensors={"a": final.tensors["a"]})


def invented(final: Weights) -> Weights:
    return replace(final, tensors={**final.tensors, "x": tensor("x")})


def misnamed(final: Weights) -> Weights:
    """Renamed without a word about where it comes from."""
    return replace(final, tensors={"a": final.tensors["a"], "B": replace(final.tensors["b"], name="B")})


def alias_invented(final: Weights) -> Weights:
    return replace(final, aliases={"x": Alias(tensor("x"), "a")})


def dropped_invented(final: Weights) -> Weights:
    return replace(final, dropped=[Dropped("x", "--exclude")])


FAULTS: list[tuple[Callable[[Weights], Weights], str, str]] = [
    (lost, "a source tensor is unexplained", "b"),
    (invented, "names a source that was not read", "x"),
    (misnamed, "a source tensor is unexplained", "b"),
    (alias_invented, "names a source that was not read", "x"),
    (dropped_invented, "names a source that was not read", "x"),
]


@pytest.mark.parametrize(("fault", "words", "name"), FAULTS, ids=lambda v: getattr(v, "__name__", ""))
def test_what_is_not_explained_fails(fault: Callable[[Weights], Weights], words: str, name: str) -> None:
    initial = weights("a", "b")
    with pytest.raises(VerificationFailed, match=words) as caught:
        ledger(initial, fault(initial))
    assert caught.value.tensor == name
    assert caught.value.exit_code == 1


def explained_drop(final: Weights) -> Weights:
    return replace(lost(final), dropped=[Dropped("b", "--exclude b", asked=True)])


def explained_name(final: Weights) -> Weights:
    return replace(final, tensors={"a": final.tensors["a"], "B": final.tensors["b"].renamed("B", "--rename")})


def merged(final: Weights) -> Weights:
    both = TensorView("ab", BY_NAME["f32"], (4,), Inline(bytes(16)), ("a", "b"), (Step("merged", "a + b"),))
    return replace(final, tensors={"ab": both})


@pytest.mark.parametrize("step", [explained_drop, explained_name, merged])
def test_their_twins_pass(step: Callable[[Weights], Weights]) -> None:
    initial = weights("a", "b")
    assert [e.source for e in ledger(initial, step(initial))] == ["a", "b"]


def test_one_source_for_two_targets_has_two_lines() -> None:
    initial = weights("a")
    final = replace(initial, tensors={"a": initial.tensors["a"], "a2": initial.tensors["a"].renamed("a2", "split")})
    assert [(e.source, e.target) for e in ledger(initial, final)] == [("a", "a"), ("a", "a2")]
