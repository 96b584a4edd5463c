"""Distributions over the labels of unlabelled sequences, and weights for given distributions.

With weights w, temperature T and penalties g on expectations (:mod:`.relaxation`) the distribution
a over labellings of the unlabelled sequences minimises::

    Σ_j E_a[cost − w·f(x_j, y)] + Σ_c g_c(E_a[φ_c]) − T·H(a)

Its dual has one multiplier between 0 and a cap for each bound, the distribution is the log-linear
``a(y) ∝ exp((w·f − cost − Σ_c λ_c·φ_c(y))/T)``, and the gradient of the dual is the expected
violation: forward and backward passes, and L-BFGS with bounds on λ. At T = 1 this is the
projection of the model's posterior of Ganchev et al. (2010): up to a constant, the divergence
``KL(a ‖ p_w)`` plus penalties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize

from hingeline.semisupervised.relaxation import Relaxation
from hingeline.solvers.history import Result
from hingeline.solvers.log_linear import ChainExpectations, minimise_log_loss, observed_features
from hingeline.solvers.parallel import Workers
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]


@dataclass
class SoftLabels:
    """A distribution over the labellings of the unlabelled sequences.

    Attributes
    ----------
    weights, unary, enter : ndarray
        Its scores, the temperature included, as :class:`ChainExpectations` takes them.
    multipliers : ndarray
    value : float
        The dual objective, a bound from below on what is minimised.
    nodes : ndarray of shape (tokens, stride)
        Probabilities of labels.
    penalty : float
        Expected costs and penalties.
    """

    weights: Array
    unary: Array
    enter: Array
    multipliers: Array
    value: float
    nodes: Array
    penalty: float


def project(
    expectations: ChainExpectations,
    relaxation: Relaxation,
    w: Array,
    temperature: float = 1.0,
    *,
    start: Array | None = None,
    max_passes: int = 60,
    tol: float = 1e-3,
) -> SoftLabels:
    """The distribution of smallest cost, penalty and negative entropy for weights w.

    Parameters
    ----------
    expectations : ChainExpectations
        Of the unlabelled sequences.
    relaxation : Relaxation
    w : (n_weights,)
    temperature : float
    start : (relaxation.n,), optional
        Multipliers to begin with.
    max_passes : int
        Forward-backward passes, about.
    tol : float
        Largest violation of the optimality conditions of a multiplier.
    """
    problem = expectations.problem
    T = float(temperature)
    scaled = w / T
    d, m, stride = problem.n_features, problem.n_labels, problem.stride
    scaled.reshape(-1, stride)[d : d + m, :] -= relaxation.pair / T
    scaled.reshape(-1, stride)[:, m:] = 0.0
    first = problem.offsets[:-1]

    def scores(multipliers: Array) -> tuple[Array, Array]:
        unary, start_cost = relaxation.prices(multipliers)
        unary[first] += start_cost[first]  # a first label always starts a segment
        return unary / -T, start_cost / -T

    def dual(multipliers: Array) -> tuple[float, Array]:
        """Negated, so that it is to be minimised."""
        unary, enter = scores(multipliers)
        log_z, nodes, stays = expectations.marginals(scaled, unary, enter)
        expected = relaxation.expected(nodes, nodes - stays)
        value, slope = relaxation.conjugate(multipliers)
        return value + T * float(log_z.sum()), slope - expected

    multipliers = np.zeros(relaxation.n) if start is None else np.array(start)
    if relaxation.n:
        found = minimize(
            dual,
            multipliers,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(0.0, relaxation.cap),
            options={"maxfun": max_passes, "maxiter": max_passes, "gtol": tol, "ftol": 1e-12},
        )
        multipliers = found.x
    unary, enter = scores(multipliers)
    log_z, nodes, stays = expectations.marginals(scaled, unary, enter)
    starts = nodes - stays
    costs = relaxation.prices(np.zeros(relaxation.n))
    linear = float((nodes * costs.unary).sum() + (starts * costs.start).sum())
    linear += _pair_cost(expectations, scaled, unary, enter, relaxation)
    return SoftLabels(
        weights=scaled,
        unary=unary,
        enter=enter,
        multipliers=multipliers,
        value=-(relaxation.conjugate(multipliers)[0] + T * float(log_z.sum())),
        nodes=nodes,
        penalty=linear + relaxation.penalty(relaxation.expected(nodes, starts)),
    )


def _pair_cost(
    expectations: ChainExpectations, w: Array, unary: Array, enter: Array, relaxation: Relaxation
) -> float:
    """Expected cost of pairs of neighbours, mostly without having to ask."""
    if not relaxation.pair.any():
        return 0.0
    problem = expectations.problem
    expected = expectations.features(w, np.ones(expectations.n), unary, enter)[1]
    rows = expected.reshape(-1, problem.stride)
    moved = rows[problem.n_features : problem.n_features + problem.n_labels]
    return float((moved * relaxation.pair).sum())


class SoftTask:
    """Labelled and unlabelled sequences of a log-linear chain: both halves of an alternation.

    Minimises in turn, over w and a,
    ``½‖w‖² + Σ_i c_i·(log Z_i − w·f(x_i, y_i)) + c_u (Σ_j E_a[log Z_j − w·f(x_j, y)] + …)``,
    with costs, penalties and ``−T·H(a)`` for the dots.

    Parameters
    ----------
    labelled, unlabelled : ChainProblem
        The same features and labels.
    weights : (labelled sequences,)
        The c_i.
    unlabelled_weight : float
        c_u.
    relaxation : Relaxation
    workers : Workers
    tol : float
        Certified relative gap of the convex problems in w.
    max_iter : int
        Passes over the data in one of these, at most.
    max_passes : int
        Passes over the unlabelled sequences in one projection, about.
    """

    def __init__(
        self,
        labelled: ChainProblem,
        unlabelled: ChainProblem,
        weights: Array,
        unlabelled_weight: float,
        relaxation: Relaxation,
        workers: Workers,
        *,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_passes: int = 60,
    ) -> None:
        self.labelled = ChainExpectations(labelled, workers)
        self.unlabelled = ChainExpectations(unlabelled, workers)
        self.weights, self.c_u = weights, unlabelled_weight
        self.relaxation = relaxation
        self.tol, self.max_iter, self.max_passes = tol, max_iter, max_passes
        self.observed = observed_features(labelled, weights)
        self._both = _Both(self.labelled, self.unlabelled)

    def supervised(self) -> Result:
        """The weights of the labelled sequences alone."""
        return minimise_log_loss(
            self.labelled, self.weights, self.observed, tol=self.tol, max_iter=self.max_iter
        )

    def label(self, w: Array, temperature: float, before: SoftLabels | None) -> SoftLabels:
        """Distributions for weights."""
        return project(
            self.unlabelled,
            self.relaxation,
            w,
            temperature,
            start=None if before is None else before.multipliers,
            max_passes=self.max_passes,
        )

    def learn(self, soft: SoftLabels, before: Array) -> Result:
        """Weights for distributions."""
        ones = np.full(self.unlabelled.n, self.c_u)
        expected = self.unlabelled.features(soft.weights, ones, soft.unary, soft.enter)[1]
        both: Any = self._both
        return minimise_log_loss(
            both,
            np.concatenate([self.weights, ones]),
            self.observed + expected,
            start=before,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def objective(self, w: Array, soft: SoftLabels) -> float:
        """What is minimised, for weights and the distributions that belong to them.

        The dual value stands for that of the distributions: it is below by their gap.
        """
        log_z = self.labelled.features(w, self.weights)[0]
        fit = float(self.weights @ log_z) - float(w @ self.observed)
        free = self.unlabelled.marginals(w)[0]
        return 0.5 * float(w @ w) + fit + self.c_u * (float(free.sum()) + soft.value)

    def best_labels(self, soft: SoftLabels) -> Array:
        """The most probable label of every unlabelled token."""
        return soft.nodes[:, : self.unlabelled.problem.n_labels].argmax(axis=1).astype(np.int32)


class _Both:
    """The expectations of two sets of sequences as one."""

    def __init__(self, first: ChainExpectations, second: ChainExpectations) -> None:
        self.first, self.second = first, second
        self.n = first.n + second.n
        self.n_weights = first.n_weights

    def features(self, w: Array, weights: Array) -> tuple[Array, Array]:
        """As :meth:`ChainExpectations.features`."""
        a = self.first.features(w, weights[: self.first.n])
        b = self.second.features(w, weights[self.first.n :])
        return np.concatenate([a[0], b[0]]), a[1] + b[1]
