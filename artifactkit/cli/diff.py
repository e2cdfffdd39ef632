"""Compare two artifacts, tensor by tensor

Names, dtypes, shapes, values bit for bit, and metadata. Exit 1 when anything differs.

    artifactkit diff old.safetensors new.safetensors
"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options as o
from .render import count, out, table

Left = Annotated[str, typer.Argument(metavar="A", help="A file or folder.", show_default=False)]
Right = Annotated[str, typer.Argument(metavar="B", help="A file or folder.", show_default=False)]
SHOWN = 50


def command(
    a: Left,
    b: Right,
    state_dict_key: o.StateDictKey = None,
    everything: o.All = False,
    keep_prefix: o.KeepPrefix = False,
    require_pinned: o.RequirePinned = False,
    json: o.Json = False,
) -> int:
    from ..opening import open_source
    from ..targets import lowering
    from ..translate import in_words_of
    from ..types import ReadOptions
    from ..verify.compare import diff, matched
    from .located import fetch_weights, locate, say_commit

    sources = [locate(src, require_pinned) for src in (a, b)]
    for located in sources:
        say_commit(located)
    a, b = (located.path for located in sources)
    out.keep(sources=[located.to_json() for located in sources if located.uri])
    read = ReadOptions(state_dict_key, everything, keep_prefix)
    left, right = open_source(a, None, read), open_source(b, None, read)
    if fetch_weights(left.weights, sources[0]):
        left = open_source(a, None, read)
    if fetch_weights(right.weights, sources[1]):
        right = open_source(b, None, read)
    for one, other in ((left, right), (right, left)):
        change = lowering(one.format, other.format)
        if change is not None:  # a graph beside weights: those that would be taken out of it
            one.weights = change.run(one.weights)
    if left.format.name == "gguf":
        right.weights = in_words_of(right.weights, left.weights)
    else:
        left.weights = in_words_of(left.weights, right.weights)
    if not left.format.named:
        left.weights = matched(left.weights, right.weights)
    elif not right.format.named:
        right.weights = matched(right.weights, left.weights)
    with out.progress(f"comparing {a}", left.weights.nbytes, len(left.weights.tensors)) as advance:
        found = diff(left.weights, right.weights, advance)
    rows = [(f"  {d.what}", d.name, d.left, d.right, d.detail) for d in found[:SHOWN]]
    if found:
        out.data(*table(rows, head=("  what", "name", a, b, "")))
    if len(found) > SHOWN:
        out.data(f"  ... and {len(found) - SHOWN} more (--json lists all)")
    alike = len(set(left.weights.tensors) & set(right.weights.tensors)) - sum(
        d.what in ("dtype", "shape", "values") for d in found
    )
    out.data(f"{count(len(found), 'difference')}, {count(alike, 'tensor')} alike")
    out.document(ok=not found, left=a, right=b, alike=alike, differences=[d.to_json() for d in found])
    return 1 if found else 0
