"""Alternating directions: true bounds that converge to the relaxation's optimum, by HiGHS."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from hingeline._jit import kernel
from hingeline.inference import ad3
from hingeline.inference import messages as lp
from hingeline.inference.factor_graph import assignment_score
from hingeline.inference.messages import message_start

# isort: split
from graphs import any_graph, binary_pairs, brute_force, grid, lp_relaxation, relaxed_bound, scored

#: Messages are the default; both are compared in test_map.py.
pytestmark = pytest.mark.slow

TABLE = settings(max_examples=60, deadline=None)


@kernel
def solve(problem, sent, y, max_iterations, tol):
    return ad3.alternating_directions(problem, sent, y, max_iterations, tol)


@kernel
def descend(problem, sent, y, max_passes, tol):
    return lp.block_descent(problem, sent, y, max_passes, tol)


def run(problem, iterations=3000, tol=1e-7):
    graph = problem[0]
    sent = np.zeros(message_start(graph)[-1])
    y = np.full(len(graph.n_states), -1, dtype=np.int32)
    bound = solve(problem, sent, y, iterations, tol)
    assert bound == pytest.approx(relaxed_bound(problem, sent), abs=1e-9)
    return bound, y


@TABLE
@given(binary_pairs())
def test_binary_pairs_converge(problem):
    bound, y = run(problem)
    assert bound == pytest.approx(lp_relaxation(problem)[0], abs=1e-4)
    assert assignment_score(problem, y) <= brute_force(problem) + 1e-9 <= bound + 2e-9


@TABLE
@given(any_graph())
def test_any_graph_converges(problem):
    bound, y = run(problem)
    assert bound == pytest.approx(lp_relaxation(problem)[0], abs=1e-4)
    assert assignment_score(problem, y) <= brute_force(problem) + 1e-9 <= bound + 2e-9


@settings(max_examples=30, deadline=None)
@given(any_graph(max_order=4))
def test_bounds_before_convergence(problem):
    best = brute_force(problem)
    for iterations in (0, 10, 25):
        assert run(problem, iterations)[0] >= best - 1e-9


@pytest.mark.parametrize("states", [2, 4])
def test_goes_on_where_block_descent_is_stuck(states):
    rng = np.random.default_rng(3)
    scopes = list(itertools.combinations(range(9), 2)) if states == 2 else grid(4, 4)
    n = 9 if states == 2 else 16
    problem = scored(rng, [states] * n, scopes, coupling=0.4)
    y = np.empty(n, dtype=np.int32)
    sent = np.zeros(message_start(problem[0])[-1])
    stuck = descend(problem, sent, y, 10_000, 0.0)
    value = lp_relaxation(problem)[0]
    bound, _ = run(problem)
    assert value - 1e-6 <= bound <= value + 1e-3
    assert bound <= stuck + 1e-6


def test_plain_python_does_the_same():
    problem = scored(np.random.default_rng(4), [2, 3, 2], [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
    sent = np.zeros(message_start(problem[0])[-1])
    y = np.empty(3, dtype=np.int32)
    value = ad3.alternating_directions(problem, sent, y, 50, 1e-7)
    assert value == pytest.approx(run(problem, 50)[0], abs=1e-6)
