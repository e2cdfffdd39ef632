"""List the formats that can be read and written"""

from __future__ import annotations

from . import options as o
from .render import out, table


def command(json: o.Json = False) -> int:
    from .. import registry
    from ..known import KNOWN

    rows = []
    documents = []
    for fmt in [*registry.formats().values(), *registry.plugins().values()]:
        read, write = fmt.read is not None, fmt.write is not None
        rows.append(
            (fmt.name, fmt.kind, "yes" if read else "no", "yes" if write else "no", " ".join(fmt.suffixes), fmt.title)
        )
        documents.append(
            {
                "name": fmt.name, "kind": fmt.kind, "title": fmt.title, "read": read, "write": write,
                "suffixes": list(fmt.suffixes), "family": fmt.family, "extra": fmt.extra, "folder": fmt.folder,
                "dtypes": sorted(fmt.dtypes),
            }
        )  # fmt: skip
    out.data(*table(rows, head=("format", "kind", "read", "write", "suffixes", "what it is")))
    known = [{"name": k.name, "title": k.title, "hint": k.hint} for k in KNOWN]
    out.data("", "known by content, neither read nor written: " + ", ".join(k.name for k in KNOWN))
    out.document(ok=True, formats=documents, known=known)
    return 0
