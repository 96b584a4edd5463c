"""Block descent on the dual of the relaxation: true bounds, exact where they meet the score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from hingeline._jit import kernel
from hingeline.inference import messages
from hingeline.inference.factor_graph import assignment_score

# isort: split
from graphs import any_graph, brute_force, forest, grid, relaxed_bound, scored

TABLE = settings(max_examples=100, deadline=None)


@kernel
def descend(problem, sent, y, max_passes, tol):
    return messages.block_descent(problem, sent, y, max_passes, tol)


def no_messages(graph):
    return np.zeros(messages.message_start(graph)[-1])


@TABLE
@given(any_graph(max_order=4))
def test_bounds_and_labels(problem):
    graph = problem[0]
    best = brute_force(problem)
    sent = no_messages(graph)
    y = np.full(len(graph.n_states), -1, dtype=np.int32)
    before = np.inf
    for passes in (1, 2, 5, 50):
        bound = descend(problem, sent, y, passes, 0.0)
        score = assignment_score(problem, y)
        assert best - 1e-9 <= bound <= before + 1e-9
        assert score <= best + 1e-9
        assert bound == pytest.approx(relaxed_bound(problem, sent), abs=1e-9)
        before = bound


@TABLE
@given(any_graph())
def test_any_messages_bound(problem):
    graph = problem[0]
    sent = np.random.default_rng(0).normal(size=len(no_messages(graph)))
    assert relaxed_bound(problem, sent) >= brute_force(problem) - 1e-9


@TABLE
@given(forest())
def test_tight_on_forests(problem):
    graph = problem[0]
    y = np.full(len(graph.n_states), -1, dtype=np.int32)
    bound = descend(problem, no_messages(graph), y, 100, 0.0)
    assert bound == pytest.approx(brute_force(problem), abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(any_graph())
def test_plain_python_does_the_same(problem):
    y = np.empty(len(problem[0].n_states), dtype=np.int32)
    expected = descend(problem, no_messages(problem[0]), y, 3, 0.0)
    got = messages.block_descent(problem, no_messages(problem[0]), y, 3, 0.0)
    assert got == pytest.approx(expected, abs=1e-9)


def test_warm_start_needs_fewer_passes():
    rng = np.random.default_rng(3)
    problem = scored(rng, [4] * 36, grid(6, 6), coupling=0.5)
    y = np.empty(36, dtype=np.int32)
    sent = no_messages(problem.graph)
    reached = descend(problem, sent, y, 1000, 1e-12)
    changed = problem._replace(unary=problem.unary + 1e-3 * rng.normal(size=len(problem.unary)))
    cold = descend(changed, no_messages(problem.graph), y, 3, 0.0)
    warm = descend(changed, sent, y, 3, 0.0)
    assert warm < cold
    assert warm == pytest.approx(reached, abs=0.1)


def test_frustrated_triangle():
    """The relaxed solution is ½ everywhere, and better than any labels."""
    problem = scored(np.random.default_rng(0), [2] * 3, [(0, 1), (1, 2), (0, 2)])
    problem.unary[:] = 0.0
    problem.tables[:] = np.tile([0.0, 1.0, 1.0, 0.0], 3)
    y = np.empty(3, dtype=np.int32)
    bound = descend(problem, no_messages(problem.graph), y, 50, 0.0)
    assert bound == pytest.approx(3.0)
    assert assignment_score(problem, y) == 2.0
