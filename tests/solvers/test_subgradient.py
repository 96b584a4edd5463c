"""Algorithm 1: how near it comes, and that what it certifies is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hingeline import SSVM, ChainSSVM, MulticlassSSVM

# isort: split
from marks import slow
from reference import (
    EnumeratedProblem,
    nu_primal,
    primal,
    random_chains,
    random_multiclass,
    solve,
    solve_nu,
)

L, D = 3, 4


def chain_weights(model: Any) -> Any:
    blocks = [model.emission_coef_.T.ravel(), model.transition_coef_.ravel()]
    return np.concatenate([*blocks, model.start_coef_, model.end_coef_])


def data(kind: str, seed: int) -> tuple[Any, Any, EnumeratedProblem, Any]:
    rng = np.random.default_rng(seed)
    if kind == "chain":
        X, y = random_chains(rng, 12, D, L, 3)
        return X, y, EnumeratedProblem.from_chains(X, y, L, True), ChainSSVM(fit_intercept=False)
    X, y = random_multiclass(rng, 30, D, L)
    y[:L] = np.arange(L)
    problem = EnumeratedProblem.from_multiclass(X, y, L)
    return X, y, problem, MulticlassSSVM(fit_intercept=False)


def weights_of(model: Any) -> Any:
    return model.coef_.T.ravel() if isinstance(model, MulticlassSSVM) else chain_weights(model)


#: Shares of the largest ν. Steps to within 1 % are some nine times ``‖Δf‖²/(P + νρ)``, which grows
#: without bound towards the least ν; with several classes that is 0.55 to 0.8 of the largest.
NU_SHARES = {"chain": (0.4, 0.55, 0.8), "multiclass": (0.8, 0.85, 0.95)}

SETTINGS = {"solver": "subgradient", "tol": 1e-2, "max_iter": 3000, "random_state": 0}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["chain", "multiclass"])
@pytest.mark.parametrize("seed", [0, slow(1)])
class TestWithinOnePercent:
    def sample_weight(self, n: int, weighted: bool) -> Any:
        if not weighted:
            return None
        weights = np.random.default_rng(5).uniform(0.5, 2.0, size=n)
        weights[3] = 0.0
        return weights

    @pytest.mark.parametrize("rank", [0, 1, 2])
    def test_nu(self, kind: str, seed: int, rank: int, weighted: bool) -> None:
        X, y, problem, model = data(kind, seed)
        weights = self.sample_weight(len(y), weighted)
        s = np.ones(len(y)) if weights is None else weights
        highest = float(s @ [losses.max() for losses in problem.losses] / s.sum())
        nu = NU_SHARES[kind][rank] * highest
        model.set_params(slack="nu", nu=nu, **SETTINGS)
        model.set_params(max_iter=20_000).fit(X, y, sample_weight=weights)
        best = solve_nu(problem, nu, weights)
        scale = best.objective + nu * best.rho
        assert model.converged_
        assert best.objective - 1e-9 <= model.primal_objective_ <= best.objective + 0.01 * scale
        assert model.dual_objective_ <= best.objective + 1e-9
        true = nu_primal(problem, weights_of(model), model.rho_, nu, weights)
        assert model.primal_objective_ == pytest.approx(true, abs=1e-9)
        assert model.margin_error_risk_ <= nu <= model.support_vector_risk_

    @pytest.mark.parametrize("C", [0.03, 0.3])
    def test_max(self, kind: str, seed: int, C: float, weighted: bool) -> None:
        X, y, problem, model = data(kind, seed)
        weights = self.sample_weight(len(y), weighted)
        model.set_params(C=C, **SETTINGS).fit(X, y, sample_weight=weights)
        best = solve(problem, C, sample_weight=weights).objective
        assert model.converged_
        assert best * (1 - 1e-9) <= model.primal_objective_ <= 1.01 * best
        assert model.dual_objective_ <= best * (1 + 1e-9)
        true = primal(problem, weights_of(model), C, sample_weight=weights)
        assert model.primal_objective_ == pytest.approx(true, rel=1e-9)


def test_own_structure(python_chain: Any) -> None:
    X, y = random_chains(np.random.default_rng(0), 6, 2, L, 2)
    problem = EnumeratedProblem.from_chains(X, y, L, False)
    model = SSVM(python_chain(), 0.1, solver="subgradient", random_state=0, max_iter=200)
    model.fit(X, y)
    assert model.converged_
    assert model.primal_objective_ <= 1.01 * solve(problem, 0.1).objective


@pytest.mark.parametrize("slack", ["max", "nu"])
def test_bounds_hold_at_every_pass(slack: str) -> None:
    """The mean of planes is feasible after every whole pass, whatever its length."""
    X, y, problem, model = data("chain", 2)
    model.set_params(slack=slack, nu=1.2 if slack == "nu" else None, **SETTINGS)
    model.set_params(tol=1e-9, max_iter=200)
    if slack != "nu":
        model.set_params(C=0.1)
    with pytest.warns(match="max_iter=200 and"):
        model.fit(X, y)
    best = solve_nu(problem, 1.2).objective if slack == "nu" else solve(problem, 0.1).objective
    assert max(row.dual for row in model.history_) <= best + 1e-9
    primals = [row.primal for row in model.history_ if not np.isnan(row.primal)]
    assert len(primals) > 10
    assert min(primals) >= best - 1e-9
    assert model.history_[-1].planes == 0


def test_same_weights_for_any_number_of_threads() -> None:
    X, y, _, model = data("chain", 1)
    model.set_params(slack="nu", nu=1.0, **SETTINGS)
    model.set_params(max_iter=20, tol=0.5)
    first = model.fit(X, y).weights_
    again = model.set_params(n_jobs=2).fit(X, y).weights_
    assert np.array_equal(first, again)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"slack": "squared"}, "does not solve slack='squared'"),
        ({"slack": "sum"}, "does not solve slack='sum'"),
        ({"rescale": "slack"}, "margin rescaling only"),
        ({"C": float("inf")}, "finite C"),
    ],
)
def test_refused_by_name(params: dict[str, Any], words: str) -> None:
    X, y, _, model = data("multiclass", 0)
    with pytest.raises(ValueError, match=words):
        model.set_params(solver="subgradient", **params).fit(X, y)
