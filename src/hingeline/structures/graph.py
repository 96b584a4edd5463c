"""Graphs: variables with unary scores, and tables over pairs and other small sets of them.

Planes of graph problems, distances between them, and decoding: exact where the graph allows it;
elsewhere the value is an upper bound, and ``decode_excess`` says how far the output found may be
from the best. What a graph problem is, and where its weights lie: :mod:`.graph_blocks`.
"""

from typing import Any

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper, kernel
from hingeline._simd import list_some, rows_add, rows_add_few, rows_dot, rows_dot_few
from hingeline.core.primitives import Compiled, register, rows_sqnorm, shift
from hingeline.inference import factor_graph
from hingeline.inference.factor_graph import Scored, Topology, joint_index, topology
from hingeline.inference.map import GRAPH_CUT, best_assignment
from hingeline.structures import graph_blocks
from hingeline.structures.graph_blocks import (
    GraphProblem,
    find_row,
    find_table,
    first_column,
    group_end,
)

SPARSE_COLUMNS = 6  # Rows are read as a whole where at least one column in so many is wanted.
EXCESS_ROUNDING = 1e-12  # A share of the size of the scores below which an excess is rounding.
TIGHT = 1e-6  # A bound within this share of it shows that an output is the best one.


def compile_problem(problem: GraphProblem) -> Compiled:
    """The problem with the sizes that solvers need."""
    all_cut = bool((problem.oracle.method == GRAPH_CUT).all())
    return Compiled(
        problem,
        lengths=np.diff(problem.offsets),
        n_weights=problem.n_weights,
        end=problem.graphs.n_states.max(initial=0),
        exact=graph_blocks.decodes_exactly(problem) or all_cut,
    )


# Variables that share a row of features are visited together, and the row's features once for all
# planes. A factor is met at the first variable of its scope that differs, so that the cost is
# that of the differences, not of the graph.


@helper
def _meet_factor(graph: Topology, q: int, y: Array, z: Array) -> tuple[int, int, int]:
    """The factor at place q of ``incident``, and its joint states in y and z.

    −1 for the factor where an earlier variable of its scope differs: it was met there.
    """
    c = graph.incident[q]
    start = graph.scope_start[c]
    for p in range(start, start + graph.slot[q]):
        v = graph.scope[p]
        if y[v] != z[v]:
            return -1, 0, 0
    return c, joint_index(graph, c, y), joint_index(graph, c, z)


@helper
def _follow_tables(
    problem: GraphProblem, i: int, v: int, y: Array, step: float, w: Array, total: float
) -> float:
    """``w += step·Δf`` of the factors whose first difference is at variable v.

    Without a step ``total`` plus ``w·Δf`` of them.
    """
    lo = problem.offsets[i]
    gold = problem.labels[lo : lo + y.shape[0]]
    graph = topology(problem.graphs, problem.graph[i])
    for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
        c, a, b = _meet_factor(graph, q, gold, y)
        if c < 0:
            continue
        t, table, values = find_table(problem, i, c)
        part = 0.0
        for f in range(problem.table_features[t]):
            value = 1.0 if values < 0 else problem.factor_values[values + f]
            part += shift(w, table + a, table + b, value, step)
            table += problem.table_states[t]
        total += part
    return total


@helper
def planes_score(problem: GraphProblem, i: int, ys: Array, w: Array, out: Array) -> None:
    lo = problem.offsets[i]
    m, n = ys.shape
    gold = problem.labels[lo : lo + n]
    stride = problem.n_columns
    out[:] = 0.0
    sums = np.empty(stride)
    marks = np.zeros(stride)
    named = np.empty(stride, dtype=np.int64)
    v = 0
    while v < n:
        last = group_end(problem, i, v, n)
        for u in range(v, last):
            column = first_column(problem, i, u)
            for j in range(m):
                if ys[j, u] != gold[u]:
                    marks[column + gold[u]] = 1.0
                    marks[column + ys[j, u]] = 1.0
        count = list_some(marks, named)
        if count > 0:
            _, begin, end = find_row(problem, i, v)
            if SPARSE_COLUMNS * count >= stride:
                rows_dot(problem.indices, problem.values, begin, end, w, stride, sums, 0)
            else:
                some = named[:count]
                rows_dot_few(problem.indices, problem.values, begin, end, w, stride, some, sums)
            for q in range(count):
                marks[named[q]] = 0.0
            for u in range(v, last):
                column = first_column(problem, i, u)
                for j in range(m):
                    if ys[j, u] != gold[u]:
                        out[j] += sums[column + gold[u]] - sums[column + ys[j, u]]
        v = last
    for j in range(m):
        for v in range(n):
            if ys[j, v] != gold[v]:
                out[j] = _follow_tables(problem, i, v, ys[j], 0.0, w, out[j])


@helper
def planes_add(problem: GraphProblem, i: int, ys: Array, steps: Array, w: Array) -> None:
    """``w += Σ_j steps_j·Δf(y_j)``: changes of one row are summed, then spread."""
    lo = problem.offsets[i]
    m, n = ys.shape
    gold = problem.labels[lo : lo + n]
    stride = problem.n_columns
    change = np.zeros(stride)
    named = np.empty(stride, dtype=np.int64)
    v = 0
    while v < n:
        last = group_end(problem, i, v, n)
        for u in range(v, last):
            column = first_column(problem, i, u)
            for j in range(m):
                if ys[j, u] != gold[u]:
                    change[column + gold[u]] += steps[j]
                    change[column + ys[j, u]] -= steps[j]
        count = list_some(change, named)
        if count > 0:
            _, begin, end = find_row(problem, i, v)
            if SPARSE_COLUMNS * count >= stride:
                rows_add(problem.indices, problem.values, begin, end, change, w, stride)
            else:
                rows_add_few(problem.indices, problem.values, begin, end, change, w, stride)
            for q in range(count):
                change[named[q]] = 0.0
        v = last
    for j in range(m):
        for v in range(n):
            if ys[j, v] != gold[v] and steps[j] != 0.0:
                _follow_tables(problem, i, v, ys[j], steps[j], w, 0.0)


@helper
def _unary_sqdist(problem: GraphProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    """The part of the unary weights: the rows that meet in one column are summed."""
    n = y.shape[0]
    heads = np.full(problem.n_columns, -1, dtype=np.int64)
    row = np.empty(2 * n, dtype=np.int64)
    sign = np.empty(2 * n)
    after = np.empty(2 * n, dtype=np.int64)
    count = 0
    for v in range(n):
        if y[v] == z[v]:
            continue
        column = first_column(problem, i, v)
        for side in range(2):
            k = column + (y[v] if side == 0 else z[v])
            row[count] = problem.row[problem.offsets[i] + v]
            sign[count] = 1.0 if side == 0 else -1.0
            after[count] = heads[k]
            heads[k] = count
            count += 1
    rows, signs = np.empty(n, dtype=np.int64), np.empty(n)
    total = 0.0
    for k in range(problem.n_columns):
        size, e = 0, heads[k]
        while e >= 0:
            rows[size], signs[size] = row[e], sign[e]
            size, e = size + 1, after[e]
        if size == 1:
            total += problem.row_sqnorm[rows[0]]
        else:
            total += rows_sqnorm(problem, rows, signs, size, scratch, 0.0)
    return total


@helper
def _clear(problem: GraphProblem, i: int, c: int, a: int, b: int, counts: Array) -> float:
    """The sum of squares of what was counted at joint states a and b of factor c; 0 is left."""
    t, at, _ = find_table(problem, i, c)
    total = 0.0
    for _ in range(problem.table_features[t]):
        for k in (at + a, at + b):
            total += counts[k] * counts[k]
            counts[k] = 0.0
        at += problem.table_states[t]
    return total


@helper
def plane_sqdist(problem: GraphProblem, i: int, y: Array, z: Array, scratch: Array) -> float:
    graph = topology(problem.graphs, problem.graph[i])
    total = _unary_sqdist(problem, i, y, z, scratch)
    for clear in range(2):
        for v in range(y.shape[0]):
            if y[v] == z[v]:
                continue
            for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
                c, a, b = _meet_factor(graph, q, y, z)
                if c >= 0 and clear == 0:
                    graph_blocks.state_add(problem, i, c, a, 1.0, scratch)
                    graph_blocks.state_add(problem, i, c, b, -1.0, scratch)
                elif c >= 0:
                    total += _clear(problem, i, c, a, b, scratch)
    return total


@helper
def unary_scores(problem: GraphProblem, i: int, w: Array, loss_scale: float) -> Array:
    """Scores over (variable, state) with the scaled loss added.

    Variables that share a row of features are scored together: weights lie feature-major.
    """
    graph = topology(problem.graphs, problem.graph[i])
    lo = problem.offsets[i]
    n = graph.n_states.shape[0]
    out = np.empty(graph.unary_start[n])
    sums = np.empty(problem.n_columns)
    v = 0
    while v < n:
        last = group_end(problem, i, v, n)
        if last == v + 1 and 2 * graph.n_states[v] <= problem.n_columns:  # most are others' own
            own = sums[first_column(problem, i, v) :]
            graph_blocks.variable_scores(problem, i, v, graph.n_states[v], w, own)
        else:
            graph_blocks.row_scores(problem, i, v, w, sums)
        for u in range(v, last):
            column = first_column(problem, i, u)
            at = graph.unary_start[u]
            for s in range(graph.n_states[u]):
                out[at + s] = sums[column + s]
            if loss_scale != 0.0:
                scale = loss_scale * problem.node_weight[lo + u]
                costs = problem.cost[problem.labels[lo + u]]
                for s in range(graph.n_states[u]):
                    out[at + s] += scale * costs[s]
        v = last
    return out


@helper
def table_scores(problem: GraphProblem, i: int, w: Array) -> tuple[Array, Array]:
    """Tables of the example's factors and where each begins; the weights themselves if they can."""
    g = problem.graph[i]
    graph = topology(problem.graphs, g)
    start = problem.factor_table[problem.graphs.factor_ptr[g] : problem.graphs.factor_ptr[g + 1]]
    if problem.factor_start.shape[0] == 0:
        return w, start
    own = np.empty_like(start)
    size = 0
    for c in range(own.shape[0]):
        own[c] = size
        size += factor_graph.table_size(graph, c)
    tables = np.empty(size)
    for c in range(own.shape[0]):
        graph_blocks.factor_scores(problem, i, c, w, tables[own[c] :])
    return tables, own


@helper
def score_graph(problem: GraphProblem, i: int, w: Array, loss_scale: float) -> Scored:
    """The graph of example i with its scores and the scaled loss."""
    tables, start = table_scores(problem, i, w)
    unary = unary_scores(problem, i, w, loss_scale)
    return Scored(topology(problem.graphs, problem.graph[i]), unary, tables, start)


@helper
def search(
    problem: GraphProblem, i: int, w: Array, loss_scale: float, y_out: Array
) -> tuple[float, Scored]:
    """An upper bound on the best value, and the scores; the output found is written."""
    scored = score_graph(problem, i, w, loss_scale)
    bound = best_assignment(problem.oracle, problem.graph[i], scored, y_out)
    return bound, scored


@helper
def decode(problem: GraphProblem, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    bound, scored = search(problem, i, w, loss_scale, y_out)
    return max(bound, factor_graph.assignment_score(scored, y_out))


@helper
def decode_excess(
    problem: GraphProblem, i: int, w: Array, loss_scale: float, y_out: Array
) -> float:
    bound, scored = search(problem, i, w, loss_scale, y_out)
    if factor_graph.meets(scored, y_out, bound, EXCESS_ROUNDING):
        return 0.0
    return bound - factor_graph.assignment_score(scored, y_out)


@helper
def plane_loss(problem: GraphProblem, i: int, y: Array) -> float:
    lo = problem.offsets[i]
    total = 0.0
    for v in range(y.shape[0]):
        total += problem.node_weight[lo + v] * problem.cost[problem.labels[lo + v], y[v]]
    return total


@helper
def _follow_plane(problem: GraphProblem, i: int, y: Array, step: float, w: Array) -> float:
    """``w += step·Δf``; without a step ``w·Δf``."""
    lo = problem.offsets[i]
    gold = problem.labels[lo : lo + y.shape[0]]
    total = 0.0
    for v in range(y.shape[0]):
        if y[v] != gold[v]:
            column, begin, end = find_row(problem, i, v)
            for p in range(begin, end):
                at = problem.indices[p] * problem.n_columns + column
                total += shift(w, at + gold[v], at + y[v], problem.values[p], step)
            total = _follow_tables(problem, i, v, y, step, w, total)
    return total


@helper
def plane_score(problem: GraphProblem, i: int, y: Array, w: Array) -> float:
    return _follow_plane(problem, i, y, 0.0, w)


@helper
def plane_add(problem: GraphProblem, i: int, y: Array, step: float, w: Array) -> None:
    _follow_plane(problem, i, y, step, w)


register(GraphProblem, vars())


@kernel
def decode_all(
    problem: Any, order: Array, w: Array, y_out: Array, bounds: Array, values: Array, tight: Array
) -> None:
    """Best state found of every variable; by graph a bound on the best value, and if it is met."""
    for i in order:
        y = y_out[problem.offsets[i] : problem.offsets[i + 1]]
        bounds[i], scored = search(problem, i, w, 0.0, y)
        values[i] = factor_graph.assignment_score(scored, y)
        tight[i] = factor_graph.meets(scored, y, bounds[i], TIGHT)


@kernel
def conditional_scores_all(
    problem: GraphProblem, order: Array, w: Array, ys: Array, start: Array, out: Array
) -> None:
    """Score of every state of every variable, the others being as in ``ys``.

    Those of example i stand in ``out[start[i] : start[i + 1]]``, over (variable, state); what does
    not depend on the variable's state is left out.
    """
    for i in order:
        scored = score_graph(problem, i, w, 0.0)
        y = ys[problem.offsets[i] : problem.offsets[i + 1]].copy()
        for v in range(y.shape[0]):
            at = start[i] + scored.graph.unary_start[v]
            factor_graph.conditional_scores(scored, v, y, out[at:])
