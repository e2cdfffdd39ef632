"""The command line: parse, call, render. Only here does anything print or exit.

A command is one module, ``artifactkit/cli/<name>.py`` (a hyphen in the name is an underscore in the module's), and one
row of ``COMMANDS`` below. It is imported when it is called, and never for ``artifactkit --help``. What it holds:

- a docstring whose first line is the help line of the table, word for word and without a full stop (a test compares);
  what follows in the docstring is shown by ``artifactkit NAME --help`` after it;
- a function ``command(...)`` with typer's annotations, those of ``cli.options`` where one fits. It takes
  ``json: Json`` like every command, and returns the exit code, or None for 0. A negative verdict is ``return 1``;
  everything else that goes wrong is an ``ArtifactkitError``, which passes through untouched: ``main`` renders it and
  takes its exit code.

A command that is a group of commands has a row in ``SUBCOMMANDS`` too. Its module has, instead of ``command``, a
function for each of them, under its name, whose docstring begins with the help line of that table.

To print it uses ``cli.render.out``: ``out.data(line)`` for the answer (stdout; silent with ``--json``),
``out.say(line)`` for messages (stderr), ``out.document(ok=..., **keys)`` once, at the end, for the one document of
``--json`` (does nothing without it), ``out.keep(**keys)`` for keys that the document holds even when an error ends the
command, and ``out.progress(...)`` for a bar. Nothing heavier than typer is imported at the top of a command's module.
"""

# name: what it does, in one line. In the order of ``artifactkit --help``.
COMMANDS: dict[str, str] = {
    "inspect": "Show what an artifact is, what it holds and what in it can execute",
    "scan": "Find out whether files, folders or repositories can execute code",
    "convert": "Convert an artifact into another format, and check what was written",
    "verify": "Check an artifact against the source it was made from",
    "provenance": "Show where an artifact came from, and check that it is unchanged",
    "diff": "Compare two artifacts, tensor by tensor",
    "route": "Show how a source would become another format, or why it cannot",
    "init": "Write artifactkit.toml for a source and what to make of it",
    "lock": "Pin what artifactkit.toml names: commits, digests of files, versions",
    "formats": "List the formats that can be read and written",
}

# Of commands that are groups: the commands in them, as above.
SUBCOMMANDS: dict[str, dict[str, str]] = {
    "provenance": {
        "show": "Draw the chain from an artifact back to its source",
        "check": "Compare an artifact with what its statements say, byte for byte",
    },
}
