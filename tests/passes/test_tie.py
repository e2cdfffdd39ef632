"""Tied weights: found by storage, stored once, whatever the order; views that overlap become copies."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from artifactkit.artifact import TensorView, Weights
from artifactkit.dtypes import BY_NAME
from artifactkit.files import File
from artifactkit.passes.tie import merge_aliases
from artifactkit.report import Loss
from artifactkit.source import FileSpan, Inline, Mapped, Read, Source
from artifactkit.strided import view

U8, F32, C64 = BY_NAME["u8"], BY_NAME["f32"], BY_NAME["c64"]


@pytest.fixture
def storage(tmp_path: Path) -> FileSpan:
    path = tmp_path / "storage"
    path.write_bytes(bytes(range(256)))
    return FileSpan(File(path), 0, 256)


def of(metadata: dict[str, str] | None = None, **sources: tuple[Source, tuple[int, ...]]) -> Weights:
    views = {n: TensorView(n, F32, shape, source) for n, (source, shape) in sources.items()}
    return Weights(views, "torch-zip", metadata=metadata or {})


def cut(
    storage: Source, offset: int, *shape: int, strides: tuple[int, ...] | None = None
) -> tuple[Source, tuple[int, ...]]:
    """A view of float32 elements, row-major unless strides are given."""
    if strides is None:
        strides = tuple(itertools.accumulate(reversed((*shape[1:], 1)), lambda a, b: a * b))[::-1] if shape else ()
    return view(storage, 4, offset, shape, strides), shape


def copies(w: Weights) -> set[str]:
    return {t.name for t in w for step in t.steps if step.outcome == "copied"}


def test_the_first_name_is_kept_in_any_order(storage: FileSpan) -> None:
    """Case B03, with three names."""
    names = ("lm_head.weight", "embed.weight", "encoder.embed.weight")
    for order in itertools.permutations(names):
        merged = merge_aliases(of(**{n: cut(storage, 0, 3, 2) for n in order}, other=cut(storage, 6, 2)))
        assert set(merged.tensors) == {"embed.weight", "other"}
        assert {n: a.target for n, a in merged.aliases.items()} == {
            "lm_head.weight": "embed.weight", "encoder.embed.weight": "embed.weight",
        }  # fmt: skip
        assert all(a.view.name == n for n, a in merged.aliases.items())
        assert not merged.notes and not copies(merged)


def test_ties_need_type_shape_and_span(storage: FileSpan) -> None:
    w = of(a=cut(storage, 0, 2, 3), b=cut(storage, 0, 3, 2), c=cut(storage, 0, 6), d=cut(storage, 0, 2, 3))
    w.tensors["e"] = TensorView("e", BY_NAME["i32"], (2, 3), w.tensors["a"].source)
    merged = merge_aliases(w)
    assert set(merged.aliases) == {"d"}
    assert copies(merged) == {"a", "b", "c", "e"}


def test_strided_views_can_be_tied(storage: FileSpan) -> None:
    merged = merge_aliases(of(a=cut(storage, 0, 4, 2, strides=(1, 4)), b=cut(storage, 0, 4, 2, strides=(1, 4))))
    assert set(merged.aliases) == {"b"}


def test_overlapping_views_become_copies_and_say_so(storage: FileSpan) -> None:
    w = of(all=cut(storage, 0, 8), head=cut(storage, 0, 2), tail=cut(storage, 6, 2), far=cut(storage, 8, 2))
    merged = merge_aliases(w)
    assert not merged.aliases and set(merged.tensors) == set(w.tensors)
    assert copies(merged) == {"all", "head", "tail"}
    assert "shares bytes with all" in merged.tensors["tail"].steps[-1].detail
    assert merged.notes == ["views of shared storage become independent copies: all, head, tail"]
    assert not merged.losses and not copies(w)


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        (((0, 4), None), ((4, 4), None), False),  # one after the other, as the weights of an LSTM are
        (((0, 5), None), ((4, 4), None), True),
        (((0, 4), (2,)), ((1, 4), (2,)), False),  # real and imaginary parts, even and odd
        (((0, 4), (2,)), ((2, 4), (2,)), True),
        (((0, 4), (2,)), ((1, 4), (4,)), False),
        (((0, 4), (2,)), ((0, 8), None), True),
        (((0, 3), (4,)), ((3, 3), (4,)), False),  # columns of one matrix
        (((0, 3), (4,)), ((0, 3), (2,)), True),
    ],
)
def test_which_views_share_bytes(
    storage: FileSpan,
    a: tuple[tuple[int, int], tuple[int] | None],
    b: tuple[tuple[int, int], tuple[int] | None],
    shared: bool,
) -> None:
    (a_at, a_n), a_strides = a
    (b_at, b_n), b_strides = b
    merged = merge_aliases(
        of(a=cut(storage, a_at, a_n, strides=a_strides), b=cut(storage, b_at, b_n, strides=b_strides))
    )
    assert copies(merged) == ({"a", "b"} if shared else set())


def test_other_files_share_nothing(tmp_path: Path, storage: FileSpan) -> None:
    path = tmp_path / "other"
    path.write_bytes(bytes(64))
    other = FileSpan(File(path), 0, 64)
    merged = merge_aliases(of(a=cut(storage, 0, 4), b=cut(other, 0, 4), c=cut(other, 1, 2)))
    assert copies(merged) == {"b", "c"} and not merged.aliases


def test_equal_constants_are_not_tied() -> None:
    """Bytes without a place are values. With a place they are a storage."""
    merged = merge_aliases(of(a=(Inline(bytes(4)), (1,)), b=(Inline(bytes(4)), (1,))))
    assert not merged.aliases and not copies(merged)
    merged = merge_aliases(of(a=(Inline(bytes(4), ("f", 9)), (1,)), b=(Inline(bytes(4), ("f", 9)), (1,))))
    assert set(merged.aliases) == {"b"}


def test_inflated_members(storage: FileSpan) -> None:
    data = storage.file
    merged = merge_aliases(of(a=(Read(data, 0, 8), (2,)), b=(Read(data, 0, 8), (2,)), c=(Read(data, 4, 8), (2,))))
    assert set(merged.aliases) == {"b"} and copies(merged) == {"a", "c"}


def test_places_in_what_was_mapped_are_its_own(storage: FileSpan) -> None:
    """Rows of a dequantised tensor, four bytes for one: beyond the span that they are made from, not in the next."""

    def widen(data: memoryview, out: memoryview) -> None:
        out[:] = b"".join(bytes([b, 0, 0, 0]) for b in data)

    first, second = (Mapped(FileSpan(storage.file, at, 64), 64, 1, 4, widen, "x") for at in (0, 64))
    experts = {f"e{i}": cut(first, 16 * i, 16) for i in range(4)}
    ordered = {"q": cut(second, 0, 2, 2, 16, strides=(16, 32, 1)), "k": (second, (64,))}
    made = merge_aliases(of(**experts, **ordered))
    assert not made.notes
    assert not [t.name for t in made for step in t.steps if step.outcome == "copied"]
    again = merge_aliases(of(a=cut(first, 0, 16), b=cut(first, 8, 16)))
    assert again.notes


def test_empty_tensors_are_never_tied(storage: FileSpan) -> None:
    merged = merge_aliases(of(a=cut(storage, 0, 0), b=cut(storage, 0, 0)))
    assert not merged.aliases and len(merged.tensors) == 2


def test_names_that_are_metadata_keys_are_stored_again(storage: FileSpan) -> None:
    w = of({"b": "text"}, a=cut(storage, 0, 2), b=cut(storage, 0, 2), c=cut(storage, 0, 2), format=cut(storage, 0, 2))
    merged = merge_aliases(w)
    assert set(merged.aliases) == {"c"} and set(merged.tensors) == {"a", "b", "format"}
    assert {"b", "format"} <= copies(merged)


def test_metadata_that_looks_like_a_tie_does_not_travel(storage: FileSpan) -> None:
    w = of({"author": "a", "format": "a", "a": "a", "by": "me"}, a=cut(storage, 0, 2))
    merged = merge_aliases(w)
    assert merged.metadata == {"format": "a", "a": "a", "by": "me"}
    assert merged.losses == [Loss("metadata-dropped", "metadata 'author': 'a' would be read as a tied tensor")]
    assert len(w.metadata) == 4 and not w.losses


def test_many_views_take_no_quadratic_time(storage: FileSpan) -> None:
    w = of(**{f"t{i}": cut(storage, 0, 64) for i in range(20_000)})
    assert len(merge_aliases(w).aliases) == 19_999
    w = of(**{f"t{i}": cut(storage, i % 60, 3, 1 + i % 2, strides=(1, 0)) for i in range(20_000)})
    merge_aliases(w)
