"""Kernels over many graphs for prediction; parts of ``order`` may run in threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import kernel
from hingeline.inference.factor_graph import joint_index, topology
from hingeline.structures.graph import search, table_scores, unary_scores
from hingeline.structures.graph_problem import GraphProblem

Array = np.ndarray[Any, Any]


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
        graph = topology(problem.graphs, problem.graph[i])
        unary = unary_scores(problem, i, w, 0.0)
        tables, table_start = table_scores(problem, i, w)
        y = ys[problem.node_offset[i] : problem.node_offset[i + 1]].copy()
        for v in range(y.shape[0]):
            own = y[v]
            for s in range(graph.n_states[v]):
                y[v] = s
                at = graph.unary_start[v] + s
                total = unary[at]
                for q in range(graph.incident_start[v], graph.incident_start[v + 1]):
                    c = graph.incident[q]
                    total += tables[table_start[c] + joint_index(graph, c, y)]
                out[start[i] + at] = total
            y[v] = own
