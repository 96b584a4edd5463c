"""Messages between factors and variables: the dual of the local-polytope relaxation.

A message ``δ_ci(s)`` moves score from factor c to its variable i. For any messages

    Σ_i max_s b_i(s) + Σ_c max_y [table_c(y) − Σ_i δ_ci(y_i)],     b_i = unary_i + Σ_c δ_ci

is at least the score of every assignment (up to rounding), and its minimum over δ is the optimum
of the relaxation. Messages are one flat vector: those of place p of ``graph.scope`` begin at
``message_start(graph)[p]``. Scores must be finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.inference.factor_graph import Topology, table_size

Array = np.ndarray[Any, Any]


@helper
def message_start(graph: Topology) -> Array:
    """Where the messages of each place of ``graph.scope`` begin; the last entry is their number."""
    count = graph.scope.shape[0]
    starts = np.empty(count + 1, dtype=np.int64)
    starts[0] = 0
    for p in range(count):
        starts[p + 1] = starts[p] + graph.n_states[graph.scope[p]]
    return starts


@helper
def node_beliefs(
    graph: Topology, unary: Array, messages: Array, starts: Array, beliefs: Array
) -> None:
    """``b_i = unary_i + Σ_c δ_ci``."""
    for k in range(graph.unary_start[graph.n_states.shape[0]]):
        beliefs[k] = unary[k]
    for p in range(graph.scope.shape[0]):
        first = graph.unary_start[graph.scope[p]]
        start = starts[p]
        for s in range(starts[p + 1] - start):
            beliefs[first + s] += messages[start + s]


@helper
def max_marginal(
    graph: Topology,
    c: int,
    slot: int,
    tables: Array,
    at: int,
    messages: Array,
    starts: Array,
    out: Array,
) -> None:
    """``out[s] = max_y [table_c(y) − Σ_j δ_cj(y_j)]`` over the joint states with ``y_slot = s``."""
    start = graph.scope_start[c]
    end = graph.scope_start[c + 1]
    own = starts[start + slot]
    n_own = starts[start + slot + 1] - own
    for s in range(n_own):
        out[s] = -np.inf
    for k in range(table_size(graph, c)):
        rest = k
        value = tables[at + k]
        s = 0
        for p in range(end - 1, start - 1, -1):
            states = starts[p + 1] - starts[p]
            digit = rest % states
            rest //= states
            value -= messages[starts[p] + digit]
            if p == start + slot:
                s = digit
        out[s] = max(out[s], value)


@helper
def most_states(graph: Topology) -> int:
    """Largest number of states of a variable."""
    most = 1
    for i in range(graph.n_states.shape[0]):
        most = max(most, graph.n_states[i])
    return most


@helper
def top_sum(graph: Topology, beliefs: Array, y: Array) -> float:
    """``Σ_i max_s b_i(s)``, the maximisers in ``y``."""
    total = 0.0
    for i in range(graph.n_states.shape[0]):
        first = graph.unary_start[i]
        best = 0
        for s in range(1, graph.n_states[i]):
            if beliefs[first + s] > beliefs[first + best]:
                best = s
        y[i] = best
        total += beliefs[first + best]
    return total


@helper
def factor_sum(
    graph: Topology, tables: Array, table_start: Array, messages: Array, starts: Array
) -> float:
    """``Σ_c max_y [table_c(y) − Σ_i δ_ci(y_i)]``."""
    out = np.empty(most_states(graph))
    total = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        start = graph.scope_start[c]
        if graph.scope_start[c + 1] == start:
            total += tables[table_start[c]]
            continue
        max_marginal(graph, c, 0, tables, table_start[c], messages, starts, out)
        best = out[0]
        for s in range(1, starts[start + 1] - starts[start]):
            best = max(best, out[s])
        total += best
    return total


@helper
def relaxed_bound(
    graph: Topology, unary: Array, tables: Array, table_start: Array, messages: Array
) -> float:
    """The upper bound that the messages prove."""
    starts = message_start(graph)
    beliefs = np.empty(graph.unary_start[graph.n_states.shape[0]])
    y = np.empty(graph.n_states.shape[0], dtype=np.int32)
    node_beliefs(graph, unary, messages, starts, beliefs)
    return top_sum(graph, beliefs, y) + factor_sum(graph, tables, table_start, messages, starts)


@helper
def n_tied(graph: Topology, unary: Array, messages: Array, tolerance: float) -> int:
    """Variables whose two best beliefs are within ``tolerance``: where rounding had to choose."""
    starts = message_start(graph)
    beliefs = np.empty(graph.unary_start[graph.n_states.shape[0]])
    node_beliefs(graph, unary, messages, starts, beliefs)
    count = 0
    for i in range(graph.n_states.shape[0]):
        best = -np.inf
        second = -np.inf
        for k in range(graph.unary_start[i], graph.unary_start[i + 1]):
            if beliefs[k] > best:
                second = best
                best = beliefs[k]
            else:
                second = max(second, beliefs[k])
        if best - second <= tolerance:
            count += 1
    return count
