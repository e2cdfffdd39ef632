"""The model card: licence and base model from the YAML between the first two ``---`` lines of README.md.

https://huggingface.co/docs/hub/model-cards#model-card-metadata. A card is text that anybody wrote: it is read with
bounds, no value is built but plain text, and one that cannot be read says nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from .. import trees
from ..errors import ArtifactkitError

NAME = "README.md"
MAX_FRONT = 2 << 20  # bytes; cards with hundreds of evaluation results reach half a megabyte
MAX_VALUE = 4096  # bytes of YAML of one key
MAX_TEXT = 256  # characters of one value, which goes into a header
MAX_BASES = 16
MAX_BRACKETS = 4  # in one value; the parser takes quadratic time for nested ones
KEYS = ("license", "license_name", "base_model")
_KEY = re.compile(rb"(license|license_name|base_model)[ \t]*:")


@dataclass(frozen=True, slots=True)
class Card:
    """What a card says, as far as it is passed on. ``license`` is the Hub's identifier; of ``other``, its name."""

    license: str | None = None
    base_model: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.license is not None or bool(self.base_model)


def read(folder: str) -> Card:
    """The card of a folder, or of a mounted tree's root; an empty one when there is none that can be read."""
    path = os.path.join(folder, NAME)
    try:
        if not trees.is_file(path):
            return Card()
        file = trees.open_file(path)
        return parse(file.read(0, min(file.size, MAX_FRONT)))
    except ArtifactkitError:
        return Card()


def parse(data: bytes) -> Card:
    """The card that begins with ``data``."""
    lines = front(data)
    if lines is None:
        return Card()
    values = {key: _value(snippet) for key, snippet in _snippets(lines).items()}
    license_, name = (values.get("license") or (None,))[0], (values.get("license_name") or (None,))[0]
    return Card(name if license_ == "other" and name else license_, (values.get("base_model") or ())[:MAX_BASES])


def front(data: bytes) -> list[bytes] | None:
    """The lines between the first ``---`` and the second, or None where there are not both."""
    lines = data.removeprefix(b"\xef\xbb\xbf").splitlines()
    if not lines or lines[0].rstrip() != b"---":
        return None
    for i, line in enumerate(lines[1:], 1):
        if line.rstrip() == b"---":
            return lines[1:i]
    return None


def _snippets(lines: list[bytes]) -> dict[str, bytes]:
    """The lines of each key that is looked for; of a key that comes twice nothing, since readers differ about it.

    A key of the outermost mapping begins its line, and everything of its value is indented, or a ``-`` in front.
    """
    found: dict[str, list[bytes]] = {}
    twice = set()
    current: list[bytes] | None = None
    for line in lines:
        if line[:1] in (b" ", b"\t", b"-", b"#", b""):
            if current is not None:
                current.append(line)
            continue
        match = _KEY.match(line)
        current = None
        if match is not None:
            key = match[1].decode("ascii")
            if key in found:
                twice.add(key)
            current = found[key] = [line]
    return {key: text for key, part in found.items() if key not in twice and len(text := b"\n".join(part)) <= MAX_VALUE}


def _value(snippet: bytes) -> tuple[str, ...]:
    """The text, or the texts of the list, that stand behind the key of ``snippet``. Nothing is constructed.

    The parser's tree is looked at, so that a tag names no object, an alias is not followed and a merge not carried out.
    """
    import yaml

    if snippet.count(b"[") + snippet.count(b"{") > MAX_BRACKETS:
        return ()
    try:
        root = yaml.compose(snippet.decode("utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        return ()
    if not isinstance(root, yaml.MappingNode) or len(root.value) != 1:
        return ()
    value = root.value[0][1]
    is_list = isinstance(value, yaml.SequenceNode) and value.tag == "tag:yaml.org,2002:seq"
    nodes = value.value if is_list else [value]
    texts = [n.value for n in nodes if isinstance(n, yaml.ScalarNode) and n.tag == "tag:yaml.org,2002:str"]
    return tuple(t for t in texts if 0 < len(t) <= MAX_TEXT and t.isprintable())
