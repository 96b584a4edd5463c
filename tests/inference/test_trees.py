"""Max-sum on forests against trying every assignment."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from hingeline._jit import kernel
from hingeline.inference import trees as module
from hingeline.inference.factor_graph import are_forests, assignment_score, join, make_topology

# isort: split
from graphs import any_graph, brute_force, forest, scored

TABLE = settings(max_examples=60, deadline=None)


@kernel
def solve(problem, y):
    module.max_product(problem, y)
    return assignment_score(problem, y)


def is_forest(graph):
    return are_forests(join([graph]))[0]


@TABLE
@given(forest())
def test_best_of_a_forest(problem):
    graph = problem[0]
    assert is_forest(graph)
    y = np.full(len(graph.n_states), -1, dtype=np.int32)
    assert solve(problem, y) == pytest.approx(brute_force(problem), abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(forest())
def test_plain_python_does_the_same(problem):
    y = np.empty(len(problem[0].n_states), dtype=np.int32)
    z = np.empty_like(y)
    module.max_product(problem, y)
    solve(problem, z)
    assert y.tolist() == z.tolist()


@TABLE
@given(any_graph())
def test_forests_are_found(problem):
    """A graph of v vertices and e edges has no cycle iff it has v − e components."""
    graph = problem[0]
    n, m = len(graph.n_states), len(graph.scope_start) - 1
    part = list(range(n + m))
    for c in range(m):
        for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
            old, new = part[n + c], part[graph.scope[p]]
            part = [new if k == old else k for k in part]
    assert is_forest(graph) == (len(set(part)) == n + m - len(graph.scope))


def test_forests_among_other_graphs():
    loop = make_topology([2, 2, 2], [(0, 1), (1, 2), (2, 0)])
    path = make_topology([2, 3, 2, 2], [(0, 1), (), (3, 1), (2,)])
    lonely = make_topology([2, 2], [])
    assert are_forests(join([loop, path, lonely, loop, path])).tolist() == [0, 1, 1, 0, 1]


def test_parallel_factors_are_a_cycle():
    assert is_forest(make_topology([2, 2], [(0, 1)]))
    assert not is_forest(make_topology([2, 2], [(0, 1), (1, 0)]))


def test_forbidden_states():
    """Entries of minus infinity are handled."""
    rng = np.random.default_rng(0)
    problem = scored(rng, [3, 3, 3], [(0, 1), (2, 1)])
    tables = problem.tables
    tables[rng.random(len(tables)) < 0.5] = -np.inf
    y = np.empty(3, dtype=np.int32)
    value = solve(problem, y)
    best = max((assignment_score(problem, z), z) for z in itertools.product(range(3), repeat=3))
    assert value == pytest.approx(best[0])
    assert tuple(y) == best[1]
    tables[:] = -np.inf
    assert solve(problem, y) == -np.inf
