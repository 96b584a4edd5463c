"""Exact MAP and exact LP relaxation by SciPy's HiGHS: the slow reference.

Guarantee: :func:`map_milp` returns a maximiser, within HiGHS's tolerances (1e-6 on feasibility, no
gap), whatever the graph, which has at least one variable; :func:`solve` the optimum over the local
polytope. Plain Python with sparse matrices: milliseconds for a few variables, seconds for hundreds.
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from hingeline._checks import Array
from hingeline.inference import factor_graph
from hingeline.inference.factor_graph import Scored, Topology


def map_milp(scored: Scored) -> tuple[float, Array]:
    """The best score of any assignment of a graph with finite scores, and the labels."""
    result = solve(scored, whole=True)
    if result.status != 0:
        raise RuntimeError(f"HiGHS found no assignment: {result.message}")
    starts = scored.graph.unary_start
    parts = np.split(result.x[: starts[-1]], starts[1:-1])
    y = np.array([np.argmax(part) for part in parts], dtype=np.int32)
    return float(factor_graph.assignment_score(scored, y)), y


def solve(scored: Scored, whole: bool) -> Any:
    """SciPy's result over the local polytope: variables as ``unary``, then the factors.

    The marginals of variables are whole numbers, or any: the relaxation.
    """
    graph = scored.graph
    sizes = [factor_graph.table_size(graph, c) for c in range(len(graph.scope_start) - 1)]
    starts = zip(scored.table_start, sizes, strict=True)
    nodes = int(graph.unary_start[-1])
    scores = np.concatenate([scored.unary[:nodes], *(scored.tables[a : a + k] for a, k in starts)])
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite: give states that are forbidden a low score")
    matrix, right = _constraints(graph, sizes)
    integrality = np.zeros(len(scores))
    integrality[:nodes] = whole
    unit = float(np.abs(scores).max(initial=0.0)) or 1.0  # the tolerances of HiGHS are absolute
    result = milp(
        -scores / unit,
        integrality=integrality,
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, right, right),
        options={"mip_rel_gap": 0.0},
    )
    if result.fun is not None:
        result.fun *= unit
    return result


def _constraints(graph: Topology, sizes: list[int]) -> tuple[Any, Array]:
    """Every variable has one state; factors agree with their variables."""
    n = len(graph.n_states)
    nodes = int(graph.unary_start[-1])
    starts = factor_graph.starts_of(graph.n_states[graph.scope])
    rows = [np.repeat(np.arange(n), graph.n_states)]
    columns = [np.arange(nodes)]
    values = [np.ones(nodes)]
    first = nodes
    for c, size in enumerate(sizes):
        lo, hi = graph.scope_start[c], graph.scope_start[c + 1]
        scope = graph.scope[lo:hi]
        digits = np.unravel_index(np.arange(size), graph.n_states[scope]) if hi > lo else ()
        for p, i, digit in zip(range(lo, hi), scope, digits, strict=True):
            states = np.arange(graph.n_states[i])
            rows += [n + starts[p] + digit, n + starts[p] + states]
            columns += [first + np.arange(size), graph.unary_start[i] + states]
            values += [np.ones(size), -np.ones(len(states))]
        if hi == lo:  # a constant, taken in full
            rows.append(np.array([n + starts[-1]]))
            columns.append(np.array([first]))
            values.append(np.ones(1))
        first += size
    constants = np.count_nonzero(np.diff(graph.scope_start) == 0)
    right = np.concatenate((np.ones(n), np.zeros(starts[-1]), [float(constants)]))
    matrix = sparse.csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(len(right), first),
    )
    return matrix, right
