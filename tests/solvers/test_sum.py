"""Summed slack against an independent QP, and what is said where the sum is out of reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hingeline import SSVM, ChainSSVM, MulticlassSSVM

# isort: split
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
CASES = [(0, 0.1, False), (1, 1.0, True), (2, 10.0, False)]


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
    def test_chain(self, seed: int, C: float, weighted: bool, rescale: str, boundary: bool) -> None:
        X, y = random_chains(np.random.default_rng(seed), 10, D, L, 3)
        weights = weights_of(seed, len(y), weighted)
        problem = EnumeratedProblem.from_chains(X, y, L, boundary)
        model = ChainSSVM(fit_intercept=False, boundary=boundary, violators="all")
        check(self.fit(model, X, y, C, seed, rescale, weights), problem, C, rescale, weights)

    def test_planes_of_multiclass(
        self, seed: int, C: float, weighted: bool, rescale: str, monkeypatch: Any
    ) -> None:
        """Too many examples for a dense table of multipliers."""
        monkeypatch.setattr("hingeline.estimators.base.ENUMERATED_MB", 0)
        self.test_multiclass(seed, C, weighted, rescale)
