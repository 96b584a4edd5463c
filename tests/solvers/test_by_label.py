"""Labels without pairs, one by one: the same optimum and the same certificate as together."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from hingeline import Checkpoint, MultilabelSSVM
from hingeline.solvers.by_label import ByLabel

# isort: split
from marks import slow


class Killed(Exception):
    """Stands for the end of the process."""


def kill_at(passes):
    def callback(state):
        if state.row.passes == passes:
            raise Killed

    callback.begin = lambda identity, restore: False  # among the last, as a checkpoint is
    return callback


def make(n=150, d=6, labels=7, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = X @ rng.normal(size=(d, labels)) + rng.normal(size=(n, labels)) > rng.normal(size=labels)
    return X, Y.astype(int)


def fit(X, Y, sample_weight=None, **params):
    params = {"edges": "none", "C": 1.0, "tol": 1e-6, "random_state": 0, "max_iter": 3000} | params
    return MultilabelSSVM(**params).fit(X, Y, sample_weight=sample_weight)


def true_primal(model, X, Y, C, costs=(1.0, 1.0)):
    scores = (2 * Y - 1) * (X @ model.coef_.T + model.intercept_)
    hinges = np.maximum(np.where(Y == 1, costs[1], costs[0]) - scores, 0.0)
    return 0.5 * model.weights_ @ model.weights_ + C * hinges.sum()


@pytest.mark.parametrize(
    ("form", "C"),
    [
        ("dense", 0.01),
        slow("dense", 1.0),
        ("dense", 100.0),
        slow("sparse", 0.01),
        ("sparse", 1.0),
        slow("sparse", 100.0),
    ],
)
def test_the_optimum_is_that_of_all_labels_together(form, C):
    X, Y = make()
    given = {"dense": X, "sparse": sp.csr_matrix(X * (X > 0.3))}
    weights = np.linspace(0.0, 2.0, len(X))
    loss = np.array([[0.0, 1.0], [2.5, 0.0]])
    one, whole = (
        fit(given[form], Y, weights, C=C, loss=loss, class_weight="balanced", solver=solver)
        for solver in ("auto", "sdm")
    )
    assert one.converged_
    assert one.oracle_exact_
    assert one.primal_objective_ == pytest.approx(whole.primal_objective_, rel=3e-6)
    assert one.dual_objective_ <= whole.primal_objective_ * (1 + 1e-12)
    assert one.duality_gap_ == pytest.approx(one.primal_objective_ - one.dual_objective_, abs=1e-9)


def test_the_primal_reported_is_that_of_the_weights():
    X, Y = make()
    costs = np.array([[0.0, 1.5], [3.0, 0.0]])
    model = fit(X, Y, C=0.3, loss=costs, tol=0.05)
    true = true_primal(model, X, Y, 0.3, (1.5, 3.0))
    assert model.primal_objective_ == pytest.approx(true, rel=1e-12)
    assert [row.dual for row in model.history_] == sorted(row.dual for row in model.history_)
    np.testing.assert_array_equal(model.unary_coef_[:, 0], -model.unary_coef_[:, 1])


@pytest.mark.slow
def test_named_inference_changes_nothing():
    X, Y = make()
    plain, named = fit(X, Y), fit(X, Y, inference="icm")
    np.testing.assert_array_equal(plain.weights_, named.weights_)
    assert named.oracle_exact_
    assert named.duality_gap_ == plain.duality_gap_


@pytest.mark.parametrize("labels", [7, 21])  # labels go by eights, wherever threads divide them
def test_weights_do_not_depend_on_threads(labels):
    X, Y = make(labels=labels)
    one, two = (fit(X, Y, n_jobs=jobs).weights_ for jobs in (1, 3))
    np.testing.assert_array_equal(one, two)


def test_labels_together_and_alone_have_one_optimum():
    X, Y = make(labels=19)
    together = fit(X, Y)
    for k in (0, 7, 18):
        alone = fit(X, Y[:, k])
        np.testing.assert_allclose(together.coef_[k], alone.coef_[0], atol=2e-3)
    assert together.primal_objective_ == pytest.approx(true_primal(together, X, Y, 1.0))
    assert together.duality_gap_ <= 1e-6 * together.primal_objective_


def test_badly_scaled_features_are_no_obstacle():
    X, Y = make(n=300)
    model = fit(X * 10.0 ** np.linspace(-3, 3, 6), Y, max_iter=100)
    assert model.converged_


def test_a_warm_start_goes_on():
    X, Y = make()
    model = fit(X, Y, warm_start=True)
    passes = model.n_iter_
    assert model.fit(X, Y).n_iter_ == 1
    model.set_params(C=1.1).fit(X, Y)
    assert model.n_iter_ <= passes
    assert model.primal_objective_ == pytest.approx(fit(X, Y, C=1.1).primal_objective_, rel=3e-6)


def test_a_callback_may_stop_with_weights_of_its_own():
    X, Y = make()

    def stop(state):
        chosen = 0.9 * state.weights
        chosen[::3] += 0.01  # presence and absence need not mirror each other
        state.stop("enough", chosen)

    model = fit(X, Y, callbacks=stop, fit_intercept=False)
    assert model.stop_reason_ == "enough"
    assert model.primal_objective_ == pytest.approx(true_primal(model, X, Y, 1.0), rel=1e-12)


def test_a_checkpoint_is_taken_up_again(tmp_path):
    X, Y = make()
    path = tmp_path / "fit.ckpt"
    with pytest.raises(Killed):
        fit(X, Y, callbacks=[Checkpoint(path, every=0.0), kill_at(3)])
    again = Checkpoint(path, resume=True)
    model = fit(X, Y, callbacks=[again])
    assert again.resumed_ >= 2
    np.testing.assert_array_equal(model.weights_, fit(X, Y).weights_)


@pytest.mark.parametrize(
    ("params", "by_label"),
    [
        ({}, True),
        ({"edges": [(0, 1)]}, False),
        ({"solver": "sdm"}, False),
        ({"solver_options": {"cached_passes": 3}}, False),
        ({"slack": "sum"}, False),
    ],
)
def test_who_is_solved_label_by_label(params, by_label):
    X, Y = make(n=20)
    edges = {name: value for name, value in params.items() if name == "edges"}
    model = fit(X, Y, tol=0.1, **edges).set_params(**params)
    problem = model._make(X, Y.ravel(), 1.0 - np.eye(2))
    assert (model._solver_class(model._compile(problem)) is ByLabel) == by_label


def test_it_costs_no_more_than_linear_svc():
    rng = np.random.default_rng(0)
    X = sp.random(1500, 400, density=0.02, random_state=0, format="csr")
    X.data[:] = 1.0
    scores = X @ rng.normal(size=(400, 100)) + rng.normal(size=(1500, 100))
    Y = (scores > np.quantile(scores, 0.95, axis=0)).astype(int)
    fit(X[:100], Y[:100], tol=0.01)  # compiles
    began = time.process_time()
    model = fit(X, Y, tol=0.01)
    spent = time.process_time() - began
    began, primal = time.process_time(), 0.0
    for k in range(Y.shape[1]):
        # ¼‖v‖² + C·hinges is half of LinearSVC's problem at 2C.
        single = LinearSVC(loss="hinge", C=2.0, random_state=0).fit(X, Y[:, k])
        v = np.append(single.coef_[0], single.intercept_)
        hinges = np.maximum(1.0 - (2 * Y[:, k] - 1) * single.decision_function(X), 0.0)
        primal += 0.25 * v @ v + hinges.sum()
    assert spent <= 1.5 * (time.process_time() - began)
    assert model.dual_objective_ <= primal
    assert model.primal_objective_ <= 1.01 * primal


def test_a_large_C_is_approached_in_stages(monkeypatch):
    """Multipliers scaled up are feasible, make up the weights, and save two passes of three."""
    rng = np.random.default_rng(0)
    X = sp.random(1500, 200, 0.05, format="csr", random_state=0, data_rvs=np.ones)
    Y = (X @ rng.normal(size=(200, 4)) + 4.0 * rng.normal(size=(1500, 4)) > 1.0).astype(int)
    swept = []

    def check(state):
        solver = solvers[-1]
        table = X.T @ (solver.alpha * solver.sign).T
        np.testing.assert_allclose(solver.u[:, :200], table.T, rtol=0, atol=1e-9)
        assert (solver.alpha >= 0.0).all()
        assert (solver.alpha <= solver.form.cap).all()
        swept.append(len(solver.stages))

    solvers = []
    begin = ByLabel._begin
    monkeypatch.setattr(ByLabel, "_begin", lambda self, s: (solvers.append(self), begin(self, s)))
    staged = fit(X, Y, C=10.0, tol=1e-2, callbacks=check)
    assert swept[:3] == [1, 0, 0]
    monkeypatch.setattr("hingeline.solvers.by_label.STAGE_FACTOR", np.inf)
    plain = fit(X, Y, C=10.0, tol=1e-2)
    assert staged.converged_
    assert plain.converged_
    assert 2 * staged.n_iter_ <= plain.n_iter_
