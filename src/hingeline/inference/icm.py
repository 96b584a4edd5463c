"""Iterated conditional modes: one variable at a time takes its best value given the others.

Guarantee: the score never falls, and in the end no change of a single variable raises it. Nothing
is said about the distance from the maximum; this is how roundings of relaxations are improved.
Any number of states, factors of any order, loops. Scores must be finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.inference.factor_graph import Scored

Array = np.ndarray[Any, Any]

#: Changes must gain more than this, relative to the scores compared, so that ties end.
GAIN = 1e-13


@helper
def conditional_scores(scored: Scored, i: int, y: Array, out: Array) -> None:
    """``out[s]``: what depends on variable i where it takes the value s and the others are y."""
    graph = scored.graph
    unary, tables, table_start = scored.unary, scored.tables, scored.table_start
    n_states = graph.n_states[i]
    first = graph.unary_start[i]
    for s in range(n_states):
        out[s] = unary[first + s]
    for p in range(graph.incident_start[i], graph.incident_start[i + 1]):
        c = graph.incident[p]
        start = graph.scope_start[c]
        end = graph.scope_start[c + 1]
        here = start + graph.slot[p]
        at = table_start[c]
        stride = 1
        own = 1
        for q in range(end - 1, start - 1, -1):
            j = graph.scope[q]
            if q == here:
                own = stride
            else:
                at += stride * y[j]
            stride *= graph.n_states[j]
        for s in range(n_states):
            out[s] += tables[at + s * own]


@helper
def improve(scored: Scored, y: Array, max_sweeps: int) -> int:
    """Improve ``y`` in place until no single change helps; the number of changes made."""
    graph = scored.graph
    n = graph.n_states.shape[0]
    most = 0
    for i in range(n):
        most = max(most, graph.n_states[i])
    scores = np.empty(most)
    changes = 0
    quiet = 0  # variables in a row that stayed
    for visit in range(max_sweeps * n):
        i = visit % n
        conditional_scores(scored, i, y, scores)
        best = y[i]
        for s in range(graph.n_states[i]):
            if scores[s] > scores[best]:
                best = s
        gain = scores[best] - scores[y[i]]
        if gain > GAIN * (abs(scores[best]) + abs(scores[y[i]])):
            y[i] = best
            changes += 1
            quiet = 0
        else:
            quiet += 1
            if quiet == n:
                break
    return changes
