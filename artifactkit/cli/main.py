"""The entry point: finds the command, runs it, and turns every ending into words and an exit code."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Annotated, Any, NoReturn

import typer
import typer.core
import typer.main

from .. import __version__
from ..errors import ArtifactkitError, Interrupted, UsageError, printable
from . import COMMANDS, SUBCOMMANDS
from .render import out

PROGRAM = "artifactkit"
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h: a fault of ours, never a verdict about the input
READER_GONE = 141  # 128 + SIGPIPE, what the shell sees of a program that the signal ended

# typer carries a copy of click of its own from 0.25 on, so its parser's error class is found through a public name.
ParserError: type[Any] = typer.BadParameter.__bases__[0]


class Group(typer.core.TyperGroup):
    """Commands by name; one that is not there is refused with what was perhaps meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        names = self.list_commands(ctx)
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, names, n=1)
            raise UsageError(
                f"no such command {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"one of {', '.join(names)}",
            )
        return super().resolve_command(ctx, args)


class LazyCommands(Group):
    """The group of all commands: lists them from the table, imports one when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        # Caught here, since typer's own main would turn it into an exit code without a word.
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted("interrupted") from error
        except BrokenPipeError as error:
            raise ReaderGone from error


class Command(typer.core.TyperCommand):
    """A command whose usage line names its arguments as the help below it does: ``SRC``, not ``{SRC}``."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.removeprefix("{").removesuffix("}") for piece in super().collect_usage_pieces(ctx)]


class ReaderGone(Exception):
    """Whoever read our output has closed the pipe (``| head``): no error, and nothing left to say."""


def load(name: str) -> Any:
    """Import one command's module and make typer's command of its function."""
    module = importlib.import_module(f"{__package__}.{name.replace('-', '_')}")
    text = (module.__doc__ or "").strip()
    if name in SUBCOMMANDS:
        return _group(name, module, text)
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, cls=Command, help=_verbatim(text), context_settings=HELP_NAMES)(module.command)
    return typer.main.get_command(single)


def _group(name: str, module: ModuleType, text: str) -> Any:
    """The group of commands that one module holds, a function each."""
    group = typer.Typer(
        name=name, cls=Group, help=_verbatim(text), no_args_is_help=True, context_settings=HELP_NAMES,
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    )  # fmt: skip
    for sub in SUBCOMMANDS[name]:
        function = getattr(module, sub.replace("-", "_"))
        help_ = _verbatim(inspect.cleandoc(function.__doc__ or ""))
        group.command(sub, cls=Command, help=help_, context_settings=HELP_NAMES)(function)
    return typer.main.get_command(group)


def _called(words: Sequence[str]) -> str:
    """The command that a command line calls, with the command in it where it is a group."""
    name = next((word for word in words if word in COMMANDS), "")
    inner = SUBCOMMANDS.get(name, {})
    sub = next((word for word in words[words.index(name) + 1 :] if word in inner), "") if inner else ""
    return f"{name} {sub}".strip()


def _verbatim(text: str) -> str:
    """Mark paragraphs that are indented (examples), so that the help does not fill their lines into one."""
    return "\n\n".join("\b\n" + part if part.startswith("    ") else part for part in text.split("\n\n"))


def _version(wanted: bool) -> None:
    if wanted:
        out.data(f"{PROGRAM} {__version__}")
        raise typer.Exit


HELP_NAMES = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name=PROGRAM, cls=LazyCommands, no_args_is_help=True, context_settings=HELP_NAMES,
    add_completion=True, rich_markup_mode=None, pretty_exceptions_enable=False,
)  # fmt: skip


@app.callback(epilog=f"Run '{PROGRAM} COMMAND --help' for the options of a command.")
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Convert, verify and audit model artifacts without running the code they carry."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code (DESIGN section 8)."""
    args = list(sys.argv[1:] if argv is None else argv)
    own = args[: args.index("--")] if "--" in args else args
    out.start(command=_called(own), json="--json" in own, words=args)
    _stop_by_exception()
    try:
        code = typer.main.get_command(app).main(args, prog_name=PROGRAM, standalone_mode=False)
        out.flush()
    except ArtifactkitError as error:
        return _failed(error)
    except ParserError as error:
        return _usage(error)
    except (ReaderGone, BrokenPipeError):
        out.abandon()
        return READER_GONE
    except (KeyboardInterrupt, typer.Abort):
        return _failed(Interrupted("interrupted"))
    except Exception as error:  # the last resort of the whole program, so that nobody meets a bare traceback
        if os.environ.get("ARTIFACTKIT_DEBUG"):
            raise
        return _internal(error)
    return code if isinstance(code, int) else 0


def _failed(error: ArtifactkitError, code: int | None = None) -> int:
    """Render one error; with ``--json`` as the document on stdout too. Returns the exit code."""
    try:
        out.error(error)
        out.flush()
    except BrokenPipeError:
        out.abandon()
    return error.exit_code if code is None else code


def _usage(error: Any) -> int:
    """A command line that the parser refuses, in our own form."""
    if type(error).__name__ == "NoArgsIsHelpError":
        out.say(error.format_message())
        return UsageError.exit_code
    message = str(error.format_message()).strip()
    path = error.ctx.command_path if error.ctx is not None else PROGRAM
    near = getattr(error, "possibilities", None)
    if near:
        message = error.message
    hint = f"did you mean {' or '.join(sorted(near))}?" if near else f"run: {path} --help"
    message = message[:1].lower() + message[1:].rstrip(".")
    return _failed(UsageError(message, hint=hint))


def _internal(error: Exception) -> int:
    """What should not have happened. One line, since a traceback helps nobody at a terminal."""
    if isinstance(error, MemoryError):
        return _failed(
            ArtifactkitError("not enough memory", hint="free some, or convert on a larger machine"), INTERNAL_ERROR
        )
    what = f"a fault in {PROGRAM} itself: {type(error).__name__}: {printable(str(error))}"
    hint = "run again with ARTIFACTKIT_DEBUG=1 for the traceback, and report it together with the command"
    return _failed(ArtifactkitError(what, hint=hint), INTERNAL_ERROR)


def _stop_by_exception() -> None:
    """Let SIGTERM and SIGHUP end us as Ctrl-C does, by an exception, so that what was staged is taken away again."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        try:
            if signal.getsignal(number) is signal.SIG_DFL:  # under nohup a hang-up stays ignored
                signal.signal(number, stop)
        except ValueError:  # not in the main thread: whoever runs us there has the signals
            return


def run() -> NoReturn:
    """The console script."""
    sys.exit(main())
