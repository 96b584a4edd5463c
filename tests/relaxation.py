"""Independent truth for relaxed graphs: the QP over weights, messages and slacks, by clarabel.

minimise ½|w|² + Σ_i c_i Σ_blocks ξ + (ρM/2) Σ_i c_i |δ_i|²     (ρ = 0: hard constraints)
ξ_v ≥ w·(φ_v(s) − φ_v(truth)) + l_v(s) + Σ_c δ_cv(s)             for all states s
ξ_c ≥ w·(φ_c(y) − φ_c(truth)) − Σ_v δ_cv(y_v)                    for all joint states y
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import clarabel  # type: ignore[import-untyped]
import numpy as np
from scipy import sparse

from hingeline.inference.factor_graph import join, make_topology
from hingeline.inference.map import LP
from hingeline.structures.graph_blocks import GraphProblem, make_problem

Floats = Any


@dataclass
class Example:
    """Plain data: scopes of factors, features of variables and of factors, labels."""

    n_states: list[int]
    scopes: list[tuple[int, ...]]
    X: Floats
    edge: Floats | None
    labels: Floats
    weight: Floats


@dataclass
class Small:
    """Examples that share one unary template and one table template per kind of scope."""

    examples: list[Example]
    cost: Floats

    def kinds(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for e in self.examples:
            for scope in e.scopes:
                kind = tuple(e.n_states[v] for v in scope)
                if kind not in found:
                    found.append(kind)
        return found

    def problem(self, inference: int = LP) -> GraphProblem:
        kinds = self.kinds()
        k = len(self.cost)
        X = np.vstack([e.X for e in self.examples])
        n, d = X.shape
        features = 1 if self.examples[0].edge is None else self.examples[0].edge.shape[1]
        templates = [
            kinds.index(tuple(e.n_states[v] for v in s)) for e in self.examples for s in e.scopes
        ]
        extra: dict[str, Any] = {}
        if self.examples[0].edge is not None:
            edges = np.vstack([e.edge for e in self.examples])
            extra = {
                "factor_start": np.arange(len(edges) + 1) * features,
                "factor_values": edges.ravel(),
            }
        return make_problem(
            join([make_topology(e.n_states, e.scopes) for e in self.examples]),
            np.zeros(n, int),
            np.array(templates, int),
            np.array([k]),
            np.full(len(kinds), features),
            np.array([int(np.prod(kind)) for kind in kinds]),
            sparse.csr_matrix((X.ravel(), np.tile(np.arange(d), n), np.arange(n + 1) * d), (n, d)),
            np.concatenate([e.labels for e in self.examples]),
            self.cost,
            node_weight=np.concatenate([e.weight for e in self.examples]),
            inference=inference,
            **extra,
        )


def random_small(
    seed: int, n: int = 4, states: int = 3, featured: bool = False, tree: bool = False
) -> Small:
    """Cycles of four variables with a chord; a triple where there are no features of factors."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(n):
        scopes: list[tuple[int, ...]] = [(0, 1), (1, 2), (3, 2)]
        if not tree:
            scopes += [(0, 3), (0, 2)]
            if not featured:
                scopes.append((1, 2, 3))
        examples.append(
            Example(
                [states] * 4,
                scopes,
                rng.normal(size=(4, 2)),
                rng.normal(size=(len(scopes), 2)) if featured else None,
                rng.integers(0, states, 4),
                rng.uniform(0.5, 1.5, 4),
            )
        )
    return Small(examples, 1.0 - np.eye(states))


def dense_small(seed: int, n: int, labels: int) -> Small:
    """Binary variables with all their pairs; each variable sees the features of the example."""
    rng = np.random.default_rng(seed)
    scopes = [(a, b) for a in range(labels) for b in range(a + 1, labels)]
    directions = rng.normal(size=(labels, 4))
    examples = []
    for _ in range(n):
        x = rng.normal(size=4)
        truth = (directions @ x + rng.normal(size=labels) > 0.0).astype(int)
        rows = directions * x + 0.3 * rng.normal(size=(labels, 4))
        examples.append(Example([2] * labels, scopes, rows, None, truth, np.ones(labels)))
    return Small(examples, 1.0 - np.eye(2))


@dataclass
class Optimum:
    value: float
    penalty_free: float  # g(w, δ)
    w: Floats
    delta: list[Floats]
    square: float  # Σ c_i |δ_i|²


def optimum(small: Small, problem: GraphProblem, caps: Floats, rho: float, M: float) -> Optimum:
    d = problem.n_weights
    k = len(small.cost)
    kinds = small.kinds()
    rows: list[dict[int, float]] = []
    right: list[float] = []
    n_vars = d
    linear: dict[int, float] = {}
    quadratic: dict[int, float] = dict.fromkeys(range(d), 1.0)
    delta_of: list[list[int]] = []

    def new() -> int:
        nonlocal n_vars
        n_vars += 1
        return n_vars - 1

    def columns(x: Floats, s: int) -> dict[int, float]:
        return {f * problem.n_columns + s: float(x[f]) for f in range(len(x))}

    for i, e in enumerate(small.examples):
        delta = {}
        delta_of.append([])
        for c, scope in enumerate(e.scopes):
            for p, v in enumerate(scope):
                for s in range(e.n_states[v]):
                    delta[c, p, s] = new()
                    delta_of[-1].append(delta[c, p, s])
                    quadratic[delta[c, p, s]] = rho * M * caps[i]
        for v in range(len(e.n_states)):
            xi = new()
            linear[xi] = caps[i]
            for s in range(k):
                row = {xi: -1.0}
                for j, value in columns(e.X[v], s).items():
                    row[j] = row.get(j, 0.0) + value
                for j, value in columns(e.X[v], int(e.labels[v])).items():
                    row[j] = row.get(j, 0.0) - value
                for c, scope in enumerate(e.scopes):
                    if v in scope:
                        row[delta[c, scope.index(v), s]] = 1.0
                rows.append(row)
                right.append(-e.weight[v] * small.cost[e.labels[v], s])
        for c, scope in enumerate(e.scopes):
            xi = new()
            linear[xi] = caps[i]
            kind = tuple(e.n_states[v] for v in scope)
            at = int(problem.table_offset[kinds.index(kind)])
            x = np.ones(1) if e.edge is None else e.edge[c]
            size = int(np.prod(kind))
            true = int(np.ravel_multi_index([e.labels[v] for v in scope], kind))
            for y, states in enumerate(itertools.product(*(range(n) for n in kind))):
                row = {xi: -1.0}
                for f, value in enumerate(x):
                    row[at + f * size + y] = row.get(at + f * size + y, 0.0) + value
                    row[at + f * size + true] = row.get(at + f * size + true, 0.0) - value
                for p, s in enumerate(states):
                    row[delta[c, p, s]] = -1.0
                rows.append(row)
                right.append(0.0)
    A = sparse.lil_matrix((len(rows), n_vars))
    for r, row in enumerate(rows):
        for j, value in row.items():
            A[r, j] = value
    P = sparse.diags([quadratic.get(j, 0.0) for j in range(n_vars)], format="csc")
    q = np.array([linear.get(j, 0.0) for j in range(n_vars)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    solver = clarabel.DefaultSolver(
        P, q, A.tocsc(), np.array(right), [clarabel.NonnegativeConeT(len(rows))], settings
    )
    x = np.array(solver.solve().x)
    delta = [x[np.array(index, int)] for index in delta_of]
    square = sum(c * float(part @ part) for c, part in zip(caps, delta, strict=True))
    free = 0.5 * float(x[:d] @ x[:d]) + float(q @ x)
    return Optimum(free + 0.5 * rho * M * square, free, x[:d], delta, square)
