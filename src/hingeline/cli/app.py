"""The command group: commands by name, errors as one line, exit codes, and common options.

A new command is a function in a module of its own, both of one name, and a word in ``COMMANDS``.
The group turns ValueError (one sentence about the user's input) and wrong options into exit code 2,
Ctrl-C into 130, without a traceback. Results go to the standard output, progress to the standard
error.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from hingeline import __version__

#: In the order of a first hour.
COMMANDS = (
    *("train", "predict", "evaluate", "report", "explain", "serve", "info", "demo"),
    *("calibrate", "update", "semi", "check", "convert", "import", "warm-up"),
)
#: Options in groups, for commands with many; others stand first.
_PANELS = {
    "The file": "format task columns use label",
    "Features": "template min_count hash_bits scale lexicon",
    "What is learnt": "C unlabelled_C grid nu slack loss rescale violators scheme edges projective",
    "When training ends": "tol max_iter max_time passes memory dev patience select cv cv_output",
    "How training runs": "solver checkpoint checkpoint_every resume workers blocks n_jobs seed",
    "The model file": "keep_state dtype sparse",
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names.split()}
_NAMES = "|".join(_PANEL_OF)
#: Parameters as the library writes them, tol and slack='nu', but not one of C=0.1,1 or 'use=it'.
_PARAMETER = re.compile(
    rf"^({_NAMES})(?= must )|(?<![\w'\"/])({_NAMES})=('?)([a-z\d-][\w.+-]*+)\3(?!,\d)"
)

MOST_SEED = 2**32 - 1  # that NumPy takes
_UsageError: Any = typer.BadParameter.__base__  # click's own, or the one that Typer brings
BAD_INPUT = 2
INTERRUPTED = 130  # what a shell reports for SIGINT


def _sentence(error: Exception) -> str:
    """What is wrong with the user's input, in the words of the library or of the system."""
    if isinstance(error, _UsageError):
        text, where = error.format_message(), getattr(error.ctx, "command_path", "hingeline")
        text = text[:1].lower() + text[1:].replace(": Value error, ", ": ")  # of Typer's checks
        return text if text.endswith("?") else f"{text.removesuffix('.')}; see {where} --help."
    if isinstance(error, MemoryError):
        remedy = "check the file for feature numbers that are far too large, or use fewer features"
        return f"there is not enough memory ({error}): {remedy}."
    if isinstance(error, IsADirectoryError) and (name := error.filename):
        return f"{name} is a folder: name a file in it, or all of them: '{name}/*'."
    if isinstance(error, OSError) and error.strerror:
        name = error.filename  # '' of a variable of the shell that is not set
        return f"{error.strerror}." if name is None else f"{name or repr(name)}: {error.strerror}."
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{str(error).removesuffix('.')}{notes}." if notes else str(error)


@contextmanager
def blame(what: str) -> Iterator[None]:
    """Say which option or file is at fault for what the library refuses; "" if it does itself."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError) as error:
        # An error of the system names a file itself, perhaps another one than the data.
        named = not what or (getattr(error, "filename", None) and not what.startswith("--"))
        raise ValueError(_sentence(error) if named else f"{what}: {_sentence(error)}") from None


class _Group(TyperGroup):
    """Finds commands by name and turns errors into one line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            self.commands: Any = dict.fromkeys(COMMANDS)  # what it may have meant
            return None
        name = "import_model" if cmd_name == "import" else cmd_name.replace("-", "_")
        single = _make_app()
        function = getattr(import_module(f"hingeline.cli.{name}"), name)
        paragraphs = cleandoc(function.__doc__).split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        single.command(cmd_name, help=text)(function)
        command: Any = typer.main.get_command(single)
        if len(command.params) > 16:
            for parameter in command.params:
                parameter.rich_help_panel = _PANEL_OF.get(parameter.name)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        return _end_well(super().parse_args, ctx, args) if args else super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        return _end_well(super().invoke, ctx)


def _end_well(work: Callable[..., Any], *given: Any) -> Any:
    """Do what is to be done; errors are one line and an exit code."""
    try:
        return work(*given)
    except BrokenPipeError:  # the reader of our output has enough
        raise typer.Exit(0) from None
    except (ValueError, OSError, MemoryError, _UsageError) as error:
        typer.echo(f"hingeline: {name_options(_sentence(error))}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        typer.echo("hingeline: interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None


_make_app = partial(typer.Typer, add_completion=False, pretty_exceptions_enable=False)
_KNOWN: dict[str, Any] = {
    "help": "Structured SVMs, trained to a certified optimum.",
    "context_settings": {"help_option_names": ["--help", "-h"]},  # of commands, too
}
app = _make_app(name="hingeline", cls=_Group, no_args_is_help=True, **_KNOWN)


def main() -> None:
    """Run the command line, and leave at once.

    To take the interpreter down with all compiled kernels in it takes a third of a second.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us: the next file would be it
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    stream: Any  # what a terminal cannot show is a question mark there
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(**{"errors": "replace"} if stream.isatty() else {"encoding": "utf-8"})
    warnings.showwarning = lambda message, *place: typer.echo(f"hingeline: {message}", err=True)
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
    except BrokenPipeError:  # a reader that has enough
        pass
    except (OSError, ValueError):  # a disk that is full
        code = code or 1
    os._exit(code)


@app.callback(invoke_without_command=True)
def _show_version(
    version: Annotated[bool, Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"hingeline {__version__}")
        raise typer.Exit()


def _check_n_jobs(n_jobs: int | None) -> int | None:
    from hingeline._checks import effective_n_jobs  # SciPy takes its time

    effective_n_jobs(n_jobs)
    return n_jobs


Model = Annotated[Path, Argument(metavar="MODEL", help="A model file (.hinge).")]
Files = Annotated[list[str], Argument(metavar="DATA…", help="Labelled files; - is standard input.")]
Data = Annotated[str, Argument(metavar="DATA", help="A labelled file; - is standard input.")]
Input = Annotated[
    str, Argument(metavar="INPUT", help="A file, with or without labels; - is standard input.")
]
NewModel = Annotated[Path, Option("--model", "-m", help="The model file to write (.hinge).")]
Format = Annotated[str, Option("--format", "-f", help="Format of the file; auto guesses it.")]
KnownFormat = Annotated[str, Option("--format", "-f", help="Format; auto is that of training.")]
# fmt: off
Columns = Annotated[str | None, Option(help="Names of the file's columns, separated by commas.")]
Use = Annotated[str | None, Option(help="Columns to learn from.", show_default="all but the label")]
Label = Annotated[str | None, Option(
    help="Column of the labels. For ARFF: Mulan's XML file, one label, or the number of labels.",
    show_default="the last; upos in CoNLL-U",
)]
Template = Annotated[Path | None, Option(help="A file of feature templates (CRF++ or Wapiti).")]
Scale = Annotated[bool | None, Option(
    "--scale/--no-scale", help="Bring the columns of a table to similar sizes.",
    show_default="for dense tables and images",
)]
MinCount = Annotated[int | None, Option(
    help="Drop features that occur fewer times; 2 is faster and often a little less accurate.",
    min=1, show_default="1",
)]
HashBits = Annotated[int | None, Option(help="Hash features into 2**bits columns.", min=4, max=30)]
Cost = Annotated[str | None, Option(
    "--C", "-C", help="Weight of the slack: larger values fit the training data more closely. In "
    "train, auto chooses one by the loss on held-out examples.",
    show_default="by the scale of the features",
)]
Loss = Annotated[str | None, Option(
    help="hamming or zero_one; for segments hamming or spans, for dependencies labelled or heads.",
    show_default="the first",
)]
Violators = Annotated[str | None, Option(
    help="For --slack sum: argmax, all or a number.", show_default="argmax; all for rows",
)]
Blocks = Annotated[int | None, Option(
    help="With --workers: number of blocks; the weights depend on it.",
    min=1, show_default="one per file, at most 16",
)]
UnlabelledCost = Annotated[str | None, Option(
    "--unlabelled-C", help="Weights of the unlabelled text, one per step, separated by commas.",
    show_default="0.01, 0.05, 0.2 for each sequence",
)]
Select = Annotated[str | None, Option(
    help="Which step to keep: dev, violations or last.",
    show_default="dev with --dev, else violations",
)]
# fmt: on
Tol = Annotated[float, Option(help="Stop at this certified gap, as a share: 0.05 is 5 %.", max=1.0)]
Scheme = Annotated[str | None, Option(help="Enforce this tag scheme: auto, none, IOB2, …")]
MaxIter = Annotated[int, Option(min=1, help="Make at most this many passes.")]
Constraints = Annotated[str | None, Option(help="Rules: a TOML file, citations or seminars.")]
Bootstrap = Annotated[int, Option(min=0, help="Resamples for 95 % intervals; 0: none.")]
Dtype = Annotated[
    Literal["float64", "float32", "float16"], Option(help="Store weights in this precision.")
]
Sparse = Annotated[
    bool, Option("--sparse/--dense", help="Store only nonzero weights, or whole tables.")
]
KeepState = Annotated[bool, Option("--keep-state", help="Store the data for hingeline update.")]
NJobs = Annotated[
    int | None, Option(help="Threads; -1 uses all cores.", show_default="1", callback=_check_n_jobs)
]
Seed = Annotated[int, Option(min=0, max=MOST_SEED, help="Random seed.")]
Workers = Annotated[str | None, Option(help="Processes, or a Dask scheduler (tcp://host:8786).")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print results and warnings, no progress.")]
Json = Annotated[bool, Option("--json", help="Print results as JSON.")]


def flag(name: str) -> str:
    """How an option is written."""
    return f"--{name.replace('_', '-')}"


def name_options(text: str) -> str:
    """What the library says, with options in place of its parameters."""
    return _PARAMETER.sub(lambda m: f"{flag(m[1] or m[2])} {m[4] or ''}".rstrip(), text)


def split_names(text: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if text is None else [part.strip() for part in text.split(",")]


def split_numbers(text: str, expected: str) -> list[float]:
    """Distinct numbers that are separated by commas, in ascending order."""
    try:
        return sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise ValueError(f"{expected} or the like, got {text!r}.") from None


def given(context: typer.Context) -> dict[str, Any]:
    """The options that stand on the command line, and their values."""
    sources: dict[str, Any] = {n: context.get_parameter_source(n) for n in context.params}
    return {n: context.params[n] for n, s in sources.items() if s and s.name == "COMMANDLINE"}


def check_target(option: str, target: str | Path, *read: str | Path | None) -> None:
    """Refuse a file that could not be written, or that a command reads as well."""
    from hingeline import _files

    path = Path(target)
    if target == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
        return  # the standard output, or a device
    with blame(option):
        if str(target) == "-":  # of an option that wants a file
            raise ValueError("the standard output will not do: name a file.")
        if _files.check_target(path) in [Path(n).resolve() for n in read if n not in (None, "-")]:
            raise ValueError(f"{path} is also an input: name another file.")


def check_sources(option: str, *names: str | None) -> None:
    """Refuse to read the standard input twice."""
    if names.count("-") > 1:
        raise ValueError(f"{option}: standard input cannot be read twice: name a file.")
