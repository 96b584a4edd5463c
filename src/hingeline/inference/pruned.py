"""Exact best paths through chains with many labels, looking at few predecessors.

With L labels the forward maxima ``f[t, k] = s[t, k] + max_j (f[t−1, j] + A[j, k])`` cost L² per
position, and almost all of it goes to predecessors that no good path uses. Here only the *chosen*
predecessors of a position, those of the largest promise ``f[j] + max_k A[j, k]``, are tried one by
one; the largest promise of the others, the *floor*, stands in for all of them, which makes each f
an upper bound. The best path under these bounds is followed back. Where each of its moves comes
from a chosen predecessor that beats the floor, it is the best path of all; where one does not,
that position gets as many more predecessors as its move calls for, and the table behind it is made
again. N. Kaji et al., *Efficient staggered decoding for sequence labeling* (2010) have the scheme,
with groups of labels in place of predecessors.

The result is that of :func:`hingeline.inference.viterbi.max_sum`, bit by bit and tie by tie: sums
are taken in the same order, rounding is monotone (a bound stays one when it is rounded), and a tie
with the floor counts as lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hingeline._jit import helper
from hingeline._simd import add_max, max_plus_chosen, row_max
from hingeline.inference.viterbi import max_sum

Array = np.ndarray[Any, Any]

#: With fewer labels the full table is quicker.
MANY_LABELS = 64
#: Predecessors are chosen at first if their promise is within this share of the spread of the
#: rows' maxima from the best one: enough to be right at once more often than not.
_FIRST_WIDTH = 0.6
#: After so many rounds the full table takes over: scores are too even to tell labels apart.
_ROUNDS = 10


@helper
def best_moves(transitions: Array, n_labels: int) -> Array:
    """``max_k A[j, k]`` of every label, ``−inf`` in the padding."""
    stride = transitions.shape[1]
    table = transitions.reshape(transitions.size)
    best = np.full(stride, -np.inf)
    for j in range(n_labels):
        best[j] = row_max(table, j * stride, n_labels)
    return best


@helper
def _first_width(best: Array, n_labels: int) -> float:
    low = np.inf
    high = -np.inf
    for j in range(n_labels):
        if best[j] > -np.inf:
            low = min(low, best[j])
            high = max(high, best[j])
    return _FIRST_WIDTH * (high - low) if high > low else 0.0


@helper
def _choose(promise: Array, n_labels: int, least: float, chosen: Array) -> tuple[int, float]:
    """List the labels that promise at least ``least``; their number, and the best of the others."""
    count = 0
    floor = -np.inf
    for j in range(n_labels):
        value = promise[j]
        chosen[count] = j  # without a branch; the next one overwrites what does not stay
        stays = value >= least
        count += 1 if stays else 0
        floor = max(floor, -np.inf if stays else value)
    return count, floor


@helper
def best_path(scores: Array, transitions: Array, best: Array, n_labels: int, y_out: Array) -> float:
    """Best path through ``scores`` (T, stride), which may change; ``best`` is of ``best_moves``."""
    length, stride = scores.shape
    sums = scores.reshape(scores.size)
    table = transitions.reshape(transitions.size)
    forward = np.empty(scores.size)
    promise = np.empty(stride)
    chosen = np.empty((length, n_labels), dtype=np.int64)
    count = np.empty(length, dtype=np.int64)
    floor = np.empty(length)
    top = np.empty(length)
    width = np.full(length, _first_width(best, n_labels))
    for k in range(stride):
        forward[k] = sums[k]
    first = 0  # tables are good before this position
    for _ in range(_ROUNDS):
        for t in range(first, length - 1):
            top[t] = add_max(forward, t * stride, best, stride, promise)
            if top[t] == -np.inf:  # no path goes on from here, and ties are all there is
                return max_sum(scores, transitions, n_labels, y_out)
            count[t], floor[t] = _choose(promise, n_labels, top[t] - width[t], chosen[t])
            max_plus_chosen(
                forward,
                t * stride,
                chosen[t],
                count[t],
                floor[t],
                table,
                stride,
                sums,
                forward,
                (t + 1) * stride,
            )
        at = (length - 1) * stride
        last = 0
        for k in range(1, n_labels):
            if forward[at + k] > forward[at + last]:
                last = k
        value = forward[at + last]
        y_out[length - 1] = last
        first = length
        for t in range(length - 2, -1, -1):
            k = y_out[t + 1]
            most = -np.inf
            arg = 0
            for p in range(count[t]):
                j = chosen[t, p]
                s = forward[t * stride + j] + table[j * stride + k]
                if s > most:
                    most = s
                    arg = j
            y_out[t] = arg
            if most <= floor[t]:
                width[t] = top[t] - (most if most > -np.inf else floor[t])
                first = t
        if first == length:
            return value
    return max_sum(scores, transitions, n_labels, y_out)
