"""Every method through the dispatch: true bounds, exact where promised, refused where useless."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hingeline.inference import cut as graph_cut
from hingeline.inference import map as module
from hingeline.inference.factor_graph import assignment_score, join, make_topology, meets

# isort: split
from graphs import any_graph, binary_pairs, brute_force, forest, grid, scored
from marks import slow

#: Cuts by name are compiled once more; by default `test_cut.py` has them.
COMPILED = [slow(name) if name == "graph-cut" else name for name in module.INFERENCE]
EXACT = {"max-product", "enumeration"}
TABLE = settings(max_examples=60, deadline=None)


def solve(problem, method):
    y = np.full(len(problem[0].n_states), -1, dtype=np.int32)
    oracle = module.make_oracle(join([problem.graph]), module.INFERENCE[method])
    return module.best_assignment(oracle, 0, problem, y), y


def refuse(graph, method):
    """Why a method is refused; None if it is not."""
    try:
        module.make_oracle(join([graph]), module.INFERENCE[method])
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("method", COMPILED)
@TABLE
@given(st.one_of(any_graph(), forest(), binary_pairs(), binary_pairs(submodular=True)))
def test_bounds(method, problem):
    if refuse(problem.graph, method):
        return
    if method == "graph-cut" and not graph_cut.is_submodular(problem):
        with pytest.raises(ValueError, match="not submodular: use inference='auto'"):
            solve(problem, method)
        return
    bound, y = solve(problem, method)
    best = brute_force(problem)
    score = assignment_score(problem, y)
    assert score <= best + 1e-9
    assert bound >= best - 1e-9
    if method in EXACT:
        assert meets(problem, y, bound, module.AGREEMENT)
    if meets(problem, y, bound, module.AGREEMENT):
        assert score == pytest.approx(best, abs=1e-7)


@TABLE
@given(st.one_of(any_graph(), forest(), binary_pairs()))
def test_auto_is_exact_on_small_graphs(problem):
    bound, y = solve(problem, "auto")
    assert bound == assignment_score(problem, y)
    assert bound == pytest.approx(brute_force(problem), abs=1e-9)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(binary_pairs(submodular=True))
def test_graph_cut_is_exact(problem):
    bound, y = solve(problem, "graph-cut")
    assert bound == assignment_score(problem, y)
    assert bound == pytest.approx(brute_force(problem), abs=1e-9)


def test_what_auto_takes():
    rng = np.random.default_rng(0)

    def choice(problem):
        oracle = module.make_oracle(join([problem.graph]), module.AUTO)
        names = [name for name, use in oracle._asdict().items() if isinstance(use, module.Used)]
        return names[0] if len(names) == 1 else names

    path = [(i, i + 1) for i in range(49)]
    assert choice(scored(rng, [5] * 50, path)) == "max_product"
    pairs = list(itertools.combinations(range(14), 2))
    assert choice(scored(rng, [2] * 14, pairs)) == "enumeration"
    assert choice(scored(rng, [2] * 36, grid(6, 6))) == ["graph_cut", "ad3"]
    assert choice(scored(rng, [3] * 36, grid(6, 6))) == "lp"


@pytest.mark.slow
def test_auto_cuts_where_it_can():
    """A grid of 6 by 6 has too many labellings to try: exact where pairs prefer to agree."""
    problem = scored(np.random.default_rng(0), [2] * 36, grid(6, 6))
    problem.tables[:] = np.tile([1.0, 0.0, 0.0, 1.0], len(problem.table_start))
    bound, y = solve(problem, "auto")
    cut, z = solve(problem, "graph-cut")
    assert bound == cut == assignment_score(problem, y)
    assert y.tolist() == z.tolist()


def test_each_graph_has_its_own_method():
    loop = make_topology([3] * 3, [(0, 1), (1, 2), (2, 0)])
    path = make_topology([2] * 3, [(0, 1), (1, 2)])
    grids = [make_topology([k] * 36, grid(6, 6)) for k in (2, 3)]
    oracle = module.make_oracle(join([loop, grids[1], path, grids[0]]), module.AUTO)
    expected = [module.ENUMERATION, module.LP, module.MAX_PRODUCT, module.AUTO]
    assert oracle.method.tolist() == expected
    assert all(isinstance(use, module.Used) for use in oracle[1:])  # a rare mixture: all kernels
    oracle = module.make_oracle(join([loop, grids[1], path]), module.AUTO)
    assert isinstance(oracle.lp, module.Used)
    assert isinstance(oracle.ad3, module.Unused)
    with pytest.raises(ValueError, match="graph 1: inference='max-product' needs"):
        module.make_oracle(join([path, loop]), module.MAX_PRODUCT)


def test_refusals_say_why():
    loop = make_topology([2, 2, 3], [(0, 1), (1, 2), (2, 0)])
    assert refuse(loop, "auto") is None
    assert "cycles" in refuse(loop, "max-product")
    assert "binary" in refuse(loop, "graph-cut")
    assert refuse(loop, "enumeration") is None
    many = make_topology([2] * 25, [])
    assert "assignments" in refuse(many, "enumeration")


@pytest.mark.parametrize("method", [slow(m) if m == "ad3" else m for m in COMPILED])
def test_the_same_in_every_call(method):
    rng = np.random.default_rng(2)
    scopes = [(i, i + 1) for i in range(9)] if method == "max-product" else grid(2, 5)
    problem = scored(rng, [2] * 10, scopes, whole=True)
    if method == "graph-cut":
        problem.tables[:] = np.tile([1.0, 0.0, 0.0, 1.0], len(problem.table_start))
    bound, y = solve(problem, method)
    for _ in range(3):
        other, z = solve(problem, method)
        assert other == bound
        assert z.tolist() == y.tolist()
