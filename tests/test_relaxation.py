"""Constraints on expectations against labellings one by one, and the projection against SciPy."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from hingeline import constraints as cs
from hingeline.baselines import Relaxation, project
from hingeline.constraints.penalties import Penalties
from hingeline.core.primitives import Workers
from hingeline.solvers.crf import ChainExpectations
from hingeline.structures import chain

# isort: split
from naive import enumerate_outputs

WORDS = [["a", "x", ","], ["b", "x", "y", "a"]]
CLASSES = ["P", "Q", "R"]
STRIDE = 4
SOFT = {"weight": 1.5}
DECOMPOSABLE = [
    cs.StartsWith("P", **SOFT),
    cs.Words(["x"], ["Q", "R"], **SOFT),
    cs.ChangeOnlyAt(",", **SOFT),
    cs.Follows("R", after=["Q", "R"], weight=0.5),
]
COUNTED = [
    cs.AtMostOneSegment("P", weight=2.0, penalty="linear"),
    cs.Occurs("Q", at_least=2, at_most=2, weight=0.7),
    cs.NoRepeats(weight=1.0),
]
OF_CORPUS = [
    cs.Share("P", equals=0.3, weight=0.002),
    cs.Share(("Q", "R"), at_most=0.5, weight=3.0, penalty="linear", scale=1.0),
    cs.AverageSegments("R", at_least=1.2, weight=1.0),
    cs.AverageSegments(at_most=1.5, weight=2.0, penalty="linear"),
    cs.ChangeShare(",", equals=0.2, weight=2.0),
]


def relaxed(constraints):
    return Relaxation(Penalties(constraints, WORDS, CLASSES).compiled, STRIDE)


def indicators(labels, offsets):
    """Nodes and starts of a distribution on one labelling."""
    nodes = np.zeros((len(labels), STRIDE))
    nodes[np.arange(len(labels)), labels] = 1.0
    starts = nodes.copy()
    for t in range(1, len(labels)):
        if t not in offsets and labels[t] == labels[t - 1]:
            starts[t] = 0.0
    return nodes, starts


@pytest.mark.parametrize("seed", range(5))
def test_linear_costs_are_the_penalties_of_labellings(seed):
    relaxation = relaxed(DECOMPOSABLE)
    penalties = Penalties(DECOMPOSABLE, WORDS, CLASSES)
    labels = np.random.default_rng(seed).integers(3, size=7).astype(np.int32)
    nodes, starts = indicators(labels, relaxation.offsets)
    prices = relaxation.prices(np.zeros(0))
    pairs = sum(relaxation.pair[labels[t - 1], labels[t]] for t in range(1, 7) if t not in (3,))
    found = (nodes * prices[0]).sum() + (starts * prices[1]).sum() + pairs
    assert relaxation.n == 0
    assert found == pytest.approx(penalties.total(labels))


@pytest.mark.parametrize("seed", range(5))
def test_prices_are_multipliers_times_features(seed):
    relaxation = relaxed(COUNTED + OF_CORPUS)
    rng = np.random.default_rng(seed)
    multipliers = rng.random(relaxation.n)
    nodes, starts = indicators(rng.integers(3, size=7), relaxation.offsets)
    prices = relaxation.prices(multipliers)
    none = relaxation.prices(np.zeros(relaxation.n))
    paid = (nodes * (prices[0] - none[0])).sum()
    paid += (starts * (prices[1] - none[1])).sum()
    assert paid == pytest.approx(multipliers @ relaxation.expected(nodes, starts))


def test_penalty_of_a_labelling_that_is_one_unit_out():
    """One labelling is a distribution, too; up to one unit the surrogates are the penalties."""
    constraints = [
        cs.AtMostOneSegment("P", weight=2.0),
        cs.Share("Q", equals=0.25, weight=1.0),
        cs.AverageSegments(at_most=1.5, weight=2.0),
    ]
    relaxation = relaxed(constraints)
    labels = np.array([0, 1, 0, 1, 1, 2, 2], dtype=np.int32)  # P comes twice in the first
    penalties = Penalties(constraints, WORDS, CLASSES)
    nodes, starts = indicators(labels, relaxation.offsets)
    found = relaxation.penalty(relaxation.expected(nodes, starts))
    assert found == pytest.approx(penalties.total(labels))


def test_what_does_not_decompose_is_named():
    out = relaxed(
        [cs.MinLength("P", length=2), cs.Before("P", "Q"), cs.AtMostOneSegment(("P", "Q"))]
    ).left_out
    assert out == [
        "segments of a group of several labels",
        "minimum lengths",
        "orders of two labels",
    ]


def tiny(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=7)
    problem = chain.make_problem(
        np.arange(8), np.zeros(7, int), values, np.array([0, 3, 7]), np.zeros(7), 1,
        np.zeros((3, 3)), True, 0.0,
    )  # fmt: skip
    w = np.zeros(6 * STRIDE)
    w.reshape(6, STRIDE)[:, :3] = rng.normal(size=(6, 3))
    return problem, w


def score_of(problem, w, i, y):
    rows = w.reshape(-1, STRIDE)
    lo = problem.offsets[i]
    total = sum(problem.values[lo + t] * rows[0, k] for t, k in enumerate(y))
    total += sum(rows[1 + y[t - 1], y[t]] for t in range(1, len(y)))
    return total + rows[4, y[0]] + rows[5, y[-1]]


@pytest.mark.parametrize("constraints", [COUNTED, OF_CORPUS, DECOMPOSABLE + COUNTED + OF_CORPUS])
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_projection_is_that_of_an_independent_solver(constraints, temperature):
    """A cone program over the probabilities of all labellings, with a slack for every bound."""
    problem, w = tiny(0)
    relaxation = relaxed(constraints)
    with Workers(1, 0) as workers:
        found = project(
            ChainExpectations(problem, workers), relaxation, w, temperature,
            max_passes=5000, tol=1e-9,
        )  # fmt: skip
    lists = [[np.array(y) for y in enumerate_outputs(n, 3)] for n in (3, 4)]
    zero = relaxation.prices(np.zeros(relaxation.n))
    costs, features, nodes_of = [], [], []
    for i, outputs in enumerate(lists):
        lo, hi = problem.offsets[i : i + 2]
        for y in outputs:
            nodes, starts = np.zeros((7, STRIDE)), np.zeros((7, STRIDE))
            own = indicators(y, ())
            nodes[lo:hi], starts[lo:hi] = own
            cost = (nodes * zero[0]).sum() + (starts * zero[1]).sum()
            cost += sum(relaxation.pair[y[t - 1], y[t]] for t in range(1, len(y)))
            costs.append(cost - score_of(problem, w, i, y))
            features.append(relaxation.expected(nodes, starts))
            nodes_of.append(nodes)
    costs, features = np.array(costs), np.array(features)
    n, m = len(costs), relaxation.n
    first = len(lists[0])
    squared = np.isfinite(relaxation.curve)
    cap, curve = np.where(squared, 0.0, relaxation.cap), np.where(squared, relaxation.curve, 0.0)

    def value(z):
        q, slack = np.maximum(z[:n], 1e-300), z[n:]
        entropy = temperature * (q @ np.log(q))
        return costs @ q + entropy + cap @ slack + curve @ slack**2

    # Variables: the probabilities q, the slacks, and t ≥ q·log(q): −t, q and 1 are in the cone.
    sums, cone = np.zeros((2, 2 * n + m)), np.zeros((3 * n, 2 * n + m))
    sums[0, :first] = sums[1, first:n] = 1.0
    cone[3 * np.arange(n), n + m + np.arange(n)] = 1.0
    cone[3 * np.arange(n) + 1, np.arange(n)] = -1.0
    below = np.hstack([features.T, -np.eye(m), np.zeros((m, n))])
    positive = np.hstack([np.zeros((m, n)), -np.eye(m), np.zeros((m, n))])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    best = clarabel.DefaultSolver(
        sp.diags(np.concatenate([np.zeros(n), 2.0 * curve, np.zeros(n)]), format="csc"),
        np.concatenate([costs, cap, np.full(n, temperature)]),
        sp.csc_matrix(np.vstack([sums, below, positive, cone])),
        np.concatenate([np.ones(2), relaxation.bound, np.zeros(m), np.tile([0.0, 0.0, 1.0], n)]),
        [
            clarabel.ZeroConeT(2),
            clarabel.NonnegativeConeT(2 * m),
            *[clarabel.ExponentialConeT()] * n,
        ],
        settings,
    ).solve()
    best = np.array(best.x)[: n + m]
    assert found.value == pytest.approx(value(best), abs=2e-5)
    nodes = np.tensordot(best[:n], np.array(nodes_of), axes=1)
    np.testing.assert_allclose(found.nodes, nodes, atol=5e-3)


def test_a_cold_projection_without_constraints_is_the_best_labelling():
    problem, w = tiny(3)
    with Workers(1, 0) as workers:
        found = project(ChainExpectations(problem, workers), relaxed([]), w, 1e-3)
    assert found.multipliers.size == 0
    for i, n in enumerate((3, 4)):
        best = max(enumerate_outputs(n, 3), key=lambda y, i=i: score_of(problem, w, i, y))
        lo, hi = problem.offsets[i : i + 2]
        assert found.nodes[lo:hi, :3].argmax(axis=1).tolist() == list(best)
        assert found.nodes[lo:hi, :3].max(axis=1).min() > 0.99


@pytest.mark.parametrize("constraint", COUNTED + OF_CORPUS, ids=repr)
def test_a_projection_moves_expectations_towards_their_bounds(constraint):
    for seed in range(5):
        problem, w = tiny(seed)
        relaxation = relaxed([constraint])
        with Workers(1, 0) as workers:
            expectations = ChainExpectations(problem, workers)
            _, nodes, stays = expectations.marginals(w)
            before = relaxation.penalty(relaxation.expected(nodes, nodes - stays))
            found = project(expectations, relaxation, w, max_passes=500, tol=1e-7)
        assert found.penalty <= before + 1e-9
        if before > 1e-3:
            assert found.penalty < 0.999 * before
