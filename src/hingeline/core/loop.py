"""The loop around every solver: passes, certificates, history, and all the ways to stop.

A solver offers passes over the data, a dual value and primal candidates; this module decides when
a candidate is worth a certificate (:mod:`hingeline.core.solver`) and when to end.
Certificates are scheduled by counted work and by the estimated gap, never by the clock, because
what they decode enters the working set: the same seed must give the same weights on any machine.
"""

import hashlib
import math
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cache, partial, reduce
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController

from hingeline._checks import Array, require, warn
from hingeline._jit import count_compiling, working_time
from hingeline._words import bound_text, count_of
from hingeline.core.primitives import Compiled
from hingeline.core.results import HistoryRow, PassState, Result, read_history, relative
from hingeline.core.solver import CertifiedSolver


class Reporter:
    """Tells on the standard error how a run goes: 1 a line per certificate, 2 one per pass.

    ``None``: one line that is written over, on a terminal or in a notebook, from two seconds on.
    """

    def __init__(self, name: str = "the solver", verbose: int | None = 0) -> None:
        self.name, self.verbose = name, verbose
        self.state, self.width, self.told = "", 0, 2.0
        if verbose is None and not _is_watched(sys.stderr):
            self.verbose = 0

    def tell(self, row: HistoryRow, relative_gap: float, remark: str = "") -> None:
        """Say where a pass has come."""
        if self.verbose == 0:
            return
        certified = not math.isnan(row.primal) or not math.isnan(row.restricted)
        if certified:
            kind = "gap" if math.isnan(row.restricted) else "gap over the outputs found"
            self.state = "" if math.isnan(relative_gap) else f"{kind} {bound_text(relative_gap)}"
        if self.verbose is None:
            if row.time >= self.told:
                self.told = row.time + 0.2
                self._write(name_place(row, remark), row.time)
        elif self.verbose >= 2 or certified:
            told = f"dual {row.dual:.6g}  planes {row.planes}"
            text = "  ".join(filter(None, (told, self.state if certified else "", remark)))
            print(f"pass {row.passes:4d}  {row.time:7.2f} s  {text}", file=sys.stderr)

    @contextmanager
    def while_compiling(self) -> Iterator[None]:
        """Say what is compiled, which passes wait for; the next pass takes the place of it."""

        def say(text: str) -> None:
            self.told = 0.0
            self._write(text)

        with count_compiling(say) if self.verbose is None else nullcontext():
            try:
                yield
            finally:
                self.end()

    @contextmanager
    def during(self, work: str) -> Iterator[None]:
        """Say what is being done, and for how long, of work that does not tell by itself.

        What it sets as ``state`` meanwhile, such as a count, is told with it.
        """
        over, began = threading.Event(), time.perf_counter()

        def watch() -> None:
            wait = self.told
            while not over.wait(wait):
                self._write(work, time.perf_counter() - began)
                wait = 0.2

        watcher = threading.Thread(target=watch, daemon=True)
        if self.verbose is None:
            watcher.start()
        try:
            yield
        finally:
            over.set()
            if watcher.ident is not None:
                watcher.join()
            self.end()

    def end(self) -> None:
        """Take the line away that was written over."""
        if self.width:
            print(f"\r{' ' * self.width}", end="\r", file=sys.stderr, flush=True)
            self.width = 0

    def _write(self, work: str, seconds: float | None = None) -> None:
        clock = "" if seconds is None else f"{seconds:.0f} s"
        text = f"{self.name}: {', '.join(filter(None, (work, self.state, clock)))}"
        blanks = " " * (self.width - len(text))
        self.width = len(text)
        print(f"\r{text}{blanks}", end="", file=sys.stderr, flush=True)


def name_place(row: HistoryRow, remark: str) -> str:
    """How far a run has come, in words."""
    return f"pass {row.passes}, {remark}" if remark else f"pass {row.passes}"


def _is_watched(stream: Any) -> bool:
    """Whether somebody sees a line grow: a terminal or a notebook, and no process of a pool."""
    alone = multiprocessing.parent_process() is None
    notebook = type(stream).__module__.startswith("ipykernel")
    return alone and (notebook or (hasattr(stream, "isatty") and stream.isatty()))


@dataclass
class Limits:
    """When to stop, and whom to tell."""

    tol: float = 1e-2
    max_iter: int = 1000
    max_time: float | None = None
    callbacks: Sequence[Callable[[PassState], Any]] = ()
    report: Reporter = field(default_factory=Reporter)
    started: float = field(default_factory=working_time)
    usual: bool = False  # whether C was left to the estimator, so that something should be learnt
    #: Says what must be the same for a run to be taken up again.
    identity: Callable[[], dict[str, Any]] = dict


#: Why a run stops where decoding has bounds only, and no pass can bring them down.
ONLY_INTEGRALITY = "only the integrality gap of decoding is left"
NOTHING_FOUND = "over the outputs that decoding finds, nothing is left to gain"
_EVERY = 8  # Passes between two certificates that the estimate did not call for.
#: Passes after which one is made in any case: the averaged weights find planes worth having.
_EARLY = (2, 4)


@dataclass
class Progress:
    """What the loop knows of the run so far."""

    best_dual: float = -math.inf
    best_primal: float = math.inf
    gap: float = math.nan
    relative_gap: float = math.nan
    integrality_gap: float = math.nan  # of the best primal; nan: decoding is exact
    share: float = 0.5  # of the estimate, that the certified gap is likely to be
    passes: int = 0
    last_certificate: int = 0
    history: list[HistoryRow] = field(default_factory=list)

    def update(self, solver: CertifiedSolver, certified: bool = False) -> bool:
        """Take over the solver's best primal; whether it is news.

        Outputs found since a restricted primal was computed may lift the dual above it: such a
        primal bounds nothing any more.
        """
        primal = solver.best()[1]
        news = primal != self.best_primal
        self.best_primal = primal
        if solver.restricted and not news and not certified:
            self.gap = self.relative_gap = math.nan
            return False
        if solver.bounded:
            self.gap = primal - self.best_dual
            self.relative_gap = relative(self.gap, solver.positive_part(primal))
        return news

    def step(self, solver: CertifiedSolver, tol: float) -> tuple[float, bool]:
        """One pass and, where it is due, a certificate; the estimate, and if the primal is news."""
        estimate = solver.sweep()
        self.passes += 1
        self.best_dual = max(self.best_dual, solver.lower_bound())
        fresh = self.update(solver)
        scale = max(solver.positive_part(self.best_dual + self.share * estimate), 1e-300)
        # The estimate sums each example's gap before its visit over the planes it knew; the last
        # certificate said which share of that is true. The first pass has almost no planes, so its
        # estimate says nothing. Right after a certificate the next one must be likely to do.
        expected, since = self.share * estimate / scale, self.passes - self.last_certificate
        due = since >= _EVERY or self.passes in _EARLY
        due = due or (self.passes > 1 and expected <= (1.05 if since >= 2 else 0.95) * tol)
        if due and not solver.certifies and not self.relative_gap <= tol:
            if solver.bounded and tol < 1.0:
                solver.good_primal = self.best_dual / (1.0 - tol)
            solver.certify()
            self.last_certificate = self.passes
            fresh = self.update(solver, certified=True) or fresh or solver.restricted
            if 0.0 < estimate < math.inf and self.gap < math.inf:
                self.share = min(max(self.gap / estimate, 0.1), 2.0)
        if fresh and not self.relative_gap <= tol and math.isfinite(self.gap):
            self.integrality_gap = solver.integrality_gap(solver.best()[0])
        return estimate, fresh


@cache
def _linear_algebra() -> Any:
    return ThreadpoolController().select(user_api="blas")


def run(solver: CertifiedSolver, limits: Limits) -> Result:
    """Pass over the data until the certified relative gap is at most ``limits.tol``."""
    # One thread in linear algebra: vectors here are short, threads of another library cost more
    # than they gain, and sums come out the same on any number of cores.
    # Steps that overflow are not taken: their dual or primal is no better.
    blas = _linear_algebra().limit(limits=1, user_api="blas")
    with blas, np.errstate(over="ignore", invalid="ignore"):
        return _run(solver, limits)


def _run(solver: CertifiedSolver, limits: Limits) -> Result:
    progress = Progress()
    began = limits.started
    # A checkpoint comes after the others, to find their state complete.
    callbacks: list[Any] = sorted(limits.callbacks, key=_is_checkpoint)
    snapshot, restore = (partial(do, solver, progress, callbacks) for do in (_take, _restore))
    for callback in callbacks:
        if _is_checkpoint(callback) and callback.begin(limits.identity(), restore):
            began -= progress.history[-1].time
    reason = told = ""  # the latter by a callback
    chosen: Array | None = None
    try:
        while not reason:
            estimate, fresh = progress.step(solver, limits.tol)
            counts = (working_time() - began, progress.passes, solver.oracle_calls)
            values = (math.nan, progress.best_dual, math.nan, estimate)
            row = HistoryRow(*counts, *values, solver.n_planes)
            if fresh:
                row = _certified(row, solver, progress.best_primal, progress.gap)
            progress.history.append(row)
            rel = progress.relative_gap
            remark = solver.remark()
            limits.report.tell(row, rel, remark)
            reason = _reason(solver, limits, progress)
            told = ""
            for callback in callbacks:
                # What resumes from the last pass would make one more: leave the one before,
                # unless it was only the clock that ended the run.
                out_of_time = reason.startswith("max_time") and not told
                if (reason or told) and _is_checkpoint(callback) and not out_of_time:
                    continue
                gap = rel if fresh else math.nan
                gaps = (math.nan, gap) if solver.restricted else (gap, math.nan)
                place = name_place(row, remark)
                state = PassState(row, *gaps, solver.candidate, snapshot, out_of_time, place)
                if callback(state) is True and state._reason is None:
                    state.stop("a callback returned True")
                if state._reason is not None and not told:
                    told = state._reason or "a callback stopped the fit"
                    chosen = state._chosen
            reason = told or reason
    except KeyboardInterrupt:
        reason, told = "interrupted", ""
        if progress.passes == 0:
            raise
        solver.repair()
    finally:
        limits.report.end()
    return _result(solver, limits, progress, reason, chosen, asked=bool(told))


def _result(
    solver: CertifiedSolver,
    limits: Limits,
    progress: Progress,
    reason: str,
    chosen: Array | None,
    asked: bool,
) -> Result:
    """Certify what was not yet, and say how the run came to stop; a callback may have ``asked``."""
    name, tol, passes, history = limits.report.name, limits.tol, progress.passes, progress.history
    unsure = not progress.relative_gap <= tol and progress.last_certificate < passes
    unsure = unsure and not (solver.looks and math.isfinite(history[-1].estimate))
    if unsure or reason == "interrupted":
        progress.best_dual = max(progress.best_dual, solver.lower_bound())
        solver.certify()
        progress.update(solver, certified=True)
    weights, primal = solver.best()
    gap, rel = progress.gap, progress.relative_gap
    if chosen is not None:
        weights, primal = chosen, solver.primal_of(chosen)
    elif solver.polishes and not (solver.hard or solver.restricted):
        weights, primal = _polish(solver, weights, primal, gap, limits)
    if chosen is not None or primal != progress.best_primal:
        gap = primal - progress.best_dual if solver.bounded else math.nan
        rel = relative(gap, solver.positive_part(primal))
    what = f"{name} arrived at weights that are not finite: the features or C are too large"
    require(np.isfinite(weights).all(), f"{what}; scale the features, or lower C.")
    converged = bool(rel <= tol) or (solver.satisfied and chosen is None)
    if rel <= tol and reason != "interrupted" and not asked:
        reason = "converged on the outputs found" if solver.restricted else "converged"
    integrality = solver.integrality_gap(weights) if math.isfinite(gap) else math.nan
    history[-1] = _certified(history[-1]._replace(dual=progress.best_dual), solver, primal, gap)
    if not converged and not asked:
        if math.isnan(rel) and progress.best_dual == -math.inf:
            bound = "this solver has no dual point, so no gap can be certified"
        elif math.isnan(rel):
            bound = "its oracle is not exact, so no gap can be certified"
        else:
            found = "relative gap over the outputs found"
            kind = found if solver.restricted else "certified relative gap"
            bound = f"its {kind} is {rel:.3g}, above tol={tol:g}"
        remedy = "raise max_iter or max_time, loosen tol, lower C, or scale the features"
        if math.isnan(rel):
            remedy = "more passes give none, either; choose another solver, or exact decoding"
        if integrality > 0.0:
            part = relative(min(integrality, gap), solver.positive_part(primal))
            bound += f" ({part:.3g} of it is the integrality gap of decoding)"
        only = reason in (ONLY_INTEGRALITY, NOTHING_FOUND)
        if only or _only_integrality(solver, gap, integrality, tol):
            remedy = (
                "decoding bounds the best outputs from above and finds none that good, so that "
                "more passes do not help; choose exact inference if the graphs allow it, or "
                "solver='soft-bcfw', whose certificate is that of the relaxation"
            )
        if reason == "interrupted":
            remedy = f"the best weights so far are kept; {solver.goes_on}"
        warn_unfinished(name, passes, reason, f"{bound}: {remedy}")
    findings = solver.findings(weights)
    if not math.isnan(integrality):
        findings["integrality_gap_"] = integrality
    gap = gap if math.isnan(gap) else max(gap, 0.0)
    certificate = (weights, primal, progress.best_dual, gap, rel, passes, converged)
    known = (solver.exact, solver.bounded, solver.restricted)
    return Result(*certificate, *known, stop_reason=reason, history=history, findings=findings)


def _polish(
    solver: CertifiedSolver, weights: Array, primal: float, gap: float, limits: Limits
) -> tuple[Array, float]:
    """The weights, or better ones beside them that a solver was kept from.

    P is strongly convex: unless ½‖w‖² is at most four gaps, w = 0 cannot be better. Weights that
    are worse than none become shorter where that makes them better than none; others are kept, for
    they may still predict better. And where C is so large that the rounding of hinges costs
    something, and nothing else is left of them, weights longer by a little have none.
    """
    half, form = 0.5 * float(weights @ weights), solver.form
    if half <= 4.0 * max(gap, 0.0) + (0.02 if limits.usual else 1e-10) * abs(primal):
        zero = np.zeros_like(weights)
        value = solver.primal_of(zero)
        if limits.usual and 0.0 < 0.99 * value <= primal - gap:
            what = "no weights are better than 0 by more than 1 % (the dual proves it)"
            why = "most labels are less likely than all others together, and a hinge learns nothing"
            warn(f"{limits.report.name}: {what}: {why}. Add features, or use slack='sum'.")
        if value < primal <= value * (1.0 + 1e-9):  # by rounding only
            return zero, value
        if value < primal:  # halved as long as that helps, they predict the same
            shorter, least = weights, primal
            while (halved := solver.primal_of(0.5 * shorter)) < least:
                shorter, least = 0.5 * shorter, halved
            if least < value * (1.0 - 1e-9):
                return shorter, least
    if form.ridge.any() or 1e-15 * float(form.cap.sum()) <= 1e-10 * primal:
        return weights, primal
    most = (primal - half) / float(form.cap[form.cap > 0.0].min(initial=math.inf))
    if most < 1e-8:
        longer = (1.0 + 2.0 * max(most, 0.0) + 1e-12) * weights
        value = solver.primal_of(longer)
        if value <= primal * (1.0 + 1e-11):
            return longer, value
    return weights, primal


def _certified(row: HistoryRow, solver: CertifiedSolver, primal: float, gap: float) -> HistoryRow:
    """The row with what a certificate found; a restricted primal is not called one."""
    if solver.restricted:
        return row._replace(restricted=primal)
    scale = solver.positive_part(primal)
    return row._replace(primal=primal, gap=gap, scale=scale, **solver.measures())


# Snapshots: the whole state of a run as numbers and arrays, to take it up again, bit for bit. A
# snapshot holds what decides the rest of a run: multipliers, weights, the averages under way, the
# generator's state and the loop's own bookkeeping. What can be computed again without a difference
# (inner products of tokens, say) is left out. Classes list the names of what belongs to it in
# ``saved_numbers`` and ``saved_arrays``; a dot leads into a part.

_PROGRESS = tuple(known.name for known in fields(Progress) if known.name != "history")
#: Metadata that JSON can hold, and named arrays.
Snapshot = tuple[dict[str, Any], dict[str, Array]]


def _take(solver: Any, progress: Progress, callbacks: Sequence[Any]) -> Snapshot:
    """A snapshot of the solver, the loop and the callbacks that have a state; arrays are shared."""
    rows = np.array(progress.history, dtype=np.float64)
    arrays: dict[str, Array] = {
        "solver.numbers": _numbers(solver, solver.saved_numbers),
        "solver.stages": np.array(solver.stages, dtype=np.float64),
        "progress.numbers": _numbers(progress, _PROGRESS),
        "progress.history": rows.reshape(-1, len(HistoryRow._fields)),
    }
    for name in solver.saved_arrays:
        value = getattr(solver, name)
        if value is not None:
            arrays[f"solver.{name}"] = value
    for name, value in solver.tables().items():
        arrays[f"planes.{name}"] = value
    states = {}
    for k, callback in enumerate(callbacks):
        if hasattr(callback, "get_state"):
            states[str(k)], own = callback.get_state()
            arrays |= {f"callback{k}.{name}": value for name, value in own.items()}
    return {"generator": solver.rng.bit_generator.state, "callbacks": states}, arrays


def _restore(solver: Any, progress: Progress, callbacks: Sequence[Any], snapshot: Snapshot) -> None:
    """Put the solver, the loop and the callbacks where they were."""
    meta, arrays = snapshot
    try:
        _set_numbers(solver, solver.saved_numbers, arrays["solver.numbers"])
        solver.stages = arrays["solver.stages"].tolist()
        if not all(stage > 0.0 for stage in solver.stages):
            raise KeyError("stages above 0")
        _set_numbers(progress, _PROGRESS, arrays["progress.numbers"])
        progress.history = read_history(arrays["progress.history"])
        for name in solver.saved_arrays:
            _set_array(solver, name, arrays.get(f"solver.{name}"))
        solver.set_tables({n[7:]: v for n, v in arrays.items() if n.startswith("planes.")})
        solver.rng.bit_generator.state = meta["generator"]
    except (KeyError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"the checkpoint lacks a part of the state ({error}).") from None
    for k, state in meta["callbacks"].items():
        if not 0 <= int(k) < len(callbacks) or not hasattr(callbacks[int(k)], "set_state"):
            raise ValueError("it is of a fit with other callbacks.")
        start = f"callback{k}."
        own = {n[len(start) :]: value for n, value in arrays.items() if n.startswith(start)}
        callbacks[int(k)].set_state(state, own)


def identity(compiled: Compiled, *parts: Array) -> str:
    """A hash of the problem and of whatever else must be the same for a run to go on."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in _fields_of(compiled.problem):
        if name != "token_gram" and isinstance(value, (np.ndarray, int, float)):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).data)
    for part in (compiled.lengths, *parts):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _fields_of(problem: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a problem, those of tuples inside it included."""
    if hasattr(problem, "_fields"):
        for name, value in zip(problem._fields, problem, strict=True):
            yield name, value
            yield from _fields_of(value)


def _numbers(owner: Any, names: tuple[str, ...]) -> Array:
    return np.array([reduce(getattr, n.split("."), owner) for n in names], dtype=np.float64)


def _set_numbers(owner: Any, names: tuple[str, ...], values: Array) -> None:
    if len(values) != len(names):
        raise KeyError("numbers")
    for name, value in zip(names, values.tolist(), strict=True):
        *path, last = name.split(".")
        part = reduce(getattr, path, owner)
        setattr(part, last, type(getattr(part, last))(value))


def _set_array(solver: Any, name: str, value: Array | None) -> None:
    current = getattr(solver, name)
    if value is None:
        if current is not None:
            raise KeyError(name)
        return
    if current is None:
        current = np.empty_like(solver.w)
        setattr(solver, name, current)
    if value.shape != current.shape or value.dtype != current.dtype:
        raise KeyError(f"{name} of shape {current.shape}")
    current[...] = value


def _is_checkpoint(callback: Any) -> bool:
    return hasattr(callback, "begin")


def _reason(solver: CertifiedSolver, limits: Limits, progress: Progress) -> str:
    """Why to stop after this pass, if no callback says otherwise."""
    if progress.relative_gap <= limits.tol:
        return "converged"
    if progress.passes >= limits.max_iter:
        return f"max_iter={limits.max_iter}"
    if limits.max_time is not None and working_time() - limits.started >= limits.max_time:
        return f"max_time={limits.max_time:g} seconds"
    if _only_integrality(solver, progress.gap, progress.integrality_gap, limits.tol):
        return ONLY_INTEGRALITY
    # Bounds may be looser where the dual is now than at the weights of the least primal. By the
    # third pass both the average and the last iterate have been certified.
    least, last = 0.1 * limits.tol * progress.best_dual, progress.history[-3:]
    if progress.integrality_gap >= 0.0 and all(row.estimate <= least for row in last):
        return NOTHING_FOUND
    return solver.finished() or ""


def _only_integrality(solver: CertifiedSolver, gap: float, integrality: float, tol: float) -> bool:
    """Whether a gap would be within ``tol`` but for the bounds of decoding.

    These become tighter on the way: where they alone might come within it, hardly anything else
    may be left.
    """
    scale = solver.positive_part(solver.best()[1])
    enough = tol if relative(integrality, scale) > 2.0 * tol else 0.1 * tol
    return integrality > 0.0 and relative(gap - integrality, scale) <= enough


def warn_unfinished(name: str, passes: int, reason: str, rest: str) -> None:
    """Say that a run stopped short of its tolerance; ``rest`` says how far, and the remedy."""
    after = f"after {count_of(passes, 'pass', 'passes')} ({reason})"
    at = f"at {reason}" if reason.startswith("max_iter") else after  # which says the passes
    warn(f"{name} stopped {at} and {rest}.", ConvergenceWarning)
