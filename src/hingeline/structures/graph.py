"""Graphs: variables with unary scores, and tables over pairs and other small sets of them.

An output is one state per variable. With features ``x_i`` of variables and ``z_c`` of factors
(the constant 1 where there are none)::

    w·f(x, y) = Σ_i x_i·U[:, column(i, y_i)] + Σ_c z_c·T[:, index_c(y)]

where the template of a variable chooses its columns of U, and that of a factor its table T; see
:mod:`hingeline.structures.graph_problem` for their places. The loss is a sum over variables of
``node_weight·cost[true state, predicted state]``.

Decoding is exact where the graph allows it; elsewhere the value is an upper bound, and
``decode_excess`` says how far the output found may be from the best.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline._simd import rows_dot
from hingeline.inference.factor_graph import Topology, assignment_score, joint_index, topology
from hingeline.inference.map_inference import best_assignment
from hingeline.structures.base import register
from hingeline.structures.graph_distance import plane_sqdist
from hingeline.structures.graph_planes import (
    first_difference,
    planes_add,
    planes_score,
    table_add,
    table_difference,
)
from hingeline.structures.graph_problem import (
    INFERENCE,
    GraphProblem,
    compile_problem,
    decodes_exactly,
    make_problem,
)

__all__ = [
    "INFERENCE",
    "GraphProblem",
    "compile_problem",
    "decodes_exactly",
    "make_problem",
    "plane_sqdist",
    "planes_add",
    "planes_score",
]

Array = np.ndarray[Any, Any]

#: A share of the value below which an excess is rounding.
ROUNDING = 1e-12


@helper
def unary_scores(problem: GraphProblem, i: int, w: Array, loss_scale: float) -> Array:
    """Scores over (variable, state) with the scaled loss added.

    Variables that share a row of features are scored together: weights lie feature-major.
    """
    graph = topology(problem.graphs, problem.graph[i])
    first = problem.graphs.node_ptr[problem.graph[i]]
    lo = problem.node_offset[i]
    n = graph.n_states.shape[0]
    stride = problem.n_columns
    out = np.empty(graph.unary_start[n])
    sums = np.empty(stride)
    v = 0
    while v < n:
        r = problem.row[lo + v]
        last = v + 1
        while last < n and problem.row[lo + last] == r:
            last += 1
        begin, end = problem.indptr[r], problem.indptr[r + 1]
        column = problem.column_start[problem.node_template[first + v]]
        count = graph.n_states[v]
        if last == v + 1 and 2 * count <= stride:  # most columns belong to other variables
            for k in range(column, column + count):
                sums[k] = 0.0
            for p in range(begin, end):
                at = problem.indices[p] * stride
                value = problem.values[p]
                for k in range(column, column + count):
                    sums[k] += value * w[at + k]
        else:
            rows_dot(problem.indices, problem.values, begin, end, w, stride, sums, 0)
        for u in range(v, last):
            column = problem.column_start[problem.node_template[first + u]]
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
def featured_tables(problem: GraphProblem, i: int, w: Array, start: Array) -> Array:
    """Tables of factors that have features, one after the other; ``start`` says where."""
    g = problem.graph[i]
    first = problem.graphs.factor_ptr[g]
    m = problem.graphs.factor_ptr[g + 1] - first
    size = 0
    for c in range(m):
        start[c] = size
        size += problem.table_states[problem.factor_template[first + c]]
    tables = np.zeros(size)
    for c in range(m):
        t = problem.factor_template[first + c]
        states = problem.table_states[t]
        values = problem.factor_start[problem.factor_offset[i] + c]
        for f in range(problem.table_features[t]):
            value = problem.factor_values[values + f]
            if value != 0.0:
                at = problem.table_offset[t] + f * states
                for k in range(states):
                    tables[start[c] + k] += value * w[at + k]
    return tables


@helper
def table_scores(problem: GraphProblem, i: int, w: Array) -> tuple[Array, Array]:
    """Tables of the example's factors and where each begins; the weights themselves if they can."""
    g = problem.graph[i]
    start = problem.factor_table[problem.graphs.factor_ptr[g] : problem.graphs.factor_ptr[g + 1]]
    if problem.factor_start.shape[0] == 0:
        return w, start
    own = np.empty_like(start)
    return featured_tables(problem, i, w, own), own


@helper
def search(
    problem: GraphProblem, i: int, w: Array, loss_scale: float, y_out: Array
) -> tuple[float, float]:
    """An upper bound on the best value, and the value of the output written."""
    graph: Topology = topology(problem.graphs, problem.graph[i])
    unary = unary_scores(problem, i, w, loss_scale)
    tables, start = table_scores(problem, i, w)
    method = problem.method[problem.graph[i]]
    bound = best_assignment(graph, unary, tables, start, method, np.empty(0), y_out)
    return bound, assignment_score(graph, unary, tables, start, y_out)


@helper
def output_length(problem: GraphProblem, i: int) -> int:
    return problem.node_offset[i + 1] - problem.node_offset[i]


@helper
def decode(problem: GraphProblem, i: int, w: Array, loss_scale: float, y_out: Array) -> float:
    bound, value = search(problem, i, w, loss_scale, y_out)
    return max(bound, value)


@helper
def decode_excess(
    problem: GraphProblem, i: int, w: Array, loss_scale: float, y_out: Array
) -> float:
    bound, value = search(problem, i, w, loss_scale, y_out)
    excess = bound - value
    return excess if excess > ROUNDING * (1.0 + abs(value)) else 0.0


@helper
def plane_loss(problem: GraphProblem, i: int, y: Array) -> float:
    lo = problem.node_offset[i]
    total = 0.0
    for v in range(y.shape[0]):
        total += problem.node_weight[lo + v] * problem.cost[problem.labels[lo + v], y[v]]
    return total


@helper
def truth(problem: GraphProblem, i: int, y_out: Array) -> None:
    lo = problem.node_offset[i]
    for v in range(y_out.shape[0]):
        y_out[v] = problem.labels[lo + v]


@helper
def plane_score(problem: GraphProblem, i: int, y: Array, w: Array) -> float:
    g = problem.graph[i]
    graph = topology(problem.graphs, g)
    first = problem.graphs.node_ptr[g]
    lo = problem.node_offset[i]
    gold = problem.labels[lo : lo + y.shape[0]]
    stride = problem.n_columns
    total = 0.0
    for v in range(y.shape[0]):
        if y[v] == gold[v]:
            continue
        column = problem.column_start[problem.node_template[first + v]]
        r = problem.row[lo + v]
        for p in range(problem.indptr[r], problem.indptr[r + 1]):
            at = problem.indices[p] * stride + column
            total += problem.values[p] * (w[at + gold[v]] - w[at + y[v]])
        for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
            c = graph.incident[q]
            if first_difference(graph, c, graph.slot[q], gold, y):
                a, b = joint_index(graph, c, gold), joint_index(graph, c, y)
                total += table_difference(problem, i, c, a, b, w)
    return total


@helper
def plane_add(problem: GraphProblem, i: int, y: Array, step: float, w: Array) -> None:
    g = problem.graph[i]
    graph = topology(problem.graphs, g)
    first = problem.graphs.node_ptr[g]
    lo = problem.node_offset[i]
    gold = problem.labels[lo : lo + y.shape[0]]
    stride = problem.n_columns
    for v in range(y.shape[0]):
        if y[v] == gold[v]:
            continue
        column = problem.column_start[problem.node_template[first + v]]
        r = problem.row[lo + v]
        for p in range(problem.indptr[r], problem.indptr[r + 1]):
            at = problem.indices[p] * stride + column
            change = step * problem.values[p]
            w[at + gold[v]] += change
            w[at + y[v]] -= change
        for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
            c = graph.incident[q]
            if first_difference(graph, c, graph.slot[q], gold, y):
                a, b = joint_index(graph, c, gold), joint_index(graph, c, y)
                table_add(problem, i, c, a, b, step, w)


@helper
def decode_by_loss(problem: GraphProblem, i: int, w: Array) -> tuple[Array, Array]:
    """Never called: estimators refuse what needs it. Kernels contain the call all the same."""
    return np.empty(0), np.empty((0, output_length(problem, i)), dtype=np.int32)


@helper
def decode_best(problem: GraphProblem, i: int, w: Array, loss_scale: float, ys: Array) -> int:
    """Never called, as :func:`decode_by_loss`."""
    return 0


register(
    GraphProblem,
    output_length=output_length,
    decode=decode,
    decode_excess=decode_excess,
    plane_score=plane_score,
    plane_add=plane_add,
    plane_sqdist=plane_sqdist,
    planes_score=planes_score,
    planes_add=planes_add,
    plane_loss=plane_loss,
    truth=truth,
    decode_by_loss=decode_by_loss,
    decode_best=decode_best,
)
