"""Label switching: the fast sweep against the printed one and against brute force."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline import constraints as cs
from hingeline.constraints.penalties import Penalties
from hingeline.constraints.switches import sum_penalties
from hingeline.core.primitives import Workers
from hingeline.semisupervised.annealing import find_best_labels, measure_slacks, switch_labels
from hingeline.structures import chain

# isort: split
from marks import slow
from naive_switching import naive_sweep

#: Masks are a type of their own, for which the kernels are compiled again.
MASKED = [False, slow(True)]


def random_problem(seed: int, n_labels: int = 3, general: bool = False, masked: bool = False):
    """Two labelled and three unlabelled sequences, weights, and a table of token costs."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, 5)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n_features = 3
    # The kinds of numbers for which other tests compile these kernels too.
    rows = rng.normal(size=(offsets[-1], n_features)).astype(float if masked else np.float32)
    indptr = np.arange(offsets[-1] + 1) * n_features
    indices = np.tile(np.arange(n_features), offsets[-1])
    cost = 1.0 - np.eye(n_labels)
    if general:
        cost *= rng.uniform(0.2, 2.0, cost.shape)
    labels = rng.integers(0, n_labels, offsets[-1])
    problem = chain.make_problem(
        indptr, indices, rows.ravel(), offsets, labels, n_features, cost, boundary=True
    )
    if masked:
        move = rng.random((n_labels, n_labels)) < 0.7
        np.fill_diagonal(move, True)
        ends = np.ones(n_labels, dtype=bool)
        problem = chain.constrain(problem, (ends, move, ends))
    w = rng.normal(size=chain.compile_problem(problem).n_weights)
    return problem, w, rng


def constraints_of(rng: Any, n_labels: int, weight: float) -> list[Any]:
    """Some of each kind, with weights that leave no ties."""

    def draw() -> float:
        return float(weight * rng.uniform(0.5, 1.5))

    some = [
        cs.AtMostOneSegment(weight=draw()),
        cs.StartsWith(0, weight=draw()),
        cs.Words(["w1"], n_labels - 1, weight=draw()),
        cs.ChangeOnlyAt("[.]", weight=draw()),
        cs.Occurs(0, at_least=1, weight=draw()),
        cs.Share(0, equals=0.37, weight=10 * draw()),
        cs.ChangeShare("[.]", equals=0.1, weight=10 * draw(), penalty="linear"),
        cs.AverageSegments(at_most=1.3, weight=draw()),
    ]
    return [some[k] for k in rng.permutation(len(some))[: rng.integers(1, 6)]]


def words_of(problem: Any, rng: Any, first: int) -> list[list[str]]:
    lengths = np.diff(problem.offsets[first:])
    return [rng.choice(["w1", "w2", "."], size=length).tolist() for length in lengths]


def penalties_of(problem: Any, rng: Any, first: int, weight: float) -> Penalties:
    some = constraints_of(rng, problem.n_labels, weight)
    return Penalties(some, words_of(problem, rng, first), range(problem.n_labels))


def penalty_by_definition(penalties: Penalties, offsets: Any, labels: Any) -> float:
    Y = [part.tolist() for part in np.split(labels, offsets[1:-1])]
    total = 0.0
    for constraint in penalties.constraints:
        if hasattr(constraint, "parts"):
            pairs = zip(penalties.words, Y, strict=True)
            total += sum(constraint.cost(x, y) for x, y in pairs)
        else:
            total += constraint.cost(penalties.words, Y)
    return total


def score_of(problem: Any, w: Any, i: int, y: Any) -> float:
    """w·f(x, y), −inf where it is forbidden, from the definition."""
    lo, hi = problem.offsets[i : i + 2]
    s, d, m = problem.stride, problem.n_features, problem.n_labels
    W = w.reshape(-1, s)
    x = problem.values[lo * d : hi * d].reshape(-1, d)
    total = sum(x[t] @ W[:d, y[t]] for t in range(hi - lo))
    for a, b in itertools.pairwise(y):
        total += W[d + a, b]
        if len(problem.move_mask):
            total += problem.move_mask[a, b]
    return float(total + W[d + m, y[0]] + W[d + m + 1, y[-1]])


def slack_of(problem: Any, w: Any, i: int, y: Any) -> float:
    """By listing all outputs."""
    length = len(y)
    best = -np.inf
    for z in itertools.product(range(problem.n_labels), repeat=length):
        loss = sum(problem.cost[a, b] for a, b in zip(y, z, strict=True))
        best = max(best, score_of(problem, w, i, z) + loss)
    return best - score_of(problem, w, i, y)


def objective_of(
    problem: Any, first: int, w: Any, scale: float, penalties: Penalties, labels: Any
) -> float:
    offsets = problem.offsets[first:] - problem.offsets[first]
    slack = sum(
        slack_of(problem, w, first + i, labels[offsets[i] : offsets[i + 1]])
        for i in range(len(offsets) - 1)
    )
    return scale * slack + penalty_by_definition(penalties, offsets, labels)


@pytest.mark.parametrize("masked", MASKED)
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_labels=st.integers(1, 4),
    general=st.booleans(),
    scale=st.sampled_from([1e-3, 0.1, 1.0]),
    limit=st.sampled_from([None, 0, 1, 3]),
)
def test_fast_and_printed_sweeps_take_the_same_decisions(
    seed, n_labels, general, masked, scale, limit
):
    problem, w, rng = random_problem(seed, n_labels, general, masked)
    first = 2
    penalties = penalties_of(problem, rng, first, 0.3 * scale)
    start = find_best_labels(problem, first, w, Workers(1, 0))
    fast, n_fast = switch_labels(problem, first, w, scale, penalties, start, max_switches=limit)

    at = problem.offsets[first]
    problem.labels[at:] = start
    state = penalties.state(problem.labels[at:])
    slack = np.zeros(3)
    most = np.iinfo(np.int64).max if limit is None else limit
    given = (problem, first, w, scale, penalties.compiled, state, np.arange(3), most, slack)
    switches = naive_sweep(*given, type(state)(*map(np.zeros_like, state)))
    assert switches == n_fast
    assert fast.tolist() == problem.labels[at:].tolist()
    if limit is None:
        assert slack == pytest.approx(
            measure_slacks(problem, 5, w, Workers(1, 0))[first:], abs=1e-9
        )
    paid = sum_penalties(penalties.compiled, problem.labels[at:])
    assert paid == pytest.approx(penalties.total(fast), abs=1e-9)


@pytest.mark.parametrize("masked", MASKED)
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    general=st.booleans(),
    order=st.sampled_from(["sequential", "random"]),
    sweeps=st.integers(0, 4),
)
def test_switches_lower_the_objective(seed, general, masked, order, sweeps):
    problem, w, rng = random_problem(seed, 3, general, masked)
    first, scale = 2, 0.5
    penalties = penalties_of(problem, rng, first, 0.4)
    start = find_best_labels(problem, first, w, Workers(1, 0))
    before = objective_of(problem, first, w, scale, penalties, start)
    labels, switches = switch_labels(
        problem, first, w, scale, penalties, start, order=order, max_sweeps=sweeps, rng=rng
    )
    after = objective_of(problem, first, w, scale, penalties, labels)
    assert after <= before + 1e-9
    assert (switches > 0) == (after < before - 1e-9)
    assert (switches == 0) == (labels == start).all()


def test_the_slack_of_given_labels():
    problem, w, _ = random_problem(5, 3, general=True)
    offsets = problem.offsets
    slow = [slack_of(problem, w, i, problem.labels[offsets[i] : offsets[i + 1]]) for i in range(5)]
    assert measure_slacks(problem, 5, w, Workers(2, 0)) == pytest.approx(slow)
    assert measure_slacks(problem, 4, w, Workers(1, 0)) == pytest.approx(slow[:4])


def test_repeated_sweeps_end_where_no_single_switch_helps():
    for seed in range(10):
        problem, w, rng = random_problem(seed)
        first, scale = 2, 1.0
        penalties = penalties_of(problem, rng, first, 1.0)
        start = find_best_labels(problem, first, w, Workers(1, 0))
        found, _ = switch_labels(problem, first, w, scale, penalties, start, max_sweeps=100)
        reached = objective_of(problem, first, w, scale, penalties, found)
        for t, k in itertools.product(range(len(start)), range(3)):
            other = found.copy()
            other[t] = k
            assert objective_of(problem, first, w, scale, penalties, other) >= reached - 1e-9


def test_penalties_decide_where_slack_is_cheap_and_the_reverse():
    problem, w, rng = random_problem(1)
    first = 2
    n = int(problem.offsets[-1] - problem.offsets[first])
    wanted = rng.integers(0, 3, n)
    lengths = np.diff(problem.offsets[first:])
    words = np.split(np.char.add("w", wanted.astype(str)), np.cumsum(lengths)[:-1])
    rules = [cs.Words([f"w{k}"], k, weight=5.0) for k in range(3)]
    penalties = Penalties(rules, [x.tolist() for x in words], [0, 1, 2])
    start = find_best_labels(problem, first, w, Workers(1, 0))
    cheap, _ = switch_labels(problem, first, w, 1e-6, penalties, start)
    assert cheap.tolist() == wanted.tolist()
    dear, _ = switch_labels(problem, first, w, 1e6, penalties, start)
    before, after = (slack_of_all(problem, first, w, labels) for labels in (start, dear))
    assert after <= before + 1e-9
    assert penalties.total(dear) == pytest.approx(5.0 * np.sum(dear != wanted))
    assert penalties.total(dear) > 0.0


def slack_of_all(problem: Any, first: int, w: Any, labels: Any) -> float:
    problem.labels[problem.offsets[first] :] = labels
    return float(measure_slacks(problem, 5, w, Workers(1, 0))[first:].sum())


def test_random_order_is_decided_by_the_generator():
    problem, w, rng = random_problem(3)
    words = words_of(problem, rng, 2)
    penalties = Penalties([cs.Share(0, equals=0.5), cs.Share(1, equals=0.4)], words, range(3))
    start = find_best_labels(problem, 2, w, Workers(1, 0))

    def run(seed: int) -> Any:
        generator = np.random.default_rng(seed)
        given = (problem, 2, w, 0.1, penalties, start)
        return switch_labels(*given, order="random", rng=generator)[0].tolist()

    assert run(0) == run(0)
    assert any(run(0) != run(seed) for seed in range(1, 8))
