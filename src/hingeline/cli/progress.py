"""What a fit shows while it runs, and what it leaves besides the model."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import numba
import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from hingeline import PassState, __version__
from hingeline.cli.app import INTERRUPTED, INTERRUPTED_TEXT, blame
from hingeline.cli.samples import source_of
from hingeline.core.results import relative
from hingeline.estimators.nu import positive_part


class FitProgress:
    """Progress of fits on the standard error: bars on a terminal, plain lines elsewhere."""

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

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, line: str) -> None:
        """Print a line above the bars."""
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
        """Fit the estimator, or call ``learn`` with X and y; seconds it took.

        A fit that is ``interruptible`` keeps its best weights where Ctrl-C ended it, else Ctrl-C
        ends the command.
        """
        task = self._start(title)
        watcher = _Watcher(self, title, task, estimator.tol)
        estimator.set_params(callbacks=[watcher, *callbacks])
        began = time.perf_counter()
        try:
            with self.show_warnings():
                (learn or estimator.fit)(X, y)
        finally:
            estimator.set_params(callbacks=None)
        if estimator.stop_reason_ == "interrupted" and not interruptible:
            raise KeyboardInterrupt
        seconds = time.perf_counter() - began
        ending = count(estimator.n_iter_, "pass", "passes") + _gap_text(estimator)
        if not self.show(task, 1.0, ending):
            self.say(f"{title}: {estimator.stop_reason_} after {seconds:.1f} s, {ending}")
        return seconds

    def prepare(self, estimator: Any, X: Any, y: Any) -> None:
        """Fit a copy on a few examples, so that all kernels are compiled before the clock runs."""
        task = self._start("preparing", total=None)
        copy = clone(estimator)
        with _exit_on_interrupt(), self.show_warnings():
            copy.fit(X, y)
            copy.predict(X)
        if copy.stop_reason_ == "interrupted":
            raise KeyboardInterrupt
        if self._bars is not None and task is not None:
            self._bars.remove_task(task)

    @contextmanager
    def show_warnings(self) -> Iterator[None]:
        """Say what the library warns of, but for convergence: the command shows the gap."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.showwarning = lambda message, *place: self.say(str(message))
            yield

    def _start(self, title: str, total: float | None = 1.0) -> TaskID | None:
        return None if self._bars is None else self._bars.add_task(title, total=total, state="")

    def show(self, task: TaskID | None, done: float, text: str) -> bool:
        """Show the state of a pass on a bar; whether there is one."""
        if self._bars is None or task is None:
            return False
        self._bars.update(task, completed=done, state=text)
        return True


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
        if not self.progress.show(self.task, min(self.done, 0.99), text) and news:
            self.progress.say(f"{self.title}: {text}")


@contextmanager
def _exit_on_interrupt() -> Iterator[None]:
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


# Numbers in words ---------------------------------------------------------------------------------


def percent(share: float, digits: str = ".2g") -> str:
    """A share in per cent."""
    return f"{100 * share:{digits}} %"


def count(n: int, one: str, many: str = "") -> str:
    """``1 pass``, ``2 passes``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def relative_gap(estimator: Any) -> float:
    """Certified gap of a fitted estimator as a share of its primal objective."""
    return relative(estimator.duality_gap_, positive_part(estimator))


def _gap_text(estimator: Any) -> str:
    """The gap in words, saying whose it is; nothing where there is none."""
    found = getattr(estimator, "restricted_gap_", math.nan)
    if not math.isnan(found):
        share = relative(found, estimator.restricted_objective_)
        return f", {percent(share)} gap over the outputs found"
    gap = relative_gap(estimator)
    return "" if math.isnan(gap) else f", {percent(gap)} gap"


def finite(value: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return value if math.isfinite(value) else None


# What training leaves besides the model: where it came from, and a line about it ------------------


class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.began = time.perf_counter()

    def stop(self, phase: str) -> None:
        """End a phase now; the next one begins."""
        now = time.perf_counter()
        self.seconds[phase] = round(now - self.began, 3)
        self.began = now

    def split(self, phase: str, first: str, seconds: float) -> None:
        """Count the first seconds of a phase as one of its own."""
        whole = self.seconds.pop(phase)
        self.seconds |= {first: round(seconds, 3), phase: round(whole - seconds, 3)}


def outcome_of(model: Any) -> dict[str, Any]:
    """How a fit ended: the gap as a share of the primal, or that over the outputs found."""
    found = relative(model.restricted_gap_, model.restricted_objective_)
    return {
        "relative_gap": finite(relative_gap(model)),
        "restricted_gap": finite(found),
        "converged": model.converged_,
        "stop_reason": model.stop_reason_,
        "passes": model.n_iter_,
    }


def balance_of(model: Any) -> dict[str, Any]:
    """C, or with ``slack="nu"`` the ν that was used, ρ, the equivalent C and the two risks."""
    if not hasattr(model, "nu_"):
        return {"C": float(model.C)}
    facts = {
        "C": finite(model.C_),
        "nu": model.nu_,
        "rho": model.rho_,
        "margin_error_risk": model.margin_error_risk_,
        "support_vector_risk": model.support_vector_risk_,
    }
    if hasattr(model, "nu_path_"):
        facts["nu_tried"] = [
            {name: finite(value) for name, value in trial._asdict().items()}
            for trial in model.nu_path_
        ]
    return facts


def write_model(
    path: Path, estimator: Any, clock: Clock, layout: Any, sources: list[str], **options: Any
) -> dict[str, Any]:
    """Write a model and where it came from; what results begin with.

    ``options`` are those of ``save``; ``before`` are sources that the model knows already, and
    ``metadata`` is added to what is written.
    """
    before, more = options.pop("before", ()), options.pop("metadata", {})
    metadata = {
        "layout": layout.to_dict(),
        "command": shlex.join(["hingeline", *sys.argv[1:]]),
        "data": [*before, *(source_of(name) for name in sources)],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "hingeline": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
        },
    }
    with blame("--model"):
        written = estimator.save(path, metadata={**metadata, **more}, **options)
    clock.stop("write")
    return {"model": str(path), "bytes": written["bytes"]}


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the outcome in a line, or as JSON; exit code 130 where Ctrl-C ended the fit."""
    interrupted = result["stop_reason"] == "interrupted"
    if as_json:
        typer.echo(json.dumps(result))
    else:
        seconds = ", ".join(f"{name} {value:.1f} s" for name, value in result["seconds"].items())
        typer.echo(
            f"{result['model']}: {_balance_text(result)}, {_bound_text(result)}; {seconds}; "
            f"{result['bytes'] / 1e6:.1f} MB"
        )
        if result["stop_reason"].startswith(("max_iter", "max_time")) and "C_u" not in result:
            typer.echo(
                "The gap was not reached: raise --max-iter or --max-time, lower -C, or scale the "
                "features to similar sizes.",
                err=True,
            )
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _balance_text(result: dict[str, Any]) -> str:
    balance = "C is infinite" if result["C"] is None else f"C={result['C']:g}"
    if "C_u" in result:
        balance += f", C_u={result['C_u']:g}"
    if "nu" in result:
        balance = f"nu={result['nu']:g} ({balance}, rho={result['rho']:.4g})"
    return balance


def _bound_text(result: dict[str, Any]) -> str:
    if "why_no_gap" in result:
        stopped = ", interrupted" if result["stop_reason"] == "interrupted" else ""
        return f"no certificate (not convex{stopped})"
    gap, found = result["relative_gap"], result["restricted_gap"]
    bound = "no certificate" if gap is None else f"certified gap {percent(gap)}"
    if found is not None:
        bound = f"gap over the outputs found {percent(found)}"
    return f"{bound} ({result['stop_reason']}, {count(result['passes'], 'pass', 'passes')})"
