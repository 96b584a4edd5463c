"""Fits of ``slack="nu"``: the admissible interval, what is stored beside the weights, and "auto"."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hingeline.formulations import make_formulation
from hingeline.solvers.history import Result, relative
from hingeline.solvers.margins import Look, Margins, scaled
from hingeline.solvers.nu import TOO_LOW
from hingeline.solvers.parallel import Workers, effective_n_jobs
from hingeline.solvers.schedule import outside
from hingeline.structures.base import Compiled

Array = np.ndarray[Any, Any]

#: Attributes that only such a fit leaves.
FITTED = (
    "nu_",
    "rho_",
    "C_",
    "margin_error_risk_",
    "support_vector_risk_",
    "n_margin_errors_",
    "n_on_margin_",
    "n_beyond_margin_",
    "nu_path_",
)


def forget(estimator: Any) -> None:
    """Drop what an earlier fit with ``slack="nu"`` left."""
    for name in FITTED:
        vars(estimator).pop(name, None)


def positive_part(estimator: Any) -> float:
    """The non-negative part of a fitted estimator's primal objective: P, or ``P + νρ``."""
    primal = float(estimator.primal_objective_)
    return primal + getattr(estimator, "nu_", 0.0) * getattr(estimator, "rho_", 0.0)


def solve(
    estimator: Any, compiled: Compiled, weights: Array, start: Any, kind: str
) -> tuple[Result, Any]:
    """Choose ν if that is asked for, solve, and store ρ, risks and counts."""
    n_jobs = effective_n_jobs(estimator.n_jobs) if compiled.threads else 1
    shares = make_formulation(1.0, "nu", "margin", weights).cap
    with Workers(n_jobs, compiled.scratch_size) as workers:
        nu = float(estimator.nu)
        margins = Margins(compiled, shares, workers, nu)
        highest = margins.highest()
        check_admissible(nu, highest)
        result, dual, solver = estimator._solve_with(compiled, weights, start, kind, nu=nu)
        if result.stop_reason == TOO_LOW:
            warn_too_low(nu, solver.least_hinge, highest)
        store(estimator, result, solver._best_rho, margins, float(weights.sum()))
    return result, dual


def check_admissible(nu: float, highest: float) -> None:
    """Refuse ν above its largest value."""
    if highest <= 0.0:
        raise ValueError("slack='nu' needs outputs with a loss, but every loss is 0.")
    if nu > highest * (1.0 + 1e-12):
        raise ValueError(
            f"nu={nu:g} is above {highest:.6g}, the mean of the largest losses, so that no margin "
            f"is the best: choose 0 < nu <= {highest:.6g}."
        )


def warn_too_low(nu: float, bound: float, highest: float) -> None:
    """Say that ν admits no margin, and which values do."""
    warnings.warn(
        f"nu={nu:g} is not above its least value for these data, which is at most {bound:.6g} (the "
        "smallest mean hinge found), so that rho and all weights are 0 and nothing is learnt: "
        f"choose a larger nu, up to {highest:.6g}.",
        UserWarning,
        stacklevel=outside(),
    )


def store(estimator: Any, result: Result, rho: float, margins: Margins, total: float) -> None:
    """Put ρ where it is best for the weights, and count who lies where."""
    nu = margins.nu
    estimator.nu_ = nu
    if rho <= 0.0:
        _store_nothing(estimator, margins)
        return
    low, high, _ = margins.bracket(result.weights, rho)
    square = float(result.weights @ result.weights)
    rho = _improve(result, rho, low, high, square, nu)
    estimator.rho_ = rho
    estimator.C_ = 1.0 / (total * rho)
    active = margins.shares > 0.0
    errors = low.hinges > 0.0
    within = high.hinges > 0.0
    estimator.margin_error_risk_ = low.risk
    estimator.support_vector_risk_ = high.risk
    estimator.n_margin_errors_ = int(np.count_nonzero(errors))
    estimator.n_on_margin_ = int(np.count_nonzero(within & ~errors))
    estimator.n_beyond_margin_ = int(np.count_nonzero(active & ~within & ~errors))


def _improve(
    result: Result, rho: float, low: Look, high: Look, square: float, nu: float
) -> float:
    """Move result and ρ to the better of two looks, if that is better than where they are."""
    best = max(low, high, key=lambda look: look.lead)
    primal, factor = scaled(best.lead, square)
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


def _store_nothing(estimator: Any, margins: Margins) -> None:
    """ρ = 0: the weights are 0, and all outputs are tied."""
    estimator.rho_ = 0.0
    estimator.C_ = float("inf")
    estimator.margin_error_risk_ = 0.0
    estimator.support_vector_risk_ = margins.highest()
    estimator.n_margin_errors_ = 0
    estimator.n_on_margin_ = int(np.count_nonzero(margins.shares > 0.0))
    estimator.n_beyond_margin_ = 0
