"""Pin what artifactkit.toml names: commits, digests of files, versions

artifactkit.lock is written beside the recipe. What it holds already stays as it is: a branch stays at its commit until
--upgrade. Files of this machine are hashed each time.

    artifactkit lock
    artifactkit lock --check
    artifactkit lock --upgrade smollm
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .render import count, out, size

if TYPE_CHECKING:
    from ..recipe.lock import Change, FileChange, State

SHOWN = 20  # files of one source that are listed before the list is cut short

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="With --upgrade: only these models and inputs.", show_default=False),
]
Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; exit 1 and say what would change, if anything would.")
]
Upgrade = Annotated[bool, typer.Option("--upgrade", help="Look branches and files elsewhere up anew.")]
RecipeFile = Annotated[str, typer.Option("--recipe", metavar="FILE", help="The recipe.")]


def command(
    names: Names = None,
    check: Check = False,
    upgrade: Upgrade = False,
    recipe: RecipeFile = "artifactkit.toml",
    json: o.Json = False,
) -> int:
    from ..errors import UsageError
    from ..recipe import lock
    from ..recipe.read import read

    if names and not upgrade:
        raise UsageError("names are given without --upgrade", found=" ".join(names), hint="lock takes all of a recipe")
    if check and upgrade:
        raise UsageError("--check and --upgrade exclude each other", hint="--upgrade looks up what --check compares")
    read_recipe = read(recipe)
    path = lock.lock_path(recipe)
    out.keep(recipe=recipe, lock=path)
    old = lock.existing(recipe)
    with out.progress("hashing", 0) as advance:

        def hashing(path: str, nbytes: int) -> None:
            advance(nbytes)

        if check:
            state = lock.check(read_recipe, old, hashing)
        else:
            asked = names or ([pinned.what for pinned in read_recipe.pinned] if upgrade else [])
            state = lock.make(read_recipe, old, asked, hashing, lambda text: out.say(f"note: {text}"))
    changes = lock.changes(old, state)
    if state.absent:
        out.say(f"note: locked, and not installed here: {', '.join(state.absent)}")
    if check:
        return _checked(path, old is not None, changes)
    _show(changes)
    text = lock.text_of(state)
    if old is not None and not changes and lock.is_written(recipe, text):
        out.data(f"{path} is up to date")
    else:
        lock.write(recipe, text)
        out.data(f"wrote {path}: {_contents(state)}")
    out.document(ok=True, changes=[change.to_json() for change in changes])
    return 0


def _checked(path: str, there: bool, changes: list[Change]) -> int:
    """The answer of --check."""
    if not there:
        out.data(f"{path} is missing; artifactkit lock would write it:")
    _show(changes)
    drifted = not there or bool(changes)
    if drifted and there:
        out.data(f"{path} is out of date: {count(len(changes), 'thing')} changed")
    if drifted:
        out.say("hint: artifactkit lock writes it anew")
    else:
        out.data(f"{path} is up to date")
    out.document(ok=not drifted, missing=not there, changes=[change.to_json() for change in changes])
    return int(drifted)


def _show(changes: list[Change]) -> None:
    from ..errors import printable

    for change in changes:
        out.data(f"{printable(change.what)}: {printable(change.detail)}")
        for file in change.files[:SHOWN]:
            out.data(f"  {_file(file)}")
        if len(change.files) > SHOWN:
            out.data(f"  ... and {len(change.files) - SHOWN} more (--json lists all)")


def _file(change: FileChange) -> str:
    from ..errors import printable

    sizes = " -> ".join(size(file.size) for file in (change.before, change.after) if file is not None)
    if change.before is not None and change.after is not None and change.before.size == change.after.size:
        sizes = f"{size(change.after.size)}, other content"
    return f"{change.sign} {printable(change.name)} ({sizes})"


def _contents(state: State) -> str:
    sources = state.lock.sources.values()
    files = sum(len(source.files) for source in sources)
    return ", ".join(
        (
            count(sum(source.kind == "models" for source in sources), "model"),
            count(sum(source.kind == "inputs" for source in sources), "input"),
            f"{count(files, 'file')} of {size(sum(source.nbytes for source in sources))}",
            count(len(state.lock.targets), "target"),
        )
    )
