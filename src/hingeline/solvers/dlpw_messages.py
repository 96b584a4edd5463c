"""Messages of one example of the relaxed problem g(w, δ): what they are, and block descent.

For given weights g is smallest in the messages where the relaxation's dual is solved. Block descent
on it, by factors (:func:`descend_messages`, MPLP)::

    t(y) = θ_c(y) + Σ_v (b_v − δ_cv)(y_v),     b_v ← (1/|c|)·max_{y: y_v = s} t(y)

with beliefs ``b_v = θ_v + Σ_c δ_cv``; or, with soft maxima ``ε log Σ exp(·/ε)``, by variables with
all their factors (:func:`smooth_messages`)::

    m_cv(s) = softmax_{y: y_v = s} [θ_c(y) − Σ_{u≠v} δ_cu(y_u)],
    b_v ← (θ_v + Σ_c m_cv)/(1 + N_v),     δ_cv ← m_cv − b_v

after which the soft marginals of v and of its factors agree. Messages are float32, those of place p
of a scope from ``message_start[p]`` on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hingeline._numba import helper
from hingeline.inference.factor_graph import Topology
from hingeline.structures.graph_blocks import (
    add_message,
    factor_scores,
    first_column,
    group_end,
    row_scores,
    variable_loss,
)

Array = np.ndarray[Any, Any]


class Messages(NamedTuple):
    """Messages of all examples, and where they lie."""

    at: Array  # (n + 1,) int64: first message of each example
    start: Array  # over the places of all graphs' scopes: first message within the example
    values: Array  # float32


@helper
def unary_scores(
    problem: Any, graph: Topology, i: int, w: Array, total: float, columns: Array, out: Array
) -> None:
    """``w·φ_v(s)/total + l_v(s)`` of all variables and states."""
    n_variables = graph.n_states.shape[0]
    v = 0
    while v < n_variables:
        end = group_end(problem, i, v, n_variables)
        row_scores(problem, i, v, w, columns)
        for u in range(v, end):
            column = first_column(problem, i, u)
            for s in range(graph.n_states[u]):
                score = columns[column + s] / total + variable_loss(problem, i, u, s)
                out[graph.unary_start[u] + s] = score
        v = end


@helper
def add_beliefs(problem: Any, graph: Topology, i: int, messages: Messages, beliefs: Array) -> None:
    """Add all messages to their variables."""
    places = problem.graphs.scope_ptr[problem.graph[i]]
    for p in range(graph.scope.shape[0]):
        v = graph.scope[p]
        at = messages.at[i] + messages.start[places + p]
        for s in range(graph.n_states[v]):
            beliefs[graph.unary_start[v] + s] += messages.values[at + s]


@helper
def factor_beliefs(
    problem: Any,
    graph: Topology,
    i: int,
    c: int,
    w: Array,
    total: float,
    messages: Messages,
    out: Array,
) -> int:
    """``θ_c(y) − Σ_v δ_cv(y_v)``; how many joint states there are."""
    size = factor_scores(problem, graph, i, c, w, out)
    for k in range(size):
        out[k] /= total
    places = problem.graphs.scope_ptr[problem.graph[i]]
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        n = graph.n_states[graph.scope[p]]
        stride //= n
        at = messages.at[i] + messages.start[places + p]
        add_message(out, size, n, stride, messages.values, at, -1.0)
    return size


@helper
def max_marginal(values: Array, size: int, states: int, stride: int, out: Array) -> None:
    """``out[s]``: the largest of ``values`` over joint states with ``y_slot = s``."""
    for s in range(states):
        out[s] = -np.inf
    for outer in range(0, size, states * stride):
        for s in range(states):
            first = outer + s * stride
            best = out[s]
            for k in range(first, first + stride):
                best = max(best, values[k])
            out[s] = best


@helper
def soft_marginal(
    values: Array, size: int, states: int, stride: int, temperature: float, out: Array, best: Array
) -> None:
    """``out[s]``: the soft maximum of ``values`` over joint states with ``y_slot = s``."""
    max_marginal(values, size, states, stride, best)
    for s in range(states):
        out[s] = 0.0
    for outer in range(0, size, states * stride):
        for s in range(states):
            first = outer + s * stride
            for k in range(first, first + stride):
                out[s] += np.exp((values[k] - best[s]) / temperature)
    for s in range(states):
        out[s] = best[s] + temperature * np.log(out[s])


@helper
def normalise(values: Array, at: int, n: int, temperature: float) -> None:
    """Scores to shares ``∝ exp(score/ε)``."""
    top = values[at]
    for s in range(1, n):
        top = max(top, values[at + s])
    total = 0.0
    for s in range(n):
        values[at + s] = np.exp((values[at + s] - top) / temperature)
        total += values[at + s]
    for s in range(n):
        values[at + s] /= total


@helper
def descend_messages(
    problem: Any,
    graph: Topology,
    i: int,
    w: Array,
    total: float,
    beliefs: Array,
    messages: Messages,
    table: Array,
    margins: Array,
) -> None:
    """One round over the factors; ``beliefs`` are kept up."""
    places = problem.graphs.scope_ptr[problem.graph[i]]
    for c in range(graph.scope_start.shape[0] - 1):
        size = factor_beliefs(problem, graph, i, c, w, total, messages, table)
        count = graph.scope_start[c + 1] - graph.scope_start[c]
        stride = size
        for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
            v = graph.scope[p]
            stride //= graph.n_states[v]
            # θ_c − Σδ + Σb is t: a variable's own message cancels.
            add_message(table, size, graph.n_states[v], stride, beliefs, graph.unary_start[v], 1.0)
        stride = size
        for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
            v = graph.scope[p]
            n = graph.n_states[v]
            stride //= n
            max_marginal(table, size, n, stride, margins)
            at = messages.at[i] + messages.start[places + p]
            for s in range(n):
                k = graph.unary_start[v] + s
                before = messages.values[at + s]
                after = np.float32(before + margins[s] / count - beliefs[k])
                messages.values[at + s] = after
                margins[s] = np.float64(after) - before
            for s in range(n):
                # Beliefs of this variable are not asked for again in this factor.
                beliefs[graph.unary_start[v] + s] += margins[s]


@helper
def smooth_messages(
    problem: Any,
    graph: Topology,
    i: int,
    w: Array,
    total: float,
    temperature: float,
    beliefs: Array,
    messages: Messages,
    table: Array,
    margins: Array,
    best: Array,
    target: Array,
) -> None:
    """One round over the variables, each with all its factors; ``beliefs`` are kept up."""
    places = problem.graphs.scope_ptr[problem.graph[i]]
    for v in range(graph.n_states.shape[0]):
        n = graph.n_states[v]
        first = graph.unary_start[v]
        begin, end = graph.incident_start[v], graph.incident_start[v + 1]
        for s in range(n):
            target[s] = beliefs[first + s]
        for q in range(begin, end):
            c = graph.incident[q]
            p = graph.scope_start[c] + graph.slot[q]
            size = factor_beliefs(problem, graph, i, c, w, total, messages, table)
            stride = size
            for r in range(graph.scope_start[c], p + 1):
                stride //= graph.n_states[graph.scope[r]]
            soft_marginal(table, size, n, stride, temperature, margins, best)
            at = messages.at[i] + messages.start[places + p]
            for s in range(n):
                # m = the factor's soft marginal + δ; θ_v + Σm = b_v + Σ (marginals).
                target[s] += margins[s]
                messages.values[at + s] += margins[s]
        for s in range(n):
            target[s] /= 1.0 + (end - begin)
            beliefs[first + s] = target[s]
        for q in range(begin, end):
            c = graph.incident[q]
            p = graph.scope_start[c] + graph.slot[q]
            at = messages.at[i] + messages.start[places + p]
            for s in range(n):
                messages.values[at + s] -= target[s]
