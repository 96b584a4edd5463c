"""Cutting planes with one slack variable: the optimum, the published rule, and all ways to stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from hingeline import SSVM, ChainSSVM, Checkpoint, MulticlassSSVM

# isort: split
from marks import slow
from reference import (
    EnumeratedProblem,
    by_output,
    primal,
    random_chains,
    random_multiclass,
    solve,
    spread_weights,
)

TOL = 1e-8
L, D = 3, 4
#: (seed, C, whether some examples have weights, some of them zero)
CASES = [(1, 1.0, True), slow(0, 0.1, False), slow(2, 10.0, False)]
SCHEDULES = ("improved", "published")


def weights_of(seed: int, n: int, weighted: bool) -> Any:
    if not weighted:
        return None
    weights = np.random.default_rng(100 + seed).uniform(0.2, 2.0, size=n)
    weights[::5] = 0.0
    return weights


def multiclass(seed: int, n: int = 20) -> Any:
    X, y = random_multiclass(np.random.default_rng(seed), n, D, L)
    y[:L] = np.arange(L)
    return X, y


def chains(seed: int, n: int = 10) -> Any:
    return random_chains(np.random.default_rng(seed), n, D, L, 3)


def flat(model: Any) -> Any:
    """The weights in the reference's layout."""
    if isinstance(model, MulticlassSSVM):
        return model.coef_.T.ravel()
    if isinstance(model, ChainSSVM):
        blocks = [model.emission_coef_.T.ravel(), model.transition_coef_.ravel()]
        if model.boundary:
            blocks += [model.start_coef_, model.end_coef_]
        return np.concatenate(blocks)
    return model.weights_


def fit(model: Any, X: Any, y: Any, weights: Any = None, **params: Any) -> Any:
    model.set_params(
        **{"solver": "one-slack", "tol": TOL, "max_iter": 5000, "random_state": 0, **params}
    )
    return model.fit(X, y) if weights is None else model.fit(X, y, sample_weight=weights)


def check(model: Any, problem: Any, weights: Any) -> None:
    C, rescale = model.C, model.rescale
    if model.slack == "sum":
        weights = spread_weights(problem, weights)
        problem = by_output(problem)
    best = solve(problem, C, "max", rescale, weights).objective
    assert model.converged_
    assert model.stop_reason_ == "converged"
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    true = primal(problem, flat(model), C, "max", rescale, weights)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
    assert 0.0 <= model.duality_gap_ <= TOL * model.primal_objective_
    # Weak duality, pass by pass: a dual never exceeds the optimum, a primal never falls below.
    for row in model.history_:
        assert row.dual <= best * (1 + 1e-9)
        assert np.isnan(row.primal) or row.primal >= best * (1 - 1e-9)
    duals = [row.dual for row in model.history_]
    assert (np.diff(duals) >= 0).all()


@pytest.mark.parametrize("slack", ["max", "sum"])
@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize(("seed", "C", "weighted"), CASES)
class TestOptimum:
    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_multiclass(
        self, slack: str, rescale: str, seed: int, C: float, weighted: bool, schedule: str
    ) -> None:
        X, y = multiclass(seed)
        weights = weights_of(seed, len(y), weighted)
        model = MulticlassSSVM(C, slack=slack, rescale=rescale, fit_intercept=False)
        fit(model, X, y, weights, solver_options={"schedule": schedule})
        check(model, EnumeratedProblem.from_multiclass(X, y, L), weights)

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_chain(
        self, slack: str, rescale: str, seed: int, C: float, weighted: bool, schedule: str
    ) -> None:
        X, y = chains(seed)
        weights = weights_of(seed, len(y), weighted)
        model = ChainSSVM(C, slack=slack, rescale=rescale, fit_intercept=False)
        model.set_params(violators="all" if slack == "sum" else None)
        fit(model, X, y, weights, solver_options={"schedule": schedule})
        check(model, EnumeratedProblem.from_chains(X, y, L, True), weights)


@pytest.mark.slow
@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize(("seed", "C", "weighted"), CASES[:2])
def test_compiled_structure(
    compiled_chain: Any, rescale: str, seed: int, C: float, weighted: bool
) -> None:
    X, y = chains(seed)
    weights = weights_of(seed, len(y), weighted)
    model = fit(SSVM(compiled_chain(), C, rescale=rescale), X, y, weights)
    check(model, EnumeratedProblem.from_chains(X, y, L, False), weights)


@pytest.mark.parametrize("rescale", ["margin", "slack"])
def test_python_structure(python_multiclass: Any, rescale: str) -> None:
    X, y = multiclass(1)
    model = fit(SSVM(python_multiclass(), 1.0, rescale=rescale), X, y)
    check(model, EnumeratedProblem.from_multiclass(X, y, L), None)


@pytest.mark.parametrize("rescale", ["margin", "slack"])
def test_python_structure_with_the_best_outputs(python_multiclass: Any, rescale: str) -> None:
    class Ranked(python_multiclass):  # type: ignore[misc]
        def decode_best(self, x: Any, w: Any, y_true: Any, loss_scale: float, k: int) -> Any:
            scores = x @ w.reshape(-1, L) + loss_scale * (np.arange(L) != y_true[0])
            return np.argsort(-scores)[:k, None].astype(np.int32)

    X, y = multiclass(2)
    model = SSVM(Ranked(), 1.0, slack="sum", rescale=rescale, violators="all")
    check(fit(model, X, y), EnumeratedProblem.from_multiclass(X, y, L), None)


def test_long_weights_are_stored_sparsely(monkeypatch: Any) -> None:
    X, y = chains(3)
    dense = fit(ChainSSVM(1.0, fit_intercept=False), X, y)
    monkeypatch.setattr("hingeline.solvers.one_slack.SHORT", 1)
    sparse = fit(ChainSSVM(1.0, fit_intercept=False), X, y)
    check(sparse, EnumeratedProblem.from_chains(X, y, L, True), None)
    assert sparse.primal_objective_ == pytest.approx(dense.primal_objective_, rel=1e-7)


# Other solvers, threads ----------------------------------------------------------------------


@pytest.mark.parametrize(("slack", "other"), [("max", "sdm"), ("sum", "sdcd")])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_agrees_with_the_other_solvers(slack: str, other: str, schedule: str) -> None:
    X, y = multiclass(5, 400)
    params: Any = {"slack": slack, "tol": 1e-4}
    cut = fit(MulticlassSSVM(0.5), X, y, **params, solver_options={"schedule": schedule})
    dual = fit(MulticlassSSVM(0.5), X, y, **params, solver=other)
    assert cut.converged_
    for a, b in ((cut, dual), (dual, cut)):
        assert a.dual_objective_ <= b.primal_objective_
    np.testing.assert_allclose(cut.coef_, dual.coef_, atol=0.03 * np.abs(dual.coef_).max())


RUNS = [
    (MulticlassSSVM, {"slack": "max"}),
    (MulticlassSSVM, {"slack": "sum"}),
    (ChainSSVM, {"slack": "max"}),
    (ChainSSVM, {"slack": "sum"}),
    (ChainSSVM, {"slack": "sum", "violators": 3, "solver_options": {"schedule": "published"}}),
    (ChainSSVM, {"slack": "sum", "violators": "all"}),
]
KINDS = ["classes", "all classes", "chain", "argmax", "best", "all"]


def data_for(kind: Any, n: int = 60) -> Any:
    return multiclass(6, n) if kind is MulticlassSSVM else chains(6, n)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "params"), RUNS, ids=KINDS)
def test_threads_change_nothing(kind: Any, params: Any) -> None:
    X, y = data_for(kind)
    one, two, three = (
        fit(kind(0.5), X, y, **params, tol=1e-5, n_jobs=n_jobs) for n_jobs in (1, 2, 3)
    )
    for other in (two, three):
        np.testing.assert_array_equal(one.weights_, other.weights_)
        assert [row[1:] for row in one.history_][:-1] == [row[1:] for row in other.history_][:-1]


# Stopping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("slack", "units"), [("max", 60.0), ("sum", 1.0)])
def test_published_stopping_rule(slack: str, units: float, schedule: str) -> None:
    """No constraint is violated by more than ε: the gap is at most ε in units of ξ."""
    X, y = multiclass(7, 60)
    C, epsilon = 0.3, 0.02
    options = {"schedule": schedule, "epsilon": epsilon}
    model = fit(MulticlassSSVM(C, slack=slack), X, y, tol=1e-15, solver_options=options)
    assert model.converged_
    assert "epsilon=0.02" in model.stop_reason_
    best = fit(MulticlassSSVM(C, slack=slack), X, y).primal_objective_
    # The inner solve leaves a tenth of ε.
    assert model.primal_objective_ - best <= 1.1 * C * units * epsilon
    tight = fit(
        MulticlassSSVM(C, slack=slack), X, y, tol=1e-15, solver_options={**options, "epsilon": 2e-4}
    )
    assert tight.n_iter_ > model.n_iter_
    assert tight.primal_objective_ - best <= 1.1 * C * units * 2e-4


def test_published_rounds_decode_now_and_then() -> None:
    X, y = chains(8, 30)
    options = {"schedule": "published", "kappa1": 3, "kappa2": 4}
    model = fit(ChainSSVM(5.0, slack="sum"), X, y, tol=1e-7, solver_options=options)
    calls = np.diff([0, *(row.oracle_calls for row in model.history_)]) // len(X)
    assert calls[:4].tolist() == [1, 1, 1, 1]
    assert calls[4] == 0
    assert 0 < calls[4:-1].mean() < 0.75


def test_restricted_problem_of_the_outputs_found() -> None:
    X, y = chains(9, 30)
    model = fit(ChainSSVM(1.0, slack="sum"), X, y, tol=1e-4)
    assert model.stop_reason_ == "converged on the outputs found"
    assert np.isnan(model.primal_objective_)
    assert np.isnan(model.duality_gap_)
    assert 0.0 <= model.restricted_gap_ <= 1e-4 * model.restricted_objective_
    # Fewer outputs make a smaller sum.
    whole = fit(ChainSSVM(1.0, slack="sum", violators="all"), X, y, tol=1e-4)
    assert model.dual_objective_ <= whole.primal_objective_
    problem = by_output(EnumeratedProblem.from_chains(X, y, L, True))
    bare = fit(ChainSSVM(1.0, slack="sum", fit_intercept=False), X, y, tol=1e-4)
    assert bare.restricted_objective_ <= primal(problem, flat(bare), 1.0) * (1 + 1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sdcd_does_not_stop_on_an_old_restricted_primal(schedule: str) -> None:
    """Outputs found after a certificate lift the dual, which is no convergence."""
    X, y = chains(10, 40)
    model = ChainSSVM(
        0.02, slack="sum", solver="sdcd", random_state=0, solver_options={"schedule": schedule}
    ).fit(X, y)
    assert model.converged_
    assert model.dual_objective_ <= model.restricted_objective_
    for row in model.history_:
        assert np.isnan(row.restricted) or row.restricted > 0.0


def test_idle_cuts_go() -> None:
    X, y = multiclass(11, 200)
    options = {"schedule": "published"}
    many = fit(MulticlassSSVM(10.0), X, y, solver_options={**options, "patience": 10**6})
    few = fit(MulticlassSSVM(10.0), X, y, solver_options={**options, "patience": 5})
    assert few.converged_
    assert few.history_[-1].planes < many.history_[-1].planes
    assert few.primal_objective_ == pytest.approx(many.primal_objective_, rel=1e-7)


def test_max_time_and_interruption() -> None:
    X, y = multiclass(12, 100)
    with pytest.warns(ConvergenceWarning, match="max_time"):
        fit(MulticlassSSVM(10.0), X, y, tol=1e-15, max_time=0.02)

    def interrupt(state: Any) -> None:
        if state.row.passes == 5:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = fit(MulticlassSSVM(10.0), X, y, callbacks=interrupt)
    assert 0.0 < model.dual_objective_ <= model.primal_objective_


@pytest.mark.parametrize("slack", ["max", "sum"])
def test_refusals(slack: str) -> None:
    X, y = multiclass(0)
    with pytest.raises(ValueError, match=r"'one-slack' needs a finite C.*'sd"):
        fit(MulticlassSSVM(np.inf, slack=slack), X, y)
    with pytest.raises(ValueError, match="'one-slack' does not solve slack='squared'"):
        fit(MulticlassSSVM(slack="squared"), X, y)
    with pytest.raises(ValueError, match="'cached_passes', which solver='one-slack' does not"):
        fit(MulticlassSSVM(slack=slack), X, y, solver_options={"cached_passes": 1})


# Going on --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "params"), RUNS, ids=KINDS)
def test_warm_start(kind: Any, params: Any) -> None:
    X, y = data_for(kind)
    cold = fit(kind(0.5), X, y, **params, tol=1e-5)
    model = fit(kind(0.4), X, y, **params, tol=1e-5, warm_start=True)
    again = model.fit(X, y)
    assert again.n_iter_ <= 3
    fit(model, X, y, **params, tol=1e-5, C=0.5)  # cuts are scaled with C
    assert model.converged_
    assert model.n_iter_ < cold.n_iter_
    weights = np.ones(len(y))
    weights[0] = 3.0  # and start afresh where that is not enough
    model.fit(X, y, sample_weight=weights)
    fresh = fit(kind(0.5), X, y, weights, **params, tol=1e-5)
    np.testing.assert_array_equal(model.weights_, fresh.weights_)


def test_another_solver_starts_afresh() -> None:
    X, y = multiclass(13, 60)
    for first, second in (("sdm", "one-slack"), ("one-slack", "sdm"), ("one-slack", "fsmo")):
        model = fit(MulticlassSSVM(warm_start=True), X, y, solver=first, tol=1e-4)
        fit(model, X, y, solver=second, tol=1e-4)
        fresh = fit(MulticlassSSVM(), X, y, solver=second, tol=1e-4)
        np.testing.assert_array_equal(model.weights_, fresh.weights_)


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("kind", "params"), RUNS, ids=KINDS)
def test_checkpoint(kind: Any, params: Any, sparse: bool, tmp_path: Any, monkeypatch: Any) -> None:
    if sparse:
        monkeypatch.setattr("hingeline.solvers.one_slack.SHORT", 1)
    X, y = data_for(kind)
    whole = fit(kind(2.0), X, y, **params, tol=1e-5)
    path = tmp_path / "fit.ckpt"

    class KillAt:
        def __init__(self, passes: int) -> None:
            self.passes = passes

        def begin(self, identity: Any, restore: Any) -> bool:
            return False

        def __call__(self, state: Any) -> None:
            if state.row.passes == self.passes:
                raise Killed

    for passes in (1, whole.n_iter_ // 2, whole.n_iter_ - 1):
        callbacks = [Checkpoint(path, every=0, resume=True), KillAt(passes)]
        with pytest.raises(Killed):
            fit(kind(2.0), X, y, **params, tol=1e-5, callbacks=callbacks)
    last = Checkpoint(path, every=0, resume=True)
    resumed = fit(kind(2.0), X, y, **params, tol=1e-5, callbacks=last)
    assert last.resumed_ == whole.n_iter_ - 1
    np.testing.assert_array_equal(resumed.weights_, whole.weights_)
    for a, b in zip(resumed.history_, whole.history_, strict=True):
        np.testing.assert_array_equal(a[1:], b[1:])
