"""Expected features and their optimum: finite differences, SciPy, and any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from hingeline.core.primitives import Workers
from hingeline.solvers import crf as log_linear
from hingeline.solvers.crf import ChainExpectations, descend, minimise_log_loss, observed_features
from hingeline.structures import chain

# isort: split
from naive import enumerate_outputs


def make(seed=0, n=12, d=5, n_labels=3, boundary=True, longest=5):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    dense = rng.normal(size=(offsets[-1], d)) * (rng.random((offsets[-1], d)) < 0.6)
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
    labels = rng.integers(n_labels, size=offsets[-1])
    cost = np.zeros((n_labels, n_labels))
    values = dense[rows, columns]
    return chain.make_problem(indptr, columns, values, offsets, labels, d, cost, boundary, 0.0)


def random_weights(problem, seed=1):
    rng = np.random.default_rng(seed)
    w = np.zeros(chain.compile_problem(problem).n_weights)
    w.reshape(-1, problem.stride)[:, : problem.n_labels] = rng.normal(
        size=(len(w) // problem.stride, problem.n_labels)
    )
    return w


def joint_feature(problem, i, y):
    """f(x_i, y), straight from its definition."""
    f = np.zeros(chain.compile_problem(problem).n_weights)
    rows = f.reshape(-1, problem.stride)
    lo = problem.offsets[i]
    for t, k in enumerate(y):
        for p in range(problem.indptr[lo + t], problem.indptr[lo + t + 1]):
            rows[problem.indices[p], k] += problem.values[p]
        if t:
            rows[problem.n_features + y[t - 1], k] += 1.0
    if problem.boundary:
        rows[problem.n_features + problem.n_labels, y[0]] += 1.0
        rows[problem.n_features + problem.n_labels + 1, y[-1]] += 1.0
    return f


def objective(problem, expectations, weights, target):
    def evaluate(w):
        log_z, expected = expectations.features(w, weights)
        return 0.5 * w @ w + weights @ log_z - w @ target, w + expected - target

    return evaluate


@pytest.mark.parametrize("boundary", [True, False])
def test_expected_features_are_those_of_all_labellings(boundary):
    problem = make(boundary=boundary)
    w, weights = random_weights(problem), np.linspace(0.5, 2.0, 12)
    rng = np.random.default_rng(3)
    unary, enter = rng.normal(size=(2, problem.offsets[-1], problem.stride))
    with Workers(1, 0) as workers:
        expectations = ChainExpectations(problem, workers)
        found = expectations.features(w, weights, unary, enter)
        log_z, nodes, stays = expectations.marginals(w, unary, enter)
    wanted = np.zeros_like(w)
    for i in range(12):
        lo, hi = problem.offsets[i : i + 2]
        outputs = [np.array(y) for y in enumerate_outputs(hi - lo, 3)]
        features = np.array([joint_feature(problem, i, y) for y in outputs])
        values = features @ w
        for c, y in enumerate(outputs):
            values[c] += sum(unary[lo + t, k] for t, k in enumerate(y))
            values[c] += sum(enter[lo + t, y[t]] for t in range(1, len(y)) if y[t] != y[t - 1])
        z = np.log(np.exp(values).sum())
        assert found[0][i] == pytest.approx(z, rel=1e-12)
        assert log_z[i] == found[0][i]
        p = np.exp(values - z)
        wanted += weights[i] * (p @ features)
        for t in range(hi - lo):
            for k in range(3):
                here = np.array([y[t] == k for y in outputs])
                assert nodes[lo + t, k] == pytest.approx(p[here].sum(), abs=1e-12)
                if t:
                    before = np.array([y[t - 1] == k for y in outputs])
                    assert stays[lo + t, k] == pytest.approx(p[here & before].sum(), abs=1e-12)
    np.testing.assert_allclose(found[1], wanted, atol=1e-11)


def test_observed_features():
    problem = make(seed=5)
    weights = np.linspace(0.0, 1.0, 12)
    wanted = sum(
        weights[i] * joint_feature(problem, i, problem.labels[lo:hi])
        for i, (lo, hi) in enumerate(zip(problem.offsets, problem.offsets[1:], strict=False))
    )
    np.testing.assert_allclose(observed_features(problem, weights), wanted, atol=1e-12)


def test_gradient_is_that_of_finite_differences():
    problem = make(seed=2)
    weights = np.linspace(0.5, 2.0, 12)
    w = random_weights(problem)
    with Workers(1, 0) as workers:
        expectations = ChainExpectations(problem, workers)
        evaluate = objective(problem, expectations, weights, observed_features(problem, weights))
        gradient = evaluate(w)[1]
        for k in range(len(w)):
            step = np.zeros_like(w)
            step[k] = 1e-5
            slope = (evaluate(w + step)[0] - evaluate(w - step)[0]) / 2e-5
            if k % problem.stride < problem.n_labels:
                assert gradient[k] == pytest.approx(slope, abs=1e-6)
            else:  # padding
                assert gradient[k] == 0.0


@pytest.mark.parametrize("soft", [False, True])
def test_optimum_is_scipys_and_the_gap_bounds_the_distance(soft):
    problem = make(seed=4, n=20)
    weights = np.full(20, 1.5)
    with Workers(1, 0) as workers:
        expectations = ChainExpectations(problem, workers)
        target = observed_features(problem, weights)
        if soft:
            target = expectations.features(random_weights(problem), weights)[1]
        result = minimise_log_loss(expectations, weights, target, tol=1e-10)
        rough = minimise_log_loss(expectations, weights, target, tol=0.3)
        best = minimize(
            objective(problem, expectations, weights, target),
            np.zeros(expectations.n_weights),
            jac=True,
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 10_000},
        )
    assert result.converged
    assert result.primal == pytest.approx(best.fun, rel=1e-9)
    np.testing.assert_allclose(result.weights, best.x, atol=1e-4)
    assert rough.n_iter < result.n_iter
    assert 0 <= rough.primal - best.fun <= rough.gap
    for row in result.history:
        assert row.dual <= best.fun + 1e-9


def test_results_do_not_depend_on_threads_and_blocks_change_only_rounding(monkeypatch):
    problem = make(seed=6, n=300)
    w, weights = random_weights(problem), np.ones(300)
    found = []
    for jobs in (1, 2, 5):
        with Workers(jobs, 0) as workers:
            found.append(ChainExpectations(problem, workers).features(w, weights))
    for log_z, features in found[1:]:
        assert np.array_equal(log_z, found[0][0])
        assert np.array_equal(features, found[0][1])
    monkeypatch.setattr(log_linear, "BLOCK_NUMBERS", 100 * problem.stride)
    with Workers(2, 0) as workers:
        cut = ChainExpectations(problem, workers)
        assert len(cut._blocks) > 5
        log_z, features = cut.features(w, weights)
        nodes = cut.marginals(w)[1]
    assert np.array_equal(log_z, found[0][0])
    np.testing.assert_allclose(features, found[0][1], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(nodes.sum(axis=1), 1.0, rtol=1e-12)


def test_descent_finds_the_minimum_of_an_ill_conditioned_quadratic():
    scales = np.logspace(0, 5, 50)
    best = [np.inf]

    def function(w):
        value = 0.5 * float(scales @ (w - 1.0) ** 2)
        best[0] = min(best[0], value)
        if value < 1e-12:
            raise StopIteration
        return value, scales * (w - 1.0)

    with pytest.raises(StopIteration):
        descend(function, np.zeros(50))
    assert best[0] < 1e-12
