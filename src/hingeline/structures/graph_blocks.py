"""Graph problems: their arrays, where their weights lie, and their blocks one by one.

With features ``x_i`` of variables and ``z_c`` of factors (the constant 1 where there are none) the
score of an output, one state per variable, is::

    w·f(x, y) = Σ_i x_i·U[:, column(i, y_i)] + Σ_c z_c·T[:, index_c(y)]

The loss is a sum over variables of ``node_weight·cost[true state, predicted state]``. Weights are
one flat vector::

    U[feature, column]           columns of unary template t: column_start[t] + state
    table templates              template τ at table_offset[τ], as (features of τ, joint states)

A factor without features has the constant 1: its table is a piece of the weights. Variables and
factors name their templates in the graph, so that graphs shared by many examples (multi-label)
are stored once; features, labels and loss weights belong to the example.

A *block* is a variable or a factor of one example: a table of scores over a few states. The dual
of the relaxation has a point on a simplex for each block. Vectors over all blocks are laid out by
:class:`Blocks`; this module scores a block, adds a change of its marginals to the weights and gives
the squared norm of its features. Who the neighbours of a block are is said by the topology.

With marginals μ the weights are ``Σ_i c_i Σ_blocks Σ_s μ(s)·(φ(truth) − φ(s))``: a change d of a
block's marginals, which sums to 0, changes them by ``−c_i·Σ_s d(s)·φ(s)``. The features of the
states of one block are disjoint copies of the same vector x, so that ``‖Σ d(s)·φ(s)‖² = ‖x‖²‖d‖²``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_reference, helper
from hingeline._simd import rows_add, rows_dot
from hingeline.core.blocks import spread
from hingeline.core.primitives import Compiled, Layout, pad_row, stack_blocks
from hingeline.inference import factor_graph
from hingeline.inference.factor_graph import Topologies, Topology
from hingeline.inference.map import ENUMERATION, MAX_PRODUCT, Oracle, make_oracle

#: Seconds by method of inference (cuts or AD3, max-product, enumeration, cuts, LP, AD3, ICM): of a
#: labelling that is enumerated, else of a joint state; what has no bound or may fail is not chosen.
SECONDS = np.array([2e-6, 0.0, 1e-8, 1.0, 5e-7, 2e-6, 1.0])


@by_reference
class GraphProblem(NamedTuple):
    """Examples with a graph each (or one graph for all), features and labels of their variables."""

    graph: Array  # (n,) int32: which graph example i has
    graphs: Topologies
    node_template: Array  # int32, over the variables of all graphs
    factor_template: Array  # int32, over the factors of all graphs
    factor_table: Array  # int64, over the factors of all graphs: table_offset of the template
    # Features of variables: rows of one CSR matrix; several variables may share a row.
    offsets: Array  # (n + 1,) int64: the variables of example i among those of all examples
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
    for name, (rows, states) in tables.items():
        found = stack_blocks({name: rows}, states, states, found)
    return found


def make_problem(
    graphs: Topologies,
    node_template: Array,
    factor_template: Array,
    template_states: Array,
    table_features: Array,
    table_states: Array,
    matrix: Any,
    labels: Array,
    cost: Array,
    *,
    graph: Array | None = None,
    row: Array | None = None,
    node_weight: Array | None = None,
    factor_start: Any = (),
    factor_values: Any = (),
    inference: int = 0,
    apart: bool = False,
) -> GraphProblem:
    """Lay out labelled graphs for the kernels; see :class:`GraphProblem` for most arguments.

    ``template_states`` are the states of each unary template, ``matrix`` the rows of features (CSR
    with sorted indices). By default example i has graph i, each variable a row of its own, in
    order, loss weights are 1, and factors have the constant 1. ``apart`` makes examples of the
    connected parts of graphs: their largest hinges add up to that of the graph, so that the optimum
    is the same, but they move one by one.
    """
    as_array = np.ascontiguousarray
    oracle = make_oracle(graphs, int(inference))
    parts, nodes, factors = factor_graph.split(graphs) if apart else (graphs, None, None)
    if len(parts.node_ptr) > len(graphs.node_ptr):
        # By graph what cannot be decoded was refused, as it would be in prediction.
        oracle = make_oracle(parts, int(inference))
        graphs, matrix, labels = parts, matrix[nodes], labels[nodes]
        node_template, factor_template = node_template[nodes], factor_template[factors]
        node_weight = None if node_weight is None else node_weight[nodes]
        if len(factor_start):
            sizes = np.diff(factor_start)[factors]
            factor_values = factor_values[spread(factor_start[factors], sizes)]
            factor_start = factor_graph.starts_of(sizes)
    graph = as_array(np.arange(len(graphs.node_ptr) - 1) if graph is None else graph, np.int32)
    offsets = factor_graph.starts_of(np.diff(graphs.node_ptr)[graph])
    n_variables = int(offsets[-1])
    features = as_array(table_features, np.int64)
    states = as_array(table_states, np.int64)
    n_features = int(matrix.shape[1])
    n_columns = pad_row(int(np.sum(template_states)))
    table_offset = n_features * n_columns + factor_graph.starts_of(features * states)
    owner = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    with np.errstate(over="ignore"):  # estimators refuse it
        squares = np.square(matrix.data, dtype=np.float64)
    return GraphProblem(
        graph=graph,
        graphs=graphs,
        node_template=as_array(node_template, np.int32),
        factor_template=as_array(factor_template, np.int32),
        factor_table=table_offset[as_array(factor_template, np.int32)].astype(np.int64),
        offsets=offsets,
        row=np.arange(n_variables) if row is None else as_array(row, np.int64),
        indptr=as_array(matrix.indptr, np.int64),
        indices=as_array(matrix.indices, np.int32),
        values=np.ascontiguousarray(matrix.data),
        row_sqnorm=np.bincount(owner, weights=squares, minlength=matrix.shape[0]),
        factor_offset=factor_graph.starts_of(np.diff(graphs.factor_ptr)[graph]),
        factor_start=as_array(factor_start, np.int64),
        factor_values=as_array(factor_values, np.float64),
        labels=as_array(labels, np.int32),
        node_weight=np.ones(n_variables) if node_weight is None else as_array(node_weight, float),
        cost=as_array(cost, np.float64),
        column_start=factor_graph.starts_of(np.asarray(template_states))[:-1],
        table_offset=table_offset[:-1],
        table_features=features,
        table_states=states,
        n_features=n_features,
        n_columns=n_columns,
        n_weights=int(table_offset[-1]),
        oracle=oracle,
    )


def decodes_exactly(problem: GraphProblem) -> bool:
    """Whether decoding is exact whatever the weights are."""
    return bool(np.isin(problem.oracle.method, (MAX_PRODUCT, ENUMERATION)).all())


class BinaryPairs(NamedTuple):
    """All variables are binary, all factors pairs of them without features."""


class AnyFactors(NamedTuple):
    """Factors of any kind."""


class Blocks(NamedTuple):
    """Where the blocks of each example lie in vectors over all of them.

    Vectors over (variable, state) have all states of a variable. Vectors over factors leave out the
    true joint state, whose share is what the others leave: all zeros is the truth. Vectors over
    messages have the states of every variable of every factor.
    """

    unary_at: Array  # (n + 1,) int64: first (variable, state) of each example
    mass_at: Array  # (n + 1,) int64: first joint state of each example's factors
    mass_start: Array  # as scope_start of the topologies: first joint state of a graph's factors
    block_at: Array  # (n + 1,) int64: blocks before each example; variables, then factors
    message_at: Array  # (n + 1,) int64: first entry of each example in vectors over messages
    message_start: Array  # as scope of the topologies: first entry of each place of a graph
    widest: int  # most states of a block
    most_blocks: int  # of an example
    most_unary: int  # most (variable, state) pairs of an example
    factors: BinaryPairs | AnyFactors  # a type: kernels contain what these factors need

    @property
    def n(self) -> int:
        """Number of blocks."""
        return int(self.block_at[-1])


def lay_out_blocks(compiled: Compiled, solver: str) -> Blocks:
    """The blocks of a problem; ValueError for structures that are not graphs."""
    problem = compiled.problem
    if not isinstance(problem, GraphProblem):
        what = f"solver={solver!r} works on the factors of graphs (GraphSSVM, MultilabelSSVM)"
        raise ValueError(f"{what}, and this structure has none: use solver='sdm'.")
    graphs, graph = problem.graphs, problem.graph
    orders = factor_graph.factor_orders(graphs)
    states = graphs.n_states[factor_graph.places_of_scopes(graphs)]
    # Products over the scopes; an empty scope has one joint state.
    logs = np.concatenate(([0.0], np.cumsum(np.log(states))))
    sizes = np.rint(np.exp(np.diff(logs[factor_graph.starts_of(orders)]))).astype(np.int64)
    unary, mass, messages = (
        [factor_graph.starts_of(own) for own in np.split(values, ptr[1:-1])]
        for values, ptr in (
            (graphs.n_states, graphs.node_ptr),
            (sizes - 1, graphs.factor_ptr),
            (states, graphs.scope_ptr),
        )
    )
    blocks = np.diff(graphs.node_ptr) + np.diff(graphs.factor_ptr)
    pairs = bool((graphs.n_states == 2).all() and (orders == 2).all())
    return Blocks(
        unary_at=factor_graph.starts_of(np.array([own[-1] for own in unary])[graph]),
        mass_at=factor_graph.starts_of(np.array([own[-1] for own in mass])[graph]),
        mass_start=np.concatenate(mass),
        block_at=factor_graph.starts_of(blocks[graph]),
        message_at=factor_graph.starts_of(np.array([own[-1] for own in messages])[graph]),
        message_start=np.concatenate([own[:-1] for own in messages]),
        widest=int(max(sizes.max(initial=1), graphs.n_states.max(initial=1))),
        most_blocks=int(blocks.max(initial=1)),
        most_unary=int(max(own[-1] for own in unary)),
        factors=BinaryPairs() if pairs and not len(problem.factor_start) else AnyFactors(),
    )


def decoding_seconds(problem: GraphProblem) -> float:
    """About what it costs to decode all examples once; 0 for forests."""
    graphs, method = problem.graphs, problem.oracle.method
    states = factor_graph.starts_of(problem.table_states[problem.factor_template])
    labellings = np.exp2(np.minimum(factor_graph.log2_assignments(graphs), 60.0))
    sizes = np.where(method == ENUMERATION, labellings, np.diff(states[graphs.factor_ptr]))
    return float((sizes * SECONDS[method])[problem.graph].sum())


def shares_weights(problem: GraphProblem) -> bool:
    """Whether an example has variables or factors with the same weights."""
    graphs = problem.graphs
    kinds = ((problem.node_template, graphs.node_ptr), (problem.factor_template, graphs.factor_ptr))
    parts = (own for templates, ptr in kinds for own in np.split(templates, ptr[1:-1]))
    return any(len(np.unique(own)) < len(own) for own in parts)


def mean_square(problem: GraphProblem, cap: Array) -> float:
    """``c_i‖x‖²`` of a factor, on average; 1 where there are none."""
    counts = np.diff(problem.factor_offset)
    total = float(counts[cap > 0.0].sum())
    squares = counts.astype(np.float64)
    if len(problem.factor_start) > 0:
        upto = np.concatenate(([0.0], np.cumsum(problem.factor_values**2)))
        squares = np.diff(upto[problem.factor_start[problem.factor_offset]])
    return float(cap @ squares) / total if total > 0.0 and cap @ squares > 0.0 else 1.0


@helper
def find_row(problem: GraphProblem, i: int, v: int) -> tuple[int, int, int]:
    """Column of state 0 of variable v, and where its features begin and end."""
    first = problem.graphs.node_ptr[problem.graph[i]]
    row = problem.row[problem.offsets[i] + v]
    column = problem.column_start[problem.node_template[first + v]]
    return column, problem.indptr[row], problem.indptr[row + 1]


@helper
def group_end(problem: GraphProblem, i: int, v: int, n: int) -> int:
    """End of the run of variables from v that share a row of features and no weight."""
    at = problem.offsets[i]
    first = problem.graphs.node_ptr[problem.graph[i]]
    end = v + 1
    while (
        end < n
        and problem.row[at + end] == problem.row[at + v]
        and problem.node_template[first + end] > problem.node_template[first + end - 1]
    ):
        end += 1
    return end


@helper
def row_scores(problem: GraphProblem, i: int, v: int, w: Array, out: Array) -> None:
    """Scores of all columns for the features of variable v; ``out`` has ``n_columns`` entries."""
    _, lo, hi = find_row(problem, i, v)
    rows_dot(problem.indices, problem.values, lo, hi, w, problem.n_columns, out, 0)


@helper
def row_add(problem: GraphProblem, i: int, v: int, steps: Array, w: Array) -> None:
    """Add ``steps`` times the features of variable v to all columns."""
    _, lo, hi = find_row(problem, i, v)
    rows_add(problem.indices, problem.values, lo, hi, steps, w, problem.n_columns)


@helper
def first_column(problem: GraphProblem, i: int, v: int) -> int:
    """Column of state 0 of variable v."""
    return find_row(problem, i, v)[0]


@helper
def variable_scores(problem: GraphProblem, i: int, v: int, n: int, w: Array, out: Array) -> None:
    """Scores of the n states of variable v, nothing else."""
    column, begin, end = find_row(problem, i, v)
    for s in range(n):
        out[s] = 0.0
    for p in range(begin, end):
        at = problem.indices[p] * problem.n_columns + column
        x = problem.values[p]
        for s in range(n):
            out[s] += x * w[at + s]


@helper
def variable_add(problem: GraphProblem, i: int, v: int, n: int, steps: Array, w: Array) -> None:
    """Add ``steps`` times the features of variable v to its n columns."""
    column, lo, hi = find_row(problem, i, v)
    for p in range(lo, hi):
        at = problem.indices[p] * problem.n_columns + column
        x = problem.values[p]
        for s in range(n):
            w[at + s] += x * steps[s]


@helper
def variable_loss(problem: GraphProblem, i: int, v: int, s: int) -> float:
    """What state s of variable v costs."""
    at = problem.offsets[i] + v
    return problem.node_weight[at] * problem.cost[problem.labels[at], s]


@helper
def add_variables(
    problem: GraphProblem, i: int, shares: Array, at: int, step: float, steps: Array, w: Array
) -> None:
    """Add ``step·(shares − truth)`` times the features of all variables of example i.

    Shares of its states begin at ``at``; ``steps`` has room for all columns.
    """
    graph = factor_graph.topology(problem.graphs, problem.graph[i])
    n_variables = graph.n_states.shape[0]
    v = 0
    while v < n_variables:
        end = group_end(problem, i, v, n_variables)
        some = False
        steps[:] = 0.0
        for u in range(v, end):
            column, truth = first_column(problem, i, u), true_state(problem, i, u)
            for s in range(graph.n_states[u]):
                share = shares[at + graph.unary_start[u] + s]
                steps[column + s] = step * (share - 1.0 if s == truth else share)
                some = some or steps[column + s] != 0.0
        if some:
            row_add(problem, i, v, steps, w)
        v = end


@helper
def true_state(problem: GraphProblem, i: int, v: int) -> int:
    """True state of variable v."""
    return problem.labels[problem.offsets[i] + v]


@helper
def find_table(problem: GraphProblem, i: int, c: int) -> tuple[int, int, int]:
    """Template and weights of factor c of example i, and its features, −1: the constant 1."""
    at = problem.graphs.factor_ptr[problem.graph[i]] + c
    plain = problem.factor_start.shape[0] == 0
    values = -1 if plain else problem.factor_start[problem.factor_offset[i] + c]
    return problem.factor_template[at], problem.factor_table[at], values


@helper
def true_joint(problem: GraphProblem, graph: Topology, i: int, c: int) -> int:
    """True joint state of factor c."""
    at = problem.offsets[i]
    return factor_graph.joint_index(graph, c, problem.labels[at : at + graph.n_states.shape[0]])


@helper
def factor_scores(problem: GraphProblem, i: int, c: int, w: Array, out: Array) -> int:
    """Scores of the joint states of factor c; how many there are."""
    t, at, values = find_table(problem, i, c)
    size = problem.table_states[t]
    for s in range(size):
        out[s] = w[at + s] if values < 0 else 0.0
    if values >= 0:
        for f in range(problem.table_features[t]):
            x = problem.factor_values[values + f]
            if x != 0.0:
                for s in range(size):
                    out[s] += x * w[at + s]
            at += size
    return size


@helper
def factor_add(problem: GraphProblem, i: int, c: int, step: float, change: Array, w: Array) -> None:
    """Add ``step·change`` times the features of factor c to its template."""
    t, at, values = find_table(problem, i, c)
    size = problem.table_states[t]
    for f in range(problem.table_features[t]):
        x = step * (1.0 if values < 0 else problem.factor_values[values + f])
        if x != 0.0:
            for s in range(size):
                w[at + s] += x * change[s]
        at += size


@helper
def state_add(problem: GraphProblem, i: int, c: int, state: int, step: float, w: Array) -> None:
    """Add ``step`` times the features of factor c to one joint state of its template."""
    t, at, values = find_table(problem, i, c)
    for f in range(problem.table_features[t]):
        w[at + state] += step * (1.0 if values < 0 else problem.factor_values[values + f])
        at += problem.table_states[t]


@helper
def factor_square(problem: GraphProblem, i: int, c: int) -> float:
    """``‖x‖²`` of the features of factor c."""
    t, _, values = find_table(problem, i, c)
    total = 0.0
    for f in range(problem.table_features[t]):
        total += 1.0 if values < 0 else problem.factor_values[values + f] ** 2
    return total


@helper
def factor_mass(blocks: Blocks, problem: GraphProblem, i: int, c: int) -> int:
    """Where the marginals of factor c begin in vectors over factors."""
    g = problem.graph[i]
    return blocks.mass_at[i] + blocks.mass_start[problem.graphs.factor_ptr[g] + g + c]


@helper
def place_messages(blocks: Blocks, problem: GraphProblem, i: int, p: int) -> int:
    """Where the messages between a factor and the variable at place p of all scopes begin."""
    first = problem.graphs.scope_ptr[problem.graph[i]]
    return blocks.message_at[i] + blocks.message_start[first + p]
