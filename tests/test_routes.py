"""The whole format x format table, refusals with their words. A refusal is an answer: it is tested like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifactkit import known, registry
from artifactkit.errors import RouteRefused
from artifactkit.targets import kinds_refusal, not_written, refusal

WRITTEN = {"gguf", "mlx", "safetensors", "npz", "npy"}
GRAPHS = {"onnx"}  # written from graphs, and from nothing else; weights are taken out of them
READ_ONLY = {
    "joblib", "pickle", "pt2", "torch-legacy", "torch-package", "torch-tar", "torch-zip", "torchscript",
}  # fmt: skip
GOLDEN = Path(__file__).parent / "routes.golden"


def table() -> list[str]:
    """One line a pair: ``source -> target: yes``, or the words of the refusal and its hint."""
    lines = []
    formats = registry.formats()
    for source in formats.values():
        for target in formats.values():
            lines.append(f"{source.name} -> {target.name}: {_words(refusal(source, target))}")
        for entry in known.KNOWN:
            if entry.kind is not None:
                answer = kinds_refusal(source.name, source.kind, entry.name, entry.kind, None)
                words = _words(answer or not_written(entry.name))
                lines.append(f"{source.name} -> {entry.name}: {words}")
    for entry in known.KNOWN:
        for target in formats.values():
            if entry.kind is not None and entry.kind != target.kind:
                answer = kinds_refusal(entry.name, entry.kind, target.name, target.kind, None)
                lines.append(f"{entry.name} -> {target.name}: {_words(answer)}")
    return lines


def _words(answer: RouteRefused | None) -> str:
    return "yes" if answer is None else f"{answer.what} | {answer.hint}"


def test_the_table_is_the_golden_one() -> None:
    """``python -m tests.test_routes`` writes it anew; the difference is then read like any change."""
    assert table() == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_every_format_is_in_the_table_as_readable_or_written() -> None:
    assert set(registry.formats()) == WRITTEN | GRAPHS | READ_ONLY
    assert {name for name, fmt in registry.formats().items() if fmt.write is not None} == WRITTEN | GRAPHS
    assert all(fmt.read is not None for fmt in registry.formats().values())


@pytest.mark.parametrize("source", sorted(WRITTEN | GRAPHS | READ_ONLY))
@pytest.mark.parametrize("target", sorted(WRITTEN))
def test_any_reader_meets_any_writer(source: str, target: str) -> None:
    assert refusal(registry.get(source), registry.get(target)) is None


@pytest.mark.parametrize("target", sorted(READ_ONLY))
def test_no_pickle_is_ever_written(target: str) -> None:
    answer = refusal(registry.get("safetensors"), registry.get(target))
    assert answer is not None
    assert answer.exit_code == 2
    assert answer.hint == "-t safetensors"


def test_nothing_leads_out_of_a_plan() -> None:
    answer = kinds_refusal("tensorrt", "plan", "safetensors", "weights", None)
    assert answer is not None
    assert "nothing leads out of a plan" in answer.what


def test_names_that_differ_from_a_format_by_little_are_suggested() -> None:
    from artifactkit.errors import UsageError

    with pytest.raises(UsageError) as caught:
        registry.get("safetensor")
    assert caught.value.hint == "did you mean safetensors?"


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(table()) + "\n", encoding="utf-8")
