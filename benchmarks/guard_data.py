"""Data of the guard's grid, generated from fixed seeds, and a structure of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hingeline as hl
from hingeline import constraints as cs

Params = dict[str, Any]
Data = tuple[Any, Any]

#: Of the structure of one's own.
N_CLASSES = 3


def rows(seed: int = 0, n: int = 24, d: int = 5, k: int = 4) -> Data:
    """Return a multi-class problem whose classes overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    X = rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(k, d))[y]
    return X * (rng.random((n, d)) < 0.8), y


def sequences(seed: int = 0, n: int = 10, d: int = 4, k: int = 3) -> Data:
    """Return sequences of 1 to 6 tokens with sparse features, and labels that hang together."""
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.normal(size=(k, d))
    X, y = [], []
    for _ in range(n):
        labels = np.cumsum(rng.random(rng.integers(1, 7)) < 0.5) % k
        noise = rng.normal(size=(len(labels), d))
        X.append((centres[labels] + noise) * (rng.random(noise.shape) < 0.8))
        y.append(labels)
    return X, y


def words(seed: int = 0, n: int = 10) -> tuple[list[list[str]], list[list[str]]]:
    """Return records of words: field A first, then B and C in any order, each ended by a comma."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        tokens, labels = [], []
        for name in ["A", *rng.permutation(["B", "C"]).tolist()]:
            count = int(rng.integers(1, 4))
            for s in range(count):
                cue = s == 0 and rng.random() < 0.7
                sure = f"{name}{rng.integers(5)}" if rng.random() < 0.8 else f"w{rng.integers(4)}"
                tokens.append(f"cue{name}" if cue else sure)
            tokens.append(",")
            labels += [name] * (count + 1)
        X.append(tokens)
        y.append(labels)
    return X, y


def knowledge() -> list[Any]:
    """Return what is known of the records of `words`."""
    cues = [cs.Words([f"cue{name}"], name) for name in "ABC"]
    share = cs.Share("A", at_least=0.25, at_most=0.4)
    return [cs.StartsWith("A"), cs.NoRepeats(), cs.ChangeOnlyAt(","), *cues, share]


def grid_edges(rows: int, columns: int) -> list[tuple[int, int]]:
    """Return the pairs of neighbours in a grid numbered row by row."""
    number = np.arange(rows * columns).reshape(rows, columns)
    across = zip(number[:, :-1].ravel().tolist(), number[:, 1:].ravel().tolist(), strict=True)
    down = zip(number[:-1].ravel().tolist(), number[1:].ravel().tolist(), strict=True)
    return [*across, *down]


def graphs(kind: str, seed: int = 0, n: int = 5) -> Data:
    """Return graphs of a kind: forests, loops, grids of two or three labels, or rich in features.

    In "attractive" ones all nodes have one label, so that scores of pairs stay submodular.
    """
    rng = np.random.default_rng(seed)
    k = 2 if kind in ("binary", "attractive") else 3
    centres = 1.5 * rng.normal(size=(k, 4))
    X, y = [], []
    for _ in range(n):
        if kind == "forest":
            nodes = int(rng.integers(2, 6))
            edges = [(int(rng.integers(v)), v) for v in range(1, nodes) if rng.random() < 0.8]
        elif kind in ("loops", "rich"):
            nodes = int(rng.integers(3, 6))
            edges = [(v, (v + 1) % nodes) for v in range(nodes)]
        else:
            nodes, edges = (12, grid_edges(3, 4)) if kind == "large" else (9, grid_edges(3, 3))
        change = {"attractive": 0.0, "binary": 0.3, "large": 0.3}.get(kind, 0.6)
        labels = (np.cumsum(rng.random(nodes) < change) + rng.integers(k)) % k
        features = centres[labels] + rng.normal(size=(nodes, 4))
        more: Params = {}
        if kind == "rich":
            more = {
                "edge_features": rng.normal(size=(len(edges), 2)),
                "node_weights": rng.uniform(0.5, 2.0, nodes),
                "node_types": np.arange(nodes) % 2,
                "edge_types": np.arange(len(edges)) % 2,
                "factors": {"triple": [(0, 1, 2)]},
            }
        X.append(hl.Graph(features, edges, **more))
        y.append(labels)
    return X, y


def label_sets(seed: int = 0, n: int = 20, d: int = 4, k: int = 4) -> Data:
    """Return a multi-label problem."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, k)) + 0.5 * rng.normal(size=(n, k))
    return X, (scores > 0.3).astype(int)


def _joint_feature(x: Any, y: Any) -> Any:
    f = np.zeros(N_CLASSES * len(x))
    for j in range(len(x)):
        f[y[0] * len(x) + j] = x[j]
    return f


def _loss(y_true: Any, y: Any) -> float:
    return float(abs(y_true[0] - y[0]))


def make_structure(wrap: Callable[[Any], Any]) -> Any:
    """Return ordered classes as a structure of one's own, its methods wrapped."""
    joint_feature, loss = wrap(_joint_feature), wrap(_loss)

    def scores(x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        values = np.empty(N_CLASSES)
        for k in range(N_CLASSES):
            y = np.array([k], dtype=np.int32)
            values[k] = np.sum(w * joint_feature(x, y))
            if loss_scale != 0.0:
                values[k] += loss_scale * loss(y_true, y)
        return values

    scores = wrap(scores)

    def decode(x: Any, w: Any, y_true: Any, loss_scale: float) -> Any:
        return np.array([np.argmax(scores(x, w, y_true, loss_scale))], dtype=np.int32)

    def decode_by_loss(x: Any, w: Any, y_true: Any) -> Any:
        values = scores(x, w, y_true, 0.0)
        best = np.full(N_CLASSES, -np.inf)
        ys = np.zeros((N_CLASSES, 1), dtype=np.int32)
        for k in range(N_CLASSES):
            cost = abs(k - y_true[0])
            if values[k] > best[cost]:
                best[cost] = values[k]
                ys[cost, 0] = k
        there = np.flatnonzero(best > -np.inf)
        return there.astype(np.float64), ys[there]

    def decode_best(x: Any, w: Any, y_true: Any, loss_scale: float, k: int) -> Any:
        order = np.argsort(-scores(x, w, y_true, loss_scale))[:k]
        return order.astype(np.int32).reshape(-1, 1)

    methods = {
        "joint_feature": joint_feature,
        "loss": loss,
        "decode": wrap(decode),
        "decode_by_loss": wrap(decode_by_loss),
        "decode_best": wrap(decode_best),
    }
    members = {name: staticmethod(method) for name, method in methods.items()}
    return type("Ordered", (hl.Structure,), members)()
