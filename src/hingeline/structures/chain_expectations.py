"""Expected features of chains under the log-linear model, feature by feature.

``p(y | x) ∝ exp(w·f(x, y))``, with the weights and masks of :mod:`hingeline.structures.chain`.
Two kernels share the work: one computes the probabilities of labels and moves, sequence by
sequence; the other sums those of labels over the tokens of each feature. Each writes only what
belongs to its own sequences or features, so that results do not depend on threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import kernel, strict_helper
from hingeline.inference.forward_backward import log_sums, off_and_diagonal, scaled_sums
from hingeline.structures.chain import moves, position_scores
from hingeline.structures.chain_problem import ChainProblem

Array = np.ndarray[Any, Any]


@kernel
def expect_all(
    problem: ChainProblem,
    lo: int,
    hi: int,
    w: Array,
    weights: Array,
    unary: Array,
    enter: Array,
    first: int,
    nodes: Array,
    stays: Array,
    moved: Array,
    ends: Array,
    log_z: Array,
) -> None:
    """Probabilities of labels and moves in the sequences ``lo ≤ i < hi``.

    Parameters
    ----------
    problem : ChainProblem
    lo, hi : int
    w : (n_weights,)
    weights : (n,)
        Of the sequences; every probability is multiplied by its sequence's.
    unary : (tokens, stride) or (0, stride)
        Added to the score of a token's label.
    enter : (tokens, stride) or (0, stride)
        Added to the score where a token's label differs from the one before.
    first : int
        The token of the first row of ``nodes`` and ``stays``.
    nodes, stays : (tokens of a block, stride), out
        See :func:`hingeline.inference.forward_backward.log_sums`; ``stays`` may have no rows.
    moved : (labels, stride)
        Gains the expected numbers of moves.
    ends : (2, stride)
        Gains the probabilities of first and last labels.
    log_z : (n,), out
    """
    A = moves(problem, w)
    n_labels = problem.n_labels
    stride = problem.stride
    off = np.zeros((n_labels, stride))
    diagonal = np.zeros(stride)
    back = np.zeros((n_labels, stride))
    top = off_and_diagonal(A, n_labels, off, back, diagonal)
    for i in range(lo, hi):
        a = problem.offsets[i]
        b = problem.offsets[i + 1]
        scores = position_scores(problem, i, w, 0.0)
        if unary.shape[0] > 0:
            for t in range(a, b):
                for k in range(n_labels):
                    scores[t - a, k] += unary[t, k]
        entered = enter[a:b] if enter.shape[0] > 0 else enter
        own = nodes[a - first : b - first]
        stayed = stays[a - first : b - first] if stays.shape[0] > 0 else stays
        value = scaled_sums(
            scores, off, back, diagonal, top, entered, n_labels, weights[i], own, stayed, moved
        )
        if np.isnan(value):
            value = log_sums(scores, A, entered, n_labels, weights[i], own, stayed, moved)
        log_z[i] = value
        if value == -np.inf:
            continue
        for k in range(n_labels):
            ends[0, k] += own[0, k]
            ends[1, k] += own[b - a - 1, k]


@strict_helper
def _add_by_feature(
    indptr: Array, tokens: Array, values: Array, features: Array, nodes: Array, out: Array
) -> None:
    stride = nodes.shape[1]
    total = np.empty(stride)
    for f in features:
        for k in range(stride):
            total[k] = 0.0
        for p in range(indptr[f], indptr[f + 1]):
            v = values[p]
            row = nodes[tokens[p]]
            for k in range(stride):
                total[k] += v * row[k]
        for k in range(stride):
            out[f, k] += total[k]


@kernel
def add_by_feature(
    indptr: Array, tokens: Array, values: Array, features: Array, nodes: Array, out: Array
) -> None:
    """``out[f] += Σ_t x_tf·nodes[t]`` for some features; the matrix is CSC."""
    _add_by_feature(indptr, tokens, values, features, nodes, out)
