"""Kernels over the blocks of all examples: evaluations, weights of marginals, and passes.

A pass visits *units*: blocks that are worth visiting together, and no more. Blocks of one example
that share weights, as those of an image do, pull these the same way one after the other, so units
are drawn over the whole data set: on MSRC-21 that makes more of a difference than all else. Where
they share none, as in a set of labels, an example is a unit: its blocks have messages in common.
"""

from typing import Any, NamedTuple

from hingeline._checks import Array
from hingeline._jit import by_class, helper, kernel
from hingeline._simd import copy
from hingeline.inference.factor_graph import next_place, table_size, topology
from hingeline.solvers.relaxed import blocks as any_factors
from hingeline.solvers.relaxed import pairs as binary_pairs
from hingeline.solvers.relaxed.blocks import Dual, Scratch
from hingeline.structures import graph_blocks
from hingeline.structures.graph_blocks import AnyFactors, BinaryPairs, Blocks

#: A variable is fractional where its largest marginal is further than this from 1.
FRACTIONAL_FROM = 1e-6
#: Columns of what the evaluation of an example gives.
HINGE, LINEAR, PENALTY, CENTRE, FRACTIONAL = range(5)


class Units(NamedTuple):
    """Blocks that are visited together; those of unit k end where k + 1 begins."""

    starts: Array  # int64
    owners: Array  # int32: the example of each


def _by_kind(name: str) -> Any:
    """Let kernels contain what one kind of factors needs, by the class of ``blocks.factors``."""
    modules: dict[type, Any] = {AnyFactors: any_factors, BinaryPairs: binary_pairs}
    kinds = {kind: getattr(module, name) for kind, module in modules.items()}

    def stub(kind: Any, *rest: Any) -> Any:
        return kinds[type(kind)](kind, *rest)

    return by_class(stub, kinds.get)


visit_factors = _by_kind("visit_factors")
evaluate_factors = _by_kind("evaluate_factors")
add_factors = _by_kind("add_factors")


@helper
def evaluate_example(problem: Any, dual: Dual, i: int, scratch: Scratch, out: Array) -> None:
    """Sums over the blocks of example i, and the gap of each of them.

    ``out`` gets ``Σ max θ̂`` relative to the truth, ``Σ μ·l``, ``Σ ‖μ_c^v − μ_v‖²``,
    ``Σ δ̄·(μ_v − μ_c^v)`` and how many variables are fractional.
    """
    blocks = dual.blocks
    graph = topology(problem.graphs, problem.graph[i])
    n_variables = graph.n_states.shape[0]
    for k in range(blocks.unary_at[i], blocks.unary_at[i + 1]):
        dual.sums[k] = 0.0
    hinge, penalty, centred = evaluate_factors(blocks.factors, problem, dual, i, scratch)
    linear = 0.0
    fractional = end = 0
    for u in range(n_variables):
        if u == end:
            end = graph_blocks.group_end(problem, i, u, n_variables)
            graph_blocks.row_scores(problem, i, u, dual.w, scratch.columns)
        n = graph.n_states[u]
        at = blocks.unary_at[i] + graph.unary_start[u]
        column = graph_blocks.first_column(problem, i, u)
        largest = 0.0
        for s in range(n):
            scratch.margins[s] = scratch.columns[column + s]
            linear += dual.mu[at + s] * graph_blocks.variable_loss(problem, i, u, s)
            largest = max(largest, dual.mu[at + s])
        if largest < 1.0 - FRACTIONAL_FROM:
            fractional += 1
        hinge -= scratch.margins[graph_blocks.true_state(problem, i, u)]
        any_factors.reparametrise(problem, dual, graph, i, u, at, scratch.margins)
        gap, best = any_factors.block_gap(scratch.margins, dual.mu, at, n)
        hinge += scratch.margins[best]
        dual.gaps[blocks.block_at[i] + u] = dual.cap[i] * gap
    out[HINGE] = hinge
    out[LINEAR] = linear
    out[PENALTY] = penalty
    out[CENTRE] = centred
    out[FRACTIONAL] = fractional


@helper
def visit_rows(problem: Any, dual: Dual, i: int, v: int, end: int, scratch: Scratch) -> float:
    """Visit variables, those that share a row of features together; the gain."""
    gain = 0.0
    while v < end:
        last = graph_blocks.group_end(problem, i, v, end)
        gain += any_factors.visit_variables(problem, dual, i, v, last, scratch)
        v = last
    return gain


@kernel
def evaluate(problem: Any, dual: Dual, still: Dual, order: Array, rounds: int, out: Array) -> None:
    """Evaluate each of these examples; ``out[i]`` gets what :func:`evaluate_example` says.

    With ``rounds``, what it would say after so many rounds over the blocks with fixed weights
    (``still`` is the same point without caps). Any messages make a bound. Those of the marginals
    are what all weights together made of them; these are made for the given weights. The marginals
    are put back where they were; their sums must be right.
    """
    blocks = dual.blocks
    scratch = any_factors.make_scratch(problem, dual)
    for i in order:
        n = problem.node_offset[i + 1] - problem.node_offset[i]
        more = 1 if rounds > 0 else 0  # nothing is set aside where nothing moves
        a, b = blocks.unary_at[i], blocks.unary_at[i + more]
        c, d = blocks.mass_at[i], blocks.mass_at[i + more]
        e, f = blocks.block_at[i], blocks.block_at[i + more]
        mu, sums = dual.mu[a:b].copy(), dual.sums[a:b].copy()
        mass, gaps = dual.mass[c:d].copy(), dual.gaps[e:f].copy()
        for _ in range(rounds):
            copy(gaps, dual.gaps[e:f])
            visit_factors(blocks.factors, problem, still, i, 0, f - e - n, scratch)
            visit_rows(problem, still, i, 0, n, scratch)
        evaluate_example(problem, dual, i, scratch, out[i])
        copy(mu, dual.mu[a:b])
        copy(sums, dual.sums[a:b])
        copy(mass, dual.mass[c:d])
        copy(gaps, dual.gaps[e:f])


@kernel
def move_centre(problem: Any, dual: Dual, order: Array, step: float) -> None:
    """``δ̄ += step·κ(μ_c^v − μ_v)`` for these examples, and what is summed of it anew."""
    blocks = dual.blocks
    scratch = any_factors.make_scratch(problem, dual)
    for i in order:
        graph = topology(problem.graphs, problem.graph[i])
        unary = blocks.unary_at[i]
        for k in range(unary, blocks.unary_at[i + 1]):
            dual.centre_sums[k] = 0.0
        for c in range(graph.scope_start.shape[0] - 1):
            size = table_size(graph, c)
            truth = graph_blocks.true_joint(problem, graph, i, c)
            graph_blocks.load_masses(
                dual.mass, graph_blocks.factor_mass(blocks, problem, i, c), size, truth, scratch.now
            )
            stride = size
            for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
                v, n, stride = next_place(graph, p, stride)
                graph_blocks.marginal(scratch.now, size, n, stride, scratch.margins, 0)
                at = unary + graph.unary_start[v]
                first = graph_blocks.place_messages(blocks, problem, i, p)
                for s in range(n):
                    apart = scratch.margins[s] - dual.mu[at + s]
                    dual.centre[first + s] += step * dual.kappa * apart
                    dual.centre_sums[at + s] += dual.centre[first + s]


@kernel
def add_weights(problem: Any, dual: Dual, coupled: bool) -> None:
    """``w += Ψμ``; ``coupled``: ``w += Ψ(μ' − μ)``, where the factors' marginals μ' agree."""
    blocks, cap = dual.blocks, dual.cap
    scratch = any_factors.make_scratch(problem, dual)
    for i in range(cap.shape[0]):
        if cap[i] == 0.0:
            continue
        if not coupled:
            at = blocks.unary_at[i]
            graph_blocks.add_variables(problem, i, dual.mu, at, -cap[i], scratch.steps, dual.w)
        add_factors(blocks.factors, problem, dual, i, coupled, scratch)


@kernel
def cut_units(problem: Any, blocks: Blocks, together: int, starts: Array, owners: Array) -> int:
    """Cut all blocks into units: first blocks and examples of them, or only how many there are.

    A unit is an example of up to ``together`` blocks; of a larger one a run of variables that share
    a row of features, or ``together`` factors; one block where ``together`` is 0.
    """
    count = 0
    for i in range(blocks.block_at.shape[0] - 1):
        n = problem.node_offset[i + 1] - problem.node_offset[i]
        end = blocks.block_at[i + 1] - blocks.block_at[i]
        b = 0
        while b < end:
            if starts.shape[0] > 0:
                starts[count] = blocks.block_at[i] + b
                owners[count] = i
            count += 1
            if together == 0:
                b += 1
            elif end <= together:
                b = end
            elif b < n:
                b = graph_blocks.group_end(problem, i, b, n)
            else:
                b = min(b + together, end)
    return count


@kernel
def pass_units(
    problem: Any, dual: Dual, units: Units, order: Array, every: int, total: Array
) -> tuple[float, float]:
    """Visit these units; the sum of their gaps, and what f_ρ gained.

    After each ``every`` units the weights are added to ``total``.
    """
    blocks = dual.blocks
    scratch = any_factors.make_scratch(problem, dual)
    gain = met = 0.0
    for k in range(order.shape[0]):
        i = units.owners[order[k]]
        n = problem.node_offset[i + 1] - problem.node_offset[i]
        lo, hi = units.starts[order[k]], units.starts[order[k] + 1]
        first, end = lo - blocks.block_at[i], hi - blocks.block_at[i]
        if first < n:
            gain += visit_rows(problem, dual, i, first, min(end, n), scratch)
        if end > n:
            first = max(first - n, 0)
            gain += visit_factors(blocks.factors, problem, dual, i, first, end - n, scratch)
        for b in range(lo, hi):
            met += dual.gaps[b]
        if (k + 1) % every == 0:
            for j in range(total.shape[0]):
                total[j] += dual.w[j]
    return met, gain
