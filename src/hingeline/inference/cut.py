"""Minimum cut for binary variables and pairs that prefer to agree.

Guarantee: where :func:`is_submodular` says yes, the assignment is a maximiser, up to the rounding
of the sums. Submodular means ``table[0,0] + table[1,1] ≥ table[0,1] + table[1,0]`` for every pair,
tested on the scores as they are, without tolerance. Factors over one variable are allowed. Scores
must be finite.

A pair's table is, up to unary scores, ``−w·[y_i = 0, y_j = 1]`` with the weight w ≥ 0: an arc of
capacity w from j to i, where the variables on the source's side get the value 1. The maximum flow
is Dinic's: arcs that lead one step nearer to the sink, by a search backwards from it, then paths
along them. Each path empties an arc or a terminal to exactly zero, so it ends in spite of rounding.
"""

from typing import NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline.inference.factor_graph import Scored


class Network(NamedTuple):
    """Arcs between variables, and what each variable gets from the source or gives to the sink."""

    incident_start: Array  # the places of each variable's arcs
    head: Array  # by place: the variable at the other end
    arc: Array  # by place: the arc that leads there; its last bit turned, the one back
    room: Array  # by arc
    terminal: Array  # score of 1 over 0: from the source where positive, else to the sink
    level: Array  # steps to the sink, −1 where there is no way


@helper
def is_submodular(scored: Scored) -> bool:
    """Whether every pair of a binary pairwise graph prefers to agree, with these scores."""
    graph, tables, table_start = scored.graph, scored.tables, scored.table_start
    for c in range(graph.scope_start.shape[0] - 1):
        if graph.scope_start[c + 1] - graph.scope_start[c] == 2:
            at = table_start[c]
            if not tables[at] + tables[at + 3] >= tables[at + 1] + tables[at + 2]:
                return False
    return True


@helper
def _find_levels(net: Network, queue: Array) -> bool:
    """Steps to the sink; whether a source is connected to it."""
    terminal, level = net.terminal, net.level
    tail = 0
    for i in range(terminal.shape[0]):
        level[i] = -1
        if terminal[i] < 0.0:
            level[i] = 0
            queue[tail] = i
            tail += 1
    at, met = 0, False
    while at < tail:
        i = queue[at]
        at += 1
        met = met or terminal[i] > 0.0
        for p in range(net.incident_start[i], net.incident_start[i + 1]):
            j = net.head[p]
            if level[j] < 0 and net.room[net.arc[p] ^ 1] > 0.0:  # the arc from j to i
                level[j] = level[i] + 1
                queue[tail] = j
                tail += 1
    return met


@helper
def _augment(net: Network, following: Array, path: Array, source: int) -> None:
    """Send what the source has along arcs that go down one level, until stuck."""
    head, arc, room, terminal, level = net.head, net.arc, net.room, net.terminal, net.level
    depth = 0  # path[:depth] are places of arcs
    i = source
    while True:
        if terminal[i] < 0.0:
            flow = min(terminal[source], -terminal[i])
            for k in range(depth):
                flow = min(flow, room[arc[path[k]]])
            terminal[source] -= flow
            terminal[i] += flow
            keep = depth
            for k in range(depth - 1, -1, -1):
                a = arc[path[k]]
                room[a] -= flow
                room[a ^ 1] += flow
                if room[a] <= 0.0:
                    keep = k
            if not terminal[source] > 0.0:
                return
            depth = keep
            i = source if depth == 0 else head[path[depth - 1]]
        moved = False
        while level[i] > 0 and following[i] < net.incident_start[i + 1]:
            p = following[i]
            if room[arc[p]] > 0.0 and level[head[p]] == level[i] - 1:
                path[depth] = p
                depth += 1
                i = head[p]
                moved = True
                break
            following[i] += 1
        if not moved:
            if depth == 0:
                return
            depth -= 1
            i = source if depth == 0 else head[path[depth - 1]]
            following[i] += 1


@helper
def graph_cut(scored: Scored, y: Array) -> None:
    """Best assignment of a submodular graph in ``y``."""
    graph = scored.graph
    unary, tables, table_start = scored.unary, scored.tables, scored.table_start
    n, m = graph.n_states.shape[0], graph.scope_start.shape[0] - 1
    terminal = np.empty(n)
    for i in range(n):
        first = graph.unary_start[i]
        terminal[i] = unary[first + 1] - unary[first]
    room = np.zeros(2 * m)  # arc 2c from the second variable of factor c to the first, then back
    for c in range(m):
        at, start = table_start[c], graph.scope_start[c]
        order = graph.scope_start[c + 1] - start
        if order == 1:
            terminal[graph.scope[start]] += tables[at + 1] - tables[at]
        elif order == 2:
            i, j = graph.scope[start], graph.scope[start + 1]
            # t(y_i, y_j) = t00 + y_i (t10 − t00) + y_j (t11 − t10) − w (1 − y_i) y_j
            terminal[i] += tables[at + 2] - tables[at]
            terminal[j] += tables[at + 3] - tables[at + 2]
            room[2 * c] = max(
                (tables[at] + tables[at + 3]) - (tables[at + 1] + tables[at + 2]), 0.0
            )
    head, arc = np.zeros((2, graph.scope.shape[0]), dtype=np.int64)
    for i in range(n):
        for p in range(graph.incident_start[i], graph.incident_start[i + 1]):
            c = graph.incident[p]
            start = graph.scope_start[c]
            if graph.scope_start[c + 1] - start == 2:
                head[p], arc[p] = graph.scope[start + 1 - graph.slot[p]], 2 * c + 1 - graph.slot[p]
            else:
                head[p], arc[p] = i, 2 * c  # a loop without capacity
    level, queue = np.empty((2, n), dtype=np.int64)
    path = np.empty(n + 1, dtype=np.int64)
    net = Network(graph.incident_start, head, arc, room, terminal, level)
    while _find_levels(net, queue):
        following = graph.incident_start.copy()
        for i in range(n):
            if terminal[i] > 0.0 and level[i] > 0:
                _augment(net, following, path, i)
    for i in range(n):
        y[i] = 1 if level[i] < 0 else 0  # no way to the sink: on the source's side
