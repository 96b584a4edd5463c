"""Steps of factors in the softly constrained dual; see :mod:`hingeline.solvers.soft_variables`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline.inference.factor_graph import Topology
from hingeline.solvers.soft_variables import (
    PROJECTED,
    DualPoint,
    Scratch,
    frank_wolfe_gap,
    project,
)
from hingeline.structures.graph_blocks import (
    Blocks,
    add_message,
    factor_add,
    factor_mass,
    factor_scores,
    factor_square,
    load_masses,
    marginal,
    place_messages,
    store_masses,
    true_joint,
)

Array = np.ndarray[Any, Any]

#: Rounds of projection and line search that a factor gets in a visit.
ROUNDS = 8
#: A factor is left when its gap has shrunk to this share.
LEFT = 0.1


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
    margins: Array,
    theta: Array,
) -> tuple[float, float]:
    """Take the messages off the scores of factor c.

    Returns ``Σ_v ‖μ_c^v − μ_v‖²`` and ``Σ_v δ̄·(μ_v − μ_c^v)``.
    """
    stride = size
    penalty = 0.0
    drawn = 0.0
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
                drawn -= point.centre[first + s] * margins[s]
                margins[s] = kappa * margins[s] + point.centre[first + s]
            add_message(theta, size, n, stride, margins, 0, -1.0)
        else:
            add_message(theta, size, n, stride, margins, 0, -kappa)
    return penalty, drawn


@helper
def curve(
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
    graph: Topology, c: int, size: int, square: float, kappa: float, gap: float, room: Scratch
) -> None:
    """Solve the problem of factor c from ``room.start``, the solution in ``room.now``."""
    theta, now, change, slope = room.theta, room.now, room.change, room.slope
    fewest = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        fewest = min(fewest, graph.n_states[graph.scope[p]])
    bound = square + kappa * (size / fewest)
    for _ in range(ROUNDS):
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
        quadratic = curve(graph, c, size, square, kappa, change, room.margins, slope)
        # Without features some changes bend nothing.
        gamma = min(gain / quadratic, most) if quadratic > 0.0 else most
        for s in range(size):
            now[s] = max(now[s] + gamma * change[s], 0.0)
            theta[s] -= gamma * slope[s]
        if kappa * (size / fewest) <= 0.02 * square:
            return
        if frank_wolfe_gap(theta, now, 0, size)[0] <= LEFT * gap:
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
    room: Scratch,
) -> float:
    """Move the marginals of one factor; the gain. With ``cap`` 0 the weights stay as they are."""
    theta, start, now, change = room.theta, room.start, room.now, room.change
    unary = blocks.unary_at[i]
    block = blocks.block_at[i] + graph.n_states.shape[0] + c
    size = factor_scores(problem, graph, i, c, w, theta)
    mass = factor_mass(blocks, problem, i, c)
    truth = true_joint(problem, graph, i, c)
    load_masses(point.mass, mass, size, truth, start)
    factor_theta(problem, blocks, graph, i, c, size, kappa, point, start, room.margins, theta)
    gap, best = frank_wolfe_gap(theta, start, 0, size)
    point.gaps[block] = cap * gap
    if gap <= 0.0:
        return 0.0
    square = cap * factor_square(problem, i, c)
    for s in range(size):
        now[s] = start[s]
    if steps == PROJECTED:
        for s in range(size):
            room.margins[blocks.widest + s] = theta[s]
        factor_projections(graph, c, size, square, kappa, gap, room)
        for s in range(size):
            theta[s] = room.margins[blocks.widest + s]
    else:
        for s in range(size):
            change[s] = -start[s]
        change[best] += 1.0
        quadratic = curve(graph, c, size, square, kappa, change, room.margins, room.slope)
        gamma = gap / quadratic if quadratic > gap else 1.0
        for s in range(size):
            now[s] += gamma * change[s]
    store_masses(point.mass, mass, size, truth, now)
    gain = 0.0
    for s in range(size):
        change[s] = now[s] - start[s]
        gain += theta[s] * change[s]
    gain -= 0.5 * curve(graph, c, size, square, kappa, change, room.margins, room.slope)
    stride = size
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        v = graph.scope[p]
        n = graph.n_states[v]
        stride //= n
        marginal(change, size, n, stride, room.margins, 0)
        at = unary + graph.unary_start[v]
        for s in range(n):
            point.sums[at + s] += room.margins[s]
    if cap > 0.0:
        factor_add(problem, i, c, size, -cap, change, w)
    return cap * gain
