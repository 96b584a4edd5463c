"""Factor graphs as the inference kernels see them: who touches whom, and where the scores are.

Variables ``0 … n−1`` have ``n_states`` values each; factors ``0 … m−1`` are tables over small
sets of variables. The score of an assignment is

    Σ_i unary[unary_start[i] + y_i] + Σ_c tables[table_start[c] + index_c(y)]

where ``index_c`` counts the joint states of the factor's variables in C order, the last variable
fastest. ``table_start`` may point several factors at one table, so that factors without features
read the weights themselves and nothing is copied.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hingeline._checks import Array
from hingeline._jit import helper, strict_helper
from hingeline._simd import largest
from hingeline.core.blocks import spread

#: Single changes must gain more than this, relative to the scores compared, so that ties end.
GAIN = 1e-13


class Topology(NamedTuple):
    """One graph; every index is local to it."""

    n_states: Array  # (n,) int32
    unary_start: Array  # (n + 1,) int64: entries of a variable in vectors over (variable, state)
    scope_start: Array  # (m + 1,) int64
    scope: Array  # int32: the variables of each factor
    incident_start: Array  # (n + 1,) int64
    incident: Array  # int32: the factors of each variable
    slot: Array  # int32: the variable's place in the scope of that factor


class Scored(NamedTuple):
    """A graph with its scores, float64."""

    graph: Topology
    unary: Array  # over (variable, state)
    tables: Array
    table_start: Array  # (m,) int64: where the table of each factor begins


class Topologies(NamedTuple):
    """Graphs one after the other; :func:`topology` gives views of one of them."""

    node_ptr: Array  # (graphs + 1,) int64
    factor_ptr: Array  # (graphs + 1,) int64
    scope_ptr: Array  # (graphs + 1,) int64
    n_states: Array
    unary_start: Array  # one entry more for each graph, as the next two
    scope_start: Array
    incident_start: Array
    scope: Array
    incident: Array
    slot: Array


@helper
def topology(graphs: Topologies, g: int) -> Topology:
    """Graph g, as views."""
    a, b = graphs.node_ptr[g], graphs.node_ptr[g + 1]
    c, d = graphs.factor_ptr[g], graphs.factor_ptr[g + 1]
    e, f = graphs.scope_ptr[g], graphs.scope_ptr[g + 1]
    return Topology(
        graphs.n_states[a:b],
        graphs.unary_start[a + g : b + g + 1],
        graphs.scope_start[c + g : d + g + 1],
        graphs.scope[e:f],
        graphs.incident_start[a + g : b + g + 1],
        graphs.incident[e:f],
        graphs.slot[e:f],
    )


@helper
def table_size(graph: Topology, c: int) -> int:
    """Joint states of factor c."""
    size = 1
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        size *= graph.n_states[graph.scope[p]]
    return size


@helper
def next_place(graph: Topology, p: int, stride: int) -> tuple[int, int, int]:
    """Variable at place p of all scopes, its states, and their stride after that of the last."""
    v = graph.scope[p]
    n = graph.n_states[v]
    return v, n, stride // n


@helper
def joint_index(graph: Topology, c: int, y: Array) -> int:
    """Place of the assignment in the table of factor c."""
    index = 0
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        i = graph.scope[p]
        index = index * graph.n_states[i] + y[i]
    return index


# Tables of values over the joint states of a factor; strides of variables are as of C order.


@helper
def add_message(
    values: Array, size: int, states: int, stride: int, message: Array, at: int, step: float
) -> None:
    """``values[y] += step·message[at + y_slot]`` over joint states."""
    for outer in range(0, size, states * stride):
        for s in range(states):
            x = step * message[at + s]
            first = outer + s * stride
            for k in range(first, first + stride):
                values[k] += x


@helper
def marginal(values: Array, size: int, states: int, stride: int, out: Array, at: int) -> None:
    """``out[at + s]`` sums ``values`` over the joint states with ``y_slot = s``."""
    for s in range(states):
        out[at + s] = 0.0
    for outer in range(0, size, states * stride):
        for s in range(states):
            first = outer + s * stride
            total = 0.0
            for k in range(first, first + stride):
                total += values[k]
            out[at + s] += total


@helper
def max_marginal(
    values: Array, first: int, end: int, states: int, stride: int, out: Array, at: int
) -> None:
    """``out[at + s]``: the largest of a table's values over joint states with ``y_slot = s``."""
    # A range with a step costs a division, more than the rest where tables are 2 by 2.
    for s in range(states):
        best, outer = -np.inf, first + s * stride
        while outer < end:
            for k in range(outer, outer + stride):
                best = max(best, values[k])
            outer += states * stride
        out[at + s] = best


@helper
def most_states(graph: Topology) -> int:
    """Largest number of states of a variable."""
    most = 1
    for i in range(graph.n_states.shape[0]):
        most = max(most, graph.n_states[i])
    return most


@helper
def top_sum(graph: Topology, beliefs: Array, y: Array) -> float:
    """``Σ_i max_s b_i(s)``, the maximisers in ``y``."""
    total = 0.0
    for i in range(graph.n_states.shape[0]):
        first = graph.unary_start[i]
        best = largest(beliefs, first, graph.n_states[i])
        y[i] = best
        total += beliefs[first + best]
    return total


@strict_helper
def measure(scored: Scored, y: Array) -> tuple[float, float]:
    """Score of an assignment, and the sum of its parts without signs: what rounding is a share of.

    The same bits for every caller, so that bounds can be met.
    """
    total, size = 0.0, 0.0
    graph = scored.graph
    for i in range(graph.n_states.shape[0]):
        part = scored.unary[graph.unary_start[i] + y[i]]
        total += part
        size += abs(part)
    for c in range(graph.scope_start.shape[0] - 1):
        part = scored.tables[scored.table_start[c] + joint_index(graph, c, y)]
        total += part
        size += abs(part)
    return total, size


@strict_helper
def assignment_score(scored: Scored, y: Array) -> float:
    """Score of an assignment."""
    return measure(scored, y)[0]


@helper
def meets(scored: Scored, y: Array, bound: float, share: float) -> bool:
    """Whether a bound is the score of an assignment, but for a share of the size of the scores."""
    score, size = measure(scored, y)
    return bound - score <= share * max(size, abs(bound))


# Iterated conditional modes: one variable at a time takes its best value given the others. The
# score never falls, and in the end no change of a single variable raises it. Nothing is said about
# the distance from the maximum; this is how roundings of relaxations are improved.


@helper
def conditional_scores(scored: Scored, i: int, y: Array, out: Array) -> None:
    """``out[s]``: what depends on variable i where it takes the value s and the others are y."""
    graph = scored.graph
    unary, tables, table_start = scored.unary, scored.tables, scored.table_start
    n_states, first = graph.n_states[i], graph.unary_start[i]
    for s in range(n_states):
        out[s] = unary[first + s]
    for p in range(graph.incident_start[i], graph.incident_start[i + 1]):
        c = graph.incident[p]
        start, end = graph.scope_start[c], graph.scope_start[c + 1]
        here = start + graph.slot[p]
        at, stride, own = table_start[c], 1, 1
        for q in range(end - 1, start - 1, -1):
            j = graph.scope[q]
            if q == here:
                own = stride
            else:
                at += stride * y[j]
            stride *= graph.n_states[j]
        for s in range(n_states):
            out[s] += tables[at + s * own]


@helper
def improve(scored: Scored, y: Array, max_sweeps: int) -> None:
    """Improve ``y`` in place until no single change helps."""
    graph = scored.graph
    n = graph.n_states.shape[0]
    scores = np.empty(most_states(graph))
    quiet = 0  # variables in a row that stayed
    for visit in range(max_sweeps * n):
        i = visit % n
        conditional_scores(scored, i, y, scores)
        best = y[i]
        for s in range(graph.n_states[i]):
            if scores[s] > scores[best]:
                best = s
        gain = scores[best] - scores[y[i]]
        if gain > GAIN * (abs(scores[best]) + abs(scores[y[i]])):
            y[i] = best
            quiet = 0
        else:
            quiet += 1
            if quiet == n:
                break


def make_topology(n_states: Any, scopes: Sequence[Sequence[int]] | Array) -> Topology:
    """One graph of variables with so many states; ``scopes`` are the variables of each factor."""
    states = np.ascontiguousarray(n_states, dtype=np.int32)
    if isinstance(scopes, np.ndarray):
        lengths = np.full(len(scopes), scopes.shape[1] if scopes.ndim == 2 else 0)
        flat = np.ascontiguousarray(scopes, dtype=np.int32).ravel()
    else:
        lengths = np.array([len(scope) for scope in scopes], dtype=np.int64)
        flat = np.array([i for scope in scopes for i in scope], dtype=np.int32)
    return _link(states, lengths, flat)


def _link(states: Array, lengths: Array, flat: Array) -> Topology:
    """A graph whose factors join so many variables, ``flat`` one after the other."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    starts = starts_of(lengths)
    order = np.argsort(flat, kind="stable")
    return Topology(
        n_states=states,
        unary_start=starts_of(states),
        scope_start=starts,
        scope=flat,
        incident_start=starts_of(np.bincount(flat, minlength=len(states))),
        incident=owner[order].astype(np.int32),
        slot=(order - starts[owner[order]]).astype(np.int32),
    )


def join(graphs: Sequence[Topology]) -> Topologies:
    """Graphs one after the other."""
    tables = zip(Topology._fields, zip(*graphs, strict=True), strict=True)
    return Topologies(
        node_ptr=starts_of(np.array([len(graph.n_states) for graph in graphs])),
        factor_ptr=starts_of(np.array([len(graph.scope_start) - 1 for graph in graphs])),
        scope_ptr=starts_of(np.array([len(graph.scope) for graph in graphs])),
        **{name: np.concatenate(parts) for name, parts in tables},
    )


def split(graphs: Topologies) -> tuple[Topologies, Array, Array]:
    """Connected parts as graphs of their own; the order of variables and of factors in them."""
    n, orders = len(graphs.n_states), factor_orders(graphs)
    count, component = _find_components(graphs)
    variables, factors = (np.argsort(own, kind="stable") for own in np.split(component, [n]))
    number = np.empty(n, dtype=np.int64)
    number[variables] = np.arange(n)
    places = spread(starts_of(orders)[factors], orders[factors])
    ends = number[places_of_scopes(graphs)[places]].astype(np.int32)
    whole = _link(graphs.n_states[variables], orders[factors], ends)
    node, factor = (starts_of(np.bincount(c, minlength=count)) for c in np.split(component, [n]))
    scope = whole.scope_start[factor]

    def restart(starts: Array, ptr: Array) -> Array:
        sizes = np.diff(ptr) + 1
        return starts[spread(ptr[:-1], sizes)] - np.repeat(starts[ptr[:-1]], sizes)

    found = whole._asdict() | {
        "unary_start": restart(whole.unary_start, node),
        "scope_start": restart(whole.scope_start, factor),
        "incident_start": restart(whole.incident_start, node),
        "scope": whole.scope - np.repeat(node[:-1], np.diff(scope)).astype(np.int32),
        "incident": whole.incident - np.repeat(factor[:-1], np.diff(scope)).astype(np.int32),
    }
    return Topologies(node, factor, scope, **found), variables, factors


def starts_of(sizes: Array) -> Array:
    """Where pieces of these sizes begin, one after the other, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _find_components(graphs: Topologies) -> tuple[int, Array]:
    """How many connected parts there are, and which one each variable and each factor is in."""
    orders, ends = factor_orders(graphs), places_of_scopes(graphs)
    n = len(graphs.n_states)
    owners = n + np.repeat(np.arange(len(orders)), orders)
    nodes = n + len(orders)
    links = coo_array((np.ones(len(ends), dtype=np.int8), (ends, owners)), shape=(nodes, nodes))
    count, component = connected_components(links, directed=False)
    return int(count), component


def are_forests(graphs: Topologies) -> Array:
    """Whether the graph of variables and factors has no cycle: nodes less links are components."""
    variables, factors = np.diff(graphs.node_ptr), np.diff(graphs.factor_ptr)
    count = len(variables)
    _, component = _find_components(graphs)
    graph = np.concatenate([np.repeat(np.arange(count), sizes) for sizes in (variables, factors)])
    _, first = np.unique(component, return_index=True)
    components = np.bincount(graph[first], minlength=count)
    return np.asarray(variables + factors - np.diff(graphs.scope_ptr) == components)


def are_binary_pairs(graphs: Topologies) -> Array:
    """Whether all variables are binary and no factor joins more than two."""
    count = len(graphs.node_ptr) - 1
    node = np.repeat(np.arange(count), np.diff(graphs.node_ptr))[graphs.n_states != 2]
    factor = np.repeat(np.arange(count), np.diff(graphs.factor_ptr))[factor_orders(graphs) > 2]
    fine = np.ones(count, dtype=np.bool_)
    fine[node] = fine[factor] = False
    return fine


def log2_assignments(graphs: Topologies) -> Array:
    """Binary logarithm of the number of assignments."""
    logs = np.concatenate(([0.0], np.cumsum(np.log2(graphs.n_states))))
    return np.asarray(np.diff(logs[graphs.node_ptr]))


def places_of_scopes(graphs: Topologies) -> Array:
    """The variables of all scopes, counted over all graphs."""
    return np.asarray(np.repeat(graphs.node_ptr[:-1], np.diff(graphs.scope_ptr)) + graphs.scope)


def factor_orders(graphs: Topologies) -> Array:
    """Variables of each factor; ``scope_start`` has one entry more for each graph."""
    last = graphs.factor_ptr[1:-1] + np.arange(len(graphs.factor_ptr) - 2)
    return np.delete(np.diff(graphs.scope_start), last)
