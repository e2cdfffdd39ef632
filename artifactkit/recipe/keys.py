"""The tables of ``artifactkit.toml``: which keys there are, what each may hold, what each means.

The check of a recipe, the JSON schema for editors and the reference in docs/recipe.md are made from these. Keys are
named as the options of ``artifactkit convert``, and mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import dtypes, known, registry
from ..scan.policy_toml import SCAN_KEYS
from .shapes import Choice, Constant, Either, Flag, Integer, Key, Limit, ListOf, Names, Numbers, Table, Text

# Of models, inputs and targets. A name is part of a file's name, and of other names after a hyphen.
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
NOT_TARGETS = {"hdf5", "tflite"}  # known so that one that is met can be named
NAME_WORDS = "a name of letters, digits, `_`, `-` and `.`"


def format_names() -> Sequence[str]:
    """The formats that a target can be of: those that are written, and those that are known and may be some day."""
    written = {name for name, fmt in registry.formats().items() if fmt.write is not None}
    return sorted(written | {entry.name for entry in known.KNOWN if entry.kind is not None} - NOT_TARGETS)


def _never_written(name: str) -> tuple[str, str] | None:
    """Words for a format that is read and never written."""
    key = name.strip().lower().replace("_", "-")
    fmt = registry.formats().get(key)
    if key in registry.FAMILIES or (fmt is not None and fmt.family == "pickle"):
        return f"`{key}` is read but never written: a pickle can run code when it is opened", "safetensors"
    if fmt is not None and fmt.write is None:
        return f"`{key}` is read but not written", f"one of {', '.join(format_names())}"
    return None


def dtype_names() -> Sequence[str]:
    """Element types as they are written, and ``auto``: the source's."""
    return ["auto", *(d.name for d in dtypes.ALL if d.block == 1)]


FORMAT = Choice("a format", format_names, refused=_never_written)
DTYPE = Choice("an element type, or auto", dtype_names, dtypes.SYNONYMS)
OVERFLOW = Choice("what becomes of a value too large", lambda: ["refuse", "saturate", "inf"])
QUANTIZE = Text("the name of a quantisation, like q8_0 or int8", r"[A-Za-z][A-Za-z0-9_-]{0,31}")
TASK = Text("a task by optimum's name, like text-generation-with-past", r"[a-z0-9]+(?:-[a-z0-9]+)*")
CHIP = Text(
    "a chip like sm_89; several that one artifact is for are joined by +", r"[A-Za-z0-9_.-]+(?:\+[A-Za-z0-9_.-]+){0,15}"
)
DEVICE = Text("a device like cpu, cuda:0, metal or onnxruntime/tensorrt@cuda:0", r"[A-Za-z0-9_.:/@-]{1,100}")
SIZE = Text("a size like 5GB, 500MB or 2GiB", r"[0-9]{1,18}(?:\.[0-9]{1,18})?\s*(?:[KMGTPkmgtp]i?)?[Bb]?")
SPAN = Text("a time like 90s, 10m or 2h", r"[0-9]{1,6}[smh]")
REGEX = Text("a regular expression")
RENAME = Text("REGEX=NEW", r"[^\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*")
REFERENCE = Text("the name of a table", NAME)
SOURCE = Text(
    "a path, hf://owner/name, https://...#sha256=... or s3://...",
    hint="a path is relative to the folder of artifactkit.toml",
)
REVISION = Text("a branch, a tag or a commit of 40 hexadecimal digits", r"[^\x00-\x20\x7f~^:?*\[\\]+")
KEY_PATH = Text("keys joined by dots")

MODEL = Table(
    "a model",
    {
        "source": Key(SOURCE, "Where the model is: a file, a folder with a checkpoint, or a URL.", required=True),
        "revision": Key(REVISION, "Branch, tag or commit of a hf:// source. The lock has the commit that it led to."),
        "from": Key(
            Choice("a format", lambda: sorted({*registry.formats(), *registry.FAMILIES})),
            "Format of the source, instead of telling by content.",
        ),
        "state-dict-key": Key(KEY_PATH, "Which part of a checkpoint holds the weights; dots go deeper."),
        "all": Key(Flag(), "Take every tensor, optimizer state and all."),
        "keep-prefix": Key(Flag(), "Leave wrappers' prefixes (module., _orig_mod.) in names."),
        "repair": Key(Flag(), "Mend what can be mended without touching a tensor's bytes."),
    },
    {"path": "source", "url": "source", "repo": "source", "uri": "source", "rev": "revision", "branch": "revision",
     "commit": "revision", "tag": "revision", "format": "from"},
)  # fmt: skip

INPUT = Table(
    "an input",
    {
        "source": Key(SOURCE, "Where the file or folder is: a path or a URL.", required=True),
        "revision": Key(REVISION, "Branch, tag or commit of a hf:// source."),
    },
    {"path": "source", "url": "source", "file": "source", "rev": "revision", "branch": "revision"},
)

LIMIT = Either((Limit(), Names(Limit(), "a table: output -> number", "the name of an output")))
VERIFY = Table(
    "verify",
    {
        "device": Key(ListOf(DEVICE), "Devices on which the artifact has to compute what its source computes."),
        "atol": Key(LIMIT, "Largest absolute difference, for all outputs or each by name."),
        "rtol": Key(LIMIT, "Largest relative difference, for all outputs or each by name."),
        "max-kl": Key(Limit(), "Largest mean KL divergence of token probabilities from the source's."),
        "inputs": Key(REFERENCE, "The [inputs.NAME] with real samples to compare on."),
        "budget": Key(SPAN, "How long comparing may take; what is left out is listed."),
        "reference": Key(
            Text("pkg.mod:callable", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"), "Your own code that computes the reference."
        ),
    },
    {"devices": "device", "kl": "max-kl"},
)

SHAPE = Table(
    "the shape of an input",
    {
        "min": Key(Numbers(), "Smallest size of each axis.", required=True),
        "opt": Key(Numbers(), "Size of each axis to be quickest at.", required=True),
        "max": Key(Numbers(), "Largest size of each axis.", required=True),
    },
    {"minimum": "min", "optimum": "opt", "maximum": "max"},
)

# In this order values of a matrix are joined to a target's name.
OF_TARGET: dict[str, Key] = {
    "model": Key(REFERENCE, "The [models.NAME] to convert.", required=True, matrix=True),
    "format": Key(FORMAT, "The format to write.", required=True, matrix=True),
    "task": Key(TASK, "What a graph is exported for.", matrix=True),
    "dtype": Key(DTYPE, "Element type of floating-point tensors; auto keeps the source's.", matrix=True),
    "quantize": Key(QUANTIZE, "Quantisation, by the name that the format has for it.", matrix=True),
    "group-size": Key(
        Integer(1, 2**20), "Elements that share a scale, where the format leaves that open.", matrix=True
    ),
    "opset": Key(Integer(1, 1000), "Version of ONNX's operators.", matrix=True),
    "chip": Key(CHIP, "Chip that the artifact is compiled for, without having one: sm_89.", matrix=True),
    "device": Key(DEVICE, "Device that the artifact is compiled on and for: cpu, cuda:0.", matrix=True),
    "shapes": Key(
        Names(SHAPE, "a table: input -> min, opt, max", "the name of an input"),
        "Smallest, best and largest shape of each input, for formats that compile for shapes.",
    ),
    "tensor-type": Key(
        Names(Text("the name of a type", r"[A-Za-z0-9_]{1,32}"), "a table: regular expression -> type"),
        "Types of single tensors, by a regular expression for their names.",
    ),
    "allow-requantize": Key(Flag(), "Quantise what is quantised already."),
    "calibration": Key(REFERENCE, "The [inputs.NAME] with text or samples to calibrate on."),
    "pre-tokenizer": Key(
        Text("a name of llama.cpp's", r"[A-Za-z0-9_.-]{1,64}"),
        "How the tokenizer cuts text, by llama.cpp's name for it.",
    ),
    "imatrix": Key(REFERENCE, "The [inputs.NAME] that is an importance matrix."),
    "adapters": Key(ListOf(REFERENCE, 64), "The [inputs.NAME]s that are adapters, in the order to apply."),
    "include": Key(ListOf(Text()), "Take only tensors whose name matches one of these."),
    "exclude": Key(ListOf(Text()), "Leave out tensors whose name matches one of these."),
    "rename": Key(ListOf(RENAME), "Rename tensors; \\1 stands for a group."),
    "overflow": Key(OVERFLOW, "What to do with a value too large for `dtype`."),
    "max-shard-size": Key(SIZE, "Split into files of at most this size."),
    "external-data": Key(SIZE, "Put a graph's tensors of this size and more into a file beside the model."),
    "cast-io": Key(Flag(), "With `dtype`, cast a graph's inputs and outputs too."),
    "with-code": Key(Flag(), "Copy the model's own code files along too."),
    "summary": Key(Flag(), "false: do not write what is known of the source into the artifact's own metadata."),
    "strict": Key(Flag(), "Refuse any loss that was not asked for."),
    "verify": Key(
        Either((Constant(False), VERIFY)), "Where and how closely the artifact is compared; false: not at all."
    ),
    "output": Key(
        Text("a path; {name} stands for the target's name", r"[^\x00-\x1f\x7f]+"),
        "The file or folder to write, relative to artifactkit.toml.",
    ),
}
MEANT = {
    "to": "format", "target": "chip", "arch": "chip", "sm": "chip", "devices": "device", "quant": "quantize",
    "quantization": "quantize", "quantise": "quantize", "precision": "dtype", "type": "dtype", "source": "model",
    "src": "model", "models": "model", "out": "output", "dest": "output", "path": "output", "lora": "adapters",
    "adapter": "adapters", "shard-size": "max-shard-size",
}  # fmt: skip

SKIP = Table(
    "a combination to skip", {key: Key(spec.shape, spec.says) for key, spec in OF_TARGET.items() if spec.matrix}
)
TARGET = Table(
    "a target",
    {key: replace(spec, required=False) for key, spec in OF_TARGET.items()}  # [defaults] may give it
    | {"skip": Key(ListOf(SKIP), "Combinations of the matrix to leave out: each a table of keys and values.")},
    MEANT,
)
DEFAULTS = Table("[defaults]", {key: replace(spec, required=False) for key, spec in OF_TARGET.items()}, MEANT)


def recipe() -> Table:
    """The whole file, but for ``[scan]``, which ``artifactkit scan`` reads."""
    return Table(
        "artifactkit.toml",
        {
            "models": Key(Names(MODEL, "tables [models.NAME]", NAME_WORDS, NAME), "What is converted, by name."),
            "inputs": Key(
                Names(INPUT, "tables [inputs.NAME]", NAME_WORDS, NAME),
                "What else goes in, by name: calibration text, importance matrices, adapters, samples.",
            ),
            "defaults": Key(DEFAULTS, "Keys that every target has unless it says otherwise."),
            "targets": Key(Names(TARGET, "tables [targets.NAME]", NAME_WORDS, NAME), "What is made, by name."),
        },
        {"model": "models", "input": "inputs", "default": "defaults", "target": "targets", "artifacts": "targets"},
    )


def json_schema() -> dict[str, object]:
    """The JSON schema (draft 7, which TOML editors know) of artifactkit.toml."""
    whole = recipe().schema()
    properties = whole["properties"]
    assert isinstance(properties, dict)
    # What a policy holds is described in docs/scan.md, and checked when something is scanned.
    scan = {
        "type": "object",
        "properties": {key: {"type": "array"} for key in SCAN_KEYS},
        "additionalProperties": False,
    }
    properties["scan"] = scan | {"description": "What `artifactkit scan` lets pass, and why."}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "artifactkit.toml",
        "description": "What artifactkit converts, pins and builds.",
        **whole,
    }
