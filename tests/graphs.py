"""Random factor graphs for the tests of inference, and the best assignment by trying all."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from hingeline.inference.factor_graph import Scored, assignment_score, make_topology, table_size
from hingeline.inference.map import _constraints


def scored(
    rng: np.random.Generator,
    n_states: Any,
    scopes: Any,
    *,
    coupling: float = 1.0,
    whole: bool = False,
) -> Scored:
    """A graph with random scores; whole numbers make ties."""
    graph = make_topology(n_states, scopes)
    sizes = np.array([np.prod([n_states[i] for i in scope]) for scope in scopes], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64) if len(sizes) else sizes

    def draw(size: int) -> Any:
        return rng.integers(-2, 3, size).astype(float) if whole else rng.normal(size=size)

    return Scored(graph, draw(int(np.sum(n_states))), coupling * draw(int(sizes.sum())), starts)


def brute_force(problem: Scored) -> float:
    """Largest score, by trying every assignment."""
    return max(
        assignment_score(problem, y)
        for y in itertools.product(*(range(k) for k in problem.graph.n_states))
    )


def lp_relaxation(problem: Scored) -> tuple[float, Any]:
    """Optimum over the local polytope, and the marginals of the variables."""
    graph, nodes = problem.graph, problem.graph.unary_start[-1]
    sizes = [table_size(graph, c) for c in range(len(graph.scope_start) - 1)]
    tables = (problem.tables[a : a + k] for a, k in zip(problem.table_start, sizes, strict=True))
    scores = np.concatenate([problem.unary[:nodes], *tables])
    matrix, right = _constraints(graph, sizes)
    result = linprog(-scores, A_eq=matrix, b_eq=right, bounds=(0.0, 1.0))
    assert result.status == 0, result.message
    return float(-result.fun), result.x[:nodes]


def relaxed_bound(problem: Scored, messages: Any) -> float:
    """The upper bound that messages between factors and variables prove."""
    graph, beliefs, total, at = problem.graph, problem.unary.copy(), 0.0, 0
    for c, start in enumerate(problem.table_start):
        scope = graph.scope[graph.scope_start[c] : graph.scope_start[c + 1]]
        shape = tuple(int(k) for k in graph.n_states[scope])
        table = problem.tables[start : start + int(np.prod(shape))].reshape(shape).copy()
        for axis, i in enumerate(scope):
            message = messages[at : at + shape[axis]]
            at += shape[axis]
            beliefs[graph.unary_start[i] : graph.unary_start[i + 1]] += message
            table -= message.reshape([-1 if k == axis else 1 for k in range(len(shape))])
        total += float(table.max())
    parts = np.split(beliefs, graph.unary_start[1:-1])
    return total + sum(float(part.max()) for part in parts)


def grid(rows: int, columns: int) -> list[tuple[int, int]]:
    """Edges between neighbours."""
    at = np.arange(rows * columns).reshape(rows, columns)
    across = zip(at[:, :-1].ravel(), at[:, 1:].ravel(), strict=True)
    down = zip(at[:-1].ravel(), at[1:].ravel(), strict=True)
    return [(int(a), int(b)) for a, b in (*across, *down)]


@st.composite
def any_graph(draw: Any, max_order: int = 3, max_states: int = 4) -> Scored:
    """Loops, parallel factors, factors of different orders, free variables, ties."""
    n = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_states = rng.integers(1 if draw(st.booleans()) else 2, max_states + 1, n)
    orders = rng.integers(1, min(n, max_order) + 1, draw(st.integers(0, 9)))
    scopes = [rng.choice(n, k, replace=False).tolist() for k in orders]
    coupling = draw(st.sampled_from([0.1, 1.0, 4.0]))
    return scored(rng, n_states, scopes, coupling=coupling, whole=draw(st.booleans()))


@st.composite
def forest(draw: Any, max_order: int = 3) -> Scored:
    """Factors that join variables not connected before."""
    n = draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_states = rng.integers(1, 5, n)
    parts = [[i] for i in range(n)]
    scopes = []
    for _ in range(draw(st.integers(0, n))):
        order = int(rng.integers(1, max_order + 1))
        if len(parts) < order:
            break
        chosen = sorted(rng.choice(len(parts), order, replace=False), reverse=True)
        scopes.append([int(rng.choice(parts[k])) for k in chosen])
        parts.append([i for k in chosen for i in parts.pop(k)])
    rng.shuffle(scopes)
    return scored(rng, n_states, scopes, coupling=2.0, whole=draw(st.booleans()))


@st.composite
def binary_pairs(draw: Any, submodular: bool = False) -> Scored:
    """Binary variables and pairs; submodular ones prefer equal values."""
    n = draw(st.integers(2, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = [p for p in itertools.permutations(range(n), 2) if rng.random() < 0.4]
    graph, unary, tables, starts = scored(rng, [2] * n, pairs, whole=draw(st.booleans()))
    if submodular:
        for start in starts:
            a, b, c, d = tables[start : start + 4]
            if a + d < b + c:
                tables[start : start + 4] = b, a, d, c
    return Scored(graph, unary, tables, starts)
