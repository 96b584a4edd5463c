"""The softly constrained dual, block by block: scores, steps, and what a block is worth.

In units of P, with ``c_i = C·s_i``, messages ``δ_cv = κ(μ_c^v − μ_v)``, ``κ = 1/ρ``, and scores

    θ̂_v(s) = θ_v(s) + Σ_c δ_cv(s),     θ̂_c(y) = θ_c(y) − Σ_v δ_cv(y_v)

the dual f_ρ changes by ``c_i·(θ̂·d − ½·q(d))`` when block marginals change by d, where

    q_v(d) = (c_i‖x_v‖² + κN_v)‖d‖²,     q_c(d) = c_i‖x_c‖²‖d‖² + κ Σ_v ‖A_cv d‖²

(N_v factors contain v, A_cv sums out all variables but v). Frank-Wolfe goes towards the best
state, ``d = e_s − μ``, by ``γ = θ̂·d/q(d)`` cut to [0, 1]: the line search that Algorithm 1 means,
whose print has a wrong sign and wrong powers of M and ρ. An exact step solves the block: for a
variable the solution is the projection of ``μ + θ̂/(c_i‖x‖² + κN)`` to the simplex; in a factor the
worst joint state in use gives to the best one, ``d = e_s − e_t``, as much as the line search says
or there is (pairwise Frank-Wolfe), until little is left to gain. Such a step changes two entries of
a table, however large it is: ``q_c(d) = 2(c_i‖x_c‖² + κ·k)`` where s and t differ in k variables.

Messages are never stored. ``sums`` holds ``Σ_c μ_c^v`` for every variable and state. Where the
constraints are hard, messages are ``δ̄ + κ(μ_c^v − μ_v)`` around a centre δ̄ that is stored; nothing
else changes in the formulas above.

A bound for the hard-constrained problem needs marginals that agree. Each factor's marginals are
replaced by a coupling of its variables' marginals that keeps as much of them as it can
(:func:`couple`): for each variable in turn every state's share is cut down to the variable's
marginal where it exceeds it; what is missing then, the same total for every variable, is filled
with the product of the variables' missing shares. (The rounding of J. Altschuler, J. Weed,
P. Rigollet, *Near-linear time approximation algorithms for optimal transport via Sinkhorn
iteration*, 2017, Algorithm 2.)

Functions over all factors of an example come in two kinds, by the class of ``blocks.factors``: here
for factors of any kind, in :mod:`hingeline.solvers.relaxed.passes` for pairs of binary variables.
With ``cap`` 0 a visit leaves the weights as they are.
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline._simd import row_max
from hingeline.inference.factor_graph import (
    Topology,
    add_message,
    marginal,
    next_place,
    table_size,
    topology,
)
from hingeline.solvers.newton import find_level
from hingeline.structures import graph_blocks
from hingeline.structures.graph_blocks import AnyFactors, Blocks

EXCHANGES = 8  # Exchanges of a factor in a visit.
#: A factor is left when its best exchange promises this share of what the first one did.
SLOPE_LEFT = 0.1
SHARE_ROUNDING = 1.2e-7  # Shares of joint states are float32: less may be all rounding.


class Dual(NamedTuple):
    """Marginals of all blocks; see :class:`hingeline.structures.graph_blocks.Blocks`."""

    blocks: Blocks
    exact: bool  # blocks are solved; False: plain steps
    least: float  # blocks whose last gap is below it are not visited
    w: Array  # the weights they are scored with, which visits change
    cap: Array  # c_i; visits of examples without leave w as it is
    kappa: float  # 1/ρ, what disagreement is multiplied with to become a message
    mu: Array  # float64, over (variable, state)
    sums: Array  # float64, over (variable, state): the factors' marginals, summed
    mass: Array  # float32, over the joint states of factors that are not true
    gaps: Array  # float32, over blocks: what was to be gained when they were last scored
    centre: Array  # float32, over messages: δ̄; empty where it is zero
    centre_sums: Array  # float64, over (variable, state): δ̄ of the factors, summed, or empty


class Scratch(NamedTuple):
    """Vectors for one thread: over states, over columns, over places of a scope."""

    theta: Array
    now: Array
    change: Array
    columns: Array
    steps: Array
    margins: Array


@helper
def make_scratch(problem: Any, dual: Dual) -> Scratch:
    """Room for the widest block."""
    k, n = dual.blocks.widest + 8, problem.n_columns + 8
    margins = np.zeros(max(2 * k, dual.blocks.most_unary + 8))
    return Scratch(np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(n), np.zeros(n), margins)


@helper
def load_masses(
    dual: Dual, problem: Any, i: int, c: int, size: int, truth: int, out: Array
) -> None:
    """Marginals of all joint states of factor c, the true one's among them."""
    mass, at, total = dual.mass, graph_blocks.factor_mass(dual.blocks, problem, i, c), 0.0
    for s in range(truth):
        out[s] = mass[at + s]
        total += out[s]
    for s in range(truth + 1, size):
        out[s] = mass[at + s - 1]
        total += out[s]
    out[truth] = max(1.0 - total, 0.0)


@helper
def store_masses(
    dual: Dual, problem: Any, i: int, c: int, size: int, truth: int, values: Array
) -> None:
    """Round marginals to storage; ``values`` become what :func:`load_masses` will give."""
    mass, at, total = dual.mass, graph_blocks.factor_mass(dual.blocks, problem, i, c), 0.0
    largest = 0 if truth != 0 or size == 1 else 1
    for s in range(size):
        if s != truth:
            values[s] = np.float32(values[s])
            total += values[s]
            if values[s] > values[largest] or largest == truth:
                largest = s
    if total > 1.0:  # by rounding: the largest one gives way
        less = np.float32(values[largest] - (total - 1.0) - 1.2e-7)
        total += less - values[largest]
        values[largest] = less
    for s in range(truth):
        mass[at + s] = values[s]
    for s in range(truth + 1, size):
        mass[at + s - 1] = values[s]
    values[truth] = max(1.0 - total, 0.0)


@helper
def project(values: Array, n: int, out: Array) -> None:
    """The point of the simplex nearest to ``values``."""
    least = row_max(values, 0, n) - 1.0  # nothing below that can remain
    level = find_level(values, 0, n, 1.0, 0.0, least)
    for s in range(n):
        out[s] = max(values[s] - level, 0.0)


@helper
def block_gap(theta: Array, mu: Array, at: int, n: int) -> tuple[float, int]:
    """``max θ̂ − θ̂·μ`` and the best state."""
    best, mean = 0, 0.0
    for s in range(n):
        mean += theta[s] * mu[at + s]
        if theta[s] > theta[best]:
            best = s
    return max(theta[best] - mean, 0.0), best


@helper
def step_variable(
    dual: Dual, curvature: float, at: int, n: int, scratch: Scratch
) -> tuple[float, float]:
    """Move the marginals of a variable; the gap before and the gain, both over ``c_i``."""
    theta, mu, change = scratch.margins, dual.mu, scratch.change
    gap, best = block_gap(theta, mu, at, n)
    for s in range(n):
        change[s] = 0.0
    if gap <= 0.0:
        return 0.0, 0.0
    if dual.exact and curvature > 0.0:
        for s in range(n):
            theta[n + s] = mu[at + s] + theta[s] / curvature
        project(theta[n : 2 * n], n, change)
        for s in range(n):
            change[s] -= mu[at + s]
    else:
        change[best] = 1.0
        square = 0.0
        for s in range(n):
            change[s] -= mu[at + s]
            square += curvature * change[s] ** 2
        gamma = gap / square if square > gap else 1.0
        for s in range(n):
            change[s] *= gamma
    gain = 0.0
    for s in range(n):
        new = mu[at + s] + change[s]
        change[s] = new - mu[at + s]
        mu[at + s] = new
        gain += change[s] * (theta[s] - 0.5 * curvature * change[s])
    return gap, gain


@helper
def reparametrise(
    problem: Any, dual: Dual, graph: Topology, i: int, v: int, at: int, theta: Array
) -> None:
    """Add loss and messages to the scores of variable v."""
    degree = graph.incident_start[v + 1] - graph.incident_start[v]
    for s in range(graph.n_states[v]):
        theta[s] += graph_blocks.variable_loss(problem, i, v, s)
        theta[s] += dual.kappa * (dual.sums[at + s] - degree * dual.mu[at + s])
        if dual.centre_sums.shape[0] > 0:
            theta[s] += dual.centre_sums[at + s]


@helper
def visit_variables(
    problem: Any, dual: Dual, i: int, first: int, end: int, scratch: Scratch
) -> float:
    """Visit those of variables with one row of features that have gaps not below ``least``."""
    graph, cap, w = topology(problem.graphs, problem.graph[i]), dual.cap[i], dual.w
    block = dual.blocks.block_at[i]
    column, n = graph_blocks.first_column(problem, i, first), graph.n_states[first]
    alone = end - first == 1 and n < problem.n_columns  # what is not its own is left alone
    some = False
    for u in range(first, end):
        some = some or dual.gaps[block + u] >= dual.least
    if not some:
        return 0.0
    if alone:
        graph_blocks.variable_scores(problem, i, first, n, w, scratch.columns[column:])
    else:
        graph_blocks.row_scores(problem, i, first, w, scratch.columns)
        scratch.steps[:] = 0.0
    square = cap * problem.row_sqnorm[problem.row[problem.offsets[i] + first]]  # c_i‖x‖²
    gain, moved = 0.0, False
    for u in range(first, end):
        if dual.gaps[block + u] < dual.least:
            continue
        n = graph.n_states[u]
        at = dual.blocks.unary_at[i] + graph.unary_start[u]
        column = graph_blocks.first_column(problem, i, u)
        for s in range(n):
            scratch.margins[s] = scratch.columns[column + s]
        reparametrise(problem, dual, graph, i, u, at, scratch.margins)
        curvature = square + dual.kappa * (graph.incident_start[u + 1] - graph.incident_start[u])
        gap, gained = step_variable(dual, curvature, at, n, scratch)
        dual.gaps[block + u] = cap * gap
        gain += gained
        for s in range(n):
            scratch.steps[column + s] = -cap * scratch.change[s]
            moved = moved or scratch.change[s] != 0.0
    if moved and cap > 0.0:
        if alone:
            graph_blocks.variable_add(problem, i, first, n, scratch.steps[column:], w)
        else:
            graph_blocks.row_add(problem, i, first, scratch.steps, w)
    return cap * gain


@helper
def score_factor(
    problem: Any, dual: Dual, graph: Topology, i: int, c: int, scratch: Scratch
) -> tuple[int, int, float, float, float]:
    """Marginals of factor c to ``scratch.now``, its scores less messages to ``scratch.theta``.

    Returns the number of its joint states, the true one, what w gives to that,
    ``Σ_v ‖μ_c^v − μ_v‖²`` and ``Σ_v δ̄·(μ_v − μ_c^v)``.
    """
    theta, now, margins = scratch.theta, scratch.now, scratch.margins
    size = graph_blocks.factor_scores(problem, i, c, dual.w, theta)
    truth = graph_blocks.true_joint(problem, graph, i, c)
    right = theta[truth]
    load_masses(dual, problem, i, c, size, truth, now)
    stride = size
    penalty = centred = 0.0
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v, n, stride = next_place(graph, p, stride)
        marginal(now, size, n, stride, margins, 0)
        at = dual.blocks.unary_at[i] + graph.unary_start[v]
        for s in range(n):
            margins[s] -= dual.mu[at + s]
            penalty += margins[s] ** 2
        if dual.centre.shape[0] > 0:
            first = graph_blocks.place_messages(dual.blocks, problem, i, p)
            for s in range(n):
                centred -= dual.centre[first + s] * margins[s]
                margins[s] = dual.kappa * margins[s] + dual.centre[first + s]
            add_message(theta, size, n, stride, margins, 0, -1.0)
        else:
            add_message(theta, size, n, stride, margins, 0, -dual.kappa)
    return size, truth, right, penalty, centred


@helper
def add_marginals(
    dual: Dual, graph: Topology, i: int, c: int, size: int, values: Array, margins: Array
) -> None:
    """Add the marginals of joint states of factor c to the sums of its variables."""
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v, n, stride = next_place(graph, p, stride)
        marginal(values, size, n, stride, margins, 0)
        at = dual.blocks.unary_at[i] + graph.unary_start[v]
        for s in range(n):
            dual.sums[at + s] += margins[s]


@helper
def step_factor(
    problem: Any, dual: Dual, graph: Topology, i: int, c: int, truth: int, scratch: Scratch
) -> float:
    """A plain Frank-Wolfe step of a factor that was scored; the gain over ``c_i``."""
    theta, now, change, margins = scratch.theta, scratch.now, scratch.change, scratch.margins
    size = table_size(graph, c)
    square = dual.cap[i] * graph_blocks.factor_square(problem, i, c)
    gap, best = block_gap(theta, now, 0, size)
    quadratic = 0.0
    for s in range(size):
        theta[s] = now[s]  # as it was
        change[s] = (1.0 if s == best else 0.0) - now[s]
        quadratic += square * change[s] ** 2
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        _, n, stride = next_place(graph, p, stride)
        marginal(change, size, n, stride, margins, 0)
        for s in range(n):
            quadratic += dual.kappa * margins[s] ** 2
    gamma = gap / quadratic if quadratic > gap else 1.0
    for s in range(size):
        now[s] += gamma * change[s]
    store_masses(dual, problem, i, c, size, truth, now)
    for s in range(size):
        change[s] = now[s] - theta[s]
    add_marginals(dual, graph, i, c, size, change, margins)
    graph_blocks.factor_add(problem, i, c, -dual.cap[i], change, dual.w)
    return gamma * (gap - 0.5 * gamma * quadratic)


@helper
def exchange(
    problem: Any, dual: Dual, graph: Topology, i: int, c: int, truth: int, scratch: Scratch
) -> float:
    """Pairwise Frank-Wolfe steps of a factor that was scored; the gain over ``c_i``."""
    theta, now = scratch.theta, scratch.now
    size, mass = table_size(graph, c), graph_blocks.factor_mass(dual.blocks, problem, i, c)
    square = dual.cap[i] * graph_blocks.factor_square(problem, i, c)
    gain = enough = 0.0
    for _ in range(EXCHANGES):
        best, worst, low = 0, truth, np.inf
        for s in range(size):
            if theta[s] > theta[best]:
                best = s
            if now[s] > SHARE_ROUNDING and theta[s] < low:
                worst, low = s, theta[s]
        slope = theta[best] - theta[worst]
        if slope <= enough:
            break
        enough = max(enough, SLOPE_LEFT * slope)
        apart, stride = 0, size
        for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
            _, n, stride = next_place(graph, p, stride)
            if best // stride % n != worst // stride % n:
                apart += 1
        quadratic = 2.0 * (square + dual.kappa * apart)
        # What is stored is float32, and never more than there is: the truth has the rest.
        left = max(now[worst] - slope / quadratic, 0.0)
        if worst != truth:
            left = np.float64(np.float32(left))
            dual.mass[mass + worst - (1 if worst > truth else 0)] = left
        taken = given = now[worst] - left
        if best != truth:
            more = np.float32((1.0 - 0.5 * SHARE_ROUNDING) * (now[best] + taken))
            dual.mass[mass + best - (1 if best > truth else 0)] = more
            given = np.float64(more) - now[best]
        gain += taken * (slope - 0.5 * quadratic * taken)
        move_state(problem, dual, graph, i, c, worst, -taken, square, scratch)
        move_state(problem, dual, graph, i, c, best, given, square, scratch)
        if given != taken:
            move_state(problem, dual, graph, i, c, truth, taken - given, square, scratch)
    return gain


@helper
def move_state(
    problem: Any,
    dual: Dual,
    graph: Topology,
    i: int,
    c: int,
    state: int,
    change: float,
    square: float,
    scratch: Scratch,
) -> None:
    """Change the marginal of one joint state of factor c: sums, scores and weights follow."""
    theta, size = scratch.theta, table_size(graph, c)
    scratch.now[state] += change
    theta[state] -= square * change
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v, n, stride = next_place(graph, p, stride)
        s = state // stride % n
        dual.sums[dual.blocks.unary_at[i] + graph.unary_start[v] + s] += change
        for outer in range(s * stride, size, n * stride):
            for k in range(outer, outer + stride):
                theta[k] -= dual.kappa * change
    if dual.cap[i] > 0.0:
        graph_blocks.state_add(problem, i, c, state, -dual.cap[i] * change, dual.w)


@helper
def visit_factors(
    kind: AnyFactors, problem: Any, dual: Dual, i: int, first: int, end: int, scratch: Scratch
) -> float:
    """Visit those of some factors of example i whose gap is at least ``least``; the gain."""
    graph, cap = topology(problem.graphs, problem.graph[i]), dual.cap[i]
    block = dual.blocks.block_at[i] + graph.n_states.shape[0]
    gain = 0.0
    for c in range(first, end):
        if dual.gaps[block + c] < dual.least:
            continue
        size, truth, _, _, _ = score_factor(problem, dual, graph, i, c, scratch)
        gap, _ = block_gap(scratch.theta, scratch.now, 0, size)
        dual.gaps[block + c] = cap * gap
        if gap > 0.0 and dual.exact:
            gain += exchange(problem, dual, graph, i, c, truth, scratch)
        elif gap > 0.0:
            gain += step_factor(problem, dual, graph, i, c, truth, scratch)
    return cap * gain


@helper
def evaluate_factors(
    kind: AnyFactors, problem: Any, dual: Dual, i: int, scratch: Scratch
) -> tuple[float, float, float]:
    """Sums over the factors of example i; their gaps, and their marginals added to ``sums``.

    Returns ``Σ max θ̂`` relative to the truth, ``Σ ‖μ_c^v − μ_v‖²`` and ``Σ δ̄·(μ_v − μ_c^v)``.
    """
    graph, cap = topology(problem.graphs, problem.graph[i]), dual.cap[i]
    block = dual.blocks.block_at[i] + graph.n_states.shape[0]
    hinge = penalty = centred = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        size, _, right, apart, along = score_factor(problem, dual, graph, i, c, scratch)
        add_marginals(dual, graph, i, c, size, scratch.now, scratch.margins)
        gap, best = block_gap(scratch.theta, scratch.now, 0, size)
        hinge += scratch.theta[best] - right
        penalty += apart
        centred += along
        dual.gaps[block + c] = cap * gap
    return hinge, penalty, centred


@helper
def add_factors(
    kind: AnyFactors, problem: Any, dual: Dual, i: int, coupled: bool, scratch: Scratch
) -> None:
    """``w += Ψμ`` for the factors of example i; ``coupled``: ``w += Ψ(μ' − μ)``, μ' a coupling."""
    graph, cap = topology(problem.graphs, problem.graph[i]), dual.cap[i]
    now, start = scratch.now, scratch.theta
    for c in range(graph.scope_start.shape[0] - 1):
        size = table_size(graph, c)
        truth = graph_blocks.true_joint(problem, graph, i, c)
        load_masses(dual, problem, i, c, size, truth, now)
        for k in range(size):
            start[k] = now[k] if coupled else 0.0
        if coupled:
            couple(graph, c, size, dual.mu, dual.blocks.unary_at[i], now, scratch.margins)
        else:
            start[truth] = 1.0
        some = False
        for k in range(size):
            now[k] -= start[k]
            some = some or now[k] != 0.0
        if some:
            graph_blocks.factor_add(problem, i, c, -cap, now, dual.w)


@helper
def couple(
    graph: Topology, c: int, size: int, mu: Array, unary: int, now: Array, missing: Array
) -> None:
    """Replace the marginals of factor c by a coupling of those of its variables.

    ``missing`` has room for all states of the factor's variables.
    """
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v, n, stride = next_place(graph, p, stride)
        at = unary + graph.unary_start[v]
        marginal(now, size, n, stride, missing, 0)
        for s in range(n):
            if missing[s] > mu[at + s]:
                factor = mu[at + s] / missing[s]
                for outer in range(s * stride, size, n * stride):
                    for k in range(outer, outer + stride):
                        now[k] *= factor
    place, total, stride, first = 0, 0.0, size, graph.scope_start[c]
    for p in range(first, graph.scope_start[c + 1]):
        v, n, stride = next_place(graph, p, stride)
        at = unary + graph.unary_start[v]
        marginal(now, size, n, stride, missing, place)
        total = 0.0
        for s in range(n):
            missing[place + s] = max(mu[at + s] - missing[place + s], 0.0)
            total += missing[place + s]
        if total <= 0.0:
            return
        for s in range(n):
            missing[place + s] /= total
        place += n
    for k in range(size):
        share, rest, at = total, k, place
        for p in range(graph.scope_start[c + 1] - 1, first - 1, -1):
            n = graph.n_states[graph.scope[p]]
            at -= n
            share *= missing[at + rest % n]
            rest //= n
        now[k] += share
