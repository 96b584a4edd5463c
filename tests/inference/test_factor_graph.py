"""Iterated conditional modes: never worse, and no single change left that helps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline._jit import kernel
from hingeline.inference import factor_graph
from hingeline.inference.factor_graph import assignment_score

# isort: split
from graphs import any_graph


@kernel
def improve(problem, y, max_sweeps):
    factor_graph.improve(problem, y, max_sweeps)


@settings(max_examples=100, deadline=None)
@given(any_graph(max_order=4), st.integers(0, 1000))
def test_ends_where_no_single_change_helps(problem, seed):
    n_states = problem[0].n_states
    y = np.random.default_rng(seed).integers(0, n_states).astype(np.int32)
    before = assignment_score(problem, y)
    start = y.copy()
    improve(problem, y, 1000)
    after = assignment_score(problem, y)
    assert after >= before
    assert (after > before) == (y.tolist() != start.tolist())
    for i, states in enumerate(n_states):
        for s in range(states):
            z = y.copy()
            z[i] = s
            assert assignment_score(problem, z) <= after + 1e-9


@settings(max_examples=50, deadline=None)
@given(any_graph())
def test_conditional_scores(problem):
    graph, *_ = problem
    y = (graph.n_states - 1).astype(np.int32)
    for i, states in enumerate(graph.n_states):
        out = np.empty(states)
        factor_graph.conditional_scores(problem, i, y, out)
        totals = []
        for s in range(states):
            z = y.copy()
            z[i] = s
            totals.append(assignment_score(problem, z))
        assert out - out[-1] == pytest.approx(np.array(totals) - totals[-1], abs=1e-9)
