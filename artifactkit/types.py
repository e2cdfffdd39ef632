"""The words in which parts are plugged in: what a format is, what it is asked, what it answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

from .artifact import Kind, TensorView, Weights
from .errors import ArtifactkitError
from .source import Source
from .trees import open_file

if TYPE_CHECKING:
    import numpy as np

    from .containers.zip import Zip

HEAD = 4096  # bytes that a sniff may look at; formats that need more have a directory of their own


class Head:
    """What a sniff looks at: the first bytes, the size, and the zip directory if there is one. Reads are cached."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = open_file(path)
        self.size = self.file.size

    @cached_property
    def first(self) -> bytes:
        """The first 4096 bytes, or all."""
        return self.file.read(0, min(self.size, HEAD))

    @cached_property
    def zip(self) -> Zip | None:
        """The zip directory of a file that *begins* as a zip archive; None for others and for a broken directory."""
        if not self.first.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            return None
        from .containers.zip import Zip

        try:
            return Zip(self.file)
        except ArtifactkitError:
            return None

    def open_zip(self) -> Zip:
        """The zip directory; raises what is wrong with it where ``zip`` is None."""
        from .containers.zip import Zip

        return self.zip or Zip(self.file)

    @cached_property
    def kind(self) -> str | None:
        """The format of the pickle family, or NumPy's, that the content is in."""
        from .containers.pickle_family import kind_of

        return kind_of(self.file, self.first, self.zip)

    @property
    def suffix(self) -> str:
        return os.path.splitext(self.path)[1].lower()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user says about reading. Every format gets them all and uses those that mean something to it."""

    state_dict_key: str | None = None
    everything: bool = False  # --all: optimizer state and the rest too
    keep_prefix: bool = False  # leave `module.`, `_orig_mod.` in names
    repair: bool = False  # mend what can be mended without touching tensor bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a source is from: as given, and pinned. ``uri`` and ``commit`` are None for a path of this machine."""

    given: str
    uri: str | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of an artifact's origin before it is written, for its own metadata. None where it is not known.

    A writer whose format has keys of its own for these (``general.license``) uses those; else ``metadata``.
    """

    source: str | None = None  # the pinned URI
    commit: str | None = None
    license: str | None = None
    base_model: tuple[str, ...] = ()
    recipe: str | None = None  # sha256
    version: str | None = None  # of artifactkit

    def metadata(self) -> dict[str, str]:
        """The same as ``artifactkit.*`` keys and texts."""
        found = {
            "source": self.source, "commit": self.commit, "license": self.license,
            "base_model": ", ".join(self.base_model) or None, "recipe": self.recipe, "version": self.version,
        }  # fmt: skip
        return {SUMMARY_PREFIX + key: value for key, value in found.items() if value is not None}


SUMMARY_PREFIX = "artifactkit."


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the user says about writing. ``name`` is the destination's last part: a file's name, or a folder's."""

    name: str
    folder: bool = False
    max_shard_size: int | None = None  # bytes; None: as the format does by default
    summary: Summary | None = None
    external_data: int | None = None  # bytes from which a tensor of a graph stands in a file beside it


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes to be placed at ``offset`` of an output file. ``tensor`` names what they are, for progress and errors."""

    offset: int
    source: Source
    tensor: str | None = None


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file of the output, laid out before a tensor byte is read: ``name`` relative to a folder destination.

    ``finish`` asks for the CRC-32 of each named part: it gets them by tensor name once the parts are placed, and
    returns the parts that depend on them (zip headers). All together cover ``size`` bytes without overlap.
    """

    name: str
    size: int
    parts: tuple[Part, ...]
    finish: Callable[[Mapping[str, int]], Sequence[Part]] | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What a target needs beyond its kind, as a noun for messages, and the flag that gives it."""

    what: str
    flag: str


@dataclass(frozen=True, slots=True)
class Lowering:
    """One change of kind, from ``source`` to ``target``: a module in ``lowerings/`` holds one of these as ``LOWERING``.

    ``run`` takes weights as they were read, and returns what they become; what it takes beside them is its own. No
    tensor byte is read by it unless its ``needs`` say that a model is run.
    """

    name: str
    source: Kind
    target: Kind
    title: str
    run: Callable[..., Weights]
    needs: tuple[Need, ...] = ()


Reader = Callable[[Head, ReadOptions], Weights]
Writer = Callable[[Weights, WriteOptions], list[OutputFile]]


@dataclass(frozen=True, slots=True)
class Format:
    """One format, whole: a module in ``formats/`` holds one of these as ``FORMAT``.

    ``sniff`` must hold for no file of another format. ``write`` lays the output out and reads no tensor byte.
    ``dtypes`` are the names of element types that can be written, empty when every type can. ``reopen`` opens the
    files of a written output with a reader that shares no code with ours and says where each tensor stands.
    """

    name: str
    kind: Kind
    title: str
    suffixes: tuple[str, ...]
    sniff: Callable[[Head], bool]
    read: Reader | None = None
    write: Writer | None = None
    needs: tuple[Need, ...] = ()
    dtypes: frozenset[str] = field(default_factory=frozenset)
    extra: str | None = None
    modules: tuple[str, ...] = ()  # those of the extra that ``reopen`` imports
    family: str | None = None  # `-f pickle` means any format of the family
    folder: bool = False  # whether the format can be written as a folder of files
    named: bool = True  # whether the format holds names; without, it holds one tensor
    keeps_metadata: bool = True
    keeps_summary: bool = False  # whether ``write`` puts the summary of the origin into the artifact
    keeps_keyvalues: bool = False  # whether typed facts about the model can be written
    splits_folders: bool = True  # whether a folder gets several files when it is large, without being asked for
    float32_only: Callable[[TensorView], bool] | None = None  # floats that runtimes take in f32 and in nothing else
    keeps_aliases: bool = False  # whether a tie can be recorded, so that tied tensors are stored once
    reopen: Callable[[list[str]], dict[str, Placed]] | None = None
    reopened_by: str = "another reader"  # whose reader that is, for the report


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an independent reader finds a tensor in a written output, and as what."""

    file: str
    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """Where an artifact is run, as ``--device`` names it: ``cpu``, ``cuda:0``, ``onnxruntime/tensorrt@cuda:0``."""

    name: str  # cpu, cuda:0, metal
    runtime: str | None = None  # None: the runner of the artifact's format
    provider: str | None = None  # of the runtime, where it has several

    def __str__(self) -> str:
        runtime = "/".join(part for part in (self.runtime, self.provider) if part)
        return f"{runtime}@{self.name}" if runtime else self.name


@dataclass(frozen=True, slots=True)
class Loadable:
    """What a runner is given. A runtime that has its own reader takes ``path``; the reference is built of the rest.

    ``weights`` are under the names of the library that defines the model, ``config`` is its parsed config.json; both
    None where the artifact is to speak for itself.
    """

    path: str
    weights: Weights | None = None
    config: Mapping[str, object] | None = None
    task: str | None = None  # optimum's name


Precision = Literal["float32", "float64"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a session is to compute. ``seconds`` is for loading and for each ``run`` on its own."""

    precision: Precision = "float32"
    threads: int = 1
    seconds: float = 600.0


class Session(Protocol):
    """A loaded artifact. ``facts`` says what really runs, and where: versions, threads, math mode, providers placed."""

    @property
    def facts(self) -> Mapping[str, object]: ...

    def run(self, inputs: Mapping[str, np.ndarray], pieces: Sequence[int] = ()) -> dict[str, np.ndarray]:
        """The outputs by name for ``inputs`` by name.

        Names and shapes are transformers': ``input_ids`` and ``attention_mask`` (batch, length) int64, right-padded,
        to ``logits`` (batch, length, tokens) or ``last_hidden_state`` (batch, length, width), float32 or float64; at
        masked positions the values mean nothing. ``pieces`` are lengths that add up to ``length``: the sequence is fed
        in that many calls with the cache carried over, and the outputs are those of all. Raises RunFailed.
        """

    def close(self) -> None:
        """Free it; twice does no harm."""


@dataclass(frozen=True, slots=True)
class Runner:
    """One runtime that can execute an artifact: a module in ``runners/`` holds one of these as ``RUNNER``.

    ``formats`` are those it loads. ``load`` raises MissingExtra before any work, DeviceAbsent for a device that it
    does not have or that fell back to another, and RunFailed for what the runtime says.
    """

    name: str
    title: str
    formats: frozenset[str]
    extra: str
    modules: tuple[str, ...]
    load: Callable[[Loadable, Device, RunOptions], Session]
    exact: str | None = None  # the provider in which only rounding stands between it and a reference
