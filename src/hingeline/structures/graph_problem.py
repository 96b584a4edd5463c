"""Labelled factor graphs laid out for the kernels; see :mod:`hingeline.structures.graph`.

Weights, one flat vector::

    U[feature, column]           columns of unary template t: column_start[t] + state
    table templates              template τ at table_offset[τ], as (features of τ, joint states)

A factor without features has the constant 1: its table is a piece of the weights. Variables and
factors name their templates in the graph, so that graphs shared by many examples (multi-label)
are stored once; features, labels and loss weights belong to the example.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import kernel
from hingeline.inference import map_inference
from hingeline.inference.enumeration import n_assignments
from hingeline.inference.factor_graph import Topologies, topology
from hingeline.inference.graph_cut import is_binary_pairwise
from hingeline.inference.map_inference import (
    AUTO,
    ENUMERATION,
    FEW,
    GRAPH_CUT,
    LP,
    MAX_PRODUCT,
    refuse_method,
)
from hingeline.inference.max_product import is_forest
from hingeline.structures.base import Compiled

Array = np.ndarray[Any, Any]

#: Name -> code of what kernels can decode with.
INFERENCE = {name: code for name, code in map_inference.INFERENCE.items() if name != "milp"}
#: Exact whatever the weights are.
_EXACT = (MAX_PRODUCT, ENUMERATION)


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
    inference: int  # see INFERENCE
    method: Array  # (graphs,) int32: the same for each graph, "auto" resolved where it can be


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
    """Lay out labelled graphs for the kernels.

    Parameters
    ----------
    graphs : Topologies
    node_template, factor_template : ndarray of int
        Over the variables and the factors of all graphs.
    template_states : ndarray of int
        States of each unary template.
    table_features, table_states : ndarray of int
        Features and joint states of each table template; (templates,), perhaps of length 0.
    indptr, indices, values : ndarray
        Rows of features, CSR with sorted indices.
    n_features : int
    labels : ndarray of int
        True state of every variable of every example.
    cost : ndarray of shape (states, states)
    graph : ndarray of int, optional
        The graph of each example; by default example i has graph i.
    row : ndarray of int, optional
        Row of features of every variable; by default one row each, in order.
    node_weight : ndarray, optional
        Factor on the loss of every variable; 1 by default.
    factor_start, factor_values : ndarray, optional
        Features of the factors of all examples; without them each has the constant 1.
    inference : int
        A value of ``INFERENCE``.
    """
    if graph is None:
        graph = np.arange(len(graphs.node_ptr) - 1)
    graph = np.ascontiguousarray(graph, dtype=np.int32)
    node_offset = _starts(np.diff(graphs.node_ptr)[graph])
    template_states = np.asarray(template_states, dtype=np.int64)
    table_features = np.ascontiguousarray(table_features, dtype=np.int64)
    table_states = np.ascontiguousarray(table_states, dtype=np.int64)
    n_columns = padded_columns(int(template_states.sum()))
    table_offset = n_features * n_columns + _starts(table_features * table_states)
    factor_template = np.ascontiguousarray(factor_template, dtype=np.int32)
    n_variables = int(node_offset[-1])
    indptr = np.ascontiguousarray(indptr, dtype=np.int64)
    values = np.ascontiguousarray(values)
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
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
        factor_offset=_starts(np.diff(graphs.factor_ptr)[graph]),
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
        column_start=_starts(template_states)[:-1],
        table_offset=table_offset[:-1],
        table_features=table_features,
        table_states=table_states,
        n_features=int(n_features),
        n_columns=n_columns,
        n_weights=int(table_offset[-1]),
        inference=int(inference),
        method=chosen_methods(graphs, int(inference)),
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
    )


@kernel
def _resolve(graphs: Topologies, out: Array) -> None:
    """The exact method of graphs that have one; the others stay as they are."""
    for g in range(out.shape[0]):
        graph = topology(graphs, g)
        if is_forest(graph):
            out[g] = MAX_PRODUCT
        elif n_assignments(graph) <= FEW:
            out[g] = ENUMERATION
        elif not is_binary_pairwise(graph):
            out[g] = LP


def chosen_methods(graphs: Topologies, inference: int) -> Array:
    """Code of the method for each graph; ValueError where a graph cannot be decoded so.

    ``"auto"`` remains where only the scores can tell (graph cut, or the relaxation).
    """
    methods = np.full(len(graphs.node_ptr) - 1, inference, dtype=np.int32)
    if inference == AUTO:
        _resolve(graphs, methods)
    elif inference in (MAX_PRODUCT, ENUMERATION, GRAPH_CUT):
        name = next(name for name, code in INFERENCE.items() if code == inference)
        for g in range(len(methods)):
            why = refuse_method(topology(graphs, g), name)
            if why is not None:
                raise ValueError(f"graph {g}: {why}.")
    return methods


def decodes_exactly(problem: GraphProblem) -> bool:
    """Whether decoding is exact whatever the weights are."""
    return bool(np.isin(problem.method, _EXACT).all())


def padded_columns(n_columns: int) -> int:
    """Length of a row of unary weights: the next multiple of four, one vector of doubles."""
    return (n_columns + 3) // 4 * 4


def _starts(sizes: Array) -> Array:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
