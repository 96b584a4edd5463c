"""Whole paths: one problem solved for many values of ν or C, each from the solution before."""

import copy
import math
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from hingeline._checks import Array, positive
from hingeline.core.primitives import Compiled
from hingeline.core.results import relative
from hingeline.estimators.base import BaseSSVM
from hingeline.estimators.nu import hold_out, positive_part
from hingeline.solvers.nu import TIE, Margins

N_POINTS = 10  # Points of a path where none are named.
MOST_STEPS = 5  # ``C="auto"`` goes so many half decades up or down.
ERRORS = 1.5  # A gain counts above so many standard errors.
TRIAL_TOL = 0.05  # Its fits need not be better than this.
LEAST_PASSES = 5


@dataclass
class Path:
    """Fitted models along ν or C, from the most regularised to the least.

    Attributes
    ----------
    parameter : {"nu", "C"}
    values : ndarray; values of the parameter
    models : list of estimators; fitted; they predict, but hold no multipliers to go on from
    relative_gaps : ndarray; certified
    margin_error_risks, support_vector_risks : ndarray
        Mean loss of the most violated outputs over margin errors, and over these and the examples
        on the margin; for a path of C at the margin 1. Between them lies the equivalent ν.
    seconds : ndarray; what each point took
    """

    parameter: str
    values: Any = ()
    models: Any = ()
    relative_gaps: Any = ()
    margin_error_risks: Any = ()
    support_vector_risks: Any = ()
    seconds: Any = ()

    def __len__(self) -> int:
        return len(self.models)


def _make_path(parameter: str, points: list[Any]) -> Path:
    values, models, risks, seconds = zip(*points, strict=True)
    gaps = [relative(model.duality_gap_, positive_part(model)) for model in models]
    low, high = np.array(risks).T
    return Path(
        parameter, np.array(values), list(models), np.array(gaps), low, high, np.array(seconds)
    )


def nu_path(
    estimator: BaseSSVM, X: Any, y: Any, nus: Sequence[float] | None = None, **fit_params: Any
) -> Path:
    """Fit ``slack="nu"`` for many ν, from large to small, each from the solution before.

    Parameters
    ----------
    estimator : MulticlassSSVM, ChainSSVM or SSVM
        Its parameters are used, but for ``slack``, ``nu`` and C; it is not changed.
    X, y : as for its ``fit``
    nus : sequence of float, optional
        Default: 0.9, 0.8, …, 0.1 and 0.05 times the largest admissible ν. The path ends after the
        first ν that is too low for the data (ρ = 0).
    **fit_params : passed to ``fit``, e.g. ``lengths`` or ``sample_weight``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from hingeline import MulticlassSSVM, nu_path
    >>> path = nu_path(MulticlassSSVM(random_state=0), *load_iris(return_X_y=True), nus=[0.5, 0.3])
    >>> path.values.tolist()
    [0.5, 0.3]
    >>> bool((path.margin_error_risks <= path.values).all())
    True
    """
    values = None if nus is None else _check_values("nus", nus)[::-1]
    model = _start(estimator, slack="nu", nu="auto" if values is None else float(values[0]))
    points = []
    if values is None:
        # Only the data know the largest ν: pose the problem at a loose tolerance first.
        model.set_params(slack="max", nu=None, tol=1.0).fit(X, y, **fit_params)
        compiled, weights = model._posed
        with compiled.workers(1) as workers:
            highest = Margins.of(compiled, weights, workers).highest()
        values = highest * np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05])
        model.set_params(slack="nu", tol=estimator.tol)
        model._dual = None  # its C is anything but near
    for nu in values:
        seconds = _fit(model, {"nu": float(nu)}, X, y, fit_params)
        risks = (model.margin_error_risk_, model.support_vector_risk_)
        points.append((float(nu), _snapshot(model), risks, seconds))
        if model.rho_ == 0.0 or model.stop_reason_ == "interrupted":
            break
    return _make_path("nu", points)


def C_path(
    estimator: BaseSSVM, X: Any, y: Any, Cs: Sequence[float] | None = None, **fit_params: Any
) -> Path:
    """Fit for many C, from small to large, each from the solution before.

    Risks are ``nan`` but for ``slack="max"`` with margin rescaling and finite C.

    Parameters
    ----------
    estimator : MulticlassSSVM, ChainSSVM or SSVM
        Its parameters are used, but for C (and ``slack="nu"``, which becomes ``"max"``); it is not
        changed.
    X, y : as for its ``fit``
    Cs : sequence of float, optional
        Default: ten values from a hundredth to a hundred times the estimator's default C, for
        chains 0.1.
    **fit_params : passed to ``fit``
    """
    default = signature(type(estimator)).parameters["C"].default
    middle = default if isinstance(default, float) else 0.1
    values = _check_values("Cs", np.geomspace(1e-2, 1e2, N_POINTS) * middle if Cs is None else Cs)
    slack = "max" if estimator.slack == "nu" else estimator.slack
    model = _start(estimator, slack=slack, nu=None)
    points = []
    for C in values:
        seconds = _fit(model, {"C": float(C)}, X, y, fit_params)
        points.append((float(C), _snapshot(model), _risks(model), seconds))
        if model.stop_reason_ == "interrupted":
            break
    return _make_path("C", points)


class CTrial(NamedTuple):
    """A value that ``C="auto"`` tried: a fit without the held-out examples, judged on them."""

    C: float
    relative_gap: float
    held_out_loss: float  # mean loss of the predictions


def choose_C(estimator: Any, compiled: Compiled, weights: Array) -> tuple[float, Any, list[CTrial]]:
    """A C of small loss on a fifth of the examples, the multipliers there, and all trials.

    From the default downwards in half decades until two do not lower the loss by more than
    chance may; where no step down paid, upwards until one does not, or until hardly any slack is
    left to lower. Each fit starts from the best before, and none makes more passes than the first:
    a larger C takes long, and has shown by then whether it helps.
    """
    model = copy.copy(estimator)
    quiet = estimator.verbose and 0  # one line that is written over tells of trials, too
    model.set_params(callbacks=None, verbose=quiet, tol=max(float(estimator.tol), TRIAL_TOL))
    held = hold_out("C", estimator, weights)
    rest, share = np.where(held, 0.0, weights), weights * held / weights[held].sum()
    middle = estimator._choose_C(compiled.problem, weights)
    trials: list[CTrial] = []
    with compiled.workers(estimator.n_jobs) as workers:
        judge = Margins(compiled, share, workers, 1.0)

        def fit(C: float, start: Any) -> tuple[float, Any, Array, float]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the trial says how far it came
                result, dual, _ = model._solve_with(compiled, rest, start, C)
            found = judge.look(result.weights, 0.0)
            trials.append(CTrial(C, float(result.relative_gap), found.risk))
            if len(trials) == 1:
                model.max_iter = min(model.max_iter, max(result.n_iter, LEAST_PASSES))
            if estimator.verbose:
                print(f"C={C:.4g}  held-out loss {found.risk:.4g}", file=sys.stderr)
            slack = 1.0 - 0.5 * float(result.weights @ result.weights) / result.primal
            return C, dual, found.losses, slack

        best = fit(middle, None)
        for step, patience in ((10.0**-0.5, 2), (10.0**0.5, 1)):
            C, tries, other = best[0], patience, best
            for _ in range(MOST_STEPS):
                C *= step
                if step > 1.0 and other[3] < TRIAL_TOL:
                    break
                other = fit(C, best[1])
                gain = share * (best[2] - other[2])
                error = math.sqrt(float(((gain - share * gain.sum())[held] ** 2).sum()))
                tries -= int(gain.any())  # the same predictions say nothing
                if gain.sum() > ERRORS * error:
                    best, tries = other, patience
                if tries == 0:
                    break
            if best[0] < middle:
                break
    return best[0], best[1], trials


def _check_values(name: str, values: Any) -> Array:
    """Positive numbers, sorted."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers, got {values!r:.60}.") from error
    if numbers.ndim != 1 or len(numbers) == 0:
        raise ValueError(f"{name} must be a sequence of numbers, got {values!r:.60}.")
    for value in numbers.tolist():
        positive(name, value)
    return np.unique(numbers)


def _start(estimator: BaseSSVM, **params: Any) -> Any:
    """A copy to walk the path with."""
    if not isinstance(estimator, BaseSSVM):
        what = f"a path needs one of Hingeline's estimators, got {type(estimator).__name__}"
        raise TypeError(f"{what}: for a pipeline, transform X first.")
    default = signature(type(estimator)).parameters["C"].default
    model = clone(estimator).set_params(warm_start=True, C=default, **params)
    model.check_parameters()
    return model


def _fit(model: Any, params: dict[str, float], X: Any, y: Any, fit_params: dict[str, Any]) -> float:
    """Fit the first point; solve the others on the problem that was posed. Seconds it took."""
    began = time.perf_counter()
    model.set_params(**params)
    if not hasattr(model, "_posed"):
        model.fit(X, y, **fit_params)
    else:
        result, model._dual = model._solve(*model._posed, model._dual)
        model._store(result)
    return time.perf_counter() - began


def _snapshot(model: Any) -> Any:
    """The fitted model as it is, without training data and multipliers."""
    other = copy.copy(model)  # leaves them behind
    other.weights_ = model.weights_.copy()
    return other.set_params(warm_start=False)


def _risks(model: Any) -> tuple[float, float]:
    """Risks at the margin 1, outputs within ``TIE`` of it tied."""
    if (model.slack, model.rescale) != ("max", "margin") or not np.isfinite(model.C):
        return float("nan"), float("nan")
    compiled, weights = model._posed
    with compiled.workers(model.n_jobs) as workers:
        margins = Margins.of(compiled, weights, workers)
        low, high = (margins.look(model.weights_, 1.0 + side * TIE / 2) for side in (-1, 1))
    return low.risk, high.risk
