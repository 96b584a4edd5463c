"""slack="nu" against an independent QP of (7), against the C-problem, and its properties."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hingeline import SSVM, ChainSSVM, MulticlassSSVM
from hingeline.solvers.nu import NuSearch, mixture_value

# isort: split
from marks import slow
from reference import (
    EnumeratedProblem,
    nu_primal,
    nu_shares,
    random_chains,
    random_multiclass,
    solve,
    solve_nu,
)

TOL = 1e-8
L, D = 3, 4
#: (seed, whether some examples have weights, some of them zero)
CASES = [(1, True), slow(0, False), slow(2, False)]
#: Shares of the way from the least admissible ν to the largest.
SHARES = (0.1, 0.4, 0.8, 1.0)


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


def highest(problem: EnumeratedProblem, weights: Any) -> float:
    """The largest admissible ν."""
    largest = [losses.max(initial=0.0) for losses in problem.losses]
    return float(nu_shares(problem, weights) @ largest)


def lowest(problem: EnumeratedProblem, weights: Any) -> float:
    """About the least admissible ν: the mean hinge at a large C."""
    C = 1e3
    w = solve(problem, C, sample_weight=weights).w
    hinges = [
        (losses - dF @ w).max(initial=0.0)
        for dF, losses in zip(problem.dF, problem.losses, strict=True)
    ]
    return float(nu_shares(problem, weights) @ hinges)


def risks(problem: EnumeratedProblem, model: Any, weights: Any, tie: float) -> tuple[float, float]:
    """Margin-error and support-vector risk by enumeration, outputs within ``tie·ρ·l`` tied."""
    shares = nu_shares(problem, weights)
    w, rho = flat(model), model.rho_
    below = above = 0.0
    for share, dF, losses in zip(shares, problem.dF, problem.losses, strict=True):
        for factor in (1.0 - tie, 1.0 + tie):
            h = np.r_[0.0, factor * rho * losses - dF @ w]
            loss = np.r_[0.0, losses][np.argmax(h)]
            if factor < 1.0:
                below += share * loss
            else:
                above += share * loss
    return below, above


def check(model: Any, problem: EnumeratedProblem, nu: float, weights: Any) -> None:
    best = solve_nu(problem, nu, weights)
    scale = best.objective + nu * best.rho
    assert model.converged_
    assert model.stop_reason_ == "converged"
    assert model.oracle_exact_ is True
    assert model.nu_ == nu
    assert model.rho_ > 0.0
    assert model.primal_objective_ == pytest.approx(best.objective, abs=1e-6 * scale)
    assert model.primal_objective_ == pytest.approx(best.objective, rel=1e-5)
    true = nu_primal(problem, flat(model), model.rho_, nu, weights)
    assert model.primal_objective_ == pytest.approx(true, abs=1e-9 * scale)
    assert 0.0 <= model.duality_gap_ <= TOL * (model.primal_objective_ + nu * model.rho_)
    assert model.dual_objective_ <= best.objective + 1e-8 * scale
    assert np.linalg.norm(flat(model) - best.w) <= 1e-3 * np.linalg.norm(best.w)
    # The C-problem at C_ has the weights w/ρ.
    total = problem.n_examples if weights is None else float(np.sum(weights))
    assert pytest.approx(1.0 / (total * model.rho_)) == model.C_
    equivalent = solve(problem, model.C_, sample_weight=weights)
    scaled = flat(model) / model.rho_
    assert np.linalg.norm(scaled - equivalent.w) <= 3e-3 * np.linalg.norm(equivalent.w)
    # Proposition 1.
    assert model.margin_error_risk_ <= nu <= model.support_vector_risk_
    below, above = risks(problem, model, weights, 2e-3)
    assert below <= model.margin_error_risk_ + 1e-12
    assert above >= model.support_vector_risk_ - 1e-12
    active = problem.n_examples if weights is None else int(np.count_nonzero(weights))
    counts = (model.n_margin_errors_, model.n_on_margin_, model.n_beyond_margin_)
    assert sum(counts) == active


def fit(model: Any, X: Any, y: Any, nu: float, seed: int, weights: Any) -> Any:
    model.set_params(slack="nu", nu=nu, tol=TOL, random_state=seed, max_iter=5000)
    return model.fit(X, y, sample_weight=weights)


def nu_at(problem: EnumeratedProblem, weights: Any, share: float) -> float:
    low, high = lowest(problem, weights), highest(problem, weights)
    return high if share == 1.0 else low + share * (high - low)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("seed", "weighted"), CASES)
class TestOptimum:
    def test_multiclass(self, seed: int, weighted: bool, share: float) -> None:
        X, y = random_multiclass(np.random.default_rng(seed), 20, D, L)
        y[:L] = np.arange(L)
        weights = weights_of(seed, len(y), weighted)
        problem = EnumeratedProblem.from_multiclass(X, y, L)
        nu = nu_at(problem, weights, share)
        model = MulticlassSSVM(scale=False, fit_intercept=False)
        check(fit(model, X, y, nu, seed, weights), problem, nu, weights)

    @pytest.mark.parametrize("boundary", [True, False])
    def test_chain(self, seed: int, weighted: bool, share: float, boundary: bool) -> None:
        X, y = random_chains(np.random.default_rng(seed), 10, D, L, 3)
        weights = weights_of(seed, len(y), weighted)
        problem = EnumeratedProblem.from_chains(X, y, L, boundary)
        nu = nu_at(problem, weights, share)
        model = ChainSSVM(scale=False, fit_intercept=False, boundary=boundary)
        check(fit(model, X, y, nu, seed, weights), problem, nu, weights)

    def test_planes_of_multiclass(
        self, seed: int, weighted: bool, share: float, monkeypatch: Any
    ) -> None:
        """Too many examples for a dense table of multipliers."""
        monkeypatch.setattr("hingeline.estimators.base.ENUMERATED_MB", 0)
        self.test_multiclass(seed, weighted, share)

    @pytest.mark.slow
    def test_compiled_structure(
        self, compiled_chain: Any, seed: int, weighted: bool, share: float
    ) -> None:
        X, y = random_chains(np.random.default_rng(seed), 10, D, L, 3)
        weights = weights_of(seed, len(y), weighted)
        problem = EnumeratedProblem.from_chains(X, y, L, False)
        nu = nu_at(problem, weights, share)
        check(fit(SSVM(compiled_chain()), X, y, nu, seed, weights), problem, nu, weights)


def test_python_structure(python_multiclass: Any) -> None:
    X, y = random_multiclass(np.random.default_rng(1), 20, D, L)
    y[:L] = np.arange(L)
    problem = EnumeratedProblem.from_multiclass(X, y, L)
    nu = nu_at(problem, None, 0.5)
    check(fit(SSVM(python_multiclass()), list(X), list(y), nu, 0, None), problem, nu, None)


COSTS = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 0.25, 0.0]])


@pytest.mark.parametrize("share", SHARES)
def test_costs(share: float) -> None:
    """Losses that differ: the risks are no longer counts."""
    X, y = random_multiclass(np.random.default_rng(4), 20, D, L)
    y[:L] = np.arange(L)
    problem = EnumeratedProblem.from_multiclass(X, y, L, COSTS)
    nu = nu_at(problem, None, share)
    model = MulticlassSSVM(scale=False, fit_intercept=False, loss=COSTS)
    check(fit(model, X, y, nu, 0, None), problem, nu, None)
    X, Y = random_chains(np.random.default_rng(5), 10, D, L, 3)
    problem = EnumeratedProblem.from_chains(X, Y, L, True, COSTS)
    nu = nu_at(problem, None, share)
    model = ChainSSVM(scale=False, fit_intercept=False, loss=COSTS)
    check(fit(model, X, Y, nu, 0, None), problem, nu, None)


@pytest.mark.parametrize("kind", ["multiclass", "planes", "chain"])
@pytest.mark.parametrize("share", [slow(0.1), 0.4, slow(0.8), 1.0])
def test_first_margin_from_samples(kind: str, share: float, monkeypatch: Any) -> None:
    """Whatever samples say, the solution is the same; they are asked where decoding costs."""
    asked = []
    sample_of = NuSearch._sample
    monkeypatch.setattr(
        NuSearch, "_sample", lambda *args: asked.append(sample_of(*args)) or asked[-1]
    )
    monkeypatch.setattr("hingeline.solvers.nu.SAMPLED", 10)
    monkeypatch.setattr("hingeline.solvers.nu.ONE_IN", 2)
    if kind == "chain":
        X, y = random_chains(np.random.default_rng(3), 10, D, L, 3)
        problem = EnumeratedProblem.from_chains(X, y, L, True)
        model: Any = ChainSSVM(scale=False, fit_intercept=False)
    else:
        if kind == "planes":
            monkeypatch.setattr("hingeline.estimators.base.ENUMERATED_MB", 0)
        X, y = random_multiclass(np.random.default_rng(3), 20, D, L)
        y[:L] = np.arange(L)
        problem = EnumeratedProblem.from_multiclass(X, y, L)
        model = MulticlassSSVM(scale=False, fit_intercept=False)
    nu = nu_at(problem, None, share)
    check(fit(model, X, y, nu, 0, None), problem, nu, None)
    assert (len(asked) >= 1) == (kind != "multiclass")
    assert all(sample is None or len(sample.active) < len(y) for sample in asked)
    first = model.weights_
    assert np.array_equal(fit(model, X, y, nu, 0, None).weights_, first)


# The ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [1e-3, 0.05])
@pytest.mark.parametrize("kind", ["multiclass", "chain"])
def test_separable_data_have_no_least_nu(kind: str, nu: float) -> None:
    """At small ν the weights are those of the hard margin, up to scale."""
    if kind == "multiclass":
        X, y = random_multiclass(np.random.default_rng(0), 20, D, L, separable=True)
        problem = EnumeratedProblem.from_multiclass(X, y, L)
        model: Any = MulticlassSSVM(scale=False, fit_intercept=False)
    else:
        X, y = random_chains(np.random.default_rng(0), 10, D, L, 3, True)
        problem = EnumeratedProblem.from_chains(X, y, L, True)
        model = ChainSSVM(scale=False, fit_intercept=False)
    fit(model, X, y, nu, 0, None)
    hard = solve(problem, np.inf)
    assert model.converged_
    assert np.linalg.norm(flat(model) / model.rho_ - hard.w) <= 1e-3 * np.linalg.norm(hard.w)
    assert model.n_margin_errors_ == 0
    assert model.margin_error_risk_ == 0.0
    # There the value of (7) is −½ν²/‖hard‖².
    assert model.primal_objective_ == pytest.approx(-0.5 * nu**2 / (hard.w @ hard.w), rel=1e-5)


@pytest.mark.parametrize("kind", ["multiclass", "chain", "structure"])
def test_nu_at_or_below_its_least_value(kind: str, python_multiclass: Any) -> None:
    """Its solution is w = 0 with ρ = 0, which is said."""
    X, y = random_multiclass(np.random.default_rng(0), 20, D, L)
    problem = EnumeratedProblem.from_multiclass(X, y, L)
    nu = 0.5 * lowest(problem, None)
    assert solve_nu(problem, nu).objective == pytest.approx(0.0, abs=1e-9)
    if kind == "multiclass":
        model: Any = MulticlassSSVM(scale=False, fit_intercept=False)
    elif kind == "chain":
        model = ChainSSVM(scale=False, fit_intercept=False, boundary=False)
        X, y = [x[None] for x in X], [[label] for label in y]
    else:
        model = SSVM(python_multiclass())
        X, y = list(X), list(y)
    with pytest.warns(UserWarning, match=r"nu=.* not above its least value.*at most .*larger nu"):
        fit(model, X, y, nu, 0, None)
    assert model.rho_ == 0.0
    assert np.isinf(model.C_)
    assert not model.weights_.any()
    assert model.converged_
    assert model.primal_objective_ == 0.0
    assert -1e-6 < model.dual_objective_ <= 0.0
    assert model.margin_error_risk_ <= nu <= model.support_vector_risk_
    assert model.n_on_margin_ == 20


def test_nu_above_its_largest_value() -> None:
    X, y = random_multiclass(np.random.default_rng(0), 20, D, L)
    with pytest.raises(ValueError, match=r"nu=1\.1 is above 1,.*0 < nu <= 1\."):
        MulticlassSSVM(slack="nu", nu=1.1).fit(X, y)
    X, Y = random_chains(np.random.default_rng(0), 10, D, L, 3)
    longest = np.mean([len(labels) for labels in Y])
    with pytest.raises(ValueError, match=rf"nu=50 is above {longest:g},.*mean of the largest"):
        ChainSSVM(slack="nu", nu=50).fit(X, Y)


def test_plateau() -> None:
    """Two far groups: between their margins no ρ changes ν, and every ρ of an interval is best."""
    # Pairs on a line: five at distance 1 and five at distance 10 from the origin. With ν = ½ the
    # near ones are full and the far ones empty for a range of ρ.
    x = np.r_[np.ones(5), np.full(5, 10.0)]
    X = np.concatenate([x, -x])[:, None]
    y = np.repeat([1, 0], 10)
    problem = EnumeratedProblem.from_multiclass(X, y, 2)
    best = solve_nu(problem, 0.5)
    levels = [nu_primal(problem, best.w, rho, 0.5) for rho in np.linspace(0.5, 20.0, 400)]
    flat_part = np.linspace(0.5, 20.0, 400)[np.isclose(levels, best.objective, atol=1e-7)]
    assert flat_part[-1] > 2 * flat_part[0]  # a plateau indeed
    model = fit(MulticlassSSVM(scale=False, fit_intercept=False), X, y, 0.5, 0, None)
    assert model.primal_objective_ == pytest.approx(best.objective, rel=1e-6)
    assert np.allclose(flat(model), best.w, atol=1e-4)
    assert flat_part[0] * 0.99 <= model.rho_ <= flat_part[-1] * 1.01
    assert model.margin_error_risk_ == pytest.approx(0.5)
    # Just beside it ρ leaves the interval, the weights follow continuously.
    for nu, side in ((0.499, -1), (0.501, 1)):
        near = fit(MulticlassSSVM(scale=False, fit_intercept=False), X, y, nu, 0, None)
        assert np.allclose(flat(near), flat(model), atol=0.05)
        edge = flat_part[0] if side < 0 else flat_part[-1]
        assert side * (near.rho_ - edge) > -0.1 * edge


# Properties --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    chains=st.booleans(),
    n=st.integers(3, 25),
    share=st.floats(0.02, 1.0),
    tol=st.sampled_from([1e-2, 1e-5]),
    solver=st.sampled_from(["sdm", "subgradient"]),
    weighted=st.booleans(),
)
def test_proposition_1(
    seed: int, chains: bool, n: int, share: float, tol: float, solver: str, weighted: bool
) -> None:
    """ν bounds the risk of margin errors from above and that of support vectors from below."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 3.0, size=n) if weighted else None
    if chains:
        X, y = random_chains(rng, n, D, L, 3)
        assume(len(set(np.concatenate(y).tolist())) == L)
        problem = EnumeratedProblem.from_chains(X, y, L, True)
        model: Any = ChainSSVM(scale=False, fit_intercept=False)
    else:
        X, y = random_multiclass(rng, n, D, L)
        y[:L] = np.arange(L)
        problem = EnumeratedProblem.from_multiclass(X, y, L)
        model = MulticlassSSVM(scale=False, fit_intercept=False)
    nu = share * highest(problem, weights)
    model.set_params(slack="nu", nu=nu, tol=tol, solver=solver, random_state=seed, max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where ν is too low, or 50 passes too few
        model.fit(X, y, sample_weight=weights)
    assert model.margin_error_risk_ <= nu <= model.support_vector_risk_ * (1 + 1e-12)
    counts = (model.n_margin_errors_, model.n_on_margin_, model.n_beyond_margin_)
    assert sum(counts) == n
    if model.rho_ > 0.0:
        below, above = risks(problem, model, weights, 2e-3)
        assert below <= nu * (1 + 1e-12)
        assert above >= nu * (1 - 1e-12)
    # Weak duality, and (7) at the weights and ρ that are stored.
    true = nu_primal(problem, flat(model), model.rho_, nu, weights)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-7, abs=1e-12)
    assert model.dual_objective_ <= model.primal_objective_ + 1e-12


def test_weak_duality_at_every_pass() -> None:
    X, Y = random_chains(np.random.default_rng(1), 10, D, L, 3)
    problem = EnumeratedProblem.from_chains(X, Y, L, True)
    nu = nu_at(problem, None, 0.5)
    best = solve_nu(problem, nu)
    model = fit(ChainSSVM(scale=False, fit_intercept=False), X, Y, nu, 0, None)
    slack = 1e-9 * (best.objective + nu * best.rho)
    duals = [row.dual for row in model.history_]
    primals = [row.primal for row in model.history_ if not np.isnan(row.primal)]
    assert max(duals) <= best.objective + slack
    assert min(primals) >= best.objective - slack
    assert duals == sorted(duals)
    last = model.history_[-1]
    assert last.scale == pytest.approx(last.primal + nu * model.rho_)
    assert last.gap / last.scale <= TOL


def test_no_mixture_is_better_than_no_weights() -> None:
    """Minus half a square, which rounding made negative where two points all but cancel."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        a = rng.normal(size=3)
        value = mixture_value(a, 1.5, -rng.uniform(1.0, 10.0) * a, 0.5, 1.0)
        assert -1e-13 < value <= 0.0
