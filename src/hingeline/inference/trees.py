"""Max-sum on trees and forests of factors.

Guarantee: where :func:`hingeline.inference.factor_graph.are_forests` says yes, the assignment is a
maximiser, up to the rounding of the sums. Any number of states, factors of any order: what must
have no cycle is the graph of variables and factors, so that two factors share at most one variable.
Entries may be ``-inf``.
"""

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline.inference.factor_graph import Scored, Topology, most_states, table_size, top_sum


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
        queue[0], head, tail = root, 0, 1
        while head < tail:
            i = queue[head]
            head += 1
            for p in range(graph.incident_start[i], graph.incident_start[i + 1]):
                c = graph.incident[p]
                if done[c]:
                    continue
                done[c] = True
                order[count], upper[count] = c, graph.slot[p]
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
    if above < 0:
        out[:] = -np.inf
    choice, best = -1, -np.inf
    for row in range(table_size(graph, c) // states):
        rest, base, digit = row, 0.0, -1
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
                choice, best = k, value
    return choice


@helper
def max_product(scored: Scored, y: Array) -> None:
    """Best assignment of a forest in ``y``."""
    graph = scored.graph
    order, upper = np.empty((2, graph.scope_start.shape[0] - 1), dtype=np.int64)
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
