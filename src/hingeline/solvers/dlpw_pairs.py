"""Visits of :mod:`hingeline.solvers.dlpw_steps` to graphs of pairs of binary variables.

What :mod:`hingeline.solvers.dlpw_messages` says of any factors, written out for tables of two by
two without features: there the loops over states, strides and scopes cost many times what they
contain. Factor c has its scores from ``4c`` on in its table and in the messages of the example,
variable v its beliefs from ``2v`` on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.inference.factor_graph import Topology

Array = np.ndarray[Any, Any]


@helper
def fill_pairs(
    problem: Any,
    graph: Topology,
    i: int,
    w: Array,
    total: float,
    stored: Array,
    at: int,
    messages: Array,
    beliefs: Array,
    tables: Array,
) -> None:
    """Messages in full precision, beliefs with them, and scores of factors less them."""
    first = problem.graphs.factor_ptr[problem.graph[i]]
    scale = 1.0 / total
    for c in range(graph.scope_start.shape[0] - 1):
        k = 4 * c
        for s in range(4):
            messages[k + s] = stored[at + k + s]
        v, u = 2 * graph.scope[2 * c], 2 * graph.scope[2 * c + 1]
        for s in range(2):
            beliefs[v + s] += messages[k + s]
            beliefs[u + s] += messages[k + 2 + s]
        t = problem.factor_table[first + c]
        tables[k] = w[t] * scale - messages[k] - messages[k + 2]
        tables[k + 1] = w[t + 1] * scale - messages[k] - messages[k + 3]
        tables[k + 2] = w[t + 2] * scale - messages[k + 1] - messages[k + 2]
        tables[k + 3] = w[t + 3] * scale - messages[k + 1] - messages[k + 3]


@helper
def soft_max(a: float, b: float, temperature: float) -> float:
    """``ε log(exp(a/ε) + exp(b/ε))``, or the larger one where ε is 0."""
    top = max(a, b)
    if temperature > 0.0:
        top += temperature * math.log1p(math.exp(-abs(a - b) / temperature))
    return top


@helper
def descend_pairs(
    graph: Topology,
    temperature: float,
    beliefs: Array,
    messages: Array,
    tables: Array,
    margins: Array,
) -> None:
    """One round over the variables: ``descend_variables`` for binary pairs."""
    for v in range(graph.n_states.shape[0]):
        begin, end = graph.incident_start[v], graph.incident_start[v + 1]
        sum0, sum1 = beliefs[2 * v], beliefs[2 * v + 1]
        at = 0
        for q in range(begin, end):
            k = 4 * graph.incident[q]
            # Joint states (0, 0), (0, 1), (1, 0), (1, 1): v is the first or the second.
            if graph.slot[q] == 0:
                m0 = soft_max(tables[k], tables[k + 1], temperature)
                m1 = soft_max(tables[k + 2], tables[k + 3], temperature)
            else:
                m0 = soft_max(tables[k], tables[k + 2], temperature)
                m1 = soft_max(tables[k + 1], tables[k + 3], temperature)
            margins[at] = m0
            margins[at + 1] = m1
            sum0 += m0
            sum1 += m1
            at += 2
        share = 1.0 / (1.0 + (end - begin))
        mean0, mean1 = sum0 * share, sum1 * share
        at = 0
        for q in range(begin, end):
            k = 4 * graph.incident[q]
            step0, step1 = margins[at] - mean0, margins[at + 1] - mean1
            at += 2
            if graph.slot[q] == 0:
                messages[k] += step0
                messages[k + 1] += step1
                tables[k] -= step0
                tables[k + 1] -= step0
                tables[k + 2] -= step1
                tables[k + 3] -= step1
            else:
                messages[k + 2] += step0
                messages[k + 3] += step1
                tables[k] -= step0
                tables[k + 1] -= step1
                tables[k + 2] -= step0
                tables[k + 3] -= step1
        beliefs[2 * v], beliefs[2 * v + 1] = mean0, mean1


@helper
def store_pairs(count: int, messages: Array, stored: Array, at: int) -> None:
    """Messages of the example's pairs to storage."""
    for k in range(4 * count):
        stored[at + k] = np.float32(messages[k])


@helper
def choose_pairs(
    problem: Any,
    graph: Topology,
    i: int,
    temperature: float,
    tied: float,
    states: Array,
    tables: Array,
) -> None:
    """Scores of all factors to best joint states or soft shares, less the truth."""
    labels = problem.node_offset[i]
    for c in range(graph.scope_start.shape[0] - 1):
        k = 4 * c
        v, u = graph.scope[2 * c], graph.scope[2 * c + 1]
        top = max(max(tables[k], tables[k + 1]), max(tables[k + 2], tables[k + 3]))
        if temperature > 0.0:
            total = 0.0
            for s in range(4):
                tables[k + s] = math.exp((tables[k + s] - top) / temperature)
                total += tables[k + s]
            for s in range(4):
                tables[k + s] /= total
        else:
            least = top - tied * (1.0 + abs(top))
            best, most = 0, -1
            for s in range(4):
                same = (1 if s >> 1 == states[v] else 0) + (1 if s & 1 == states[u] else 0)
                if tables[k + s] >= least and same > most:
                    best, most = s, same
            for s in range(4):
                tables[k + s] = 0.0
            tables[k + best] = 1.0
        tables[k + 2 * problem.labels[labels + v] + problem.labels[labels + u]] -= 1.0


@helper
def add_pairs(
    problem: Any,
    graph: Topology,
    i: int,
    step: float,
    later: float,
    change: Array,
    planes: Array,
    moments: Array,
) -> None:
    """Add the change of all factors to weights and moments."""
    first = problem.graphs.factor_ptr[problem.graph[i]]
    for c in range(graph.scope_start.shape[0] - 1):
        t = problem.factor_table[first + c]
        for s in range(4):
            planes[t + s] += step * change[4 * c + s]
            moments[t + s] += later * change[4 * c + s]
