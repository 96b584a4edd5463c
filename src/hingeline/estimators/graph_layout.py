"""Graphs of a user, checked and laid out as one problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hingeline.data.graph import Graph
from hingeline.estimators.sequences import stack_sequences
from hingeline.estimators.weight_blocks import Block
from hingeline.inference.factor_graph import join, make_topology
from hingeline.structures import graph
from hingeline.structures.graph_problem import padded_columns

Array = np.ndarray[Any, Any]


class Templates(NamedTuple):
    """Which weights there are."""

    n_features: int  # the constant one included
    n_states: int
    node_types: int
    edge_types: int
    edge_features: int  # 0: edges have the constant 1
    factors: dict[str, int]  # name -> order

    @property
    def layout(self) -> dict[str, Block]:
        """Places of the blocks of weights; unary ones by feature, tables row by row."""
        k = self.n_states
        columns = self.node_types * k
        stride = padded_columns(columns)
        found = {"unary": Block(0, self.n_features, columns, stride)}
        at = self.n_features * stride
        pairs = self.edge_types * max(1, self.edge_features)
        found["pairwise"] = Block(at, pairs, k * k, k * k)
        at += pairs * k * k
        for name, order in self.factors.items():
            found[f"factor/{name}"] = Block(at, 1, k**order, k**order)
            at += k**order
        return found


def check_graphs(X: Any) -> list[Graph]:
    """A list of graphs with the same features."""
    if isinstance(X, Graph):
        raise TypeError("X is one Graph: pass a list of graphs, [graph].")
    if not isinstance(X, (Sequence, np.ndarray)) or isinstance(X, (str, bytes)):
        raise TypeError(f"X must be a list of hingeline.Graph, got {type(X).__name__}.")
    if len(X) == 0:
        raise ValueError("X is empty: there are no graphs.")
    for i, x in enumerate(X):
        if not isinstance(x, Graph):
            raise TypeError(
                f"X[{i}] is a {type(x).__name__}, expected a hingeline.Graph: "
                "Graph(node_features, edges)."
            )
        width = x.node_features.shape[1]
        if width != X[0].node_features.shape[1]:
            raise ValueError(
                f"X[{i}] has {width} node features, but X[0] has "
                f"{X[0].node_features.shape[1]}: all graphs must have the same features."
            )
    return list(X)


def node_matrix(graphs: list[Graph]) -> tuple[sp.csr_matrix, Array]:
    """Features of all nodes, and the offsets of the graphs."""
    return stack_sequences([x.node_features for x in graphs])


def _edge_width(graphs: list[Graph]) -> int:
    """Features of edges, the same for all that have edges; 0 where they have none."""
    seen: tuple[int, int] | None = None
    for i, x in enumerate(graphs):
        if x.edge_features is not None:
            width = x.edge_features.shape[1]
        elif x.n_edges == 0:
            continue
        else:
            width = 0
        if seen is not None and seen[1] != width:
            raise ValueError(
                f"X[{i}] has {width} edge features, but X[{seen[0]}] has {seen[1]}: all graphs "
                "must have the same features."
            )
        seen = seen or (i, width)
    return 0 if seen is None else seen[1]


def find_templates(graphs: list[Graph], n_features: int, n_states: int) -> Templates:
    """The weights that these graphs ask for."""
    factors: dict[str, int] = {}
    for i, x in enumerate(graphs):
        for name, scopes in x.factors.items():
            if scopes.shape[1] and factors.setdefault(name, scopes.shape[1]) != scopes.shape[1]:
                raise ValueError(
                    f"X[{i}].factors[{name!r}] joins {scopes.shape[1]} nodes, but others of that "
                    f"name {factors[name]}: use another name."
                )

    def count(name: str) -> int:
        known = [getattr(x, name) for x in graphs if getattr(x, name) is not None]
        return 1 + max((int(types.max()) for types in known if len(types)), default=0)

    return Templates(
        n_features,
        n_states,
        count("node_types"),
        count("edge_types"),
        _edge_width(graphs),
        {name: factors[name] for name in sorted(factors)},
    )


def check_templates(graphs: list[Graph], templates: Templates) -> None:
    """Refuse graphs that ask for weights which were not trained."""
    for i, x in enumerate(graphs):
        width = 0 if x.edge_features is None else x.edge_features.shape[1]
        if x.n_edges and width != templates.edge_features:
            raise ValueError(
                f"X[{i}] has {width} edge features, but the model was fitted with "
                f"{templates.edge_features}."
            )
        for name, most in (
            ("node_types", templates.node_types),
            ("edge_types", templates.edge_types),
        ):
            types = getattr(x, name)
            if types is not None and len(types) and types.max() >= most:
                raise ValueError(
                    f"X[{i}].{name} holds {int(types.max())}, but the model knows 0 to {most - 1}."
                )
        for name, scopes in x.factors.items():
            if len(scopes) and templates.factors.get(name) != scopes.shape[1]:
                raise ValueError(
                    f"X[{i}].factors[{name!r}] joins {scopes.shape[1]} nodes, which the model was "
                    f"not fitted with; it knows {templates.factors}."
                )


def lay_out(
    graphs: list[Graph],
    matrix: sp.csr_matrix,
    templates: Templates,
    labels: Array,
    cost: Array,
    inference: int,
) -> graph.GraphProblem:
    """The problem of these graphs; ``matrix`` holds the features of their nodes."""
    k = templates.n_states
    names = list(templates.factors)
    topologies, node_types, factor_templates, values = [], [], [], []
    featured = templates.edge_features > 0
    for x in graphs:
        scopes: Any = x.edges
        kinds = [_types(x.edge_types, x.n_edges)]
        higher = [(j, x.factors[name]) for j, name in enumerate(names) if name in x.factors]
        if higher:
            scopes = [*x.edges.tolist(), *(s for _, own in higher for s in own.tolist())]
            kinds += [np.full(len(own), templates.edge_types + j) for j, own in higher]
        topologies.append(make_topology(np.full(x.n_nodes, k), scopes))
        node_types.append(_types(x.node_types, x.n_nodes))
        factor_templates.extend(kinds)
        if featured:
            if x.n_edges:
                values.append(x.edge_features.ravel())
            values.extend(np.ones(len(own)) for _, own in higher)
    widths = np.array([max(1, templates.edge_features)] * templates.edge_types + [1] * len(names))
    factor_template = np.concatenate(factor_templates)
    weights = [np.ones(x.n_nodes) if x.node_weights is None else x.node_weights for x in graphs]
    starts = np.concatenate(([0], np.cumsum(widths[factor_template])))
    return graph.make_problem(
        join(topologies),
        np.concatenate(node_types),
        factor_template,
        np.full(templates.node_types, k),
        widths,
        np.array([k * k] * templates.edge_types + [k**o for o in templates.factors.values()]),
        matrix.indptr,
        matrix.indices,
        matrix.data,
        matrix.shape[1],
        labels,
        cost,
        node_weight=np.concatenate(weights),
        factor_start=starts if featured else None,
        factor_values=np.concatenate([*values, np.empty(0)]) if featured else None,
        inference=inference,
    )


def _types(types: Array | None, count: int) -> Array:
    return np.zeros(count, dtype=np.int64) if types is None else types
