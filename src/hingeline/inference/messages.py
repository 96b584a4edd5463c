"""LP relaxation by block-coordinate descent on the dual: one factor's messages at a time.

A message ``δ_ci(s)`` moves score from factor c to its variable i. For any messages

    Σ_i max_s b_i(s) + Σ_c max_y [table_c(y) − Σ_i δ_ci(y_i)],     b_i = unary_i + Σ_c δ_ci

is at least the score of every assignment (up to rounding), and its minimum over δ is the optimum of
the relaxation over the local polytope. Messages are one flat vector: those of place p of
``graph.scope`` begin at ``message_start(graph)[p]``.

Guarantee: the bound returned is at least the score of every assignment (up to rounding), and it
never rises from pass to pass; where it equals the score of the labels found, these are a
maximiser. Any number of states, factors of any order, loops. Scores must be finite.

The update is MPLP's with the leftovers handed on (Globerson & Jaakkola 2008; the handshake of
Tourani et al. 2018, here for any order). A factor takes back all its messages and the beliefs of
its variables, gives the j-th of its k variables the share 1/(k − j) of their max-marginals, and
then once more, in reverse, all that can still be given. Each factor then has the maximum 0, so
that the bound after a pass is the sum of the variables' best beliefs. Like all such methods it may
stop above the optimum of the relaxation: see :mod:`hingeline.inference.ad3`.
"""

import numpy as np

from hingeline._checks import Array
from hingeline._jit import finite_helper, helper
from hingeline._simd import copy
from hingeline.inference import factor_graph
from hingeline.inference.factor_graph import Scored, Topology

_ROUND_EVERY = 8  # Passes between two roundings improved by single changes.
ROUNDING_SWEEPS = 10  # Sweeps of single changes for one rounding.
#: A bound this near to the score of labels, as a share of the size of both, ends the search.
MET = 1e-12


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
    copy(unary, beliefs)
    for p in range(graph.scope.shape[0]):
        first = graph.unary_start[graph.scope[p]]
        start = starts[p]
        for s in range(starts[p + 1] - start):
            beliefs[first + s] += messages[start + s]


@helper
def _max_marginal(
    scored: Scored, c: int, slot: int, messages: Array, starts: Array, out: Array
) -> None:
    """``out[s] = max_y [table_c(y) − Σ_j δ_cj(y_j)]`` over the joint states with ``y_slot = s``."""
    start, at = scored.graph.scope_start[c], scored.table_start[c]
    size = factor_graph.table_size(scored.graph, c)
    values = scored.tables[at : at + size].copy()
    stride, own = 1, 1
    for p in range(scored.graph.scope_start[c + 1] - 1, start - 1, -1):
        states = starts[p + 1] - starts[p]
        factor_graph.add_message(values, size, states, stride, messages, starts[p], -1.0)
        own = stride if p == start + slot else own
        stride *= states
    states = starts[start + slot + 1] - starts[start + slot]
    factor_graph.max_marginal(values, 0, size, states, own, out, 0)


@finite_helper
def _update_pair(
    scored: Scored, c: int, messages: Array, starts: Array, beliefs: Array, back: bool, out: Array
) -> None:
    """:func:`_update_factor` for two variables."""
    graph, tables, at = scored.graph, scored.tables, scored.table_start[c]
    place = graph.scope_start[c]
    p, q = starts[place], starts[place + 1]  # where messages begin
    i = graph.unary_start[graph.scope[place]]  # where beliefs begin
    j = graph.unary_start[graph.scope[place + 1]]
    n_first, n_second = q - p, starts[place + 2] - q
    if n_first == 2 and n_second == 2:
        a0, a1 = beliefs[i] - messages[p], beliefs[i + 1] - messages[p + 1]
        c0, c1 = beliefs[j] - messages[q], beliefs[j + 1] - messages[q + 1]
        g00, g01 = tables[at] + a0 + c0, tables[at + 1] + a0 + c1
        g10, g11 = tables[at + 2] + a1 + c0, tables[at + 3] + a1 + c1
        if back:
            v0, v1 = 0.5 * max(g00, g10), 0.5 * max(g01, g11)
            u0, u1 = max(g00 - v0, g01 - v1), max(g10 - v0, g11 - v1)
            v0, v1 = max(g00 - u0, g10 - u1), max(g01 - u0, g11 - u1)
        else:
            u0, u1 = 0.5 * max(g00, g01), 0.5 * max(g10, g11)
            v0, v1 = max(g00 - u0, g10 - u1), max(g01 - u0, g11 - u1)
            u0, u1 = max(g00 - v0, g01 - v1), max(g10 - v0, g11 - v1)
        beliefs[i], beliefs[i + 1] = u0, u1
        beliefs[j], beliefs[j + 1] = v0, v1
        messages[p], messages[p + 1] = u0 - a0, u1 - a1
        messages[q], messages[q + 1] = v0 - c0, v1 - c1
        return
    for s in range(n_first):
        beliefs[i + s] -= messages[p + s]
        messages[p + s] = -beliefs[i + s]
    for t in range(n_second):
        beliefs[j + t] -= messages[q + t]
        messages[q + t] = -beliefs[j + t]
    for step in range(3):
        share = 0.5 if step == 0 else 1.0
        if (step == 1) == back:
            for s in range(n_first):
                row, sent = tables[at + s * n_second :], messages[q : q + n_second]
                best = row[0] - sent[0]
                for t in range(1, n_second):
                    best = max(best, row[t] - sent[t])
                messages[p + s] += share * (best - messages[p + s])
        else:
            for t in range(n_second):
                out[t] = tables[at + t] - messages[p]
            for s in range(1, n_first):
                row = tables[at + s * n_second : at + (s + 1) * n_second]
                first = messages[p + s]
                for t in range(n_second):
                    value = row[t] - first
                    out[t] = value if value > out[t] else out[t]
            for t in range(n_second):
                messages[q + t] += share * (out[t] - messages[q + t])
    for s in range(n_first):
        beliefs[i + s] += messages[p + s]
    for t in range(n_second):
        beliefs[j + t] += messages[q + t]


@helper
def _update_factor(
    scored: Scored, c: int, messages: Array, starts: Array, beliefs: Array, back: bool, out: Array
) -> None:
    """Make the messages of factor c the best ones given all others; beliefs follow."""
    graph = scored.graph
    start = graph.scope_start[c]
    order = graph.scope_start[c + 1] - start
    for p in range(start, start + order):
        first = graph.unary_start[graph.scope[p]]
        for s in range(starts[p + 1] - starts[p]):
            beliefs[first + s] -= messages[starts[p] + s]
            messages[starts[p] + s] = -beliefs[first + s]
    for step in range(2 * order - 1):
        j = step if step < order else 2 * order - 2 - step
        share = 1.0 / (order - j) if step < order else 1.0
        slot = order - 1 - j if back else j
        _max_marginal(scored, c, slot, messages, starts, out)
        first = starts[start + slot]
        for s in range(starts[start + slot + 1] - first):
            messages[first + s] += share * out[s]
    for p in range(start, start + order):
        first = graph.unary_start[graph.scope[p]]
        for s in range(starts[p + 1] - starts[p]):
            beliefs[first + s] += messages[starts[p] + s]


@helper
def sweep(
    scored: Scored, messages: Array, starts: Array, beliefs: Array, back: bool, out: Array
) -> None:
    """Update every factor once, in order or in reverse."""
    scope_start = scored.graph.scope_start
    m = scope_start.shape[0] - 1
    for k in range(m):
        c = m - 1 - k if back else k
        if scope_start[c + 1] - scope_start[c] == 2:
            _update_pair(scored, c, messages, starts, beliefs, back, out)
        else:
            _update_factor(scored, c, messages, starts, beliefs, back, out)


@helper
def keep_better(scored: Scored, trial: Array, sweeps: int, best: float, y: Array) -> float:
    """Improve ``trial``, and copy it to ``y`` if it scores more than ``best``; the larger score."""
    if sweeps > 0:
        factor_graph.improve(scored, trial, sweeps)
    score = factor_graph.assignment_score(scored, trial)
    if score > best:
        copy(trial, y)
        return score
    return best


@helper
def block_descent(scored: Scored, messages: Array, y: Array, max_passes: int, tol: float) -> float:
    """Lower the bound of ``messages`` in place; the bound, and the best labels found in ``y``.

    Stops when the bound meets the score of the labels, or when a pass lowers it by at most ``tol``
    times the size of the scores, or after ``max_passes``, at least one. Messages may start
    anywhere: at zero or, for scores that changed a little, where they were left.
    """
    graph = scored.graph
    n = graph.n_states.shape[0]
    starts = message_start(graph)
    beliefs = np.empty(graph.unary_start[n])
    out = np.empty(factor_graph.most_states(graph))
    constant = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        if graph.scope_start[c + 1] == graph.scope_start[c]:
            constant += scored.tables[scored.table_start[c]]
    trial = np.empty(n, dtype=np.int32)
    best = -np.inf
    before = bound = np.inf
    for k in range(max_passes):
        node_beliefs(graph, scored.unary, messages, starts, beliefs)  # afresh: no errors add up
        sweep(scored, messages, starts, beliefs, k % 2 == 1, out)
        bound = constant + factor_graph.top_sum(graph, beliefs, trial)
        fall = before - bound
        before = bound
        size = max(factor_graph.measure(scored, trial)[1], abs(bound))
        last = k == max_passes - 1 or fall < tol * size
        sweeps = ROUNDING_SWEEPS if last or k % _ROUND_EVERY == 0 else 0
        best = keep_better(scored, trial, sweeps, best, y)
        if last or factor_graph.meets(scored, y, bound, MET):
            break
    return max(bound, best)
