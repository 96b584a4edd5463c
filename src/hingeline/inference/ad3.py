"""LP relaxation by alternating directions, as in AD3 (Martins et al. 2015).

Guarantee: the bound returned is at least the score of every assignment (up to rounding), and with
enough iterations it converges to the optimum of the local-polytope relaxation, where block descent
(:mod:`hingeline.inference.messages`) can get stuck. Any number of states, factors of any order,
loops. Scores must be finite.

Every factor holds marginals of its own, ``q_ci``, and all scores of its variables through its
messages; an iteration solves for each factor

    max_μ  table_c·μ + Σ_i (−δ_ci)·q_ci − (ρ/2) Σ_i ‖q_ci − p_i‖²,     q_ci the marginals of μ

and then sets p_i to the mean of the q_ci and adds ``ρ (q_ci − p_i)`` to δ_ci. Pairs of binary
variables have a closed form; other factors move weight from the worst joint state they use to the
best one, starting from the weights of the iteration before, until the two are level or a number of
moves is made that grows with the iterations. From time to time one pass of block descent turns a
copy of the messages into a bound and labels.
"""

from typing import NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline._simd import copy
from hingeline.inference import factor_graph
from hingeline.inference import messages as descent
from hingeline.inference.factor_graph import Scored, Topology
from hingeline.inference.messages import MET, ROUNDING_SWEEPS

_CHECK = 10  # Iterations between two bounds, and between two changes of the penalty.
#: Moves of weight within one factor in the first iteration, and iterations until one more.
_MOVES = 5
_MORE_AFTER = 10


class _State(NamedTuple):
    """What belongs to the places of scopes (begin: ``starts``) and to joint states of factors."""

    starts: Array
    near: Array  # by place and state: p_i
    q: Array  # likewise
    force: Array  # what each state of a factor's variables would gain
    weight_start: Array  # (factors + 1,)
    weight: Array  # over joint states: μ


@helper
def _clip(x: float) -> float:
    return min(max(x, 0.0), 1.0)


@helper
def _project_pair(
    tables: Array, at: int, messages: Array, m: int, k: int, x: float, z: float, rho: float
) -> tuple[float, float]:
    """Marginals of state 1 for a pair of binary variables near x and z; messages from m and k."""
    c1 = x + (tables[at + 2] - tables[at] - messages[m + 1] + messages[m]) / (2.0 * rho)
    c2 = z + (tables[at + 1] - tables[at] - messages[k + 1] + messages[k]) / (2.0 * rho)
    both = (tables[at] - tables[at + 1] - tables[at + 2] + tables[at + 3]) / (2.0 * rho)
    repel = both < 0.0
    if repel:  # the second variable turned round attracts
        c1, c2, both = c1 + both, 1.0 - c2, -both
    if c1 > c2 + both:
        first, second = _clip(c1), _clip(c2 + both)
    elif c2 > c1 + both:
        first, second = _clip(c1 + both), _clip(c2)
    else:
        first = second = _clip(0.5 * (c1 + c2 + both))
    return first, 1.0 - second if repel else second


@helper
def _push_joint(force: Array, starts: Array, begin: int, end: int, k: int, amount: float) -> None:
    """Add to the force on the states that make joint state k."""
    for p in range(end - 1, begin - 1, -1):
        here = starts[p + 1] - starts[p]
        force[starts[p] + k % here] += amount
        k //= here


@helper
def _project(
    scored: Scored, state: _State, c: int, messages: Array, rho: float, tol: float, moves: int
) -> None:
    """Solve the problem of a factor of any kind."""
    starts, near, weight, force = state.starts, state.near, state.weight, state.force
    at, w = scored.table_start[c], state.weight_start[c]
    size = state.weight_start[c + 1] - w
    begin, end = scored.graph.scope_start[c], scored.graph.scope_start[c + 1]
    for e in range(starts[begin], starts[end]):
        force[e] = -messages[e] + rho * near[e]
    last = starts[end - 1]
    states = starts[end] - last  # of the last variable, whose joint states are neighbours
    for k in range(size):
        if weight[w + k] > 0.0:
            _push_joint(force, starts, begin, end, k, -rho * weight[w + k])
    for _ in range(moves):
        best = worst = 0
        low, high = np.inf, -np.inf
        for row in range(size // states):
            base, rest = 0.0, row
            for p in range(end - 2, begin - 1, -1):
                here = starts[p + 1] - starts[p]
                base += force[starts[p] + rest % here]
                rest //= here
            for t in range(states):
                k = row * states + t
                value = scored.tables[at + k] + base + force[last + t]
                if value > high:
                    best, high = k, value
                if weight[w + k] > 0.0 and value < low:
                    worst, low = k, value
        if high - low <= tol or best == worst:
            break
        differ, a, b = 0, best, worst
        for p in range(end - 1, begin - 1, -1):
            here = starts[p + 1] - starts[p]
            differ += 1 if a % here != b % here else 0
            a //= here
            b //= here
        step = min(weight[w + worst], (high - low) / (2.0 * rho * differ))
        weight[w + best] += step
        weight[w + worst] = max(weight[w + worst] - step, 0.0)
        _push_joint(force, starts, begin, end, best, -rho * step)
        _push_joint(force, starts, begin, end, worst, rho * step)
    for e in range(starts[begin], starts[end]):
        state.q[e] = near[e] - (force[e] + messages[e]) / rho


@helper
def _begin(graph: Topology, state: _State, y: Array, beliefs: Array, messages: Array) -> None:
    """Everything on the assignment y; factors get what their variables have, in equal parts."""
    for p in range(graph.scope.shape[0]):
        i = graph.scope[p]
        state.near[state.starts[p] + y[i]] = 1.0
        share = 1.0 / (graph.incident_start[i + 1] - graph.incident_start[i])
        for s in range(graph.n_states[i]):
            messages[state.starts[p] + s] -= share * beliefs[graph.unary_start[i] + s]
    for c in range(state.weight_start.shape[0] - 1):
        state.weight[state.weight_start[c] + factor_graph.joint_index(graph, c, y)] = 1.0


@helper
def _mean_range(tables: Array, table_start: Array, weight_start: Array) -> float:
    """Mean range of the tables: the scale of the penalty."""
    total = 0.0
    count = 0
    for c in range(table_start.shape[0]):
        low = np.inf
        high = -np.inf
        for k in range(weight_start[c + 1] - weight_start[c]):
            low = min(low, tables[table_start[c] + k])
            high = max(high, tables[table_start[c] + k])
        if high > low:
            total += high - low
            count += 1
    return total / count if count > 0 else 1.0


@helper
def _average(
    graph: Topology, state: _State, rho: float, mean: Array, messages: Array
) -> tuple[float, float]:
    """Means of the marginals, messages moved towards them; primal and dual residuals, squared."""
    starts, q, near = state.starts, state.q, state.near
    for p in range(graph.scope.shape[0]):
        i = graph.scope[p]
        for s in range(graph.n_states[i]):
            mean[graph.unary_start[i] + s] = 0.0
    for p in range(graph.scope.shape[0]):
        i = graph.scope[p]
        first = graph.unary_start[i]
        share = 1.0 / (graph.incident_start[i + 1] - graph.incident_start[i])
        for s in range(graph.n_states[i]):
            mean[first + s] += share * q[starts[p] + s]
    primal = dual = 0.0
    for p in range(graph.scope.shape[0]):
        i = graph.scope[p]
        first = graph.unary_start[i]
        for s in range(graph.n_states[i]):
            e = starts[p] + s
            apart, moved = q[e] - mean[first + s], near[e] - mean[first + s]
            messages[e] += rho * apart
            near[e] = mean[first + s]
            primal += apart * apart
            dual += moved * moved
    return primal, dual


@helper
def alternating_directions(
    scored: Scored, messages: Array, y: Array, max_iterations: int, tol: float
) -> float:
    """Best bound of the iterations, its messages in ``messages``; the best labels in ``y``.

    Stops when the bound meets the score of the labels, or when the root mean square of both
    residuals (marginals against their means, means against those before) is below ``tol``, or
    after ``max_iterations``. Messages may start anywhere; those of block descent are a good place.
    """
    graph = scored.graph
    unary, tables, table_start = scored.unary, scored.tables, scored.table_start
    n = graph.n_states.shape[0]
    m = graph.scope_start.shape[0] - 1
    starts = descent.message_start(graph)
    count = starts[graph.scope.shape[0]]
    weight_start = np.empty(m + 1, dtype=np.int64)
    weight_start[0] = 0
    constant = 0.0
    for c in range(m):
        weight_start[c + 1] = weight_start[c] + factor_graph.table_size(graph, c)
        if graph.scope_start[c + 1] == graph.scope_start[c]:
            constant += tables[table_start[c]]
    near = np.zeros(count)
    q = np.zeros(count)
    state = _State(starts, near, q, np.empty(count), weight_start, np.zeros(weight_start[m]))
    current = messages.copy()
    polished = messages.copy()
    beliefs = np.empty(graph.unary_start[n])
    mean = unary.copy()  # variables without factors keep this
    out = np.empty(factor_graph.most_states(graph))
    trial = np.empty(n, dtype=np.int32)
    rho = 0.5 * _mean_range(tables, table_start, weight_start)
    score = -np.inf
    best = primal = dual = np.inf
    for k in range(max_iterations + 1):
        if k % _CHECK == 0:
            copy(current, polished)
            descent.node_beliefs(graph, unary, polished, starts, beliefs)
            descent.sweep(scored, polished, starts, beliefs, k % (2 * _CHECK) != 0, out)
            bound = constant + factor_graph.top_sum(graph, beliefs, trial)
            for source in range(2 if k > 0 else 1):  # round the beliefs, then the means
                if source == 1:
                    factor_graph.top_sum(graph, mean, trial)
                score = descent.keep_better(scored, trial, ROUNDING_SWEEPS, score, y)
            if bound < best:
                best = bound
                copy(polished, messages)
            if factor_graph.meets(scored, y, best, MET) or max(primal, dual) <= tol * tol * count:
                break
            if k == 0:
                copy(polished, current)
                _begin(graph, state, y, beliefs, current)
            elif primal > 10.0 * dual:
                rho *= 2.0
            elif dual > 10.0 * primal:
                rho *= 0.5
        for c in range(m):
            a = graph.scope_start[c]
            size = weight_start[c + 1] - weight_start[c]
            d = starts[a]
            if size == 4 and graph.scope_start[c + 1] - a == 2 and starts[a + 1] - d == 2:
                e = starts[a + 1]
                q[d + 1], q[e + 1] = _project_pair(
                    tables, table_start[c], current, d, e, near[d + 1], near[e + 1], rho
                )
                q[d] = 1.0 - q[d + 1]
                q[e] = 1.0 - q[e + 1]
            elif graph.scope_start[c + 1] > a:
                most = _MOVES + k // _MORE_AFTER
                _project(scored, state, c, current, rho, 0.1 * tol * rho, most)
        primal, dual = _average(graph, state, rho, mean, current)
    return max(best, score)
