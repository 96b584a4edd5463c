"""The best assignment of a factor graph, exactly: of forests, of small graphs, by minimum cuts.

Every assignment found is a maximiser, up to the rounding of the sums. Scores must be finite; those
of forests may be ``-inf``.
"""

from typing import NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import finite_helper, helper
from hingeline.inference.factor_graph import (
    Scored,
    Topology,
    assignment_score,
    most_states,
    table_size,
    top_sum,
)

# Forests: max-sum. Any number of states, factors of any order: what must have no cycle is the graph
# of variables and factors (``factor_graph.are_forests``), so that two factors share at most one
# variable.


@helper
def _sort_factors(graph: Topology, order: Array, upper: Array) -> int:
    """Factors from the roots outwards, and the place in its scope where each one was reached.

    How many there are: those over no variables are constants.
    """
    n = graph.n_states.shape[0]
    seen = np.zeros(n, dtype=np.bool_)
    done = np.zeros(order.shape[0], dtype=np.bool_)
    queue = np.empty(n, dtype=np.int64)
    count = 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        queue[0] = root
        head = 0
        tail = 1
        while head < tail:
            i = queue[head]
            head += 1
            for p in range(graph.incident_start[i], graph.incident_start[i + 1]):
                c = graph.incident[p]
                if done[c]:
                    continue
                done[c] = True
                order[count] = c
                upper[count] = graph.slot[p]
                count += 1
                for q in range(graph.scope_start[c], graph.scope_start[c + 1]):
                    j = graph.scope[q]
                    if not seen[j]:
                        seen[j] = True
                        queue[tail] = j
                        tail += 1
    return count


@helper
def _scan(scored: Scored, c: int, slot: int, above: int, beliefs: Array, out: Array) -> int:
    """Look through a factor's table, with the beliefs of its variables but the one at ``slot``.

    ``above < 0``: the best values for each state of that variable, in ``out``. Otherwise the best
    joint state where it has the state ``above``.
    """
    graph = scored.graph
    at = scored.table_start[c]
    begin, end = graph.scope_start[c], graph.scope_start[c + 1]
    last = graph.scope[end - 1]
    states = graph.n_states[last]  # their joint states are neighbours
    first = graph.unary_start[last]
    up = graph.scope[begin + slot]
    if above < 0:
        for s in range(graph.n_states[up]):
            out[s] = -np.inf
    best = -np.inf
    choice = -1
    for row in range(table_size(graph, c) // states):
        rest = row
        base = 0.0
        digit = -1
        for p in range(end - 2, begin - 1, -1):
            j = graph.scope[p]
            if p == begin + slot:
                digit = rest % graph.n_states[j]
            else:
                base += beliefs[graph.unary_start[j] + rest % graph.n_states[j]]
            rest //= graph.n_states[j]
        if above >= 0 and digit >= 0 and digit != above:
            continue
        for t in range(states):
            k = row * states + t
            value = base + scored.tables[at + k]
            s = t
            if digit >= 0:
                value += beliefs[first + t]
                s = digit
            if above < 0:
                out[s] = max(out[s], value)
            elif s == above and (choice < 0 or value > best):
                best = value
                choice = k
    return choice


@helper
def max_product(scored: Scored, y: Array) -> None:
    """Best assignment of a forest in ``y``."""
    graph = scored.graph
    m = graph.scope_start.shape[0] - 1
    order = np.empty(m, dtype=np.int64)
    upper = np.empty(m, dtype=np.int64)
    count = _sort_factors(graph, order, upper)
    beliefs = scored.unary.copy()
    message = np.empty(most_states(graph))
    for place in range(count - 1, -1, -1):
        c = order[place]
        _scan(scored, c, upper[place], -1, beliefs, message)
        i = graph.scope[graph.scope_start[c] + upper[place]]
        for s in range(graph.n_states[i]):
            beliefs[graph.unary_start[i] + s] += message[s]
    top_sum(graph, beliefs, y)  # right for the roots; what is below them follows
    for place in range(count):
        c = order[place]
        start, end = graph.scope_start[c], graph.scope_start[c + 1]
        above = y[graph.scope[start + upper[place]]]
        joint = _scan(scored, c, upper[place], above, beliefs, message)
        for p in range(end - 1, start - 1, -1):
            i = graph.scope[p]
            if p != start + upper[place]:
                y[i] = joint % graph.n_states[i]
            joint //= graph.n_states[i]


# Small graphs, whatever they are: all assignments, scored in whole vectors.
#
# With the scores of all assignments of the first k variables in one vector, variable k is added by
#
#     score'[y, s] = score[y] + field_s[y],     field_s[y] = unary_k(s) + Σ_j table_jk(y_j, s)
#
# where ``field_s`` grows in the same way, one earlier variable j at a time: a few additions per
# assignment, all of them on neighbouring numbers. The last variable is maximised on the way, so
# that time and memory are those of all assignments divided by its number of states.


@helper
def _pair_scores(scored: Scored, k: int, s: int, pairs: Array) -> bool:
    """Scores of earlier variables' states with state s of variable k, as one vector over them.

    ``pairs[0]``, which belongs to no pair, receives factors over k alone. Returns whether there
    are factors that join k with two or more earlier variables and none later.
    """
    graph, tables, table_start = scored.graph, scored.tables, scored.table_start
    for q in range(1 + graph.unary_start[k]):
        pairs[q] = 0.0
    larger = False
    for p in range(graph.incident_start[k], graph.incident_start[k + 1]):
        c = graph.incident[p]
        start = graph.scope_start[c]
        order = graph.scope_start[c + 1] - start
        at = table_start[c]
        if order == 1:
            pairs[0] += tables[at + s]
        elif order == 2:
            j = graph.scope[start + 1 - graph.slot[p]]
            if j < k:
                own = graph.n_states[j] if graph.slot[p] == 0 else 1
                other = 1 if graph.slot[p] == 0 else graph.n_states[k]
                first = 1 + graph.unary_start[j]
                for t in range(graph.n_states[j]):
                    pairs[first + t] += tables[at + s * own + t * other]
        else:
            last = 0
            for q in range(start, start + order):
                last = max(last, graph.scope[q])
            larger = larger or last == k
    return larger


@helper
def _add_larger(scored: Scored, sizes: Array, k: int, s: int, j: int, field: Array) -> None:
    """Add factors over three or more variables whose last two are j and k to ``field``."""
    graph, tables, table_start = scored.graph, scored.tables, scored.table_start
    for p in range(graph.incident_start[k], graph.incident_start[k + 1]):
        c = graph.incident[p]
        start, end = graph.scope_start[c], graph.scope_start[c + 1]
        if end - start < 3:
            continue
        last = second = -1
        for q in range(start, end):
            i = graph.scope[q]
            second = max(second, min(i, last))
            last = max(last, i)
        if last != k or second != j:
            continue
        for y in range(sizes[j + 1]):
            at = table_start[c]
            stride = 1
            for q in range(end - 1, start - 1, -1):
                i = graph.scope[q]
                at += stride * (s if i == k else y // sizes[i] % graph.n_states[i])
                stride *= graph.n_states[i]
            field[y] += tables[at]


@helper
def _fill_field(scored: Scored, sizes: Array, k: int, s: int, pairs: Array, field: Array) -> None:
    """``field[y]``: what state s of variable k adds to each assignment y of the earlier ones."""
    graph = scored.graph
    larger = _pair_scores(scored, k, s, pairs)
    field[0] = scored.unary[graph.unary_start[k] + s] + pairs[0]
    for j in range(k):
        size = sizes[j]
        for t in range(graph.n_states[j] - 1, -1, -1):  # the first block is the source
            score = pairs[1 + graph.unary_start[j] + t]
            block = field[t * size : (t + 1) * size]
            for y in range(size):
                block[y] = field[y] + score
        if larger:
            _add_larger(scored, sizes, k, s, j, field)


@finite_helper
def _largest(a: Array, b: Array, size: int) -> int:
    """First place of the maximum of a + b."""
    best = a[0] + b[0]
    for y in range(1, size):
        best = max(best, a[y] + b[y])
    for y in range(size):
        if a[y] + b[y] == best:
            return y
    return 0


@finite_helper
def _raise(a: Array, b: Array, size: int) -> None:
    for y in range(size):
        a[y] = max(a[y], b[y])


@helper
def enumerate_best(scored: Scored, y: Array) -> None:
    """Best assignment in ``y``; of several best ones the same in every call."""
    graph = scored.graph
    n = graph.n_states.shape[0]
    if n == 0:
        return
    sizes = np.empty(n, dtype=np.int64)  # assignments of the variables before this one
    sizes[0] = 1
    for k in range(n - 1):
        sizes[k + 1] = sizes[k] * graph.n_states[k]
    pairs = np.empty(1 + graph.unary_start[n])
    scores = np.empty(sizes[n - 1])
    field = np.empty(sizes[n - 1])
    scores[0] = 0.0
    for k in range(n - 1):
        size = sizes[k]
        for s in range(graph.n_states[k] - 1, -1, -1):
            _fill_field(scored, sizes, k, s, pairs, field)
            block = scores[s * size : (s + 1) * size]
            for q in range(size):
                block[q] = scores[q] + field[q]
    most = np.empty(sizes[n - 1])
    _fill_field(scored, sizes, n - 1, 0, pairs, most)
    for s in range(1, graph.n_states[n - 1]):
        _fill_field(scored, sizes, n - 1, s, pairs, field)
        _raise(most, field, sizes[n - 1])
    rest = _largest(scores, most, sizes[n - 1])
    for k in range(n - 1):
        y[k] = rest % graph.n_states[k]
        rest //= graph.n_states[k]
    best = -np.inf  # the last variable given the others
    last = 0
    for s in range(graph.n_states[n - 1]):
        y[n - 1] = s
        score = assignment_score(scored, y)
        if score > best:
            best = score
            last = s
    y[n - 1] = last


# Binary variables and pairs that prefer to agree: minimum cut.
#
# Submodular means ``table[0,0] + table[1,1] ≥ table[0,1] + table[1,0]`` for every pair, tested on
# the scores as they are, without tolerance. Factors over one variable are allowed.
#
# A pair's table is, up to unary scores, ``−w·[y_i = 0, y_j = 1]`` with the weight w ≥ 0: an arc of
# capacity w from j to i, where the variables on the source's side get the value 1. The maximum flow
# is Dinic's: arcs that lead one step nearer to the sink, by a search backwards from it, then paths
# along them. Each path empties an arc or a terminal to exactly zero, so it ends in spite of
# rounding.


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
    n = terminal.shape[0]
    tail = 0
    for i in range(n):
        level[i] = -1
        if terminal[i] < 0.0:
            level[i] = 0
            queue[tail] = i
            tail += 1
    at = 0
    met = False
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
    n = graph.n_states.shape[0]
    m = graph.scope_start.shape[0] - 1
    terminal = np.empty(n)
    for i in range(n):
        first = graph.unary_start[i]
        terminal[i] = unary[first + 1] - unary[first]
    room = np.zeros(2 * m)  # arc 2c from the second variable of factor c to the first, then back
    for c in range(m):
        at = table_start[c]
        start = graph.scope_start[c]
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
    count = graph.scope.shape[0]
    head = np.zeros(count, dtype=np.int64)
    arc = np.zeros(count, dtype=np.int64)
    for i in range(n):
        for p in range(graph.incident_start[i], graph.incident_start[i + 1]):
            c = graph.incident[p]
            start = graph.scope_start[c]
            if graph.scope_start[c + 1] - start == 2:
                head[p] = graph.scope[start + 1 - graph.slot[p]]
                arc[p] = 2 * c + (1 - graph.slot[p])
            else:
                head[p] = i  # a loop without capacity
                arc[p] = 2 * c
    level = np.empty(n, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    path = np.empty(n + 1, dtype=np.int64)
    net = Network(graph.incident_start, head, arc, room, terminal, level)
    while _find_levels(net, queue):
        following = graph.incident_start.copy()
        for i in range(n):
            if terminal[i] > 0.0 and level[i] > 0:
                _augment(net, following, path, i)
    for i in range(n):
        y[i] = 1 if level[i] < 0 else 0  # no way to the sink: on the source's side
