"""With a tag scheme the optimum is that of an independent QP over the valid outputs only."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from hingeline import ChainSSVM

# isort: split
from marks import slow
from naive import chain_joint_feature, chain_size, hamming
from reference import EnumeratedProblem, primal, solve

#: Kernels are compiled for schemes anew; by default without schemes, all solvers and slacks.
SOLVERS = ("sdm", slow("fsmo"))
FORMULATIONS = [
    ("max", "margin"),
    *itertools.starmap(slow, [("squared", "margin"), ("max", "slack"), ("squared", "slack")]),
]
TOL = 1e-8
D = 3
#: Sorted labels and what a valid sequence of their first letters looks like.
SCHEMES = {
    "IOB2": (["B-X", "I-X", "O"], r"(O|BI*)*"),
    "IOBES": (["B-X", "E-X", "I-X", "O", "S-X"], r"(O|S|BI*E)*"),
}


def valid_outputs(scheme: str, length: int) -> list[tuple[int, ...]]:
    names, pattern = SCHEMES[scheme]
    every = itertools.product(range(len(names)), repeat=length)
    return [y for y in every if re.fullmatch(pattern, "".join(names[k][0] for k in y))]


@cache
def data(scheme: str, seed: int) -> Any:
    """Tokens that hint at the labels of random valid sequences, noisily."""
    rng = np.random.default_rng(seed)
    names, _ = SCHEMES[scheme]
    prototypes = rng.normal(size=(len(names), D))
    X, Y = [], []
    for i in range(10):
        length = 1 + i % 3
        choices = valid_outputs(scheme, length)
        y = np.array(choices[rng.integers(len(choices))])
        X.append(prototypes[y] + rng.normal(size=(length, D)))
        Y.append(y)
    Y[2][:] = 0 if scheme == "IOB2" else 4  # so that no label is missing
    Y[5] = np.array([0, 1, 2] if scheme == "IOB2" else [0, 2, 1])
    Y[1] = np.array([2, 0] if scheme == "IOB2" else [3, 4])
    return X, Y


def enumerated(scheme: str | None, labels_of: str, seed: int, boundary: bool) -> Any:
    X, Y = data(labels_of, seed)
    L = len(SCHEMES[labels_of][0])
    outputs = [
        list(itertools.product(range(L), repeat=len(y)))
        if scheme is None
        else valid_outputs(scheme, len(y))
        for y in Y
    ]
    return EnumeratedProblem.from_callables(
        X,
        [tuple(y.tolist()) for y in Y],
        outputs,
        lambda x, y: chain_joint_feature(x, y, L, boundary),
        hamming,
        n_features=chain_size(D, L, boundary),
    )


def flat(model: ChainSSVM) -> Any:
    blocks = [model.emission_coef_.T.ravel(), model.transition_coef_.ravel()]
    if model.boundary:
        blocks += [model.start_coef_, model.end_coef_]
    return np.concatenate(blocks)


@pytest.mark.parametrize(("C", "boundary"), [(0.1, True), (1.0, False), (10.0, True)])
@pytest.mark.parametrize(("slack", "rescale"), FORMULATIONS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_optimum_over_valid_outputs(
    scheme: str, solver: str, slack: str, rescale: str, C: float, boundary: bool
) -> None:
    X, Y = data(scheme, 0)
    names = SCHEMES[scheme][0]
    model = ChainSSVM(
        C,
        slack=slack,
        rescale=rescale,
        solver=solver,
        scheme=scheme,
        boundary=boundary,
        fit_intercept=False,
        tol=TOL,
        max_iter=5000,
        random_state=0,
    ).fit(X, [[names[k] for k in y] for y in Y])
    assert model.classes_.tolist() == names
    problem = enumerated(scheme, scheme, 0, boundary)
    best = solve(problem, C, slack, rescale).objective
    assert model.converged_
    assert model.oracle_exact_ is True
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
    true = primal(problem, flat(model), C, slack, rescale)
    assert model.primal_objective_ == pytest.approx(true, rel=1e-9)
    assert 0.0 <= model.duality_gap_ <= TOL * model.primal_objective_
    assert model.dual_objective_ <= best * (1 + 1e-9)
    for row in model.history_:  # weak duality all along
        assert row.dual <= best * (1 + 1e-9)
        assert np.isnan(row.primal) or row.primal >= best * (1 - 1e-9)
    # Without the scheme there are more outputs to beat: the optimum is another, larger one.
    free = enumerated(None, scheme, 0, boundary)
    assert solve(free, C, slack, rescale).objective > best * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["sdm", "fsmo"])
def test_hard_margin(solver: str) -> None:
    rng = np.random.default_rng(3)
    names = SCHEMES["IOB2"][0]
    Y = [np.array(y) for y in valid_outputs("IOB2", 3)[:6]]
    X = [np.eye(D)[y] + 0.1 * rng.normal(size=(3, D)) for y in Y]
    problem = EnumeratedProblem.from_callables(
        X,
        [tuple(y.tolist()) for y in Y],
        [valid_outputs("IOB2", 3)] * len(Y),
        lambda x, y: chain_joint_feature(x, y, 3, True),
        hamming,
    )
    model = ChainSSVM(
        np.inf, solver=solver, scheme="IOB2", fit_intercept=False, tol=TOL, random_state=0
    ).fit(X, [[names[k] for k in y] for y in Y])
    assert model.primal_objective_ == pytest.approx(solve(problem, np.inf).objective, rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_partial_fit_reaches_the_same_optimum(solver: str) -> None:
    X, Y = data("IOB2", 1)
    y = [[SCHEMES["IOB2"][0][k] for k in row] for row in Y]
    model = ChainSSVM(1.0, solver=solver, scheme="auto", fit_intercept=False, tol=TOL)
    model.partial_fit(X[:6], y[:6]).partial_fit(X[6:], y[6:])
    assert model.scheme_ == "IOB2"
    best = solve(enumerated("IOB2", "IOB2", 1, True), 1.0).objective
    assert model.primal_objective_ == pytest.approx(best, rel=1e-6)
