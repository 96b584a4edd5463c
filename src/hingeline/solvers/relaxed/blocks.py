"""The softly constrained dual, block by block: scores, steps, and what a block is worth.

In units of P, with ``c_i = C·s_i``, messages ``δ_cv = κ(μ_c^v − μ_v)``, ``κ = 1/ρ``, and scores

    θ̂_v(s) = θ_v(s) + Σ_c δ_cv(s),     θ̂_c(y) = θ_c(y) − Σ_v δ_cv(y_v)

the dual f_ρ changes by ``c_i·(θ̂·d − ½·q(d))`` when block marginals change by d, where

    q_v(d) = (c_i‖x_v‖² + κN_v)‖d‖²,     q_c(d) = c_i‖x_c‖²‖d‖² + κ Σ_v ‖A_cv d‖²

(N_v factors contain v, A_cv sums out all variables but v). Frank-Wolfe goes towards the best
state, ``d = e_s − μ``, by ``γ = θ̂·d/q(d)`` cut to [0, 1]: the line search that Algorithm 1 means,
whose print has a wrong sign and wrong powers of M and ρ. A projected step solves the block: for a
variable the solution is the projection of ``μ + θ̂/(c_i‖x‖² + κN)`` to the simplex, for a factor
projections with the curvature's bound ``c_i‖x‖² + κ·max_v(joint states/states of v)`` are each
followed by the exact line search until little is left to gain.

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
for factors of any kind, in :mod:`hingeline.solvers.relaxed.pairs` for pairs of binary variables.
With ``cap`` 0 a visit leaves the weights as they are.
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline.inference.factor_graph import Topology, table_size
from hingeline.structures.graph_blocks import (
    AnyFactors,
    Blocks,
    add_message,
    factor_add,
    factor_mass,
    factor_scores,
    factor_square,
    first_column,
    group_end,
    load_masses,
    marginal,
    place_messages,
    row_add,
    row_scores,
    store_masses,
    true_joint,
    variable_add,
    variable_loss,
    variable_scores,
    variable_square,
)

FRANK_WOLFE, PROJECTED = range(2)
#: Rounds of projection and line search that a factor gets in a visit.
PROJECTION_ROUNDS = 8
#: A factor is left when its gap has shrunk to this share.
GAP_LEFT = 0.1


class DualPoint(NamedTuple):
    """Marginals of all blocks; see :class:`hingeline.structures.graph_blocks.Blocks`."""

    mu: Array  # float64, over (variable, state)
    sums: Array  # float64, over (variable, state): the factors' marginals, summed
    mass: Array  # float32, over the joint states of factors that are not true
    gaps: Array  # float32, over blocks: what was to be gained when they were last scored
    centre: Array  # float32, over messages: δ̄; empty where it is zero
    centre_sums: Array  # float64, over (variable, state): δ̄ of the factors, summed, or empty


class Scratch(NamedTuple):
    """Vectors for one thread: over states, over columns, over places of a scope."""

    theta: Array
    start: Array
    now: Array
    change: Array
    slope: Array
    columns: Array
    steps: Array
    margins: Array


@helper
def make_scratch(blocks: Blocks, n_columns: int) -> Scratch:
    """Room for the widest block."""
    k = blocks.widest + 8
    a, b, c, d, e = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    margins = np.zeros(max(2 * k, blocks.most_unary + 8))
    return Scratch(a, b, c, d, e, np.zeros(n_columns + 8), np.zeros(n_columns + 8), margins)


@helper
def project(values: Array, n: int, out: Array) -> None:
    """The point of the simplex nearest to ``values``."""
    top = values[0]
    for s in range(1, n):
        top = max(top, values[s])
    level = top - 1.0  # nothing below it can remain; it only rises, whatever rounding does
    while True:
        total = 0.0
        count = 0
        for s in range(n):
            if values[s] > level:
                total += values[s]
                count += 1
        if count == 0:
            break
        higher = (total - 1.0) / count
        if higher <= level:
            break
        level = higher
    for s in range(n):
        out[s] = max(values[s] - level, 0.0)


@helper
def block_gap(theta: Array, mu: Array, at: int, n: int) -> tuple[float, int]:
    """``max θ̂ − θ̂·μ`` and the best state."""
    best = 0
    mean = 0.0
    for s in range(n):
        mean += theta[s] * mu[at + s]
        if theta[s] > theta[best]:
            best = s
    return max(theta[best] - mean, 0.0), best


@helper
def variable_step(
    theta: Array, curvature: float, mu: Array, at: int, n: int, steps: int, change: Array
) -> tuple[float, float]:
    """Move the marginals of a variable; the gap before and the gain, both over ``c_i``."""
    gap, best = block_gap(theta, mu, at, n)
    if gap <= 0.0:
        for s in range(n):
            change[s] = 0.0
        return 0.0, 0.0
    if steps == PROJECTED and curvature > 0.0:
        for s in range(n):
            theta[n + s] = mu[at + s] + theta[s] / curvature
        project(theta[n : 2 * n], n, change)
        for s in range(n):
            change[s] -= mu[at + s]
    else:
        square = 0.0
        for s in range(n):
            change[s] = -mu[at + s]
            if s == best:
                change[s] += 1.0
            square += change[s] ** 2
        square *= curvature
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
    problem: Any,
    graph: Topology,
    i: int,
    v: int,
    n: int,
    kappa: float,
    point: DualPoint,
    at: int,
    theta: Array,
) -> None:
    """Add loss and messages to the scores of variable v."""
    degree = graph.incident_start[v + 1] - graph.incident_start[v]
    for s in range(n):
        theta[s] += variable_loss(problem, i, v, s)
        theta[s] += kappa * (point.sums[at + s] - degree * point.mu[at + s])
    if point.centre_sums.shape[0] > 0:
        for s in range(n):
            theta[s] += point.centre_sums[at + s]


@helper
def visit_variables(
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    least: float,
    cap: float,
    kappa: float,
    steps: int,
    w: Array,
    point: DualPoint,
    scratch: Scratch,
) -> float:
    """Visit the variables of example i whose gap is at least ``least``; the gain.

    With ``cap`` 0 the weights stay as they are.
    """
    n_variables = graph.n_states.shape[0]
    unary = blocks.unary_at[i]
    block = blocks.block_at[i]
    gain = 0.0
    v = 0
    while v < n_variables:
        end = group_end(problem, i, v, n_variables)
        some = False
        for u in range(v, end):
            some = some or point.gaps[block + u] >= least
        if some:
            row_scores(problem, i, v, w, scratch.columns)
            square = variable_square(problem, i, v)
            moved = False
            for k in range(problem.n_columns):
                scratch.steps[k] = 0.0
            for u in range(v, end):
                if point.gaps[block + u] < least:
                    continue
                n = graph.n_states[u]
                at = unary + graph.unary_start[u]
                column = first_column(problem, i, u)
                for s in range(n):
                    scratch.margins[s] = scratch.columns[column + s]
                reparametrise(problem, graph, i, u, n, kappa, point, at, scratch.margins)
                degree = graph.incident_start[u + 1] - graph.incident_start[u]
                gap, gained = variable_step(
                    scratch.margins,
                    cap * square + kappa * degree,
                    point.mu,
                    at,
                    n,
                    steps,
                    scratch.change,
                )
                point.gaps[block + u] = cap * gap
                gain += gained
                for s in range(n):
                    scratch.steps[column + s] = -cap * scratch.change[s]
                    moved = moved or scratch.change[s] != 0.0
            if moved and cap > 0.0:
                row_add(problem, i, v, scratch.steps, w)
        v = end
    return cap * gain


@helper
def visit_variable(
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    v: int,
    cap: float,
    kappa: float,
    steps: int,
    w: Array,
    point: DualPoint,
    scratch: Scratch,
) -> float:
    """Visit one variable, touching its own weights only; the gain."""
    n = graph.n_states[v]
    at = blocks.unary_at[i] + graph.unary_start[v]
    variable_scores(problem, i, v, n, w, scratch.margins)
    reparametrise(problem, graph, i, v, n, kappa, point, at, scratch.margins)
    degree = graph.incident_start[v + 1] - graph.incident_start[v]
    curvature = cap * variable_square(problem, i, v) + kappa * degree
    gap, gain = variable_step(scratch.margins, curvature, point.mu, at, n, steps, scratch.change)
    point.gaps[blocks.block_at[i] + v] = cap * gap
    if gain != 0.0:
        for s in range(n):
            scratch.change[s] *= -cap
        variable_add(problem, i, v, n, scratch.change, w)
    return cap * gain


@helper
def factor_theta(
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    c: int,
    size: int,
    kappa: float,
    point: DualPoint,
    now: Array,
    scratch: Scratch,
) -> tuple[float, float]:
    """Take the messages off the scores of factor c in ``scratch.theta``.

    Returns ``Σ_v ‖μ_c^v − μ_v‖²`` and ``Σ_v δ̄·(μ_v − μ_c^v)``.
    """
    theta, margins = scratch.theta, scratch.margins
    stride = size
    penalty = 0.0
    centred = 0.0
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v = graph.scope[p]
        n = graph.n_states[v]
        stride //= n
        marginal(now, size, n, stride, margins, 0)
        at = blocks.unary_at[i] + graph.unary_start[v]
        for s in range(n):
            margins[s] -= point.mu[at + s]
            penalty += margins[s] ** 2
        if point.centre.shape[0] > 0:
            first = place_messages(blocks, problem, i, p)
            for s in range(n):
                centred -= point.centre[first + s] * margins[s]
                margins[s] = kappa * margins[s] + point.centre[first + s]
            add_message(theta, size, n, stride, margins, 0, -1.0)
        else:
            add_message(theta, size, n, stride, margins, 0, -kappa)
    return penalty, centred


@helper
def add_marginals(
    blocks: Blocks,
    graph: Topology,
    i: int,
    c: int,
    size: int,
    values: Array,
    sums: Array,
    margins: Array,
) -> None:
    """Add the marginals of joint states of factor c to the ``sums`` of its variables."""
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v = graph.scope[p]
        n = graph.n_states[v]
        stride //= n
        marginal(values, size, n, stride, margins, 0)
        at = blocks.unary_at[i] + graph.unary_start[v]
        for s in range(n):
            sums[at + s] += margins[s]


@helper
def bend(
    graph: Topology,
    c: int,
    size: int,
    square: float,
    kappa: float,
    change: Array,
    margins: Array,
    out: Array,
) -> float:
    """``q_c(d)``, and its gradient over 2 in ``out``."""
    total = 0.0
    for s in range(size):
        out[s] = square * change[s]
        total += out[s] * change[s]
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        n = graph.n_states[graph.scope[p]]
        stride //= n
        marginal(change, size, n, stride, margins, 0)
        for s in range(n):
            total += kappa * margins[s] ** 2
        add_message(out, size, n, stride, margins, 0, kappa)
    return total


@helper
def factor_projections(
    graph: Topology, c: int, size: int, square: float, kappa: float, gap: float, scratch: Scratch
) -> None:
    """Solve the problem of factor c from ``scratch.start``, the solution in ``scratch.now``."""
    theta, now, change, slope = scratch.theta, scratch.now, scratch.change, scratch.slope
    fewest = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        fewest = min(fewest, graph.n_states[graph.scope[p]])
    bound = square + kappa * (size / fewest)
    for _ in range(PROJECTION_ROUNDS):
        for s in range(size):
            slope[s] = now[s] + theta[s] / bound
        project(slope, size, change)
        gain = 0.0
        most = np.inf
        for s in range(size):
            change[s] -= now[s]
            gain += theta[s] * change[s]
            if change[s] < 0.0:
                most = min(most, now[s] / -change[s])
        if gain <= 0.0:
            return
        quadratic = bend(graph, c, size, square, kappa, change, scratch.margins, slope)
        # Without features some changes bend nothing.
        gamma = min(gain / quadratic, most) if quadratic > 0.0 else most
        for s in range(size):
            now[s] = max(now[s] + gamma * change[s], 0.0)
            theta[s] -= gamma * slope[s]
        if kappa * (size / fewest) <= 0.02 * square:
            return
        if block_gap(theta, now, 0, size)[0] <= GAP_LEFT * gap:
            return


@helper
def visit_factor(
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    c: int,
    cap: float,
    kappa: float,
    steps: int,
    w: Array,
    point: DualPoint,
    scratch: Scratch,
) -> float:
    """Move the marginals of one factor; the gain. With ``cap`` 0 the weights stay as they are."""
    theta, start, now, change = scratch.theta, scratch.start, scratch.now, scratch.change
    block = blocks.block_at[i] + graph.n_states.shape[0] + c
    size = factor_scores(problem, graph, i, c, w, theta)
    mass = factor_mass(blocks, problem, i, c)
    truth = true_joint(problem, graph, i, c)
    load_masses(point.mass, mass, size, truth, start)
    factor_theta(problem, blocks, graph, i, c, size, kappa, point, start, scratch)
    gap, best = block_gap(theta, start, 0, size)
    point.gaps[block] = cap * gap
    if gap <= 0.0:
        return 0.0
    square = cap * factor_square(problem, i, c)
    for s in range(size):
        now[s] = start[s]
    if steps == PROJECTED:
        for s in range(size):
            scratch.margins[blocks.widest + s] = theta[s]
        factor_projections(graph, c, size, square, kappa, gap, scratch)
        for s in range(size):
            theta[s] = scratch.margins[blocks.widest + s]
    else:
        for s in range(size):
            change[s] = -start[s]
        change[best] += 1.0
        quadratic = bend(graph, c, size, square, kappa, change, scratch.margins, scratch.slope)
        gamma = gap / quadratic if quadratic > gap else 1.0
        for s in range(size):
            now[s] += gamma * change[s]
    store_masses(point.mass, mass, size, truth, now)
    gain = 0.0
    for s in range(size):
        change[s] = now[s] - start[s]
        gain += theta[s] * change[s]
    gain -= 0.5 * bend(graph, c, size, square, kappa, change, scratch.margins, scratch.slope)
    add_marginals(blocks, graph, i, c, size, change, point.sums, scratch.margins)
    if cap > 0.0:
        factor_add(problem, i, c, size, -cap, change, w)
    return cap * gain


@helper
def visit_factors(
    kind: AnyFactors,
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    least: float,
    cap: float,
    kappa: float,
    steps: int,
    w: Array,
    point: DualPoint,
    scratch: Scratch,
) -> float:
    """Visit the factors of example i whose gap is at least ``least``; the gain."""
    first = blocks.block_at[i] + graph.n_states.shape[0]
    gain = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        if point.gaps[first + c] >= least:
            gain += visit_factor(problem, blocks, graph, i, c, cap, kappa, steps, w, point, scratch)
    return gain


@helper
def evaluate_factors(
    kind: AnyFactors,
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    cap: float,
    kappa: float,
    w: Array,
    point: DualPoint,
    scratch: Scratch,
) -> tuple[float, float, float]:
    """Sums over the factors of example i; their gaps, and their marginals added to ``sums``.

    Returns ``Σ max θ̂`` relative to the truth, ``Σ ‖μ_c^v − μ_v‖²`` and ``Σ δ̄·(μ_v − μ_c^v)``.
    """
    block = blocks.block_at[i] + graph.n_states.shape[0]
    hinge = penalty = centred = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        size = factor_scores(problem, graph, i, c, w, scratch.theta)
        truth = true_joint(problem, graph, i, c)
        load_masses(point.mass, factor_mass(blocks, problem, i, c), size, truth, scratch.now)
        hinge -= scratch.theta[truth]
        apart, along = factor_theta(
            problem, blocks, graph, i, c, size, kappa, point, scratch.now, scratch
        )
        penalty += apart
        centred += along
        add_marginals(blocks, graph, i, c, size, scratch.now, point.sums, scratch.margins)
        gap, best = block_gap(scratch.theta, scratch.now, 0, size)
        hinge += scratch.theta[best]
        point.gaps[block + c] = cap * gap
    return hinge, penalty, centred


@helper
def add_factors(
    kind: AnyFactors,
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    cap: float,
    coupled: bool,
    point: DualPoint,
    w: Array,
    scratch: Scratch,
) -> None:
    """``w += Ψμ`` for the factors of example i; ``coupled``: ``w += Ψ(μ' − μ)``, μ' a coupling."""
    now, start = scratch.now, scratch.start
    for c in range(graph.scope_start.shape[0] - 1):
        size = table_size(graph, c)
        truth = true_joint(problem, graph, i, c)
        load_masses(point.mass, factor_mass(blocks, problem, i, c), size, truth, now)
        for k in range(size):
            start[k] = now[k] if coupled else 0.0
        if coupled:
            couple(graph, c, size, point.mu, blocks.unary_at[i], now, scratch.margins)
        else:
            start[truth] = 1.0
        some = False
        for k in range(size):
            now[k] -= start[k]
            some = some or now[k] != 0.0
        if some:
            factor_add(problem, i, c, size, -cap, now, w)


@helper
def couple(
    graph: Topology, c: int, size: int, mu: Array, unary: int, now: Array, missing: Array
) -> None:
    """Replace the marginals of factor c by a coupling of those of its variables.

    ``missing`` has room for all states of the factor's variables.
    """
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v = graph.scope[p]
        n = graph.n_states[v]
        stride //= n
        at = unary + graph.unary_start[v]
        marginal(now, size, n, stride, missing, 0)
        for s in range(n):
            if missing[s] > mu[at + s]:
                factor = mu[at + s] / missing[s]
                for outer in range(s * stride, size, n * stride):
                    for k in range(outer, outer + stride):
                        now[k] *= factor
    place = 0
    total = 0.0
    stride = size
    first = graph.scope_start[c]
    for p in range(first, graph.scope_start[c + 1]):
        v = graph.scope[p]
        n = graph.n_states[v]
        stride //= n
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
        share = total
        rest = k
        at = place
        for p in range(graph.scope_start[c + 1] - 1, first - 1, -1):
            n = graph.n_states[graph.scope[p]]
            at -= n
            share *= missing[at + rest % n]
            rest //= n
        now[k] += share
