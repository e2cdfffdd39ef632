"""Write artifactkit.toml for a source and what to make of it

Nothing is asked, and nothing is converted. A hf:// source is pinned to the commit that it is at now.

    artifactkit init --source hf://HuggingFaceTB/SmolLM2-135M --to gguf:q4_k_m --to safetensors
    artifactkit init --source checkpoint/ --to safetensors:bf16
"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options as o
from .render import out

Source = Annotated[
    str, typer.Option("--source", metavar="SRC", help="A file, a folder with a checkpoint, or hf://owner/name.")
]
To = Annotated[
    list[str],
    typer.Option(
        "--to", "-t", metavar="FORMAT[:QUANT]", help="What to make: gguf:q4_k_m, safetensors:bf16; repeatable."
    ),
]
RecipeFile = Annotated[str, typer.Option("--recipe", metavar="FILE", help="The recipe.")]
Replace = Annotated[bool, typer.Option("--force", help="Replace a recipe that is there; its [scan] tables stay.")]


def command(
    source: Source,
    to: To,
    recipe: RecipeFile = "artifactkit.toml",
    force: Replace = False,
    json: o.Json = False,
) -> int:
    import os

    from ..errors import DestinationExists
    from ..recipe import lock, start
    from ..recipe.read import bytes_of, parse

    out.keep(recipe=recipe)
    policy = ""
    if os.path.lexists(recipe):
        if not force:
            raise DestinationExists(
                "there is a recipe already",
                file=recipe,
                hint="give --force to replace it, or --recipe for another name",
            )
        policy = start.policy_of(bytes_of(recipe), recipe)
    text = start.recipe_text(source, to) + ("\n" + policy if policy else "")
    made = parse(text.encode("utf-8"), recipe)
    lock.write_text(recipe, text, force)
    out.data(f"wrote {recipe}: {', '.join(made.targets)}")
    if policy:
        out.say("note: the tables of [scan] were carried over")
    out.say("next: artifactkit lock")
    out.document(ok=True, targets=list(made.targets), text=text)
    return 0
