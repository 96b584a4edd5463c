"""Passes of message descent and (sub)gradient steps over the examples of a relaxed problem.

The gradient of an example at its messages (:mod:`hingeline.solvers.dlpw_messages`) has the best
state of every block, or soft shares. For these messages it is a subgradient of g(w, δ) in the
weights, whichever maximiser is taken where there are several. What is to be minimised, though, is
the least g over messages, and of that it is a subgradient only if the messages are optimal for the
weights and the maximisers of factors and variables agree. So messages have to be nearly fit for the
weights before a step, and of a factor's maximisers the one nearest to its variables' is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.inference.factor_graph import Topology, topology
from hingeline.solvers.dlpw_messages import (
    Messages,
    Tables,
    add_beliefs,
    descend_factors,
    descend_variables,
    fill_tables,
    normalise,
    unary_scores,
)
from hingeline.solvers.dlpw_pairs import (
    add_pairs,
    choose_pairs,
    descend_pairs,
    fill_pairs,
    store_pairs,
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
STEPS, TOTAL, MASS, FIRST = range(4)
#: What makes a block of messages: a variable with its factors, a factor, or the first in graphs of
#: binary pairs only.
VARIABLES, FACTORS, PAIRS = range(3)
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
def choose_near(
    graph: Topology, c: int, values: Array, first: int, end: int, states: Array
) -> None:
    """Scores of factor c to its best joint state; of several, that nearest to ``states``."""
    best, top, second = first, values[first], -np.inf
    for k in range(first + 1, end):
        if values[k] > top:
            best, top, second = k, values[k], top
        else:
            second = max(second, values[k])
    least = top - TIED * (1.0 + abs(top))
    if second >= least:
        most = -1
        for k in range(first, end):
            if values[k] < least:
                continue
            same, rest = 0, k - first
            for p in range(graph.scope_start[c + 1] - 1, graph.scope_start[c] - 1, -1):
                v = graph.scope[p]
                if rest % graph.n_states[v] == states[v]:
                    same += 1
                rest //= graph.n_states[v]
            if same > most:
                best, most = k, same
    for k in range(first, end):
        values[k] = 0.0
    values[best] = 1.0


@helper
def tables_for(blocks: Blocks, order: Array) -> Tables:
    """Room for the factors of any example of a pass."""
    longest = places = 0
    for i in order:
        longest = max(longest, blocks.mass_at[i + 1] - blocks.mass_at[i])
        places = max(places, blocks.message_at[i + 1] - blocks.message_at[i])
    return Tables(
        np.empty(longest + blocks.most_blocks + 8),
        np.empty(blocks.most_blocks + 1, dtype=np.int64),
        np.empty(places + 1, dtype=np.int64),
    )


@kernel
def descend(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    weight: float,
    rounds: int,
    by: int,
    temperature: float,
    state: Array,
    planes: Array,
    moments: Array,
    messages: Messages,
) -> None:
    """One pass: of each example the messages, then a (sub)gradient step; ``w = planes/W``.

    ``by`` says what makes a block of messages. With weight 0 only messages move.
    """
    columns = np.empty(problem.n_columns + 8)
    steps = np.empty(problem.n_columns + 8)
    later = np.empty(problem.n_columns + 8)
    beliefs = np.empty(blocks.most_unary + 8)
    states = np.empty(blocks.most_unary + 8, dtype=np.int64)
    tables = tables_for(blocks, order)
    own = np.empty(tables.stride.shape[0])
    margins = np.empty(tables.stride.shape[0] + blocks.widest + 8)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        n_factors = graph.scope_start.shape[0] - 1
        total = state[TOTAL]
        unary_scores(problem, graph, i, planes, total, columns, beliefs)
        if by == PAIRS:
            place = messages.at[i]
            stored = messages.values
            fill_pairs(problem, graph, i, planes, total, stored, place, own, beliefs, tables.values)
            for _ in range(rounds):
                descend_pairs(graph, temperature, beliefs, own, tables.values, margins)
            if rounds > 0:
                store_pairs(n_factors, own, stored, place)
        else:
            add_beliefs(problem, graph, i, messages, beliefs)
            fill_tables(problem, graph, i, planes, total, messages, tables)
        for _ in range(rounds if by != PAIRS else 0):
            if by == FACTORS:
                descend_factors(problem, graph, i, beliefs, messages, tables, margins)
            else:
                descend_variables(
                    problem, graph, i, temperature, beliefs, messages, tables, margins
                )
        if weight == 0.0:
            continue
        state[STEPS] += 1.0
        step = weight * cap[i]
        # All of the gradient before any of the step: factors may share a template.
        for v in range(graph.n_states.shape[0]):
            states[v] = choose(beliefs, graph.unary_start[v], graph.n_states[v], temperature)
        values = tables.values
        if by == PAIRS:
            choose_pairs(problem, graph, i, temperature, TIED, states, values)
            add_pairs(problem, graph, i, -step, -step * state[STEPS], values, planes, moments)
        for c in range(n_factors if by != PAIRS else 0):
            first, end = tables.start[c], tables.start[c + 1]
            if temperature > 0.0:
                normalise(values, first, end - first, temperature)
            else:
                choose_near(graph, c, values, first, end, states)
            values[first + true_joint(problem, graph, i, c)] -= 1.0
        for c in range(n_factors if by != PAIRS else 0):
            size = tables.start[c + 1] - tables.start[c]
            change = values[tables.start[c] :]
            factor_add(problem, i, c, size, -step, change, planes)
            factor_add(problem, i, c, size, -step * state[STEPS], change, moments)
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
    tables = tables_for(blocks, order)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        unary_scores(problem, graph, i, w, 1.0, columns, beliefs)
        fill_tables(problem, graph, i, w, 1.0, messages, tables)
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
            factor_scores(problem, graph, i, c, w, table)
            hinge -= table[true_joint(problem, graph, i, c)]
            top = -np.inf
            for k in range(tables.start[c], tables.start[c + 1]):
                top = max(top, tables.values[k])
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
    tables = tables_for(blocks, order)
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
        fill_tables(problem, graph, i, w, 1.0, messages, tables)
        for c in range(graph.scope_start.shape[0] - 1):
            size = tables.start[c + 1] - tables.start[c]
            table = tables.values[tables.start[c] : tables.start[c + 1]]
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
