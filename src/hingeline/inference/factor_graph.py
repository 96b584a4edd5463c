"""Factor graphs as the inference kernels see them: who touches whom, and where the scores are.

Variables ``0 … n−1`` have ``n_states`` values each; factors ``0 … m−1`` are tables over small
sets of variables. The score of an assignment is

    Σ_i unary[unary_start[i] + y_i] + Σ_c tables[table_start[c] + index_c(y)]

where ``index_c`` counts the joint states of the factor's variables in C order, the last variable
fastest. ``table_start`` may point several factors at one table, so that factors without features
read the weights themselves and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hingeline._jit import helper, strict_helper

Array = np.ndarray[Any, Any]


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
def joint_index(graph: Topology, c: int, y: Array) -> int:
    """Place of the assignment in the table of factor c."""
    index = 0
    for p in range(graph.scope_start[c], graph.scope_start[c + 1]):
        i = graph.scope[p]
        index = index * graph.n_states[i] + y[i]
    return index


@strict_helper
def assignment_score(scored: Scored, y: Array) -> float:
    """Score of an assignment: the same bits for every caller, so that bounds can be met."""
    total = 0.0
    unary, tables, table_start = scored.unary, scored.tables, scored.table_start
    graph = scored.graph
    n_states = graph.n_states
    unary_start = graph.unary_start
    scope_start = graph.scope_start
    scope = graph.scope
    for i in range(n_states.shape[0]):
        total += unary[unary_start[i] + y[i]]
    for c in range(scope_start.shape[0] - 1):
        index = 0
        for p in range(scope_start[c], scope_start[c + 1]):
            i = scope[p]
            index = index * n_states[i] + y[i]
        total += tables[table_start[c] + index]
    return total


def make_topology(n_states: Any, scopes: Sequence[Sequence[int]] | Array) -> Topology:
    """Lay out one graph.

    Parameters
    ----------
    n_states : array-like of int
        Values each variable can take.
    scopes : sequence of sequences of int, or ndarray of shape (m, k)
        The variables of each factor; pairs for edges.
    """
    states = np.ascontiguousarray(n_states, dtype=np.int32)
    if isinstance(scopes, np.ndarray):
        lengths = np.full(len(scopes), scopes.shape[1] if scopes.ndim == 2 else 0)
        flat = np.ascontiguousarray(scopes, dtype=np.int32).ravel()
    else:
        lengths = np.array([len(scope) for scope in scopes], dtype=np.int64)
        flat = np.array([i for scope in scopes for i in scope], dtype=np.int32)
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

    def flat(name: str) -> Array:
        return np.concatenate([getattr(graph, name) for graph in graphs])

    return Topologies(
        node_ptr=starts_of(np.array([len(graph.n_states) for graph in graphs])),
        factor_ptr=starts_of(np.array([len(graph.scope_start) - 1 for graph in graphs])),
        scope_ptr=starts_of(np.array([len(graph.scope) for graph in graphs])),
        n_states=flat("n_states"),
        unary_start=flat("unary_start"),
        scope_start=flat("scope_start"),
        incident_start=flat("incident_start"),
        scope=flat("scope"),
        incident=flat("incident"),
        slot=flat("slot"),
    )


def starts_of(sizes: Array) -> Array:
    """Where pieces of these sizes begin, one after the other, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


# What graphs are like, each of them ------------------------------------------------------------


def are_forests(graphs: Topologies) -> Array:
    """Whether the graph of variables and factors has no cycle: nodes less links are components."""
    variables, factors = np.diff(graphs.node_ptr), np.diff(graphs.factor_ptr)
    count = len(variables)
    orders = _orders(graphs)
    n = int(variables.sum())
    places = np.diff(graphs.scope_ptr)
    ends = np.repeat(graphs.node_ptr[:-1], places) + graphs.scope
    owners = n + np.repeat(np.arange(len(orders)), orders)
    nodes = n + len(orders)
    links = coo_array((np.ones(len(ends), dtype=np.int8), (ends, owners)), shape=(nodes, nodes))
    _, component = connected_components(links, directed=False)
    graph = np.concatenate([np.repeat(np.arange(count), sizes) for sizes in (variables, factors)])
    _, first = np.unique(component, return_index=True)
    components = np.bincount(graph[first], minlength=count)
    return np.asarray(variables + factors - places == components)


def are_binary_pairs(graphs: Topologies) -> Array:
    """Whether all variables are binary and no factor joins more than two."""
    count = len(graphs.node_ptr) - 1
    node = np.repeat(np.arange(count), np.diff(graphs.node_ptr))[graphs.n_states != 2]
    factor = np.repeat(np.arange(count), np.diff(graphs.factor_ptr))[_orders(graphs) > 2]
    fine = np.ones(count, dtype=np.bool_)
    fine[node] = fine[factor] = False
    return fine


def log2_assignments(graphs: Topologies) -> Array:
    """Binary logarithm of the number of assignments."""
    logs = np.concatenate(([0.0], np.cumsum(np.log2(graphs.n_states))))
    return np.asarray(np.diff(logs[graphs.node_ptr]))


def _orders(graphs: Topologies) -> Array:
    """Variables of each factor; ``scope_start`` has one entry more for each graph."""
    last = graphs.factor_ptr[1:-1] + np.arange(len(graphs.factor_ptr) - 2)
    return np.delete(np.diff(graphs.scope_start), last)
