"""Minimum cuts against trying every assignment, and against SciPy's maximum flow on grids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow

from hingeline._jit import kernel
from hingeline.inference import cut as module
from hingeline.inference.factor_graph import are_binary_pairs, assignment_score, join, make_topology

# isort: split
from graphs import any_graph, binary_pairs, brute_force, grid, scored

TABLE = settings(max_examples=80, deadline=None)


@kernel
def solve(problem, y):
    module.graph_cut(problem, y)
    return assignment_score(problem, y)


@TABLE
@given(binary_pairs(submodular=True))
def test_best_of_a_submodular_graph(problem):
    graph = problem.graph
    assert are_binary_pairs(join([graph, graph])).all()
    assert module.is_submodular(problem)
    y = np.full(len(graph.n_states), -1, dtype=np.int32)
    assert solve(problem, y) == pytest.approx(brute_force(problem), abs=1e-9)


@TABLE
@given(binary_pairs())
def test_submodularity_is_seen(problem):
    _, _, tables, starts = problem
    expected = all(tables[k] + tables[k + 3] >= tables[k + 1] + tables[k + 2] for k in starts)
    assert module.is_submodular(problem) == expected


def test_no_tolerance():
    problem = scored(np.random.default_rng(0), [2, 2], [(0, 1)])
    for second, expected in ((1.0, True), (1.0 + 1e-15, False), (np.nan, False)):
        problem.tables[:] = 0.0, second, 0.0, 1.0
        assert module.is_submodular(problem) == expected


@settings(max_examples=50, deadline=None)
@given(any_graph(max_states=3))
def test_only_binary_pairs(problem):
    graph = problem[0]
    orders = np.diff(graph.scope_start)
    expected = bool((graph.n_states == 2).all() and (orders <= 2).all())
    pair = make_topology([2, 2], [(0, 1)])
    assert are_binary_pairs(join([pair, graph, pair])).tolist() == [True, expected, True]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 12))
def test_grids_with_factors_over_one_variable(seed, rows, columns):
    """Whole numbers, so that SciPy's flow is exact: score = constant − cut."""
    rng = np.random.default_rng(seed)
    n = rows * columns
    edges = grid(rows, columns)
    problem = scored(rng, [2] * n, [*edges, (0,)], whole=True)
    _, unary, tables, starts = problem
    tables *= 1.0
    weights = rng.integers(0, 5, len(edges))
    for start, weight in zip(starts, weights, strict=False):
        tables[start : start + 4] = 0, -weight, -weight, 0
    y = np.full(n, -1, dtype=np.int32)
    value = solve(problem, y)
    gain = unary[1::2] - unary[::2]
    gain[0] += tables[-1] - tables[-2]
    total = unary[::2].sum() + tables[-2] + np.maximum(gain, 0).sum()
    a, b = np.array(edges).T
    node = np.arange(n)
    rows_, cols, caps = (
        np.concatenate(parts)
        for parts in (
            (a, b, np.full(n, n), node),
            (b, a, node, np.full(n, n + 1)),
            (weights, weights, np.maximum(gain, 0), np.maximum(-gain, 0)),
        )
    )
    capacity = coo_array((caps.astype(np.int32), (rows_, cols)), shape=(n + 2, n + 2)).tocsr()
    assert value == total - maximum_flow(capacity, n, n + 1).flow_value


def test_plain_python_does_the_same():
    rng = np.random.default_rng(5)
    problem = scored(rng, [2] * 20, grid(4, 5))
    problem.tables[problem.table_start] = 5.0
    y = np.empty(20, dtype=np.int32)
    z = np.empty(20, dtype=np.int32)
    module.graph_cut(problem, y)
    solve(problem, z)
    assert y.tolist() == z.tolist()
