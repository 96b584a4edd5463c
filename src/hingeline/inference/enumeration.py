"""The best of all assignments of a small graph, all of them scored in whole vectors.

Guarantee: the assignment is a maximiser, up to the rounding of the sums, whatever the graph. Any
number of states, factors of any order. Scores must be finite.

With the scores of all assignments of the first k variables in one vector, variable k is added by

    score'[y, s] = score[y] + field_s[y],     field_s[y] = unary_k(s) + Σ_j table_jk(y_j, s)

where ``field_s`` grows in the same way, one earlier variable j at a time: a few additions per
assignment, all of them on neighbouring numbers. The last variable is maximised on the way, so that
time and memory are those of all assignments divided by its number of states.
"""

import numpy as np

from hingeline._checks import Array
from hingeline._jit import finite_helper, helper
from hingeline.inference.factor_graph import Scored, assignment_score


@helper
def _pair_scores(scored: Scored, k: int, s: int, pairs: Array) -> bool:
    """Scores of earlier variables' states with state s of variable k, as one vector over them.

    ``pairs[0]``, which belongs to no pair, receives factors over k alone. Returns whether there
    are factors that join k with two or more earlier variables and none later.
    """
    graph, tables, table_start = scored.graph, scored.tables, scored.table_start
    pairs[: 1 + graph.unary_start[k]] = 0.0
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
            at, stride = table_start[c], 1
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
    scores, field = np.empty(sizes[n - 1]), np.empty(sizes[n - 1])
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
        for q in range(sizes[n - 1]):
            most[q] = max(most[q], field[q])
    rest = _largest(scores, most, sizes[n - 1])
    for k in range(n - 1):
        y[k] = rest % graph.n_states[k]
        rest //= graph.n_states[k]
    last, best = 0, -np.inf  # the last variable given the others
    for s in range(graph.n_states[n - 1]):
        y[n - 1] = s
        score = assignment_score(scored, y)
        if score > best:
            last, best = s, score
    y[n - 1] = last
