"""LP relaxation of a factor graph: block-coordinate descent on the dual, alternating directions.

A message ``δ_ci(s)`` moves score from factor c to its variable i. For any messages

    Σ_i max_s b_i(s) + Σ_c max_y [table_c(y) − Σ_i δ_ci(y_i)],     b_i = unary_i + Σ_c δ_ci

is at least the score of every assignment (up to rounding), and its minimum over δ is the optimum of
the relaxation over the local polytope. Messages are one flat vector: those of place p of
``graph.scope`` begin at ``message_start(graph)[p]``. Any number of states, factors of any order,
loops. Scores must be finite.

Block descent changes one factor's messages at a time. Its bound never rises from pass to pass;
where it equals the score of the labels found, these are a maximiser. The update is MPLP's with the
leftovers handed on (Globerson & Jaakkola 2008; the handshake of Tourani et al. 2018, here for any
order). A factor takes back all its messages and the beliefs of its variables, gives the j-th of its
k variables the share 1/(k − j) of their max-marginals, and then once more, in reverse, all that can
still be given. Each factor then has the maximum 0, so that the bound after a pass is the sum of the
variables' best beliefs. Like all such methods it may stop above the optimum of the relaxation.

Alternating directions, as in AD3 (Martins et al. 2015), converge to it. Every factor holds
marginals of its own, ``q_ci``, and all scores of its variables through its messages; an iteration
solves for each factor

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
from hingeline._jit import finite_helper, helper
from hingeline._simd import copy
from hingeline.inference import factor_graph
from hingeline.inference.factor_graph import Scored, Topology

_ROUND_EVERY = 8  # Passes between two roundings improved by single changes.
ROUNDING_SWEEPS = 10  # Sweeps of single changes for one rounding.
#: A bound this near to the score of labels, as a share of the size of both, ends the search.
MET = 1e-12
_CHECK = 10  # Iterations between two bounds, and between two changes of the penalty.
#: Moves of weight within one factor in the first iteration, and iterations until one more.
_MOVES = 5
_MORE_AFTER = 10


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
def node_beliefs(scored: Scored, messages: Array, starts: Array, beliefs: Array) -> None:
    """``b_i = unary_i + Σ_c δ_ci``."""
    copy(scored.unary, beliefs)
    for p in range(scored.graph.scope.shape[0]):
        first = scored.graph.unary_start[scored.graph.scope[p]]
        start = starts[p]
        for s in range(starts[p + 1] - start):
            beliefs[first + s] += messages[start + s]


@helper
def _sum_constants(scored: Scored) -> float:
    """What factors without variables score."""
    graph, total = scored.graph, 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        if graph.scope_start[c + 1] == graph.scope_start[c]:
            total += scored.tables[scored.table_start[c]]
    return total


@helper
def _max_marginal(
    scored: Scored, c: int, slot: int, messages: Array, starts: Array, out: Array
) -> None:
    """``out[s] = max_y [table_c(y) − Σ_j δ_cj(y_j)]`` over the joint states with ``y_slot = s``."""
    graph = scored.graph
    at = scored.table_start[c]
    start, end = graph.scope_start[c], graph.scope_start[c + 1]
    own = starts[start + slot]
    n_own = starts[start + slot + 1] - own
    for s in range(n_own):
        out[s] = -np.inf
    for k in range(factor_graph.table_size(graph, c)):
        rest = k
        value = scored.tables[at + k]
        s = 0
        for p in range(end - 1, start - 1, -1):
            states = starts[p + 1] - starts[p]
            digit = rest % states
            rest //= states
            value -= messages[starts[p] + digit]
            if p == start + slot:
                s = digit
        out[s] = max(out[s], value)


@finite_helper
def _largest_difference(a: Array, b: Array) -> float:
    """``max_k a[k] − b[k]``."""
    best = a[0] - b[0]
    for k in range(1, b.shape[0]):
        best = max(best, a[k] - b[k])
    return best


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
        a0 = beliefs[i] - messages[p]
        a1 = beliefs[i + 1] - messages[p + 1]
        c0 = beliefs[j] - messages[q]
        c1 = beliefs[j + 1] - messages[q + 1]
        g00 = tables[at] + a0 + c0
        g01 = tables[at + 1] + a0 + c1
        g10 = tables[at + 2] + a1 + c0
        g11 = tables[at + 3] + a1 + c1
        if back:
            v0, v1 = 0.5 * max(g00, g10), 0.5 * max(g01, g11)
        else:
            u0, u1 = 0.5 * max(g00, g01), 0.5 * max(g10, g11)
            v0, v1 = max(g00 - u0, g10 - u1), max(g01 - u0, g11 - u1)
        u0, u1 = max(g00 - v0, g01 - v1), max(g10 - v0, g11 - v1)
        if back:
            v0, v1 = max(g00 - u0, g10 - u1), max(g01 - u0, g11 - u1)
        beliefs[i] = u0
        beliefs[i + 1] = u1
        beliefs[j] = v0
        beliefs[j + 1] = v1
        messages[p] = u0 - a0
        messages[p + 1] = u1 - a1
        messages[q] = v0 - c0
        messages[q + 1] = v1 - c1
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
                best = _largest_difference(
                    tables[at + s * n_second : at + (s + 1) * n_second], messages[q : q + n_second]
                )
                messages[p + s] += share * (best - messages[p + s])
        else:
            for t in range(n_second):
                out[t] = tables[at + t] - messages[p]
            for s in range(1, n_first):
                row = tables[at + s * n_second : at + (s + 1) * n_second]
                sent = messages[p + s]
                for t in range(n_second):
                    value = row[t] - sent
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
    constant = _sum_constants(scored)
    trial = np.empty(n, dtype=np.int32)
    best = -np.inf
    before = bound = np.inf
    for k in range(max_passes):
        node_beliefs(scored, messages, starts, beliefs)  # afresh: no errors add up
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
        c1 += both
        c2 = 1.0 - c2
        both = -both
    if c1 > c2 + both:
        first = _clip(c1)
        second = _clip(c2 + both)
    elif c2 > c1 + both:
        first = _clip(c1 + both)
        second = _clip(c2)
    else:
        first = _clip(0.5 * (c1 + c2 + both))
        second = first
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
        high = -np.inf
        low = np.inf
        for row in range(size // states):
            base = 0.0
            rest = row
            for p in range(end - 2, begin - 1, -1):
                here = starts[p + 1] - starts[p]
                base += force[starts[p] + rest % here]
                rest //= here
            for t in range(states):
                k = row * states + t
                value = scored.tables[at + k] + base + force[last + t]
                if value > high:
                    high = value
                    best = k
                if weight[w + k] > 0.0 and value < low:
                    low = value
                    worst = k
        if high - low <= tol or best == worst:
            break
        differ = 0
        a = best
        b = worst
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
def _first_weights(graph: Topology, state: _State, y: Array) -> None:
    """Everything on the assignment y."""
    for p in range(graph.scope.shape[0]):
        state.near[state.starts[p] + y[graph.scope[p]]] = 1.0
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
            apart = q[e] - mean[first + s]
            moved = near[e] - mean[first + s]
            messages[e] += rho * apart
            near[e] = mean[first + s]
            primal += apart * apart
            dual += moved * moved
    return primal, dual


@helper
def _push(graph: Topology, beliefs: Array, starts: Array, messages: Array) -> None:
    """Give the factors what their variables have, in equal parts."""
    for p in range(graph.scope.shape[0]):
        i = graph.scope[p]
        share = 1.0 / (graph.incident_start[i + 1] - graph.incident_start[i])
        for s in range(graph.n_states[i]):
            messages[starts[p] + s] -= share * beliefs[graph.unary_start[i] + s]


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
    tables, table_start = scored.tables, scored.table_start
    n = graph.n_states.shape[0]
    m = graph.scope_start.shape[0] - 1
    starts = message_start(graph)
    count = starts[graph.scope.shape[0]]
    weight_start = np.empty(m + 1, dtype=np.int64)
    weight_start[0] = 0
    for c in range(m):
        weight_start[c + 1] = weight_start[c] + factor_graph.table_size(graph, c)
    constant = _sum_constants(scored)
    near = np.zeros(count)
    q = np.zeros(count)
    state = _State(starts, near, q, np.empty(count), weight_start, np.zeros(weight_start[m]))
    current = messages.copy()
    polished = messages.copy()
    beliefs = np.empty(graph.unary_start[n])
    mean = scored.unary.copy()  # variables without factors keep this
    out = np.empty(factor_graph.most_states(graph))
    trial = np.empty(n, dtype=np.int32)
    rho = 0.5 * _mean_range(tables, table_start, weight_start)
    score = -np.inf
    best = primal = dual = np.inf
    for k in range(max_iterations + 1):
        if k % _CHECK == 0:
            copy(current, polished)
            node_beliefs(scored, polished, starts, beliefs)
            sweep(scored, polished, starts, beliefs, k % (2 * _CHECK) != 0, out)
            bound = constant + factor_graph.top_sum(graph, beliefs, trial)
            for source in range(2 if k > 0 else 1):  # round the beliefs, then the means
                if source == 1:
                    factor_graph.top_sum(graph, mean, trial)
                score = keep_better(scored, trial, ROUNDING_SWEEPS, score, y)
            if bound < best:
                best = bound
                copy(polished, messages)
            if factor_graph.meets(scored, y, best, MET) or max(primal, dual) <= tol * tol * count:
                break
            if k == 0:
                _first_weights(graph, state, y)
                copy(polished, current)
                _push(graph, beliefs, starts, current)
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
                moves = _MOVES + k // _MORE_AFTER
                _project(scored, state, c, current, rho, 0.1 * tol * rho, moves)
        primal, dual = _average(graph, state, rho, mean, current)
    return max(best, score)
