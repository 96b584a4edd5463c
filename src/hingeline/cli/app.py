"""The command group: commands by name, errors as one line, exit codes, and common options.

A new command is a function in a module of its own, both of one name, and a line in ``COMMANDS``.
It raises :class:`CommandError` with one sentence where the user's input is at fault; Ctrl-C may
pass through it. The group turns these into exit codes 2 and 130, without a traceback. Results go
to the standard output, progress to the standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hingeline import __version__
from hingeline.core.workers import effective_n_jobs

#: Command -> its module and function.
COMMANDS = {
    "train": "train",
    "update": "update",
    "semi": "semi",
    "predict": "predict",
    "evaluate": "evaluate",
    "report": "report",
    "explain": "explain",
    "info": "info",
    "import": "import_model",
    "convert": "convert",
    "check": "check",
    "demo": "demo",
    "warm-up": "warm_up",
}

BAD_INPUT = 2
INTERRUPTED = 130  # what a shell reports for SIGINT
INTERRUPTED_TEXT = "hingeline: interrupted"


class CommandError(Exception):
    """The user's input is at fault; the message is one sentence that says what to do."""


@contextmanager
def blame(what: str = "") -> Iterator[None]:
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
    """Finds commands by name and turns errors into one line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        name = COMMANDS[cmd_name]
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(cmd_name)(getattr(import_module(f"hingeline.cli.{name}"), name))
        return typer.main.get_command(single)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            typer.echo(f"hingeline: {error}", err=True)
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError as error:
            typer.echo(
                f"hingeline: there is not enough memory ({error}): check the file for feature "
                "numbers that are far too large, or use fewer features.",
                err=True,
            )
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


# Options that several commands have ---------------------------------------------------------------


def _check_n_jobs(n_jobs: int | None) -> int | None:
    with blame("--n-jobs"):
        effective_n_jobs(n_jobs)
    return n_jobs


def check_seed(seed: int | None) -> int | None:
    """Refuse a seed that NumPy does not take."""
    if seed is not None and seed >= 2**32:
        raise CommandError(f"--seed: must be less than 2**32, got {seed}.")
    return seed


def _check_dtype(dtype: str) -> str:
    if dtype not in (names := ("float64", "float32", "float16")):
        raise CommandError(f"--dtype: must be one of {', '.join(names)}, got {dtype!r}.")
    return dtype


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.hinge).")]
NewModel = Annotated[Path, typer.Option("--model", "-m", help="Model file to write (.hinge).")]
Format = Annotated[str, typer.Option("--format", "-f", help="Format of the file; auto guesses it.")]
KnownFormat = Annotated[
    str, typer.Option("--format", "-f", help="Format of the file; auto: as in training.")
]
Columns = Annotated[
    str | None, typer.Option(help="Names of the file's columns, separated by commas.")
]
Use = Annotated[
    str | None,
    typer.Option(help="Columns to predict from.", show_default="all but the label"),
]
Label = Annotated[
    str | None,
    typer.Option(
        help="Column of the labels. For ARFF: Mulan's XML file, or the number of labels.",
        show_default="the last; upos in CoNLL-U",
    ),
]
Template = Annotated[
    Path | None, typer.Option(help="Feature templates: a file for CRF++ or Wapiti.")
]
MinCount = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Leave out features that occur less often; 2 is faster and often a little worse.",
        show_default="1",
    ),
]
HashBits = Annotated[
    int | None, typer.Option(min=4, max=30, help="Hash features into 2**bits columns.")
]
Cost = Annotated[
    float | None,
    typer.Option("--C", "-C", help="Weight of the slack.", show_default="0.1; 1 for rows"),
]
Tol = Annotated[
    float, typer.Option(help="Stop at this certified gap, as a share of the objective.")
]
Scheme = Annotated[
    str | None, typer.Option(help="Never predict invalid tags: auto, IOB2, BIOES, …")
]
MaxIter = Annotated[int, typer.Option(min=1, help="Make at most this many passes.")]
Constraints = Annotated[
    str | None,
    typer.Option(help="Rules for the labels: a TOML file, citations or seminars."),
]
Dtype = Annotated[
    str,
    typer.Option(
        help="Numbers that weights are stored as: float64, float32 or float16.",
        callback=_check_dtype,
    ),
]
Sparse = Annotated[bool, typer.Option("--sparse", help="Store only weights that are not 0.")]
KeepState = Annotated[
    bool,
    typer.Option("--keep-state", help="Also store data and multipliers, for hingeline update."),
]
NJobs = Annotated[
    int | None,
    typer.Option(help="Threads; -1 for all cores.", show_default="1", callback=_check_n_jobs),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.", callback=check_seed)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def split_names(text: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if text is None else [part.strip() for part in text.split(",")]


def given(context: typer.Context) -> dict[str, Any]:
    """The options that stand on the command line, and their values."""
    sources: dict[str, Any] = {n: context.get_parameter_source(n) for n in context.params}
    return {n: context.params[n] for n, s in sources.items() if s and s.name == "COMMANDLINE"}


def check_target(option: str, path: Path, *read: str | None) -> None:
    """Refuse a file that could not be written, or that a command reads as well."""
    folder = path.parent
    if path.is_dir():
        raise CommandError(f"{option}: {path} is a folder: name a file.")
    if not folder.is_dir():
        raise CommandError(f"{option}: there is no folder {folder}: make it first.")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{option}: nothing can be written in {folder}: name another folder.")
    if path.resolve() in [Path(name).resolve() for name in read if name not in (None, "-")]:
        raise CommandError(f"{option}: {path} is a file to learn from: name another file.")


def check_sources(option: str, *names: str | None) -> None:
    """Refuse to read the standard input twice."""
    if names.count("-") > 1:
        raise CommandError(f"{option}: the standard input cannot be read twice: name a file.")
