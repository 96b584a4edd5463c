"""How far a fit has come: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from hingeline import PassState
from hingeline.cli.app import INTERRUPTED, INTERRUPTED_TEXT
from hingeline.core.results import relative
from hingeline.estimators.nu import positive_part


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

    def fit(
        self,
        title: str,
        estimator: Any,
        X: Any,
        y: Any,
        callbacks: Sequence[Any] = (),
        interruptible: bool = False,
        learn: Callable[[Any, Any], Any] | None = None,
    ) -> float:
        """Fit the estimator; seconds it took.

        Parameters
        ----------
        title : str
            What the bar or the lines are called.
        estimator, X, y
            The fit.
        callbacks : sequence of callables
            Called after each pass, after the progress is shown.
        interruptible : bool, default=False
            Whether a fit that Ctrl-C ended keeps its best weights; else it ends the command.
        learn : callable, optional
            What to call with X and y instead of ``fit``.
        """
        task = self._start(title)
        watcher = _Watcher(self, title, task, estimator.tol)
        estimator.set_params(callbacks=[watcher, *callbacks])
        began = time.perf_counter()
        try:
            self._fit(estimator, X, y, interruptible, learn)
        finally:
            estimator.set_params(callbacks=None)
        seconds = time.perf_counter() - began
        ending = f"{estimator.n_iter_} {'pass' if estimator.n_iter_ == 1 else 'passes'}"
        gap = gap_words(estimator)
        if gap:
            ending += f", {gap}"
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

    def _fit(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        interruptible: bool = False,
        learn: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the command shows the gap
            warnings.showwarning = lambda message, *place: self.say(str(message))
            (learn or estimator.fit)(X, y)
        if estimator.stop_reason_ == "interrupted" and not interruptible:
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
        self.whose = ""

    def __call__(self, state: PassState) -> None:
        gap = state.relative_gap
        if math.isnan(gap):
            gap = state.restricted_gap
        if math.isnan(gap):
            size = abs(state.row.dual) + 0.5 * state.row.estimate
            gap = state.row.estimate / max(size, 1e-300)
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
            if not math.isnan(state.restricted_gap):
                self.whose = " over the outputs found"
            text += f", {percent(self.certified)} gap{self.whose}"
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
        os.write(2, show_cursor + INTERRUPTED_TEXT.encode() + b"\n")
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
    return relative(estimator.duality_gap_, positive_part(estimator))


def gap_words(estimator: Any) -> str:
    """The gap in words, saying whose it is; nothing where there is none."""
    found = getattr(estimator, "restricted_gap_", math.nan)
    if not math.isnan(found):
        share = relative(found, estimator.restricted_objective_)
        return f"{percent(share)} gap over the outputs found"
    gap = relative_gap(estimator)
    return "" if math.isnan(gap) else f"{percent(gap)} gap"


def percent(share: float, digits: str = ".2g") -> str:
    """A share in words."""
    return f"{100 * share:{digits}} %"
