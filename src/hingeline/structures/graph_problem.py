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

from hingeline.inference.factor_graph import Topologies

Array = np.ndarray[Any, Any]


class GraphProblem(NamedTuple):
    """Examples with a graph each (or one graph for all), features and labels of their variables."""

    graph: Array  # (n,) int32: which graph example i has
    graphs: Topologies
    node_template: Array  # int32, over the variables of all graphs
    factor_template: Array  # int32, over the factors of all graphs
    # Features of variables: rows of one CSR matrix; several variables may share a row.
    node_offset: Array  # (n + 1,) int64: the variables of example i among those of all examples
    row: Array  # (variables,) int64: row of each variable
    indptr: Array  # (rows + 1,) int64
    indices: Array  # int32
    values: Array  # float64 or float32
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
    inference: int  # see hingeline.structures.graph.INFERENCE
