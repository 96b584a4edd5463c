"""Labels to start from: beam search under constraints over the scores of a chain."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hingeline import constraints as cs
from hingeline.constraints.penalties import Penalties
from hingeline.core.primitives import Workers
from hingeline.semisupervised.annealing import ConstrainedLabels, find_best_labels
from hingeline.structures import chain


def random_problem(seed: int, masked: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, 6)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n, d = int(offsets[-1]), 2
    problem = chain.make_problem(
        np.arange(n + 1) * d,
        np.tile(np.arange(d), n),
        rng.normal(size=n * d),
        offsets,
        np.zeros(n, dtype=np.int32),
        d,
        1.0 - np.eye(3),
        boundary=True,
    )
    if masked:
        move = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool)
        ends = np.array([True, True, False])
        problem = chain.constrain(problem, (ends, move, np.ones(3, dtype=bool)))
    return problem, rng.normal(size=chain.compile_problem(problem).n_weights)


def score_of(problem: Any, w: Any, i: int, y: Any) -> float:
    lo, hi = problem.offsets[i : i + 2]
    d, m = problem.n_features, problem.n_labels
    W = w.reshape(-1, problem.stride)
    x = problem.values[lo * d : hi * d].reshape(-1, d)
    total = sum(x[t] @ W[:d, y[t]] for t in range(hi - lo))
    total += sum(W[d + a, b] for a, b in itertools.pairwise(y))
    total += W[d + m, y[0]] + W[d + m + 1, y[-1]]
    if len(problem.end_masks):
        total += problem.end_masks[0, y[0]] + problem.end_masks[1, y[-1]]
        total += sum(problem.move_mask[a, b] for a, b in itertools.pairwise(y))
    return float(total)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_wide_beam_finds_the_best_score_minus_penalty(masked, scale, n_jobs):
    rules = [cs.AtMostOneSegment(weight=0.3), cs.StartsWith(1, weight=0.2), cs.Share(0, equals=0.5)]
    for seed in range(5):
        problem, w = random_problem(seed, masked)
        words = [["w"] * length for length in np.diff(problem.offsets[2:])]
        penalties = Penalties(rules, words, range(3))
        with Workers(n_jobs, 0) as workers:
            labels = ConstrainedLabels(problem, 2, w, scale, penalties, workers, 100).find()
        for i, y in enumerate(np.split(labels, np.cumsum([len(x) for x in words])[:-1])):
            values = {
                z: scale * score_of(problem, w, 2 + i, z)
                - sum(rule.cost(words[i], list(z)) for rule in rules[:2])
                for z in itertools.product(range(3), repeat=len(y))
            }
            assert values[tuple(y.tolist())] == pytest.approx(max(values.values()))


def test_without_constraints_it_is_the_best_path():
    for seed in range(5):
        problem, w = random_problem(seed, True)
        words = [["w"] * length for length in np.diff(problem.offsets[2:])]
        workers = Workers(1, 0)
        free = Penalties([], words, range(3))
        found = ConstrainedLabels(problem, 2, w, 0.5, free, workers).find()
        assert found.tolist() == find_best_labels(problem, 2, w, workers).tolist()


@pytest.mark.parametrize("wanted", [0.2, 0.6])
def test_prices_bring_shares_nearer_and_cost_no_objective(wanted):
    rng = np.random.default_rng(0)
    n, m = 400, 3
    offsets = np.arange(0, n + 1, 4)
    problem = chain.make_problem(
        np.arange(n + 1) * 2,
        np.tile(np.arange(2), n),
        rng.normal(size=2 * n),
        offsets,
        np.zeros(n, dtype=np.int32),
        2,
        1.0 - np.eye(m),
        boundary=True,
    )
    w = rng.normal(size=chain.compile_problem(problem).n_weights)
    words = [["w"] * 4] * (n // 4)
    rules = [cs.AtMostOneSegment(), cs.Share(1, equals=wanted)]
    penalties = Penalties(rules, words, range(m))
    prices = np.zeros(m)
    with Workers(2, 0) as workers:
        search = ConstrainedLabels(problem, 0, w, 0.1, penalties, workers)
        plain = search.find()
        for _ in range(8):
            priced = search.find_with_shares(prices)
    before, after = np.mean(plain == 1), np.mean(priced == 1)
    assert abs(before - wanted) > 0.1  # else this shows nothing
    assert abs(after - wanted) < 0.02
    assert (prices[1] > 0) == (wanted > before)
    assert not prices[[0, 2]].any()

    def objective(labels: Any) -> float:
        own = sum(score_of(problem, w, i, y) for i, y in enumerate(np.split(labels, offsets[1:-1])))
        return 0.1 * own - penalties.total(labels)

    assert objective(priced) > objective(plain)
    assert rules[0].violation(words[0], priced[:4].tolist()) == 0.0
