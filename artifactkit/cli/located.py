"""Where the sources of a command are, pinned: what every command that takes one calls first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .render import out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..artifact import Weights
    from ..sources import Located


def locate(src: str, require_pinned: bool = False) -> Located:
    """As ``sources.locate``; what it tells goes to stderr, and refusals show the whole command to paste."""
    from .. import sources, trees
    from ..errors import Unreadable

    if trees.is_hub_name(src):
        raise Unreadable(
            "no such file or folder", file=src, hint=f"for the model on the hub: {command(src, f'hf://{src}')}"
        )
    try:
        return sources.locate(src, require_pinned=require_pinned, say=lambda text: out.say(f"note: {text}"))
    except sources.NotPinned as error:
        error.hint = command(src, error.uri)
        raise


def say_commit(located: Located) -> None:
    """A message that says which commit a branch is at; nothing for what is pinned."""
    if located.moved_from is not None:
        out.say(f"note: {located.moved_from or 'main'} is {located.uri}")


def command(src: str, uri: str) -> str:
    """The command line that runs, with ``uri`` in the place of ``src``."""
    import shlex

    from .main import PROGRAM

    words = [uri if word == src else word for word in out.words]
    words = [word[: -len(src)] + uri if word.endswith("=" + src) else word for word in words]
    return shlex.join([PROGRAM, *words])


def fetch(paths: Iterable[str], located: Located) -> bool:
    """Have the files of a source here, verified, with a bar; whether any of them was not of this machine."""
    if located.uri is None:
        return False
    from .. import sources, trees
    from ..placing import Progress

    wanted = [path for path in paths if trees.find(path) is not None]
    total = sum(trees.size(path) for path in wanted)
    with out.progress(f"fetching {located.given}", total) as advance:
        progress, before = Progress(), 0

        def changed(now: Progress) -> None:
            nonlocal before
            step, before = now.done - before, now.done
            advance(step)

        progress.on_change = changed
        sources.fetch(wanted, progress)
    return bool(wanted)


def fetch_weights(weights: Weights, located: Located) -> bool:
    """Fetch the files that tensors are read from. What in them is malicious is said before."""
    if located.uri is None:
        return False
    from ..judge import judge, said

    for line in said([judge(path) for path in weights.files]):
        out.warn(f"malicious, and read as data only: {line}")
    return fetch(weights.files, located)
