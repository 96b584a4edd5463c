"""Distances between the planes of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.inference.factor_graph import joint_index, topology
from hingeline.structures.graph_planes import first_difference
from hingeline.structures.graph_problem import GraphProblem

Array = np.ndarray[Any, Any]


@helper
def _column_sqnorm(
    problem: GraphProblem, row: Array, sign: Array, after: Array, head: int, scratch: Array
) -> float:
    """``‖Σ ±x‖²`` over the rows of a list that begins at ``head``."""
    if after[head] < 0:
        return problem.row_sqnorm[row[head]]
    same = True
    total = 0.0
    e = head
    while e >= 0:
        same = same and row[e] == row[head]
        total += sign[e]
        e = after[e]
    if same:
        return total * total * problem.row_sqnorm[row[head]]
    e = head
    while e >= 0:
        for p in range(problem.indptr[row[e]], problem.indptr[row[e] + 1]):
            scratch[problem.indices[p]] += sign[e] * problem.values[p]
        e = after[e]
    total = 0.0
    e = head
    while e >= 0:
        for p in range(problem.indptr[row[e]], problem.indptr[row[e] + 1]):
            f = problem.indices[p]
            total += scratch[f] * scratch[f]
            scratch[f] = 0.0
        e = after[e]
    return total


@helper
def _unary_sqdist(problem: GraphProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    """The part of the unary weights: the rows that meet in one column are summed."""
    first = problem.graphs.node_ptr[problem.graph[i]]
    lo = problem.node_offset[i]
    n = y.shape[0]
    heads = np.full(problem.n_columns, -1, dtype=np.int64)
    row = np.empty(2 * n, dtype=np.int64)
    sign = np.empty(2 * n)
    after = np.empty(2 * n, dtype=np.int64)
    count = 0
    for v in range(n):
        if y[v] == z[v]:
            continue
        column = problem.column_start[problem.node_template[first + v]]
        for side in range(2):
            k = column + (y[v] if side == 0 else z[v])
            row[count] = problem.row[lo + v]
            sign[count] = 1.0 if side == 0 else -1.0
            after[count] = heads[k]
            heads[k] = count
            count += 1
    total = 0.0
    if count > 0:
        for k in range(problem.n_columns):
            if heads[k] >= 0:
                total += _column_sqnorm(problem, row, sign, after, heads[k], scratch)
    return total


@helper
def _collect(
    problem: GraphProblem, i: int, c: int, a: int, b: int, counts: Array, clear: bool
) -> float:
    """Count the features of factor c at joint state a against b; or sum their squares, and clear.

    ``counts`` begins where the tables do.
    """
    at = problem.graphs.factor_ptr[problem.graph[i]] + c
    t = problem.factor_template[at]
    place = problem.table_offset[t] - problem.n_features * problem.n_columns
    plain = problem.factor_start.shape[0] == 0
    values = 0 if plain else problem.factor_start[problem.factor_offset[i] + c]
    total = 0.0
    for f in range(problem.table_features[t]):
        if clear:
            total += counts[place + a] * counts[place + a]
            counts[place + a] = 0.0
            total += counts[place + b] * counts[place + b]
            counts[place + b] = 0.0
        else:
            value = 1.0 if plain else problem.factor_values[values + f]
            counts[place + a] += value
            counts[place + b] -= value
        place += problem.table_states[t]
    return total


@helper
def plane_sqdist(problem: GraphProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    """``‖f(x_i, y) − f(x_i, z)‖²``; ``scratch`` is zero before and after."""
    graph = topology(problem.graphs, problem.graph[i])
    total = _unary_sqdist(problem, i, y, z, scratch)
    counts = scratch[problem.n_features :]
    for clear in range(2):
        for v in range(y.shape[0]):
            if y[v] == z[v]:
                continue
            for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
                c = graph.incident[q]
                if first_difference(graph, c, graph.slot[q], y, z):
                    a, b = joint_index(graph, c, y), joint_index(graph, c, z)
                    total += _collect(problem, i, c, a, b, counts, clear == 1)
    return total
