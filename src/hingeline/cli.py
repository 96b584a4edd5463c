"""The command ``hingeline``.

A new command is a function under ``@app.command()``. It raises :class:`CommandError` with one
sentence where the user's input is at fault; Ctrl-C may pass through it. The group turns these into
exit codes 2 and 130, without a traceback. Results go to the standard output, progress to the
standard error.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from typer.core import TyperGroup

from hingeline import ChainSSVM, MulticlassSSVM, PassState, __version__
from hingeline.data.digits import DigitDates, load_digit_dates
from hingeline.report.curve import check_picture_path, plot_curve
from hingeline.solvers.history import relative
from hingeline.solvers.parallel import effective_n_jobs

Array = np.ndarray[Any, Any]

BAD_INPUT = 2
INTERRUPTED = 130  # what a shell reports for SIGINT
_INTERRUPTED_TEXT = "hingeline: interrupted"


# What every command shares ---------------------------------------------------------------------


class CommandError(Exception):
    """The user's input is at fault; the message is one sentence that says what to do."""


class _Group(TyperGroup):
    """Turns errors into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            typer.echo(f"hingeline: {error}", err=True)
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt:
            typer.echo(_INTERRUPTED_TEXT, err=True)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="hingeline",
    cls=_Group,
    help="Structured SVMs, trained to a certified optimum.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="hingeline")
    except KeyboardInterrupt:  # before or after a command ran
        sys.exit(INTERRUPTED)


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


class FitProgress:
    """Progress of fits on the standard error: bars on a terminal, plain lines elsewhere.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True)
        self.quiet = quiet
        self._bars: Progress | None = None
        if not quiet and self.console.is_terminal and not self.console.is_dumb_terminal:
            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[state]}"),
                TimeElapsedColumn(),
                console=self.console,
            )

    def __enter__(self) -> FitProgress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, line: str) -> None:
        """A line above the bars."""
        if not self.quiet:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def fit(self, title: str, estimator: Any, X: Any, y: Any) -> float:
        """Fit the estimator; seconds it took.

        A fit that Ctrl-C ended returns its best weights: here it ends the command instead.
        """
        task = self._start(title)
        estimator.set_params(callbacks=_Watcher(self, title, task, estimator.tol))
        began = time.perf_counter()
        try:
            self._fit(estimator, X, y)
        finally:
            estimator.set_params(callbacks=None)
        seconds = time.perf_counter() - began
        ending = f"{estimator.n_iter_} passes, {_percent(relative_gap(estimator))} gap"
        if self._bars is not None and task is not None:
            self._bars.update(task, completed=1.0, state=ending)
        else:
            self.say(f"{title}: {estimator.stop_reason_} after {seconds:.1f} s, {ending}")
        return seconds

    def prepare(self, estimator: Any, X: Any, y: Any) -> None:
        """Fit a copy on a few examples, so that all kernels are compiled before the clock runs."""
        task = self._start("preparing", total=None)
        copy = clone(estimator)
        with _interrupts_exit():
            self._fit(copy, X, y)
            copy.predict(X)
        if self._bars is not None and task is not None:
            self._bars.remove_task(task)

    def _start(self, title: str, total: float | None = 1.0) -> TaskID | None:
        return None if self._bars is None else self._bars.add_task(title, total=total, state="")

    @staticmethod
    def _fit(estimator: Any, X: Any, y: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the command shows the gap
            estimator.fit(X, y)
        if estimator.stop_reason_ == "interrupted":
            raise KeyboardInterrupt

    def show(self, title: str, task: TaskID | None, done: float, text: str, news: bool) -> None:
        """Take over the state of a pass; a line is printed only if there is news."""
        if self._bars is not None and task is not None:
            self._bars.update(task, completed=done, state=text)
        elif news:
            self.say(f"{title}: {text}")


class _Watcher:
    """The callback that tells how far a fit has come, from the logarithm of its gap."""

    def __init__(self, progress: FitProgress, title: str, task: TaskID | None, tol: float) -> None:
        self.progress, self.title, self.task, self.tol = progress, title, task, tol
        self.first = math.nan
        self.done = 0.0
        self.certified = self.told = math.inf

    def __call__(self, state: PassState) -> None:
        gap = state.relative_gap
        if math.isnan(gap):
            gap = state.row.estimate / max(state.row.dual + 0.5 * state.row.estimate, 1e-300)
        else:
            self.certified = gap
        if math.isfinite(gap):
            if math.isnan(self.first):
                self.first = max(gap, 2.0 * self.tol)
            way = math.log(self.first / self.tol)
            self.done = max(self.done, 1.0 - math.log(max(gap / self.tol, 1.0)) / way)
        text = f"pass {state.row.passes}"
        news = False
        if math.isfinite(self.certified):
            text += f", {_percent(self.certified)} gap"
            news = self.tol < self.certified <= self.told / 2
        if news:
            self.told = self.certified
        # The bar is full only once the fit is over.
        self.progress.show(self.title, self.task, min(self.done, 0.99), text, news)


@contextmanager
def _interrupts_exit() -> Iterator[None]:
    """Let Ctrl-C end the process on the spot; for compilation, which writes no output.

    An exception that is raised where LLVM calls back into Python is lost, or leaves the compiler
    in a state that crashes later.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        show_cursor = b"\x1b[?25h\n" if os.isatty(2) else b""
        os.write(2, show_cursor + _INTERRUPTED_TEXT.encode() + b"\n")
        os._exit(INTERRUPTED)

    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before is not signal.SIG_IGN
    if ours:
        signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def relative_gap(estimator: Any) -> float:
    """Certified gap of a fitted estimator as a share of its primal objective."""
    return relative(estimator.duality_gap_, estimator.primal_objective_)


def _percent(share: float, digits: str = ".2g") -> str:
    return f"{100 * share:{digits}} %"


def _check_n_jobs(n_jobs: int | None) -> None:
    try:
        effective_n_jobs(n_jobs)
    except ValueError as error:
        raise CommandError(f"--n-jobs: {error}") from None


def _check_seed(seed: int) -> None:
    if seed >= 2**32:
        raise CommandError(f"--seed: must be less than 2**32, got {seed}.")


def _check_picture(option: str, path: Path) -> None:
    """Refuse a picture that could not be written, before any work is done for it."""
    try:
        check_picture_path(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"{option}: {error}") from None


def _write_curve(option: str, path: Path, estimator: Any, title: str) -> str:
    """Write the picture of a fit's curve; the sentence that says what became of it."""
    try:
        plot_curve(estimator.history_, path, title=title)
    except ImportError as error:
        return f"No plot was written: {error}"
    except OSError as error:
        raise CommandError(f"{option}: cannot write {path}: {error.strerror or error}.") from None
    return f"The chain's training curve is in {path}"


# hingeline demo --------------------------------------------------------------------------------

_DEMO_ABOUT = """\
Handwritten digits (scikit-learn's, 8 x 8 pixels): the last digit of the date on eight working days
in a row. {n_train} rows to learn from, {n_test} to test on, with images of their own."""


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The chain's training curve, .png or .svg.")
    ] = Path("hingeline-demo.png"),
    n_jobs: NJobs = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    n_train: Annotated[int, typer.Option(min=10, help="Rows to learn from.")] = 1000,
    n_test: Annotated[int, typer.Option(min=1, help="Rows to test on.")] = 400,
    noise: Annotated[float, typer.Option(min=0.0, help="Noise added to the pixels.")] = 0.0,
) -> None:
    """Learn to read handwritten dates, digit by digit and as a sequence."""
    _check_n_jobs(n_jobs)
    _check_seed(seed)
    _check_picture("--output", output)
    if not math.isfinite(noise):
        raise CommandError(f"--noise: must be a finite number, got {noise}.")
    data = load_digit_dates(n_train, n_test, noise=noise, random_state=seed)
    # Each C is the best of 0.003 to 1 on training images 600 to 899, trained on 0 to 599.
    flat = MulticlassSSVM(C=0.1, tol=1e-3, n_jobs=n_jobs, random_state=seed)
    chain = ChainSSVM(C=0.3, tol=1e-3, n_jobs=n_jobs, random_state=seed)
    with FitProgress(quiet) as progress:
        progress.say(_DEMO_ABOUT.format(n_train=n_train, n_test=n_test))
        began = time.perf_counter()
        progress.prepare(flat, np.vstack(data.X_train[:10]), np.concatenate(data.y_train[:10]))
        progress.prepare(chain, data.X_train[:10], data.y_train[:10])
        prepared = time.perf_counter() - began
        if prepared > 2.0:
            progress.say(f"kernels are ready after {prepared:.0f} s")
        seconds = [
            progress.fit(
                "digit by digit", flat, np.vstack(data.X_train), np.concatenate(data.y_train)
            ),
            progress.fit("as a sequence", chain, data.X_train, data.y_train),
        ]
    alone = flat.predict(np.vstack(data.X_test)).reshape(n_test, -1)
    together = np.array(chain.predict(data.X_test))
    said = _write_curve("--output", output, chain, "ChainSSVM on handwritten dates")
    console = Console()
    console.print(_demo_table(data, (flat, chain), (alone, together), seconds))
    typer.echo(said)


def _demo_table(
    data: DigitDates, models: tuple[Any, Any], predicted: tuple[Array, Array], seconds: list[float]
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for heading in ("digits\nright", "all eight\nright", "training", "passes", "certified\ngap"):
        table.add_column(heading, justify="right", vertical="bottom")
    truth = np.array(data.y_test)
    names = ("digit by digit", "as a sequence")
    for name, model, labels, spent in zip(names, models, predicted, seconds, strict=True):
        right = labels == truth
        table.add_row(
            f"{name} ({type(model).__name__})",
            _percent(right.mean(), ".1f"),
            _percent(right.all(axis=1).mean(), ".1f"),
            f"{spent:.1f} s",
            str(model.n_iter_),
            _percent(relative_gap(model)) + ("" if model.converged_ else " (not converged)"),
        )
    return table
