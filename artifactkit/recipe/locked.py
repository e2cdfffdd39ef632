"""``--locked``: a source that stands in artifactkit.lock is taken as it is locked, and anything else refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import remote, trees
from ..errors import Refused, UsageError
from ..hub import address
from . import lock
from .lockfile import Lock, LockedFile, LockedSource
from .model import FILE, Recipe
from .problems import near
from .read import read
from .resolve import is_local, name_in, path_of, uri_of

AGAIN = "artifactkit lock --check says what drifted; artifactkit lock takes it as it is now"


@dataclass(frozen=True, slots=True)
class Locked:
    """A source as the lock has it. ``src`` is what to open in the place of what was given."""

    src: str
    what: str
    files: Mapping[str, LockedFile]

    def expect(self, paths: Iterable[str], root: str) -> dict[str, str]:
        """The sha256 that each of ``paths`` has to have, which lie in ``root`` or are it.

        Refused (exit 1) for a file that is not locked, that is gone, or that is known to be another already: by its
        size, or by the digest that is stated of it.
        """
        out = {}
        used = {path: name_in(path, root) for path in paths}
        folder = root if trees.is_dir(root) else os.path.dirname(root)
        for name in sorted(self.files.keys() - set(used.values())):
            path = os.path.join(folder, name)
            if not trees.is_file(path):
                raise Refused("--locked: a file that is locked is gone", file=path, hint=AGAIN)
        for path, name in used.items():
            file = self.files.get(name)
            if file is None:
                raise Refused(
                    "--locked: the lock does not hold a file that is used", file=path, expected=self._listed(),
                    hint=AGAIN,
                )  # fmt: skip
            size = trees.size(path)
            if size != file.size:
                raise Refused(
                    "--locked: a file is not what it was when it was locked", file=path,
                    expected=f"{file.size} bytes", found=f"{size} bytes", hint=AGAIN,
                )  # fmt: skip
            stated = trees.sha256(path)
            if stated is not None and stated != file.sha256:  # known before it is fetched
                raise Refused(
                    "--locked: a file is not what it was when it was locked", file=path,
                    expected=f"sha256 {file.sha256}", found=f"sha256 {stated}", hint=AGAIN,
                )  # fmt: skip
            out[path] = file.sha256
        return out

    def _listed(self) -> str:
        names = sorted(self.files)
        return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def locked(src: str, recipe_file: str = FILE) -> Locked:
    """What the lock beside ``recipe_file`` has of ``src``.

    ``src`` is a model's source as the recipe writes it, with its revision, its locked commit or neither; or a path of
    this machine that leads to the same place. Refused (exit 1) when there is no lock, when it does not hold the source,
    when the recipe asks for something else by now, or when ``src`` names another commit.
    """
    held = lock.existing(recipe_file)
    if held is None:
        raise Refused("--locked: there is no lock", file=lock.lock_path(recipe_file), hint="artifactkit lock writes it")
    found = [source for source in held.sources.values() if _is_of(src, source, recipe_file)]
    if not found:
        raise _unknown(src, held, recipe_file)
    if len({(source.commit, source.files) for source in found}) > 1:
        names = ", ".join(f"{source.what} ({source.revision or source.commit})" for source in found)
        raise UsageError("--locked: the lock holds this source more than once", file=src, found=names,
                         hint="say which revision: hf://owner/name@REVISION")  # fmt: skip
    source = found[0]
    if os.path.lexists(recipe_file):
        _check_recipe(source, read(recipe_file))
    pinned = src
    if source.commit is not None:
        pinned = uri_of(source, source.commit)
    elif not is_local(src) and "#" not in src and [file.name for file in source.files] == [_base(src)]:
        pinned = f"{src}#sha256={source.files[0].sha256}"  # verified before it is used, and not only before it is kept
    return Locked(pinned, source.what, {file.name: file for file in source.files})


def _base(url: str) -> str:
    """The name of the file that a URL leads to."""
    return remote.parse(url).name


def _is_of(src: str, source: LockedSource, recipe_file: str) -> bool:
    """Whether ``src`` means this locked source."""
    if src.startswith(address.SCHEME) and source.source.startswith(address.SCHEME):
        asked, held = address.parse(src), address.parse(uri_of(source))
        if (asked.repo, asked.path) != (held.repo, held.path):
            return False
        return asked.revision in (None, source.commit) or asked.revision == (held.revision or "main")
    if is_local(src) != is_local(source.source):
        return False
    if not is_local(src):
        return src == source.source
    return os.path.realpath(src) == os.path.realpath(path_of(recipe_file, source.source))


def _unknown(src: str, held: Lock, recipe_file: str) -> Refused:
    """The refusal of a source that the lock does not hold, or holds at another commit."""
    if src.startswith(address.SCHEME):
        asked = address.parse(src)
        for source in held.sources.values():
            if source.source.startswith(address.SCHEME):
                other = address.parse(source.source)
                if (other.repo, other.path) == (asked.repo, asked.path):
                    return Refused(
                        "--locked: the source is locked at another revision", file=src,
                        expected=f"{source.revision or 'the default branch'}, commit {source.commit}",
                        found=asked.revision, hint=AGAIN,
                    )  # fmt: skip
    known = sorted(source.source for source in held.sources.values())
    hint = near(src, known, 0.85) or f"name it in {recipe_file}, and run artifactkit lock"
    return Refused(
        "--locked: the lock does not hold this source", file=src, expected=", ".join(known[:10]) or "nothing", hint=hint
    )


def _check_recipe(source: LockedSource, recipe: Recipe) -> None:
    """Refused when the recipe does not ask for what is locked any more."""
    table = recipe.models if source.kind == "models" else recipe.inputs
    asked = table.get(source.name)
    if asked is None or not source.is_of(asked):
        now = (
            "nothing of that name"
            if asked is None
            else asked.source + (f" at {asked.revision}" if asked.revision else "")
        )
        raise Refused(
            f"--locked: the recipe and the lock disagree about {source.what}", file=recipe.file,
            expected=source.source + (f" at {source.revision}" if source.revision else ""), found=now, hint=AGAIN,
        )  # fmt: skip
