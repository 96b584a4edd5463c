"""Every solver x slack x rescaling x structure reaches the optimum of an independent QP."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from hingeline import SSVM, ChainSSVM, MulticlassSSVM

# isort: split
from marks import slow
from reference import EnumeratedProblem, primal, random_chains, random_multiclass, solve

SOLVERS = ("sdm", "fsmo")
#: Solvers of linear slack alone, with their kind of steps.
FRANK_WOLFE = ("bcfw pairwise", "bcfw away")
FORMULATIONS = list(itertools.product(("max", "squared"), ("margin", "slack")))
#: Every solver with every formulation it knows.
COMBINED = [
    *((solver, *formulation) for solver in SOLVERS for formulation in FORMULATIONS),
    *((solver, "max", rescale) for solver in FRANK_WOLFE for rescale in ("margin", "slack")),
]
TOL = 1e-8
#: (seed, C, whether some examples have weights, some of them zero)
CASES = [
    (1, 1.0, True),
    *(slow(*case) for case in [(0, 0.1, False), (2, 10.0, False), (3, 10.0, True)]),
]
L, D = 3, 4


def named(solver: str) -> dict[str, Any]:
    """The estimator's parameters for a solver of the lists above."""
    name, _, steps = solver.partition(" ")
    return {"solver": name, "solver_options": {"steps": steps} if steps else None}


def _weights(seed: int, n: int, weighted: bool) -> Any:
    if not weighted:
        return None
    weights = np.random.default_rng(100 + seed).uniform(0.2, 2.0, size=n)
    weights[::5] = 0.0
    return weights


@cache
def multiclass_data(seed: int, separable: bool = False) -> Any:
    X, y = random_multiclass(np.random.default_rng(seed), 20, D, L, separable)
    y[:L] = np.arange(L) if not separable else y[:L]
    return X, y


@cache
def chain_data(seed: int, separable: bool = False) -> Any:
    return random_chains(np.random.default_rng(seed), 10, D, L, 3, separable)


@cache
def optimum(kind: str, seed: int, C: float, slack: str, rescale: str, weighted: bool) -> Any:
    """The enumerated problem, its sample weights and its optimal value."""
    separable = np.isinf(C)
    if kind == "multiclass":
        X, y = multiclass_data(seed, separable)
        problem = EnumeratedProblem.from_multiclass(X, y, L)
    else:
        X, y = chain_data(seed, separable)
        problem = EnumeratedProblem.from_chains(X, y, L, boundary=kind == "boundary chain")
    weights = _weights(seed, len(y), weighted)
    return problem, weights, solve(problem, C, slack, rescale, weights).objective


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


def check(
    model: Any, problem: Any, best: float, C: float, slack: str, rescale: str, weights: Any
) -> None:
    assert model.converged_
    assert model.stop_reason_ == "converged"
    assert model.oracle_exact_ is True
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    true = primal(problem, flat(model), C, slack, rescale, weights)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
    assert 0.0 <= model.duality_gap_ <= TOL * model.primal_objective_
    assert model.dual_objective_ <= best * (1 + 1e-9)
    assert model.duality_gap_ == pytest.approx(
        max(model.primal_objective_ - model.dual_objective_, 0.0), abs=1e-12
    )


def run(
    model: Any, kind: str, seed: int, C: float, slack: str, rescale: str, weighted: bool
) -> None:
    model.set_params(C=C, slack=slack, rescale=rescale, tol=TOL, random_state=seed)
    model.set_params(max_iter=5000)
    X, y = (multiclass_data if kind == "multiclass" else chain_data)(seed, np.isinf(C))
    problem, weights, best = optimum(kind, seed, C, slack, rescale, weighted)
    model.fit(X, y, sample_weight=weights)
    check(model, problem, best, C, slack, rescale, weights)


@pytest.mark.parametrize(("seed", "C", "weighted"), CASES)
@pytest.mark.parametrize(("solver", "slack", "rescale"), COMBINED)
class TestFinite:
    def test_multiclass(
        self, solver: str, slack: str, rescale: str, seed: int, C: float, weighted: bool
    ) -> None:
        model = MulticlassSSVM(**named(solver), fit_intercept=False)
        run(model, "multiclass", seed, C, slack, rescale, weighted)

    @pytest.mark.parametrize("boundary", [True, False])
    def test_chain(
        self,
        solver: str,
        slack: str,
        rescale: str,
        seed: int,
        C: float,
        weighted: bool,
        boundary: bool,
    ) -> None:
        model = ChainSSVM(**named(solver), fit_intercept=False, boundary=boundary)
        kind = "boundary chain" if boundary else "chain"
        run(model, kind, seed, C, slack, rescale, weighted)

    @pytest.mark.slow
    def test_compiled_structure(
        self,
        compiled_chain: Any,
        solver: str,
        slack: str,
        rescale: str,
        seed: int,
        C: float,
        weighted: bool,
    ) -> None:
        model = SSVM(compiled_chain(), **named(solver))
        run(model, "chain", seed, C, slack, rescale, weighted)


@pytest.mark.parametrize(("seed", "C", "weighted"), [(1, 1.0, True)])
@pytest.mark.parametrize(("solver", "slack", "rescale"), COMBINED)
def test_python_structure(
    python_multiclass: Any,
    solver: str,
    slack: str,
    rescale: str,
    seed: int,
    C: float,
    weighted: bool,
) -> None:
    model = SSVM(python_multiclass(), **named(solver))
    run(model, "multiclass", seed, C, slack, rescale, weighted)


@pytest.mark.parametrize(("seed", "weighted"), [(1, True), slow(0, False), slow(0, True)])
@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize("solver", SOLVERS)
class TestHardMargin:
    @pytest.mark.parametrize("slack", ["max", "squared"])
    def test_multiclass(
        self, solver: str, slack: str, rescale: str, seed: int, weighted: bool
    ) -> None:
        model = MulticlassSSVM(**named(solver), fit_intercept=False)
        run(model, "multiclass", seed, np.inf, slack, rescale, weighted)

    @pytest.mark.parametrize("slack", ["max", "squared"])
    def test_chain(self, solver: str, slack: str, rescale: str, seed: int, weighted: bool) -> None:
        model = ChainSSVM(**named(solver), fit_intercept=False)
        run(model, "boundary chain", seed, np.inf, slack, rescale, weighted)

    @pytest.mark.slow
    def test_compiled_structure(
        self, compiled_chain: Any, solver: str, rescale: str, seed: int, weighted: bool
    ) -> None:
        model = SSVM(compiled_chain(), **named(solver))
        run(model, "chain", seed, np.inf, "max", rescale, weighted)


@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_margin_python_structure(python_multiclass: Any, solver: str, rescale: str) -> None:
    model = SSVM(python_multiclass(), **named(solver))
    run(model, "multiclass", 0, np.inf, "max", rescale, False)


@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_margin_of_some_size(solver: str) -> None:
    """Examples whose hinges are positive must be visited however large their multipliers are."""
    X, y = random_multiclass(np.random.default_rng(0), 200, 10, 5, separable=True)
    model = MulticlassSSVM(np.inf, solver=solver, tol=1e-2, random_state=0).fit(X, y)
    assert model.converged_
    assert model.primal_objective_ == pytest.approx(41.8, rel=2e-2)


COSTS = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 0.25, 0.0]])


@pytest.mark.parametrize("C", [slow(0.1), 1.0, slow(10.0)])
@pytest.mark.parametrize(("solver", "slack", "rescale"), COMBINED)
def test_multiclass_cost_matrix(solver: str, slack: str, rescale: str, C: float) -> None:
    X, y = multiclass_data(4)
    problem = EnumeratedProblem.from_multiclass(X, y, L, COSTS)
    model = MulticlassSSVM(
        C,
        slack=slack,
        rescale=rescale,
        loss=COSTS,
        **named(solver),
        tol=TOL,
        max_iter=5000,
        fit_intercept=False,
        random_state=0,
    ).fit(X, y)
    check(model, problem, solve(problem, C, slack, rescale).objective, C, slack, rescale, None)


FREE = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize("seed", [1, slow(3)])
@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize(
    ("solver", "C"),
    [*itertools.product((*SOLVERS, *FRANK_WOLFE), (1.0,)), *((s, np.inf) for s in SOLVERS)],
)
def test_a_cost_of_zero_off_the_diagonal(solver: str, rescale: str, C: float, seed: int) -> None:
    X, y = multiclass_data(seed, np.isinf(C))
    problem = EnumeratedProblem.from_multiclass(X, y, L, FREE)
    model = MulticlassSSVM(
        C,
        rescale=rescale,
        loss=FREE,
        **named(solver),
        tol=TOL,
        max_iter=1000,
        fit_intercept=False,
        random_state=0,
    ).fit(X, y)
    check(model, problem, solve(problem, C, "max", rescale).objective, C, "max", rescale, None)


@pytest.mark.parametrize("costs", [np.array([0.5, 1.0, 3.0]), COSTS], ids=["per label", "matrix"])
@pytest.mark.parametrize("C", [slow(0.1), 1.0, slow(10.0)])
@pytest.mark.parametrize("solver", [*SOLVERS, *FRANK_WOLFE])
def test_chain_costs(solver: str, C: float, costs: Any) -> None:
    X, Y = chain_data(5)
    problem = EnumeratedProblem.from_chains(X, Y, L, True, costs)
    model = ChainSSVM(
        C, loss=costs, **named(solver), tol=TOL, max_iter=5000, fit_intercept=False, random_state=0
    ).fit(X, Y)
    check(model, problem, solve(problem, C).objective, C, "max", "margin", None)


@pytest.mark.parametrize("solver", SOLVERS)
def test_scaled_loss(solver: str) -> None:
    X, Y = chain_data(6)
    problem = EnumeratedProblem.from_chains(X, Y, L, True, 2.5 * (1 - np.eye(L)))
    for slack, rescale in FORMULATIONS:
        model = ChainSSVM(
            1.0,
            slack=slack,
            rescale=rescale,
            loss=(2.5, "hamming"),
            **named(solver),
            tol=TOL,
            max_iter=5000,
            fit_intercept=False,
            random_state=0,
        ).fit(X, Y)
        best = solve(problem, 1.0, slack, rescale).objective
        check(model, problem, best, 1.0, slack, rescale, None)


@pytest.mark.slow
@pytest.mark.parametrize("C", [1.0, np.inf])
@pytest.mark.parametrize(
    ("solver", "slack", "rescale"), [*COMBINED, ("one-slack", "max", "margin")]
)
def test_zero_one_loss_of_chains(solver: str, slack: str, rescale: str, C: float) -> None:
    if np.isinf(C) and solver not in SOLVERS:
        pytest.skip("hard margins are for others")
    scale = 1.0 if np.isinf(C) else 2.5
    X, Y = chain_data(6, np.isinf(C))
    problem = EnumeratedProblem.from_chains(X, Y, L, True)
    problem = replace(problem, losses=[np.full(len(part), scale) for part in problem.losses])
    model = ChainSSVM(
        C,
        slack=slack,
        rescale=rescale,
        loss=(scale, "zero_one"),
        **named(solver),
        tol=TOL,
        max_iter=5000,
        fit_intercept=False,
        random_state=0,
    ).fit(X, Y)
    best = solve(problem, C, slack, rescale).objective
    check(model, problem, best, C, slack, rescale, None)


@pytest.mark.parametrize("solver", [*SOLVERS, *FRANK_WOLFE])
def test_intercept_is_a_constant_feature(solver: str) -> None:
    X, y = multiclass_data(7)
    problem = EnumeratedProblem.from_multiclass(np.column_stack([X, np.ones(len(X))]), y, L)
    model = MulticlassSSVM(1.0, **named(solver), tol=TOL, max_iter=5000, random_state=0).fit(X, y)
    w = np.concatenate([model.coef_.T.ravel(), model.intercept_])
    assert model.primal_objective_ == pytest.approx(solve(problem, 1.0).objective, rel=1e-6)
    assert model.primal_objective_ == pytest.approx(primal(problem, w, 1.0), rel=1e-9)


def _contradiction() -> Any:
    """The same input with two labels, and as a chain."""
    X = np.array([[1.0, 0.5], [1.0, 0.5], [-1.0, 1.0], [0.3, -2.0]])
    return X, np.array([0, 1, 2, 1])


@pytest.mark.parametrize("rescale", ["margin", "slack"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", ["contradiction", "noise"])
class TestInseparable:
    def data(self, kind: str) -> Any:
        return _contradiction() if kind == "contradiction" else multiclass_data(2)

    def test_multiclass(self, kind: str, solver: str, rescale: str) -> None:
        X, y = self.data(kind)
        model = MulticlassSSVM(np.inf, rescale=rescale, solver=solver, random_state=0)
        with pytest.raises(ValueError, match=r"C=inf.*not separable.*finite C"):
            model.fit(X, y)

    def test_chain(self, kind: str, solver: str, rescale: str) -> None:
        X, y = self.data(kind)
        model = ChainSSVM(np.inf, rescale=rescale, solver=solver, random_state=0)
        with pytest.raises(ValueError, match=r"C=inf.*not separable.*finite C"):
            model.fit([x[None] for x in X], [[label] for label in y])

    def test_structure(self, python_multiclass: Any, kind: str, solver: str, rescale: str) -> None:
        X, y = self.data(kind)
        model = SSVM(python_multiclass(), np.inf, rescale=rescale, solver=solver, random_state=0)
        with pytest.raises(ValueError, match=r"C=inf.*not separable.*finite C"):
            model.fit(list(X), list(y))
