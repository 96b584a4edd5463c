"""Graphs as people have them: features of nodes, and who is joined to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hingeline._checks import Array, as_weights, numeric_rows, require


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """One graph: nodes with features, edges, and whatever else is known of them.

    Parameters
    ----------
    node_features : array-like or sparse matrix of shape (nodes, features)
    edges : array-like of int, shape (m, 2), default=()
        Pairs of nodes, each pair once. The order of the two nodes matters: scores of a pair of
        labels are not symmetric.
    edge_features : array-like of shape (m, edge features), optional
        Each weighs a table of its own over pairs of labels. Without them an edge has the
        constant 1; beside others, put a column of ones where that is wanted.
    node_weights : array-like of shape (nodes,), optional
        What a wrong label costs there, e.g. the pixels of a superpixel; 1 by default.
    node_types, edge_types : array-like of int, optional
        Nodes and edges of different types have weights of their own; all are 0 by default.
    factors : dict of {name: array-like of int, shape (count, order)}, optional
        Sets of nodes that are scored together, by a table over all combinations of their labels;
        those under one name share it.

    Examples
    --------
    >>> from hingeline import Graph
    >>> Graph([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], edges=[(0, 1), (1, 2)])
    Graph(3 nodes, 2 features, 2 edges)
    """

    node_features: Any
    edges: Any = ()
    edge_features: Any = None
    node_weights: Any = None
    node_types: Any = None
    edge_types: Any = None
    factors: Any = None

    def __post_init__(self) -> None:
        features = numeric_rows(self.node_features, "node_features")
        n = features.shape[0]
        require(n != 0, "node_features has no rows: a graph needs at least one node.")
        edges = check_pairs(self.edges, "edges", n)
        self._set("node_features", features)
        self._set("edges", edges)
        if self.edge_features is not None:
            own = numeric_rows(self.edge_features, "edge_features")
            own = own.toarray() if sp.issparse(own) else own
            what = f"edge_features has {len(own)} rows, but there are {len(edges)} edges"
            require(len(own) == len(edges), f"{what}: give one row per edge.")
            self._set("edge_features", own.astype(np.float64))
        if self.node_weights is not None:
            self._set("node_weights", as_weights("node_weights", self.node_weights, n, "node"))
        for name, count in (("node_types", n), ("edge_types", len(edges))):
            if getattr(self, name) is not None:
                self._set(name, _types(getattr(self, name), name, count))
        factors = {} if self.factors is None else self.factors
        if not isinstance(factors, Mapping):
            what = f"a dict of {{name: sets of nodes}}, got {type(factors).__name__}"
            raise TypeError(f"factors must be {what}: those under one name share their weights.")
        for name in factors:
            if not isinstance(name, str):
                raise TypeError(f"factors has the name {name!r}: use text.")
        sets = ((name, _sets(v, f"factors[{name!r}]", n)) for name, v in factors.items())
        self._set("factors", dict(sets))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # frozen for everyone else

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.node_features.shape[0])

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.edges)

    def subgraph(self, kept: Any) -> Graph:
        """The graph of the nodes where ``kept`` is true, with the edges and factors among them."""
        kept = np.asarray(kept, dtype=bool)
        if kept.shape != (self.n_nodes,):
            raise ValueError(f"kept has shape {kept.shape}, but there are {self.n_nodes} nodes.")
        number = np.cumsum(kept) - 1
        whole = kept[self.edges].all(axis=1)

        def some(values: Any, chosen: Array) -> Any:
            return None if values is None else values[chosen]

        return Graph(
            self.node_features[kept],
            number[self.edges[whole]],
            some(self.edge_features, whole),
            some(self.node_weights, kept),
            some(self.node_types, kept),
            some(self.edge_types, whole),
            {name: number[s[kept[s].all(axis=1)]] for name, s in self.factors.items()},
        )

    def __repr__(self) -> str:
        width = self.node_features.shape[1]
        more = "".join(f", {len(s)} of {name!r}" for name, s in self.factors.items())
        return f"Graph({self.n_nodes} nodes, {width} features, {self.n_edges} edges{more})"


def check_pairs(values: Any, name: str, n: int, members: str = "nodes") -> Array:
    """Pairs of numbers below n, each pair once; ``members`` says what is numbered."""
    pairs = _sets(values, name, n, members, 2)
    ordered = np.sort(pairs, axis=1)
    _, first = np.unique(ordered[:, 0] * n + ordered[:, 1], return_index=True)
    if len(first) < len(pairs):
        k = int(np.setdiff1d(np.arange(len(pairs)), first)[0])
        what = f"{name}[{k}] joins {tuple(pairs[k].tolist())}, as a pair before it does"
        raise ValueError(f"{what}: give each pair once, in one direction.")
    return pairs


def _sets(values: Any, name: str, n: int, members: str = "nodes", width: int = 0) -> Array:
    """Sets of numbers below n, one a row, all different, of any ``width`` where that is 0."""
    try:
        sets = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is ragged: its rows must have the same length.") from error
    if sets.size == 0:
        return np.zeros((0, width or (sets.shape[1] if sets.ndim == 2 else 0)), dtype=np.int64)
    shape = "(m, 2)" if width == 2 else "(count, order)"
    if sets.ndim != 2 or (width and sets.shape[1] != width):
        raise ValueError(f"{name} has shape {sets.shape}, expected {shape}.")
    if sets.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {sets.dtype}, expected integers: numbers of {members}.")
    wrong = np.flatnonzero(((sets < 0) | (sets >= n)).any(axis=1))
    if len(wrong):
        k = int(wrong[0])
        what = f"{name}[{k}] is {tuple(sets[k].tolist())}"
        raise ValueError(f"{what}, but the {members} are 0 to {n - 1}.")
    ordered = np.sort(sets, axis=1)
    twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(twice):
        k = int(twice[0])
        what = f"{name}[{k}] is {tuple(sets[k].tolist())}"
        raise ValueError(f"{what}: give {members} that are different.")
    return sets.astype(np.int64)


def _types(values: Any, name: str, count: int) -> Array:
    types = np.asarray(values)
    if types.shape != (count,):
        raise ValueError(f"{name} has shape {types.shape}, expected ({count},): one each.")
    if count and (types.dtype.kind not in "iu" or types.min() < 0):
        raise TypeError(f"{name} must be integers ≥ 0.")
    return types.astype(np.int64)
