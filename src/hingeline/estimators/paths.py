"""Fits of ``slack="nu"``, the choice of ν and C on held-out examples, and whole paths of them."""

import copy
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from hingeline._checks import Array, as_floats, draw_seed, positive, require, warn
from hingeline._jit import working_time
from hingeline.core.blocks import WorkingSet
from hingeline.core.formulations import make_formulation
from hingeline.core.primitives import Compiled, Workers
from hingeline.core.results import DualMemory, Result, Rows, align, relative
from hingeline.core.solver import LEAST_MARGIN
from hingeline.estimators.base import BaseSSVM, positive_part
from hingeline.solvers.nu import TIE, Margins, best_multiple

Values = Sequence[float] | None

FIFTH = 5  # One example in so many is held out by ``nu="auto"`` and ``C="auto"``.
TRIAL_TOL = {"C": 0.05, "nu": 0.01}  # Fits on the way need not be better than this.
MOST_HALVINGS = 7  # ``nu="auto"`` goes down to ν_max over two to this power.
NEAR = 0.1  # It takes no two values that differ by less than this share.
N_POINTS = 10  # Points of a path where none are named.
MOST_STEPS = 5  # ``C="auto"`` goes so many half decades up or down.
ERRORS = 1.5  # A gain counts above so many standard errors.
LEAST_PASSES = 3
HAIR = 1e-9  # Of the largest weight: a margin that makes ties, of weights that are zero, errors.


@dataclass
class Path:
    """Fitted models along ν or C, from the most regularised to the least.

    Attributes
    ----------
    parameter : {"nu", "C"}
    values : ndarray; values of the parameter
    models : list of estimators; fitted; they predict, but hold no multipliers to continue from
    relative_gaps : ndarray; certified
    margin_error_risks, support_vector_risks : ndarray
        Mean loss of the most violated outputs over margin errors, and over these and the examples
        on the margin; for a path of C, at the margin 1. The equivalent ν lies between them.
    seconds : ndarray; the time of each fit
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

    def __repr__(self) -> str:
        names = "relative_gaps", "margin_error_risks", "support_vector_risks", "seconds"
        rows = zip(self.values, *(getattr(self, name) for name in names), strict=True)
        return align([[self.parameter, *names], *([f"{v:.4g}" for v in row] for row in rows)])


def nu_path(estimator: BaseSSVM, X: Any, y: Any, nus: Values = None, **fit_params: Any) -> Path:
    """Fit ``slack="nu"`` for many ν, from large to small, each from the solution before.

    Parameters
    ----------
    estimator : MulticlassSSVM, ChainSSVM or SSVM
        Its parameters are used, except ``slack``, ``nu`` and C; it is not changed.
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
    if values is None:
        # Only the data know the largest ν: pose the problem at a loose tolerance first.
        model.set_params(slack="max", nu=None, tol=1.0).fit(X, y, **fit_params)
        compiled, weights = model._posed
        with compiled.workers(1) as workers:
            highest = Margins.of(compiled, weights, workers).highest()
        values = highest * np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05])
        model.set_params(slack="nu", tol=estimator.tol)
        model._dual = None  # its C is anything but near
    return _walk(model, "nu", values, partial(model.fit, X, y, **fit_params))


def C_path(estimator: BaseSSVM, X: Any, y: Any, Cs: Values = None, **fit_params: Any) -> Path:
    """Fit for many C, from small to large, each from the solution before.

    Risks are ``nan`` except for ``slack="max"`` with margin rescaling and finite C.

    Parameters
    ----------
    estimator : MulticlassSSVM, ChainSSVM or SSVM
        Its parameters are used, except C (and ``slack="nu"``, which becomes ``"max"``); it is not
        changed.
    X, y : as for its ``fit``
    Cs : sequence of float, optional
        Default: ten values from a hundredth to a hundred times the estimator's default C, or
        0.1 if that is ``"scale"``.
    **fit_params : passed to ``fit``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from hingeline import C_path, MulticlassSSVM
    >>> path = C_path(MulticlassSSVM(random_state=0), *load_iris(return_X_y=True), Cs=[0.01, 0.1])
    >>> [model.C for model in path.models]
    [0.01, 0.1]
    >>> bool((path.relative_gaps <= 0.01).all())
    True
    """
    model = _start(estimator, nu=None)
    middle = model.C if isinstance(model.C, float) else 0.1
    values = _check_values("Cs", np.geomspace(1e-2, 1e2, N_POINTS) * middle if Cs is None else Cs)
    return _walk(model, "C", values, partial(model.fit, X, y, **fit_params))


def solve_nu(estimator: Any, compiled: Compiled, weights: Array, start: Any) -> tuple[Result, Any]:
    """Choose ν if that is asked for, solve, and store ρ, risks and counts."""
    with compiled.workers(estimator.n_jobs) as workers:
        nu = estimator.nu
        if isinstance(nu, str):
            nu, start, estimator.nu_path_ = choose_nu(estimator, compiled, weights, workers)
        nu = float(nu)
        margins = Margins.of(compiled, weights, workers, nu)
        highest = margins.highest()
        check_admissible(nu, highest)
        result, dual, solver = estimator._solve_with(compiled, weights, start, nu=nu)
        if result.converged and solver._best_rho <= 0.0:
            least = min(solver.least_hinge, highest)
            what = f"nu={nu:g} is not above its least value for these data, which is at most"
            what += f" {least:.6g} (the smallest mean hinge found), or leaves a margin below"
            why = f"{LEAST_MARGIN:g} of the data's radius, so that rho and all weights are 0"
            how = f"choose a larger nu, up to {highest:.6g}, or scale the features"
            how = how if nu < highest else "add features, or use slack='sum'"
            warn(f"{what} {why} and nothing is learnt: {how}.")
        _store(estimator, result, solver._best_rho, margins, float(weights.sum()))
    return result, dual


def check_admissible(nu: float, highest: float) -> None:
    """Refuse ν above its largest value."""
    require(highest > 0.0, "slack='nu' needs outputs with a loss, but every loss is 0.")
    what = f"nu={nu:g} is above {highest:.6g}, the mean of the largest losses, so that there is no"
    require(nu <= highest * (1.0 + 1e-12), f"{what} best margin: choose 0 < nu <= {highest:.6g}.")


def _store(estimator: Any, result: Result, rho: float, margins: Margins, total: float) -> None:
    """Put ρ where it is best for the weights, and count who lies where."""
    active = margins.shares > 0.0
    if rho <= 0.0:  # the weights are 0, and all outputs are tied
        errors, within, rho = np.zeros_like(active), active, 0.0
        risks, C = (0.0, margins.highest()), float("inf")
    else:
        low, high, _ = margins.bracket(result.weights, rho)
        best = max(low, high, key=lambda look: look.lead)
        primal, factor = best_multiple(best.lead, float(result.weights @ result.weights))
        if primal < result.primal:
            rho = factor * best.rho
            result.weights, result.primal = factor * result.weights, primal
            scale = primal + margins.nu * rho
            if not np.isnan(result.gap):
                result.gap = max(primal - result.dual, 0.0)
                result.relative_gap = relative(result.gap, scale)
            last = result.history[-1]
            result.history[-1] = last._replace(primal=primal, gap=result.gap, scale=scale)
        errors, within = low.hinges > 0.0, high.hinges > 0.0
        risks, C = (low.risk, high.risk), 1.0 / (total * rho)
    estimator.nu_, estimator.rho_, estimator.C_ = margins.nu, rho, C
    estimator.margin_error_risk_, estimator.support_vector_risk_ = risks
    estimator.n_margin_errors_ = int(np.count_nonzero(errors))
    estimator.n_on_margin_ = int(np.count_nonzero(within & ~errors))
    estimator.n_beyond_margin_ = int(np.count_nonzero(active & ~within & ~errors))


class HeldOut:
    """Fits without a fifth of the examples, which they are judged by."""

    def __init__(
        self, name: str, estimator: Any, compiled: Compiled, weights: Array, workers: Workers
    ) -> None:
        active = np.flatnonzero(weights > 0.0)
        what = f"{name}='auto' needs {2 * FIFTH} examples (of weight above 0), and there are only"
        require(len(active) >= 2 * FIFTH, f"{what} {len(active)}: give {name} as a number.")
        seed = draw_seed(estimator.random_state)
        self.held = np.zeros(len(weights), dtype=bool)
        self.held[np.random.default_rng(seed).permutation(active)[: len(active) // FIFTH]] = True
        self.rest = np.where(self.held, 0.0, weights)
        self.share = weights * self.held / weights[self.held].sum()
        self.judge = Margins(compiled, self.share, workers, 1.0)
        self.model, self.compiled = copy.copy(estimator), compiled
        tol = max(float(estimator.tol), TRIAL_TOL[name])
        quiet = estimator.verbose and 0  # one line that is written over tells of trials, too
        self.model.set_params(callbacks=None, verbose=quiet, tol=tol)

    def solve(self, start: Any, *C: float, **options: Any) -> Any:
        """A fit of the rest: result, multipliers and solver."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the trial says how far it came
            found = self.model._solve_with(self.compiled, self.rest, start, *C, **options)
        if found[0].stop_reason == "interrupted":  # which is meant for the whole search
            raise KeyboardInterrupt
        return found

    def follow(self, C: float, dual: DualMemory, step: float) -> tuple[float, DualMemory]:
        """The last step down at which multipliers are within bounds, where they are as good."""
        masses = dual.multipliers
        if isinstance(masses, WorkingSet):
            owners = np.repeat(np.arange(len(self.rest)), masses.capacity)
            sums = np.bincount(owners, masses.alpha, len(self.rest))
        elif isinstance(masses, np.ndarray) and masses.ndim == 2:
            sums = masses.sum(axis=1)  # more than enough where each has a bound of its own
        else:
            return C, dual
        model, least = self.model, float(sums.max()) / float(self.rest[self.rest > 0.0].min())
        if model.slack != "max" or not 0.0 < least < C * step:
            return C, dual
        while C * step >= least:
            C *= step
        return C, replace(dual, form=make_formulation(C, model.slack, model.rescale, self.rest))


class Trials(Rows):
    """Values that ``"auto"`` tried, as a list that shows itself as a table."""

    _form = "{:.4g}"


class NuTrial(NamedTuple):
    """A value that ``nu="auto"`` tried: a fit without the held-out examples, judged on them."""

    nu: float
    rho: float
    C: float
    relative_gap: float
    held_out_loss: float  # mean loss of the predictions
    held_out_risk: float  # of support vectors: mean loss of the most violated outputs at ρ


def choose_nu(
    estimator: Any, compiled: Compiled, weights: Array, workers: Workers
) -> tuple[float, Any, Trials]:
    """A ν around the smallest risk of support vectors, the multipliers there, and all trials.

    Section 5 of the paper: run several classifiers, take the smallest empirical risk of support
    vectors, and search around it. On the training examples that risk only falls with ν, so it is
    measured on a fifth of the examples, held out. I. Steinwart (*On the optimal parameter choice
    for ν-support vector machines*, 2003), whom the paper follows, searches around twice the lowest
    error rate found; that value is tried too.

    First ν_max/2, ν_max/4, … until the held-out loss rises, and up again by halves of the distance
    from a ν that the data do not allow (ρ = 0); then around the two centres. Every fit starts from
    the multipliers of the nearest ν tried. The ν of the smallest held-out loss is taken, the
    largest where several share it, or the next that all examples together allow.
    """
    search, trials = HeldOut("nu", estimator, compiled, weights, workers), Trials()
    duals: list[Any] = []
    highest = min(Margins.of(compiled, w, workers).highest() for w in (search.rest, weights))
    check_admissible(0.0, highest)

    def fit(nu: float) -> None:
        apart = [abs(np.log(nu / trial.nu)) for trial in trials]
        result, dual, solver = search.solve(duals[int(np.argmin(apart))] if duals else None, nu=nu)
        rho, risks, C = float(solver._best_rho), [highest] * 2, float("inf")
        if rho > 0.0:
            risks = [search.judge.look(result.weights, at).risk for at in (0.0, rho)]
            C = 1.0 / (float(search.rest.sum()) * rho)
        duals.append(dual)
        trials.append(NuTrial(nu, rho, C, float(result.relative_gap), *risks))
        if estimator.verbose:
            told = f"nu={nu:.4g}  C {C:.4g}  gap {100 * result.relative_gap:.2g} %"
            print(f"{told}  held-out loss {risks[0]:.4g}, risk {risks[1]:.4g}", file=sys.stderr)

    low, high, loss = 0.0, highest, math.inf  # too small a ν, the smallest that was not, its loss
    while len(trials) < MOST_HALVINGS and (high == highest or high - low > NEAR * high):
        fit(0.5 * (low + high))
        last, before = trials[-1], loss
        if last.rho > 0.0:
            high, loss = last.nu, last.held_out_loss
        else:
            low = last.nu
        if loss > before:
            break
    centre = min(trial.held_out_risk for trial in trials)
    twice = 2.0 * min(trial.held_out_loss for trial in trials)
    for nu in sorted({centre * 2**0.5, centre, centre * 0.5**0.5, twice}, reverse=True):
        near = min(abs(np.log(max(nu, 1e-300) / trial.nu)) for trial in trials)
        if max(low, 0.5 * high) < nu <= highest and near > NEAR:
            fit(nu)
    losses = [round(trial.held_out_loss / highest, 12) for trial in trials]
    best = min(range(len(losses)), key=lambda k: (losses[k], -trials[k].nu))
    nu, start, search.rest = trials[best].nu, duals[best], weights
    # The least ν of all examples may be higher than that of the rest.
    while any(trial.rho <= 0.0 for trial in trials):
        _, start, solver = search.solve(start, nu=nu)
        if solver._best_rho > 0.0 or nu == highest:
            break
        nu = min((trial.nu for trial in trials if trial.nu > nu), default=highest)
    return nu, start, trials


class CTrial(NamedTuple):
    """A value that ``C="auto"`` tried: a fit without the held-out examples, judged on them."""

    C: float
    relative_gap: float
    held_out_loss: float  # mean loss of the predictions


def choose_C(estimator: Any, compiled: Compiled, weights: Array) -> tuple[float, Any, Trials]:
    """A C of small loss on a fifth of the examples, the multipliers there, and all trials.

    From the default downwards in half decades until two do not lower the loss by more than
    chance may, or one raises it so; where no step down paid, upwards until one does not, or until
    hardly any slack is left to lower. Each fit starts from the best before, and makes at most half
    the passes of the first: a C that takes long has shown by then whether it helps. Values of C at
    which the multipliers of the best are within their bounds, too, have its solution, and are
    passed over; and nothing is tried where so few predictions are wrong that no gain could be told
    from chance.
    """
    middle = estimator._choose_C(compiled.problem, weights)
    trials = Trials()
    with compiled.workers(estimator.n_jobs) as workers:
        search = HeldOut("C", estimator, compiled, weights, workers)
        model, held, share = search.model, search.held, search.share
        n_held = np.count_nonzero(held)

        def fit(C: float, start: Any) -> tuple[float, Any, Array, float]:
            result, dual, _ = search.solve(start, C)
            # Ties, as between weights that are all zero, are errors.
            hair = HAIR * float(np.abs(result.weights).max()) or 1.0
            found = search.judge.look(result.weights, hair)
            trials.append(CTrial(C, float(result.relative_gap), found.risk))
            if len(trials) == 1:
                model.max_iter = min(model.max_iter, max(result.n_iter // 2, LEAST_PASSES))
            if estimator.verbose:
                print(f"C={C:.4g}  held-out loss {found.risk:.4g}", file=sys.stderr)
            half = 0.5 * float(result.weights @ result.weights)
            slack = 1.0 - half / (result.primal or 1.0)  # 0 where there is one label only
            return C, dual, found.losses, slack

        best = fit(middle, None)
        for step, patience in ((10.0**-0.5, 2), (10.0**0.5, 1)):
            C, tries, start, other = best[0], patience, best[1], best
            if step < 1.0:
                C, start = search.follow(C, start, step)
            for _ in range(MOST_STEPS):
                C *= step
                if step > 1.0 and other[3] < TRIAL_TOL["C"]:
                    break
                wrong = np.count_nonzero(share * best[2])
                if wrong <= ERRORS**2 * (1.0 - wrong / n_held):
                    break
                other = fit(C, start)
                gain = share * (best[2] - other[2])
                error = math.sqrt(float(((gain - share * gain.sum())[held] ** 2).sum()))
                tries -= int(gain.any())  # the same predictions say nothing
                if gain.sum() > ERRORS * error:
                    best, tries, start = other, patience, other[1]
                if tries == 0 or gain.sum() < -ERRORS * error:
                    break
            if best[0] < middle:
                break
    return best[0], best[1], trials


def _check_values(name: str, values: Any) -> Array:
    """Positive numbers, sorted."""
    numbers = as_floats(values, f"{name} must be numbers, got {values!r:.60}.")
    fine = numbers.ndim == 1 and len(numbers)
    require(fine, f"{name} must be a sequence of numbers, got {values!r:.60}.")
    for value in numbers.tolist():
        positive(name, value)
    return np.unique(numbers)


def _start(estimator: BaseSSVM, **params: Any) -> Any:
    """A copy to walk the path with."""
    what = f"a path needs one of Hingeline's estimators, got {type(estimator).__name__}"
    fine = isinstance(estimator, BaseSSVM)
    require(fine, f"{what}: for a pipeline, transform X first.", TypeError)
    params.setdefault("slack", "max" if estimator.slack == "nu" else estimator.slack)
    model = clone(estimator).set_params(warm_start=True, C=type(estimator).C, **params)
    model.check_parameters()
    return model


def _walk(model: Any, parameter: str, values: Array, fit: Callable[[], Any]) -> Path:
    """Fit the first point, and solve the others on the problem that was posed."""
    points = []
    for value in values.tolist():
        began = working_time()
        model.set_params(**{parameter: value})
        if not hasattr(model, "_posed"):
            fit()
        else:
            result, model._dual = model._solve(*model._posed, model._dual)
            model._store(result)
        seconds = working_time() - began
        kept = copy.copy(model).set_params(warm_start=False)  # without data and multipliers
        kept.weights_ = model.weights_.copy()
        gap = relative(model.duality_gap_, positive_part(model))
        points.append((value, kept, gap, *_risks(model), seconds))
        if model.stop_reason_ == "interrupted" or getattr(model, "rho_", 1.0) == 0.0:
            break
    found, models, *columns = zip(*points, strict=True)
    return Path(parameter, np.array(found), list(models), *map(np.array, columns))


def _risks(model: Any) -> tuple[float, float]:
    """Risks of ν; for C at the margin 1, outputs within ``TIE`` of it tied."""
    if model.slack == "nu":
        return model.margin_error_risk_, model.support_vector_risk_
    if (model.slack, model.rescale) != ("max", "margin") or not np.isfinite(model.C):
        return float("nan"), float("nan")
    compiled, weights = model._posed
    with compiled.workers(model.n_jobs) as workers:
        margins = Margins.of(compiled, weights, workers)
        low, high = (margins.look(model.weights_, 1.0 + side * TIE / 2) for side in (-1, 1))
    return low.risk, high.risk
