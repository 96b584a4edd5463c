"""Messages of one example of the relaxed problem g(w, δ): what they are, and block descent.

For given weights g is smallest in the messages where the relaxation's dual is solved. Block descent
on it goes by variables, each with the messages of all its factors (:func:`descend_variables`)::

    m_cv(s) = max_{y: y_v = s} [θ_c(y) − Σ_{u≠v} δ_cu(y_u)],
    b_v ← (θ_v + Σ_c m_cv)/(1 + N_v),     δ_cv ← m_cv − b_v

with beliefs ``b_v = θ_v + Σ_c δ_cv``, or, with soft maxima ``ε log Σ exp(·/ε)`` in the place of
max, after which the soft marginals of v and of its factors agree. Or by factors
(:func:`descend_factors`, MPLP)::

    t(y) = θ_c(y) + Σ_v (b_v − δ_cv)(y_v),     b_v ← (1/|c|)·max_{y: y_v = s} t(y)

Of pairs, the second halves what a variable knows at each of its factors. Where there are many, the
last ones end up with its scores, and the next rounds bring them to the others bit by bit: with
weights that move in between, messages are never fit for them. The first shares them out evenly.

Messages are float32, laid out by :class:`hingeline.structures.graph_blocks.Blocks`. In a visit the
scores ``θ_c − Σ_v δ_cv`` of all factors stand in tables one after the other, and follow the
messages. :mod:`hingeline.inference.messages` descends on the same dual for one set of scores, in
full precision and handing on more at each factor: a better bound, but nothing to keep.

Graphs of binary variables and pairs without features have rounds by variables of their own, in full
precision and up to rounding the same: :func:`descend_pairs`. There factor c has its scores from
``4c`` on in its table and in the messages of the example, variable v its beliefs from ``2v`` on.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline._simd import row_max
from hingeline.inference.factor_graph import (
    Topology,
    add_message,
    max_marginal,
    next_place,
    topology,
)
from hingeline.structures import graph_blocks
from hingeline.structures.graph_blocks import Blocks


class Tables(NamedTuple):
    """Scores of the factors of one example less their messages, beliefs, and room to work in."""

    values: Array
    start: Array  # of each factor; one more at the end
    stride: Array  # of each place of the scopes
    beliefs: Array  # over (variable, state)
    columns: Array
    margins: Array


@helper
def score_variables(
    problem: Any, graph: Topology, i: int, w: Array, total: float, tables: Tables
) -> None:
    """Beliefs without messages: ``w·φ_v(s)/total + l_v(s)`` of all variables and states."""
    columns, n_variables, end = tables.columns, graph.n_states.shape[0], 0
    for u in range(n_variables):
        if u == end:
            end = graph_blocks.group_end(problem, i, u, n_variables)
            graph_blocks.row_scores(problem, i, u, w, columns)
        column = graph_blocks.first_column(problem, i, u)
        for s in range(graph.n_states[u]):
            score = columns[column + s] / total + graph_blocks.variable_loss(problem, i, u, s)
            tables.beliefs[graph.unary_start[u] + s] = score


@helper
def add_beliefs(problem: Any, blocks: Blocks, i: int, messages: Array, tables: Tables) -> None:
    """Add all messages to their variables."""
    graph = topology(problem.graphs, problem.graph[i])
    for p in range(graph.scope.shape[0]):
        v = graph.scope[p]
        at = graph_blocks.place_messages(blocks, problem, i, p)
        for s in range(graph.n_states[v]):
            tables.beliefs[graph.unary_start[v] + s] += messages[at + s]


@helper
def fill_tables(
    problem: Any, blocks: Blocks, i: int, w: Array, total: float, messages: Array, tables: Tables
) -> None:
    """``θ_c(y) − Σ_v δ_cv(y_v)`` of all factors, weights being ``w/total``."""
    graph, values = topology(problem.graphs, problem.graph[i]), tables.values
    first = 0
    for c in range(graph.scope_start.shape[0] - 1):
        tables.start[c] = first
        out = values[first:]
        size = graph_blocks.factor_scores(problem, i, c, w, out)
        if total != 1.0:
            for k in range(size):
                out[k] /= total
        stride = size
        for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
            _, n, stride = next_place(graph, p, stride)
            tables.stride[p] = stride
            at = graph_blocks.place_messages(blocks, problem, i, p)
            add_message(out, size, n, stride, messages, at, -1.0)
        first += size
    tables.start[graph.scope_start.shape[0] - 1] = first


@helper
def soft_marginal(
    values: Array, first: int, end: int, n: int, stride: int, epsilon: float, out: Array, at: int
) -> None:
    """``out[at + s]``: the soft maximum of values over joint states with ``y_slot = s``."""
    max_marginal(values, first, end, n, stride, out, at)
    for s in range(n):
        best, total = out[at + s], 0.0
        outer = first + s * stride
        while outer < end:
            for k in range(outer, outer + stride):
                total += np.exp((values[k] - best) / epsilon)
            outer += n * stride
        out[at + s] = best + epsilon * np.log(total)


@helper
def move_message(
    tables: Tables, c: int, p: int, states: int, s: int, step: float, messages: Array, at: int
) -> float:
    """Add a step to the message of state s at place p of factor c; what it was, once rounded."""
    before = messages[at + s]
    messages[at + s] = np.float32(before + step)
    moved = np.float64(messages[at + s]) - before
    stride = tables.stride[p]
    outer, end = tables.start[c] + s * stride, tables.start[c + 1]
    while outer < end:
        for k in range(outer, outer + stride):
            tables.values[k] -= moved
        outer += states * stride
    return moved


@helper
def normalise(values: Array, at: int, n: int, temperature: float) -> None:
    """Scores to shares ``∝ exp(score/ε)``."""
    top = row_max(values, at, n)
    total = 0.0
    for s in range(n):
        values[at + s] = np.exp((values[at + s] - top) / temperature)
        total += values[at + s]
    for s in range(n):
        values[at + s] /= total


@helper
def descend_factors(problem: Any, blocks: Blocks, i: int, messages: Array, tables: Tables) -> None:
    """One round over the factors (MPLP); beliefs and tables are kept up."""
    graph = topology(problem.graphs, problem.graph[i])
    beliefs, margins = tables.beliefs, tables.margins
    for c in range(graph.scope_start.shape[0] - 1):
        first, end = tables.start[c], tables.start[c + 1]
        lo, hi = graph.scope_start[c], graph.scope_start[c + 1]
        own, size = tables.values[first:end], end - first
        for p in range(lo, hi):
            # θ_c − Σδ + Σb is t: a variable's own message cancels.
            v = graph.scope[p]
            n, unary = graph.n_states[v], graph.unary_start[v]
            add_message(own, size, n, tables.stride[p], beliefs, unary, 1.0)
        at = 0
        for p in range(lo, hi):
            n = graph.n_states[graph.scope[p]]
            max_marginal(tables.values, first, end, n, tables.stride[p], margins, at)
            at += n
        at = 0
        for p in range(lo, hi):
            v = graph.scope[p]
            n, unary = graph.n_states[v], graph.unary_start[v]
            place = graph_blocks.place_messages(blocks, problem, i, p)
            add_message(own, size, n, tables.stride[p], beliefs, unary, -1.0)
            for s in range(n):
                step = margins[at + s] / (hi - lo) - beliefs[unary + s]
                beliefs[unary + s] += move_message(tables, c, p, n, s, step, messages, place)
            at += n


@helper
def descend_variables(
    problem: Any, blocks: Blocks, i: int, temperature: float, messages: Array, tables: Tables
) -> None:
    """One round over the variables, each with all its factors; beliefs and tables are kept up."""
    graph = topology(problem.graphs, problem.graph[i])
    beliefs, margins = tables.beliefs, tables.margins
    for v in range(graph.n_states.shape[0]):
        n, unary = graph.n_states[v], graph.unary_start[v]
        begin, end = graph.incident_start[v], graph.incident_start[v + 1]
        share = 1.0 / (1.0 + (end - begin))
        # margins: the mean of v and its factors, then those of each factor.
        for s in range(n):
            margins[s] = beliefs[unary + s] * share
        at = n
        for q in range(begin, end):
            c = graph.incident[q]
            stride = tables.stride[graph.scope_start[c] + graph.slot[q]]
            first, last = tables.start[c], tables.start[c + 1]
            if temperature > 0.0:
                soft_marginal(tables.values, first, last, n, stride, temperature, margins, at)
            else:
                max_marginal(tables.values, first, last, n, stride, margins, at)
            for s in range(n):
                margins[s] += margins[at + s] * share
            at += n
        at = n
        for q in range(begin, end):
            c = graph.incident[q]
            p = graph.scope_start[c] + graph.slot[q]
            place = graph_blocks.place_messages(blocks, problem, i, p)
            for s in range(n):
                step = margins[at + s] - margins[s]
                beliefs[unary + s] += move_message(tables, c, p, n, s, step, messages, place)
            at += n


@helper
def fill_pairs(
    problem: Any, i: int, w: Array, total: float, stored: Array, messages: Array, room: Tables
) -> None:
    """Messages in full precision, beliefs with them, and scores of factors less them."""
    graph = topology(problem.graphs, problem.graph[i])
    beliefs, tables = room.beliefs, room.values
    first = problem.graphs.factor_ptr[problem.graph[i]]
    scale = 1.0 / total
    for c in range(graph.scope_start.shape[0] - 1):
        k = 4 * c
        for s in range(4):
            messages[k + s] = stored[k + s]
        v, u = 2 * graph.scope[2 * c], 2 * graph.scope[2 * c + 1]
        for s in range(2):
            beliefs[v + s] += messages[k + s]
            beliefs[u + s] += messages[k + 2 + s]
        t = problem.factor_table[first + c]
        for s in range(4):
            tables[k + s] = w[t + s] * scale - messages[k + s // 2] - messages[k + 2 + s % 2]


@helper
def soft_max(a: float, b: float, epsilon: float) -> float:
    """``ε log(exp(a/ε) + exp(b/ε))``, or the larger one where ε is 0."""
    top = max(a, b)
    if epsilon > 0.0:
        top += epsilon * math.log1p(math.exp(-abs(a - b) / epsilon))
    return top


@helper
def descend_pairs(graph: Topology, epsilon: float, messages: Array, room: Tables) -> None:
    """One round over the variables: ``descend_variables`` for binary pairs."""
    beliefs, tables, margins = room.beliefs, room.values, room.margins
    for v in range(graph.n_states.shape[0]):
        begin, end = graph.incident_start[v], graph.incident_start[v + 1]
        sum0, sum1 = beliefs[2 * v], beliefs[2 * v + 1]
        at = 0
        for q in range(begin, end):
            k = 4 * graph.incident[q]
            # Joint states (0, 0), (0, 1), (1, 0), (1, 1): v is the first or the second.
            a = 1 + graph.slot[q]
            m0 = soft_max(tables[k], tables[k + a], epsilon)
            m1 = soft_max(tables[k + 3 - a], tables[k + 3], epsilon)
            margins[at], margins[at + 1] = m0, m1
            sum0, sum1, at = sum0 + m0, sum1 + m1, at + 2
        share = 1.0 / (1.0 + (end - begin))
        mean0, mean1 = sum0 * share, sum1 * share
        at = 0
        for q in range(begin, end):
            k = 4 * graph.incident[q]
            step0, step1 = margins[at] - mean0, margins[at + 1] - mean1
            at += 2
            a = 1 + graph.slot[q]
            messages[k + 2 * a - 2] += step0
            messages[k + 2 * a - 1] += step1
            tables[k] -= step0
            tables[k + a] -= step0
            tables[k + 3 - a] -= step1
            tables[k + 3] -= step1
        beliefs[2 * v], beliefs[2 * v + 1] = mean0, mean1
