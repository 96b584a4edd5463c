"""Passes over blocks of the softly constrained dual."""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper, kernel
from hingeline.inference.factor_graph import Topology, topology
from hingeline.solvers.soft_factors import visit_factor
from hingeline.solvers.soft_pairs import visit_pairs
from hingeline.solvers.soft_variables import (
    PROJECTED,
    DualPoint,
    Scratch,
    make_scratch,
    visit_variable,
    visit_variables,
)
from hingeline.structures.graph_blocks import Blocks

Array = np.ndarray[Any, Any]


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
