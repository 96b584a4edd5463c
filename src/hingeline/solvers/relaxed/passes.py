"""Passes over blocks of the softly constrained dual."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.inference.factor_graph import Topology, table_size, topology
from hingeline.solvers.relaxed.blocks import (
    PROJECTED,
    DualPoint,
    Scratch,
    factor_theta,
    frank_wolfe_gap,
    make_scratch,
    reparametrise,
    visit_factor,
    visit_variable,
    visit_variables,
)
from hingeline.solvers.relaxed.pairs import add_pairs, look_at_pairs, visit_pairs
from hingeline.structures.graph_blocks import (
    Blocks,
    factor_add,
    factor_mass,
    factor_scores,
    first_column,
    group_end,
    load_masses,
    marginal,
    place_messages,
    row_add,
    row_scores,
    true_joint,
    true_state,
    variable_loss,
)

# Looks at all blocks of the softly constrained dual: objectives, gaps, weights, bounds.
#
# Nothing here moves mass for good. Kernels that write per example run in threads; sums over
# examples and weights are made in order, by one thread.
#
# A bound for the hard-constrained problem needs marginals that agree. Each factor's marginals are
# replaced by a coupling of its variables' marginals that keeps as much of them as it can: for
# each variable in turn every state's share is cut down to the variable's marginal where it
# exceeds it; what is missing then, the same total for every variable, is filled with the product
# of the variables' missing shares. (The rounding of J. Altschuler, J. Weed, P. Rigollet,
# *Near-linear time approximation algorithms for optimal transport via Sinkhorn iteration*, 2017,
# Algorithm 2.)

Array = np.ndarray[Any, Any]

#: Columns of what a look at an example gives.
HINGE, LINEAR, PENALTY, DRAWN, GAP, FRACTIONAL = range(6)


@kernel
def start_at_truth(problem: Any, blocks: Blocks, cap: Array, point: DualPoint, out: Array) -> None:
    """All marginals at the truth (those of factors are zeros already), and a look at them.

    There weights and messages are zero: scores are losses, and factors have nothing to gain.
    """
    point.mu[:] = 0.0
    point.sums[:] = 0.0
    point.gaps[:] = 0.0
    out[:] = 0.0
    for i in range(problem.graph.shape[0]):
        graph = topology(problem.graphs, problem.graph[i])
        unary, block = blocks.unary_at[i], blocks.block_at[i]
        for v in range(graph.n_states.shape[0]):
            truth = true_state(problem, i, v)
            own = variable_loss(problem, i, v, truth)
            best = own
            for s in range(graph.n_states[v]):
                best = max(best, variable_loss(problem, i, v, s))
            at = unary + graph.unary_start[v] + truth
            point.mu[at] = 1.0
            point.sums[at] = graph.incident_start[v + 1] - graph.incident_start[v]
            if cap[i] > 0.0:
                point.gaps[block + v] = cap[i] * (best - own)
                out[i, HINGE] += best
                out[i, LINEAR] += own
                out[i, GAP] += cap[i] * (best - own)


@helper
def look_at_factors(
    problem: Any,
    blocks: Blocks,
    graph: Topology,
    i: int,
    cap: float,
    kappa: float,
    w: Array,
    point: DualPoint,
    room: Scratch,
) -> tuple[float, float, float, float]:
    """Sums over the factors of example i; their gaps, and their marginals added to ``sums``.

    Returns ``Σ max θ̂`` relative to the truth, ``Σ ‖μ_c^v − μ_v‖²``, ``Σ δ̄·(μ_v − μ_c^v)`` and
    ``Σ (max θ̂ − θ̂·μ)``.
    """
    unary = blocks.unary_at[i]
    block = blocks.block_at[i] + graph.n_states.shape[0]
    hinge = 0.0
    penalty = 0.0
    drawn = 0.0
    gaps = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        size = factor_scores(problem, graph, i, c, w, room.theta)
        truth = true_joint(problem, graph, i, c)
        load_masses(point.mass, factor_mass(blocks, problem, i, c), size, truth, room.now)
        hinge -= room.theta[truth]
        apart, along = factor_theta(
            problem, blocks, graph, i, c, size, kappa, point, room.now, room.margins, room.theta
        )
        penalty += apart
        drawn += along
        stride = size
        for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
            v = graph.scope[p]
            n = graph.n_states[v]
            stride //= n
            marginal(room.now, size, n, stride, room.margins, 0)
            at = unary + graph.unary_start[v]
            for s in range(n):
                point.sums[at + s] += room.margins[s]
        gap, best = frank_wolfe_gap(room.theta, room.now, 0, size)
        hinge += room.theta[best]
        gaps += gap
        point.gaps[block + c] = cap * gap
    return hinge, penalty, drawn, gaps


@helper
def look_at(
    problem: Any,
    blocks: Blocks,
    i: int,
    cap: float,
    kappa: float,
    w: Array,
    point: DualPoint,
    room: Scratch,
    out: Array,
) -> None:
    """Sums over the blocks of example i, and the gap of each of them, at these weights.

    ``out`` gets ``Σ max θ̂`` relative to the truth, ``Σ μ·l``, ``Σ ‖μ_c^v − μ_v‖²``,
    ``Σ δ̄·(μ_v − μ_c^v)``, ``c_i·Σ (max θ̂ − θ̂·μ)`` and how many variables are fractional.
    """
    graph = topology(problem.graphs, problem.graph[i])
    n_variables = graph.n_states.shape[0]
    unary = blocks.unary_at[i]
    block = blocks.block_at[i]
    for k in range(unary, blocks.unary_at[i + 1]):
        point.sums[k] = 0.0
    if blocks.paired[problem.graph[i]]:
        sights = look_at_pairs(problem, blocks, graph, i, cap, kappa, w, point)
    else:
        sights = look_at_factors(problem, blocks, graph, i, cap, kappa, w, point, room)
    hinge, penalty, drawn, gaps = sights
    linear = 0.0
    fractional = 0
    v = 0
    while v < n_variables:
        end = group_end(problem, i, v, n_variables)
        row_scores(problem, i, v, w, room.columns)
        for u in range(v, end):
            n = graph.n_states[u]
            at = unary + graph.unary_start[u]
            column = first_column(problem, i, u)
            largest = 0.0
            for s in range(n):
                room.margins[s] = room.columns[column + s]
                linear += point.mu[at + s] * variable_loss(problem, i, u, s)
                largest = max(largest, point.mu[at + s])
            if largest < 1.0 - 1e-6:
                fractional += 1
            hinge -= room.margins[true_state(problem, i, u)]
            reparametrise(problem, graph, i, u, n, kappa, point, at, room.margins)
            gap, best = frank_wolfe_gap(room.margins, point.mu, at, n)
            hinge += room.margins[best]
            gaps += gap
            point.gaps[block + u] = cap * gap
        v = end
    out[HINGE] = hinge
    out[LINEAR] = linear
    out[PENALTY] = penalty
    out[DRAWN] = drawn
    out[GAP] = cap * gaps
    out[FRACTIONAL] = fractional


@kernel
def look(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    kappa: float,
    w: Array,
    point: DualPoint,
    out: Array,
) -> None:
    """Look at each of these examples; ``out[i]`` gets what :func:`look_at` says."""
    room = make_scratch(blocks, problem.n_columns)
    for i in order:
        look_at(problem, blocks, i, cap[i], kappa, w, point, room, out[i])


@kernel
def look_refined(
    problem: Any,
    blocks: Blocks,
    order: Array,
    kappa: float,
    rounds: int,
    least: float,
    w: Array,
    point: DualPoint,
    out: Array,
) -> None:
    """What a look would find after some rounds over the blocks with fixed weights.

    Any messages make a bound. Those of the marginals are what all weights together made of them;
    these are made for the given weights. Blocks whose gap is below ``least`` keep theirs. The
    marginals are put back where they were; their sums must be right.
    """
    room = make_scratch(blocks, problem.n_columns)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        a, b = blocks.unary_at[i], blocks.unary_at[i + 1]
        c, d = blocks.mass_at[i], blocks.mass_at[i + 1]
        e, f = blocks.block_at[i], blocks.block_at[i + 1]
        mu, sums = point.mu[a:b].copy(), point.sums[a:b].copy()
        mass, gaps = point.mass[c:d].copy(), point.gaps[e:f].copy()
        for _ in range(rounds):
            point.gaps[e:f] = gaps
            visit_factors(problem, blocks, graph, i, least, 0.0, kappa, PROJECTED, w, point, room)
            visit_variables(problem, blocks, graph, i, least, 0.0, kappa, PROJECTED, w, point, room)
        look_at(problem, blocks, i, 0.0, kappa, w, point, room, out[i])
        point.mu[a:b] = mu
        point.sums[a:b] = sums
        point.mass[c:d] = mass
        point.gaps[e:f] = gaps


@kernel
def move_centre(
    problem: Any, blocks: Blocks, order: Array, kappa: float, step: float, point: DualPoint
) -> None:
    """``δ̄ += step·κ(μ_c^v − μ_v)`` for these examples, and what is summed of it anew."""
    room = make_scratch(blocks, problem.n_columns)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        unary = blocks.unary_at[i]
        for k in range(unary, blocks.unary_at[i + 1]):
            point.pull[k] = 0.0
        for c in range(graph.scope_start.shape[0] - 1):
            size = table_size(graph, c)
            truth = true_joint(problem, graph, i, c)
            load_masses(point.mass, factor_mass(blocks, problem, i, c), size, truth, room.now)
            stride = size
            for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
                v = graph.scope[p]
                n = graph.n_states[v]
                stride //= n
                marginal(room.now, size, n, stride, room.margins, 0)
                at = unary + graph.unary_start[v]
                first = place_messages(blocks, problem, i, p)
                for s in range(n):
                    apart = room.margins[s] - point.mu[at + s]
                    point.centre[first + s] += step * kappa * apart
                    point.pull[at + s] += point.centre[first + s]


@kernel
def add_weights(problem: Any, blocks: Blocks, cap: Array, point: DualPoint, w: Array) -> None:
    """``w += Ψμ``."""
    room = make_scratch(blocks, problem.n_columns)
    for i in range(cap.shape[0]):
        if cap[i] == 0.0:
            continue
        graph = topology(problem.graphs, problem.graph[i])
        n_variables = graph.n_states.shape[0]
        unary = blocks.unary_at[i]
        v = 0
        while v < n_variables:
            end = group_end(problem, i, v, n_variables)
            some = False
            for k in range(problem.n_columns):
                room.steps[k] = 0.0
            for u in range(v, end):
                at = unary + graph.unary_start[u]
                column = first_column(problem, i, u)
                truth = true_state(problem, i, u)
                for s in range(graph.n_states[u]):
                    if s != truth and point.mu[at + s] != 0.0:
                        room.steps[column + s] = -cap[i] * point.mu[at + s]
                        some = True
                room.steps[column + truth] = cap[i] * (1.0 - point.mu[at + truth])
            if some:
                row_add(problem, i, v, room.steps, w)
            v = end
        if blocks.paired[problem.graph[i]]:
            add_pairs(problem, blocks, graph, i, cap[i], False, point, w)
            continue
        for c in range(graph.scope_start.shape[0] - 1):
            size = table_size(graph, c)
            truth = true_joint(problem, graph, i, c)
            load_masses(point.mass, factor_mass(blocks, problem, i, c), size, truth, room.now)
            if room.now[truth] < 1.0:
                room.now[truth] -= 1.0
                factor_add(problem, i, c, size, -cap[i], room.now, w)


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


@kernel
def add_coupled(problem: Any, blocks: Blocks, cap: Array, point: DualPoint, w: Array) -> None:
    """``w += Ψ(μ' − μ)``, where the factors' marginals μ' agree with those of the variables."""
    room = make_scratch(blocks, problem.n_columns)
    missing = np.empty(blocks.most_unary + 1)
    for i in range(cap.shape[0]):
        if cap[i] == 0.0:
            continue
        graph = topology(problem.graphs, problem.graph[i])
        if blocks.paired[problem.graph[i]]:
            add_pairs(problem, blocks, graph, i, cap[i], True, point, w)
            continue
        for c in range(graph.scope_start.shape[0] - 1):
            size = table_size(graph, c)
            truth = true_joint(problem, graph, i, c)
            load_masses(point.mass, factor_mass(blocks, problem, i, c), size, truth, room.now)
            for k in range(size):
                room.start[k] = room.now[k]
            couple(graph, c, size, point.mu, blocks.unary_at[i], room.now, missing)
            some = False
            for k in range(size):
                room.now[k] -= room.start[k]
                some = some or room.now[k] != 0.0
            if some:
                factor_add(problem, i, c, size, -cap[i], room.now, w)


@helper
def visit_factors(
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
    """Visit the factors of example i whose gap is at least ``least``; the gain."""
    if steps == PROJECTED and blocks.paired[problem.graph[i]]:
        return visit_pairs(problem, blocks, graph, i, least, cap, kappa, w, point)
    first = blocks.block_at[i] + graph.n_states.shape[0]
    gain = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        if point.gaps[first + c] >= least:
            gain += visit_factor(problem, blocks, graph, i, c, cap, kappa, steps, w, point, room)
    return gain


@kernel
def pass_examples(
    problem: Any,
    blocks: Blocks,
    order: Array,
    cap: Array,
    kappa: float,
    least: float,
    steps: int,
    every: int,
    w: Array,
    point: DualPoint,
    total: Array,
) -> float:
    """Visit the blocks of these examples whose last gap is at least ``least``; what f_ρ gained.

    After each ``every`` examples the weights are added to ``total``.
    """
    room = make_scratch(blocks, problem.n_columns)
    gain = 0.0
    for k in range(order.shape[0]):
        i = order[k]
        graph = topology(problem.graphs, problem.graph[i])
        gain += visit_variables(
            problem, blocks, graph, i, least, cap[i], kappa, steps, w, point, room
        )
        gain += visit_factors(
            problem, blocks, graph, i, least, cap[i], kappa, steps, w, point, room
        )
        if (k + 1) % every == 0:
            for j in range(w.shape[0]):
                total[j] += w[j]
    return gain


@kernel
def pass_draws(
    problem: Any,
    blocks: Blocks,
    examples: Array,
    draws: Array,
    by_gap: bool,
    cap: Array,
    kappa: float,
    steps: int,
    w: Array,
    point: DualPoint,
) -> tuple[float, float]:
    """One block of each of these examples, evenly or in proportion to the gaps.

    ``draws`` are numbers in [0, 1). Returns the gaps met, summed, and what f_ρ gained.
    """
    room = make_scratch(blocks, problem.n_columns)
    gain = 0.0
    met = 0.0
    for k in range(examples.shape[0]):
        i = examples[k]
        first, end = blocks.block_at[i], blocks.block_at[i + 1]
        block = first + int(draws[k] * (end - first))
        if by_gap:
            total = 0.0
            for b in range(first, end):
                total += point.gaps[b]
            target = draws[k] * total
            for b in range(first, end):
                target -= point.gaps[b]
                if target < 0.0:
                    block = b
                    break
        graph = topology(problem.graphs, problem.graph[i])
        local = block - first
        n = graph.n_states.shape[0]
        if local < n:
            gain += visit_variable(
                problem, blocks, graph, i, local, cap[i], kappa, steps, w, point, room
            )
        else:
            gain += visit_factor(
                problem, blocks, graph, i, local - n, cap[i], kappa, steps, w, point, room
            )
        met += point.gaps[block]
    return met, gain
