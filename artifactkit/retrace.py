"""With artifact, statement and source at hand: is the ledger of the two the one that the statement was made of?

The route is planned again from the options that the statement records. Nothing is written and no value compared; that
is what ``verify`` is for. What the statement says of inputs, tensors and ledger is computed here anew, so it cannot be
changed unseen in a statement that is not signed, as long as the source is the right one.
"""

from __future__ import annotations

import os
from dataclasses import replace

from . import trees
from .artifact import TensorView
from .attest import PATHS, options_of, root_of
from .errors import ArtifactkitError, Corrupt
from .opening import open_source
from .placing import sha256_file
from .provenance import statement as st
from .provenance.bundle import Line
from .provenance.check import Item, dependencies
from .provenance.statement import Object
from .route import ConvertOptions, Route, plan
from .types import Origin, ReadOptions
from .verify.accounting import ledger

SHOWN = 20  # differences of one kind that are named


def check_source(line: Line, bundle: str, artifact: str, source: str, origin: Origin) -> list[Item]:
    """Inputs, ledger and tensors, each as stated and as it is. A difference is an item, no error."""
    external: Object = line.value["predicate"]["buildDefinition"]["externalParameters"]
    items = _inputs(line, artifact, source)
    items += _origin(external, origin)
    try:
        # The format of the destination is given, so its name decides only whether it is a folder; as was written.
        options = _with_paths(options_of(line.value, bundle), artifact, source)
        destination = os.path.join(artifact, "") if external.get("destination") == "folder" else artifact
        route = plan(source, destination, options, origin)
        entries = ledger(route.initial, route.final)
    except ArtifactkitError as error:
        detail = f"the route that the statement records cannot be planned: {error.what}"
        return [*items, Item("ledger", "failed", detail, error.file, error.expected, error.found)]
    stated = line.value["predicate"]["buildDefinition"]["internalParameters"]["ledger"]
    found = st.ledger_json(entries)
    if stated == found:
        items.append(Item("ledger", "passed", f"{found['entries']} source tensors explained, sha256 {found['sha256']}"))
    else:
        items.append(_ledger_difference(stated, found))
    items += _tensors(route, artifact)
    items += _files(route, line)
    return items


def _leads_out(name: str) -> bool:
    """Whether a name is one outside of the folder it is in. A statement does not say what else of a machine is read."""
    return os.path.isabs(name) or os.pardir in name.split("/")


def _place(name: str, artifact: str, source: str) -> str:
    """Where an input should be: in the source's folder; a file that an option named may lie beside the artifact."""
    path = root_of(source) + name
    other = os.path.join(os.path.dirname(artifact), name)
    return other if not trees.is_file(path) and os.path.isfile(other) else path


def _with_paths(options: ConvertOptions, artifact: str, source: str) -> ConvertOptions:
    """The options with the files that they name where they are now. Corrupt for a name that leads elsewhere."""
    named = {key: str(value) for key in PATHS if (value := getattr(options, key)) is not None}
    out = next((name for name in named.values() if _leads_out(name)), None)
    if out is not None:
        raise Corrupt("an option's file leads out of the source", file=out)
    return replace(options, **{key: _place(name, artifact, source) for key, name in named.items()})  # type: ignore[arg-type]


def _inputs(line: Line, artifact: str, source: str) -> list[Item]:
    """Each file that went in, by its sha256."""
    stated = dependencies(line.value)
    if not stated:
        return [Item("source", "failed", "the statement names no input file", expected="at least one", found="none")]
    external = line.value["predicate"]["buildDefinition"]["externalParameters"]
    given = {str(external["options"][key]) for key in PATHS if key in external["options"]}
    single = len(stated) - len(given) == 1 and not trees.is_dir(source)
    items = []
    for name, digest in stated.items():
        if _leads_out(name):
            items.append(Item("source", "failed", "an input's name leads out of the source", name))
            continue
        # A single file may have another name by now.
        path = source if single and name not in given else _place(name, artifact, source)
        try:
            found = sha256_file(trees.open_file(path)).sha256
        except ArtifactkitError as error:
            items.append(Item("source", "failed", f"an input cannot be read: {error.what}", name, f"sha256 {digest}"))
            continue
        if found != digest:
            detail = "an input is not what went in"
            items.append(Item("source", "failed", detail, name, f"sha256 {digest}", f"sha256 {found}"))
    if not items:
        files = "1 input file" if len(stated) == 1 else f"{len(stated)} input files"
        items.append(Item("source", "passed", f"{files} with the sha256 that went in"))
    return items


def _origin(external: Object, origin: Origin) -> list[Item]:
    """The pinned source, where the one at hand is pinned too."""
    stated = external["source"].get("uri")
    if origin.uri is None or stated is None or stated == st.public(origin.uri):
        return []
    return [Item("source", "failed", "another source", None, str(stated), st.public(origin.uri))]


def _ledger_difference(stated: Object, found: Object) -> Item:
    for key in ("entries", "outcomes", "sha256"):
        if stated.get(key) != found[key]:
            detail = f"the ledger of source and artifact is not the stated one: {key}"
            return Item("ledger", "failed", detail, None, str(stated.get(key)), str(found[key]))
    return Item("ledger", "failed", "the ledger of source and artifact is not the stated one")


def _tensors(route: Route, artifact: str) -> list[Item]:
    """What the artifact holds, against what the route gives: names, types and shapes."""
    try:
        made = open_source(artifact, route.target.name, ReadOptions(everything=True, keep_prefix=True)).weights
    except ArtifactkitError as error:
        return [Item("tensors", "failed", f"the artifact cannot be read: {error.what}", error.file)]
    wanted: dict[str, TensorView] = dict(route.final.tensors)
    have = made.tensors
    # A tie that the format records comes back under both names; one that a runtime knows of by itself under one.
    wanted |= {name: alias.view for name, alias in route.final.aliases.items() if name in have or not _silent(route)}
    if not route.target.named and len(wanted) == len(have) == 1:
        have = dict(zip(wanted, have.values(), strict=True))
    items = []
    for name in [*wanted, *(name for name in have if name not in wanted)]:
        expected, found = _text(wanted.get(name)), _text(have.get(name))
        if expected != found:
            items.append(Item("tensors", "failed", f"tensor {name}", None, expected, found))
    if len(items) > SHOWN:
        items[SHOWN:] = [Item("tensors", "failed", f"and {len(items) - SHOWN} more")]
    if not items:
        items.append(Item("tensors", "passed", f"{len(have)} in the artifact, each from the source"))
    return items


def _silent(route: Route) -> bool:
    """Whether the target has no place for ties: who loads it knows that what is not there is tied."""
    return route.target.keeps_keyvalues


def _text(tensor: TensorView | None) -> str:
    return "none" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"


def _files(route: Route, line: Line) -> list[Item]:
    """The files that the route lays out, against those that the statement names."""
    if not route.folder:
        return []
    wanted = {f.name for f in route.files} | {c.name for c in route.companions}
    stated = {subject["name"] for subject in line.value["subject"]}
    return [
        Item("source", "failed", "a file that the conversion does not write", name, "none", name)
        if name in stated
        else Item("source", "failed", "a file that the conversion writes is not stated", name, name, "none")
        for name in sorted(wanted ^ stated)
    ]
