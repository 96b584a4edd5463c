"""Extremes of numbers: C from 1e-12 to 1e12, features from 1e-100 to 1e100, and beyond."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from hingeline import ChainCRF, ChainSSVM, Graph, GraphSSVM, MulticlassSSVM, MultilabelSSVM
from hingeline.structures.graph import decode_excess

# isort: split
from marks import slow

PRICES = (1e-12, 1e-6, 1.0, 1e6, 1e12)
SIZES = (1e-100, 1e-6, 1.0, 1e6, 1e100)
#: The ends of both with each other, and everything with 1.
SCALES = [
    (C, size)
    for C, size in itertools.product(PRICES, SIZES)
    if 1.0 in (C, size) or {C, size} <= {PRICES[0], PRICES[-1], SIZES[0], SIZES[-1]}
] + [(1e12, 1e-8), (1e-6, 1e-8)]
SOLVERS = ("auto", "bcfw", "fsmo", "one-slack", "subgradient")


def exact(table):
    """Rows of fractions, so that nothing is rounded."""
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(table)]


def dot(a, b):
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def true_primal(tables, C, slack):
    return float(sum(dot(row, row) for row in tables) / 2 + Fraction(C) * slack)


def primal_of_classes(model, X, y, C):
    W = exact(model.coef_)
    slack = Fraction(0)
    for x, true in zip(exact(X), y, strict=True):
        scores = [dot(row, x) for row in W]
        slack += max(s - scores[true] + (k != true) for k, s in enumerate(scores))
    return true_primal(W, C, slack)


def primal_of_chains(model, X, y, C):
    U, T = exact(model.emission_coef_), exact(model.transition_coef_)
    (start,), (end,) = exact(model.start_coef_), exact(model.end_coef_)
    slack = Fraction(0)
    for x, true in zip(X, y, strict=True):
        unary = [[dot(row, token) for row in U] for token in exact(x)]

        def score(z, unary=unary):
            pairs = sum((T[a][b] for a, b in itertools.pairwise(z)), Fraction(0))
            alone = sum(u[k] for u, k in zip(unary, z, strict=True))
            return start[z[0]] + end[z[-1]] + pairs + alone

        truth = score(true.tolist())
        slack += max(
            score(z) - truth + sum(a != b for a, b in zip(z, true.tolist(), strict=True))
            for z in itertools.product(range(len(U)), repeat=len(true))
        )
    return true_primal([*U, *T, start, end], C, slack)


def make_rows(separable):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 4))
    return X, X[:, :3].argmax(axis=1) if separable else rng.integers(0, 3, size=12)


def make_chains(separable):
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(int(rng.integers(1, 5)), 4)) for _ in range(6)]
    y = [(x[:, 0] > 0).astype(int) if separable else rng.integers(0, 2, len(x)) for x in X]
    y[0][0] = 1 - y[1][0]
    return X, y


def check(model, primal, nothing):
    assert np.isfinite(model.weights_).all()
    assert model.dual_objective_ <= primal * (1 + 1e-9)
    assert primal <= nothing * (1 + 1e-12) or not model.converged_
    assert model.primal_objective_ == pytest.approx(primal, rel=1e-9 if model.converged_ else 1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("separable", [slow(True), False])
@pytest.mark.parametrize("solver", SOLVERS)
def test_classes(solver, separable):
    X, y = make_rows(separable)
    for C, size in SCALES:
        model = MulticlassSSVM(
            C=C, solver=solver, fit_intercept=False, max_iter=50, random_state=0
        ).fit(X * size, y)
        check(model, primal_of_classes(model, X * size, y, C), C * len(y))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("separable", [True, slow(False)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_chains(solver, separable):
    X, y = make_chains(separable)
    for C, size in SCALES:
        scaled = [x * size for x in X]
        model = ChainSSVM(C=C, solver=solver, fit_intercept=False, max_iter=50, random_state=0).fit(
            scaled, y
        )
        check(model, primal_of_chains(model, scaled, y, C), C * sum(map(len, y)))


def test_small_prices_fill_the_bound_exactly():
    """At C → 0 every example is at its bound, and D = n·C less what is of the order of C²."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 5)), rng.integers(0, 4, size=200)
    for C in (1e-12, 1e-15, 1e-18, 1e-30):
        model = MulticlassSSVM(C=C, random_state=0).fit(X, y)
        assert model.dual_objective_ == pytest.approx(200 * C, rel=1e-9)
        assert model.dual_objective_ <= model.primal_objective_ * (1 + 1e-12)
        assert model.primal_objective_ <= 200 * C * (1 + 1e-12)


@pytest.mark.parametrize("size", [1e150, 1e154, 1e200, 1e300])
@pytest.mark.parametrize("solver", SOLVERS)
def test_squares_that_overflow_are_refused(size, solver):
    X, y = make_rows(False)
    chains, labels = make_chains(False)
    fits = [
        (MulticlassSSVM(solver=solver, scale=False), X * size, y),
        (ChainSSVM(solver=solver, scale=False), [x * size for x in chains], labels),
    ]
    if solver == "auto":
        fits.append((ChainCRF(), [x * size for x in chains], labels))
        fits.append((MultilabelSSVM(edges="none", scale=False), X * size, np.eye(3, dtype=int)[y]))
        fits.append((MultilabelSSVM(scale=False), X * size, np.eye(3, dtype=int)[y]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model, inputs, outputs in fits:
            with pytest.raises(ValueError, match=r"a feature has the size .*scale the features\.$"):
                model.fit(inputs, outputs)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("size", [1e-150, 1e-155, 1e-160, 1e-300])
def test_features_whose_squares_vanish(size):
    """The inverse of a square overflowed, and a hard margin was searched for without an end."""
    X, y = make_rows(True)
    for C in (1e-300, 1.0, 1e100):
        model = MulticlassSSVM(C=C, fit_intercept=False, random_state=0).fit(X * size, y)
        assert np.isfinite(model.weights_).all()
        assert model.primal_objective_ == pytest.approx(C * len(y))
    hard = MulticlassSSVM(C=np.inf, fit_intercept=False, max_iter=20).fit(X * size, y)
    assert not hard.converged_


def test_squared_slack_of_vanishing_weight_is_refused():
    """Squares of multipliers vanished, and the dual rose above the primal."""
    X, y = make_rows(False)
    model = MulticlassSSVM(slack="squared", C=1e-100, random_state=0).fit(X, y)
    assert model.dual_objective_ <= model.primal_objective_ * (1 + 1e-12)
    with pytest.raises(ValueError, match="C times the weight of an example is 1e-300"):
        MulticlassSSVM(slack="squared", C=1.0).fit(X, y, sample_weight=np.full(len(y), 1e-300))


def test_weights_that_are_not_finite_are_never_returned():
    """Structures of others have no table of features to look at: what comes out is looked at."""
    X, y = make_rows(False)

    def spoil(state):
        state.stop("spoilt", np.full_like(state.weights, np.nan))

    with pytest.raises(ValueError, match="weights that are not finite"):
        MulticlassSSVM(callbacks=spoil).fit(X, y)


def test_no_weights_are_better_than_bad_ones():
    """Two examples that contradict each other: nothing can be learnt."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for solver in SOLVERS:
            model = MulticlassSSVM(C=1e12, solver=solver, fit_intercept=False, max_iter=20)
            model.fit(np.array([[1.0], [1.0], [1.0 + 1e-13]]), [0, 1, 1])
            assert model.primal_objective_ <= 3e12 or not model.converged_


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize("solver", ["auto", "bcfw"])
def test_rounding_alone_is_no_reason_for_weights(solver, size):
    """Every row with every label: weights other than 0 come from rounding, and cost something."""
    X = size * np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 3, axis=0)
    C = 1e-9 if size == 1.0 else 1.0
    model = MulticlassSSVM(C=C, solver=solver, fit_intercept=False, random_state=0)
    model.fit(X, np.tile([0, 1, 2], 3))
    assert model.converged_
    assert not model.weights_.any()
    assert model.primal_objective_ == pytest.approx(9.0 * C, rel=1e-15)


@pytest.mark.parametrize(("seed", "helps"), [(0, True), (2, False)])
def test_weights_of_an_early_pass_are_kept_or_shortened(seed, helps):
    """They may cost more than none at all and predict far better; shorter ones do the same."""
    X, y = make_rows(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MulticlassSSVM(C=1e4, solver="subgradient", max_iter=1, random_state=seed)
        model.fit(X, y)
    assert (model.primal_objective_ < 1e4 * len(y)) == helps
    assert model.score(X, y) >= 0.5  # 0.33 to 0.42 for a label alone


UNITS = (2.0**-40, 2.0**40)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("inference", ["ad3", "icm"])
def test_decoding_of_graphs_in_other_units(inference):
    """Weights and losses times a power of two: every number times that, every decision the same."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.combinations(range(5), 2))
    X = [Graph(0.5 * rng.normal(size=(5, 3)), pairs) for _ in range(6)]
    Y = [rng.permutation([0, 0, 1, 1, 2]) for _ in X]
    model = GraphSSVM(1.0, solver="sdm", max_iter=1, random_state=0).fit(X, Y)
    model = model.with_weights(rng.normal(size=model.weights_.shape)).set_params(
        inference=inference
    )
    model.pairwise_coef_[:] = 0.1 * model.pairwise_coef_ - np.eye(3)  # neighbours differ
    found, settled = model.certify(X), model.certify(X, settle=True)
    assert not found.exact.all()
    problem = model._prepare(X[:2])._replace(cost=1.0 - np.eye(3))
    y = np.empty(5, dtype=np.int32)
    for unit in UNITS:
        other = model.with_weights(unit * model.weights_)
        for name in ("scores", "bounds"):
            np.testing.assert_array_equal(
                getattr(other.certify(X), name), unit * getattr(found, name)
            )
        np.testing.assert_array_equal(other.certify(X).exact, found.exact)
        np.testing.assert_array_equal(other.certify(X, settle=True).scores, unit * settled.scores)
        for i in range(2):
            excess = decode_excess(problem, i, unit * model.weights_, unit, y)
            assert excess == unit * decode_excess(problem, i, model.weights_, 1.0, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_hard_margins_in_other_units():
    """Classes 1 and 2 cost nothing instead of each other: their scores meet, up to rounding.

    Whether they do within the passes there are is luck in the large unit, where 7 of 20 seeds do
    not end: estimates of the gap of a hard margin count ``1 + total``, which has no one unit. Which
    seeds these are depends on the processor.
    """
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(12, 4)), 2, axis=0)
    y = np.where(X[:, 0] > 0.0, 0, np.arange(24) % 2 + 1)
    costs = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    base = MulticlassSSVM(np.inf, loss=costs, random_state=4).fit(X, y)
    assert base.converged_
    for unit in UNITS:
        fits = [
            MulticlassSSVM(np.inf, loss=(unit, costs), random_state=seed).fit(X, y)
            for seed in range(8)
        ]
        found = [model.primal_objective_ for model in fits if model.converged_]
        assert found
        np.testing.assert_allclose(found, unit**2 * base.primal_objective_, rtol=1e-6)
