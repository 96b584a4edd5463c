"""Graphs: variables with unary scores, and tables over pairs and other small sets of them.

An output is one state per variable. With features ``x_i`` of variables and ``z_c`` of factors (the
constant 1 where there are none)::

    w·f(x, y) = Σ_i x_i·U[:, column(i, y_i)] + Σ_c z_c·T[:, index_c(y)]

The loss is a sum over variables of ``node_weight·cost[true state, predicted state]``. Weights are
one flat vector::

    U[feature, column]           columns of unary template t: column_start[t] + state
    table templates              template τ at table_offset[τ], as (features of τ, joint states)

A factor without features has the constant 1: its table is a piece of the weights. Variables and
factors name their templates in the graph, so that graphs shared by many examples (multi-label)
are stored once; features, labels and loss weights belong to the example.

Decoding is exact where the graph allows it; elsewhere the value is an upper bound, and
``decode_excess`` says how far the output found may be from the best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import by_reference, helper, kernel
from hingeline._simd import rows_add, rows_dot
from hingeline.core.primitives import Block, Compiled, Layout, pad_row, register, stack_blocks
from hingeline.inference import map as map_inference
from hingeline.inference.factor_graph import (
    Scored,
    Topologies,
    Topology,
    assignment_score,
    joint_index,
    starts_of,
    topology,
)
from hingeline.inference.icm import conditional_scores
from hingeline.inference.map import (
    ENUMERATION,
    GRAPH_CUT,
    MAX_PRODUCT,
    Oracle,
    best_assignment,
    make_oracle,
)

Array = np.ndarray[Any, Any]

#: Name -> code of what kernels can decode with.
INFERENCE = {name: code for name, code in map_inference.INFERENCE.items() if name != "milp"}
#: Rows are read as a whole where at least one column in so many is wanted.
SPARSE_COLUMNS = 6
#: A share of the value below which an excess is rounding.
EXCESS_ROUNDING = 1e-12


@by_reference
class GraphProblem(NamedTuple):
    """Examples with a graph each (or one graph for all), features and labels of their variables."""

    graph: Array  # (n,) int32: which graph example i has
    graphs: Topologies
    node_template: Array  # int32, over the variables of all graphs
    factor_template: Array  # int32, over the factors of all graphs
    factor_table: Array  # int64, over the factors of all graphs: table_offset of the template
    # Features of variables: rows of one CSR matrix; several variables may share a row.
    node_offset: Array  # (n + 1,) int64: the variables of example i among those of all examples
    row: Array  # (variables,) int64: row of each variable
    indptr: Array  # (rows + 1,) int64
    indices: Array  # int32
    values: Array  # float64 or float32
    row_sqnorm: Array  # (rows,) float64: ‖x‖² of each row
    # Features of factors: empty arrays where every factor has the constant 1.
    factor_offset: Array  # (n + 1,) int64: the factors of example i among those of all examples
    factor_start: Array  # (factors + 1,) int64, or empty
    factor_values: Array  # float64
    # Truth and loss: node_weight · cost[true, predicted], summed over the variables.
    labels: Array  # (variables,) int32
    node_weight: Array  # (variables,) float64
    cost: Array  # (states, states) float64
    # Layout of the weights.
    column_start: Array  # (unary templates,) int64
    table_offset: Array  # (table templates,) int64
    table_features: Array  # (table templates,) int64
    table_states: Array  # (table templates,) int64: joint states
    n_features: int
    n_columns: int
    n_weights: int
    oracle: Oracle


def layout(n_features: int, n_columns: int, tables: Mapping[str, tuple[int, int]]) -> Layout:
    """Where the weights lie: unary ones by feature, then tables by name, of so many (rows, states).

    The columns of the unary weights are the states of all unary templates, one after the other.
    """
    found = stack_blocks({"unary": n_features}, n_columns, pad_row(n_columns))
    at = found.size
    for name, (rows, states) in tables.items():
        found[name] = Block(at, rows, states, states)
        at = found[name].stop
    return found


def make_problem(
    graphs: Topologies,
    node_template: Array,
    factor_template: Array,
    template_states: Array,
    table_features: Array,
    table_states: Array,
    indptr: Array,
    indices: Array,
    values: Array,
    n_features: int,
    labels: Array,
    cost: Array,
    *,
    graph: Array | None = None,
    row: Array | None = None,
    node_weight: Array | None = None,
    factor_start: Array | None = None,
    factor_values: Array | None = None,
    inference: int = 0,
) -> GraphProblem:
    """Lay out labelled graphs for the kernels; see :class:`GraphProblem` for most arguments.

    ``template_states`` are the states of each unary template. By default example i has graph i,
    each variable a row of features of its own, in order (CSR with sorted indices), loss weights are
    1, and factors have the constant 1. ``inference`` is a value of ``INFERENCE``.
    """
    if graph is None:
        graph = np.arange(len(graphs.node_ptr) - 1)
    graph = np.ascontiguousarray(graph, dtype=np.int32)
    node_offset = starts_of(np.diff(graphs.node_ptr)[graph])
    template_states = np.asarray(template_states, dtype=np.int64)
    table_features = np.ascontiguousarray(table_features, dtype=np.int64)
    table_states = np.ascontiguousarray(table_states, dtype=np.int64)
    n_columns = pad_row(int(template_states.sum()))
    table_offset = n_features * n_columns + starts_of(table_features * table_states)
    factor_template = np.ascontiguousarray(factor_template, dtype=np.int32)
    n_variables = int(node_offset[-1])
    indptr = np.ascontiguousarray(indptr, dtype=np.int64)
    values = np.ascontiguousarray(values)
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    with np.errstate(over="ignore"):  # estimators refuse it
        squares = np.square(values, dtype=np.float64)
    featured = factor_start is not None and factor_values is not None
    return GraphProblem(
        graph=graph,
        graphs=graphs,
        node_template=np.ascontiguousarray(node_template, dtype=np.int32),
        factor_template=factor_template,
        factor_table=table_offset[factor_template].astype(np.int64),
        node_offset=node_offset,
        row=np.arange(n_variables) if row is None else np.ascontiguousarray(row, dtype=np.int64),
        indptr=indptr,
        indices=np.ascontiguousarray(indices, dtype=np.int32),
        values=values,
        row_sqnorm=np.bincount(owner, weights=squares, minlength=len(indptr) - 1),
        factor_offset=starts_of(np.diff(graphs.factor_ptr)[graph]),
        factor_start=np.ascontiguousarray(
            factor_start if featured else np.empty(0), dtype=np.int64
        ),
        factor_values=np.ascontiguousarray(
            factor_values if featured else np.empty(0), dtype=np.float64
        ),
        labels=np.ascontiguousarray(labels, dtype=np.int32),
        node_weight=np.ones(n_variables)
        if node_weight is None
        else np.ascontiguousarray(node_weight, dtype=np.float64),
        cost=np.ascontiguousarray(cost, dtype=np.float64),
        column_start=starts_of(template_states)[:-1],
        table_offset=table_offset[:-1],
        table_features=table_features,
        table_states=table_states,
        n_features=int(n_features),
        n_columns=n_columns,
        n_weights=int(table_offset[-1]),
        oracle=make_oracle(graphs, int(inference)),
    )


def compile_problem(problem: GraphProblem) -> Compiled:
    """The problem with the sizes that solvers need."""
    return Compiled(
        problem,
        lengths=np.diff(problem.node_offset),
        n_weights=problem.n_weights,
        scratch_size=problem.n_features
        + problem.n_weights
        - problem.n_features * problem.n_columns,
        exact=decodes_exactly(problem) or bool((problem.oracle.method == GRAPH_CUT).all()),
    )


def decodes_exactly(problem: GraphProblem) -> bool:
    """Whether decoding is exact whatever the weights are."""
    return bool(np.isin(problem.oracle.method, (MAX_PRODUCT, ENUMERATION)).all())


# Planes: parts that differ from the truth, for one plane or all of an example -------------------
#
# Variables that share a row of features are visited together, and the row's features once for all
# planes. A factor is met at the first variable of its scope that differs, so that the cost is
# that of the differences, not of the graph.


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
def _note_column(column: int, mark: Array, named: Array, count: int) -> int:
    """Put a column on the list of those wanted, once; the length of the list."""
    if mark[column] == 0:
        mark[column] = 1
        named[count] = column
        return count + 1
    return count


@helper
def _end_of_row(problem: GraphProblem, lo: int, v: int, n: int) -> int:
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
        last = _end_of_row(problem, lo, v, n)
        count = 0
        for u in range(v, last):
            column = problem.column_start[problem.node_template[first + u]]
            for j in range(m):
                if ys[j, u] != gold[u]:
                    count = _note_column(column + gold[u], mark, named, count)
                    count = _note_column(column + ys[j, u], mark, named, count)
        if count > 0:
            r = problem.row[lo + v]
            begin, end = problem.indptr[r], problem.indptr[r + 1]
            if SPARSE_COLUMNS * count >= stride:
                rows_dot(problem.indices, problem.values, begin, end, w, stride, sums, 0)
            else:
                for q in range(count):
                    sums[named[q]] = 0.0
                for p in range(begin, end):
                    at = problem.indices[p] * stride
                    for q in range(count):
                        sums[named[q]] += problem.values[p] * w[at + named[q]]
            for q in range(count):
                mark[named[q]] = 0
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
        last = _end_of_row(problem, lo, v, n)
        count = 0
        for u in range(v, last):
            column = problem.column_start[problem.node_template[first + u]]
            for j in range(m):
                if ys[j, u] != gold[u] and steps[j] != 0.0:
                    count = _note_column(column + gold[u], mark, named, count)
                    count = _note_column(column + ys[j, u], mark, named, count)
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
                    for q in range(count):
                        w[at + named[q]] += problem.values[p] * change[named[q]]
            for q in range(count):
                mark[named[q]] = 0
                change[named[q]] = 0.0
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


# Distances between planes -----------------------------------------------------------------------


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


# Decoding -------------------------------------------------------------------------------------


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
        last = _end_of_row(problem, lo, v, n)
        r = problem.row[lo + v]
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
def score_tables(problem: GraphProblem, i: int, w: Array, start: Array) -> Array:
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
    return score_tables(problem, i, w, own), own


@helper
def score_graph(problem: GraphProblem, i: int, w: Array, loss_scale: float) -> Scored:
    """The graph of example i with its scores and the scaled loss."""
    graph = topology(problem.graphs, problem.graph[i])
    unary = unary_scores(problem, i, w, loss_scale)
    tables, start = table_scores(problem, i, w)
    return Scored(graph, unary, tables, start)


@helper
def search(
    problem: GraphProblem, i: int, w: Array, loss_scale: float, y_out: Array
) -> tuple[float, float]:
    """An upper bound on the best value, and the value of the output written."""
    scored = score_graph(problem, i, w, loss_scale)
    bound = best_assignment(problem.oracle, problem.graph[i], scored, np.empty(0), y_out)
    return bound, assignment_score(scored, y_out)


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
    return excess if excess > EXCESS_ROUNDING * (1.0 + abs(value)) else 0.0


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
)


@kernel
def decode_all(
    problem: GraphProblem,
    order: Array,
    w: Array,
    loss_scale: float,
    y_out: Array,
    bounds: Array,
    values: Array,
) -> None:
    """Best state found of every variable, its value by graph, and a bound on the best value."""
    for i in order:
        y = y_out[problem.node_offset[i] : problem.node_offset[i + 1]]
        bounds[i], values[i] = search(problem, i, w, loss_scale, y)


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
        y = ys[problem.node_offset[i] : problem.node_offset[i + 1]].copy()
        for v in range(y.shape[0]):
            conditional_scores(scored, v, y, out[start[i] + scored.graph.unary_start[v] :])
