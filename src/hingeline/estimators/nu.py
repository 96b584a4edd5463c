"""Fits of ``slack="nu"``: the admissible interval, what is stored, and the choice of ν."""

import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from hingeline._checks import Array, warn
from hingeline.core.primitives import Compiled, Workers
from hingeline.core.results import Result, relative
from hingeline.solvers.nu import Look, Margins, best_multiple

FIFTH = 5  # One example in so many is held out by ``nu="auto"`` and ``C="auto"``.
LEAST_TOL = 1e-2  # Fits on the way to ν need not be better than this.
MOST_HALVINGS = 7  # ``nu="auto"`` goes down to ν_max over two to this power.


def positive_part(estimator: Any) -> float:
    """The non-negative part of a fitted estimator's primal objective: P, or ``P + νρ``."""
    primal = float(estimator.primal_objective_)
    return primal + getattr(estimator, "nu_", 0.0) * getattr(estimator, "rho_", 0.0)


def solve(estimator: Any, compiled: Compiled, weights: Array, start: Any) -> tuple[Result, Any]:
    """Choose ν if that is asked for, solve, and store ρ, risks and counts."""
    with compiled.workers(estimator.n_jobs) as workers:
        if isinstance(estimator.nu, str):
            chosen = Choice(estimator, compiled, weights, workers)
            nu, start = chosen.search()
            estimator.nu_path_ = chosen.trials
        else:
            nu = float(estimator.nu)
        margins = Margins.of(compiled, weights, workers, nu)
        highest = margins.highest()
        check_admissible(nu, highest)
        result, dual, solver = estimator._solve_with(compiled, weights, start, nu=nu)
        if result.converged and solver._best_rho <= 0.0:
            least = min(solver.least_hinge, highest)
            warn(
                f"nu={nu:g} is not above its least value for these data, which is at most "
                f"{least:.6g} (the smallest mean hinge found), so that rho and all weights are 0 "
                f"and nothing is learnt: choose a larger nu, up to {highest:.6g}."
            )
        store(estimator, result, solver._best_rho, margins, float(weights.sum()))
    return result, dual


def check_admissible(nu: float, highest: float) -> None:
    """Refuse ν above its largest value."""
    if highest <= 0.0:
        raise ValueError("slack='nu' needs outputs with a loss, but every loss is 0.")
    if nu > highest * (1.0 + 1e-12):
        raise ValueError(
            f"nu={nu:g} is above {highest:.6g}, the mean of the largest losses, so that there "
            f"is no best margin: choose 0 < nu <= {highest:.6g}."
        )


def store(estimator: Any, result: Result, rho: float, margins: Margins, total: float) -> None:
    """Put ρ where it is best for the weights, and count who lies where."""
    active = margins.shares > 0.0
    if rho <= 0.0:  # the weights are 0, and all outputs are tied
        errors, within = np.zeros_like(active), active
        risks, C = (0.0, margins.highest()), float("inf")
        rho = 0.0
    else:
        low, high, _ = margins.bracket(result.weights, rho)
        rho = _improve(result, rho, max(low, high, key=lambda look: look.lead), margins.nu)
        errors, within = low.hinges > 0.0, high.hinges > 0.0
        risks, C = (low.risk, high.risk), 1.0 / (total * rho)
    estimator.nu_, estimator.rho_, estimator.C_ = margins.nu, rho, C
    estimator.margin_error_risk_, estimator.support_vector_risk_ = risks
    estimator.n_margin_errors_ = int(np.count_nonzero(errors))
    estimator.n_on_margin_ = int(np.count_nonzero(within & ~errors))
    estimator.n_beyond_margin_ = int(np.count_nonzero(active & ~within & ~errors))


def _improve(result: Result, rho: float, best: Look, nu: float) -> float:
    """Move result and ρ to a look at its weights, if that is better than where they are."""
    primal, factor = best_multiple(best.lead, float(result.weights @ result.weights))
    if not primal < result.primal:
        return rho
    rho = factor * best.rho
    result.weights = factor * result.weights
    result.primal = primal
    if not np.isnan(result.gap):
        result.gap = max(primal - result.dual, 0.0)
        result.relative_gap = relative(result.gap, primal + nu * rho)
    result.history[-1] = result.history[-1]._replace(
        primal=primal, gap=result.gap, scale=primal + nu * rho
    )
    return rho


class NuTrial(NamedTuple):
    """A value that ``nu="auto"`` tried: a fit without the held-out examples, judged on them."""

    nu: float
    rho: float
    C: float
    relative_gap: float
    held_out_loss: float  # mean loss of the predictions
    held_out_risk: float  # of support vectors: mean loss of the most violated outputs at ρ


def hold_out(name: str, estimator: Any, weights: Array) -> Array:
    """Which examples are held out to judge a parameter, as a mask."""
    active = np.flatnonzero(weights > 0.0)
    if len(active) < 2 * FIFTH:
        what = f"{name}='auto' holds out one example in {FIFTH}, and there are only {len(active)}"
        raise ValueError(f"{what}: give {name} as a number.")
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    held = np.zeros(len(weights), dtype=bool)
    held[np.random.default_rng(seed).permutation(active)[: len(active) // FIFTH]] = True
    return held


class Choice:
    """``nu="auto"``: a search around the smallest risk of support vectors.

    Section 5 of the paper: run several classifiers, take the smallest empirical risk of support
    vectors, and search around it. On the training examples that risk only falls with ν, so it is
    measured on a fifth of the examples, held out. I. Steinwart (*On the optimal parameter choice
    for ν-support vector machines*, 2003), whom the paper follows, searches around twice the lowest
    error rate found; that value is tried too.

    First ν_max/2, ν_max/4, … until the held-out loss rises, then around the two centres. Every fit
    starts from the multipliers of the one before. The ν of the smallest held-out loss is taken,
    the largest where several share it.
    """

    def __init__(
        self, estimator: Any, compiled: Compiled, weights: Array, workers: Workers
    ) -> None:
        quiet = estimator.verbose and 0  # one line that is written over tells of trials, too
        silent = {"callbacks": None, "verbose": quiet, "tol": max(float(estimator.tol), LEAST_TOL)}
        self.estimator = type(estimator)(**{**estimator.get_params(deep=False), **silent})
        self.compiled, self.verbose = compiled, estimator.verbose
        held = hold_out("nu", estimator, weights)
        self.weights, apart = np.where(held, 0.0, weights), np.where(held, weights, 0.0)
        self.held_out = Margins(compiled, apart / apart.sum(), workers, 1.0)
        self.highest = Margins.of(compiled, self.weights, workers).highest()
        check_admissible(0.0, self.highest)
        self.trials: list[NuTrial] = []
        self.duals: list[Any] = []

    def search(self) -> tuple[float, Any]:
        """The ν to take, and the multipliers to start from."""
        for k in range(1, MOST_HALVINGS + 1):
            self._try(self.highest * 0.5**k)
            losses = [trial.held_out_loss for trial in self.trials]
            if len(losses) > 1 and losses[-1] > losses[-2]:
                break
        centre = min(trial.held_out_risk for trial in self.trials)
        twice = 2.0 * min(trial.held_out_loss for trial in self.trials)
        for nu in sorted({centre * 2**0.5, centre, centre * 0.5**0.5, twice}, reverse=True):
            near = min(abs(np.log(max(nu, 1e-300) / trial.nu)) for trial in self.trials)
            if self.trials[-1].nu * 0.5 < nu <= self.highest and near > 0.1:
                self._try(nu)
        best = min(
            range(len(self.trials)),
            key=lambda k: (
                round(self.trials[k].held_out_loss / self.highest, 12),
                -self.trials[k].nu,
            ),
        )
        return self.trials[best].nu, self.duals[best]

    def _try(self, nu: float) -> None:
        """Fit from the nearest ν tried, judge, and say so where that is asked for."""
        start = None
        if self.trials:
            apart = [abs(np.log(nu / trial.nu)) for trial in self.trials]
            start = self.duals[int(np.argmin(apart))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the row says how far it came
            result, dual, solver = self.estimator._solve_with(
                self.compiled, self.weights, start, nu=nu
            )
        rho, risks = float(solver._best_rho), [self.highest] * 2
        C = float("inf")
        if rho > 0.0:
            risks = [self.held_out.look(result.weights, at).risk for at in (0.0, rho)]
            C = 1.0 / (float(self.weights.sum()) * rho)
        self.duals.append(dual)
        self.trials.append(NuTrial(nu, rho, C, float(result.relative_gap), *risks))
        if self.verbose:
            trial = self.trials[-1]
            print(
                f"nu={trial.nu:.4g}  C {trial.C:.4g}  gap {100 * trial.relative_gap:.2g} %"
                f"  held-out loss {trial.held_out_loss:.4g}, risk {trial.held_out_risk:.4g}",
                file=sys.stderr,
            )
