"""The loop around every solver: passes, certificates, history, and all the ways to stop.

A solver offers passes over the data, a dual value and primal candidates; this module decides when
a candidate is worth a certificate and when to end. A certificate is the true primal over the whole
training set, one decode per example, against the dual of the current multipliers: any primal
point over any feasible dual point bounds the distance to the optimum.

Certificates are scheduled by counted work and by the estimated gap, never by the clock, because
what they decode enters the working set: the same seed must give the same weights on any machine.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hingeline.solvers.history import HistoryRow, PassState, Result, relative

Array = np.ndarray[Any, Any]


class Solver(Protocol):
    """What the loop asks of a solver."""

    exact: bool
    satisfied: bool
    certifies: bool

    @property
    def n_planes(self) -> int:
        """Planes in the working set."""

    @property
    def oracle_calls(self) -> int:
        """Decodes so far."""

    def sweep(self) -> float:
        """One pass over the data; the gap estimated along the way."""

    def dual(self) -> float:
        """Dual objective of the current multipliers."""

    def certify(self) -> float:
        """True primal of the best candidate of this moment; :meth:`best` keeps it if it leads."""

    def candidate(self) -> Array:
        """A copy of the weights :meth:`certify` would try first."""

    def primal_of(self, weights: Array) -> float:
        """True primal of given weights."""

    def best(self) -> tuple[Array, float]:
        """Weights of the least primal certified so far, and that primal."""

    def repair(self) -> None:
        """Make state consistent again after an interruption anywhere."""

    def finished(self) -> str | None:
        """A reason why no further pass can help, if there is one."""


@dataclass
class Limits:
    """When to stop, and whom to tell."""

    tol: float = 1e-2
    max_iter: int = 1000
    max_time: float | None = None
    callbacks: Sequence[Callable[[PassState], Any]] = ()
    report: Callable[[HistoryRow, float], None] | None = None
    name: str = "the solver"
    started: float = field(default_factory=time.perf_counter)


#: Passes between two certificates that the estimate did not call for.
_EVERY = 8
#: Passes after which one is made in any case: the averaged weights find planes worth having.
_EARLY = (2, 4)


def _certificate_due(passes: int, last: int, expected: float, tol: float) -> bool:
    """Whether a certificate may end the run, or has not been made for long.

    ``expected`` is the relative gap to expect: the solver's estimate, which sums each example's
    gap before its visit over the planes it knew, times what the last certificate made of it.
    """
    if passes - last >= _EVERY or passes in _EARLY:
        return True
    # The first pass has almost no planes, so its estimate says nothing.
    return passes > 1 and passes - last >= 2 and expected <= 1.05 * tol


def run(solver: Solver, limits: Limits) -> Result:
    """Pass over the data until the certified relative gap is at most ``limits.tol``."""
    history: list[HistoryRow] = []
    best_dual = -math.inf
    gap = rel = math.nan
    best_primal = math.inf
    share = 0.5  # of the estimate, that the certified gap is likely to be
    passes = last_certificate = 0
    reason = ""
    estimate = math.inf
    chosen: Array | None = None

    def update() -> bool:
        """Take over the solver's best primal; whether it is news."""
        nonlocal gap, rel, best_primal
        primal = solver.best()[1]
        news = primal < best_primal
        best_primal = primal
        if solver.exact:
            gap = primal - best_dual
            rel = relative(gap, primal)
        return news

    try:
        while not reason:
            estimate = solver.sweep()
            passes += 1
            best_dual = max(best_dual, solver.dual())
            fresh = update()
            scale = max(best_dual + share * estimate, 1e-300)
            expected = share * estimate / scale
            if (
                not solver.certifies
                and not rel <= limits.tol
                and _certificate_due(passes, last_certificate, expected, limits.tol)
            ):
                solver.certify()
                last_certificate = passes
                fresh = update() or fresh
                if 0.0 < estimate < math.inf and gap < math.inf:
                    share = min(max(gap / estimate, 0.1), 2.0)
            row = HistoryRow(
                time=time.perf_counter() - limits.started,
                passes=passes,
                oracle_calls=solver.oracle_calls,
                primal=best_primal if fresh else math.nan,
                dual=best_dual,
                gap=gap if fresh else math.nan,
                estimate=estimate,
                planes=solver.n_planes,
            )
            history.append(row)
            if limits.report is not None:
                limits.report(row, rel)
            for callback in limits.callbacks:
                state = PassState(row, rel if fresh else math.nan, solver.candidate)
                if callback(state) is True and state._reason is None:
                    state.stop("a callback returned True")
                if state._reason is not None and not reason:
                    reason = f"callback: {state._reason}"
                    chosen = state._chosen
            if rel <= limits.tol and not reason:
                reason = "converged"
            elif not reason:
                reason = _ceiling(limits, passes, row.time) or solver.finished() or ""
    except KeyboardInterrupt:
        reason = "interrupted"
        if passes == 0:
            raise
        solver.repair()

    if (not rel <= limits.tol and last_certificate < passes) or reason == "interrupted":
        best_dual = max(best_dual, solver.dual())
        solver.certify()
        update()
    weights, primal = solver.best()
    if chosen is not None:
        weights, primal = chosen, solver.primal_of(chosen)
        gap = primal - best_dual if solver.exact else math.nan
        rel = relative(gap, primal)
    converged = bool(rel <= limits.tol) or (solver.satisfied and chosen is None)
    if rel <= limits.tol and reason != "interrupted" and not reason.startswith("callback"):
        reason = "converged"
    history[-1] = history[-1]._replace(primal=primal, dual=best_dual, gap=gap)
    _warn(limits, reason, converged, rel, passes)
    return Result(
        weights=weights,
        primal=primal,
        dual=best_dual,
        gap=max(gap, 0.0) if not math.isnan(gap) else math.nan,
        relative_gap=rel,
        n_iter=passes,
        converged=converged,
        exact=solver.exact,
        stop_reason=reason,
        history=history,
    )


def _ceiling(limits: Limits, passes: int, elapsed: float) -> str:
    if passes >= limits.max_iter:
        return f"max_iter={limits.max_iter} passes"
    if limits.max_time is not None and elapsed >= limits.max_time:
        return f"max_time={limits.max_time:g} seconds"
    return ""


def _outside() -> int:
    """How many frames above :func:`_warn` the user's own code is."""
    frame, level = sys._getframe(1), 1
    package = __name__.split(".")[0] + "."
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame, level = frame.f_back, level + 1
    return level


def _warn(limits: Limits, reason: str, converged: bool, rel: float, passes: int) -> None:
    if converged or reason.startswith("callback"):
        return
    if math.isnan(rel):
        bound = "its oracle is not exact, so no gap can be certified"
    else:
        bound = f"its certified relative gap is {rel:.3g}, above tol={limits.tol:g}"
    remedy = {
        "interrupted": "the best weights so far are kept; fit again with warm_start=True to go on",
    }.get(reason, "raise max_iter or max_time, loosen tol, lower C, or scale the features")
    warnings.warn(
        f"{limits.name} stopped after {passes} passes ({reason}) and {bound}: {remedy}.",
        ConvergenceWarning,
        stacklevel=_outside(),
    )
