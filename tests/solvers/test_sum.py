"""Summed slack against an independent QP, and what is said where the sum is out of reach."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from hingeline import SSVM, ChainSSVM, MulticlassSSVM
from hingeline.solvers.sdcd import SDCD

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
CASES = [(1, 1.0, True), slow(0, 0.1, False), slow(2, 10.0, False)]


def weights_of(seed: int, n: int, weighted: bool) -> Any:
    if not weighted:
        return None
    weights = np.random.default_rng(100 + seed).uniform(0.2, 2.0, size=n)
    weights[::5] = 0.0
    return weights


def flat(model: Any) -> Any:
    if isinstance(model, MulticlassSSVM):
        return model.coef_.T.ravel()
    if isinstance(model, ChainSSVM):
        blocks = [model.emission_coef_.T.ravel(), model.transition_coef_.ravel()]
        if model.boundary:
            blocks += [model.start_coef_, model.end_coef_]
        return np.concatenate(blocks)
    return model.weights_


def check(model: Any, problem: Any, C: float, rescale: str, weights: Any) -> None:
    spread = spread_weights(problem, weights)
    outputs = by_output(problem)
    best = solve(outputs, C, "max", rescale, spread).objective
    assert model.converged_
    assert model.stop_reason_ == "converged"
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    true = primal(outputs, flat(model), C, "max", rescale, spread)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
    assert 0.0 <= model.duality_gap_ <= TOL * model.primal_objective_
    assert model.dual_objective_ <= best * (1 + 1e-9)
    assert np.isnan(model.restricted_objective_)
    assert np.isnan(model.restricted_gap_)


@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize(("seed", "C", "weighted"), CASES)
class TestOptimum:
    def fit(self, model: Any, X: Any, y: Any, C: float, seed: int, rescale: str, weights: Any):
        model.set_params(
            C=C, slack="sum", rescale=rescale, tol=TOL, max_iter=5000, random_state=seed
        )
        return model.fit(X, y, sample_weight=weights)

    def test_multiclass(self, seed: int, C: float, weighted: bool, rescale: str) -> None:
        X, y = random_multiclass(np.random.default_rng(seed), 20, D, L)
        y[:L] = np.arange(L)
        weights = weights_of(seed, len(y), weighted)
        problem = EnumeratedProblem.from_multiclass(X, y, L)
        model = MulticlassSSVM(fit_intercept=False)
        check(self.fit(model, X, y, C, seed, rescale, weights), problem, C, rescale, weights)

    @pytest.mark.parametrize("boundary", [True, False])
    @pytest.mark.slow
    def test_chain(self, seed: int, C: float, weighted: bool, rescale: str, boundary: bool) -> None:
        X, y = random_chains(np.random.default_rng(seed), 10, D, L, 3)
        weights = weights_of(seed, len(y), weighted)
        problem = EnumeratedProblem.from_chains(X, y, L, boundary)
        model = ChainSSVM(fit_intercept=False, boundary=boundary, violators="all")
        check(self.fit(model, X, y, C, seed, rescale, weights), problem, C, rescale, weights)

    @pytest.mark.slow
    def test_planes_of_multiclass(
        self, seed: int, C: float, weighted: bool, rescale: str, monkeypatch: Any
    ) -> None:
        """Too many examples for a dense table of multipliers."""
        monkeypatch.setattr("hingeline.estimators.base.ENUMERATED_MB", 0)
        self.test_multiclass(seed, C, weighted, rescale)

    @pytest.mark.slow
    def test_compiled_structure(
        self, seed: int, C: float, weighted: bool, rescale: str, compiled_chain: Any
    ) -> None:
        X, y = random_chains(np.random.default_rng(seed), 10, D, L, 3)
        weights = weights_of(seed, len(y), weighted)
        problem = EnumeratedProblem.from_chains(X, y, L, boundary=False)
        model = SSVM(compiled_chain(), violators="all")
        check(self.fit(model, X, y, C, seed, rescale, weights), problem, C, rescale, weights)


def test_python_structure(python_chain: Any) -> None:
    X, y = random_chains(np.random.default_rng(0), 6, D, L, 3)
    problem = EnumeratedProblem.from_chains(X, y, L, boundary=False)
    model = SSVM(python_chain(), 1.0, slack="sum", violators="all", tol=TOL, random_state=0)
    check(model.fit(X, y), problem, 1.0, "margin", None)


COSTS = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 1.0], [3.0, 0.25, 0.0]])


@pytest.mark.parametrize("schedule", ["improved", "published"])
def test_costs_and_schedules(schedule: str) -> None:
    """A cost of 0 off the diagonal still asks for a score that is not larger."""
    options = {"schedule": schedule}
    common: Any = {"slack": "sum", "tol": TOL, "max_iter": 50000, "solver_options": options}
    X, y = random_multiclass(np.random.default_rng(4), 20, D, L)
    problem = EnumeratedProblem.from_multiclass(X, y, L, COSTS)
    flat_model = MulticlassSSVM(1.0, loss=COSTS, fit_intercept=False, **common).fit(X, y)
    check(flat_model, problem, 1.0, "margin", None)
    chains, labels = random_chains(np.random.default_rng(5), 10, D, L, 3)
    problem = EnumeratedProblem.from_chains(chains, labels, L, True, COSTS)
    model = ChainSSVM(1.0, loss=COSTS, fit_intercept=False, violators="all", **common)
    check(model.fit(chains, labels), problem, 1.0, "margin", None)


def test_scaled_loss() -> None:
    """The factor 10 of section V.A: planes (Δf, 10·l)."""
    X, y = random_multiclass(np.random.default_rng(6), 20, D, L)
    problem = EnumeratedProblem.from_multiclass(X, y, L, 10 * (1 - np.eye(L)))
    model = MulticlassSSVM(
        0.1, slack="sum", loss=(10, "zero_one"), tol=TOL, max_iter=5000, fit_intercept=False
    )
    check(model.fit(X, y), problem, 0.1, "margin", None)


def test_two_classes_are_a_binary_svm() -> None:
    """With two classes there is one hinge: sum and max are one problem."""
    X, y = random_multiclass(np.random.default_rng(8), 40, D, 2)
    models = [MulticlassSSVM(1.0, slack=s, tol=1e-10).fit(X, y) for s in ("sum", "max")]
    np.testing.assert_allclose(models[0].weights_, models[1].weights_, atol=1e-5)


class TestRestricted:
    """Chains with ``violators="argmax"`` or a count: a problem over the outputs found."""

    FEW_PASSES: ClassVar = {"slack": "sum", "violators": "all", "max_iter": 3, "random_state": 0}

    def data(self, n: int = 30) -> Any:
        return random_chains(np.random.default_rng(3), n, D, L, 4)

    @pytest.mark.parametrize("schedule", ["improved", "published"])
    @pytest.mark.parametrize("violators", ["argmax", 2, 5])
    def test_what_is_said(self, violators: Any, schedule: str) -> None:
        X, y = self.data()
        model = ChainSSVM(
            0.3,
            slack="sum",
            violators=violators,
            tol=1e-4,
            fit_intercept=False,
            warm_start=True,  # keeps the dual state
            max_iter=20000,
            solver_options={"schedule": schedule},
        ).fit(X, y)
        assert model.converged_
        assert model.stop_reason_ == "converged on the outputs found"
        assert np.isnan(model.duality_gap_)
        assert np.isnan(model.primal_objective_)
        assert all(np.isnan(row.primal) and np.isnan(row.gap) for row in model.history_)
        # The restricted primal, from its definition: outputs found, and the most violated ones.
        planes = model._dual.multipliers
        problem = EnumeratedProblem.from_chains(X, y, L)
        w = flat(model)
        slack = 0.0
        hinges = [loss - dF @ w for dF, loss in zip(problem.dF, problem.losses, strict=True)]
        for i, outputs in enumerate(problem.outputs):
            at = planes.y_start[i]
            size = planes.length[i]
            rows = planes.y[at : at + planes.used[i] * size].reshape(-1, size)
            known = set(map(tuple, rows))
            assert len(known) == planes.used[i]
            best = np.argsort(-hinges[i])[: 1 if violators == "argmax" else violators]
            known |= {tuple(outputs[j]) for j in best}
            pairs = zip(hinges[i], outputs, strict=True)
            slack += sum(max(h, 0.0) for h, output in pairs if tuple(output) in known)
        primal = 0.5 * w @ w + 0.3 * slack
        assert model.restricted_objective_ == pytest.approx(primal, rel=1e-9)
        assert 0 <= model.restricted_gap_ <= 1e-4 * model.restricted_objective_
        # The dual is a bound on the whole problem, too.
        best = solve(by_output(problem), 0.3).objective
        assert model.dual_objective_ <= best * (1 + 1e-9)
        assert model.restricted_objective_ < best

    @pytest.mark.parametrize("violators", ["argmax", 2])
    def test_certificates_add_no_outputs(self, violators: Any, monkeypatch: Any) -> None:
        """The sets define the estimator: Algorithm 2 is the same whether anyone looks or not."""

        def planes_by_pass() -> list[int]:
            model = ChainSSVM(1.0, slack="sum", violators=violators, tol=1e-12, max_iter=14)
            model.set_params(solver_options={"schedule": "published", "kappa1": 3})
            with pytest.warns(ConvergenceWarning):
                model.fit(X, y)
            return [row.planes for row in model.history_]

        X, y = self.data()
        looked_at = planes_by_pass()
        monkeypatch.setattr(SDCD, "certify", lambda solver: np.inf)
        assert planes_by_pass() == looked_at

    def test_more_violators_come_nearer_to_the_whole_problem(self) -> None:
        X, y = self.data()
        fits = [
            ChainSSVM(0.3, slack="sum", violators=v, tol=1e-4, fit_intercept=False).fit(X, y)
            for v in ("argmax", 5, 20, "all")
        ]
        # Each fit bounds its own optimum. Those of 20 and of all outputs are nearly the same.
        below = np.array([fit.dual_objective_ for fit in fits])
        above = np.array([fit.restricted_objective_ for fit in fits[:3]])
        above = np.append(above, fits[3].primal_objective_)
        assert np.all(below[:-1] <= above[1:])
        assert np.all(above[:2] < 0.99 * below[1:3])

    def long_chains(self) -> Any:
        rng = np.random.default_rng(0)
        X = [rng.normal(size=(8, D)) for _ in range(4)]
        return X, [rng.integers(0, L, size=8) for _ in range(4)]

    def test_too_many_outputs_to_list(self) -> None:
        """Chains bound the sum from above."""
        X, y = self.long_chains()
        fits = []
        for most in (10, 3**8 + 1):
            model = ChainSSVM(1e-4, fit_intercept=False, boundary=False, **self.FEW_PASSES)
            model.set_params(solver_options={"max_outputs": most})
            with pytest.warns(ConvergenceWarning):
                fits.append(model.fit(X, y))
        bounded, listed = fits
        np.testing.assert_array_equal(bounded.weights_, listed.weights_)
        assert 0 <= bounded.primal_objective_ / listed.primal_objective_ - 1 < 1e-4

    @pytest.mark.slow
    def test_structures_of_ones_own_have_no_bound(self, compiled_chain: Any) -> None:
        own = SSVM(compiled_chain(), 1e-4, solver_options={"max_outputs": 10}, **self.FEW_PASSES)
        with pytest.warns(ConvergenceWarning):
            own.fit(*self.long_chains())
        assert not own.converged_
        assert own.duality_gap_ == np.inf
        assert (own.weights_ != 0).any()

    def test_threads_and_seeds(self) -> None:
        X, y = self.data(80)
        fits = [
            ChainSSVM(0.3, slack="sum", random_state=s, n_jobs=n).fit(X, y).weights_
            for s, n in ((0, 1), (0, 2), (1, 1))
        ]
        np.testing.assert_array_equal(fits[0], fits[1])
        assert (fits[0] != fits[2]).any()

    def test_printed_stopping_rule(self) -> None:
        """Σδ² ≤ δ stops after κ₁ passes where no change is larger, whatever the gap."""
        X, y = self.data()
        options = {"schedule": "published", "delta": 0.5, "kappa1": 3}
        model = ChainSSVM(0.3, slack="sum", tol=1e-12, solver_options=options).fit(X, y)
        assert model.n_iter_ == 4
        assert model.converged_
        assert "delta=0.5" in model.stop_reason_
        assert np.isfinite(model.restricted_objective_)  # certified once, at the end

    def test_published_passes(self) -> None:
        """Type I at iter 0 to κ₁, then one pass in κ₂."""
        X, y = self.data()
        options = {"schedule": "published", "kappa1": 3, "kappa2": 4}
        model = ChainSSVM(1.0, slack="sum", tol=1e-12, max_iter=14, solver_options=options)
        with pytest.warns(ConvergenceWarning):
            model.fit(X, y)
        planes = [row.planes for row in model.history_]
        calls = np.diff([0, *(row.oracle_calls for row in model.history_)])
        quiet = [k for k in range(14) if calls[k] == 0]
        assert set(quiet) <= {4, 5, 6, 7, 9, 10, 11, 13}  # certificates decode, too
        assert len(quiet) >= 5
        assert planes[-1] > planes[0]

    def test_warm_start_at_another_C(self) -> None:
        X, y = self.data()
        model = ChainSSVM(0.3, slack="sum", tol=1e-3, warm_start=True).fit(X, y)
        cold = model.history_[-1].oracle_calls
        model.set_params(C=0.33).fit(X, y)
        assert model.converged_
        assert model.history_[-1].oracle_calls < cold


def test_refused(python_multiclass: Any) -> None:
    X, y = random_multiclass(np.random.default_rng(0), 10, D, L)
    with pytest.raises(ValueError, match=r"violators='all'.*PythonMulticlass.*decode_best"):
        SSVM(python_multiclass(), slack="sum", violators="all").fit(list(X), list(y))
    chains, labels = random_chains(np.random.default_rng(0), 4, D, L, 3)
    with pytest.raises(ValueError, match="violators=3 has no exact oracle under rescale='slack'"):
        ChainSSVM(slack="sum", violators=3, rescale="slack").fit(chains, labels)


@pytest.mark.parametrize("slack", ["sum", "max"])
def test_hard_margin_is_one_problem(slack: str) -> None:
    X, y = random_multiclass(np.random.default_rng(0), 30, 6, L, separable=True)
    hard = MulticlassSSVM(np.inf, slack=slack, tol=1e-6, random_state=0).fit(X, y)
    other = MulticlassSSVM(np.inf, tol=1e-6, random_state=0).fit(X, y)
    assert hard.converged_
    assert hard.primal_objective_ == pytest.approx(other.primal_objective_, rel=1e-5)


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("HINGELINE_DATA"), reason="HINGELINE_DATA is not set")
@pytest.mark.parametrize(("name", "C"), [("letter", 0.1), slow("usps", 0.01)])
def test_solvers_agree_on_real_data(name: str, C: float) -> None:
    """Each is within its certified gap of the optimum, hence of the other."""
    from published import load_letter, load_usps

    split = {"letter": load_letter, "usps": load_usps}[name]()
    fits = [
        MulticlassSSVM(C, slack="sum", solver=solver, tol=1e-3, random_state=0).fit(
            split.X_train, split.y_train
        )
        for solver in ("sdcd", "one-slack")
    ]
    assert all(model.converged_ for model in fits)
    primals = [model.primal_objective_ for model in fits]
    assert primals[0] == pytest.approx(primals[1], rel=1e-3)
    assert max(model.dual_objective_ for model in fits) <= min(primals)
    scores = [model.score(split.X_test, split.y_test) for model in fits]
    assert abs(scores[0] - scores[1]) < 0.01
