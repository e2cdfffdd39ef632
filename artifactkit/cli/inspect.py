"""Show what an artifact is, what it holds and what in it can execute

Reads headers only, however large the file, and runs nothing.

    artifactkit inspect model.pt
    artifactkit inspect checkpoint/ --tensors
    artifactkit inspect hf://owner/name@main
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .render import count, out, shape, size, table

if TYPE_CHECKING:
    from ..artifact import Graph, KeyValue, Kind, Value, Weights
    from ..opening import Opened
    from ..scan.model import FileReport

Tensors = Annotated[bool, typer.Option("--tensors", help="List every tensor, value and name of code.")]
SHOWN = 10

# The four layers of a stack, and which of them a kind of artifact settles (docs/reference.md).
LAYERS: dict[Kind, tuple[str, str]] = {
    "weights": ("artifact", "model implementation, execution, serving"),
    "graph": ("artifact, model implementation", "execution, serving"),
    "plan": ("artifact, model implementation, execution", "serving"),
}
TO_RUN: dict[Kind, str] = {
    "weights": "the model's code, and a framework that runs it",
    "graph": "a runtime for the graph, and any custom operators",
    "plan": "the same runtime version, and the device family that it was compiled for",
}


def command(
    src: o.Source,
    from_: o.From = None,
    state_dict_key: o.StateDictKey = None,
    everything: o.All = False,
    keep_prefix: o.KeepPrefix = False,
    repair: o.Repair = False,
    tensors: Tensors = False,
    require_pinned: o.RequirePinned = False,
    json: o.Json = False,
) -> int:
    from ..opening import open_source
    from ..types import ReadOptions
    from .located import locate, say_commit

    located = locate(src, require_pinned)
    out.keep(**located.to_json())
    say_commit(located)
    src = located.path
    reports = _judged(src)
    opened = open_source(src, from_, ReadOptions(state_dict_key, everything, keep_prefix, repair))
    weights = opened.weights
    kind = opened.format.kind
    settled, open_layers = LAYERS[kind]
    out.data(f"{src}: {opened.format.name} ({opened.format.title}), {kind}")
    if opened.folder:
        out.data(f"weights: {opened.path}")
    # A format with typed facts of the model is made for a runtime that has the model's code in itself.
    run = "a runtime that knows the architecture" if opened.format.keeps_keyvalues else TO_RUN[kind]
    out.data(f"settles: {settled}; leaves open: {open_layers}", f"to run it: {run}")
    _show_model(weights)
    _show_graph(weights.graph, tensors)
    _show_tensors(weights, tensors)
    _show_rest(weights, tensors)
    _show_statement(src)
    _show_scan(reports)
    out.document(ok=True, **_json(opened))
    return 0


def _judged(src: str) -> list[FileReport]:
    """What the scanner says of the source; known before it is read, since reading may fail."""
    from .. import trees
    from ..judge import judge_source, verdict

    if not trees.exists(src):
        return []  # opening it says so
    reports = judge_source(src)
    out.keep(
        scan={
            "verdict": verdict(reports),
            "findings": [
                {"path": r.path, "member": f.member, "rule": f.rule, "severity": f.severity, "what": f.what}
                for r in reports
                for f in r.findings
            ],
        }
    )
    return reports


def _show_scan(reports: list[FileReport]) -> None:
    """The verdict, and the findings that are not said as names of code already."""
    from ..errors import printable
    from ..judge import said, verdict

    out.data(f"scan: {verdict(reports)}")
    lines = [f"  {severity}: {line}" for severity in ("malicious", "unreadable") for line in said(reports, severity)]
    suspicious = len(said(reports, "suspicious"))
    if suspicious:
        lines.append(f"  suspicious: {count(suspicious, 'finding')} (artifactkit scan lists them)")
    out.data(*map(printable, lines[:SHOWN]))
    _more(len(lines), False)


def _model(weights: Weights) -> dict[str, object]:
    """What key-values say of the model: architecture, name, context length, size of the vocabulary, bits a weight."""
    pairs = {pair.key: pair for pair in weights.keyvalues}
    if not pairs:
        return {}
    arch = pairs["general.architecture"].value if "general.architecture" in pairs else None
    found: dict[str, object] = {"architecture": arch}
    keys = {"name": "general.name", "context_length": f"{arch}.context_length", "tokenizer": "tokenizer.ggml.model",
            "pre_tokenizer": "tokenizer.ggml.pre"}  # fmt: skip
    found |= {name: pairs[key].value for name, key in keys.items() if key in pairs and not pairs[key].is_array}
    tokens = pairs.get("tokenizer.ggml.tokens")
    if tokens is not None and tokens.is_array:
        found["tokens"] = tokens.count
    numel = sum(tensor.numel for tensor in weights)
    if numel:
        found["parameters"] = numel
        found["bits_per_weight"] = round(8 * weights.nbytes / numel, 2)
    return {name: value for name, value in found.items() if value is not None}


def _show_model(weights: Weights) -> None:
    from ..errors import printable

    found = _model(weights)
    if not found:
        return
    texts = {name: f"{value:,}" if isinstance(value, int) else str(value) for name, value in found.items()}
    out.data("model:", *table([(f"  {name.replace('_', ' ')}", printable(_cut(text))) for name, text in texts.items()]))


def _dims(value: Value) -> str:
    """``f32 [batch, 128]``; ``?`` for a dimension of which nothing is said."""
    if value.dims is None:
        return value.type
    return f"{value.type} [{', '.join('?' if n is None else str(n) for n in value.dims)}]"


def _show_graph(graph: Graph | None, everything: bool) -> None:
    from ..errors import printable

    if graph is None:
        return
    opsets = ", ".join(f"{domain} {version}" for domain, version in graph.opsets.items())
    out.data(
        "graph:", *table([(f"  {key.replace('_', ' ')}", printable(_cut(value))) for key, value in graph.facts.items()])
    )
    out.data(printable(f"  opsets: {opsets or 'none'}"))
    for role, values in (("input", graph.inputs), ("output", graph.outputs)):
        shown = values if everything else values[:SHOWN]
        out.data(*table([(f"  {role} {printable(value.name)}", printable(_dims(value))) for value in shown]))
        _more(len(values), everything)
    operators = list(graph.operators.items())
    out.data(f"  operators: {count(len(operators), 'kind')}, {count(sum(graph.operators.values()), 'node')}")
    shown_operators = operators if everything else operators[:SHOWN]
    out.data(*table([(f"    {printable(name)}", str(n)) for name, n in shown_operators], right=(1,)))
    _more(len(operators), everything)
    if graph.functions:
        out.data(printable(_cut(f"  defines operators of its own: {', '.join(graph.functions)}")))
    if graph.custom:
        out.data(printable(_cut(f"  needs operators that no standard has, of: {', '.join(graph.custom)}")))


def _graph_json(graph: Graph | None) -> dict[str, object] | None:
    if graph is None:
        return None
    values = {
        role: [{"name": v.name, "type": v.type, "shape": None if v.dims is None else list(v.dims)} for v in listed]
        for role, listed in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    return {
        "facts": graph.facts, "opsets": graph.opsets, **values, "operators": graph.operators,
        "functions": list(graph.functions), "custom_domains": list(graph.custom),
    }  # fmt: skip


def _plain(value: object) -> object:
    """A value as JSON can hold it: what is no finite number or no Unicode text becomes a text that shows it."""
    import math

    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _pair_text(pair: KeyValue) -> str:
    """A value on one line; of an array how many elements it has, and the first where they are at hand."""
    if not pair.is_array:
        return _cut(str(pair.value).lower() if isinstance(pair.value, bool) else str(pair.value))
    if isinstance(pair.value, tuple) and len(pair.value) <= SHOWN:
        return _cut("[" + ", ".join(str(item) for item in pair.value) + "]")
    return f"{pair.count} elements"


def _show_tensors(weights: Weights, everything: bool) -> None:
    kinds = Counter(t.dtype.name for t in weights)
    types = ", ".join(f"{n} {name}" for name, n in sorted(kinds.items()))
    tied = [group for group in _ties(weights) if len(group) > 1]
    out.data(f"tensors: {len(weights.tensors)} ({types}), {size(weights.nbytes)}" if kinds else "tensors: 0")
    if weights.chosen:
        out.data(f"taken from: {weights.chosen}")
    rows = [(f"  {t.name}", t.dtype.name, shape(t.shape), size(t.nbytes)) for t in weights]
    out.data(*table(rows if everything else rows[:SHOWN], right=(3,)))
    _more(len(rows), everything)
    for group in tied if everything else tied[:SHOWN]:
        out.data(f"tied: {' = '.join(group)}")
    if not everything and len(tied) > SHOWN:
        out.data(f"  ... and {len(tied) - SHOWN} more groups (--tensors lists all)")


def _ties(weights: Weights) -> list[list[str]]:
    """Names of tensors that are one tensor in storage, in groups."""
    groups: dict[object, list[str]] = {}
    for tensor in weights:
        if tensor.nbytes:
            groups.setdefault((tensor.source, tensor.dtype, tensor.shape), []).append(tensor.name)
    return list(groups.values())


def _more(total: int, everything: bool) -> None:
    if not everything and total > SHOWN:
        out.data(f"  ... and {total - SHOWN} more (--tensors lists all)")


def _show_rest(weights: Weights, everything: bool) -> None:
    from ..errors import printable
    from ..types import SUMMARY_PREFIX

    for name, error in weights.refused.items():
        out.data(printable(f"cannot be converted: {name}: {error.what}"))
    if weights.dropped:
        reasons = Counter(d.why for d in weights.dropped)
        for why, n in sorted(reasons.items()):
            nbytes = sum(d.nbytes for d in weights.dropped if d.why == why)
            out.data(f"left out: {count(n, 'tensor')}, {size(nbytes)}: {why}")
    if weights.skipped:
        out.data(f"values that are no tensors: {len(weights.skipped)}")
        shown = weights.skipped if everything else weights.skipped[:SHOWN]
        out.data(*table([(f"  {s.path}", s.type, s.text) for s in shown]))
        _more(len(weights.skipped), everything)
    if weights.code:
        out.data(f"names code, which loading it with pickle would import or call: {len(weights.code)}")
        shown_code = weights.code if everything else weights.code[:SHOWN]
        out.data(*table([(f"  {c.full}", f"{c.count} times" if c.count > 1 else "") for c in shown_code]))
        _more(len(weights.code), everything)
    else:
        out.data("names code: nothing beyond tensor data")
    origin = _origin(weights)
    if origin:
        out.data("where it is from, as its own metadata says:")
        out.data(*table([(f"  {key.replace('_', ' ')}", _cut(value)) for key, value in origin.items()]))
    metadata = {key: value for key, value in weights.metadata.items() if not key.startswith(SUMMARY_PREFIX)}
    if metadata:
        out.data(f"metadata: {count(len(metadata), 'key')}")
        rows = [(f"  {key}", _cut(value)) for key, value in metadata.items()]
        out.data(*table(rows if everything else rows[:SHOWN]))
        _more(len(rows), everything)
    if weights.keyvalues:
        out.data(f"key-values: {len(weights.keyvalues)}")
        pairs = weights.keyvalues if everything else weights.keyvalues[:SHOWN]
        out.data(*table([(f"  {printable(p.key)}", p.kind, printable(_pair_text(p))) for p in pairs]))
        _more(len(weights.keyvalues), everything)
    for role in ("config", "tokenizer", "code"):
        names = [c.name for c in weights.companions if c.role == role]
        if names:
            out.data(printable(f"beside it, {role}: {', '.join(names)}"))
    for note in weights.notes:
        out.data(f"note: {printable(note)}")


def _cut(value: str) -> str:
    return value if len(value) <= 80 else value[:77] + "..."


def _origin(weights: Weights) -> dict[str, str]:
    """What the conversion that made the artifact knew of its origin (types.Summary), without the prefix."""
    from ..types import SUMMARY_PREFIX

    found = {key: value for key, value in weights.metadata.items() if key.startswith(SUMMARY_PREFIX)}
    return {key.removeprefix(SUMMARY_PREFIX): value for key, value in sorted(found.items())}


def _show_statement(src: str) -> None:
    """Whether statements stand beside it. They are read by other commands."""
    import os
    import shlex

    from ..provenance.bundle import beside

    path = beside(src)
    if os.path.isfile(path):
        out.data(f"statement: {path} (artifactkit provenance show {shlex.quote(src)})")


def _json(opened: Opened) -> dict[str, object]:
    weights = opened.weights
    return {
        "source": opened.given,
        "path": opened.path,
        "format": opened.format.name,
        "kind": opened.format.kind,
        "chosen": weights.chosen,
        "nbytes": weights.nbytes,
        "tensors": [
            {
                "name": t.name, "dtype": t.dtype.name, "shape": list(t.shape), "nbytes": t.nbytes,
                "file": t.source.position[0], "offset": t.source.position[1],
            }
            for t in weights
        ],
        "ties": [group for group in _ties(weights) if len(group) > 1],
        "refused": [{"name": name, "why": error.what} for name, error in weights.refused.items()],
        "dropped": [{"name": d.name, "why": d.why, "nbytes": d.nbytes} for d in weights.dropped],
        "skipped": [{"path": s.path, "type": s.type, "value": s.text} for s in weights.skipped],
        "code": [{"name": c.full, "count": c.count} for c in weights.code],
        "metadata": weights.metadata,
        "model": _model(weights),
        "graph": _graph_json(weights.graph),
        "keyvalues": [
            {"key": p.key, "kind": p.kind, "count": p.count} if p.is_array and not isinstance(p.value, tuple)
            else {"key": p.key, "kind": p.kind, "value": _plain(p.value)}
            for p in weights.keyvalues
        ],
        "origin": _origin(weights),
        "companions": [{"name": c.name, "role": c.role} for c in weights.companions],
        "notes": weights.notes,
        "files": list(weights.files),
    }  # fmt: skip
