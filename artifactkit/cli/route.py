"""Show how a source would become another format, or why it cannot

Only headers are read, and nothing is written.

    artifactkit route model.pt -t safetensors
    artifactkit route model.pt
"""

from __future__ import annotations

from . import options as o
from .render import out, table


def command(
    src: o.Source,
    to: o.To = None,
    from_: o.From = None,
    require_pinned: o.RequirePinned = False,
    json: o.Json = False,
) -> int:
    from .. import registry, route, targets
    from ..errors import RouteRefused, printable
    from ..opening import open_source
    from .located import locate, say_commit

    located = locate(src, require_pinned)
    out.keep(**located.to_json())
    say_commit(located)
    src = located.path
    if to is None:
        opened = open_source(src, from_)
        rows, documents = [], []
        for fmt in registry.formats().values():
            refused = targets.refusal(opened.format, fmt)
            answer = "yes" if refused is None else f"no: {refused.what}"
            rows.append((fmt.name, answer))
            documents.append({"target": fmt.name, "ok": refused is None, "why": refused.what if refused else ""})
        out.data(f"{printable(src)}: {opened.format.name}", *table(rows))
        out.document(ok=True, source=src, format=opened.format.name, targets=documents)
        return 0
    suffix = _suffix(to)
    # Nothing will be written, so what checks an output need not be here.
    options = route.ConvertOptions(source_format=from_, target_format=to, verify=False)
    planned = route.plan(src, f"model{suffix}", options)
    if planned.target.write is None:
        raise RouteRefused(f"`{planned.target.name}` is not written")
    out.data(f"{planned.opened.format.name} -> {planned.target.name}")
    out.data(*table([(f"  {step.name}", step.detail) for step in planned.steps]))
    for loss in planned.losses:
        out.data(f"  loss: {loss.kind}: {loss.detail}")
    out.document(
        ok=True, source=src, format=planned.opened.format.name, target=planned.target.name,
        steps=[s.to_json() for s in planned.steps], losses=[loss.to_json() for loss in planned.losses],
    )  # fmt: skip
    return 0


def _suffix(name: str) -> str:
    """A suffix for a name that is never written."""
    from .. import registry

    fmt = registry.formats().get(name.strip().lower().replace("_", "-"))
    return fmt.suffixes[0] if fmt is not None and fmt.suffixes else ".out"
