"""The command group, and what every command shares.

A new command is a function under ``@app.command()`` in a module of its own, which
:mod:`hingeline.cli` imports. It raises :class:`CommandError` with one sentence where the user's
input is at fault; Ctrl-C may pass through it. The group turns these into exit codes 2 and 130,
without a traceback. Results go to the standard output, progress to the standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hingeline import __version__
from hingeline.core.workers import effective_n_jobs

BAD_INPUT = 2
INTERRUPTED = 130  # what a shell reports for SIGINT
INTERRUPTED_TEXT = "hingeline: interrupted"
_LESS = "check the file for feature numbers that are far too large, or use fewer features"


class CommandError(Exception):
    """The user's input is at fault; the message is one sentence that says what to do."""


@contextmanager
def blaming(what: str = "") -> Iterator[None]:
    """Report what the library refuses as the user's input at fault, in the library's words."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError) and error.strerror:
            text = f"{error.filename or 'the file'}: {error.strerror}."
            if error.filename and not what.startswith("--"):  # another file may be at fault
                what = ""
        raise CommandError(f"{what}: {text}" if what else text) from None


class _Group(TyperGroup):
    """Turns errors into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            typer.echo(f"hingeline: {error}", err=True)
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError as error:
            typer.echo(f"hingeline: there is not enough memory ({error}): {_LESS}.", err=True)
            raise typer.Exit(BAD_INPUT) from None
        except BrokenPipeError:  # the reader of our output has enough
            _drop_output()
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            typer.echo(INTERRUPTED_TEXT, err=True)
            raise typer.Exit(INTERRUPTED) from None


def _drop_output() -> None:
    """Let the interpreter flush the standard output at its end without a complaint."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


app = typer.Typer(
    name="hingeline",
    cls=_Group,
    help="Structured SVMs, trained to a certified optimum.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line, and leave at once.

    Taking the interpreter down with all compiled kernels in it takes a third of a second, in which
    nothing happens that anybody waits for.
    """
    try:
        app(prog_name="hingeline")
        code = 0
    except KeyboardInterrupt:  # before or after a command ran
        code = INTERRUPTED
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # a pipe that nobody reads any more
        code = code or 1
    os._exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hingeline {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


NJobs = Annotated[int | None, typer.Option(help="Threads; -1 for all cores.", show_default="1")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Results only, no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable results.")]


def check_n_jobs(n_jobs: int | None) -> None:
    """Refuse a number of threads that makes no sense."""
    try:
        effective_n_jobs(n_jobs)
    except ValueError as error:
        raise CommandError(f"--n-jobs: {error}") from None


def check_seed(seed: int) -> None:
    """Refuse a seed that NumPy does not take."""
    if seed >= 2**32:
        raise CommandError(f"--seed: must be less than 2**32, got {seed}.")
