"""The softly constrained dual, its steps in general, and those of variables.

In units of P, with ``c_i = C·s_i``, messages ``δ_cv = κ(μ_c^v − μ_v)``, ``κ = 1/(ρM)``, and scores

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
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hingeline._jit import helper
from hingeline.inference.factor_graph import Topology
from hingeline.structures.graph_blocks import (
    Blocks,
    first_column,
    group_end,
    row_add,
    row_scores,
    variable_add,
    variable_loss,
    variable_scores,
    variable_square,
)

Array = np.ndarray[Any, Any]

FRANK_WOLFE, PROJECTED = range(2)


class DualPoint(NamedTuple):
    """Marginals of all blocks; see :class:`hingeline.structures.graph_blocks.Blocks`."""

    mu: Array  # float64, over (variable, state)
    sums: Array  # float64, over (variable, state): the factors' marginals, summed
    mass: Array  # float32, over the joint states of factors that are not true
    gaps: Array  # float32, over blocks: what was to be gained when they were last looked at
    centre: Array  # float32, over messages: δ̄; empty where it is zero
    pull: Array  # float64, over (variable, state): δ̄ of the factors, summed; empty likewise


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
    return Scratch(
        np.zeros(k),
        np.zeros(k),
        np.zeros(k),
        np.zeros(k),
        np.zeros(k),
        np.zeros(n_columns + 8),
        np.zeros(n_columns + 8),
        np.zeros(2 * k),
    )


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
def frank_wolfe_gap(theta: Array, mu: Array, at: int, n: int) -> tuple[float, int]:
    """``max θ̂ − θ̂·μ`` and the best state."""
    best = 0
    mean = 0.0
    for s in range(n):
        mean += theta[s] * mu[at + s]
        if theta[s] > theta[best]:
            best = s
    return max(theta[best] - mean, 0.0), best


# Variables -----------------------------------------------------------------------------------


@helper
def variable_step(
    theta: Array, curvature: float, mu: Array, at: int, n: int, steps: int, change: Array
) -> tuple[float, float]:
    """Move the marginals of a variable; the gap before and the gain, both over ``c_i``."""
    gap, best = frank_wolfe_gap(theta, mu, at, n)
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
    if point.pull.shape[0] > 0:
        for s in range(n):
            theta[s] += point.pull[at + s]


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
    room: Scratch,
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
            row_scores(problem, i, v, w, room.columns)
            square = variable_square(problem, i, v)
            moved = False
            for k in range(problem.n_columns):
                room.steps[k] = 0.0
            for u in range(v, end):
                if point.gaps[block + u] < least:
                    continue
                n = graph.n_states[u]
                at = unary + graph.unary_start[u]
                column = first_column(problem, i, u)
                for s in range(n):
                    room.margins[s] = room.columns[column + s]
                reparametrise(problem, graph, i, u, n, kappa, point, at, room.margins)
                degree = graph.incident_start[u + 1] - graph.incident_start[u]
                gap, gained = variable_step(
                    room.margins,
                    cap * square + kappa * degree,
                    point.mu,
                    at,
                    n,
                    steps,
                    room.change,
                )
                point.gaps[block + u] = cap * gap
                gain += gained
                for s in range(n):
                    room.steps[column + s] = -cap * room.change[s]
                    moved = moved or room.change[s] != 0.0
            if moved and cap > 0.0:
                row_add(problem, i, v, room.steps, w)
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
    room: Scratch,
) -> float:
    """Visit one variable, touching its own weights only; the gain."""
    n = graph.n_states[v]
    at = blocks.unary_at[i] + graph.unary_start[v]
    variable_scores(problem, i, v, n, w, room.margins)
    reparametrise(problem, graph, i, v, n, kappa, point, at, room.margins)
    degree = graph.incident_start[v + 1] - graph.incident_start[v]
    curvature = cap * variable_square(problem, i, v) + kappa * degree
    gap, gain = variable_step(room.margins, curvature, point.mu, at, n, steps, room.change)
    point.gaps[blocks.block_at[i] + v] = cap * gap
    if gain != 0.0:
        for s in range(n):
            room.change[s] *= -cap
        variable_add(problem, i, v, n, room.change, w)
    return cap * gain
