"""Trees of labels, by masses of labels and pairs: the optimum of whole outputs, certified."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from hingeline import Checkpoint, MultilabelSSVM
from hingeline.estimators import multilabel
from hingeline.solvers.label_tree import LabelTree

# isort: split
from reference import EnumeratedProblem, solve

FORESTS = {
    "path": [(0, 1), (2, 1), (2, 3), (4, 3)],
    "star": [(2, 0), (2, 1), (3, 2), (4, 2)],
    "forest": [(3, 1), (0, 4)],
}


@pytest.fixture(autouse=True)
def _for_large_C(monkeypatch):
    monkeypatch.setattr(multilabel, "LARGE_C", 1e12)


def make(n=14, d=3, labels=5, seed=0):
    """Labels that go together, so that pairs count."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    common = rng.normal(size=(n, 1)) + X[:, :1]
    Y = X @ rng.normal(size=(d, labels)) + 2.0 * common + rng.normal(size=(n, labels)) > 0
    return X, Y.astype(int)


def fit(X, Y, sample_weight=None, **params):
    params = {"edges": FORESTS["path"], "tol": 1e-7, "random_state": 0, "max_iter": 5000, **params}
    return MultilabelSSVM(fit_intercept=False, **params).fit(X, Y, sample_weight=sample_weight)


def enumerate_outputs(X, Y, pairs, cost):
    labels = Y.shape[1]

    def feature(x, y):
        unary, tables = np.zeros((len(x), labels, 2)), np.zeros((len(pairs), 2, 2))
        for k in range(labels):
            unary[:, k, y[k]] += x
        for p, (a, b) in enumerate(pairs):
            tables[p, y[a], y[b]] += 1.0
        return np.concatenate([unary.ravel(), tables.ravel()])

    outputs = [list(itertools.product((0, 1), repeat=labels))] * len(Y)
    return EnumeratedProblem.from_callables(
        list(X),
        [tuple(y) for y in Y],
        outputs,
        feature,
        lambda true, y: float(sum(cost[a, b] for a, b in zip(true, y, strict=True))),
    )


@pytest.mark.parametrize("edges", sorted(FORESTS))
@pytest.mark.parametrize("C", [0.05, 2.0])
def test_the_optimum_is_that_of_the_qp(edges, C):
    X, Y = make()
    weights = np.linspace(0.0, 2.0, len(X))
    cost = np.array([[0.0, 1.0], [2.5, 0.0]])
    model = fit(X, Y, weights, C=C, loss=cost, edges=FORESTS[edges])
    best = solve(enumerate_outputs(X, Y, FORESTS[edges], cost), C, sample_weight=weights).objective
    assert model.converged_
    assert model.oracle_exact_
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    assert model.dual_objective_ <= best * (1 + 1e-9)
    assert np.abs(model.pairwise_coef_).max() > 0.01


@pytest.mark.slow
def test_the_certificate_is_that_of_whole_outputs():
    X, Y = make(n=80, d=6, labels=12, seed=1)
    given = sp.csr_matrix(X * (X > -0.5))
    one, whole = (
        fit(given, Y, edges="tree", C=0.5, tol=1e-4, solver=solver) for solver in ("auto", "sdm")
    )
    assert one.dual_objective_ <= whole.primal_objective_
    assert whole.dual_objective_ <= one.primal_objective_
    # The primal said is that of the weights, by another decoder; they go on from each other's.
    again = fit(given, Y, edges="tree", C=0.5, tol=1e9, max_iter=1, callbacks=keep(one.weights_))
    other = MultilabelSSVM(0.5, edges="tree", fit_intercept=False, solver="sdm", tol=1e9)
    other.set_params(callbacks=keep(one.weights_)).fit(given, Y)
    assert again.primal_objective_ == pytest.approx(one.primal_objective_, rel=1e-12)
    assert other.primal_objective_ == pytest.approx(one.primal_objective_, rel=1e-12)
    duals = [row.dual for row in one.history_]
    assert duals == sorted(duals)


def test_columns_far_from_zero():
    X, Y = make(n=300, d=40, labels=8, seed=4)
    given = {"edges": "tree", "C": 1.0, "tol": 0.01, "max_iter": 200}
    apart = fit(X + 10.0, Y, **{**given, "edges": "none"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = fit(X + 10.0, Y, **given)
    assert model.primal_objective_ <= apart.primal_objective_ * 1.02  # pairs of weight 0
    assert model.duality_gap_ < 0.3 * model.primal_objective_


def keep(weights):
    return lambda state: state.stop("these", weights)


def test_masses_are_those_of_a_distribution(monkeypatch):
    seen = []
    sweep = LabelTree.sweep
    monkeypatch.setattr(LabelTree, "sweep", lambda self: seen.append(self) or sweep(self))
    X, Y = make(n=60, d=5, labels=8, seed=2)
    fit(X, Y, edges="tree", C=0.3, max_iter=40)
    tree, cap = seen[-1].tree, seen[-1].form.cap[:, None]
    with_parent = tree.parent >= 0
    own, both = tree.single[:, with_parent], tree.double[:, with_parent]
    parents = tree.single[:, tree.parent[with_parent]]
    assert ((own >= both) & (parents >= both) & (both >= 0.0)).all()
    assert (own + parents - both <= cap * (1 + 1e-15)).all()
    kept = seen[-1].w.copy()
    seen[-1].repair()
    np.testing.assert_allclose(seen[-1].w, kept, atol=1e-12)


def test_weights_do_not_depend_on_threads():
    X, Y = make(n=60)
    one, two = (fit(X, Y, n_jobs=jobs).weights_ for jobs in (1, 3))
    np.testing.assert_array_equal(one, two)


def test_a_warm_start_goes_on():
    X, Y = make(n=60)
    model = fit(X, Y, warm_start=True, tol=1e-5, C=1.0)
    assert model.fit(X, Y).n_iter_ <= 2
    model.set_params(C=1.1).fit(X, Y)
    assert model.primal_objective_ == pytest.approx(fit(X, Y, C=1.1).primal_objective_, rel=2e-5)


def test_a_checkpoint_is_taken_up_again(tmp_path):
    X, Y = make(n=60)
    path = tmp_path / "fit.ckpt"
    fit(X, Y, callbacks=[Checkpoint(path, every=0.0)], max_time=1e-9)
    again = Checkpoint(path, resume=True)
    model = fit(X, Y, callbacks=[again])
    assert again.resumed_ == 1
    np.testing.assert_array_equal(model.weights_, fit(X, Y).weights_)


@pytest.mark.parametrize(
    ("params", "by_masses"),
    [
        ({}, True),
        ({"edges": [(0, 1), (1, 2), (2, 0)]}, False),
        ({"solver": "sdm"}, False),
        ({"slack": "sum"}, False),
        ({"inference": "icm"}, False),
    ],
)
def test_who_is_solved_by_masses(monkeypatch, params, by_masses):
    monkeypatch.setattr(multilabel, "LARGE_C", 300.0)
    X, Y = make()
    model = fit(X, Y, tol=0.5, edges=params.get("edges", "tree"), inference="enumeration")
    model.set_params(**{"inference": "auto", **params})
    compiled = model._compile(model._make(X, Y.ravel(), 1.0 - np.eye(2)))
    assert (model._solver_class(compiled) is LabelTree) == by_masses
    C = float(model.set_params(C="scale")._scaled_C(compiled.problem, np.ones(len(Y))))
    for times, few, also in ((100.0, 2000, True), (1000.0, 2000, False), (1000.0, 0, True)):
        monkeypatch.setattr(multilabel, "FEW_WEIGHTS", few)
        found = model.set_params(C=times * C)._solver_class(compiled) is LabelTree
        assert found == (by_masses and also)


def test_few_weights_of_usual_size_take_few_passes_of_masses(monkeypatch):
    """Newton steps over planes of whole outputs took a minute for 5000 rows and 30 labels."""
    monkeypatch.setattr(multilabel, "LARGE_C", 300.0)
    X, Y = make(400, 20, 20)
    for params in ({}, {"C": 1.0}, {"scale": False}):
        model = MultilabelSSVM(random_state=0, **params).fit(X, Y)
        assert len(model.weights_) < 2000
        assert model.converged_
        assert model.history_[-1].planes == 0
