"""Enumeration in whole vectors against trying every assignment."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

from hingeline._jit import kernel
from hingeline.inference import enumeration
from hingeline.inference.factor_graph import (
    Scored,
    assignment_score,
    join,
    log2_assignments,
    make_topology,
)

# isort: split
from graphs import any_graph, brute_force, scored

TABLE = settings(max_examples=60, deadline=None)


@kernel
def solve(problem, y):
    enumeration.enumerate_best(problem, y)
    return assignment_score(problem, y)


@TABLE
@given(any_graph(max_order=4))
def test_best_of_all(problem):
    y = np.full(len(problem[0].n_states), -1, dtype=np.int32)
    assert solve(problem, y) == pytest.approx(brute_force(problem), abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(any_graph())
def test_plain_python_does_the_same(problem):
    y = np.empty(len(problem[0].n_states), dtype=np.int32)
    z = np.empty_like(y)
    enumeration.enumerate_best(problem, y)
    assert assignment_score(problem, y) == pytest.approx(solve(problem, z), abs=1e-12)


def test_shared_tables():
    """Several factors may read one table."""
    rng = np.random.default_rng(1)
    graph = make_topology([3] * 5, list(itertools.combinations(range(5), 2)))
    problem = Scored(graph, rng.normal(size=15), rng.normal(size=9), np.zeros(10, dtype=np.int64))
    y = np.empty(5, dtype=np.int32)
    assert solve(problem, y) == pytest.approx(brute_force(problem))


def test_the_same_in_every_call():
    rng = np.random.default_rng(2)
    problem = scored(rng, [2] * 8, list(itertools.combinations(range(8), 2)), whole=True)
    first = np.empty(8, dtype=np.int32)
    solve(problem, first)
    for _ in range(3):
        y = np.full(8, 1, dtype=np.int32)
        solve(problem, y)
        assert y.tolist() == first.tolist()


def test_number_of_assignments():
    sizes = [[], [1], [2, 3, 4], [2] * 61, [], [2] * 100, [7] * 90]
    graphs = join([make_topology(np.array(n_states, dtype=int), []) for n_states in sizes])
    expected = [math.log2(math.prod(n_states)) for n_states in sizes]
    assert log2_assignments(graphs) == pytest.approx(expected)
