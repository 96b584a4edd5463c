"""Kernels over the blocks of all examples: evaluations, weights of marginals, and passes.

A pass visits *units*: blocks that are worth visiting together, and no more. Blocks of one example
that share weights, as those of an image do, pull these the same way one after the other, so units
are drawn over the whole data set: on MSRC-21 that makes more of a difference than all else. Where
they share none, as in a set of labels, an example is a unit: its blocks have messages in common.

Graphs of binary variables and pairs without features (multi-label) have thousands of small blocks,
so that loops over the states and places of a factor cost more than what they compute. Their steps
are in closed form here, the same as those of :mod:`hingeline.solvers.relaxed.blocks` up to
rounding. The four joint states of a pair are numbers in registers, counted from the truth: state
``s`` is the joint state ``s ^ truth``, so that 0 is the true one, 1 and 2 have the second and the
first variable wrong, 3 has both. Messages of a binary variable are opposite numbers: one is enough,
that of the true state.
"""

from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import by_table, helper, kernel
from hingeline._simd import copy
from hingeline.inference.factor_graph import Topology, marginal, next_place, table_size, topology
from hingeline.solvers.relaxed import blocks as any_factors
from hingeline.solvers.relaxed.blocks import Dual, Scratch
from hingeline.structures import graph_blocks
from hingeline.structures.graph_blocks import AnyFactors, BinaryPairs, Blocks

#: A variable is fractional where its largest marginal is further than this from 1.
FRACTIONAL_FROM = 1e-6
#: Columns of what the evaluation of an example gives.
HINGE, LINEAR, PENALTY, CENTRE, FRACTIONAL = range(5)


class Pair(NamedTuple):
    """Where a pair is, and its truth."""

    truth: int  # true joint state
    first: int  # place of the first variable's true state in vectors over (variable, state)
    first_wrong: int
    second: int
    second_wrong: int
    mass: int  # where its marginals begin
    table: int  # where its weights begin


class Four(NamedTuple):
    """A number for each joint state, counted from the truth."""

    s0: float
    s1: float
    s2: float
    s3: float


@helper
def locate_pair(problem: Any, dual: Dual, graph: Topology, i: int, c: int) -> Pair:
    """Pair c of example i."""
    blocks = dual.blocks
    a, b = graph.scope[2 * c], graph.scope[2 * c + 1]
    labels = problem.offsets[i]
    true_a, true_b = problem.labels[labels + a], problem.labels[labels + b]
    at_a, at_b = blocks.unary_at[i] + 2 * a, blocks.unary_at[i] + 2 * b
    places = at_a + true_a, at_a + 1 - true_a, at_b + true_b, at_b + 1 - true_b
    table = problem.factor_table[problem.graphs.factor_ptr[problem.graph[i]] + c]
    return Pair(2 * true_a + true_b, *places, blocks.mass_at[i] + 3 * c, table)


@helper
def mass_place(pair: Pair, s: int) -> int:
    """Where the marginal of a state that is not true is stored."""
    joint = s ^ pair.truth
    return pair.mass + joint - (1 if joint > pair.truth else 0)


@helper
def load_pair(mass: Array, pair: Pair) -> Four:
    """Marginals of a pair."""
    s1 = np.float64(mass[mass_place(pair, 1)])
    s2 = np.float64(mass[mass_place(pair, 2)])
    s3 = np.float64(mass[mass_place(pair, 3)])
    return Four(max(1.0 - (s1 + s2 + s3), 0.0), s1, s2, s3)


@helper
def store_pair(mass: Array, pair: Pair, values: Four) -> Four:
    """Round marginals to storage; returns what :func:`load_pair` will give."""
    s1 = np.float64(np.float32(values.s1))
    s2 = np.float64(np.float32(values.s2))
    s3 = np.float64(np.float32(values.s3))
    if s1 + s2 + s3 > 1.0:  # by rounding
        less = (1.0 - 2.4e-7) / (s1 + s2 + s3)
        s1, s2, s3 = less * s1, less * s2, less * s3
    mass[mass_place(pair, 1)] = np.float32(s1)
    mass[mass_place(pair, 2)] = np.float32(s2)
    mass[mass_place(pair, 3)] = np.float32(s3)
    return load_pair(mass, pair)


@helper
def pair_table(w: Array, pair: Pair) -> Four:
    """Weights of the states of a pair."""
    at, truth = pair.table, pair.truth
    return Four(w[at + truth], w[at + (1 ^ truth)], w[at + (2 ^ truth)], w[at + (3 ^ truth)])


@helper
def subtract_messages(scores: Four, first: float, second: float) -> Four:
    """Scores less the messages, given as those of the true states of the two variables."""
    return Four(
        scores.s0 - first - second,
        scores.s1 - first + second,
        scores.s2 + first - second,
        scores.s3 + first + second,
    )


@helper
def centre_of_pair(problem: Any, dual: Dual, i: int, c: int, pair: Pair) -> Four:
    """The centre of messages by joint state; the two of a variable need not be opposite."""
    a = graph_blocks.place_messages(dual.blocks, problem, i, 2 * c)
    b = graph_blocks.place_messages(dual.blocks, problem, i, 2 * c + 1)
    true_a, true_b = pair.truth // 2, pair.truth % 2
    # Sums of float32 would be float32.
    right_a, wrong_a = np.float64(dual.centre[a + true_a]), np.float64(dual.centre[a + 1 - true_a])
    right_b, wrong_b = np.float64(dual.centre[b + true_b]), np.float64(dual.centre[b + 1 - true_b])
    return Four(right_a + right_b, right_a + wrong_b, wrong_a + right_b, wrong_a + wrong_b)


@helper
def difference(a: Four, b: Four) -> Four:
    """State by state."""
    return Four(a.s0 - b.s0, a.s1 - b.s1, a.s2 - b.s2, a.s3 - b.s3)


@helper
def largest(scores: Four) -> float:
    """The best score."""
    return max(max(scores.s0, scores.s1), max(scores.s2, scores.s3))


@helper
def dot(a: Four, b: Four) -> float:
    """``a·b``."""
    return a.s0 * b.s0 + a.s1 * b.s1 + a.s2 * b.s2 + a.s3 * b.s3


@helper
def simplex_level(a: float, b: float, c: float, d: float) -> float:
    """What is to be taken off four numbers so that their positive parts sum to 1.

    With the k largest ones left it would be ``(their sum − 1)/k``, and the greatest of these is it.
    """
    low_ab, high_ab = min(a, b), max(a, b)
    low_cd, high_cd = min(c, d), max(c, d)
    top, last = max(high_ab, high_cd), min(low_ab, low_cd)
    one, other = min(high_ab, high_cd), max(low_ab, low_cd)
    two = top + max(one, other)
    three = two + min(one, other)
    four = three + last
    most = max(top - 1.0, 0.5 * (two - 1.0))
    return max(most, max((three - 1.0) / 3.0, 0.25 * (four - 1.0)))


@helper
def project_pair(mu: Four, theta: Four, cap: float, kappa: float) -> Four:
    """Marginals after a projected step with exact line search; ``mu`` where nothing is gained.

    Changes d sum to 0, so that ``‖A_c0 d‖² = 2(d_00 + d_01)²``.
    """
    scale = 1.0 / (cap + 2.0 * kappa)
    v0, v1 = mu.s0 + scale * theta.s0, mu.s1 + scale * theta.s1
    v2, v3 = mu.s2 + scale * theta.s2, mu.s3 + scale * theta.s3
    level = simplex_level(v0, v1, v2, v3)
    d0, d1 = max(v0 - level, 0.0) - mu.s0, max(v1 - level, 0.0) - mu.s1
    d2, d3 = max(v2 - level, 0.0) - mu.s2, max(v3 - level, 0.0) - mu.s3
    d = Four(d0, d1, d2, d3)
    slope = dot(theta, d)
    # No further than to where a state is empty: the largest share of one that d takes away.
    taken = max(-d0 / (mu.s0 + 1e-300), -d1 / (mu.s1 + 1e-300))
    taken = max(taken, max(-d2 / (mu.s2 + 1e-300), -d3 / (mu.s3 + 1e-300)))
    most = max(bend_pair(d, cap, kappa), slope * taken)
    if slope <= 0.0 or most <= 0.0:
        return mu
    gamma = slope / most
    return Four(
        max(mu.s0 + gamma * d0, 0.0),
        max(mu.s1 + gamma * d1, 0.0),
        max(mu.s2 + gamma * d2, 0.0),
        max(mu.s3 + gamma * d3, 0.0),
    )


@helper
def bend_pair(d: Four, cap: float, kappa: float) -> float:
    """``q_c(d)``."""
    first, second = d.s0 + d.s1, d.s0 + d.s2
    return cap * dot(d, d) + 2.0 * kappa * (first * first + second * second)


@helper
def add_table(w: Array, pair: Pair, step: float, d: Four) -> None:
    """Add ``step·d`` to the weights of a pair."""
    w[pair.table + pair.truth] += step * d.s0
    w[pair.table + (1 ^ pair.truth)] += step * d.s1
    w[pair.table + (2 ^ pair.truth)] += step * d.s2
    w[pair.table + (3 ^ pair.truth)] += step * d.s3


@helper
def add_sums(sums: Array, pair: Pair, d: Four) -> None:
    """Add the marginals of a pair to the sums of its variables."""
    sums[pair.first] += d.s0 + d.s1
    sums[pair.first_wrong] += d.s2 + d.s3
    sums[pair.second] += d.s0 + d.s2
    sums[pair.second_wrong] += d.s1 + d.s3


@helper
def visit_pairs(
    kind: BinaryPairs, problem: Any, dual: Dual, i: int, first: int, end: int, scratch: Scratch
) -> float:
    """A projected step of each of some pairs whose gap is at least ``least``; the gain."""
    graph, cap, w = topology(problem.graphs, problem.graph[i]), dual.cap[i], dual.w
    block, kappa = dual.blocks.block_at[i] + graph.n_states.shape[0], dual.kappa
    gain = 0.0
    for c in range(first, end):
        if dual.gaps[block + c] < dual.least:
            continue
        pair = locate_pair(problem, dual, graph, i, c)
        mu = load_pair(dual.mass, pair)
        first_apart = mu.s0 + mu.s1 - dual.mu[pair.first]
        second_apart = mu.s0 + mu.s2 - dual.mu[pair.second]
        theta = subtract_messages(pair_table(w, pair), kappa * first_apart, kappa * second_apart)
        if dual.centre.shape[0] > 0:
            theta = difference(theta, centre_of_pair(problem, dual, i, c, pair))
        gap = largest(theta) - dot(theta, mu)
        dual.gaps[block + c] = cap * max(gap, 0.0)
        if gap <= 0.0:
            continue
        d = difference(store_pair(dual.mass, pair, project_pair(mu, theta, cap, kappa)), mu)
        if cap > 0.0:
            add_table(w, pair, -cap, d)
        add_sums(dual.sums, pair, d)
        gain += dot(theta, d) - 0.5 * bend_pair(d, cap, kappa)
    return cap * gain


@helper
def evaluate_pairs(
    kind: BinaryPairs, problem: Any, dual: Dual, i: int, scratch: Scratch
) -> tuple[float, float, float]:
    """Sums over the pairs of example i; their gaps, and their marginals added to ``sums``."""
    graph, cap, w = topology(problem.graphs, problem.graph[i]), dual.cap[i], dual.w
    block, kappa = dual.blocks.block_at[i] + graph.n_states.shape[0], dual.kappa
    hinge = penalty = centred = 0.0
    for c in range(graph.scope_start.shape[0] - 1):
        pair = locate_pair(problem, dual, graph, i, c)
        mu = load_pair(dual.mass, pair)
        table = pair_table(w, pair)
        first = mu.s0 + mu.s1 - dual.mu[pair.first]
        second = mu.s0 + mu.s2 - dual.mu[pair.second]
        theta = subtract_messages(table, kappa * first, kappa * second)
        if dual.centre.shape[0] > 0:
            own = centre_of_pair(problem, dual, i, c, pair)
            # δ̄·e with e = ±first, ±second: differences of the centre's sums.
            centred -= first * (own.s0 - own.s2) + second * (own.s0 - own.s1)
            theta = difference(theta, own)
        best = largest(theta)
        hinge += best - table.s0
        penalty += 2.0 * (first * first + second * second)
        dual.gaps[block + c] = cap * max(best - dot(theta, mu), 0.0)
        add_sums(dual.sums, pair, mu)
    return hinge, penalty, centred


@helper
def add_pairs(
    kind: BinaryPairs, problem: Any, dual: Dual, i: int, coupled: bool, scratch: Scratch
) -> None:
    """``w += Ψμ`` for the pairs of example i; ``coupled``: ``w += Ψ(μ' − μ)``, μ' a coupling."""
    graph, cap, w = topology(problem.graphs, problem.graph[i]), dual.cap[i], dual.w
    for c in range(graph.scope_start.shape[0] - 1):
        pair = locate_pair(problem, dual, graph, i, c)
        mu = load_pair(dual.mass, pair)
        if coupled:
            add_table(w, pair, -cap, difference(couple_pair(mu, dual.mu, pair), mu))
        else:
            add_table(w, pair, -cap, Four(mu.s0 - 1.0, mu.s1, mu.s2, mu.s3))


@helper
def factor_down_to(share: float, target: float) -> float:
    """What a share is multiplied with so that it does not exceed its target."""
    return target / share if share > target else 1.0


@helper
def couple_pair(mu: Four, variables: Array, pair: Pair) -> Four:
    """A coupling of the marginals of the two variables, near those of the pair."""
    first, first_wrong = variables[pair.first], variables[pair.first_wrong]
    second, second_wrong = variables[pair.second], variables[pair.second_wrong]
    right, wrong = factor_down_to(mu.s0 + mu.s1, first), factor_down_to(mu.s2 + mu.s3, first_wrong)
    s0, s1, s2, s3 = right * mu.s0, right * mu.s1, wrong * mu.s2, wrong * mu.s3
    right, wrong = factor_down_to(s0 + s2, second), factor_down_to(s1 + s3, second_wrong)
    s0, s1, s2, s3 = right * s0, wrong * s1, right * s2, wrong * s3
    a, a_wrong = max(first - s0 - s1, 0.0), max(first_wrong - s2 - s3, 0.0)
    b, b_wrong = max(second - s0 - s2, 0.0), max(second_wrong - s1 - s3, 0.0)
    total = b + b_wrong
    if a + a_wrong <= 0.0 or total <= 0.0:
        return Four(s0, s1, s2, s3)
    share = 1.0 / (a + a_wrong)  # both totals are the same but for rounding
    return Four(
        s0 + share * a * b,
        s1 + share * a * b_wrong,
        s2 + share * a_wrong * b,
        s3 + share * a_wrong * b_wrong,
    )


class Units(NamedTuple):
    """Blocks that are visited together; those of unit k end where k + 1 begins."""

    starts: Array  # int64
    owners: Array  # int32: the example of each


#: Kernels contain what one kind of factors needs.
visit_factors = by_table({AnyFactors: any_factors.visit_factors, BinaryPairs: visit_pairs})
evaluate_factors = by_table({AnyFactors: any_factors.evaluate_factors, BinaryPairs: evaluate_pairs})
add_factors = by_table({AnyFactors: any_factors.add_factors, BinaryPairs: add_pairs})


@helper
def evaluate_example(problem: Any, dual: Dual, i: int, scratch: Scratch, out: Array) -> None:
    """Sums over the blocks of example i, and the gap of each of them.

    ``out`` gets ``Σ max θ̂`` relative to the truth, ``Σ μ·l``, ``Σ ‖μ_c^v − μ_v‖²``,
    ``Σ δ̄·(μ_v − μ_c^v)`` and how many variables are fractional.
    """
    blocks = dual.blocks
    graph = topology(problem.graphs, problem.graph[i])
    n_variables = graph.n_states.shape[0]
    dual.sums[blocks.unary_at[i] : blocks.unary_at[i + 1]] = 0.0
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
    out[HINGE], out[LINEAR], out[PENALTY] = hinge, linear, penalty
    out[CENTRE], out[FRACTIONAL] = centred, fractional


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
        n = problem.offsets[i + 1] - problem.offsets[i]
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
        dual.centre_sums[unary : blocks.unary_at[i + 1]] = 0.0
        for c in range(graph.scope_start.shape[0] - 1):
            size = table_size(graph, c)
            truth = graph_blocks.true_joint(problem, graph, i, c)
            any_factors.load_masses(dual, problem, i, c, size, truth, scratch.now)
            stride = size
            for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
                v, n, stride = next_place(graph, p, stride)
                marginal(scratch.now, size, n, stride, scratch.margins, 0)
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
    """Cut all blocks into units: their first blocks and examples; how many there are.

    A unit is an example of up to ``together`` blocks; of a larger one a run of variables that share
    a row of features, or ``together`` factors; one block where ``together`` is 0.
    """
    count = 0
    for i in range(blocks.block_at.shape[0] - 1):
        n = problem.offsets[i + 1] - problem.offsets[i]
        end = blocks.block_at[i + 1] - blocks.block_at[i]
        b = 0
        while b < end:
            starts[count], owners[count] = blocks.block_at[i] + b, i
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
        n = problem.offsets[i + 1] - problem.offsets[i]
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
