"""HiGHS as reference, against trying every assignment and known relaxations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from hingeline.inference.factor_graph import assignment_score
from hingeline.inference.map import map_milp

# isort: split
from graphs import any_graph, brute_force, forest, lp_relaxation, scored


@settings(max_examples=40, deadline=None)
@given(any_graph())
def test_exact(problem):
    bound, y = map_milp(problem)
    assert bound == pytest.approx(assignment_score(problem, y), abs=1e-9)
    assert bound == pytest.approx(brute_force(problem), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(forest())
def test_relaxation_is_tight_on_forests(problem):
    value, marginals = lp_relaxation(problem)
    assert value == pytest.approx(brute_force(problem), abs=1e-6)
    assert len(marginals) == problem[0].unary_start[-1]


def test_frustrated_triangle():
    pairs = list(itertools.combinations(range(3), 2))
    problem = scored(np.random.default_rng(0), [2] * 3, pairs)
    problem.unary[:] = 0.0
    problem.tables[:] = np.tile([0.0, 1.0, 1.0, 0.0], 3)
    value, marginals = lp_relaxation(problem)
    assert value == pytest.approx(3.0)
    assert marginals == pytest.approx(0.5)
    assert map_milp(problem)[0] == 2.0


def test_infinite_scores_are_refused():
    problem = scored(np.random.default_rng(0), [2, 2], [(0, 1)])
    problem.tables[0] = -np.inf
    with pytest.raises(ValueError, match="finite"):
        map_milp(problem)
