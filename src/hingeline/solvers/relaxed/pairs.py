"""Graphs of binary variables and pairs without features: steps and messages in closed form.

Such graphs (multi-label) have thousands of small blocks, so that loops over the states and places
of a factor cost more than what they compute. Everything here is what
:mod:`hingeline.solvers.relaxed.blocks` and :mod:`hingeline.solvers.relaxed.messages` compute for
factors in general, up to rounding.

Soft constraints: the four joint states of a pair are numbers in registers. They are counted from
the truth: state ``s`` below is the joint state ``s ^ truth``, so that 0 is the true one, 1 and 2
have the second and the first variable wrong, 3 has both. Messages of a binary variable are opposite
numbers: one is enough, that of the true state.

Messages and weights in turn: factor c has its scores from ``4c`` on in its table and in the
messages of the example, variable v its beliefs from ``2v`` on.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from hingeline._checks import Array
from hingeline._jit import helper
from hingeline.inference.factor_graph import Topology, topology
from hingeline.solvers.relaxed.blocks import Dual, Scratch
from hingeline.solvers.relaxed.messages import Tables, normalise
from hingeline.structures.graph_blocks import BinaryPairs, place_messages


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
    labels = problem.node_offset[i]
    true_a, true_b = problem.labels[labels + a], problem.labels[labels + b]
    at_a, at_b = blocks.unary_at[i] + 2 * a, blocks.unary_at[i] + 2 * b
    return Pair(
        2 * true_a + true_b,
        at_a + true_a,
        at_a + 1 - true_a,
        at_b + true_b,
        at_b + 1 - true_b,
        blocks.mass_at[i] + 3 * c,
        problem.factor_table[problem.graphs.factor_ptr[problem.graph[i]] + c],
    )


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
    a = place_messages(dual.blocks, problem, i, 2 * c)
    b = place_messages(dual.blocks, problem, i, 2 * c + 1)
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
def visit_factors(
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
        theta = subtract_messages(
            pair_table(w, pair),
            kappa * (mu.s0 + mu.s1 - dual.mu[pair.first]),
            kappa * (mu.s0 + mu.s2 - dual.mu[pair.second]),
        )
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
def evaluate_factors(
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
def add_factors(
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


@helper
def fill_pairs(
    problem: Any, i: int, w: Array, total: float, stored: Array, messages: Array, room: Tables
) -> None:
    """Messages in full precision, beliefs with them, and scores of factors less them."""
    graph = topology(problem.graphs, problem.graph[i])
    beliefs, tables = room.beliefs, room.values
    first = problem.graphs.factor_ptr[problem.graph[i]]
    scale = 1.0 / total
    for c in range(graph.scope_start.shape[0] - 1):
        k = 4 * c
        for s in range(4):
            messages[k + s] = stored[k + s]
        v, u = 2 * graph.scope[2 * c], 2 * graph.scope[2 * c + 1]
        for s in range(2):
            beliefs[v + s] += messages[k + s]
            beliefs[u + s] += messages[k + 2 + s]
        t = problem.factor_table[first + c]
        for s in range(4):
            tables[k + s] = w[t + s] * scale - messages[k + s // 2] - messages[k + 2 + s % 2]


@helper
def soft_max(a: float, b: float, epsilon: float) -> float:
    """``ε log(exp(a/ε) + exp(b/ε))``, or the larger one where ε is 0."""
    top = max(a, b)
    if epsilon > 0.0:
        top += epsilon * math.log1p(math.exp(-abs(a - b) / epsilon))
    return top


@helper
def descend_pairs(graph: Topology, epsilon: float, messages: Array, room: Tables) -> None:
    """One round over the variables: ``descend_variables`` for binary pairs."""
    beliefs, tables, margins = room.beliefs, room.values, room.margins
    for v in range(graph.n_states.shape[0]):
        begin, end = graph.incident_start[v], graph.incident_start[v + 1]
        sum0, sum1 = beliefs[2 * v], beliefs[2 * v + 1]
        at = 0
        for q in range(begin, end):
            k = 4 * graph.incident[q]
            # Joint states (0, 0), (0, 1), (1, 0), (1, 1): v is the first or the second.
            a = 1 + graph.slot[q]
            m0 = soft_max(tables[k], tables[k + a], epsilon)
            m1 = soft_max(tables[k + 3 - a], tables[k + 3], epsilon)
            margins[at] = m0
            margins[at + 1] = m1
            sum0 += m0
            sum1 += m1
            at += 2
        share = 1.0 / (1.0 + (end - begin))
        mean0, mean1 = sum0 * share, sum1 * share
        at = 0
        for q in range(begin, end):
            k = 4 * graph.incident[q]
            step0, step1 = margins[at] - mean0, margins[at + 1] - mean1
            at += 2
            a = 1 + graph.slot[q]
            messages[k + 2 * a - 2] += step0
            messages[k + 2 * a - 1] += step1
            tables[k] -= step0
            tables[k + a] -= step0
            tables[k + 3 - a] -= step1
            tables[k + 3] -= step1
        beliefs[2 * v], beliefs[2 * v + 1] = mean0, mean1


@helper
def choose_pairs(
    problem: Any, graph: Topology, i: int, epsilon: float, tied: float, states: Array, tables: Array
) -> None:
    """Scores of all factors to best joint states or soft shares, less the truth."""
    labels = problem.node_offset[i]
    for c in range(graph.scope_start.shape[0] - 1):
        k = 4 * c
        v, u = graph.scope[2 * c], graph.scope[2 * c + 1]
        if epsilon > 0.0:
            normalise(tables, k, 4, epsilon)
        else:
            top = max(max(tables[k], tables[k + 1]), max(tables[k + 2], tables[k + 3]))
            least = top - tied * (1.0 + abs(top))
            best, most = 0, -1
            for s in range(4):
                same = (1 if s >> 1 == states[v] else 0) + (1 if s & 1 == states[u] else 0)
                if tables[k + s] >= least and same > most:
                    best, most = s, same
            for s in range(4):
                tables[k + s] = 0.0
            tables[k + best] = 1.0
        tables[k + 2 * problem.labels[labels + v] + problem.labels[labels + u]] -= 1.0
