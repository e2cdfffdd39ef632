"""``--rename PATTERN=REPLACEMENT``."""

from __future__ import annotations

import pytest

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.errors import UsageError
from artifactkit.passes.rename import rename
from artifactkit.source import Inline


def of(*names: str) -> Weights:
    return Weights({n: TensorView(n, BY_NAME["u8"], (1,), Inline(b"x", (n, 0))) for n in names}, "npz")


@pytest.mark.parametrize(
    ("names", "rules", "expected"),
    [
        (["model.a", "model.b", "c"], [r"^model\.="], ["a", "b", "c"]),
        (["h.0.w", "h.12.w"], [r"h\.(\d+)=layers.\1"], ["layers.0.w", "layers.12.w"]),
        (["h.0.w"], [r"h\.(?P<n>\d+)=layers.\g<n>"], ["layers.0.w"]),
        (["a"], ["a=b", "b=c"], ["c"]),  # in order, each to what the one before made
        (["a.a"], ["a=b"], ["b.b"]),  # every match
        (["a", "b"], ["a=x", "b=a", "x=b"], ["b", "a"]),  # a swap
        (["k=v"], ["k=v=x"], ["x"]),  # the last = divides
        (["ab"], ["a(?=b)=x"], ["xb"]),
        (["a"], [r"a=\\"], ["\\"]),
        (["a", "b"], ["(a|b)=<\\1>"], ["<a>", "<b>"]),
    ],
)
def test_rename(names: list[str], rules: list[str], expected: list[str]) -> None:
    w = of(*names)
    out = rename(w, rules)
    assert list(out.tensors) == expected
    assert all(out.tensors[n].name == n for n in expected)
    assert [t.came_from() for t in out] == [(n,) for n in names]
    assert list(w.tensors) == names


def test_steps_say_which_rule() -> None:
    out = rename(of("a"), ["a=b", "b=c"])
    details = [step.detail for step in out.tensors["c"].steps]
    assert len(details) == 2 and "--rename a=b" in details[0] and "--rename b=c" in details[1]
    assert {step.outcome for step in out.tensors["c"].steps} == {"renamed"}
    assert rename(of("a", "b"), ["a=x"]).tensors["b"].steps == ()


@pytest.mark.parametrize(
    ("names", "rules", "words", "found"),
    [
        (["a.w", "b.w"], ["^.="], "two tensors the name '.w'", "a.w and b.w"),
        (["a", "b"], ["a=b"], "two tensors the name 'b'", "a and b"),
        (["b", "a"], ["a=b"], "two tensors the name 'b'", "b and a"),
        (["a"], ["a="], "an empty name", None),
        (["a"], ["x=y"], "'x=y' matches no tensor", None),
        (["a"], ["a=b", "a=c"], "'a=c' matches no tensor", None),
        (["a"], ["ab"], "is no rule", None),
        (["a"], ["=b"], "is no rule", None),
        (["a"], ["(=b"], "no regular expression", None),
        (["a"], [r"a=\1"], "invalid group reference", None),
        (["a"], [r"a=\g<n>"], "unknown group name", None),
        (["a"], ["(a+)+=b"], "repeats a group", None),
    ],
)
def test_refused(names: list[str], rules: list[str], words: str, found: str | None) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        rename(of(*names), rules)
    assert caught.value.found == found
