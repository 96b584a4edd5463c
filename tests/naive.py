"""Slow, obvious twins of the library's kernels, and random data; nothing of hingeline imported.

Weights are one flat vector. Multiclass: ``W[feature, class]``, feature-major. Chain: emissions
``W[feature, label]`` (d*L), transitions ``T[from, to]`` (L*L), then, with ``boundary``, start (L)
and end (L). Among tied outputs the lexicographically first one wins, save in ``naive_viterbi``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = Sequence[int] | npt.NDArray[np.integer[Any]]
Output = tuple[int, ...]

MAX_OUTPUTS = 243  # of a random chain: what a full QP can still enumerate


def multiclass_joint_feature(x: npt.ArrayLike, y: int, n_classes: int) -> Floats:
    """f(x, y): the features of x in column y of a (feature, class) table, flattened."""
    x = np.asarray(x, dtype=np.float64)
    table = np.zeros((x.shape[0], n_classes))
    for feature in range(x.shape[0]):
        table[feature, y] = x[feature]
    return table.ravel()


def chain_size(n_features: int, n_labels: int, boundary: bool) -> int:
    """Length of the chain's flat weight vector."""
    return n_features * n_labels + n_labels**2 + (2 * n_labels if boundary else 0)


def chain_joint_feature(x: npt.ArrayLike, y: Labels, n_labels: int, boundary: bool) -> Floats:
    """f(x, y) of a chain: summed emissions, transition counts, start and end indicators."""
    x = np.asarray(x, dtype=np.float64)
    length, n_features = x.shape
    if len(y) != length:
        raise ValueError(f"y has {len(y)} labels for {length} positions")
    emissions = np.zeros((n_features, n_labels))
    transitions = np.zeros((n_labels, n_labels))
    start = np.zeros(n_labels)
    end = np.zeros(n_labels)
    for t in range(length):
        for feature in range(n_features):
            emissions[feature, y[t]] += x[t, feature]
    for t in range(1, length):
        transitions[y[t - 1], y[t]] += 1.0
    if length > 0:
        start[y[0]] += 1.0
        end[y[length - 1]] += 1.0
    blocks = [emissions.ravel(), transitions.ravel()]
    if boundary:
        blocks += [start, end]
    return np.concatenate(blocks)


def split_chain_weights(
    w: npt.ArrayLike, n_features: int, n_labels: int, boundary: bool
) -> tuple[Floats, Floats, Floats, Floats]:
    """Emissions (d, L), transitions (L, L), start (L,), end (L,); zeros without boundary."""
    w = np.asarray(w, dtype=np.float64)
    if w.shape != (chain_size(n_features, n_labels, boundary),):
        raise ValueError(f"w has shape {w.shape}")
    a = n_features * n_labels
    b = a + n_labels * n_labels
    emissions = w[:a].reshape(n_features, n_labels)
    transitions = w[a:b].reshape(n_labels, n_labels)
    if not boundary:
        return emissions, transitions, np.zeros(n_labels), np.zeros(n_labels)
    return emissions, transitions, w[b : b + n_labels], w[b + n_labels :]


def position_cost(truth: int, label: int, costs: npt.ArrayLike | None = None) -> float:
    """Loss of one position; ``costs`` as in ``hamming``."""
    if costs is None:
        return 1.0 if truth != label else 0.0
    costs = np.asarray(costs, dtype=np.float64)
    if costs.ndim == 1:
        return float(costs[truth]) if truth != label else 0.0
    return float(costs[truth, label])


def hamming(y_true: Labels, y: Labels, costs: npt.ArrayLike | None = None) -> float:
    """Number of wrong positions, or their summed costs.

    ``costs`` (L,): cost of the true label at each wrong position; (L, L): ``costs[true, given]``
    summed over all positions.
    """
    if len(y_true) != len(y):
        raise ValueError(f"lengths differ: {len(y_true)} and {len(y)}")
    total = 0.0
    for t in range(len(y_true)):
        total += position_cost(int(y_true[t]), int(y[t]), costs)
    return total


def enumerate_outputs(length: int, n_labels: int) -> list[Output]:
    """All label sequences of the length, in lexicographic order."""
    return list(itertools.product(range(n_labels), repeat=length))


def brute_force_multiclass(
    x: npt.ArrayLike,
    w: npt.ArrayLike,
    y_true: int,
    loss_scale: float,
    n_classes: int,
    cost_matrix: npt.ArrayLike | None = None,
) -> tuple[float, int]:
    """max_y w.f(x,y) + loss_scale * l(y) over the classes, and its first argmax."""
    w = np.asarray(w, dtype=np.float64)
    best, best_y = -np.inf, -1
    for y in range(n_classes):
        value = float(w @ multiclass_joint_feature(x, y, n_classes))
        value += loss_scale * hamming([y_true], [y], cost_matrix)
        if value > best:
            best, best_y = value, y
    return best, best_y


def brute_force_decode(
    x: npt.ArrayLike,
    w: npt.ArrayLike,
    y_true: Labels | None,
    loss_scale: float,
    n_labels: int,
    boundary: bool = True,
    costs: npt.ArrayLike | None = None,
) -> tuple[float, Output]:
    """max_y w.f(x,y) + loss_scale * l(y) over all chains, and its first argmax.

    ``y_true=None`` decodes without the loss.
    """
    x = np.asarray(x, dtype=np.float64)
    w = np.asarray(w, dtype=np.float64)
    best = -np.inf
    best_y: Output = ()
    for y in enumerate_outputs(x.shape[0], n_labels):
        value = float(w @ chain_joint_feature(x, y, n_labels, boundary))
        if y_true is not None:
            value += loss_scale * hamming(y_true, y, costs)
        if value > best:
            best, best_y = value, y
    return best, best_y


def brute_force_by_loss(
    x: npt.ArrayLike,
    w: npt.ArrayLike,
    y_true: Labels,
    n_labels: int,
    boundary: bool = True,
    costs: npt.ArrayLike | None = None,
) -> dict[float, float]:
    """Each loss value that occurs (rounded to 12 digits) -> best score w.f(x,y), loss not added."""
    x = np.asarray(x, dtype=np.float64)
    w = np.asarray(w, dtype=np.float64)
    best: dict[float, float] = {}
    for y in enumerate_outputs(x.shape[0], n_labels):
        loss = round(hamming(y_true, y, costs), 12)
        score = float(w @ chain_joint_feature(x, y, n_labels, boundary))
        best[loss] = max(score, best.get(loss, -np.inf))
    return best


def naive_viterbi(
    x: npt.ArrayLike,
    w: npt.ArrayLike,
    n_labels: int,
    boundary: bool = True,
    y_true: Labels | None = None,
    loss_scale: float = 0.0,
    costs: npt.ArrayLike | None = None,
) -> tuple[float, Output]:
    """Textbook Viterbi of w.f(x,y) + loss_scale * l(y): (value, an argmax)."""
    x = np.asarray(x, dtype=np.float64)
    length, n_features = x.shape
    emissions, transitions, start, end = split_chain_weights(w, n_features, n_labels, boundary)
    if length == 0:
        return 0.0, ()
    unary = np.zeros((length, n_labels))
    for t in range(length):
        for label in range(n_labels):
            for feature in range(n_features):
                unary[t, label] += x[t, feature] * emissions[feature, label]
            if y_true is not None:
                unary[t, label] += loss_scale * position_cost(int(y_true[t]), label, costs)
    value = np.zeros((length, n_labels))
    back = np.zeros((length, n_labels), dtype=int)
    for label in range(n_labels):
        value[0, label] = unary[0, label] + start[label]
    for t in range(1, length):
        for label in range(n_labels):
            best, best_prev = -np.inf, -1
            for prev in range(n_labels):
                candidate = value[t - 1, prev] + transitions[prev, label]
                if candidate > best:
                    best, best_prev = candidate, prev
            value[t, label] = best + unary[t, label]
            back[t, label] = best_prev
    last, total = -1, -np.inf
    for label in range(n_labels):
        if value[length - 1, label] + end[label] > total:
            last, total = label, float(value[length - 1, label] + end[label])
    path = [last]
    for t in range(length - 1, 0, -1):
        path.append(int(back[t, path[-1]]))
    return total, tuple(reversed(path))


def random_multiclass(
    rng: np.random.Generator, n: int, d: int, K: int, separable: bool = False
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """X (n, d) and y (n,), noisy or separable without intercept."""
    W = rng.normal(size=(d, K))
    X = np.zeros((n, d))
    y = np.zeros(n, dtype=np.int64)
    for i in range(n):
        while True:
            X[i] = rng.normal(size=d)
            order = np.argsort(X[i] @ W)
            y[i] = order[-1]
            if not separable:
                y[i] = order[-1] if rng.random() < 0.7 else rng.integers(K)
                break
            if K == 1 or X[i] @ (W[:, order[-1]] - W[:, order[-2]]) > 0.3:
                break
    return X, y


def random_chains(
    rng: np.random.Generator, n: int, d: int, L: int, T_max: int, separable: bool = False
) -> tuple[list[Floats], list[npt.NDArray[np.int64]]]:
    """X[i] (T_i, d) and Y[i] (T_i,), 1 <= T_i <= T_max.

    ``separable``: by emissions and transitions alone, so with or without boundary weights.
    """
    if L**T_max > MAX_OUTPUTS:
        raise ValueError(f"L**T_max = {L**T_max} outputs, more than {MAX_OUTPUTS}")
    w = rng.normal(size=chain_size(d, L, False))
    X: list[Floats] = []
    Y: list[npt.NDArray[np.int64]] = []
    while len(X) < n:
        x = rng.normal(size=(int(rng.integers(1, T_max + 1)), d))
        best, y = brute_force_decode(x, w, None, 0.0, L, boundary=False)
        labels = np.array(y, dtype=np.int64)
        if separable:
            augmented, _ = brute_force_decode(x, w, y, 0.2, L, boundary=False)
            if augmented > best:
                continue
        else:
            noise = rng.random(len(labels)) < 0.3
            labels[noise] = rng.integers(L, size=int(noise.sum()))
        X.append(x)
        Y.append(labels)
    return X, Y


def all_trees(length: int, projective: bool) -> list[tuple[int, ...]]:
    """Heads of all dependency trees of so many words with one word below the root."""

    def is_tree(heads: tuple[int, ...]) -> bool:
        above = [0, *heads]
        reached = range(length + 1)
        for _ in heads:
            reached = [above[k] for k in reached]
        return heads.count(0) == 1 and not any(reached)

    def crosses(a: int, b: int, c: int, d: int) -> bool:
        return a < c < b < d or c < a < d < b

    def is_projective(heads: tuple[int, ...]) -> bool:
        arcs = [(min(h, m), max(h, m)) for m, h in enumerate(heads, start=1)]
        return not any(crosses(*one, *two) for one in arcs for two in arcs)

    trees = filter(is_tree, itertools.product(range(length + 1), repeat=length))
    return [heads for heads in trees if not projective or is_projective(heads)]
