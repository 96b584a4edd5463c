"""Exact MAP and exact LP relaxation by SciPy's HiGHS: the slow reference.

Guarantee: :func:`map_milp` returns a maximiser, within HiGHS's tolerances (1e-6 on feasibility, no
gap), whatever the graph; :func:`lp_relaxation` the optimum over the local polytope. Plain Python
with sparse matrices: milliseconds for a few variables, seconds for hundreds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from hingeline.inference.factor_graph import Scored, Topology, assignment_score, table_size

Array = np.ndarray[Any, Any]


def map_milp(scored: Scored, *, time_limit: float | None = None) -> tuple[float, Array]:
    """Best assignment of any graph.

    Parameters
    ----------
    scored : Scored
        Graph and finite scores.
    time_limit : float, optional
        Seconds after which the search ends with a bound above the score.

    Returns
    -------
    bound : float
        No assignment scores more; the score of ``y`` if there was time to prove it.
    y : ndarray of int32
        The best labels found.
    """
    graph = scored.graph
    result = _solve(scored, whole=True, time_limit=time_limit)
    if result.x is None:
        raise RuntimeError(f"HiGHS found no assignment: {result.message}")
    parts = np.split(result.x[: graph.unary_start[-1]], graph.unary_start[1:-1])
    y = np.array([np.argmax(part) for part in parts], dtype=np.int32)
    score = float(assignment_score(scored, y))
    if result.status == 0:
        return score, y
    return max(float(-result.mip_dual_bound), score), y


def lp_relaxation(scored: Scored) -> tuple[float, Array]:
    """Optimum of the relaxation over the local polytope.

    Returns
    -------
    value : float
        Optimum, at least the score of every assignment.
    marginals : ndarray
        Of the variables, laid out as ``unary``; whole numbers where the relaxation is tight.
    """
    result = _solve(scored, whole=False, time_limit=None)
    if result.status != 0:
        raise RuntimeError(f"HiGHS did not solve the relaxation: {result.message}")
    return float(-result.fun), result.x[: scored.graph.unary_start[-1]]


def _solve(scored: Scored, *, whole: bool, time_limit: float | None) -> Any:
    graph = scored.graph
    sizes = [table_size(graph, c) for c in range(len(graph.scope_start) - 1)]
    starts = zip(scored.table_start, sizes, strict=True)
    nodes = int(graph.unary_start[-1])
    scores = np.concatenate([scored.unary[:nodes], *(scored.tables[a : a + k] for a, k in starts)])
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite: give states that are forbidden a low score")
    if len(scores) == 0:
        return _Nothing()
    matrix, right = _constraints(graph, sizes)
    integrality = np.zeros(len(scores))
    integrality[:nodes] = whole
    options = {"mip_rel_gap": 0.0}
    if time_limit is not None:
        options["time_limit"] = time_limit
    return milp(
        -scores,
        integrality=integrality,
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, right, right),
        options=options,
    )


class _Nothing:
    """Result of a problem without variables."""

    x = np.empty(0)
    status = 0
    fun = 0.0


def _constraints(graph: Topology, sizes: list[int]) -> tuple[Any, Array]:
    """Every variable has one state; factors agree with their variables."""
    n = len(graph.n_states)
    nodes = int(graph.unary_start[-1])
    starts = np.concatenate(([0], np.cumsum(graph.n_states[graph.scope]))).astype(np.int64)
    ones = np.ones(nodes)
    rows = [np.repeat(np.arange(n), graph.n_states)]
    columns = [np.arange(nodes)]
    values = [ones]
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
    right = np.concatenate(
        (
            np.ones(n),
            np.zeros(starts[-1]),
            [float(np.count_nonzero(np.diff(graph.scope_start) == 0))],
        )
    )
    matrix = sparse.csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(len(right), first),
    )
    return matrix, right
