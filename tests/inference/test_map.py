"""Every method through the dispatch: true bounds, exact where promised, refused where useless."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.inference import cut as graph_cut
from hingeline.inference import map as module
from hingeline.inference.factor_graph import assignment_score, make_topology
from hingeline.inference.messages import message_start

# isort: split
from graphs import any_graph, binary_pairs, brute_force, forest, grid, scored

COMPILED = [name for name in module.INFERENCE if name != "milp"]
EXACT = {"max-product", "enumeration"}
TABLE = settings(max_examples=60, deadline=None)
NOTHING = np.zeros(0)


def solve(problem, method, messages=NOTHING):
    y = np.full(len(problem[0].n_states), -1, dtype=np.int32)
    bound = module.best_assignment(*problem, module.INFERENCE[method], messages, y)
    return bound, y


@pytest.mark.parametrize("method", COMPILED)
@TABLE
@given(st.one_of(any_graph(), forest(), binary_pairs(), binary_pairs(submodular=True)))
def test_bounds(method, problem):
    if module.refuse_method(problem[0], method):
        return
    if method == "graph-cut" and not graph_cut.is_submodular(problem[0], *problem[2:]):
        with pytest.raises(ValueError, match="not submodular: use inference='auto'"):
            solve(problem, method)
        return
    bound, y = solve(problem, method)
    best = brute_force(*problem)
    score = assignment_score(*problem, y)
    assert score <= best + 1e-9
    assert bound >= best - 1e-9
    if method in EXACT:
        assert module.agree(bound, score)
    if module.agree(bound, score):
        assert score == pytest.approx(best, abs=1e-7)


@TABLE
@given(st.one_of(any_graph(), forest(), binary_pairs()))
def test_auto_is_exact_on_small_graphs(problem):
    bound, y = solve(problem, "auto")
    assert bound == assignment_score(*problem, y)
    assert bound == pytest.approx(brute_force(*problem), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(binary_pairs(submodular=True))
def test_graph_cut_is_exact(problem):
    bound, y = solve(problem, "graph-cut")
    assert bound == assignment_score(*problem, y)
    assert bound == pytest.approx(brute_force(*problem), abs=1e-9)


def test_what_auto_takes():
    rng = np.random.default_rng(0)

    def choice(problem):
        graph, _, tables, starts = problem
        return module.choose_method(graph, tables, starts)

    path = [(i, i + 1) for i in range(49)]
    assert choice(scored(rng, [5] * 50, path)) == module.MAX_PRODUCT
    pairs = list(itertools.combinations(range(14), 2))
    assert choice(scored(rng, [2] * 14, pairs)) == module.ENUMERATION
    graph, unary, tables, starts = scored(rng, [2] * 36, grid(6, 6))
    assert choice((graph, unary, tables, starts)) == module.AD3
    tables[:] = np.tile([1.0, 0.0, 0.0, 1.0], len(starts))
    assert choice((graph, unary, tables, starts)) == module.GRAPH_CUT
    assert choice(scored(rng, [3] * 36, grid(6, 6))) == module.LP


def test_refusals_say_why():
    loop = make_topology([2, 2, 3], [(0, 1), (1, 2), (2, 0)])
    assert module.refuse_method(loop, "auto") is None
    assert "cycles" in module.refuse_method(loop, "max-product")
    assert "binary" in module.refuse_method(loop, "graph-cut")
    assert "not one of" in module.refuse_method(loop, "viterbi")
    assert module.refuse_method(loop, "enumeration") is None
    many = make_topology([2] * 25, [])
    assert "assignments" in module.refuse_method(many, "enumeration")


@pytest.mark.parametrize("method", ["lp", "ad3"])
def test_messages_are_kept(method):
    rng = np.random.default_rng(1)
    problem = scored(rng, [3] * 25, grid(5, 5))
    messages = np.zeros(message_start(problem[0])[-1])
    cold, _ = solve(problem, method)
    first, _ = solve(problem, method, messages)
    assert first == cold
    assert messages.any()
    again, _ = solve(problem, method, messages)
    assert again <= first + 1e-9


@pytest.mark.parametrize("method", COMPILED)
def test_the_same_in_every_call(method):
    rng = np.random.default_rng(2)
    scopes = [(i, i + 1) for i in range(9)] if method == "max-product" else grid(2, 5)
    problem = scored(rng, [2] * 10, scopes, whole=True)
    if method == "graph-cut":
        problem[2][:] = np.tile([1.0, 0.0, 0.0, 1.0], len(problem[3]))
    bound, y = solve(problem, method)
    for _ in range(3):
        other, z = solve(problem, method)
        assert other == bound
        assert z.tolist() == y.tolist()
