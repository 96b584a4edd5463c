"""Independent truth for the solvers: the full QP over enumerated outputs, by clarabel.

Conventions of DESIGN.md, section 2. A plane of example i is a pair (g, b) with the violation
h = b - w.g; with dF = f(x_i,y_i) - f(x_i,y) and loss l it is

    slack     rescale="margin"   rescale="slack"
    max       (dF, l)            (l dF, l)
    squared   (dF, sqrt l)       (sqrt(l) dF, sqrt l)

    P(w) = 1/2 |w|^2 + C sum_i s_i slack_i,   slack_i = max_y [h]_+  or  1/2 (max_y [h]_+)^2
    D(a) = sum a b - 1/2 |sum a g|^2 [- sum_i (sum_y a)^2 / (2 C s_i) for squared],   a >= 0,
           sum_y a_i <= C s_i for max.
    C=inf: P(w) = 1/2 |w|^2 under h <= 0 for every plane; D without the last term, a >= 0.

An example of sample weight 0 is absent (also at C=inf); its multipliers are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import clarabel  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

# isort: split
from naive import (
    Floats,
    Output,
    chain_joint_feature,
    chain_size,
    enumerate_outputs,
    hamming,
    multiclass_joint_feature,
    random_chains,
    random_multiclass,
)

Slack = Literal["max", "squared"]
Rescale = Literal["margin", "slack"]
Alpha = list[Floats]

__all__ = [
    "EnumeratedProblem",
    "NuSolution",
    "Solution",
    "by_output",
    "dual",
    "dual_weights",
    "nu_primal",
    "nu_shares",
    "planes",
    "primal",
    "random_chains",
    "random_multiclass",
    "relative_gap",
    "slacks",
    "solve",
    "solve_nu",
    "spread_weights",
]

GAP = 1e-9  # relative primal-dual gap that `solve` certifies


@dataclass(frozen=True)
class EnumeratedProblem:
    """Per example: differences dF (m_i, d), losses (m_i,), the outputs y != y_i they belong to."""

    dF: list[Floats]
    losses: list[Floats]
    outputs: list[list[Any]]
    n_features: int  # d, the length of w

    @property
    def n_examples(self) -> int:
        return len(self.dF)

    @classmethod
    def from_callables(
        cls,
        xs: Sequence[Any],
        ys: Sequence[Any],
        outputs: Sequence[Sequence[Any]],
        joint_feature: Callable[[Any, Any], npt.ArrayLike],
        loss: Callable[[Any, Any], float],
        n_features: int | None = None,
    ) -> EnumeratedProblem:
        """``outputs[i]``: all outputs of example i (the true one is skipped); ``loss(true, y)``."""
        dF: list[Floats] = []
        losses: list[Floats] = []
        kept: list[list[Any]] = []
        for x, y_true, candidates in zip(xs, ys, outputs, strict=True):
            others = [y for y in candidates if not np.array_equal(y, y_true)]
            f_true = np.asarray(joint_feature(x, y_true), dtype=np.float64)
            n_features = f_true.size if n_features is None else n_features
            rows = [f_true - np.asarray(joint_feature(x, y), dtype=np.float64) for y in others]
            values = np.array([float(loss(y_true, y)) for y in others])
            if loss(y_true, y_true) != 0 or (values < 0).any():
                raise ValueError("a loss must be zero at the truth and non-negative elsewhere")
            dF.append(np.array(rows).reshape(len(others), n_features))
            losses.append(values)
            kept.append(others)
        if n_features is None:
            raise ValueError("no examples")
        return cls(dF, losses, kept, n_features)

    @classmethod
    def from_multiclass(
        cls,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        n_classes: int,
        cost_matrix: npt.ArrayLike | None = None,
    ) -> EnumeratedProblem:
        """Dense X (n, d), y (n,) in 0..K-1, ``cost_matrix[true, given]`` (zero-one if None)."""
        xs = np.asarray(X, dtype=np.float64)
        ys = [int(label) for label in np.asarray(y)]
        return cls.from_callables(
            list(xs),
            ys,
            [range(n_classes)] * len(ys),
            lambda x, label: multiclass_joint_feature(x, label, n_classes),
            lambda true, label: hamming([true], [label], cost_matrix),
            n_features=xs.shape[1] * n_classes,
        )

    @classmethod
    def from_chains(
        cls,
        X: Sequence[npt.ArrayLike],
        Y: Sequence[npt.ArrayLike],
        n_labels: int,
        boundary: bool = True,
        costs: npt.ArrayLike | None = None,
    ) -> EnumeratedProblem:
        """Dense X[i] (T_i, d), Y[i] (T_i,); ``costs`` as in ``naive.hamming``."""
        xs = [np.asarray(x, dtype=np.float64) for x in X]
        ys: list[Output] = [tuple(int(label) for label in np.asarray(y)) for y in Y]
        return cls.from_callables(
            xs,
            ys,
            [enumerate_outputs(len(y), n_labels) for y in ys],
            lambda x, y: chain_joint_feature(x, y, n_labels, boundary),
            lambda true, y: hamming(true, y, costs),
            n_features=chain_size(xs[0].shape[1], n_labels, boundary),
        )


def by_output(problem: EnumeratedProblem) -> EnumeratedProblem:
    """Every output as an example of its own: under summed errors each has its own slack.

    ``slack="sum"`` on a problem is ``slack="max"`` on this one, with the sample weights of
    ``spread_weights``.
    """
    return EnumeratedProblem(
        [row[None] for dF in problem.dF for row in dF],
        [np.array([loss]) for losses in problem.losses for loss in losses],
        [[y] for outputs in problem.outputs for y in outputs],
        problem.n_features,
    )


def spread_weights(problem: EnumeratedProblem, sample_weight: npt.ArrayLike | None) -> Floats:
    """The sample weight of every output of ``by_output``."""
    s = np.ones(problem.n_examples) if sample_weight is None else np.asarray(sample_weight)
    return np.repeat(s, [len(losses) for losses in problem.losses])


class Solution(NamedTuple):
    """``objective == primal(w)``, certified; ``w == sum alpha g``; alpha as ``problem.dF``."""

    objective: float
    w: Floats
    alpha: Alpha


def planes(
    problem: EnumeratedProblem, slack: Slack = "max", rescale: Rescale = "margin"
) -> list[tuple[Floats, Floats]]:
    """Per example the planes (g (m_i, d), b (m_i,)) of the formulation."""
    if slack not in ("max", "squared") or rescale not in ("margin", "slack"):
        raise ValueError(f"unknown slack={slack!r} or rescale={rescale!r}")
    result = []
    for dF, loss in zip(problem.dF, problem.losses, strict=True):
        b = np.sqrt(loss) if slack == "squared" else loss
        result.append((b[:, None] * dF if rescale == "slack" else dF, b))
    return result


def _bounds(problem: EnumeratedProblem, C: float, sample_weight: npt.ArrayLike | None) -> Floats:
    """C * s_i, with 0 for an absent example even at C=inf."""
    s = np.ones(problem.n_examples)
    if sample_weight is not None:
        s = np.asarray(sample_weight, dtype=np.float64)
    if s.shape != (problem.n_examples,) or (s < 0).any() or not C > 0:
        raise ValueError("need C > 0 and one non-negative sample weight per example")
    return np.array([C * s_i if s_i > 0 else 0.0 for s_i in s])


def slacks(problem: EnumeratedProblem, w: npt.ArrayLike, slack: Slack, rescale: Rescale) -> Floats:
    """max_y [h(y)]_+ of every example (not squared)."""
    w = np.asarray(w, dtype=np.float64)
    return np.array([float((b - g @ w).max(initial=0)) for g, b in planes(problem, slack, rescale)])


def primal(
    problem: EnumeratedProblem,
    w: npt.ArrayLike,
    C: float,
    slack: Slack = "max",
    rescale: Rescale = "margin",
    sample_weight: npt.ArrayLike | None = None,
    tol: float = 1e-9,
) -> float:
    """P(w) by enumeration; at C=inf it is inf where some h exceeds tol * max(1, largest b)."""
    w = np.asarray(w, dtype=np.float64)
    value = 0.5 * float(w @ w)
    upper = _bounds(problem, C, sample_weight)
    violation = slacks(problem, w, slack, rescale)
    if np.isinf(C):
        largest = max([1.0, *(float(b.max(initial=0)) for _, b in planes(problem, slack, rescale))])
        return float("inf") if (violation[upper > 0] > tol * largest).any() else value
    return value + float(upper @ (0.5 * violation**2 if slack == "squared" else violation))


def dual_weights(
    problem: EnumeratedProblem, alpha: Alpha, slack: Slack = "max", rescale: Rescale = "margin"
) -> Floats:
    """w = sum alpha g."""
    w = np.zeros(problem.n_features)
    for (g, _), a in zip(planes(problem, slack, rescale), alpha, strict=True):
        w += a @ g
    return w


def dual(
    problem: EnumeratedProblem,
    alpha: Alpha,
    C: float,
    slack: Slack = "max",
    rescale: Rescale = "margin",
    sample_weight: npt.ArrayLike | None = None,
    tol: float = 1e-9,
) -> float:
    """D(alpha); -inf where alpha is infeasible by more than tol * max(1, its bound)."""
    w = dual_weights(problem, alpha, slack, rescale)
    value = -0.5 * float(w @ w)
    upper = _bounds(problem, C, sample_weight)
    for (_, b), a, u in zip(planes(problem, slack, rescale), alpha, upper, strict=True):
        total = float(a.sum())
        capped = slack == "max" or u == 0
        if (a < -tol).any() or (capped and total > u + tol * max(1.0, u)):
            return -float("inf")
        value += float(a @ b)
        if slack == "squared" and 0 < u < np.inf:
            value -= total**2 / (2 * u)
    return value


def relative_gap(
    problem: EnumeratedProblem,
    alpha: Alpha,
    C: float,
    slack: Slack = "max",
    rescale: Rescale = "margin",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """(P - D) / P at alpha and its own w; 0 where both are 0, inf where either is infeasible."""
    w = dual_weights(problem, alpha, slack, rescale)
    high = primal(problem, w, C, slack, rescale, sample_weight, tol=1e-11)
    low = dual(problem, alpha, C, slack, rescale, sample_weight)
    if not np.isfinite(high - low):
        return float("inf")
    return (high - low) / high if high > 0 else 0.0


def solve(
    problem: EnumeratedProblem,
    C: float,
    slack: Slack = "max",
    rescale: Rescale = "margin",
    sample_weight: npt.ArrayLike | None = None,
) -> Solution:
    """The optimum (P*, w*, alpha*), its relative gap at most ``GAP`` or a RuntimeError.

    Clarabel on the primal QP, then Newton steps on the planes it finds active. ValueError where
    C=inf and no w satisfies every plane. Rounding keeps ``GAP`` within reach up to about
    C |dF|^2 = 1e6.
    """
    upper = _bounds(problem, C, sample_weight)
    rows = planes(problem, slack, rescale)
    present = [i for i in range(problem.n_examples) if upper[i] > 0 and len(rows[i][1])]
    if not any(rows[i][1].any() for i in present):
        return Solution(0.0, np.zeros(problem.n_features), [0.0 * b for _, b in rows])
    G = np.concatenate([rows[i][0] for i in present])
    b = np.concatenate([rows[i][1] for i in present])
    owner = np.concatenate([np.full(len(rows[i][1]), k) for k, i in enumerate(present)])
    if np.isinf(C) and not _separable(G, b):
        raise ValueError("hard margin: the data are not separable")

    def unstack(a: Floats) -> Alpha:
        alpha = [np.zeros(len(b_i)) for _, b_i in rows]
        for k, i in enumerate(present):
            alpha[i] = a[owner == k]
        return alpha

    def gap(a: Floats) -> float:
        return relative_gap(problem, unstack(a), C, slack, rescale, sample_weight)

    qp = _QP(G, b, owner, upper[present], slack)
    best = np.zeros(len(b))
    for regularization, step_fraction in ((1e-12, 0.99), (1e-8, 0.95), (1e-10, 0.9)):
        best = min(best, qp.feasible(_clarabel(qp, regularization, step_fraction)), key=gap)
        for threshold in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9):
            if gap(best) < GAP / 1000:
                break
            best = min(best, qp.feasible(_polish(qp, best, threshold)), key=gap)
        if gap(best) < GAP / 10:
            break
    if gap(best) > GAP:
        raise RuntimeError(f"the reference reached only a relative gap of {gap(best):.1e}")
    alpha = unstack(best)
    w = dual_weights(problem, alpha, slack, rescale)
    return Solution(primal(problem, w, C, slack, rescale, sample_weight), w, alpha)


@dataclass(frozen=True)
class _QP:
    """Stacked planes (G, b), the example each belongs to, and C * s of the examples."""

    G: Floats
    b: Floats
    owner: npt.NDArray[np.intp]
    upper: Floats
    slack: Slack

    @property
    def hard(self) -> bool:
        return bool(np.isinf(self.upper[0]))

    def totals(self, a: Floats) -> Floats:
        return np.bincount(self.owner, a, len(self.upper)).astype(np.float64)

    def feasible(self, a: Floats) -> Floats:
        """Nearest feasible multipliers, roughly; at C=inf scaled until w is feasible."""
        a = np.maximum(a, 0.0)
        if self.hard:
            positive = self.b > 0
            margin = float(np.min((self.G @ (a @ self.G))[positive] / self.b[positive]))
            return a / margin if margin > 0 else a
        if self.slack == "max":
            return a * np.minimum(1.0, self.upper / np.maximum(self.totals(a), 1e-300))[self.owner]
        return a


def _separable(G: Floats, b: Floats) -> bool:
    """Whether some w has G w >= b, b >= 0: the largest t with G w >= t b in a box, by HiGHS."""
    M, d = G.shape
    A = np.column_stack([-G / max(np.abs(G).max(), 1e-300), b / b.max()])
    result = linprog(
        np.r_[np.zeros(d), -1.0], A_ub=A, b_ub=np.zeros(M), bounds=[(-1, 1)] * d + [(0, 1)]
    )
    return bool(result.status == 0 and np.asarray(result.x)[-1] > 1e-6)


def _clarabel(qp: _QP, regularization: float, step_fraction: float) -> Floats:
    """Multipliers of min 1/2|w|^2 + cost(xi) under G w + xi >= b (and xi >= 0 for max).

    For squared the variable is sqrt(C s) xi, so that all curvatures are 1.
    """
    M, d = qp.G.shape
    n = 0 if qp.hard else len(qp.upper)
    unit = np.ones_like(qp.upper) if qp.hard or qp.slack == "max" else 1 / np.sqrt(qp.upper)
    owners = sparse.csc_matrix((unit[qp.owner], (np.arange(M), qp.owner)), (M, len(qp.upper)))
    A = sparse.hstack([sparse.csc_matrix(qp.G), owners[:, :n]])
    curvature, linear = np.ones(d + n), np.zeros(d + n)
    if qp.slack == "max" and n:
        curvature[d:], linear[d:] = 0.0, qp.upper
        A = sparse.vstack([A, sparse.csc_matrix(np.eye(n, d + n, k=d))])
    right = np.r_[qp.b, np.zeros(A.shape[0] - M)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.static_regularization_constant = regularization
    settings.max_step_fraction = step_fraction
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    solver = clarabel.DefaultSolver(
        sparse.diags(curvature, format="csc"),
        linear,
        sparse.csc_matrix(-A),
        -right,
        [clarabel.NonnegativeConeT(A.shape[0])],
        settings,
    )
    return np.asarray(solver.solve().z, dtype=np.float64)[:M]


def _polish(qp: _QP, a: Floats, threshold: float) -> Floats:
    """Solve h = xi on the planes that carry mass, the smallest change of a that does it.

    max: xi_i is free where sum a = C s_i and 0 elsewhere; squared: xi_i = sum a / (C s_i).
    """
    totals = qp.totals(a)
    reference = qp.upper if qp.slack == "max" and not qp.hard else np.full_like(totals, a.max())
    active = np.flatnonzero(a > threshold * reference[qp.owner])
    G, owner = qp.G[active], qp.owner[active]
    gram = G @ G.T
    tight = np.zeros(0, dtype=np.intp)
    if not qp.hard and qp.slack == "squared":
        gram = gram + (owner[:, None] == owner) / qp.upper[owner]
    elif not qp.hard:
        tight = np.flatnonzero(totals > (1 - threshold) * qp.upper)
    member = (owner[:, None] == tight).astype(np.float64)
    system = np.block([[gram, member], [member.T, np.zeros((len(tight), len(tight)))]])
    residual = np.r_[qp.b[active] - gram @ a[active], qp.upper[tight] - member.T @ a[active]]
    step = np.linalg.lstsq(system, residual, rcond=1e-13)[0]
    result = np.zeros_like(a)
    result[active] = a[active] + step[: len(active)]
    return result


# The ν-problem ------------------------------------------------------------------------------------


class NuSolution(NamedTuple):
    """``objective`` of (7), certified to ``NU_GAP``; alpha as ``problem.dF``."""

    objective: float
    w: Floats
    rho: float
    alpha: Alpha


NU_GAP = 1e-9  # of P - D, relative to the largest of P + nu rho and 1e-3


def nu_shares(problem: EnumeratedProblem, sample_weight: npt.ArrayLike | None = None) -> Floats:
    """s / sum s."""
    s = np.ones(problem.n_examples) if sample_weight is None else np.asarray(sample_weight)
    return np.asarray(s / s.sum(), dtype=np.float64)


def nu_primal(
    problem: EnumeratedProblem,
    w: npt.ArrayLike,
    rho: float,
    nu: float,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """(7) by enumeration: 1/2 |w|^2 - nu rho + sum_i s_i max_y [rho l - w.dF]_+."""
    w = np.asarray(w, dtype=np.float64)
    hinges = np.array(
        [
            float((rho * l - g @ w).max(initial=0))
            for g, l in zip(problem.dF, problem.losses, strict=True)
        ]
    )
    return 0.5 * float(w @ w) - nu * rho + float(nu_shares(problem, sample_weight) @ hinges)


def solve_nu(
    problem: EnumeratedProblem, nu: float, sample_weight: npt.ArrayLike | None = None
) -> NuSolution:
    """The optimum of (7) by clarabel, over w, rho and xi; its dual value is that of (12).

    RuntimeError where the two differ by more than ``NU_GAP``.
    """
    shares = nu_shares(problem, sample_weight)
    n, d = problem.n_examples, problem.n_features
    G = np.concatenate(problem.dF)
    b = np.concatenate(problem.losses)
    owner = np.concatenate([np.full(len(losses), i) for i, losses in enumerate(problem.losses)])
    M = len(b)
    slack = sparse.csc_matrix((np.ones(M), (np.arange(M), owner)), (M, n))
    A = sparse.hstack([sparse.csc_matrix(G), sparse.csc_matrix(-b[:, None]), slack])
    A = sparse.vstack([A, sparse.csc_matrix(np.eye(n + 1, d + 1 + n, k=d))])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    found = clarabel.DefaultSolver(
        sparse.diags(np.r_[np.ones(d), np.zeros(1 + n)], format="csc"),
        np.r_[np.zeros(d), -nu, shares],
        sparse.csc_matrix(-A),
        np.zeros(A.shape[0]),
        [clarabel.NonnegativeConeT(A.shape[0])],
        settings,
    ).solve()
    x, z = np.asarray(found.x), np.maximum(np.asarray(found.z)[:M], 0.0)
    w, rho = x[:d], max(float(x[d]), 0.0)
    objective = nu_primal(problem, w, rho, nu, sample_weight)
    # Multipliers within their bounds, and then the value of (12) up to what is missing to nu.
    sums = np.bincount(owner, z, n)
    z = z * np.minimum(1.0, shares / np.maximum(sums, 1e-300))[owner]
    lower = -0.5 * float(np.sum((z @ G) ** 2)) - rho * max(nu - float(z @ b), 0.0)
    if objective - lower > NU_GAP * max(objective + nu * rho, 1e-3):
        raise RuntimeError(f"the reference reached only a gap of {objective - lower:.1e}")
    alpha = [z[owner == i] for i in range(n)]
    return NuSolution(objective, w, rho, alpha)
