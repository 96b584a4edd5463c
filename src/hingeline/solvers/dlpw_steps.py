"""Passes of message descent and (sub)gradient steps over the examples of a relaxed problem.

The gradient of an example at its messages (:mod:`hingeline.solvers.dlpw_messages`) has the best
state of every block, or soft shares. Where maxima are hard the messages of block descent make ties
the rule: a factor that has given all it can to its variables has a maximiser for each of their good
states. Any maximiser is a subgradient for these messages, but only one that agrees with the
variables tells how the relaxation changes with the weights, so that of a factor's maximisers the
one nearest to its variables' is taken. On small problems the weights then come within 2 % of the
optimum. On dense graphs, whose relaxations are fractional, they need not: g of the yeast data with
all pairs rises again after the first passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._numba import helper, kernel
from hingeline.inference.factor_graph import Topology, table_size, topology
from hingeline.solvers.dlpw_messages import (
    Messages,
    add_beliefs,
    descend_messages,
    factor_beliefs,
    normalise,
    smooth_messages,
    unary_scores,
)
from hingeline.solvers.soft_look import couple
from hingeline.structures.graph_blocks import (
    Blocks,
    factor_add,
    factor_scores,
    first_column,
    group_end,
    row_add,
    true_joint,
    true_state,
    variable_loss,
)

Array = np.ndarray[Any, Any]

#: Entries of the steps' state.
STEPS, TOTAL, MASS = range(3)
#: Scores this near, relative to one plus their size, are tied: messages are float32.
TIED = 1e-5


@helper
def choose(values: Array, at: int, n: int, temperature: float) -> int:
    """Scores to marginals: the best state, which is returned, or soft shares."""
    best = 0
    for s in range(1, n):
        if values[at + s] > values[at + best]:
            best = s
    if temperature > 0.0:
        normalise(values, at, n, temperature)
        return best
    for s in range(n):
        values[at + s] = 0.0
    values[at + best] = 1.0
    return best


@helper
def choose_near(graph: Topology, c: int, values: Array, size: int, states: Array) -> None:
    """Scores of factor c to its best joint state; of several, that nearest to ``states``."""
    top = values[0]
    for k in range(1, size):
        top = max(top, values[k])
    least = top - TIED * (1.0 + abs(top))
    best, most = 0, -1
    for k in range(size):
        if values[k] < least:
            continue
        same, rest = 0, k
        for p in range(graph.scope_start[c + 1] - 1, graph.scope_start[c] - 1, -1):
            v = graph.scope[p]
            if rest % graph.n_states[v] == states[v]:
                same += 1
            rest //= graph.n_states[v]
        if same > most:
            best, most = k, same
    for k in range(size):
        values[k] = 0.0
    values[best] = 1.0


@kernel
def descend(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    weight: float,
    rounds: int,
    temperature: float,
    state: Array,
    planes: Array,
    moments: Array,
    messages: Messages,
) -> None:
    """One pass: of each example the messages, then a (sub)gradient step; ``w = planes/W``."""
    width = blocks.widest + 8
    columns = np.empty(problem.n_columns + 8)
    steps = np.empty(problem.n_columns + 8)
    later = np.empty(problem.n_columns + 8)
    beliefs = np.empty(blocks.most_unary + 8)
    table, margins = np.empty(width), np.empty(width)
    best, target = np.empty(width), np.empty(width)
    states = np.empty(blocks.most_unary + 8, dtype=np.int64)
    n = order.shape[0]
    longest = 0
    for i in order:
        longest = max(longest, blocks.mass_at[i + 1] - blocks.mass_at[i])
    gradient = np.empty(longest + blocks.most_blocks)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        total = state[TOTAL]
        unary_scores(problem, graph, i, planes, total, columns, beliefs)
        add_beliefs(problem, graph, i, messages, beliefs)
        for _ in range(rounds):
            if temperature > 0.0:
                smooth_messages(
                    problem,
                    graph,
                    i,
                    planes,
                    total,
                    temperature,
                    beliefs,
                    messages,
                    table,
                    margins,
                    best,
                    target,
                )
            else:
                descend_messages(
                    problem, graph, i, planes, total, beliefs, messages, table, margins
                )
        state[STEPS] += 1.0
        step = weight * n * cap[i]
        # All of the gradient before any of the step: factors may share a template.
        for v in range(graph.n_states.shape[0]):
            states[v] = choose(beliefs, graph.unary_start[v], graph.n_states[v], temperature)
        at = 0
        for c in range(graph.scope_start.shape[0] - 1):
            out = gradient[at:]
            size = factor_beliefs(problem, graph, i, c, planes, total, messages, out)
            if temperature > 0.0:
                normalise(out, 0, size, temperature)
            else:
                choose_near(graph, c, out, size, states)
            out[true_joint(problem, graph, i, c)] -= 1.0
            at += size
        at = 0
        for c in range(graph.scope_start.shape[0] - 1):
            size = table_size(graph, c)
            factor_add(problem, i, c, size, -step, gradient[at:], planes)
            factor_add(problem, i, c, size, -step * state[STEPS], gradient[at:], moments)
            at += size
        v = 0
        while v < graph.n_states.shape[0]:
            end = group_end(problem, i, v, graph.n_states.shape[0])
            for k in range(problem.n_columns):
                steps[k] = 0.0
            for u in range(v, end):
                first = graph.unary_start[u]
                column = first_column(problem, i, u)
                beliefs[first + true_state(problem, i, u)] -= 1.0
                for s in range(graph.n_states[u]):
                    steps[column + s] = -step * beliefs[first + s]
            for k in range(problem.n_columns):
                later[k] = state[STEPS] * steps[k]
            row_add(problem, i, v, steps, planes)
            row_add(problem, i, v, later, moments)
            v = end
        state[TOTAL] += weight
        state[MASS] += state[TOTAL]


@kernel
def hinges_of(
    problem: Any, blocks: Blocks, order: Array, w: Array, messages: Messages, out: Array
) -> None:
    """``Σ max θ̂`` of each example, relative to the truth."""
    columns = np.empty(problem.n_columns + 8)
    beliefs = np.empty(blocks.most_unary + 8)
    table = np.empty(blocks.widest + 8)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        unary_scores(problem, graph, i, w, 1.0, columns, beliefs)
        hinge = 0.0
        for v in range(graph.n_states.shape[0]):
            hinge -= beliefs[graph.unary_start[v] + true_state(problem, i, v)]
        add_beliefs(problem, graph, i, messages, beliefs)
        for v in range(graph.n_states.shape[0]):
            first = graph.unary_start[v]
            top = beliefs[first]
            for s in range(1, graph.n_states[v]):
                top = max(top, beliefs[first + s])
            hinge += top
        for c in range(graph.scope_start.shape[0] - 1):
            size = factor_scores(problem, graph, i, c, w, table)
            hinge -= table[true_joint(problem, graph, i, c)]
            size = factor_beliefs(problem, graph, i, c, w, 1.0, messages, table)
            top = table[0]
            for k in range(1, size):
                top = max(top, table[k])
            hinge += top
        out[i] = hinge


@kernel
def add_beliefs_weights(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    w: Array,
    temperature: float,
    messages: Messages,
    out: Array,
) -> float:
    """``out += Ψμ`` for the soft marginals μ, factors coupled to variables; ``Σ c_i·μ·l``."""
    columns = np.empty(problem.n_columns + 8)
    steps = np.empty(problem.n_columns + 8)
    beliefs = np.empty(blocks.most_unary + 8)
    missing = np.empty(blocks.most_unary + 8)
    table = np.empty(blocks.widest + 8)
    linear = 0.0
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        n_variables = graph.n_states.shape[0]
        unary_scores(problem, graph, i, w, 1.0, columns, beliefs)
        add_beliefs(problem, graph, i, messages, beliefs)
        for v in range(n_variables):
            normalise(beliefs, graph.unary_start[v], graph.n_states[v], temperature)
            for s in range(graph.n_states[v]):
                share = beliefs[graph.unary_start[v] + s]
                linear += cap[i] * share * variable_loss(problem, i, v, s)
        for c in range(graph.scope_start.shape[0] - 1):
            size = factor_beliefs(problem, graph, i, c, w, 1.0, messages, table)
            normalise(table, 0, size, temperature)
            couple(graph, c, size, beliefs, 0, table, missing)
            table[true_joint(problem, graph, i, c)] -= 1.0
            factor_add(problem, i, c, size, -cap[i], table, out)
        v = 0
        while v < n_variables:
            end = group_end(problem, i, v, n_variables)
            for k in range(problem.n_columns):
                steps[k] = 0.0
            for u in range(v, end):
                column = first_column(problem, i, u)
                for s in range(graph.n_states[u]):
                    steps[column + s] = -cap[i] * beliefs[graph.unary_start[u] + s]
                steps[column + true_state(problem, i, u)] += cap[i]
            row_add(problem, i, v, steps, out)
            v = end
    return linear
