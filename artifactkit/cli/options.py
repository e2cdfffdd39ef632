"""The options that commands share, declared once, so that they read alike everywhere (DESIGN section 8)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from ..errors import UsageError


class Overflow(StrEnum):
    """What a cast does with a value that the target type cannot hold."""

    refuse = "refuse"
    saturate = "saturate"
    inf = "inf"


_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?\s*([kmgtp]?)(i?)b?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes meant by ``5GB`` (10^9, as the Hub counts), ``2GiB`` (2^30), ``500MB``, ``123``; UsageError for others."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[4] and not match[3]):
        raise UsageError(f"not a size: {text!r}", expected="a number and a unit, like 5GB, 500MB or 2GiB")
    whole, fraction, unit, binary = match[1], match[2] or "", match[3].lower(), match[4]
    factor = (1024 if binary else 1000) ** " kmgtp".index(unit or " ")
    nbytes: int = int(whole + fraction) * factor // 10 ** len(fraction)
    if nbytes < 1:
        raise UsageError(f"not a size: {text!r}", expected="at least one byte")
    return nbytes


Source = Annotated[
    str,
    typer.Argument(
        metavar="SRC", help="A file, a folder with a checkpoint, or hf://owner/name[@REV][/PATH].", show_default=False
    ),
]
RequirePinned = Annotated[
    bool, typer.Option("--require-pinned", help="Refuse a source that can move, such as a branch on the hub.")
]
Destination = Annotated[str, typer.Argument(metavar="DEST", help="The file or folder to write.", show_default=False)]
From = Annotated[
    str | None,
    typer.Option("--from", "-f", metavar="FORMAT", help="Format of the source, instead of telling by content."),
]
To = Annotated[
    str | None,
    typer.Option("--to", "-t", metavar="FORMAT", help="Format to write, instead of telling by DEST's suffix."),
]
Dtype = Annotated[
    str,
    typer.Option("--dtype", metavar="D", help="Element type of floating-point tensors: auto keeps the source's."),
]
StateDictKey = Annotated[
    str | None,
    typer.Option(
        "--state-dict-key", metavar="KEY", help="Which part of a checkpoint holds the weights; dots go deeper."
    ),
]
All = Annotated[bool, typer.Option("--all", help="Take every tensor, optimizer state and all.")]
KeepPrefix = Annotated[
    bool, typer.Option("--keep-prefix", help="Leave wrappers' prefixes (module., _orig_mod.) in names.")
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include", metavar="PATTERN", help="Take only tensors whose name matches; repeatable.", show_default=False
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="PATTERN", help="Leave out tensors whose name matches; repeatable.", show_default=False
    ),
]
Rename = Annotated[
    list[str] | None,
    typer.Option(
        "--rename", metavar="REGEX=NEW", help="Rename tensors; \\1 stands for a group; repeatable.", show_default=False
    ),
]
MaxShardSize = Annotated[
    str | None,
    typer.Option("--max-shard-size", metavar="SIZE", help="Split into files of at most SIZE (5GB, 500MB, 2GiB)."),
]
ExternalData = Annotated[
    str | None,
    typer.Option(
        "--external-data",
        metavar="SIZE",
        help="Put a graph's tensors of SIZE bytes and more into a file beside the model (1KB, 1: all).",
    ),
]
Opset = Annotated[
    int | None, typer.Option("--opset", metavar="N", min=1, help="Version of ONNX's standard operators in the graph.")
]
CastIo = Annotated[
    bool,
    typer.Option("--cast-io", help="With --dtype, cast a graph's inputs and outputs too; they stay as they are else."),
]
OnOverflow = Annotated[
    Overflow, typer.Option("--overflow", help="What to do with a value too large for --dtype.", case_sensitive=False)
]
Quantize = Annotated[
    str | None,
    typer.Option("--quantize", metavar="Q", help="Quantise matrices: q8_0, q4_k ... (GGUF), q4, mxfp4 ... (MLX)."),
]
Imatrix = Annotated[
    str | None,
    typer.Option("--imatrix", metavar="FILE", help="Importance of columns, from llama-imatrix, for --quantize."),
]
PreTokenizer = Annotated[
    str | None,
    typer.Option("--pre-tokenizer", metavar="NAME", help="How the tokenizer cuts text, by llama.cpp's name for it."),
]
GroupSize = Annotated[
    int | None,
    typer.Option("--group-size", metavar="N", min=1, help="Elements that share a scale, of MLX: 32, 64 or 128."),
]
AllowRequantize = Annotated[
    bool, typer.Option("--allow-requantize", help="Let --quantize start from tensors that are quantised already.")
]
Locked = Annotated[bool, typer.Option("--locked", help="Take SRC as artifactkit.lock has it; refuse anything else.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse any loss that was not asked for.")]
AllowUnsafeSource = Annotated[
    bool, typer.Option("--allow-unsafe-source", help="Take the tensors of a source that scan calls malicious.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the destination if it exists.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not open the output again and compare.")]
Via = Annotated[
    str | None,
    typer.Option(
        "--via",
        metavar="COMMAND",
        help="Let COMMAND write DEST ({src} and {dest} stand for the paths); kept if it compares with SRC.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and touch nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
WithCode = Annotated[bool, typer.Option("--with-code", help="Copy the model's own code files along too.")]
Repair = Annotated[bool, typer.Option("--repair", help="Mend what can be mended without touching a tensor's bytes.")]
