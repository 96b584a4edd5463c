"""Planes of a graph: parts that differ from the truth, for one plane or all of an example.

Variables that share a row of features are visited together, and the row's features once for all
planes. A factor is met at the first variable of its scope that differs, so that the cost is that
of the differences, not of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline._simd import rows_add, rows_dot
from hingeline.inference.factor_graph import Topology, joint_index, topology
from hingeline.structures.graph_problem import GraphProblem

Array = np.ndarray[Any, Any]

#: Rows are read as a whole where at least one column in so many is wanted.
SPARSE_COLUMNS = 6


@helper
def first_difference(graph: Topology, c: int, slot: int, y: Array, z: Array) -> bool:
    """Whether no variable of factor c before ``slot`` differs between y and z."""
    start = graph.scope_start[c]
    for p in range(start, start + slot):
        v = graph.scope[p]
        if y[v] != z[v]:
            return False
    return True


@helper
def table_difference(problem: GraphProblem, i: int, c: int, a: int, b: int, w: Array) -> float:
    """Score of joint state a of factor c minus that of b."""
    at = problem.graphs.factor_ptr[problem.graph[i]] + c
    if problem.factor_start.shape[0] == 0:
        table = problem.factor_table[at]
        return w[table + a] - w[table + b]
    t = problem.factor_template[at]
    table = problem.table_offset[t]
    values = problem.factor_start[problem.factor_offset[i] + c]
    total = 0.0
    for f in range(problem.table_features[t]):
        total += problem.factor_values[values + f] * (w[table + a] - w[table + b])
        table += problem.table_states[t]
    return total


@helper
def table_add(problem: GraphProblem, i: int, c: int, a: int, b: int, step: float, w: Array) -> None:
    """Add the features of factor c at joint state a, and take away those at b, times ``step``."""
    at = problem.graphs.factor_ptr[problem.graph[i]] + c
    if problem.factor_start.shape[0] == 0:
        table = problem.factor_table[at]
        w[table + a] += step
        w[table + b] -= step
        return
    t = problem.factor_template[at]
    table = problem.table_offset[t]
    values = problem.factor_start[problem.factor_offset[i] + c]
    for f in range(problem.table_features[t]):
        change = step * problem.factor_values[values + f]
        w[table + a] += change
        w[table + b] -= change
        table += problem.table_states[t]


@helper
def _name(column: int, mark: Array, named: Array, count: int) -> int:
    """Put a column on the list of those wanted, once; the length of the list."""
    if mark[column] == 0:
        mark[column] = 1
        named[count] = column
        return count + 1
    return count


@helper
def _group(problem: GraphProblem, lo: int, v: int, n: int) -> int:
    """End of the variables from v on that share a row."""
    r = problem.row[lo + v]
    last = v + 1
    while last < n and problem.row[lo + last] == r:
        last += 1
    return last


@helper
def planes_score(problem: GraphProblem, i: int, ys: Array, w: Array, out: Array) -> None:
    """``w·Δf`` of all planes."""
    g = problem.graph[i]
    graph = topology(problem.graphs, g)
    first = problem.graphs.node_ptr[g]
    lo = problem.node_offset[i]
    m, n = ys.shape
    gold = problem.labels[lo : lo + n]
    stride = problem.n_columns
    for j in range(m):
        out[j] = 0.0
    sums = np.empty(stride)
    mark = np.zeros(stride, dtype=np.int8)
    named = np.empty(stride, dtype=np.int64)
    v = 0
    while v < n:
        last = _group(problem, lo, v, n)
        count = 0
        for u in range(v, last):
            column = problem.column_start[problem.node_template[first + u]]
            for j in range(m):
                if ys[j, u] != gold[u]:
                    count = _name(column + gold[u], mark, named, count)
                    count = _name(column + ys[j, u], mark, named, count)
        if count > 0:
            r = problem.row[lo + v]
            begin, end = problem.indptr[r], problem.indptr[r + 1]
            if SPARSE_COLUMNS * count >= stride:
                rows_dot(problem.indices, problem.values, begin, end, w, stride, sums, 0)
            else:
                for k in named[:count]:
                    sums[k] = 0.0
                for p in range(begin, end):
                    at = problem.indices[p] * stride
                    for k in named[:count]:
                        sums[k] += problem.values[p] * w[at + k]
            for k in named[:count]:
                mark[k] = 0
            for u in range(v, last):
                column = problem.column_start[problem.node_template[first + u]]
                for j in range(m):
                    if ys[j, u] != gold[u]:
                        out[j] += sums[column + gold[u]] - sums[column + ys[j, u]]
        v = last
    for j in range(m):
        y = ys[j]
        for v in range(n):
            if y[v] == gold[v]:
                continue
            for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
                c = graph.incident[q]
                if first_difference(graph, c, graph.slot[q], gold, y):
                    a, b = joint_index(graph, c, gold), joint_index(graph, c, y)
                    out[j] += table_difference(problem, i, c, a, b, w)


@helper
def planes_add(problem: GraphProblem, i: int, ys: Array, steps: Array, w: Array) -> None:
    """``w += Σ_j steps_j·Δf(y_j)``: changes of one row are summed, then spread."""
    g = problem.graph[i]
    graph = topology(problem.graphs, g)
    first = problem.graphs.node_ptr[g]
    lo = problem.node_offset[i]
    m, n = ys.shape
    gold = problem.labels[lo : lo + n]
    stride = problem.n_columns
    change = np.zeros(stride)
    mark = np.zeros(stride, dtype=np.int8)
    named = np.empty(stride, dtype=np.int64)
    v = 0
    while v < n:
        last = _group(problem, lo, v, n)
        count = 0
        for u in range(v, last):
            column = problem.column_start[problem.node_template[first + u]]
            for j in range(m):
                if ys[j, u] != gold[u] and steps[j] != 0.0:
                    count = _name(column + gold[u], mark, named, count)
                    count = _name(column + ys[j, u], mark, named, count)
                    change[column + gold[u]] += steps[j]
                    change[column + ys[j, u]] -= steps[j]
        if count > 0:
            r = problem.row[lo + v]
            begin, end = problem.indptr[r], problem.indptr[r + 1]
            if SPARSE_COLUMNS * count >= stride:
                rows_add(problem.indices, problem.values, begin, end, change, w, stride)
            else:
                for p in range(begin, end):
                    at = problem.indices[p] * stride
                    for k in named[:count]:
                        w[at + k] += problem.values[p] * change[k]
            for k in named[:count]:
                mark[k] = 0
                change[k] = 0.0
        v = last
    for j in range(m):
        if steps[j] == 0.0:
            continue
        y = ys[j]
        for v in range(n):
            if y[v] == gold[v]:
                continue
            for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
                c = graph.incident[q]
                if first_difference(graph, c, graph.slot[q], gold, y):
                    a, b = joint_index(graph, c, gold), joint_index(graph, c, y)
                    table_add(problem, i, c, a, b, steps[j], w)
