"""From what the user calls SRC to weights: a file, or a folder that holds a checkpoint. Headers only.

The rule for folders is transformers' own (``modeling_utils.py``): safetensors before pickle, one file before an index.
What was passed over is said in the notes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from . import known, registry, sharded, trees
from .artifact import Companion, CompanionRole, Weights
from .errors import ArtifactkitError, Corrupt, RouteRefused, Unreadable, UsageError
from .sharded import INDEX_SUFFIX
from .types import Format, Head, ReadOptions

# In this order; the first that is there is taken.
MAIN_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
WEIGHT_SUFFIXES = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".pkl",
    ".pickle",
    ".joblib",
    ".npz",
    ".npy",
    ".jit",
    ".tar",
    ".model.pt",
    ".gguf",
)

ROLES: tuple[tuple[str, CompanionRole], ...] = (
    ("config.json", "config"),
    ("generation_config.json", "config"),
    ("adapter_config.json", "config"),
    ("*preprocessor_config.json", "config"),
    ("processor_config.json", "config"),
    ("tokenizer*.json", "tokenizer"),
    ("tokenizer.model*", "tokenizer"),
    ("special_tokens_map.json", "tokenizer"),
    ("added_tokens.json", "tokenizer"),
    ("vocab.*", "tokenizer"),
    ("merges.txt", "tokenizer"),
    ("*.tiktoken", "tokenizer"),
    ("spiece.model", "tokenizer"),
    ("sentencepiece*.model", "tokenizer"),
    ("chat_template*", "tokenizer"),
    ("*.py", "code"),
    ("README*", "doc"),
    ("LICENSE*", "doc"),
    ("NOTICE*", "doc"),
)


@dataclass(slots=True)
class Opened:
    """A source as it was given, the file that was read of it, its format and its weights."""

    given: str
    path: str
    folder: bool
    format: Format
    weights: Weights


def open_source(src: str, given_format: str | None = None, options: ReadOptions | None = None) -> Opened:
    """Open ``src`` and read its headers. Raises Unreadable, UsageError, RouteRefused or what the format raises."""
    options = options or ReadOptions()
    folder = trees.is_dir(src)
    notes: list[str] = []
    path = src
    if folder:
        path, notes = _main_file(src, given_format)
    elif not trees.exists(src) and not os.path.lexists(src):
        raise _absent(src)
    fmt, weights = read_file(path, given_format, options)
    if folder:
        weights.companions = companions(src)
    weights.notes[:0] = notes
    return Opened(src, path, folder, fmt, weights)


def read_file(path: str, given_format: str | None, options: ReadOptions) -> tuple[Format, Weights]:
    """Read the headers of one file, or of all shards of an index; errors name it."""
    if path.endswith(INDEX_SUFFIX) and sharded.is_index(Head(path)):
        return _read_index(path, given_format, options)
    fmt, head = registry.sniff(path, given_format)
    if fmt.read is None:
        raise RouteRefused(f"`{fmt.name}` is recognised but not read", file=path)
    try:
        weights = fmt.read(head, options)
    except ArtifactkitError as error:
        raise error.located(file=path) from error.__cause__
    weights.pinned = (head.file,)
    return fmt, weights


def _read_index(path: str, given_format: str | None, options: ReadOptions) -> tuple[Format, Weights]:
    """Join the shards that an index names. Each is of the format that the first is of."""
    head = Head(path)
    index = sharded.read_index(head.file)
    if not index.weight_map:
        raise Corrupt("the index names no tensor", file=path)
    first = sharded.shard_path(os.path.dirname(path), min(index.weight_map.values()), path)
    if not trees.exists(first):
        sharded.join(head, lambda shard: Weights({}, ""))  # raises: says which shards are missing
    fmt, _ = registry.sniff(first, given_format)
    if fmt.sniff(head) and fmt.read is not None:
        return fmt, fmt.read(head, options)  # a format with an index of its own
    # The index names tensors as the shards store them, so prefixes stay.
    stored = replace(options, keep_prefix=True)
    return fmt, sharded.join(head, lambda shard: read_file(shard, fmt.name, stored)[1])


def _absent(src: str) -> ArtifactkitError:
    if trees.is_url(src):
        return Unreadable("no such file or folder in this revision", file=src)
    if trees.is_hub_name(src):
        return Unreadable("no such file or folder", file=src, hint=f"for the model on the hub: hf://{src}")
    parent = os.path.dirname(os.path.abspath(src))  # abspath takes a slash at the end away
    if not os.path.isdir(parent):
        return Unreadable("no such file or folder", file=src, hint=f"the folder {parent} is not there")
    return Unreadable("no such file or folder", file=src, hint=_similar(src, parent))


def _similar(src: str, parent: str) -> str:
    import difflib

    src = src.rstrip(os.sep)
    folder = os.path.dirname(src)
    try:
        names = os.listdir(parent)[:1000]
    except OSError:
        names = []
    near = difflib.get_close_matches(os.path.basename(src), names, n=1)
    if near:
        return f"did you mean {os.path.join(folder, near[0])}?"
    return f"nothing in {folder or 'the current folder'} has a name like this"


def _fits(name: str, given_format: str | None) -> bool:
    """Whether ``-f`` lets this file be the one: a look at the suffix; the content is looked at when it is read."""
    if given_format is None:
        return True
    is_safetensors = ".safetensors" in name
    return is_safetensors == (given_format.strip().lower() == "safetensors")


def _main_file(folder: str, given_format: str | None) -> tuple[str, list[str]]:
    """The weights of a folder, and notes about what was passed over."""
    names = trees.listing(folder)
    present = [n for n in MAIN_FILES if n in names and _fits(n, given_format)]
    if not present:
        present = [n for n in names if n.endswith(INDEX_SUFFIX) and _fits(n, given_format)]
        present = present if len(present) == 1 else []
    if not present:
        present = [n for n in names if n.endswith(WEIGHT_SUFFIXES) and _fits(n, given_format)]
        present = [n for n in present if trees.is_file(os.path.join(folder, n)) and "training_args" not in n]
        present = sorted({_first_part(n, names) for n in present})
        if len(present) > 1:
            shown = ", ".join(present[:8]) + (" ..." if len(present) > 8 else "")
            raise UsageError(
                "the folder holds more than one weights file",
                file=folder,
                found=shown,
                hint=f"give one of them: {os.path.join(folder, present[0])}",
            )
    if not present:
        present = [n for n in names if n.endswith(".onnx") and trees.is_file(os.path.join(folder, n))]
        present = ["model.onnx"] if "model.onnx" in present else present if len(present) == 1 else []
    if not present:
        hint = "give the file itself" if names else "the folder is empty"
        raise Unreadable("the folder holds no weights file", file=folder, expected=", ".join(MAIN_FILES), hint=hint)
    notes = [f"{present[0]} was taken; {other} is there too" for other in present[1:]]
    return os.path.join(folder, present[0]), notes


def _first_part(name: str, names: list[str]) -> str:
    """The first of the parts that a split GGUF file lies in, if ``name`` is one of them and it is there."""
    if not name.endswith(".gguf"):
        return name
    first = re.sub(r"-\d{5}(-of-\d{5}\.gguf)$", r"-00001\1", name)
    return first if first in names else name


def is_model_file(name: str) -> bool:
    """Whether a file of this name is what a model's folder holds: weights, an index, configuration, tokenizer, code."""
    lower = name.lower()
    suffixes = {s for fmt in registry.formats().values() for s in fmt.suffixes} | {
        ".json",
        ".md",
        ".intoto.jsonl",
        ".onnx.data",
        ".onnx_data",
        *WEIGHT_SUFFIXES,
    }
    return (
        lower.endswith(tuple(suffixes))
        or name in (".gitattributes", ".gitignore")
        or any(fnmatchcase(name, pattern) for pattern, _ in ROLES)
        or any(entry.kind and lower.endswith(entry.suffixes) for entry in known.KNOWN)
    )


def companions(folder: str) -> tuple[Companion, ...]:
    """The files beside the weights that belong to the model, by name. Links are followed: a hub snapshot is links."""
    found = []
    for name in trees.listing(folder):
        path = os.path.join(folder, name)
        role = next((role for pattern, role in ROLES if fnmatchcase(name, pattern)), None)
        if role is not None and trees.is_file(path):
            found.append(Companion(name, path, role))
    return tuple(found)


def travelling(weights: Weights, with_code: bool) -> tuple[tuple[Companion, ...], tuple[Companion, ...]]:
    """(those that travel to a folder destination, those that stay): code only when it is asked for."""
    go = tuple(c for c in weights.companions if c.role != "code" or with_code)
    stay = tuple(c for c in weights.companions if c not in go)
    return go, stay


def used_files(src: str, given_format: str | None = None) -> list[str]:
    """The files that opening ``src`` reads, by path and sorted: weights, their index, all shards, what goes with them.

    Weights are not opened; an index is. Raises as :func:`open_source` does when the files are not there.
    """
    if not trees.is_dir(src):
        if not trees.exists(src):
            raise _absent(src)
        return sorted({src, *_with_shards(src)})
    main, _ = _main_file(src, given_format)
    return sorted({main, *_with_shards(main), *(companion.path for companion in companions(src))})


def _with_shards(path: str) -> list[str]:
    """The shards that an index names, or the other parts of a split GGUF file, which are found by their names."""
    folder = os.path.dirname(path)
    if path.endswith(INDEX_SUFFIX) and sharded.is_index(Head(path)):
        index = sharded.read_index(Head(path).file)
        return [sharded.shard_path(folder, name, path) for name in sorted(set(index.weight_map.values()))]
    stem = sharded.SHARD.match(os.path.basename(path))
    if stem is None or not path.endswith(".gguf"):
        return []
    names = [name for name in trees.listing(folder) if name.endswith(".gguf")]
    return [
        os.path.join(folder, name) for name in names if (m := sharded.SHARD.match(name)) is not None and m[1] == stem[1]
    ]
