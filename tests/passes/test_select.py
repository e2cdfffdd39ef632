"""``--include`` and ``--exclude``, and the patterns they are written in."""

from __future__ import annotations

import time

import pytest

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.errors import Refused, UsageError
from artifactkit.passes.select import select
from artifactkit.patterns import Pattern
from artifactkit.source import Inline

NAMES = ("embed.weight", "h.0.attn.bias", "h.0.attn.weight", "h.10.attn.weight", "H.0.x[1]", "head.weight")


def of(*names: str) -> Weights:
    return Weights({n: TensorView(n, BY_NAME["u8"], (1,), Inline(b"x", (n, 0))) for n in names}, "npz")


@pytest.mark.parametrize(
    ("include", "exclude", "kept"),
    [
        (["*"], [], NAMES),
        (["*.weight"], [], ("embed.weight", "h.0.attn.weight", "h.10.attn.weight", "head.weight")),
        (["h.?.*"], [], ("h.0.attn.bias", "h.0.attn.weight")),
        (["h.[0-9].*"], [], ("h.0.attn.bias", "h.0.attn.weight")),
        (["*x[[]1]"], [], ("H.0.x[1]",)),
        (["embed.weight", "head.weight"], [], ("embed.weight", "head.weight")),
        ([], ["*.bias"], ("embed.weight", "h.0.attn.weight", "h.10.attn.weight", "H.0.x[1]", "head.weight")),
        (["h.*"], ["*.bias"], ("h.0.attn.weight", "h.10.attn.weight")),
        ([r"re:^h\.\d+\."], [], ("h.0.attn.bias", "h.0.attn.weight", "h.10.attn.weight")),
        (["re:attn"], [r"re:\.10\."], ("h.0.attn.bias", "h.0.attn.weight")),
        ([r"re:^(embed|head)\."], [], ("embed.weight", "head.weight")),
    ],
)
def test_select(include: list[str], exclude: list[str], kept: tuple[str, ...]) -> None:
    w = of(*NAMES)
    out = select(w, include, exclude)
    assert tuple(out.tensors) == kept
    assert {d.name for d in out.dropped} == set(NAMES) - set(kept)
    assert all(d.asked for d in out.dropped) and all(loss.asked for loss in out.losses)
    assert len(out.losses) == len(out.dropped)
    assert tuple(w.tensors) == NAMES and not w.dropped


def test_why() -> None:
    out = select(of(*NAMES), ["h*"], ["*.bias"])
    assert {d.name: d.why for d in out.dropped} == {
        "embed.weight": "not in --include", "H.0.x[1]": "not in --include", "h.0.attn.bias": "--exclude *.bias",
    }  # fmt: skip


def test_dropped_under_the_name_in_the_source() -> None:
    w = of("a", "b")
    w.tensors["a"] = w.tensors["a"].renamed("a", "")
    w.tensors = {"stripped": w.tensors["a"].renamed("stripped", "prefix"), "b": w.tensors["b"]}
    assert [d.name for d in select(w, [], ["stripped"]).dropped] == ["a"]


@pytest.mark.parametrize(
    ("include", "exclude", "words"),
    [
        (["embed.wieght"], [], "--include 'embed.wieght' matches no tensor"),
        (["*.weight", "nothing"], [], "--include 'nothing' matches no tensor"),
        ([], ["*.bais"], r"--exclude '\*.bais' matches no tensor"),
        ([], ["*"], "leave no tensor"),
        (["*.bias"], ["*.bias"], "leave no tensor"),
        (["re:("], [], "no regular expression"),
        (["re:"], [], "an empty pattern"),
        ([""], [], "an empty pattern"),
        (["*" * 1001], [], "a pattern is too long"),
        (["re:x{99999999999999}"], [], "is too large"),
    ],
)
def test_refused(include: list[str], exclude: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        select(of(*NAMES), include, exclude)
    assert caught.value.exit_code == 2


def test_a_typing_error_gets_a_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        select(of(*NAMES), ["embed.wieght"])
    assert "embed.weight" in (caught.value.hint or "")


EXPONENTIAL = [
    r"(a+)+$", r"(a*)*b", r"(?:a|aa)+$", r"(\w+\.?)+x", r"((a)?)*b", r"(?P<n>a+){2,}", r"(x(a+))*", r"([a-z]+)*!",
    r"(a|b|ab)*c", r"(a+){10}", r"((((a+))))*", r"(?i:a+)+", r"(a\)+)+",
]  # fmt: skip
LINEAR = [
    r"^h\.\d+\.(attn|mlp)\.", r"(a+)(b+)", r"(?:layers\.\d+\.)?weight", r"[(a+)+]", r"\(a+\)+", r"(a)+", r"(?:ab)*c",
    r"a{3}", r"x{,}", r"[]+*]+", r"[^]+*]", r"(?=a+)b", r"a+?b*+", r"{}", r"(a+)?", "h.0", r"(a{2})?", r"{a}+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_patterns_that_could_take_for_ever(pattern: str) -> None:
    with pytest.raises(UsageError, match="repeats a group that itself repeats or branches"):
        Pattern("re:" + pattern)


@pytest.mark.parametrize("pattern", LINEAR)
def test_their_twins(pattern: str) -> None:
    Pattern("re:" + pattern).matches("h.0.attn.weight")


def test_names_made_to_be_slow() -> None:
    """Polynomial time on a hostile name is refused; an ordinary name is fine, and so is a glob."""
    long = "a." * 50_000
    pattern = Pattern(r"re:(.+)\.(.+)\.(.+)\.x$")
    with pytest.raises(Refused, match="too long for this pattern") as caught:
        pattern.matches(long)
    assert len(str(caught.value)) < 1000
    assert pattern.matches("model.layers.0.x")
    started = time.process_time()
    assert not Pattern("*a*a*a*a*a*a*x").matches(long)
    assert time.process_time() - started < 5
