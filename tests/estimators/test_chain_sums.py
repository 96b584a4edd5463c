"""ChainSSVM.summed_slack_bounds against enumeration."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from hingeline import ChainSSVM
from hingeline.schemes import SCHEMES, valid_moves

# isort: split
from reference import random_chains

NAMES = ["A", "B", "C"]
COSTS = [[0.0, 1.0, 2.5], [0.5, 0.0, 1.0], [3.0, 0.25, 0.0]]


@pytest.fixture(scope="module")
def data() -> Any:
    X, y = random_chains(np.random.default_rng(7), 15, 4, 3, 5)
    return X, [[NAMES[k] for k in row] for row in y]


def score(model: Any, x: Any, y: Any) -> float:
    total = model.start_coef_[y[0]] + model.end_coef_[y[-1]]
    for t, k in enumerate(y):
        total += x[t] @ model.emission_coef_[k] + model.intercept_[k]
        total += model.transition_coef_[y[t - 1], k] if t else 0.0
    return float(total)


def enumerated(model: Any, x: Any, truth: Any, cost: Any, keep: Any = None) -> tuple[float, int]:
    """Summed slack and number of violating labellings."""
    names = model.classes_.tolist()
    own = [names.index(label) for label in truth]
    value = score(model, x, own)
    slacks = []
    for y in itertools.product(range(len(names)), repeat=len(x)):
        if keep is None or keep(y):
            loss = sum(cost[a][b] for a, b in zip(own, y, strict=True))
            slacks.append(loss - value + score(model, x, y))
    return math.fsum(s for s in slacks if s > 1e-9), sum(s > 1e-9 for s in slacks)


def check(found: Any, expected: list[tuple[float, int]]) -> None:
    slacks, numbers = (np.array(column) for column in zip(*expected, strict=True))
    assert numbers.max() > 5
    assert (found.lower <= slacks * (1 + 1e-9)).all()
    assert (found.upper >= slacks * (1 - 1e-9)).all()
    assert (found.upper - found.lower <= 1e-3 * slacks + 1e-9).all()
    assert (found.count_lower <= numbers).all()
    assert (found.count_upper >= numbers).all()
    assert (found.count_upper - found.count_lower <= 0.1 * numbers + 1).all()
    assert found.total_lower == pytest.approx(slacks.sum(), rel=1e-3)
    assert found.total_lower <= found.total_upper == pytest.approx(slacks.sum(), rel=1e-3)


@pytest.mark.parametrize("slack", ["max", "squared"])
def test_hamming(data: Any, slack: str) -> None:
    model = ChainSSVM(C=0.1, slack=slack, random_state=0).fit(*data)
    cost = 1.0 - np.eye(3)
    found = model.summed_slack_bounds(*data)
    check(found, [enumerated(model, *pair, cost) for pair in zip(*data, strict=True)])


def test_costs_and_class_weights(data: Any) -> None:
    model = ChainSSVM(C=0.1, loss=COSTS, class_weight={"B": 2.0}, random_state=0).fit(*data)
    cost = np.array(COSTS) * [[1.0], [2.0], [1.0]]
    found = model.summed_slack_bounds(*data)
    check(found, [enumerated(model, *pair, cost) for pair in zip(*data, strict=True)])


@pytest.mark.slow
def test_only_valid_labellings_count() -> None:
    assert "IOB2" in SCHEMES
    rng = np.random.default_rng(0)
    names = ["B-X", "I-X", "O"]
    start, move, end = valid_moves(names, "IOB2")

    def keep(y: Any) -> bool:
        inside = all(move[j, k] for j, k in itertools.pairwise(y))
        return bool(start[y[0]] and end[y[-1]] and inside)

    valid = [y for y in itertools.product(range(3), repeat=5) if keep(y)]
    X = [rng.normal(size=(5, 4)) for _ in range(12)]
    y = [[names[k] for k in valid[rng.integers(len(valid))]] for _ in X]
    model = ChainSSVM(scheme="IOB2", random_state=0).fit(X, y)
    assert model.classes_.tolist() == names
    pairs = list(zip(X, y, strict=True))
    check(
        model.summed_slack_bounds(X, y),
        [enumerated(model, *pair, 1.0 - np.eye(3), keep) for pair in pairs],
    )
    free = [enumerated(model, *pair, 1.0 - np.eye(3)) for pair in pairs]
    assert model.summed_slack_bounds(X, y).total_upper < sum(slack for slack, _ in free)
    with pytest.raises(ValueError, match="I-X"):
        model.summed_slack_bounds(X[:1], [["O", "I-X", "O", "O", "O"]])


def test_stacked_tokens_and_threads(data: Any) -> None:
    X, y = data
    model = ChainSSVM(random_state=0).fit(X, y)
    one = model.summed_slack_bounds(X, y, bins=50)
    lengths = [len(x) for x in X]
    two = model.set_params(n_jobs=2).summed_slack_bounds(
        np.vstack(X), [label for row in y for label in row], lengths, bins=50
    )
    for name in ("lower", "upper", "count_lower", "count_upper"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_zero_weights_and_infinite_totals(data: Any) -> None:
    X, y = data
    model = ChainSSVM(random_state=0).fit(X, y)
    model = model.with_weights(np.zeros_like(model.weights_))
    found = model.summed_slack_bounds(X, y)
    lengths = np.array([len(x) for x in X])
    np.testing.assert_array_equal(found.count_lower, 3**lengths - 1)
    np.testing.assert_array_equal(found.count_upper, 3**lengths - 1)
    np.testing.assert_allclose(found.lower, lengths * 2 * 3 ** (lengths - 1), rtol=1e-11)
    np.testing.assert_allclose(found.upper, found.lower, rtol=1e-11)
    long = model.summed_slack_bounds([np.zeros((700, 4))], [["A"] * 700], bins=10)
    assert long.total_upper == np.inf
    assert np.isfinite(long.total_lower)


def test_bad_input(data: Any) -> None:
    X, y = data
    model = ChainSSVM(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="'Z', which is not among classes_"):
        model.summed_slack_bounds(X[:1], [["Z"] * len(X[0])])
    with pytest.raises(ValueError, match="bins must be greater than 0"):
        model.summed_slack_bounds(X, y, bins=0)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.summed_slack_bounds([x[:, :2] for x in X], y)
